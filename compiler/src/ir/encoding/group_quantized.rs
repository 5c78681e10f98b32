//! Quantized weight matrices `[rows, columns]` with a scale and a zero point per group of columns of a row. Rows are
//! outputs, columns are inputs. An element is `(value - zero_point) * scale`.
//!
//! GPTQ, AWQ, compressed-tensors and ONNX's MatMulNBits differ only in [`PackingOrder`].

use std::fmt;

use super::bytes::{byte, plain_float};
use super::quant_format::QuantFormat;
use crate::content::Content;
use crate::error::OpError;
use crate::ir::random::random_bytes;
use crate::ir::tensor::DType;

/// A quantized matrix whose scales and zero points are separate tensors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupQuantized {
    /// Layout of the quantized values in the constant's bytes.
    pub values: PackedValues,
    /// Number of columns per group.
    pub group_size: usize,
    /// Index of the group of each column (`g_idx`). `None` if column `i` is in group `i / group_size`.
    pub group_index: Option<Vec<u32>>,
    /// One scale per row and group.
    pub scales: Scales,
    /// Zero points.
    pub zero_points: ZeroPoints,
}

/// Layout of `[rows, columns]` packed integers of `bits` bits. Signed integers are read as unsigned ones plus an offset
/// of half the range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the comment of `PackedValues` describes the fields")]
pub struct PackedValues {
    pub bits: usize,
    pub rows: usize,
    pub columns: usize,
    pub order: PackingOrder,
    pub signed: bool,
}

/// Order of packed values in memory. A packed word has 32 bits. Values fill bytes and words from the lowest bits up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PackingOrder {
    /// Row-major. The field is the distance between rows, in values; values after the last column are padding.
    Rows(usize),
    /// Column-major. The field is the distance between columns, in values; values after the last row are padding.
    Columns(usize),
    /// A packed word holds consecutive columns of a row; the words of adjacent rows are adjacent in memory.
    ColumnWords,
    /// A packed word holds consecutive rows of a column; the words of adjacent columns are adjacent in memory.
    RowWords,
    /// Column-major, in packed words of 8 values. The values of a word belong to rows 0, 2, 4, 6, 1, 3, 5, 7 (AWQ).
    Interleaved,
}

/// Scales (or zero points) of a quantized matrix as floats `[rows, groups]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scales {
    /// Element type: F32, F16 or Bf16.
    pub dtype: DType,
    /// Bytes of the scales or zero points, as they are in the model's file.
    pub bytes: Content,
    /// Distance between adjacent rows and between adjacent groups, in elements.
    pub strides: [usize; 2],
}

/// Zero points of the groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ZeroPoints {
    /// One zero point for the whole matrix.
    Constant(u8),
    /// Zero points as packed integers `[rows, groups]`, and a number that is added to each, modulo `2^bits`.
    Packed(PackedValues, Content, u8),
    /// Zero points as floats `[rows, groups]`.
    Floats(Scales),
}

impl PackedValues {
    /// Byte size of the packed values.
    pub(super) fn byte_size(&self) -> Option<usize> {
        let Self { bits, rows, columns, order, .. } = *self;
        let per = 32usize.checked_div(bits)?;
        let words = |a: usize, b: usize| a.div_ceil(per).checked_mul(b)?.checked_mul(4);
        let bytes =
            |pitch: usize, lines: usize| Some(pitch.checked_mul(bits)?.checked_mul(lines)?.div_ceil(8));
        match order {
            PackingOrder::Rows(pitch) => bytes(pitch, rows),
            PackingOrder::Columns(pitch) => bytes(pitch, columns),
            PackingOrder::ColumnWords => words(columns, rows),
            PackingOrder::RowWords | PackingOrder::Interleaved => words(rows, columns),
        }
    }

    fn check(&self) -> Result<(), OpError> {
        let Self { bits, rows, columns, order, .. } = *self;
        let fits = matches!(bits, 2 | 4 | 8)
            && match order {
                PackingOrder::Rows(pitch) => pitch >= columns,
                PackingOrder::Columns(pitch) => pitch >= rows,
                PackingOrder::ColumnWords | PackingOrder::RowWords => true,
                PackingOrder::Interleaved => bits == 4,
            };
        match fits {
            true => Ok(()),
            false => Err(OpError::new(format!(
                "{rows} x {columns} values of {bits} bits cannot be packed as {order:?}"
            ))),
        }
    }

