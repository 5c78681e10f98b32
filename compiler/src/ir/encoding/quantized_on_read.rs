//! Matrices of floats that are quantized while they are read. Scales are computed once. Quantized values are computed
//! on each read, so quantizing a model of any size needs no copy of the model.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use half::f16;
use rayon::prelude::{IndexedParallelIterator, IntoParallelIterator, ParallelIterator};

use super::chunk::{CHUNK, extend_min_max, quantize_chunk, read_chunk};
use super::quant_format::QuantFormat;
use crate::content::Content;
use crate::error::OpError;
use crate::ir::tensor::DType;

/// Quantization scheme of a weight matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuantScheme {
    /// Number of bits of a quantized value: 4 or 8.
    pub bits: usize,
    /// Number of adjacent columns that share a scale; `None` for one scale per row.
    pub group: Option<usize>,
    /// True for asymmetric quantization: each group has a zero point. False for a range that is symmetric around 0.
    pub asymmetric: bool,
}

/// Factors by which the elements of a matrix are multiplied before quantization (AWQ). Other nodes of the graph divide
/// by the same factors.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ChannelFactors {
    /// One factor per row of the matrix. A row belongs to an output channel.
    pub rows: Option<Arc<Vec<f32>>>,
    /// One factor per column of the matrix. A column belongs to an input channel.
    pub columns: Option<Arc<Vec<f32>>>,
}

/// A matrix of floats with the scales that quantize it.
#[derive(Debug, Clone, PartialEq)]
pub struct QuantizedOnRead {
    /// Type of the matrix's elements in the constant's bytes.
    dtype: DType,
    /// Number of rows (output channels) and of columns (input channels).
    size: [usize; 2],
    /// Distance between adjacent rows and between adjacent columns, in elements.
    strides: [usize; 2],
    bits: usize,
    group: usize,
    asymmetric: bool,
    factors: ChannelFactors,
    /// Scale and bias of every group, row by row, rounded as the device stores them. If this matrix is a range of rows
    /// of a larger one, the list covers all rows of the larger matrix.
    scales: Arc<Vec<[f32; 2]>>,
    /// Index of this matrix's first row among the rows that `scales` covers.
    first: usize,
}

// Scales are never NaN.
impl Eq for QuantizedOnRead {}

impl QuantizedOnRead {
    /// Computes the scales of a matrix. Scales per group are rounded to f16; scales per row are f32.
    ///
    /// # Errors
    /// If the bytes do not hold the matrix, or the scheme is not supported.
    pub fn new(
        dtype: DType,
        bytes: &Content,
        size: [usize; 2],
        strides: [usize; 2],
        scheme: QuantScheme,
    ) -> Result<Self, OpError> {
        Self::with_factors(dtype, bytes, (size, strides), scheme, ChannelFactors::default())
    }

    /// Computes the scales of a matrix whose elements are multiplied by factors first.
    ///
    /// # Errors
    /// If the bytes do not hold the matrix, the scheme is not supported, or the number of factors is not the number of
    /// rows or columns.
    pub fn with_factors(
        dtype: DType,
        bytes: &Content,
        (size, strides): ([usize; 2], [usize; 2]),
        scheme: QuantScheme,
        factors: ChannelFactors,
    ) -> Result<Self, OpError> {
        let [rows, columns] = size;
        let group = scheme.group.unwrap_or(columns).clamp(1, columns.max(1));
        let QuantScheme { bits, asymmetric, .. } = scheme;
        if !matches!(bits, 4 | 8) || scheme.group == Some(0) {
            let reason = format!("quantization to {bits} bits in groups of {group} is not supported");
            return Err(OpError::new(reason));
        }
        let matches = |list: &Option<Arc<Vec<f32>>>, n| list.as_ref().is_none_or(|list| list.len() == n);
        if !matches(&factors.rows, rows) || !matches(&factors.columns, columns) {
            let reason =
                format!("expected {rows} factors for the rows and {columns} for the columns, or none");
            return Err(OpError::new(reason));
        }
        let mut matrix =
            Self { dtype, size, strides, bits, group, asymmetric, factors, scales: Arc::default(), first: 0 };
        matrix.check(bytes.len())?;
        let groups = columns.div_ceil(group);
        let scales = (0..rows * groups).into_par_iter().with_min_len((1 << 14) / group.max(1) + 1);
        let scales =
            scales.map(|i| matrix.compute_scale(bytes, i / groups, i % groups, scheme.group.is_some()));
        let scales: Vec<_> = scales.collect();
        matrix.scales = scales.into();
        bytes.release();
        Ok(matrix)
    }

