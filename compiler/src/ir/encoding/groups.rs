//! Codes of a matrix of weights `[rows, columns]`, rows being outputs and columns inputs, with a scale and a zero point
//! for some columns of a row: `(code - zero) * scale`.
//!
//! GPTQ, AWQ, compressed-tensors and ONNX's MatMulNBits differ in where a code lies, which [`CodeOrder`] says.

use std::fmt;

use super::{Coding, byte, float};
use crate::content::Content;
use crate::error::OpError;
use crate::ir::ops::constant::random_bytes;
use crate::ir::tensor::DType;

/// Codes with scales and zero points.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Groups {
    /// Where codes lie in the constant's bytes.
    pub codes: Codes,
    /// Columns of a group.
    pub size: usize,
    /// The group of each column, where it is not the column's number by the size.
    pub index: Option<Vec<u32>>,
    /// A float for each group of each row.
    pub scales: Scales,
    /// What codes count from.
    pub zeros: Zeros,
}

/// Codes of `bits` bits, `[rows, columns]` of them. Those with a sign are taken as unsigned ones that count from the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the sentence above names them")]
pub struct Codes {
    pub bits: usize,
    pub rows: usize,
    pub columns: usize,
    pub order: CodeOrder,
    pub signed: bool,
}

/// Where a code lies. Words have 32 bits, and codes of a word follow each other from its lowest bits on, as those of a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeOrder {
    /// Row after row, each of so many codes, the last of which are padding.
    Rows(usize),
    /// Column after column, each of so many codes, the last of which are padding.
    Columns(usize),
    /// Words of consecutive columns; words of neighbouring rows follow each other.
    ColumnWords,
    /// Words of consecutive rows; words of neighbouring columns follow each other.
    RowWords,
    /// Column after column, in words of eight codes whose rows are 0, 2, 4, 6, 1, 3, 5, 7.
    Interleaved,
}

/// Floats `[rows, groups]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scales {
    /// F32, F16 or Bf16.
    pub dtype: DType,
    /// The file's bytes.
    pub bytes: Content,
    /// Elements between the scales of neighbouring rows and groups.
    pub strides: [usize; 2],
}

/// What codes count from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Zeros {
    /// The same number everywhere.
    Same(u8),
    /// Codes `[rows, groups]`, to each of which a number is added that wraps at the number of bits.
    Codes(Codes, Content, u8),
    /// Floats `[rows, groups]`.
    Floats(Scales),
}

impl Codes {
    /// Bytes that they take.
    pub(super) fn bytes(&self) -> Option<usize> {
        let Self { bits, rows, columns, order, .. } = *self;
        let per = 32usize.checked_div(bits)?;
        let words = |a: usize, b: usize| a.div_ceil(per).checked_mul(b)?.checked_mul(4);
        let bytes =
            |pitch: usize, lines: usize| Some(pitch.checked_mul(bits)?.checked_mul(lines)?.div_ceil(8));
        match order {
            CodeOrder::Rows(pitch) => bytes(pitch, rows),
            CodeOrder::Columns(pitch) => bytes(pitch, columns),
            CodeOrder::ColumnWords => words(columns, rows),
            CodeOrder::RowWords | CodeOrder::Interleaved => words(rows, columns),
        }
    }

    fn check(&self) -> Result<(), OpError> {
        let Self { bits, rows, columns, order, .. } = *self;
        let fits = matches!(bits, 2 | 4 | 8)
            && match order {
                CodeOrder::Rows(pitch) => pitch >= columns,
                CodeOrder::Columns(pitch) => pitch >= rows,
                CodeOrder::ColumnWords | CodeOrder::RowWords => true,
                CodeOrder::Interleaved => bits == 4,
            };
        match fits {
            true => Ok(()),
            false => {
                Err(OpError::new(format!("{rows} x {columns} codes of {bits} bits do not lie as {order:?}")))
            }
        }
    }

