//! The blocks of GGUF files: 32 elements with a scale, or 256 with scales of 16 or 32 that have scales themselves.
//!
//! | kind | elements | bytes | an element |
//! |---|---|---|---|
//! | q4_0 | 32 | f16 d, 16 of codes | `(q - 8) * d` |
//! | q4_1 | 32 | f16 d, f16 m, 16 of codes | `q * d + m` |
//! | q5_0 | 32 | f16 d, 4 of fifth bits, 16 of codes | `(q - 16) * d` |
//! | q5_1 | 32 | f16 d, f16 m, 4 of fifth bits, 16 of codes | `q * d + m` |
//! | q8_0 | 32 | f16 d, 32 of codes | `q * d` |
//! | q2_k | 256 | 16 scales and minima of 4 bits, 64 of codes, f16 d, f16 dmin | `d * scale * q - dmin * min` |
//! | q3_k | 256 | 32 of third bits, 64 of codes, 16 scales of 6 bits, f16 d | `d * (scale - 32) * (q - 4)` |
//! | q4_k | 256 | f16 d, f16 dmin, 8 scales and minima of 6 bits, 128 of codes | `d * scale * q - dmin * min` |
//! | q5_k | 256 | f16 d, f16 dmin, 8 scales and minima of 6 bits, 32 of fifth bits, 128 of codes | the same |
//! | q6_k | 256 | 128 of low bits, 64 of high bits, 16 scales of 8 bits, f16 d | `d * scale * (q - 32)` |

use half::f16;

use super::{Coding, byte, from, two};
use crate::ir::tensor::DType;

/// A kind of block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names are those of the files")]
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
    /// All of them.
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

    /// The name in the graph's text form.
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

    /// Elements of a block.
    pub fn elements(self) -> usize {
        match self {
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Q8_0 => 32,
            Self::Q2K | Self::Q3K | Self::Q4K | Self::Q5K | Self::Q6K => 256,
        }
    }

    /// Bytes of a block.
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

    /// Where the f16 scales of a block lie.
    pub(crate) fn scales(self) -> &'static [usize] {
        match self {
            Self::Q4_0 | Self::Q5_0 | Self::Q8_0 => &[0],
            Self::Q4_1 | Self::Q5_1 | Self::Q4K | Self::Q5K => &[0, 2],
            Self::Q2K => &[80, 82],
            Self::Q3K => &[108],
            Self::Q6K => &[208],
        }
    }

    /// How elements follow from codes.
    pub(super) fn coding(self) -> Coding {
        let (bits, group) = match self {
            Self::Q4_0 | Self::Q4_1 | Self::Q4K => (4, 32),
            Self::Q5_0 | Self::Q5_1 | Self::Q5K => (5, 32),
            Self::Q8_0 => (8, 32),
            Self::Q2K => (2, 16),
            Self::Q3K => (3, 16),
            Self::Q6K => (6, 16),
        };
        // Products of scales with scales need more bits than f16 has.
        let (scale, bias) = match self {
            Self::Q4_0 | Self::Q5_0 | Self::Q8_0 => (DType::F16, None),
            Self::Q4_1 | Self::Q5_1 => (DType::F16, Some(DType::F16)),
            Self::Q3K | Self::Q6K => (DType::F32, None),
            Self::Q2K | Self::Q4K | Self::Q5K => (DType::F32, Some(DType::F32)),
        };
        Coding { bits, row: None, group, zero: self.zero(), scale, bias }
    }

    /// What codes count from.
    fn zero(self) -> u8 {
        match self {
            Self::Q4_0 => 8,
            Self::Q5_0 => 16,
            Self::Q8_0 => 128,
            Self::Q3K => 4,
            Self::Q6K => 32,
            Self::Q4_1 | Self::Q5_1 | Self::Q2K | Self::Q4K | Self::Q5K => 0,
        }
    }

    /// The element with a number, from the bytes of all blocks.
    pub(super) fn value(self, bytes: &[u8], index: usize) -> f32 {
        let [scale, bias] = self.scale_and_bias(bytes, index);
        (f32::from(self.code(bytes, index)) - f32::from(self.zero())) * scale + bias
    }

    /// The code of the element with a number.
    pub(super) fn code(self, bytes: &[u8], index: usize) -> u8 {
        let block = from(bytes, index / self.elements() * self.bytes());
        let i = index % self.elements();
        match self {
            Self::Q4_0 => nibble(block, 2, i),
            Self::Q4_1 => nibble(block, 4, i),
            Self::Q5_0 => nibble(block, 6, i) | fifth(block, 2, i),
            Self::Q5_1 => nibble(block, 8, i) | fifth(block, 4, i),
            // One with a sign.
            Self::Q8_0 => byte(block, 2 + i) ^ 0x80,
            Self::Q2K => pair(block, 16, i),
            Self::Q3K => pair(block, 32, i) | ((byte(block, i % 32) >> (i / 32)) & 1) << 2,
            Self::Q4K => half_of_64(block, 16, i),
            Self::Q5K => half_of_64(block, 48, i) | ((byte(block, 16 + i % 32) >> (i / 32)) & 1) << 4,
            Self::Q6K => {
                let (half, rest) = (i / 128, i % 128);
                let low = (byte(block, 64 * half + rest % 64) >> (rest / 64 * 4)) & 15;
                let high = (byte(block, 128 + 32 * half + rest % 32) >> (rest / 32 * 2)) & 3;
                low | high << 4
            }
        }
    }

    /// The scale and the bias of the element with a number.
    pub(super) fn scale_and_bias(self, bytes: &[u8], index: usize) -> [f32; 2] {
        let block = from(bytes, index / self.elements() * self.bytes());
        let i = index % self.elements();
        let scale = |at: usize| f16::from_le_bytes(two(block, at)).to_f32();
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
                let (factor, least) = scale_and_min(block, i / 32);
                [scale(0) * factor, -(scale(2) * least)]
            }
            Self::Q6K => [scale(208) * f32::from(byte(block, 192 + i / 16).cast_signed()), 0.0],
        }
    }
}

/// Four bits of 16 bytes: the first 16 elements have the low ones.
fn nibble(block: &[u8], at: usize, i: usize) -> u8 {
    (byte(block, at + i % 16) >> (i / 16 * 4)) & 15
}

/// The fifth bit in its place.
fn fifth(block: &[u8], at: usize, i: usize) -> u8 {
    ((byte(block, at + i / 8) >> (i % 8)) & 1) << 4
}

/// Two bits of 64 bytes: 32 bytes hold four times 32 elements.
fn pair(block: &[u8], at: usize, i: usize) -> u8 {
    (byte(block, at + i / 128 * 32 + i % 32) >> (i % 128 / 32 * 2)) & 3
}

/// Four bits of 128 bytes: 32 bytes hold twice 32 elements.
fn half_of_64(block: &[u8], at: usize, i: usize) -> u8 {
    (byte(block, at + i / 64 * 32 + i % 32) >> (i / 32 % 2 * 4)) & 15
}

/// Scale and minimum of six bits each of one of eight parts, from the twelve bytes behind two scales.
fn scale_and_min(block: &[u8], part: usize) -> (f32, f32) {
    let at = |i: usize| byte(block, 4 + i);
    let (scale, least) = match part.checked_sub(4) {
        None => (at(part) & 63, at(part + 4) & 63),
        Some(i) => (at(8 + i) & 15 | at(i) >> 6 << 4, at(8 + i) >> 4 | at(4 + i) >> 6 << 4),
    };
    (f32::from(scale), f32::from(least))
}
