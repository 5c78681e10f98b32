//! Conversion between the element types of callers and devices.
//!
//! Integers sent to the device are checked: a value that does not fit the device type is an error. Floats are rounded.
//! Integers read from the device are truncated to the caller's width, as in narrow integer arithmetic. A bool
//! is true if it is not zero.
//!
//! Type pairs that real models use have specialized loops. Other pairs use one slower loop, since 60 loops
//! would be a tenth of a program that embeds the runtime.

use crate::format::{DeviceType, HostType};
use crate::threads;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use std::sync::Mutex;

/// Index and value of an element that does not fit the device type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutOfRange {
    pub(crate) index: usize,
    pub(crate) value: Integer,
}

/// A 64-bit integer, signed or unsigned.
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

/// Elements per parallel job. A conversion of fewer elements ends before another thread has started.
const JOB_ELEMENTS: usize = 256 << 10;

/// Converts a caller's array to the device type like [`to_device`], but with several threads for large arrays.
pub(crate) fn to_device_on_threads(
    host: HostType,
    from: &[u8],
    device: DeviceType,
    to: &mut [u8],
) -> Result<(), OutOfRange> {
    let (from_size, to_size) = (byte_size(JOB_ELEMENTS, host.size()), byte_size(JOB_ELEMENTS, device.size()));
    if from.len() <= 2 * from_size {
        return to_device(host, from, device, to);
    }
    let chunks = from.chunks(from_size).zip(to.chunks_mut(to_size));
    let jobs: Vec<_> = chunks.map(|(from, to)| Mutex::new((from, to, Ok(())))).collect();
    threads::parallel_for(jobs.len(), &|index| {
        let Some(Ok(mut job)) = jobs.get(index).map(Mutex::lock) else { return };
        let (from, to, result) = &mut *job;
        *result = to_device(host, from, device, to);
    });
    for (index, job) in jobs.into_iter().enumerate() {
        let Ok((_, _, result)) = job.into_inner() else { continue };
        result.map_err(|out_of_range| OutOfRange {
            index: out_of_range.index + index * JOB_ELEMENTS,
            ..out_of_range
        })?;
    }
    Ok(())
}

/// Converts device elements to the caller's type like [`from_device`], but with several threads for large arrays.
pub(crate) fn from_device_on_threads(device: DeviceType, from: &[u8], host: HostType, to: &mut [u8]) {
    let (from_size, to_size) = (byte_size(JOB_ELEMENTS, device.size()), byte_size(JOB_ELEMENTS, host.size()));
    if to.len() <= 2 * to_size {
        return from_device(device, from, host, to);
    }
    let jobs: Vec<_> = from.chunks(from_size).zip(to.chunks_mut(to_size)).map(Mutex::new).collect();
    threads::parallel_for(jobs.len(), &|index| {
        let Some(Ok(mut job)) = jobs.get(index).map(Mutex::lock) else { return };
        let (from, to) = &mut *job;
        from_device(device, from, host, to);
    });
}

fn byte_size(elements: usize, size: u64) -> usize {
    elements * usize::try_from(size).unwrap_or(1)
}

/// Converts a caller's array into a device buffer. Writes sequentially and each byte once, which suits write-combined
/// memory. `to` is at least as long as the converted elements. The bytes after the elements, up to the next multiple of 4,
/// become zero.
pub(crate) fn to_device(
    host: HostType,
    from: &[u8],
    device: DeviceType,
    to: &mut [u8],
) -> Result<(), OutOfRange> {
    match (host, device) {
        (HostType::F32, DeviceType::F32)
        | (HostType::F16, DeviceType::F16)
        | (HostType::I32, DeviceType::I32)
        | (HostType::U32, DeviceType::U32)
        | (HostType::I8, DeviceType::I8)
        | (HostType::U8, DeviceType::U8) => copy(from, to),
        (HostType::F32, DeviceType::F16) => f32_to_f16(from, to),
        (HostType::F16, DeviceType::F32) => f16_to_f32(from, to),
        (HostType::F32 | HostType::F16 | HostType::Bf16 | HostType::F64, _) => {
            convert_floats(from, float_kind(host), to, device_float(device));
        }
        _ => return convert_integers(host, from, device, to),
    }
    Ok(())
}