    /// The code at a place.
    pub fn at(&self, bytes: &[u8], row: usize, column: usize) -> u8 {
        let Self { bits, rows, columns, order, signed } = *self;
        let per = 32 / bits.max(1);
        // The code's number, counted from the lowest bits of the first byte on.
        let number = match order {
            CodeOrder::Rows(pitch) => row * pitch + column,
            CodeOrder::Columns(pitch) => column * pitch + row,
            CodeOrder::ColumnWords => (column / per * rows + row) * per + column % per,
            CodeOrder::RowWords => (row / per * columns + column) * per + row % per,
            CodeOrder::Interleaved => {
                const FIELDS: [usize; 8] = [0, 4, 1, 5, 2, 6, 3, 7];
                (column * rows.div_ceil(8) + row / 8) * 8 + FIELDS.get(row % 8).copied().unwrap_or(0)
            }
        };
        let bit = number * bits;
        let mask = if bits >= 8 { u8::MAX } else { (1 << bits) - 1 };
        let code = (byte(bytes, bit / 8) >> (bit % 8)) & mask;
        if signed { code ^ (mask ^ mask >> 1) } else { code }
    }
}

impl Scales {
    fn at(&self, row: usize, group: usize) -> f32 {
        float(&self.bytes, self.dtype, row * self.strides[0] + group * self.strides[1])
    }

    fn check(&self, rows: usize, groups: usize) -> Result<(), OpError> {
        let last = |size: usize, stride: usize| size.saturating_sub(1).checked_mul(stride);
        let end = last(rows, self.strides[0]).zip(last(groups, self.strides[1]));
        let end = end.and_then(|(a, b)| a.checked_add(b)?.checked_add(1)?.checked_mul(self.dtype.bytes()));
        let float = matches!(self.dtype, DType::F32 | DType::F16 | DType::Bf16);
        match end {
            Some(end) if float && end <= self.bytes.len() => Ok(()),
            _ => Err(OpError::new(format!(
                "{} bytes hold no {rows} x {groups} scales of {}",
                self.bytes.len(),
                self.dtype.name()
            ))),
        }
    }
}

impl Groups {
    /// Number of groups of a row.
    pub fn count(&self) -> usize {
        match &self.index {
            Some(index) => index.iter().max().map_or(0, |most| *most as usize + 1),
            None => self.codes.columns.div_ceil(self.size.max(1)),
        }
    }

    /// The group of a column.
    pub fn group(&self, column: usize) -> usize {
        match &self.index {
            Some(index) => index.get(column).map_or(0, |group| *group as usize),
            None => column / self.size.max(1),
        }
    }

    /// The zero point of a group of a row.
    pub fn zero(&self, row: usize, group: usize) -> f32 {
        match &self.zeros {
            Zeros::Same(zero) => f32::from(*zero),
            Zeros::Codes(codes, bytes, plus) => {
                let mask = ((1u16 << codes.bits.min(8)) - 1) as u8;
                f32::from(codes.at(bytes, row, group).wrapping_add(*plus) & mask)
            }
            Zeros::Floats(zeros) => zeros.at(row, group),
        }
    }

    pub(super) fn check(&self) -> Result<(), OpError> {
        self.codes.check()?;
        let (rows, groups) = (self.codes.rows, self.count());
        if self.size == 0 || self.index.as_ref().is_some_and(|index| index.len() != self.codes.columns) {
            return Err(OpError::new(format!("{} columns are not in groups", self.codes.columns)));
        }
        self.scales.check(rows, groups)?;
        match &self.zeros {
            Zeros::Same(_) => Ok(()),
            Zeros::Floats(zeros) => zeros.check(rows, groups),
            Zeros::Codes(codes, bytes, _) => {
                codes.check()?;
                if codes.rows != rows || codes.columns < groups || codes.bytes() != Some(bytes.len()) {
                    return Err(OpError::new(format!(
                        "{} bytes hold no zero points of {rows} x {groups} groups",
                        bytes.len()
                    )));
                }
                Ok(())
            }
        }
    }

