//! Matrices of floats that are quantized while they are read. Scales are computed once. Quantized values are computed
//! on each read, so quantizing a model of any size needs no copy of the model.

#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use half::f16;
use rayon::prelude::{IndexedParallelIterator, IntoParallelIterator, ParallelIterator};

use super::chunk::{CHUNK, extend_min_max, quantize_chunk, read_chunk};
use super::matrix_layout::MatrixLayout;
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
    /// Positions of the elements in the constant's bytes. A row belongs to an output channel.
    layout: MatrixLayout,
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
        let layout = MatrixLayout::from_strides(size, strides);
        Self::with_factors(dtype, bytes, layout, scheme, ChannelFactors::default())
    }

    /// Computes the scales of a matrix whose elements are multiplied by factors first.
    ///
    /// # Errors
    /// If the bytes do not hold the matrix, the scheme is not supported, or the number of factors is not the number of
    /// rows or columns.
    pub fn with_factors(
        dtype: DType,
        bytes: &Content,
        layout: MatrixLayout,
        scheme: QuantScheme,
        factors: ChannelFactors,
    ) -> Result<Self, OpError> {
        let (rows, columns) = (layout.rows, layout.columns());
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
            Self { dtype, layout, bits, group, asymmetric, factors, scales: Arc::default(), first: 0 };
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

    /// Returns the matrix whose elements are also multiplied by `factors` before quantization.
    ///
    /// # Errors
    /// If the number of factors is not the number of rows or columns.
    pub(in crate::ir) fn multiplied(
        &self,
        bytes: &Content,
        factors: &ChannelFactors,
    ) -> Result<Self, OpError> {
        let factors = ChannelFactors {
            rows: multiply_factors(&self.factors.rows, &factors.rows),
            columns: multiply_factors(&self.factors.columns, &factors.columns),
        };
        let group = (self.group < self.columns()).then_some(self.group);
        let scheme = QuantScheme { bits: self.bits, group, asymmetric: self.asymmetric };
        Self::with_factors(self.dtype, bytes, self.layout, scheme, factors)
    }

    /// Computes the scale and the bias of a group. The scale is rounded to f16 if `round_to_f16`.
    fn compute_scale(&self, bytes: &[u8], row: usize, group: usize, round_to_f16: bool) -> [f32; 2] {
        let columns = group * self.group..((group + 1) * self.group).min(self.columns());
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
        self.layout.check(self.dtype, bytes)
    }

    /// Number of columns.
    fn columns(&self) -> usize {
        self.layout.columns()
    }

    /// Returns the matrix that consists of the elements with the row-major indices `elements`, and the byte range of these
    /// elements. `bytes` is the byte size of the whole matrix. Returns `None` if the indices do not cover whole rows.
    pub(in crate::ir) fn row_range(
        &self,
        elements: Range<usize>,
        bytes: usize,
    ) -> Option<(Self, Range<usize>)> {
        let columns = self.columns().max(1);
        let rows = elements.start / columns..elements.end / columns;
        let whole = elements.start.is_multiple_of(columns) && elements.end.is_multiple_of(columns);
        if !whole || rows.end > self.layout.rows {
            return None;
        }
        let row_factors = match &self.factors.rows {
            Some(factors) => Some(Arc::new(factors.get(rows.clone())?.to_vec())),
            None => None,
        };
        let start = rows.start.checked_mul(self.layout.strides[0])?.checked_mul(self.dtype.bytes())?;
        let range = Self {
            layout: MatrixLayout { rows: rows.len(), ..self.layout },
            factors: ChannelFactors { rows: row_factors, columns: self.factors.columns.clone() },
            first: self.first + rows.start,
            ..self.clone()
        };
        Some((range, start..bytes))
    }

    /// Memory address of the scales of the matrix's first row.
    pub(super) fn scales_address(&self) -> usize {
        let groups = self.columns().div_ceil(self.group.max(1));
        self.scales.get(self.first * groups..).map_or(0, |scales| scales.as_ptr() as usize)
    }

    /// Number of elements.
    pub(super) fn elements(&self) -> Option<usize> {
        self.layout.rows.checked_mul(self.columns())
    }

    pub(super) fn quant_format(&self) -> QuantFormat {
        let grouped = self.group < self.columns();
        QuantFormat {
            bits: self.bits,
            row_length: Some(self.columns()),
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
        let columns = self.columns().max(1);
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
        let columns = self.columns().max(1);
        let row = self.first + index / columns;
        let at = row * columns.div_ceil(self.group) + index % columns / self.group;
        self.scales.get(at).copied().unwrap_or_default()
    }

    /// Reads adjacent elements of a row, starting at a column, into `out`, which holds at most one chunk.
    fn read(&self, bytes: &[u8], row: usize, mut column: usize, mut out: &mut [f32]) {
        while !out.is_empty() {
            let (first, columns) = self.layout.run(row, column);
            let bytes = bytes.get(first * self.dtype.bytes()..).unwrap_or_default();
            let (run, rest) = out.split_at_mut(columns.min(out.len()));
            read_chunk(self.dtype, bytes, self.layout.strides[2].max(1), run);
            (out, column) = (rest, column + run.len());
        }
    }

    /// Reads the elements of a row in a range of columns, multiplies them by the factors, and passes the products to `call`
    /// in consecutive chunks.
    fn for_each_chunk(&self, bytes: &[u8], row: usize, columns: Range<usize>, mut call: impl FnMut(&[f32])) {
        let row_factor = self.factors.rows.as_ref().and_then(|rows| rows.get(row)).copied();
        let mut values = [0f32; CHUNK];
        for start in columns.clone().step_by(CHUNK) {
            let count = CHUNK.min(columns.end - start);
            let values = &mut values[..count];
            self.read(bytes, row, start, values);
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

/// Multiplies two lists of factors element by element. A missing list stands for factors of 1.
fn multiply_factors(a: &Option<Arc<Vec<f32>>>, b: &Option<Arc<Vec<f32>>>) -> Option<Arc<Vec<f32>>> {
    match (a, b) {
        (Some(a), Some(b)) => Some(Arc::new(a.iter().zip(b.iter()).map(|(a, b)| a * b).collect())),
        (one, other) => one.clone().or_else(|| other.clone()),
    }
}

impl fmt::Display for QuantizedOnRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "u{} in groups of {}", self.bits, self.group)?;
        f.write_str(if self.asymmetric { " with zeros" } else { "" })?;
        write!(f, " from {}", self.dtype.name())
    }
}