    /// Returns the packed value at a row and column, as an unsigned integer.
    pub fn at(&self, bytes: &[u8], row: usize, column: usize) -> u8 {
        let Self { bits, rows, columns, order, signed } = *self;
        let per = 32 / bits.max(1);
        // Index of the value, counted in values from the lowest bits of the first byte.
        let index = match order {
            PackingOrder::Rows(pitch) => row * pitch + column,
            PackingOrder::Columns(pitch) => column * pitch + row,
            PackingOrder::ColumnWords => (column / per * rows + row) * per + column % per,
            PackingOrder::RowWords => (row / per * columns + column) * per + row % per,
            PackingOrder::Interleaved => {
                const FIELDS: [usize; 8] = [0, 4, 1, 5, 2, 6, 3, 7];
                (column * rows.div_ceil(8) + row / 8) * 8 + FIELDS.get(row % 8).copied().unwrap_or(0)
            }
        };
        let bit = index * bits;
        let mask = if bits >= 8 { u8::MAX } else { (1 << bits) - 1 };
        let value = (byte(bytes, bit / 8) >> (bit % 8)) & mask;
        if signed { value ^ (mask ^ mask >> 1) } else { value }
    }
}

impl Scales {
    fn at(&self, row: usize, group: usize) -> f32 {
        plain_float(&self.bytes, self.dtype, row * self.strides[0] + group * self.strides[1])
    }

    fn check(&self, rows: usize, groups: usize) -> Result<(), OpError> {
        let last = |size: usize, stride: usize| size.saturating_sub(1).checked_mul(stride);
        let end = last(rows, self.strides[0]).zip(last(groups, self.strides[1]));
        let end = end.and_then(|(a, b)| a.checked_add(b)?.checked_add(1)?.checked_mul(self.dtype.bytes()));
        let float = matches!(self.dtype, DType::F32 | DType::F16 | DType::Bf16);
        match end {
            Some(end) if float && end <= self.bytes.len() => Ok(()),
            _ => Err(OpError::new(format!(
                "{} bytes do not hold {rows} x {groups} scales of {}",
                self.bytes.len(),
                self.dtype.name()
            ))),
        }
    }
}

impl GroupQuantized {
    /// Returns the number of groups per row.
    pub fn groups(&self) -> usize {
        match &self.group_index {
            Some(index) => index.iter().max().map_or(0, |last| *last as usize + 1),
            None => self.values.columns.div_ceil(self.group_size.max(1)),
        }
    }

    /// Returns the index of the group that contains a column.
    pub fn group_of_column(&self, column: usize) -> usize {
        match &self.group_index {
            Some(index) => index.get(column).map_or(0, |group| *group as usize),
            None => column / self.group_size.max(1),
        }
    }

    /// Returns the zero point of a group of a row.
    pub fn zero_point(&self, row: usize, group: usize) -> f32 {
        match &self.zero_points {
            ZeroPoints::Constant(zero_point) => f32::from(*zero_point),
            ZeroPoints::Packed(values, bytes, offset) => {
                let mask = ((1u16 << values.bits.min(8)) - 1) as u8;
                f32::from(values.at(bytes, row, group).wrapping_add(*offset) & mask)
            }
            ZeroPoints::Floats(floats) => floats.at(row, group),
        }
    }

    pub(super) fn check(&self) -> Result<(), OpError> {
        self.values.check()?;
        let PackedValues { rows, columns, .. } = self.values;
        let groups = self.groups();
        if self.group_size == 0 || self.group_index.as_ref().is_some_and(|index| index.len() != columns) {
            return Err(OpError::new(format!("the groups do not cover {columns} columns")));
        }
        self.scales.check(rows, groups)?;
        match &self.zero_points {
            ZeroPoints::Constant(_) => Ok(()),
            ZeroPoints::Floats(floats) => floats.check(rows, groups),
            ZeroPoints::Packed(values, bytes, _) => {
                values.check()?;
                if values.rows != rows || values.columns < groups || values.byte_size() != Some(bytes.len()) {
                    return Err(OpError::new(format!(
                        "{} bytes do not hold {rows} x {groups} zero points",
                        bytes.len()
                    )));
                }
                Ok(())
            }
        }
    }

