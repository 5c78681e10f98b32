//! Conversion and quantization of floats in chunks, in loops that compilers vectorize.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use crate::ir::tensor::DType;

/// Maximum number of floats that are converted or quantized in one chunk.
pub(super) const CHUNK: usize = 256;
/// `1.5 * 2^23`, a float whose last bit has the value 1. The low bits of its sum with a small float are the nearest
/// integer, ties to even.
const ROUND_TO_INTEGER: f32 = 12_582_912.0;

/// Reads every `step`-th float of `bytes`, converted to f32, into `out`, which holds at most one chunk.
pub(super) fn read_chunk(dtype: DType, bytes: &[u8], step: usize, out: &mut [f32]) {
    match dtype {
        DType::F16 => {
            let mut f16_values = [f16::ZERO; CHUNK];
            let f16_values = &mut f16_values[..out.len()];
            read_each(bytes, step, f16_values, f16::from_le_bytes);
            f16_values.convert_to_f32_slice(out);
        }
        DType::Bf16 => read_each(bytes, step, out, |bytes| bf16::from_le_bytes(bytes).to_f32()),
        _ => read_each(bytes, step, out, f32::from_le_bytes),
    }
}

fn read_each<T, const N: usize>(bytes: &[u8], step: usize, out: &mut [T], element: impl Fn([u8; N]) -> T) {
    let stored = bytes.as_chunks().0;
    if step == 1 {
        out.iter_mut().zip(stored).for_each(|(out, bytes)| *out = element(*bytes));
    } else {
        out.iter_mut().zip(stored.iter().step_by(step)).for_each(|(out, bytes)| *out = element(*bytes));
    }
}

/// Maps the bits of a float to an integer, so that integers have the order of the floats. The function is its own
/// inverse.
fn ordered_bits(bits: i32) -> i32 {
    bits ^ (bits >> 31 & i32::MAX)
}

/// Extends a minimum and maximum by the values of a chunk. Values that are not finite count as 0. Integers are
/// compared, because loops over integer minima vectorize and loops over float minima do not.
pub(super) fn extend_min_max(values: &[f32], min_max: [f32; 2]) -> [f32; 2] {
    let finite = values.iter().map(|v| if v.is_finite() { ordered_bits(v.to_bits() as i32) } else { 0 });
    let before = min_max.map(|v| ordered_bits(v.to_bits() as i32));
    let min_max = finite.fold(before, |[min, max], v| [min.min(v), max.max(v)]);
    min_max.map(|v| f32::from_bits(ordered_bits(v) as u32))
}

/// Quantizes a chunk: rounds `(value - bias) / scale` to the nearest integer, clamps it, and adds `zero_point`. NaN
/// counts as 0.
pub(super) fn quantize_chunk(
    values: &[f32],
    [scale, bias]: [f32; 2],
    [min, max]: [f32; 2],
    zero_point: u8,
    out: &mut [u8],
) {
    for (value, out) in values.iter().zip(out) {
        let steps = (value - bias) / scale;
        let steps = if steps.is_nan() { 0.0 } else { steps };
        // Each comparison is one instruction; `clamp` would branch.
        let steps = if steps > min { steps } else { min };
        let steps = if steps < max { steps } else { max };
        *out = ((steps + ROUND_TO_INTEGER).to_bits() as u8).wrapping_add(zero_point);
    }
}