    /// Computes the scale and the bias of a group. The scale is rounded to f16 if `round_to_f16`.
    fn compute_scale(&self, bytes: &[u8], row: usize, group: usize, round_to_f16: bool) -> [f32; 2] {
        let columns = group * self.group..((group + 1) * self.group).min(self.size[1]);
        let mut min_max = [0.0; 2];
        self.for_each_chunk(bytes, row, columns, |values| min_max = extend_min_max(values, min_max));
        let [min, max] = min_max;
        let steps = ((1u32 << self.bits) - 1) as f32;
        let scale =
            if self.asymmetric { max / steps - min / steps } else { max.max(-min) / ((steps - 1.0) / 2.0) };
        let scale = if round_to_f16 { f16::from_f32(scale.min(65504.0)).to_f32() } else { scale };
        let zero_point = if self.asymmetric && scale > 0.0 {
            (-min / scale).round_ties_even().clamp(0.0, steps)
        } else {
            0.0
        };
        [scale, -zero_point * scale]
    }

    /// Checks that `bytes` bytes hold the matrix.
    pub(super) fn check(&self, bytes: usize) -> Result<(), OpError> {
        let [rows, columns] = self.size;
        let last = |size: usize, stride: usize| size.saturating_sub(1).checked_mul(stride);
        let end = last(rows, self.strides[0]).zip(last(columns, self.strides[1]));
        let end = end.and_then(|(a, b)| a.checked_add(b)?.checked_add(1)?.checked_mul(self.dtype.bytes()));
        let float = matches!(self.dtype, DType::F32 | DType::F16 | DType::Bf16);
        match end {
            Some(end) if float && end <= bytes => Ok(()),
            _ => Err(OpError::new(format!(
                "{bytes} bytes do not hold {rows} x {columns} floats of {}",
                self.dtype.name()
            ))),
        }
    }

    /// Returns the matrix that consists of the elements with the row-major indices `elements`, and the byte range of these
    /// elements. `bytes` is the byte size of the whole matrix. Returns `None` if the indices do not cover whole rows.
    pub(in crate::ir) fn row_range(
        &self,
        elements: Range<usize>,
        bytes: usize,
    ) -> Option<(Self, Range<usize>)> {
        let columns = self.size[1].max(1);
        let rows = elements.start / columns..elements.end / columns;
        let whole = elements.start.is_multiple_of(columns) && elements.end.is_multiple_of(columns);
        if !whole || rows.end > self.size[0] {
            return None;
        }
        let row_factors = match &self.factors.rows {
            Some(factors) => Some(Arc::new(factors.get(rows.clone())?.to_vec())),
            None => None,
        };
        let start = rows.start.checked_mul(self.strides[0])?.checked_mul(self.dtype.bytes())?;
        let range = Self {
            size: [rows.len(), self.size[1]],
            factors: ChannelFactors { rows: row_factors, columns: self.factors.columns.clone() },
            first: self.first + rows.start,
            ..self.clone()
        };
        Some((range, start..bytes))
    }

    /// Memory address of the scales of the matrix's first row.
    pub(super) fn scales_address(&self) -> usize {
        let groups = self.size[1].div_ceil(self.group.max(1));
        self.scales.get(self.first * groups..).map_or(0, |scales| scales.as_ptr() as usize)
    }

    /// Number of elements.
    pub(super) fn elements(&self) -> Option<usize> {
        self.size[0].checked_mul(self.size[1])
    }

    pub(super) fn quant_format(&self) -> QuantFormat {
        let grouped = self.group < self.size[1];
        QuantFormat {
            bits: self.bits,
            row_length: Some(self.size[1]),
            group_size: self.group,
            zero_point: if self.asymmetric { 0 } else { self.symmetric_zero_point() },
            scale_dtype: if grouped { DType::F16 } else { DType::F32 },
            bias_dtype: self.asymmetric.then_some(DType::F32),
        }
    }

    /// Zero point of the quantized values for symmetric quantization.
    fn symmetric_zero_point(&self) -> u8 {
        1 << (self.bits - 1)
    }

    /// Returns the quantized value at a row-major index.
    pub(super) fn quantized_value(&self, bytes: &[u8], index: usize) -> u8 {
        let mut value = [0];
        self.quantized_values(bytes, index, &mut value);
        value[0]
    }

