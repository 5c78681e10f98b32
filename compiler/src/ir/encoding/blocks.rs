//! GGUF block encodings: 32 elements per block with one scale, or 256 elements ("K-quants") in groups of 16 or 32 whose
//! scales are quantized too. `q` is the quantized value; `16 of values` means 16 bytes of quantized values.
//!
//! | kind | elements | bytes in order | element |
//! |---|---|---|---|
//! | q4_0 | 32 | f16 d, 16 of values | `(q - 8) * d` |
//! | q4_1 | 32 | f16 d, f16 m, 16 of values | `q * d + m` |
//! | q5_0 | 32 | f16 d, 4 of fifth bits, 16 of values | `(q - 16) * d` |
//! | q5_1 | 32 | f16 d, f16 m, 4 of fifth bits, 16 of values | `q * d + m` |
//! | q8_0 | 32 | f16 d, 32 of values | `q * d` |
//! | q2_k | 256 | 16 of 4-bit scales and minima, 64 of values, f16 d, f16 dmin | `d * scale * q - dmin * min` |
//! | q3_k | 256 | 32 of third bits, 64 of values, 12 of 6-bit scales, f16 d | `d * (scale - 32) * (q - 4)` |
//! | q4_k | 256 | f16 d, f16 dmin, 12 of 6-bit scales and minima, 128 of values | `d * scale * q - dmin * min` |
//! | q5_k | 256 | f16 d, f16 dmin, 12 of 6-bit scales and minima, 32 of fifth bits, 128 of values | as q4_k |
//! | q6_k | 256 | 128 of low bits, 64 of high bits, 16 of 8-bit scales, f16 d | `d * scale * (q - 32)` |

use half::f16;

use super::bytes::{byte, byte_pair, tail};
use super::quant_format::QuantFormat;
use crate::ir::tensor::DType;

/// A GGUF block type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names are GGUF's")]
pub enum BlockKind {
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
}

impl BlockKind {
    /// All block types.
    pub const ALL: [Self; 10] = [
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::Q2K,
        Self::Q3K,
        Self::Q4K,
        Self::Q5K,
        Self::Q6K,
    ];