/// Converts elements of a device buffer into a caller's array. `to` has exactly the size of the converted elements;
/// `from` has at least the size of these elements on the device.
pub(crate) fn from_device(device: DeviceType, from: &[u8], host: HostType, to: &mut [u8]) {
    match (device, host) {
        (DeviceType::F32, HostType::F32)
        | (DeviceType::F16, HostType::F16)
        | (DeviceType::I32 | DeviceType::U32, HostType::I32 | HostType::U32)
        | (DeviceType::I8 | DeviceType::U8, HostType::I8 | HostType::U8) => {
            let length = to.len().min(from.len());
            copy(from.get(..length).unwrap_or_default(), to);
        }
        (DeviceType::F16, HostType::F32) => f16_to_f32(from, to),
        (DeviceType::F32, HostType::F16) => f32_to_f16(from, to),
        (_, HostType::F32 | HostType::F16 | HostType::Bf16 | HostType::F64) => {
            convert_floats(from, device_float(device), to, float_kind(host));
        }
        _ => integers_from_device(device, from, host, to),
    }
}

/// Converts integers of a device buffer into a caller's integers or bools.
fn integers_from_device(device: DeviceType, from: &[u8], host: HostType, to: &mut [u8]) {
    let (size, device_size) = (byte_size(1, host.size()), byte_size(1, device.size()));
    for (bytes, element) in from.chunks_exact(device_size).zip(to.chunks_exact_mut(size)) {
        let bits = read_le(bytes) as u32;
        let wide = match device {
            DeviceType::I32 => i64::from(bits.cast_signed()),
            DeviceType::I8 => i64::from((bits as u8).cast_signed()),
            _ => i64::from(bits),
        };
        let wide = if host == HostType::Bool { i64::from(wide != 0) } else { wide };
        element.iter_mut().zip(wide.to_le_bytes()).for_each(|(byte, value)| *byte = value);
    }
}

fn copy(from: &[u8], to: &mut [u8]) {
    let length = from.len().min(to.len());
    if let (Some(from), Some((head, tail))) = (from.get(..length), to.split_at_mut_checked(length)) {
        head.copy_from_slice(from);
        pad(tail, length);
    }
}

/// Zeroes the bytes of a buffer from the end of its elements to the next multiple of 4.
fn pad(tail: &mut [u8], length: usize) {
    tail.iter_mut().take(length.next_multiple_of(4) - length).for_each(|byte| *byte = 0);
}

/// Number of elements per call of the crate `half`, which checks the processor's features in each call.
const BLOCK_ELEMENTS: usize = 256;

/// Rounds f32 to f16, with the processor's instructions if available.
fn f32_to_f16(from: &[u8], to: &mut [u8]) {
    let (mut f32_values, mut f16_values) = ([0f32; BLOCK_ELEMENTS], [f16::ZERO; BLOCK_ELEMENTS]);
    for (from, to) in from.chunks(BLOCK_ELEMENTS * 4).zip(to.chunks_mut(BLOCK_ELEMENTS * 2)) {
        for (single, bytes) in f32_values.iter_mut().zip(from.as_chunks::<4>().0) {
            *single = f32::from_le_bytes(*bytes);
        }
        f16_values.convert_from_f32_slice(&f32_values);
        for (half, bytes) in f16_values.iter().zip(to.as_chunks_mut::<2>().0).take(from.len() / 4) {
            *bytes = half.to_le_bytes();
        }
    }
    let length = (from.len() / 2).min(to.len());
    pad(to.get_mut(length..).unwrap_or_default(), length);
}