    /// Writes the quantized values of adjacent elements of a row, starting at a row-major index.
    pub(super) fn quantized_values(&self, bytes: &[u8], index: usize, out: &mut [u8]) {
        let columns = self.size[1].max(1);
        let (row, mut column) = (index / columns, index % columns);
        let zero_point = if self.asymmetric { 0 } else { self.symmetric_zero_point() };
        // Symmetric quantization does not use the lowest value, so that both signs have the same range.
        let min = if self.asymmetric { 0.0 } else { 1.0 - f32::from(zero_point) };
        let max = ((1u32 << self.bits) - 1) as f32 - f32::from(zero_point);
        let mut rest = out;
        while !rest.is_empty() {
            let count = (self.group - column % self.group).min(rest.len());
            let (group, later) = rest.split_at_mut(count);
            let [scale, bias] = self.scale_and_bias(row * columns + column);
            let mut chunks = group.chunks_mut(CHUNK);
            self.for_each_chunk(bytes, row, column..column + count, |values| {
                let chunk = chunks.next().unwrap_or_default();
                if scale > 0.0 {
                    quantize_chunk(values, [scale, bias], [min, max], zero_point, chunk);
                } else {
                    chunk.fill(zero_point);
                }
            });
            (rest, column) = (later, column + count);
        }
    }

    /// Returns the scale and the bias of the element at a row-major index.
    pub(super) fn scale_and_bias(&self, index: usize) -> [f32; 2] {
        let columns = self.size[1].max(1);
        let row = self.first + index / columns;
        let at = row * columns.div_ceil(self.group) + index % columns / self.group;
        self.scales.get(at).copied().unwrap_or_default()
    }

    /// Reads the elements of a row in a range of columns, multiplies them by the factors, and passes the products to `call`
    /// in consecutive chunks.
    fn for_each_chunk(&self, bytes: &[u8], row: usize, columns: Range<usize>, mut call: impl FnMut(&[f32])) {
        let row_factor = self.factors.rows.as_ref().and_then(|rows| rows.get(row)).copied();
        let mut values = [0f32; CHUNK];
        for start in columns.clone().step_by(CHUNK) {
            let count = CHUNK.min(columns.end - start);
            let values = &mut values[..count];
            let first = row * self.strides[0] + start * self.strides[1];
            let bytes = bytes.get(first * self.dtype.bytes()..).unwrap_or_default();
            read_chunk(self.dtype, bytes, self.strides[1].max(1), values);
            if let Some(row_factor) = row_factor {
                values.iter_mut().for_each(|v| *v *= row_factor);
            }
            if let Some(factors) = &self.factors.columns {
                values.iter_mut().zip(factors.iter().skip(start)).for_each(|(v, factor)| *v *= factor);
            }
            call(values);
        }
    }
}

impl fmt::Display for QuantizedOnRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "u{} in groups of {}", self.bits, self.group)?;
        f.write_str(if self.asymmetric { " with zeros" } else { "" })?;
        write!(f, " from {}", self.dtype.name())
    }
}

#[cfg(test)]
mod tests {
    use super::{ChannelFactors, QuantScheme, QuantizedOnRead};
    use crate::content::Content;
    use crate::ir::array::Array;
    use crate::ir::encoding::Encoding;
    use crate::ir::op::Constant;
    use crate::ir::ops::constant::random;
    use crate::ir::tensor::DType;
    use std::sync::Arc;

    #[test]
    fn elements_are_rounded_to_the_nearest_quantized_value() {
        let array = random(DType::F32, &[6, 40], 5);
        let floats = array.floats().unwrap();
        let bytes: Content = array.to_bytes().into();
        for (bits, group, asymmetric) in
            [(8, None, false), (4, Some(16), false), (4, Some(16), true), (8, None, true)]
        {
            let scheme = QuantScheme { bits, group, asymmetric };
            for (size, strides) in [([6, 40], [40, 1]), ([40, 6], [1, 40])] {
                let matrix = QuantizedOnRead::new(DType::F32, &bytes, size, strides, scheme).unwrap();
                let encoding = Encoding::QuantizedOnRead(matrix.clone().into());
                let constant = Constant::encoded(size.to_vec(), encoding, bytes.clone()).unwrap();
                let got = constant.to_array().unwrap();
                for (i, got) in got.floats().unwrap().iter().enumerate() {
                    let want = floats[i / size[1] * strides[0] + i % size[1] * strides[1]];
                    let [scale, bias] = matrix.scale_and_bias(i);
                    let low = if asymmetric { bias } else { -want.abs() };
                    assert!(
                        low - scale <= *got && (got - want).abs() <= 0.51 * scale + 2e-3 * want.abs(),
                        "{scheme:?}: {got}, {want}"
                    );
                }
            }
        }
    }