    /// Returns the name of the block type in the text form of graphs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Q4_0 => "q4_0",
            Self::Q4_1 => "q4_1",
            Self::Q5_0 => "q5_0",
            Self::Q5_1 => "q5_1",
            Self::Q8_0 => "q8_0",
            Self::Q2K => "q2_k",
            Self::Q3K => "q3_k",
            Self::Q4K => "q4_k",
            Self::Q5K => "q5_k",
            Self::Q6K => "q6_k",
        }
    }

    /// Number of elements in a block.
    pub fn elements(self) -> usize {
        match self {
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Q8_0 => 32,
            Self::Q2K | Self::Q3K | Self::Q4K | Self::Q5K | Self::Q6K => 256,
        }
    }

    /// Byte size of a block.
    pub fn bytes(self) -> usize {
        match self {
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q8_0 => 34,
            Self::Q2K => 84,
            Self::Q3K => 110,
            Self::Q4K => 144,
            Self::Q5K => 176,
            Self::Q6K => 210,
        }
    }

    /// Byte offsets of the f16 scales in a block.
    pub(crate) fn scale_offsets(self) -> &'static [usize] {
        match self {
            Self::Q4_0 | Self::Q5_0 | Self::Q8_0 => &[0],
            Self::Q4_1 | Self::Q5_1 | Self::Q4K | Self::Q5K => &[0, 2],
            Self::Q2K => &[80, 82],
            Self::Q3K => &[108],
            Self::Q6K => &[208],
        }
    }

    /// Returns the format of the quantized values of this block type.
    pub(super) fn quant_format(self) -> QuantFormat {
        let (bits, group) = match self {
            Self::Q4_0 | Self::Q4_1 | Self::Q4K => (4, 32),
            Self::Q5_0 | Self::Q5_1 | Self::Q5K => (5, 32),
            Self::Q8_0 => (8, 32),
            Self::Q2K => (2, 16),
            Self::Q3K => (3, 16),
            Self::Q6K => (6, 16),
        };
        // A K-quant scale is a product of two scales, which needs more bits than f16 has.
        let (scale, bias) = match self {
            Self::Q4_0 | Self::Q5_0 | Self::Q8_0 => (DType::F16, None),
            Self::Q4_1 | Self::Q5_1 => (DType::F16, Some(DType::F16)),
            Self::Q3K | Self::Q6K => (DType::F32, None),
            Self::Q2K | Self::Q4K | Self::Q5K => (DType::F32, Some(DType::F32)),
        };
        QuantFormat {
            bits,
            row_length: None,
            group_size: group,
            zero_point: self.zero_point(),
            scale_dtype: scale,
            bias_dtype: bias,
        }
    }

    /// Returns the zero point of all quantized values of this block type.
    fn zero_point(self) -> u8 {
        match self {
            Self::Q4_0 => 8,
            Self::Q5_0 => 16,
            Self::Q8_0 => 128,
            Self::Q3K => 4,
            Self::Q6K => 32,
            Self::Q4_1 | Self::Q5_1 | Self::Q2K | Self::Q4K | Self::Q5K => 0,
        }
    }

    /// Returns the dequantized element at an index of the constant, from the bytes of all blocks.
    pub(super) fn value(self, bytes: &[u8], index: usize) -> f32 {
        let [scale, bias] = self.scale_and_bias(bytes, index);
        (f32::from(self.quantized_value(bytes, index)) - f32::from(self.zero_point())) * scale + bias
    }

    /// Returns the quantized value at an index of the constant, from the bytes of all blocks.
    pub(super) fn quantized_value(self, bytes: &[u8], index: usize) -> u8 {
        let block = tail(bytes, index / self.elements() * self.bytes());
        let i = index % self.elements();
        match self {
            Self::Q4_0 => nibble(block, 2, i),
            Self::Q4_1 => nibble(block, 4, i),
            Self::Q5_0 => nibble(block, 6, i) | fifth(block, 2, i),
            Self::Q5_1 => nibble(block, 8, i) | fifth(block, 4, i),
            // Signed bytes become unsigned with zero point 128.
            Self::Q8_0 => byte(block, 2 + i) ^ 0x80,
            Self::Q2K => two_bits(block, 16, i),
            Self::Q3K => two_bits(block, 32, i) | ((byte(block, i % 32) >> (i / 32)) & 1) << 2,
            Self::Q4K => nibble_of_64(block, 16, i),
            Self::Q5K => nibble_of_64(block, 48, i) | ((byte(block, 16 + i % 32) >> (i / 32)) & 1) << 4,
            Self::Q6K => {
                let (half, rest) = (i / 128, i % 128);
                let low = (byte(block, 64 * half + rest % 64) >> (rest / 64 * 4)) & 15;
                let high = (byte(block, 128 + 32 * half + rest % 32) >> (rest / 32 * 2)) & 3;
                low | high << 4
            }
        }
    }

    /// Returns the scale and the bias of the element at an index of the constant, from the bytes of all blocks.
    pub(super) fn scale_and_bias(self, bytes: &[u8], index: usize) -> [f32; 2] {
        let block = tail(bytes, index / self.elements() * self.bytes());
        let i = index % self.elements();
        let scale = |at: usize| f16::from_le_bytes(byte_pair(block, at)).to_f32();
        match self {
            Self::Q4_0 | Self::Q5_0 | Self::Q8_0 => [scale(0), 0.0],
            Self::Q4_1 | Self::Q5_1 => [scale(0), scale(2)],
            Self::Q2K => {
                let both = byte(block, i / 16);
                [scale(80) * f32::from(both & 15), -(scale(82) * f32::from(both >> 4))]
            }
            Self::Q3K => {
                let s = i / 16;
                let low = (byte(block, 96 + s % 8) >> (s / 8 * 4)) & 15;
                let high = (byte(block, 104 + s % 4) >> (s / 4 * 2)) & 3;
                [scale(108) * (f32::from(low | high << 4) - 32.0), 0.0]
            }
            Self::Q4K | Self::Q5K => {
                let (factor, min) = scale_and_min(block, i / 32);
                [scale(0) * factor, -(scale(2) * min)]
            }
            Self::Q6K => [scale(208) * f32::from(byte(block, 192 + i / 16).cast_signed()), 0.0],
        }
    }
}

/// Returns value `i` of 32 4-bit values, which are in the 16 bytes from `at` on. The first 16 values are the low
/// nibbles.
fn nibble(block: &[u8], at: usize, i: usize) -> u8 {
    (byte(block, at + i % 16) >> (i / 16 * 4)) & 15
}

/// Returns the fifth bit of 5-bit value `i`, shifted to bit 4. The fifth bits of all values are in the bytes from `at`
/// on.
fn fifth(block: &[u8], at: usize, i: usize) -> u8 {
    ((byte(block, at + i / 8) >> (i % 8)) & 1) << 4
}

/// Returns value `i` of 256 2-bit values, which are in the 64 bytes from `at` on. Each 32 bytes hold 4 times 32 values.
fn two_bits(block: &[u8], at: usize, i: usize) -> u8 {
    (byte(block, at + i / 128 * 32 + i % 32) >> (i % 128 / 32 * 2)) & 3
}

/// Returns value `i` of 256 4-bit values, which are in the 128 bytes from `at` on. Each 32 bytes hold 2 times 32
/// values.
fn nibble_of_64(block: &[u8], at: usize, i: usize) -> u8 {
    (byte(block, at + i / 64 * 32 + i % 32) >> (i / 32 % 2 * 4)) & 15
}

/// Returns the 6-bit scale and the 6-bit minimum of one of the 8 groups of a q4_k or q5_k block. They are in the 12
/// bytes after the two f16 scales.
fn scale_and_min(block: &[u8], group: usize) -> (f32, f32) {
    let at = |i: usize| byte(block, 4 + i);
    let (scale, min) = match group.checked_sub(4) {
        None => (at(group) & 63, at(group + 4) & 63),
        Some(i) => (at(8 + i) & 15 | at(i) >> 6 << 4, at(8 + i) >> 4 | at(4 + i) >> 6 << 4),
    };
    (f32::from(scale), f32::from(min))
}