/// Converts f16 to f32, with the processor's instructions if available.
fn f16_to_f32(from: &[u8], to: &mut [u8]) {
    let (mut f32_values, mut f16_values) = ([0f32; BLOCK_ELEMENTS], [f16::ZERO; BLOCK_ELEMENTS]);
    for (from, to) in from.chunks(BLOCK_ELEMENTS * 2).zip(to.chunks_mut(BLOCK_ELEMENTS * 4)) {
        for (half, bytes) in f16_values.iter_mut().zip(from.as_chunks::<2>().0) {
            *half = f16::from_le_bytes(*bytes);
        }
        f16_values.convert_to_f32_slice(&mut f32_values);
        for (single, bytes) in f32_values.iter().zip(to.as_chunks_mut::<4>().0).take(from.len() / 2) {
            *bytes = single.to_le_bytes();
        }
    }
}

/// Float types.
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
        let bits = read_le(bytes);
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

fn convert_floats(from: &[u8], from_kind: Float, to: &mut [u8], to_kind: Float) {
    let pairs = from.chunks_exact(from_kind.size()).zip(to.chunks_exact_mut(to_kind.size()));
    let mut length = 0;
    for (from, to) in pairs {
        let bits = to_kind.bits(from_kind.read(from));
        to.iter_mut().zip(bits.to_le_bytes()).for_each(|(byte, value)| *byte = value);
        length += to_kind.size();
    }
    pad(to.get_mut(length..).unwrap_or_default(), length);
}

fn convert_integers(
    host: HostType,
    from: &[u8],
    device: DeviceType,
    to: &mut [u8],
) -> Result<(), OutOfRange> {
    let (size, device_size) = (byte_size(1, host.size()), byte_size(1, device.size()));
    let (lowest, highest) = integer_range(device);
    let mut length = 0;
    for (index, (bytes, element)) in from.chunks_exact(size).zip(to.chunks_exact_mut(device_size)).enumerate()
    {
        let value = integer(host, bytes);
        let wide = match value {
            Integer::Signed(value) => Some(value),
            Integer::Unsigned(value) => i64::try_from(value).ok(),
        };
        let wide = wide.filter(|v| (lowest..=highest).contains(v)).ok_or(OutOfRange { index, value })?;
        element.iter_mut().zip(wide.to_le_bytes()).for_each(|(byte, value)| *byte = value);
        length += device_size;
    }
    pad(to.get_mut(length..).unwrap_or_default(), length);
    Ok(())
}

/// Returns the lowest and the highest integer of a device type.
fn integer_range(device: DeviceType) -> (i64, i64) {
    match device {
        DeviceType::I8 => (i8::MIN.into(), i8::MAX.into()),
        DeviceType::U8 => (0, u8::MAX.into()),
        DeviceType::U32 => (0, u32::MAX.into()),
        DeviceType::I32 | DeviceType::F32 | DeviceType::F16 => (i32::MIN.into(), i32::MAX.into()),
    }
}

/// Converts one element of a caller's array to f64.
pub(crate) fn element_to_f64(host: HostType, bytes: &[u8]) -> f64 {
    match host {
        HostType::F32 | HostType::F16 | HostType::Bf16 | HostType::F64 => float_kind(host).read(bytes),
        _ => match integer(host, bytes) {
            Integer::Signed(value) => value as f64,
            Integer::Unsigned(value) => value as f64,
        },
    }
}

/// Reads one integer or bool of a caller's array.
fn integer(host: HostType, bytes: &[u8]) -> Integer {
    let wide = read_le(bytes);
    match host {
        HostType::Bool => Integer::Unsigned(u64::from(wide != 0)),
        HostType::I8 | HostType::I16 | HostType::I32 | HostType::I64 => {
            let unused = (8 - bytes.len().clamp(1, 8)) * 8;
            Integer::Signed((wide << unused).cast_signed() >> unused)
        }
        _ => Integer::Unsigned(wide),
    }
}

