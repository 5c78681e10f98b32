//! Floats of a file a stretch at a time: read, compared and rounded in loops that processors run on several at once.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use crate::ir::tensor::DType;

/// Most elements of a stretch.
pub(super) const STRETCH: usize = 256;
/// A float whose last bit counts one: the low bits of its sum with a small float are the nearest integer, the even one of two.
const TO_NEAREST: f32 = 12_582_912.0;

/// Reads one element in every `step` as it is stored, a stretch at most; neighbours are read several at once.
pub(super) fn read(dtype: DType, bytes: &[u8], step: usize, out: &mut [f32]) {
    match dtype {
        DType::F16 => {
            let mut halves = [f16::ZERO; STRETCH];
            let halves = &mut halves[..out.len()];
            each(bytes, step, halves, f16::from_le_bytes);
            halves.convert_to_f32_slice(out);
        }
        DType::Bf16 => each(bytes, step, out, |bytes| bf16::from_le_bytes(bytes).to_f32()),
        _ => each(bytes, step, out, f32::from_le_bytes),
    }
}

fn each<T, const N: usize>(bytes: &[u8], step: usize, out: &mut [T], element: impl Fn([u8; N]) -> T) {
    let stored = bytes.as_chunks().0;
    if step == 1 {
        out.iter_mut().zip(stored).for_each(|(out, bytes)| *out = element(*bytes));
    } else {
        out.iter_mut().zip(stored.iter().step_by(step)).for_each(|(out, bytes)| *out = element(*bytes));
    }
}

/// Bits of a float as a number in the order of floats, and such a number's bits.
fn in_order(bits: i32) -> i32 {
    bits ^ (bits >> 31 & i32::MAX)
}

/// The least and the greatest of elements and of what was found before; what is not finite counts as zero. Numbers in order are
/// compared, since processors run loops over floats one at a time here.
pub(super) fn ends_of(values: &[f32], ends: [f32; 2]) -> [f32; 2] {
    let finite = values.iter().map(|v| if v.is_finite() { in_order(v.to_bits() as i32) } else { 0 });
    let before = ends.map(|end| in_order(end.to_bits() as i32));
    let ends = finite.fold(before, |[low, high], v| [low.min(v), high.max(v)]);
    ends.map(|end| f32::from_bits(in_order(end) as u32))
}

/// The codes of elements: their nearest steps, counted from `middle` on. What is no number is zero.
pub(super) fn nearest(
    values: &[f32],
    [scale, bias]: [f32; 2],
    [least, most]: [f32; 2],
    middle: u8,
    out: &mut [u8],
) {
    for (value, out) in values.iter().zip(out) {
        let steps = (value - bias) / scale;
        let steps = if steps.is_nan() { 0.0 } else { steps };
        // These are one instruction each, `clamp` is branches.
        let steps = if steps > least { steps } else { least };
        let steps = if steps < most { steps } else { most };
        *out = ((steps + TO_NEAREST).to_bits() as u8).wrapping_add(middle);
    }
}