    /// Compares values that are quantized in chunks with values that are quantized one by one, for all types and
    /// strides.
    #[test]
    fn chunks_are_rounded_to_even() {
        let (rows, columns) = (3, 700);
        let random = random(DType::F16, &[rows, columns], 7);
        let mut floats = random.floats().unwrap().to_vec();
        // Ties, NaN and infinities; the second row is all zeros.
        floats[..9].copy_from_slice(&[63.5, -63.5, 0.25, -0.25, 0.75, -0.75, f32::NAN, f32::INFINITY, -0.0]);
        floats[9] = f32::NEG_INFINITY;
        floats[columns..2 * columns].fill(0.0);
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            let stored = Array::f32(&[rows, columns], floats.clone()).cast(dtype);
            let bytes: Content = stored.to_bytes().into();
            let floats = stored.floats().unwrap();
            for (bits, group, asymmetric) in [(8, None, false), (4, Some(300), true), (8, Some(7), true)] {
                let scheme = QuantScheme { bits, group, asymmetric };
                let (min, max) = (f32::from(u8::from(!asymmetric)), ((1u32 << bits) - 1) as f32);
                for (size, strides) in [([rows, columns], [columns, 1]), ([columns, rows], [1, columns])] {
                    let matrix = QuantizedOnRead::new(dtype, &bytes, size, strides, scheme).unwrap();
                    for row in 0..size[0] {
                        let mut quantized = vec![0; size[1]];
                        matrix.quantized_values(&bytes, row * size[1], &mut quantized);
                        for (column, got) in quantized.iter().enumerate() {
                            let value = floats[row * strides[0] + column * strides[1]];
                            let [scale, bias] = matrix.scale_and_bias(row * size[1] + column);
                            let steps = if scale > 0.0 { (value - bias) / scale } else { 0.0 };
                            let steps = if steps.is_nan() { 0.0 } else { steps };
                            let zero_point =
                                if asymmetric { 0.0 } else { f32::from(matrix.symmetric_zero_point()) };
                            let want = (steps.round_ties_even() + zero_point).clamp(min, max) as u8;
                            assert_eq!(
                                *got, want,
                                "{scheme:?} {dtype:?}: {value} at row {row}, column {column} is quantized wrongly"
                            );
                        }
                    }
                }
            }
        }
    }

    /// Elements are multiplied by the factors before they are quantized.
    #[test]
    fn factors_come_before_rounding() {
        let floats = random(DType::F32, &[6, 40], 5);
        let bytes: Content = floats.to_bytes().into();
        let rows: Vec<f32> = (0..6).map(|i| 0.5 + i as f32).collect();
        let columns: Vec<f32> = (0..40).map(|i| 3.0 - i as f32 / 20.0).collect();
        let scheme = QuantScheme { bits: 4, group: Some(16), asymmetric: true };
        let scaled = |i: usize, v: f32| v * rows[i / 40] * columns[i % 40];
        let values = floats.floats().unwrap().iter().enumerate().map(|(i, v)| scaled(i, *v)).collect();
        let multiplied: Content = Array::f32(&[6, 40], values).to_bytes().into();
        let factors =
            ChannelFactors { rows: Some(rows.clone().into()), columns: Some(columns.clone().into()) };
        let quantize = |bytes: &Content, factors| {
            QuantizedOnRead::with_factors(DType::F32, bytes, ([6, 40], [40, 1]), scheme, factors)
        };
        let array = |matrix, bytes: &Content| {
            let encoding = Encoding::QuantizedOnRead(Arc::new(matrix));
            Constant::encoded(vec![6, 40], encoding, bytes.clone()).unwrap().to_array().unwrap()
        };
        let got = array(quantize(&bytes, factors.clone()).unwrap(), &bytes);
        let want = array(quantize(&multiplied, ChannelFactors::default()).unwrap(), &multiplied);
        let apart = got.floats().unwrap().iter().zip(want.floats().unwrap()).map(|(a, b)| (a - b).abs());
        assert!(apart.fold(0.0, f32::max) < 1e-5);
        let short = ChannelFactors { rows: factors.columns, columns: None };
        assert!(quantize(&bytes, short).is_err());
    }

    #[test]
    fn rows_of_zeros_or_nan_become_zeros() {
        let floats = [0.0f32, 0.0, f32::NAN, f32::NAN, 1.0, f32::INFINITY];
        let bytes: Vec<u8> = floats.iter().flat_map(|v| v.to_le_bytes()).collect();
        let bytes: Content = bytes.into();
        let scheme = QuantScheme { bits: 8, group: None, asymmetric: false };
        let matrix = QuantizedOnRead::new(DType::F32, &bytes, [3, 2], [2, 1], scheme).unwrap();
        let constant =
            Constant::encoded(vec![3, 2], Encoding::QuantizedOnRead(matrix.into()), bytes).unwrap();
        let got = constant.to_array().unwrap();
        assert_eq!(got.floats().unwrap(), [0.0, 0.0, 0.0, 0.0, 1.0, 1.0]);
        let wrong =
            |size| QuantizedOnRead::new(DType::F32, &Content::from(vec![0u8; 24]), size, [2, 1], scheme);
        assert!(wrong([4, 2]).is_err() && wrong([usize::MAX, 2]).is_err());
    }
}
