//! Conversion between the element types of callers and those of the device.
//!
//! Towards the device, integers are checked: what 32 bits cannot hold is an error, never another number. Floats
//! are rounded. Towards the caller, integers are cut to the caller's width, which is the arithmetic that narrow
//! types have; a bool is what is not zero.
//!
//! Pairs of types that real models use have loops of their own. The others go through one slower loop, since 60
//! loops would be a tenth of a program that embeds the runtime.

use crate::format::{DeviceType, HostType};
use crate::threads;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use std::sync::Mutex;

/// The element that does not fit: its index and value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Misfit {
    pub(crate) index: usize,
    pub(crate) value: Integer,
}

/// A 64-bit integer of either kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Integer {
    Signed(i64),
    Unsigned(u64),
}

impl std::fmt::Display for Integer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Integer::Signed(value) => value.fmt(f),
            Integer::Unsigned(value) => value.fmt(f),
        }
    }
}

/// Elements that one thread converts at a time. Copies of less are over before another thread has started.
const PART: usize = 256 << 10;

/// The same as [`to_device`], on several threads where that is worth it.
pub(crate) fn to_device_on_threads(
    host: HostType,
    from: &[u8],
    device: DeviceType,
    to: &mut [u8],
) -> Result<(), Misfit> {
    let (from_part, to_part) = (bytes(PART, host.size()), bytes(PART, device.size()));
    if from.len() <= 2 * from_part {
        return to_device(host, from, device, to);
    }
    let parts = from.chunks(from_part).zip(to.chunks_mut(to_part));
    let jobs: Vec<_> = parts.map(|(from, to)| Mutex::new((from, to, Ok(())))).collect();
    threads::each(jobs.len(), &|index| {
        let Some(Ok(mut job)) = jobs.get(index).map(Mutex::lock) else { return };
        let (from, to, result) = &mut *job;
        *result = to_device(host, from, device, to);
    });
    for (part, job) in jobs.into_iter().enumerate() {
        let Ok((_, _, result)) = job.into_inner() else { continue };
        result.map_err(|misfit| Misfit { index: misfit.index + part * PART, ..misfit })?;
    }
    Ok(())
}

/// The same as [`from_device`], on several threads where that is worth it.
pub(crate) fn from_device_on_threads(device: DeviceType, from: &[u8], host: HostType, to: &mut [u8]) {
    let (from_part, to_part) = (bytes(PART, device.size()), bytes(PART, host.size()));
    if to.len() <= 2 * to_part {
        return from_device(device, from, host, to);
    }
    let jobs: Vec<_> = from.chunks(from_part).zip(to.chunks_mut(to_part)).map(Mutex::new).collect();
    threads::each(jobs.len(), &|index| {
        let Some(Ok(mut job)) = jobs.get(index).map(Mutex::lock) else { return };
        let (from, to) = &mut *job;
        from_device(device, from, host, to);
    });
}

