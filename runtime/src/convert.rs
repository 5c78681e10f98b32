//! Conversion between the element types of callers and those of the device.
//!
//! Towards the device, integers are checked: what 32 bits cannot hold is an error, never another number. Floats
//! are rounded. Towards the caller, integers are cut to the caller's width, which is the arithmetic that narrow
//! types have; a bool is what is not zero.

use crate::format::{DeviceType, HostType};
use half::{bf16, f16};

/// The element that does not fit: its index and value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Misfit {
    pub(crate) index: usize,
    pub(crate) value: i128,
}

/// Writes an array into a device buffer, front to back and each byte once, as write-combined memory likes it.
/// `device` is at least as long as the elements take; bytes up to the next multiple of 4 become zero.
pub(crate) fn to_device(
    host: HostType,
    from: &[u8],
    device: DeviceType,
    to: &mut [u8],
) -> Result<(), Misfit> {
    match (host, device) {
        (HostType::F32, DeviceType::F32)
        | (HostType::F16, DeviceType::F16)
        | (HostType::I32, DeviceType::I32)
        | (HostType::U32, DeviceType::U32) => copy(from, to),
        (HostType::F32, _) => floats(from, device, to, f32::from_le_bytes),
        (HostType::F16, _) => floats(from, device, to, |b| f16::from_le_bytes(b).to_f32()),
        (HostType::Bf16, _) => floats(from, device, to, |b| bf16::from_le_bytes(b).to_f32()),
        (HostType::F64, DeviceType::F16) => {
            map(from, to, |b| f16::from_f64(f64::from_le_bytes(b)).to_le_bytes())
        }
        (HostType::F64, _) => floats(from, device, to, |b| f64::from_le_bytes(b) as f32),
        (HostType::I8, _) => return integers(from, device, to, |b| i8::from_le_bytes(b).into()),
        (HostType::I16, _) => return integers(from, device, to, |b| i16::from_le_bytes(b).into()),
        (HostType::I32, _) => return integers(from, device, to, |b| i32::from_le_bytes(b).into()),
        (HostType::I64, _) => return integers(from, device, to, |b| i64::from_le_bytes(b).into()),
        (HostType::U8, _) => return integers(from, device, to, |b| u8::from_le_bytes(b).into()),
        (HostType::U16, _) => return integers(from, device, to, |b| u16::from_le_bytes(b).into()),
        (HostType::U32, _) => return integers(from, device, to, |b| u32::from_le_bytes(b).into()),
        (HostType::U64, _) => return integers(from, device, to, |b| u64::from_le_bytes(b).into()),
        (HostType::Bool, _) => map(from, to, |[byte]: [u8; 1]| u32::from(byte != 0).to_le_bytes()),
    }
    Ok(())
}

/// Reads an array out of a device buffer. `to` has exactly the bytes of the elements; `from` at least as many.
pub(crate) fn from_device(device: DeviceType, from: &[u8], host: HostType, to: &mut [u8]) {
    match (device, host) {
        (DeviceType::F32, HostType::F32)
        | (DeviceType::F16, HostType::F16)
        | (DeviceType::I32 | DeviceType::U32, HostType::I32 | HostType::U32) => {
            let length = to.len().min(from.len());
            copy(from.get(..length).unwrap_or_default(), to);
        }
        (DeviceType::F32, HostType::F64) => map(from, to, |b| f64::from(f32::from_le_bytes(b)).to_le_bytes()),
        (DeviceType::F32, HostType::F16) => {
            map(from, to, |b| f16::from_f32(f32::from_le_bytes(b)).to_le_bytes())
        }
        (DeviceType::F32, _) => map(from, to, |b| bf16::from_f32(f32::from_le_bytes(b)).to_le_bytes()),
        (DeviceType::F16, HostType::F32) => map(from, to, |b| f16::from_le_bytes(b).to_f32().to_le_bytes()),
        (DeviceType::F16, HostType::F64) => map(from, to, |b| f16::from_le_bytes(b).to_f64().to_le_bytes()),
        (DeviceType::F16, _) => {
            map(from, to, |b| bf16::from_f32(f16::from_le_bytes(b).to_f32()).to_le_bytes())
        }
        (_, HostType::Bool) => map(from, to, |b| [u8::from(u32::from_le_bytes(b) != 0)]),
        (_, HostType::I8 | HostType::U8) => map(from, to, |[low, _, _, _]: [u8; 4]| [low]),
        (_, HostType::I16 | HostType::U16) => map(from, to, |[low, high, _, _]: [u8; 4]| [low, high]),
        (DeviceType::I32, _) => map(from, to, |b| i64::from(i32::from_le_bytes(b)).to_le_bytes()),
        (DeviceType::U32, _) => map(from, to, |b| u64::from(u32::from_le_bytes(b)).to_le_bytes()),
    }
}

