//! Conversion of a constant's elements to the type of the packed constant on the device, and the loops over tiles.
//!
//! An element is read in its stored type, rounded to the constant's type, and written in the device type. Most weights
//! need no conversion, so only their bytes are moved.

use std::ops::Range;

use half::{bf16, f16};

use super::tiles::{Sources, Tiles};
use crate::ir::op::Constant;
use crate::ir::tensor::{DType, DeviceType};

/// Writes the packed bytes of a run of tiles (ranges of packed elements) to `out`.
pub(super) fn fill(
    constant: &Constant,
    device: DeviceType,
    tiles: &Tiles,
    run: Range<usize>,
    out: &mut [u8],
) {
    let pass = Pass { source: &constant.bytes, tiles, run };
    let dtype = constant.dtype;
    let Some(stored) = constant.encoding.plain_dtype() else {
        return dequantized(&pass, out, constant, device);
    };
    match stored {
        DType::F16 if device == DeviceType::F16 && dtype != DType::Bf16 => pass.each(out, |b: [u8; 2]| b),
        DType::F32 if device == DeviceType::F32 && dtype == DType::F32 => pass.each(out, |b: [u8; 4]| b),
        DType::F16 => floats(&pass, out, dtype, device, |b| f16::from_le_bytes(b).to_f32()),
        DType::Bf16 => floats(&pass, out, dtype, device, |b| bf16::from_le_bytes(b).to_f32()),
        DType::F32 => floats(&pass, out, dtype, device, f32::from_le_bytes),
        DType::F64 => floats(&pass, out, dtype, device, |b| f64::from_le_bytes(b) as f32),
        DType::I8 => ints(&pass, out, device, |b| i8::from_le_bytes(b).into()),
        DType::U8 => ints(&pass, out, device, |b| u8::from_le_bytes(b).into()),
        DType::Bool => ints(&pass, out, device, |b: [u8; 1]| i64::from(b != [0])),
        DType::I16 => ints(&pass, out, device, |b| i16::from_le_bytes(b).into()),
        DType::U16 => ints(&pass, out, device, |b| u16::from_le_bytes(b).into()),
        DType::I32 => ints(&pass, out, device, |b| i32::from_le_bytes(b).into()),
        DType::U32 => ints(&pass, out, device, |b| u32::from_le_bytes(b).into()),
        DType::I64 => ints(&pass, out, device, i64::from_le_bytes),
        DType::U64 => ints(&pass, out, device, |b| u64::from_le_bytes(b) as i64),
    }
}

/// Converts the float elements of a run of tiles. `decode` turns the stored bytes of an element into a number.
fn floats<const N: usize>(
    pass: &Pass<'_>,
    out: &mut [u8],
    dtype: DType,
    device: DeviceType,
    decode: impl Fn([u8; N]) -> f32,
) {
    let bf16 = |v: f32| bf16::from_f32(v).to_f32();
    match (dtype, device) {
        (DType::Bf16, DeviceType::F16) => pass.each(out, |b| f16::from_f32(bf16(decode(b))).to_le_bytes()),
        (_, DeviceType::F16) => pass.each(out, |b| f16::from_f32(decode(b)).to_le_bytes()),
        (DType::F16, _) => pass.each(out, |b| f16::from_f32(decode(b)).to_f32().to_le_bytes()),
        (DType::Bf16, _) => pass.each(out, |b| bf16(decode(b)).to_le_bytes()),
        _ => pass.each(out, |b| decode(b).to_le_bytes()),
    }
}

/// Dequantizes and converts the elements of a run of tiles one by one, without a buffer for the whole constant.
fn dequantized(pass: &Pass<'_>, out: &mut [u8], constant: &Constant, device: DeviceType) {
    let value = |i: usize| constant.encoding.value(&constant.bytes, i);
    let bf16 = |v: f32| bf16::from_f32(v).to_f32();
    match (constant.dtype, device) {
        (DType::Bf16, DeviceType::F16) => pass.numbered(out, |i| f16::from_f32(bf16(value(i))).to_le_bytes()),
        (_, DeviceType::F16) => pass.numbered(out, |i| f16::from_f32(value(i)).to_le_bytes()),
        (DType::F16, _) => pass.numbered(out, |i| f16::from_f32(value(i)).to_f32().to_le_bytes()),
        (DType::Bf16, _) => pass.numbered(out, |i| bf16(value(i)).to_le_bytes()),
        _ => pass.numbered(out, |i| value(i).to_le_bytes()),
    }
}