    /// Returns the format of the quantized values; `None` if columns of a group are not adjacent.
    pub(super) fn quant_format(&self) -> Option<QuantFormat> {
        // The product of a zero point and a scale needs more bits than the scale.
        let (zero_point, bias_dtype) = match self.zero_points {
            ZeroPoints::Constant(zero_point) => (zero_point, None),
            ZeroPoints::Packed(..) | ZeroPoints::Floats(_) => (0, Some(DType::F32)),
        };
        let scale_dtype = if self.scales.dtype == DType::F16 { DType::F16 } else { DType::F32 };
        let PackedValues { bits, columns, .. } = self.values;
        let (row_length, group_size) = (Some(columns), self.group_size.min(columns));
        let format = QuantFormat { bits, row_length, group_size, zero_point, scale_dtype, bias_dtype };
        self.group_index.is_none().then_some(format)
    }

    /// Returns the quantized value at a row-major index.
    pub(super) fn quantized_value(&self, bytes: &[u8], index: usize) -> u8 {
        let columns = self.values.columns.max(1);
        self.values.at(bytes, index / columns, index % columns)
    }

    /// Returns the scale and the bias of an element's group. The bias is `-zero_point * scale` if every group has its
    /// own zero point, and 0 if the matrix has one zero point.
    pub(super) fn scale_and_bias(&self, index: usize) -> [f32; 2] {
        let columns = self.values.columns.max(1);
        let row = index / columns;
        let group = self.group_of_column(index % columns);
        let scale = self.scales.at(row, group);
        match self.zero_points {
            ZeroPoints::Constant(_) => [scale, 0.0],
            ZeroPoints::Packed(..) | ZeroPoints::Floats(_) => [scale, -self.zero_point(row, group) * scale],
        }
    }

    /// Returns the dequantized element at a row-major index.
    pub(super) fn value(&self, bytes: &[u8], index: usize) -> f32 {
        let columns = self.values.columns.max(1);
        let (row, column) = (index / columns, index % columns);
        let group = self.group_of_column(column);
        let value = f32::from(self.values.at(bytes, row, column));
        (value - self.zero_point(row, group)) * self.scales.at(row, group)
    }
}

impl GroupQuantized {
    /// Returns a reproducible random matrix with the encoding that `text` names: `u4 in groups of 32`, or `u4 in groups
    /// of 32 with zeros` if each group has its own zero point. Elements have a magnitude of about 1. Values of 2 bits
    /// are column-major, so that tests cover both orders.
    pub(crate) fn random(text: &str, [rows, columns]: [usize; 2], seed: u64) -> Option<(Self, Vec<u8>)> {
        let (bits, rest) = text.strip_prefix('u')?.split_once(" in groups of ")?;
        let (group_size, has_zero_points) = match rest.strip_suffix(" with zeros") {
            Some(size) => (size, true),
            None => (rest, false),
        };
        let bits: usize = bits.parse().ok()?;
        let group_size: usize = group_size.parse().ok().filter(|size| *size > 0)?;
        let (per_byte, groups) = (8usize.checked_div(bits)?, columns.div_ceil(group_size));
        let pitch = |n: usize| n.next_multiple_of(per_byte.max(1));
        let order =
            if bits == 2 { PackingOrder::Columns(pitch(rows)) } else { PackingOrder::Rows(pitch(columns)) };
        let values = PackedValues { bits, rows, columns, order, signed: false };
        let mut scales = random_bytes(DType::U8, rows * groups * 2, seed.wrapping_add(1));
        for scale in scales.chunks_mut(2) {
            // An f16 scale that makes elements of a magnitude of about 1.
            let exponent = 15u8.saturating_sub(bits as u8);
            if let [_, high] = scale {
                *high = exponent << 2 | *high & 3;
            }
        }
        let scales = Scales { dtype: DType::F16, bytes: scales.into(), strides: [groups, 1] };
        let zero_points = if has_zero_points {
            let order = PackingOrder::Rows(pitch(groups));
            let points = PackedValues { bits, rows, columns: groups, order, signed: false };
            let bytes = random_bytes(DType::U8, points.byte_size()?, seed.wrapping_add(2));
            ZeroPoints::Packed(points, bytes.into(), 0)
        } else {
            ZeroPoints::Constant(1 << (bits - 1))
        };
        let bytes = random_bytes(DType::U8, values.byte_size()?, seed);
        Some((Self { values, group_size, group_index: None, scales, zero_points }, bytes))
    }
}

impl fmt::Display for GroupQuantized {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "u{} in groups of {}", self.values.bits, self.group_size)?;
        match self.zero_points {
            ZeroPoints::Constant(_) => {}
            ZeroPoints::Packed(..) | ZeroPoints::Floats(_) => f.write_str(" with zeros")?,
        }
        f.write_str(if self.group_index.is_some() { " by index" } else { "" })
    }
}
