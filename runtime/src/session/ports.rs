//! Conversion between arrays of the caller and the memory of input and output ports.

use super::symbols::{array_shape, check_shape, format_shape};
use crate::array::{Array, ArrayRef};
use crate::convert::{from_device_on_threads, to_device_on_threads};
use crate::error::{Error, Result};
use crate::format::{Function, Port, element_count};

/// Checks element type, shape and length of an array for an input, as far as possible without the shapes of other
/// inputs. Returns the shape as i64.
pub(crate) fn check_array(function: &Function, port: &Port, array: ArrayRef<'_>) -> Result<Vec<i64>> {
    if array.dtype != port.host_type {
        return Err(Error::WrongType {
            port: port.name.clone(),
            expected: port.host_type,
            given: array.dtype,
        });
    }
    let shape = check_shape(function, port, array.shape)?;
    let expected = element_count(&shape).and_then(|count| count.checked_mul(port.host_type.size()));
    let given = array.bytes.len() as u64;
    if expected != Some(given) {
        let (port, shape) = (port.name.clone(), array.shape.to_vec());
        return Err(Error::WrongLength { port, shape, expected: expected.unwrap_or(u64::MAX), given });
    }
    Ok(shape)
}

/// Converts a caller's array to the device type, and writes it to the memory of an input's slot.
pub(crate) fn write_array(
    function: &Function,
    port: &Port,
    shape: &[i64],
    array: ArrayRef<'_>,
    memory: &mut [u8],
) -> Result<()> {
    let too_large = || Error::WrongShape {
        port: port.name.clone(),
        expected: format_shape(function, port),
        given: array.shape.to_vec(),
    };
    let size = port.device_size(shape).ok_or_else(too_large)?;
    let target = checked_range(memory.len(), port.offset, size).and_then(|range| memory.get_mut(range));
    let target = target.ok_or_else(too_large)?;
    to_device_on_threads(port.host_type, array.bytes, port.device_type, target).map_err(|out_of_range| {
        Error::ValueOutOfRange {
            port: port.name.clone(),
            index: out_of_range.index,
            value: out_of_range.value.to_string(),
            device_type: port.device_type.name(),
        }
    })
}

/// Converts an output from the memory of its slot into an array of the caller. Reuses the array's memory if it is large
/// enough.
pub(crate) fn read_array(port: &Port, symbols: &[i64], memory: &[u8], array: &mut Array) -> Result<()> {
    let shape = array_shape(port, symbols)?;
    let too_large = || Error::TooLarge { place: format!("size of `{}`", port.name), value: i64::MAX };
    array.resize(port.host_type, &shape).ok_or_else(too_large)?;
    read_bytes(port, symbols, memory, &mut array.bytes)
}

/// Converts an output from the memory of its slot into `bytes`, whose length must be the byte size of the output in its
/// host type.
pub(crate) fn read_bytes(port: &Port, symbols: &[i64], memory: &[u8], bytes: &mut [u8]) -> Result<()> {
    let (shape, elements) = output_range(port, symbols)?;
    let too_large = || Error::TooLarge { place: format!("size of `{}`", port.name), value: i64::MAX };
    let source = memory.get(elements).ok_or_else(too_large)?;
    let count = shape.iter().try_fold(1u64, |count, dim| count.checked_mul(u64::try_from(*dim).ok()?));
    let expected = count.and_then(|count| count.checked_mul(port.host_type.size())).ok_or_else(too_large)?;
    let given = bytes.len() as u64;
    if given != expected {
        return Err(Error::WrongLength { port: port.name.clone(), shape, expected, given });
    }
    from_device_on_threads(port.device_type, source, port.host_type, bytes);
    Ok(())
}

/// Returns byte offset and byte size of an array of this shape in an input's slot. Checks the shape as far as possible
/// without the other inputs.
pub(super) fn input_range(function: &Function, port: &Port, shape: &[usize]) -> Result<(usize, usize)> {
    let dims = check_shape(function, port, shape)?;
    let too_large = || Error::TooLarge { place: format!("size of `{}`", port.name), value: i64::MAX };
    let size = element_count(&dims).and_then(|count| count.checked_mul(port.device_type.size()));
    let size = size.and_then(|size| usize::try_from(size).ok()).ok_or_else(too_large)?;
    Ok((usize::try_from(port.offset).map_err(|_| too_large())?, size))
}

/// Returns the shape of an output, and the byte range of its elements in its slot.
pub(super) fn output_range(port: &Port, symbols: &[i64]) -> Result<(Vec<usize>, std::ops::Range<usize>)> {
    let shape = array_shape(port, symbols)?;
    let too_large = || Error::TooLarge { place: format!("size of `{}`", port.name), value: i64::MAX };
    let size = usize::try_from(port.device_type.size()).ok();
    let size = size.and_then(|size| shape.iter().try_fold(size, |size, dim| size.checked_mul(*dim)));
    let start = usize::try_from(port.offset).ok();
    let end = start.zip(size).and_then(|(start, size)| start.checked_add(size));
    Ok((shape, start.zip(end).map(|(start, end)| start..end).ok_or_else(too_large)?))
}

/// Returns (`index`, byte offset, byte size) of the range that a port uses in its slot.
pub(crate) fn slot_range(index: usize, port: &Port, symbols: &[i64]) -> Result<(usize, u64, u64)> {
    let place = || format!("shape of `{}`", port.name);
    let shape = port.shape_at(symbols).map_err(|source| Error::Expression { place: place(), source })?;
    let size = port.device_size(&shape).ok_or_else(|| Error::TooLarge { place: place(), value: i64::MAX })?;
    Ok((index, port.offset, size))
}

fn checked_range(length: usize, offset: u64, size: u64) -> Option<std::ops::Range<usize>> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(usize::try_from(size).ok()?)?;
    (end <= length).then_some(start..end)
}
