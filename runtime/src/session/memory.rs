//! Arrays without copies on the host: the memory that is transferred, and arrays that stay on the device.
//!
//! [`Session::input_mut`] and [`Session::output`] give what [`Session::write_input`] and [`Session::read_output`] copy to
//! and from. [`DeviceArray`] names memory of the device, which other sessions on it take as inputs.

use super::flights::{Produced, Ticket};
use super::open::{find, position};
use super::{Session, ports};
use crate::device::backend::Range;
#[cfg(not(feature = "wgpu"))]
use crate::device::backend::Replay;
use crate::error::{Error, Result};
use crate::format::{DeviceType, Port};

/// An output as it lies in memory: row-major elements of the device's type, which [`Port::device_type`] names.
#[derive(Clone, Debug, PartialEq)]
pub struct View<'a> {
    pub dtype: DeviceType,
    pub shape: Vec<usize>,
    pub bytes: &'a [u8],
}

/// An array in memory of the device: an output of a run, or memory that is shared with others. It keeps the memory,
/// not the contents: a later run in the same frame overwrites an output.
#[derive(Clone)]
pub struct DeviceArray {
    pub(super) range: Range,
    pub(super) dtype: DeviceType,
    pub(super) shape: Vec<usize>,
}

impl DeviceArray {
    pub fn dtype(&self) -> DeviceType {
        self.dtype
    }

    pub fn shape(&self) -> &[usize] {
        &self.shape
    }
}

impl Session {
    /// The memory of an input of this shape, for the caller to fill with elements of the device's type
    /// ([`Port::device_type`]). What lies there before is of no meaning, and reading it may be slow. It counts as written for
    /// all runs until it is written again.
    ///
    /// # Errors
    /// When the shape is none that the input takes. Integers are not checked: what the device's type holds is what counts.
    pub fn input_mut(&mut self, function: &str, name: &str, shape: &[usize]) -> Result<&mut [u8]> {
        let (index, described) = find(self.bundle.manifest().variants.get(self.variant), function)?;
        let known = described.inputs.iter().map(|port| port.name.as_str());
        let position = position(described, "input", known, name)?;
        let Some(port) = described.inputs.get(position) else { return Ok(&mut []) };
        let (start, length) = ports::place(described, port, shape)?;
        let frame = self.flights.next();
        self.replayer.wait(frame)?;
        self.flights.written(frame, index, position, shape);
        let memory = self.replayer.input(frame, index, position).unwrap_or_default();
        let memory = memory.get_mut(start..).unwrap_or_default();
        let (elements, rest) = memory.split_at_mut_checked(length).unwrap_or_default();
        // Shaders may read whole words.
        rest.iter_mut().take(length.next_multiple_of(4) - length).for_each(|byte| *byte = 0);
        Ok(elements)
    }

    /// An output of the last run, where it was transferred to.
    pub fn output(&self, function: &str, name: &str) -> Result<View<'_>> {
        self.output_of(self.last(function, name)?, name)
    }

    /// An output that a run was asked for, which was waited for.
    pub fn output_of(&self, ticket: Ticket, name: &str) -> Result<View<'_>> {
        let (produced, memory) = self.returned(ticket, name)?;
        let (shape, range) = ports::elements(produced.port, produced.symbols)?;
        let too_large = || Error::TooLarge { place: format!("size of `{name}`"), value: i64::MAX };
        let bytes = memory.get(range).ok_or_else(too_large)?;
        Ok(View { dtype: produced.port.device_type, shape, bytes })
    }

    /// An output of the last run as it lies on the device, whether or not it was asked for.
    pub fn device_output(&self, function: &str, name: &str) -> Result<DeviceArray> {
        self.device_output_of(self.last(function, name)?, name)
    }

    /// An output of a run as it lies on the device; the run may be in flight.
    pub fn device_output_of(&self, ticket: Ticket, name: &str) -> Result<DeviceArray> {
        let Produced { function, index, port, symbols, .. } = self.produced(ticket, name)?;
        let (shape, _) = ports::elements(port, symbols)?;
        let (_, offset, size) = ports::range(0, port, symbols)?;
        let range = self.replayer.device_output(ticket.frame(), function, index, (offset, size));
        let range = range.ok_or_else(|| Error::NotRun(name.to_owned()))?;
        Ok(DeviceArray { range, dtype: port.device_type, shape })
    }

    /// Makes an array of the device an input of all runs until it is written again. It is copied on the device when a run
    /// starts, behind everything that was submitted before, so that nobody need wait for the run that computes it.
    ///
    /// # Errors
    /// When the input takes another shape or type, or the array belongs to a device that was opened for another session;
    /// [`Session::load_together`] opens one for several.
    pub fn feed(&mut self, function: &str, name: &str, array: &DeviceArray) -> Result<()> {
        let (index, described) = find(self.bundle.manifest().variants.get(self.variant), function)?;
        let known = described.inputs.iter().map(|port| port.name.as_str());
        let position = position(described, "input", known, name)?;
        let Some(port) = described.inputs.get(position) else { return Ok(()) };
        self.same_device(name, array, port)?;
        ports::place(described, port, &array.shape)?;
        self.flights.fed(index, position, array);
        Ok(())
    }

    /// Copies an output of the last run into memory of the device, and waits until it is there.
    ///
    /// # Errors
    /// As those of [`Session::feed`].
    pub fn deliver(&mut self, function: &str, name: &str, to: &DeviceArray) -> Result<()> {
        let from = self.device_output(function, name)?;
        let described = self.function(function)?;
        let known = described.outputs.iter().map(|port| port.name.as_str());
        let position = position(described, "output", known, name)?;
        let Some(port) = described.outputs.get(position) else { return Ok(()) };
        self.same_device(name, to, port)?;
        if from.shape != to.shape {
            let expected = from.shape.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
            return Err(Error::WrongShape { port: name.to_owned(), expected, given: to.shape.clone() });
        }
        self.replayer.copy(&from.range, &to.range)
    }

    fn same_device(&self, name: &str, array: &DeviceArray, port: &Port) -> Result<()> {
        if !self.replayer.has(&array.range) {
            return Err(Error::OtherDevice { port: name.to_owned() });
        }
        if array.dtype != port.device_type {
            return Err(Error::WrongDeviceType {
                port: name.to_owned(),
                expected: port.device_type,
                given: array.dtype,
            });
        }
        Ok(())
    }
}