    /// How elements follow from codes; none where the columns of a group are no neighbours.
    pub(super) fn coding(&self) -> Option<Coding> {
        // A zero point times a scale needs more bits than the scale.
        let (zero, bias) = match self.zeros {
            Zeros::Same(zero) => (zero, None),
            Zeros::Codes(..) | Zeros::Floats(_) => (0, Some(DType::F32)),
        };
        let scale = if self.scales.dtype == DType::F16 { DType::F16 } else { DType::F32 };
        let Codes { bits, columns, .. } = self.codes;
        let coding = Coding { bits, row: Some(columns), group: self.size.min(columns), zero, scale, bias };
        self.index.is_none().then_some(coding)
    }

    /// The code of the element with a number in row-major order.
    pub(super) fn code(&self, bytes: &[u8], index: usize) -> u8 {
        let columns = self.codes.columns.max(1);
        self.codes.at(bytes, index / columns, index % columns)
    }

    /// The scale of that element's group, and what its zero point adds where it is not the same everywhere.
    pub(super) fn scale_and_bias(&self, index: usize) -> [f32; 2] {
        let columns = self.codes.columns.max(1);
        let row = index / columns;
        let group = self.group(index % columns);
        let scale = self.scales.at(row, group);
        match self.zeros {
            Zeros::Same(_) => [scale, 0.0],
            Zeros::Codes(..) | Zeros::Floats(_) => [scale, -self.zero(row, group) * scale],
        }
    }

    /// The element with a number in row-major order.
    pub(super) fn value(&self, bytes: &[u8], index: usize) -> f32 {
        let columns = self.codes.columns.max(1);
        let (row, column) = (index / columns, index % columns);
        let group = self.group(column);
        let code = f32::from(self.codes.at(bytes, row, column));
        (code - self.zero(row, group)) * self.scales.at(row, group)
    }
}

impl Groups {
    /// Reproducible codes for what [`fmt::Display`] wrote, with scales of about the size that weights have: `u4 in groups
    /// of 32`, and `with zeros` behind. Those of 2 bits lie column after column, so that orders differ.
    pub(crate) fn random(text: &str, [rows, columns]: [usize; 2], seed: u64) -> Option<(Self, Vec<u8>)> {
        let (bits, rest) = text.strip_prefix('u')?.split_once(" in groups of ")?;
        let (size, zeros) = match rest.strip_suffix(" with zeros") {
            Some(size) => (size, true),
            None => (rest, false),
        };
        let (bits, size): (usize, usize) = (bits.parse().ok()?, size.parse().ok().filter(|size| *size > 0)?);
        let (per, groups) = (8usize.checked_div(bits)?, columns.div_ceil(size));
        let pitch = |n: usize| n.next_multiple_of(per.max(1));
        let order = if bits == 2 { CodeOrder::Columns(pitch(rows)) } else { CodeOrder::Rows(pitch(columns)) };
        let codes = Codes { bits, rows, columns, order, signed: false };
        let mut scales = random_bytes(DType::U8, rows * groups * 2, seed.wrapping_add(1));
        for scale in scales.chunks_mut(2) {
            // An f16 whose product with half of the codes is of the order of one.
            let exponent = 15u8.saturating_sub(bits as u8);
            if let [_, high] = scale {
                *high = exponent << 2 | *high & 3;
            }
        }
        let scales = Scales { dtype: DType::F16, bytes: scales.into(), strides: [groups, 1] };
        let zeros = if zeros {
            let codes =
                Codes { bits, rows, columns: groups, order: CodeOrder::Rows(pitch(groups)), signed: false };
            Zeros::Codes(codes, random_bytes(DType::U8, codes.bytes()?, seed.wrapping_add(2)).into(), 0)
        } else {
            Zeros::Same(1 << (bits - 1))
        };
        let bytes = random_bytes(DType::U8, codes.bytes()?, seed);
        Some((Self { codes, size, index: None, scales, zeros }, bytes))
    }
}

impl fmt::Display for Groups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "u{} in groups of {}", self.codes.bits, self.size)?;
        match self.zeros {
            Zeros::Same(_) => {}
            Zeros::Codes(..) | Zeros::Floats(_) => f.write_str(" with zeros")?,
        }
        f.write_str(if self.index.is_some() { " by index" } else { "" })
    }
}