fn copy(from: &[u8], to: &mut [u8]) {
    let length = from.len().min(to.len());
    if let (Some(from), Some((head, tail))) = (from.get(..length), to.split_at_mut_checked(length)) {
        head.copy_from_slice(from);
        pad(tail, length);
    }
}

/// Zeroes what lies between the end of the elements and the next multiple of 4.
fn pad(tail: &mut [u8], length: usize) {
    tail.iter_mut().take(length.next_multiple_of(4) - length).for_each(|byte| *byte = 0);
}

/// Converts element by element, as many as both sides have.
fn map<const N: usize, const M: usize>(from: &[u8], to: &mut [u8], convert: impl Fn([u8; N]) -> [u8; M]) {
    let (from, _) = from.as_chunks::<N>();
    let (elements, _) = to.as_chunks_mut::<M>();
    for (from, to) in from.iter().zip(elements) {
        *to = convert(*from);
    }
    let length = from.len().saturating_mul(M).min(to.len());
    pad(to.get_mut(length..).unwrap_or_default(), length);
}

fn floats<const N: usize>(from: &[u8], device: DeviceType, to: &mut [u8], read: impl Fn([u8; N]) -> f32) {
    match device {
        DeviceType::F16 => map(from, to, |bytes| f16::from_f32(read(bytes)).to_le_bytes()),
        _ => map(from, to, |bytes| read(bytes).to_le_bytes()),
    }
}

fn integers<const N: usize>(
    from: &[u8],
    device: DeviceType,
    to: &mut [u8],
    read: impl Fn([u8; N]) -> i128,
) -> Result<(), Misfit> {
    let (from, _) = from.as_chunks::<N>();
    let (to, _) = to.as_chunks_mut::<4>();
    for (index, (from, to)) in from.iter().zip(to).enumerate() {
        let value = read(*from);
        *to = match device {
            DeviceType::U32 => u32::try_from(value).map(u32::to_le_bytes),
            _ => i32::try_from(value).map(i32::to_le_bytes),
        }
        .map_err(|_| Misfit { index, value })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Misfit, from_device, to_device};
    use crate::format::{DeviceType, HostType};
    use half::{bf16, f16};

    #[test]
    fn integers_are_checked() {
        let bytes = [5i64, -1, 1 << 31].map(i64::to_le_bytes).concat();
        let mut device = [0u8; 12];
        assert_eq!(
            to_device(HostType::I64, &bytes, DeviceType::I32, &mut device),
            Err(Misfit { index: 2, value: 1 << 31 })
        );
        assert_eq!(
            to_device(HostType::I64, &bytes, DeviceType::U32, &mut device),
            Err(Misfit { index: 1, value: -1 })
        );
    }

    #[test]
    fn integers_return_as_they_went() {
        let bytes = [-3i8, 0, 127].map(i8::to_le_bytes).concat();
        let mut device = [0u8; 12];
        to_device(HostType::I8, &bytes, DeviceType::I32, &mut device).unwrap();
        assert_eq!(device, [-3i32, 0, 127].map(i32::to_le_bytes).concat().as_slice());
        let mut back = [0u8; 3];
        from_device(DeviceType::I32, &device, HostType::I8, &mut back);
        assert_eq!(back.as_slice(), bytes);
        let mut wide = [0u8; 24];
        from_device(DeviceType::I32, &device, HostType::I64, &mut wide);
        assert_eq!(wide.as_slice(), [-3i64, 0, 127].map(i64::to_le_bytes).concat());
    }

    #[test]
    fn floats_round_and_odd_halves_are_padded() {
        let bytes = [1.0f32, -2.5, 65504.0].map(f32::to_le_bytes).concat();
        let mut device = [0xffu8; 8];
        to_device(HostType::F32, &bytes, DeviceType::F16, &mut device).unwrap();
        assert_eq!(device[..6], [1.0, -2.5, 65504.0].map(|v| f16::from_f32(v).to_le_bytes()).concat());
        assert_eq!(device[6..], [0, 0]);
        let mut back = [0u8; 12];
        from_device(DeviceType::F16, &device, HostType::F32, &mut back);
        assert_eq!(back.as_slice(), bytes);
        let mut narrow = [0u8; 6];
        from_device(DeviceType::F16, &device, HostType::Bf16, &mut narrow);
        assert_eq!(narrow.as_slice(), [1.0, -2.5, 65504.0].map(|v| bf16::from_f32(v).to_le_bytes()).concat());
    }

    #[test]
    fn bools_are_words() {
        let mut device = [0u8; 12];
        to_device(HostType::Bool, &[0, 1, 7], DeviceType::U32, &mut device).unwrap();
        assert_eq!(device, [0u32, 1, 1].map(u32::to_le_bytes).concat().as_slice());
        let mut back = [9u8; 3];
        from_device(DeviceType::U32, &device, HostType::Bool, &mut back);
        assert_eq!(back, [0, 1, 1]);
    }
}