/// Converts the integer elements of a run of tiles. `decode` turns the stored bytes of an element into a number.
fn ints<const N: usize>(pass: &Pass<'_>, out: &mut [u8], device: DeviceType, decode: fn([u8; N]) -> i64) {
    match device {
        DeviceType::F16 => pass.each(out, |b| f16::from_f32(decode(b) as f32).to_le_bytes()),
        DeviceType::F32 => pass.each(out, |b| (decode(b) as f32).to_le_bytes()),
        // Integers beyond 32 bits saturate: they are sentinels such as i64::MAX.
        DeviceType::I32 => pass.each(out, |b| {
            let clamped = decode(b).clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32;
            clamped.to_le_bytes()
        }),
        DeviceType::U32 => pass.each(out, |b| (decode(b) as u32).to_le_bytes()),
        DeviceType::I8 | DeviceType::U8 => pass.each(out, |b| [decode(b) as u8]),
    }
}

/// A run of tiles that one call converts, and the bytes of the constant.
struct Pass<'a> {
    source: &'a [u8],
    tiles: &'a Tiles,
    run: Range<usize>,
}

impl Pass<'_> {
    /// Writes `make(i)` for each packed element of the run, where `i` is the index of the source element. Padding is zero.
    fn numbered<const O: usize>(&self, out: &mut [u8], make: impl Fn(usize) -> [u8; O]) {
        let begin = self.tiles.start(self.run.start);
        let used = (self.tiles.start(self.run.end) - begin) * O;
        let Some((used, rest)) = out.split_at_mut_checked(used) else { return };
        rest.fill(0);
        let slots = used.as_chunks_mut::<O>().0;
        for (range, sources) in self.tiles.run_sources(self.run.clone()) {
            let Some(slots) = slots.get_mut(range.start - begin..range.end - begin) else { continue };
            match sources {
                Sources::Consecutive(first) => {
                    for (i, slot) in (first..).zip(slots) {
                        *slot = make(i);
                    }
                }
                Sources::Table(first, table) => {
                    for (at, distance) in table {
                        if let Some(slot) = slots.get_mut(*at as usize) {
                            *slot = make(first + *distance as usize);
                        }
                    }
                }
                Sources::Single(first) => {
                    for (at, slot) in (first..).zip(slots) {
                        *slot = self.tiles.source(at).map_or([0; O], &make);
                    }
                }
            }
        }
    }

    /// Writes `convert(b)` for each packed element of the run, where `b` are the bytes of the source element. Padding is zero.
    fn each<const I: usize, const O: usize>(&self, out: &mut [u8], convert: impl Fn([u8; I]) -> [u8; O]) {
        let source = self.source.as_chunks::<I>().0;
        let begin = self.tiles.start(self.run.start);
        let used = (self.tiles.start(self.run.end) - begin) * O;
        let Some((used, rest)) = out.split_at_mut_checked(used) else { return };
        rest.fill(0);
        let slots = used.as_chunks_mut::<O>().0;
        for (range, sources) in self.tiles.run_sources(self.run.clone()) {
            let Some(slots) = slots.get_mut(range.start - begin..range.end - begin) else { continue };
            match sources {
                Sources::Consecutive(first) => {
                    for (slot, element) in slots.iter_mut().zip(source.iter().skip(first)) {
                        *slot = convert(*element);
                    }
                }
                Sources::Table(first, table) => {
                    let source = source.get(first..).unwrap_or_default();
                    for (at, distance) in table {
                        if let (Some(slot), Some(element)) =
                            (slots.get_mut(*at as usize), source.get(*distance as usize))
                        {
                            *slot = convert(*element);
                        }
                    }
                }
                Sources::Single(first) => {
                    for (at, slot) in (first..).zip(slots) {
                        let element = self.tiles.source(at).and_then(|i| source.get(i));
                        *slot = element.map_or([0; O], |e| convert(*e));
                    }
                }
            }
        }
    }
}
