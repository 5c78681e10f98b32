//! Reproducible random tensors, for tests and for constants in the graph's text form.

use super::array::{Array, count};
use super::tensor::DType;

/// Returns a reproducible random tensor: floats in -1..1, 8-bit integers of any value, other integers in 0..8.
pub fn random(dtype: DType, shape: &[usize], seed: u64) -> Array {
    let n = count(shape);
    if dtype.is_float() {
        Array::float(dtype, shape, (0..n).map(|i| to_float(random_bits(seed, i))).collect())
    } else {
        // 8-bit integers are quantized values, which use the whole range; others are counts and indices.
        let bits = if matches!(dtype, DType::I8 | DType::U8) { 8 } else { 3 };
        Array::int(dtype, shape, (0..n).map(|i| (random_bits(seed, i) >> (64 - bits)) as i64).collect())
    }
}

/// Number of elements after which random constants repeat. The number is prime, so that rows of a matrix differ.
pub(super) const RANDOM_PERIOD: usize = 65537;

/// Returns the bytes of a random constant of `n` elements.
pub(crate) fn random_bytes(dtype: DType, n: usize, seed: u64) -> Vec<u8> {
    let period = random(dtype, &[n.min(RANDOM_PERIOD)], seed).to_bytes();
    let wanted = n * dtype.bytes();
    let mut out = Vec::with_capacity(wanted);
    while out.len() < wanted {
        out.extend_from_slice(period.get(..wanted - out.len()).unwrap_or(&period));
    }
    out
}

/// Returns the pseudorandom bits of the element at a position (splitmix64 of seed and position).
fn random_bits(seed: u64, i: usize) -> u64 {
    let mut z =
        seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add((i as u64).wrapping_mul(0xbf58_476d_1ce4_e5b9));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Converts 24 random bits to a float in -1..1.
fn to_float(bits: u64) -> f32 {
    (bits >> 40) as f32 / (1u64 << 23) as f32 - 1.0
}

#[cfg(test)]
mod tests {
    use super::{random, random_bytes};
    use crate::ir::tensor::DType;

    #[test]
    fn random_bytes_match_a_random_tensor() {
        assert_eq!(random_bytes(DType::U8, 1001, 7), random(DType::U8, &[7, 143], 7).to_bytes());
    }
}