/// Reads up to eight little-endian bytes as an integer.
fn read_le(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::{Integer, OutOfRange, from_device, to_device};
    use crate::format::{DeviceType, HostType};
    use half::{bf16, f16};

    #[test]
    fn bytes_keep_their_width() {
        let mut device = [9; 8];
        to_device(HostType::U8, &[1, 200, 255], DeviceType::U8, &mut device).unwrap();
        // The word of the last element is padded with zeros.
        assert_eq!(device, [1, 200, 255, 0, 9, 9, 9, 9]);
        let mut wide = [0; 6];
        from_device(DeviceType::I8, &device, HostType::I16, &mut wide);
        assert_eq!(wide, [1, 0, 200, 255, 255, 255]);
        let numbers: Vec<u8> = [-128i64, 127].iter().flat_map(|v| v.to_le_bytes()).collect();
        to_device(HostType::I64, &numbers, DeviceType::I8, &mut device).unwrap();
        assert_eq!(device[..4], [128, 127, 0, 0]);
        let out_of_range = to_device(HostType::I64, &256i64.to_le_bytes(), DeviceType::U8, &mut device);
        assert_eq!(out_of_range, Err(OutOfRange { index: 0, value: Integer::Signed(256) }));
        let mut flags = [9; 3];
        from_device(DeviceType::U8, &[0, 1, 7], HostType::Bool, &mut flags);
        assert_eq!(flags, [0, 1, 1]);
    }

    #[test]
    fn integers_are_checked() {
        let bytes = [5i64, -1, 1 << 31].map(i64::to_le_bytes).concat();
        let mut device = [0u8; 12];
        assert_eq!(
            to_device(HostType::I64, &bytes, DeviceType::I32, &mut device),
            Err(OutOfRange { index: 2, value: Integer::Signed(1 << 31) })
        );
        assert_eq!(
            to_device(HostType::I64, &bytes, DeviceType::U32, &mut device),
            Err(OutOfRange { index: 1, value: Integer::Signed(-1) })
        );
    }

    #[test]
    fn integers_round_trip() {
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
    fn floats_round_and_odd_f16_counts_are_padded() {
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
    fn jobs_and_blocks_join() {
        let count = 2 * super::JOB_ELEMENTS + 3 * super::BLOCK_ELEMENTS + 5;
        let f32_values: Vec<f32> =
            (0..=u16::MAX).cycle().take(count).map(|i| f32::from(i) - 30000.5).collect();
        let bytes: Vec<u8> = f32_values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let mut device = vec![0xff; (count * 2).next_multiple_of(4)];
        super::to_device_on_threads(HostType::F32, &bytes, DeviceType::F16, &mut device).unwrap();
        let f16_values: Vec<u8> = f32_values.iter().flat_map(|v| f16::from_f32(*v).to_le_bytes()).collect();
        assert!(device[..count * 2] == f16_values && device[count * 2..].iter().all(|byte| *byte == 0));
        let mut back = vec![0; count * 4];
        super::from_device_on_threads(DeviceType::F16, &device, HostType::F32, &mut back);
        let rounded: Vec<u8> =
            f32_values.iter().flat_map(|v| f16::from_f32(*v).to_f32().to_le_bytes()).collect();
        assert!(back == rounded);
        let mut integers = vec![0; count * 8];
        integers[8 * (count - 1)..].copy_from_slice(&i64::MAX.to_le_bytes());
        let mut device = vec![0; count * 4];
        let out_of_range =
            super::to_device_on_threads(HostType::I64, &integers, DeviceType::I32, &mut device);
        assert_eq!(out_of_range, Err(OutOfRange { index: count - 1, value: Integer::Signed(i64::MAX) }));
    }

    #[test]
    fn generic_loops_match_plain_casts() {
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
    fn bools_are_32_bit_words() {
        let mut device = [0u8; 12];
        to_device(HostType::Bool, &[0, 1, 7], DeviceType::U32, &mut device).unwrap();
        assert_eq!(device, [0u32, 1, 1].map(u32::to_le_bytes).concat().as_slice());
        let mut back = [9u8; 3];
        from_device(DeviceType::U32, &device, HostType::Bool, &mut back);
        assert_eq!(back, [0, 1, 1]);
    }
}