fn bytes(elements: usize, size: u64) -> usize {
    elements * usize::try_from(size).unwrap_or(1)
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
        (HostType::F32, DeviceType::F16) => narrow(from, to),
        (HostType::F16, DeviceType::F32) => widen_halves(from, to),
        (HostType::F32 | HostType::F16 | HostType::Bf16 | HostType::F64, _) => {
            floats(from, float_kind(host), to, device_float(device));
        }
        _ => return integers(host, from, device, to),
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
        (DeviceType::F16, HostType::F32) => widen_halves(from, to),
        (DeviceType::F32, HostType::F16) => narrow(from, to),
        (_, HostType::F32 | HostType::F16 | HostType::Bf16 | HostType::F64) => {
            floats(from, device_float(device), to, float_kind(host));
        }
        (_, HostType::Bool) => map(from, to, |b| [u8::from(u32::from_le_bytes(b) != 0)]),
        _ => {
            let size = usize::try_from(host.size()).unwrap_or(4);
            let (words, _) = from.as_chunks::<4>();
            for (word, element) in words.iter().zip(to.chunks_exact_mut(size)) {
                let word = u32::from_le_bytes(*word);
                let wide = match device {
                    DeviceType::I32 => i64::from(word.cast_signed()),
                    _ => i64::from(word),
                };
                element.iter_mut().zip(wide.to_le_bytes()).for_each(|(byte, value)| *byte = value);
            }
        }
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

/// As many elements as are converted by one call, which asks the processor what it can do.
const BLOCK: usize = 256;

/// Rounds f32 to f16, with the processor's instructions for that where it has some.
fn narrow(from: &[u8], to: &mut [u8]) {
    let (mut singles, mut halves) = ([0f32; BLOCK], [f16::ZERO; BLOCK]);
    for (from, to) in from.chunks(BLOCK * 4).zip(to.chunks_mut(BLOCK * 2)) {
        for (single, bytes) in singles.iter_mut().zip(from.as_chunks::<4>().0) {
            *single = f32::from_le_bytes(*bytes);
        }
        halves.convert_from_f32_slice(&singles);
        for (half, bytes) in halves.iter().zip(to.as_chunks_mut::<2>().0).take(from.len() / 4) {
            *bytes = half.to_le_bytes();
        }
    }
    let length = (from.len() / 2).min(to.len());
    pad(to.get_mut(length..).unwrap_or_default(), length);
}

/// Makes f32 of f16, likewise.
fn widen_halves(from: &[u8], to: &mut [u8]) {
    let (mut singles, mut halves) = ([0f32; BLOCK], [f16::ZERO; BLOCK]);
    for (from, to) in from.chunks(BLOCK * 2).zip(to.chunks_mut(BLOCK * 4)) {
        for (half, bytes) in halves.iter_mut().zip(from.as_chunks::<2>().0) {
            *half = f16::from_le_bytes(*bytes);
        }
        halves.convert_to_f32_slice(&mut singles);
        for (single, bytes) in singles.iter().zip(to.as_chunks_mut::<4>().0).take(from.len() / 2) {
            *bytes = single.to_le_bytes();
        }
    }
}

/// The float types, apart from integers.
#[derive(Clone, Copy)]
enum Float {
    F16,
    Bf16,
    F32,
    F64,
}

fn float_kind(host: HostType) -> Float {
    match host {
        HostType::F16 => Float::F16,
        HostType::Bf16 => Float::Bf16,
        HostType::F64 => Float::F64,
        _ => Float::F32,
    }
}

fn device_float(device: DeviceType) -> Float {
    match device {
        DeviceType::F16 => Float::F16,
        _ => Float::F32,
    }
}

impl Float {
    fn size(self) -> usize {
        match self {
            Float::F16 | Float::Bf16 => 2,
            Float::F32 => 4,
            Float::F64 => 8,
        }
    }

    fn read(self, bytes: &[u8]) -> f64 {
        let bits = widen(bytes);
        match self {
            Float::F16 => f16::from_bits(bits as u16).to_f64(),
            Float::Bf16 => bf16::from_bits(bits as u16).to_f64(),
            Float::F32 => f32::from_bits(bits as u32).into(),
            Float::F64 => f64::from_bits(bits),
        }
    }

    fn bits(self, value: f64) -> u64 {
        match self {
            Float::F16 => f16::from_f64(value).to_bits().into(),
            Float::Bf16 => bf16::from_f64(value).to_bits().into(),
            Float::F32 => (value as f32).to_bits().into(),
            Float::F64 => value.to_bits(),
        }
    }
}

fn floats(from: &[u8], from_kind: Float, to: &mut [u8], to_kind: Float) {
    let pairs = from.chunks_exact(from_kind.size()).zip(to.chunks_exact_mut(to_kind.size()));
    let mut length = 0;
    for (from, to) in pairs {
        let bits = to_kind.bits(from_kind.read(from));
        to.iter_mut().zip(bits.to_le_bytes()).for_each(|(byte, value)| *byte = value);
        length += to_kind.size();
    }
    pad(to.get_mut(length..).unwrap_or_default(), length);
}

fn integers(host: HostType, from: &[u8], device: DeviceType, to: &mut [u8]) -> Result<(), Misfit> {
    let size = usize::try_from(host.size()).unwrap_or(4);
    let (words, _) = to.as_chunks_mut::<4>();
    for (index, (bytes, word)) in from.chunks_exact(size).zip(words).enumerate() {
        let value = integer(host, bytes);
        let bits = match (device, value) {
            (DeviceType::U32, Integer::Signed(value)) => u32::try_from(value).ok(),
            (DeviceType::U32, Integer::Unsigned(value)) => u32::try_from(value).ok(),
            (_, Integer::Signed(value)) => i32::try_from(value).ok().map(i32::cast_unsigned),
            (_, Integer::Unsigned(value)) => i32::try_from(value).ok().map(i32::cast_unsigned),
        };
        *word = bits.ok_or(Misfit { index, value })?.to_le_bytes();
    }
    Ok(())
}

/// One element of a caller's array, as a float.
pub(crate) fn element_to_f64(host: HostType, bytes: &[u8]) -> f64 {
    match host {
        HostType::F32 | HostType::F16 | HostType::Bf16 | HostType::F64 => float_kind(host).read(bytes),
        _ => match integer(host, bytes) {
            Integer::Signed(value) => value as f64,
            Integer::Unsigned(value) => value as f64,
        },
    }
}

/// One element of a caller's array of integers or bools.
fn integer(host: HostType, bytes: &[u8]) -> Integer {
    let wide = widen(bytes);
    match host {
        HostType::Bool => Integer::Unsigned(u64::from(wide != 0)),
        HostType::I8 | HostType::I16 | HostType::I32 | HostType::I64 => {
            let unused = (8 - bytes.len().clamp(1, 8)) * 8;
            Integer::Signed((wide << unused).cast_signed() >> unused)
        }
        _ => Integer::Unsigned(wide),
    }
}

/// Up to eight little-endian bytes as a number.
fn widen(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::{Integer, Misfit, from_device, to_device};
    use crate::format::{DeviceType, HostType};
    use half::{bf16, f16};

    #[test]
    fn integers_are_checked() {
        let bytes = [5i64, -1, 1 << 31].map(i64::to_le_bytes).concat();
        let mut device = [0u8; 12];
        assert_eq!(
            to_device(HostType::I64, &bytes, DeviceType::I32, &mut device),
            Err(Misfit { index: 2, value: Integer::Signed(1 << 31) })
        );
        assert_eq!(
            to_device(HostType::I64, &bytes, DeviceType::U32, &mut device),
            Err(Misfit { index: 1, value: Integer::Signed(-1) })
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
    fn parts_and_blocks_join() {
        let count = 2 * super::PART + 3 * super::BLOCK + 5;
        let singles: Vec<f32> = (0..=u16::MAX).cycle().take(count).map(|i| f32::from(i) - 30000.5).collect();
        let bytes: Vec<u8> = singles.iter().flat_map(|value| value.to_le_bytes()).collect();
        let mut device = vec![0xff; (count * 2).next_multiple_of(4)];
        super::to_device_on_threads(HostType::F32, &bytes, DeviceType::F16, &mut device).unwrap();
        let halves: Vec<u8> = singles.iter().flat_map(|v| f16::from_f32(*v).to_le_bytes()).collect();
        assert!(device[..count * 2] == halves && device[count * 2..].iter().all(|byte| *byte == 0));
        let mut back = vec![0; count * 4];
        super::from_device_on_threads(DeviceType::F16, &device, HostType::F32, &mut back);
        let rounded: Vec<u8> =
            singles.iter().flat_map(|v| f16::from_f32(*v).to_f32().to_le_bytes()).collect();
        assert!(back == rounded);
        let mut integers = vec![0; count * 8];
        integers[8 * (count - 1)..].copy_from_slice(&i64::MAX.to_le_bytes());
        let mut device = vec![0; count * 4];
        let misfit = super::to_device_on_threads(HostType::I64, &integers, DeviceType::I32, &mut device);
        assert_eq!(misfit, Err(Misfit { index: count - 1, value: Integer::Signed(i64::MAX) }));
    }

    #[test]
    fn the_general_loops_agree_with_the_plain_casts() {
        let values = [0.0f64, 1.0, -2.5, 1e-3, 65504.0, 1e-300];
        let bytes = values.map(f64::to_le_bytes).concat();
        let mut single = [0u8; 24];
        to_device(HostType::F64, &bytes, DeviceType::F32, &mut single).unwrap();
        assert_eq!(single, values.map(|v| (v as f32).to_le_bytes()).concat().as_slice());
        let mut double = [0u8; 48];
        from_device(DeviceType::F32, &single, HostType::F64, &mut double);
        assert_eq!(double, values.map(|v| f64::from(v as f32).to_le_bytes()).concat().as_slice());
        let mut brain = [0u8; 12];
        from_device(DeviceType::F32, &single, HostType::Bf16, &mut brain);
        assert_eq!(brain, values.map(|v| bf16::from_f32(v as f32).to_le_bytes()).concat().as_slice());

        let mut word = [0u8; 4];
        to_device(HostType::U64, &u64::MAX.to_le_bytes(), DeviceType::U32, &mut word).unwrap_err();
        to_device(HostType::U16, &u16::MAX.to_le_bytes(), DeviceType::I32, &mut word).unwrap();
        assert_eq!(u32::from_le_bytes(word), 0xffff);
        to_device(HostType::I16, &(-2i16).to_le_bytes(), DeviceType::I32, &mut word).unwrap();
        assert_eq!(i32::from_le_bytes(word), -2);
        let mut wide = [0u8; 8];
        from_device(DeviceType::U32, &u32::MAX.to_le_bytes(), HostType::I64, &mut wide);
        assert_eq!(i64::from_le_bytes(wide), 0xffff_ffff);
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
