//! Floats of a file taken as codes: the nearest of a few steps, whose scales were computed once. Codes are computed when they
//! are read, so that a model of any size is quantised without a copy of it.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use half::f16;
use rayon::prelude::{IndexedParallelIterator, IntoParallelIterator, ParallelIterator};

use super::Coding;
use super::stretch::{STRETCH, ends_of, nearest, read};
use crate::content::Content;
use crate::error::OpError;
use crate::ir::tensor::DType;

/// How a matrix of weights is rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scheme {
    /// Bits of a code: 4 or 8.
    pub bits: usize,
    /// Columns that share a scale; all of a row where there is none.
    pub group: Option<usize>,
    /// Whether a group's least element has a code of its own, rather than minus its largest.
    pub zeros: bool,
}

/// What elements are multiplied by before they are rounded, where others are divided by it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Factors {
    /// One for each output.
    pub rows: Option<Arc<Vec<f32>>>,
    /// One for each input.
    pub columns: Option<Arc<Vec<f32>>>,
}

/// A matrix of floats with the scales by which they are rounded.
#[derive(Debug, Clone, PartialEq)]
pub struct Rounded {
    /// The type of the bytes.
    dtype: DType,
    /// Outputs, and inputs that a sum runs over.
    size: [usize; 2],
    /// Elements of the file between neighbours along both.
    strides: [usize; 2],
    bits: usize,
    group: usize,
    zeros: bool,
    factors: Factors,
    /// Scale and bias of every group, row after row; as they lie on the device. Parts share those of the whole.
    scales: Arc<Vec<[f32; 2]>>,
    /// The first row's place among those that have scales.
    first: usize,
}

// Scales are numbers.
impl Eq for Rounded {}

impl Rounded {
    /// Computes the scales of a matrix `size` whose elements lie at strides; f16 holds those of groups, f32 those of rows.
    ///
    /// # Errors
    /// When the bytes do not hold the matrix, or no codes are made so.
    pub fn new(
        dtype: DType,
        bytes: &Content,
        size: [usize; 2],
        strides: [usize; 2],
        scheme: Scheme,
    ) -> Result<Self, OpError> {
        Self::multiplied(dtype, bytes, (size, strides), scheme, Factors::default())
    }

    /// The same of elements that are multiplied before.
    ///
    /// # Errors
    /// As those of [`Self::new`]; also where there are not as many factors as rows or columns.
    pub fn multiplied(
        dtype: DType,
        bytes: &Content,
        (size, strides): ([usize; 2], [usize; 2]),
        scheme: Scheme,
        factors: Factors,
    ) -> Result<Self, OpError> {
        let [rows, columns] = size;
        let group = scheme.group.unwrap_or(columns).clamp(1, columns.max(1));
        let Scheme { bits, zeros, .. } = scheme;
        if !matches!(bits, 4 | 8) || scheme.group == Some(0) {
            return Err(OpError::new(format!("codes of {bits} bits in groups of {group}")));
        }
        let fits = |list: &Option<Arc<Vec<f32>>>, n| list.as_ref().is_none_or(|list| list.len() == n);
        if !fits(&factors.rows, rows) || !fits(&factors.columns, columns) {
            return Err(OpError::new(format!("there are not {rows} and {columns} factors")));
        }
        let mut rounded =
            Self { dtype, size, strides, bits, group, zeros, factors, scales: Arc::default(), first: 0 };
        rounded.check(bytes.len())?;
        let groups = columns.div_ceil(group);
        let scales = (0..rows * groups).into_par_iter().with_min_len((1 << 14) / group.max(1) + 1);
        let scales = scales.map(|i| rounded.scale(bytes, i / groups, i % groups, scheme.group.is_some()));
        let scales: Vec<_> = scales.collect();
        rounded.scales = scales.into();
        bytes.release();
        Ok(rounded)
    }

    /// The scale and the bias of a group.
    fn scale(&self, bytes: &[u8], row: usize, group: usize, half: bool) -> [f32; 2] {
        let columns = group * self.group..((group + 1) * self.group).min(self.size[1]);
        let mut ends = [0.0; 2];
        self.each_stretch(bytes, row, columns, |values| ends = ends_of(values, ends));
        let [low, high] = ends;
        let steps = ((1u32 << self.bits) - 1) as f32;
        let scale =
            if self.zeros { high / steps - low / steps } else { high.max(-low) / ((steps - 1.0) / 2.0) };
        let scale = if half { f16::from_f32(scale.min(65504.0)).to_f32() } else { scale };
        let zero =
            if self.zeros && scale > 0.0 { (-low / scale).round_ties_even().clamp(0.0, steps) } else { 0.0 };
        [scale, -zero * scale]
    }

    /// Fails unless so many bytes hold the matrix.
    pub(super) fn check(&self, bytes: usize) -> Result<(), OpError> {
        let [rows, columns] = self.size;
        let last = |size: usize, stride: usize| size.saturating_sub(1).checked_mul(stride);
        let end = last(rows, self.strides[0]).zip(last(columns, self.strides[1]));
        let end = end.and_then(|(a, b)| a.checked_add(b)?.checked_add(1)?.checked_mul(self.dtype.bytes()));
        let float = matches!(self.dtype, DType::F32 | DType::F16 | DType::Bf16);
        match end {
            Some(end) if float && end <= bytes => Ok(()),
            _ => Err(OpError::new(format!(
                "{bytes} bytes hold no {rows} x {columns} floats of {}",
                self.dtype.name()
            ))),
        }
    }

    /// Some rows, given by their elements in row-major order, and where they lie among so many bytes.
    pub(in crate::ir) fn rows(&self, elements: Range<usize>, bytes: usize) -> Option<(Self, Range<usize>)> {
        let columns = self.size[1].max(1);
        let rows = elements.start / columns..elements.end / columns;
        let whole = elements.start.is_multiple_of(columns) && elements.end.is_multiple_of(columns);
        if !whole || rows.end > self.size[0] {
            return None;
        }
        let factors = match &self.factors.rows {
            Some(of_rows) => Some(Arc::new(of_rows.get(rows.clone())?.to_vec())),
            None => None,
        };
        let start = rows.start.checked_mul(self.strides[0])?.checked_mul(self.dtype.bytes())?;
        let part = Self {
            size: [rows.len(), self.size[1]],
            factors: Factors { rows: factors, columns: self.factors.columns.clone() },
            first: self.first + rows.start,
            ..self.clone()
        };
        Some((part, start..bytes))
    }

    /// Where the first row's scales lie.
    pub(super) fn place(&self) -> usize {
        let groups = self.size[1].div_ceil(self.group.max(1));
        self.scales.get(self.first * groups..).map_or(0, |own| own.as_ptr() as usize)
    }

    /// Number of elements.
    pub(super) fn elements(&self) -> Option<usize> {
        self.size[0].checked_mul(self.size[1])
    }

    pub(super) fn coding(&self) -> Coding {
        let grouped = self.group < self.size[1];
        Coding {
            bits: self.bits,
            row: Some(self.size[1]),
            group: self.group,
            zero: if self.zeros { 0 } else { self.middle() },
            scale: if grouped { DType::F16 } else { DType::F32 },
            bias: self.zeros.then_some(DType::F32),
        }
    }

    /// What codes without zero points count from.
    fn middle(&self) -> u8 {
        1 << (self.bits - 1)
    }

    /// The code of the element with a number in row-major order.
    pub(super) fn code(&self, bytes: &[u8], index: usize) -> u8 {
        let mut code = [0];
        self.codes(bytes, index, &mut code);
        code[0]
    }

    /// The codes of neighbours in a row, from the element with a number on.
    pub(super) fn codes(&self, bytes: &[u8], index: usize, out: &mut [u8]) {
        let columns = self.size[1].max(1);
        let (row, mut column) = (index / columns, index % columns);
        let middle = if self.zeros { 0 } else { self.middle() };
        // Without zero points codes go as far down as up.
        let least = if self.zeros { 0.0 } else { 1.0 - f32::from(middle) };
        let most = ((1u32 << self.bits) - 1) as f32 - f32::from(middle);
        let mut rest = out;
        while !rest.is_empty() {
            let count = (self.group - column % self.group).min(rest.len());
            let (now, later) = rest.split_at_mut(count);
            let [scale, bias] = self.scale_and_bias(row * columns + column);
            let mut slots = now.chunks_mut(STRETCH);
            self.each_stretch(bytes, row, column..column + count, |values| {
                let slots = slots.next().unwrap_or_default();
                if scale > 0.0 {
                    nearest(values, [scale, bias], [least, most], middle, slots);
                } else {
                    slots.fill(middle);
                }
            });
            (rest, column) = (later, column + count);
        }
    }

    /// The scale and the bias of that element's group.
    pub(super) fn scale_and_bias(&self, index: usize) -> [f32; 2] {
        let columns = self.size[1].max(1);
        let row = self.first + index / columns;
        let at = row * columns.div_ceil(self.group) + index % columns / self.group;
        self.scales.get(at).copied().unwrap_or_default()
    }

    /// Calls a function with the elements of some columns of a row, stretch after stretch, multiplied by their factors.
    fn each_stretch(&self, bytes: &[u8], row: usize, columns: Range<usize>, mut call: impl FnMut(&[f32])) {
        let of_row = self.factors.rows.as_ref().and_then(|rows| rows.get(row)).copied();
        let mut values = [0f32; STRETCH];
        for start in columns.clone().step_by(STRETCH) {
            let count = STRETCH.min(columns.end - start);
            let values = &mut values[..count];
            let first = row * self.strides[0] + start * self.strides[1];
            let bytes = bytes.get(first * self.dtype.bytes()..).unwrap_or_default();
            read(self.dtype, bytes, self.strides[1].max(1), values);
            if let Some(of_row) = of_row {
                values.iter_mut().for_each(|v| *v *= of_row);
            }
            if let Some(factors) = &self.factors.columns {
                values.iter_mut().zip(factors.iter().skip(start)).for_each(|(v, factor)| *v *= factor);
            }
            call(values);
        }
    }
}

impl fmt::Display for Rounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "u{} in groups of {}", self.bits, self.group)?;
        f.write_str(if self.zeros { " with zeros" } else { "" })?;
        write!(f, " from {}", self.dtype.name())
    }
}

#[cfg(test)]
mod tests {
    use super::{Factors, Rounded, Scheme};
    use crate::content::Content;
    use crate::ir::array::Array;
    use crate::ir::encoding::Stored;
    use crate::ir::op::Constant;
    use crate::ir::ops::constant::random;
    use crate::ir::tensor::DType;
    use std::sync::Arc;

    #[test]
    fn elements_are_the_nearest_steps() {
        let array = random(DType::F32, &[6, 40], 5);
        let floats = array.floats().unwrap();
        let bytes: Content = array.to_bytes().into();
        for (bits, group, zeros) in
            [(8, None, false), (4, Some(16), false), (4, Some(16), true), (8, None, true)]
        {
            let scheme = Scheme { bits, group, zeros };
            for (size, strides) in [([6, 40], [40, 1]), ([40, 6], [1, 40])] {
                let rounded = Rounded::new(DType::F32, &bytes, size, strides, scheme).unwrap();
                let stored = Stored::Rounded(rounded.clone().into());
                let constant = Constant::encoded(size.to_vec(), stored, bytes.clone()).unwrap();
                let got = constant.to_array().unwrap();
                for (i, got) in got.floats().unwrap().iter().enumerate() {
                    let want = floats[i / size[1] * strides[0] + i % size[1] * strides[1]];
                    let [scale, bias] = rounded.scale_and_bias(i);
                    let low = if zeros { bias } else { -want.abs() };
                    assert!(
                        low - scale <= *got && (got - want).abs() <= 0.51 * scale + 2e-3 * want.abs(),
                        "{scheme:?}: {got}, {want}"
                    );
                }
            }
        }
    }

    /// Codes of many elements at once are those of one after the other, whatever the elements are and however they lie.
    #[test]
    fn codes_are_steps_rounded_to_even() {
        let (rows, columns) = (3, 700);
        let random = random(DType::F16, &[rows, columns], 7);
        let mut floats = random.floats().unwrap().to_vec();
        // Halves of steps, and what is no number or has none.
        floats[..9].copy_from_slice(&[63.5, -63.5, 0.25, -0.25, 0.75, -0.75, f32::NAN, f32::INFINITY, -0.0]);
        floats[9] = f32::NEG_INFINITY;
        floats[columns..2 * columns].fill(0.0);
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            let stored = Array::f32(&[rows, columns], floats.clone()).cast(dtype);
            let bytes: Content = stored.to_bytes().into();
            let floats = stored.floats().unwrap();
            for (bits, group, zeros) in [(8, None, false), (4, Some(300), true), (8, Some(7), true)] {
                let scheme = Scheme { bits, group, zeros };
                let (least, most) = (f32::from(u8::from(!zeros)), ((1u32 << bits) - 1) as f32);
                for (size, strides) in [([rows, columns], [columns, 1]), ([columns, rows], [1, columns])] {
                    let rounded = Rounded::new(dtype, &bytes, size, strides, scheme).unwrap();
                    for row in 0..size[0] {
                        let mut codes = vec![0; size[1]];
                        rounded.codes(&bytes, row * size[1], &mut codes);
                        for (column, code) in codes.iter().enumerate() {
                            let value = floats[row * strides[0] + column * strides[1]];
                            let [scale, bias] = rounded.scale_and_bias(row * size[1] + column);
                            let steps = if scale > 0.0 { (value - bias) / scale } else { 0.0 };
                            let steps = if steps.is_nan() { 0.0 } else { steps };
                            let middle = if zeros { 0.0 } else { f32::from(rounded.middle()) };
                            let want = (steps.round_ties_even() + middle).clamp(least, most) as u8;
                            assert_eq!(*code, want, "{scheme:?} {dtype:?}: {value} at {row}, {column}");
                        }
                    }
                }
            }
        }
    }

    /// Elements are rounded after they were multiplied, whichever way they lie.
    #[test]
    fn factors_come_before_rounding() {
        let floats = random(DType::F32, &[6, 40], 5);
        let bytes: Content = floats.to_bytes().into();
        let rows: Vec<f32> = (0..6).map(|i| 0.5 + i as f32).collect();
        let columns: Vec<f32> = (0..40).map(|i| 3.0 - i as f32 / 20.0).collect();
        let scheme = Scheme { bits: 4, group: Some(16), zeros: true };
        let product = |i: usize, v: f32| v * rows[i / 40] * columns[i % 40];
        let values = floats.floats().unwrap().iter().enumerate().map(|(i, v)| product(i, *v)).collect();
        let multiplied: Content = Array::f32(&[6, 40], values).to_bytes().into();
        let factors = Factors { rows: Some(rows.clone().into()), columns: Some(columns.clone().into()) };
        let rounded = |bytes: &Content, factors| {
            Rounded::multiplied(DType::F32, bytes, ([6, 40], [40, 1]), scheme, factors)
        };
        let array = |rounded, bytes: &Content| {
            let stored = Stored::Rounded(Arc::new(rounded));
            Constant::encoded(vec![6, 40], stored, bytes.clone()).unwrap().to_array().unwrap()
        };
        let got = array(rounded(&bytes, factors.clone()).unwrap(), &bytes);
        let want = array(rounded(&multiplied, Factors::default()).unwrap(), &multiplied);
        let apart = got.floats().unwrap().iter().zip(want.floats().unwrap()).map(|(a, b)| (a - b).abs());
        assert!(apart.fold(0.0, f32::max) < 1e-5);
        let short = Factors { rows: factors.columns, columns: None };
        assert!(rounded(&bytes, short).is_err());
    }

    #[test]
    fn rows_of_zeros_and_of_no_numbers_are_zeros() {
        let floats = [0.0f32, 0.0, f32::NAN, f32::NAN, 1.0, f32::INFINITY];
        let bytes: Vec<u8> = floats.iter().flat_map(|v| v.to_le_bytes()).collect();
        let bytes: Content = bytes.into();
        let scheme = Scheme { bits: 8, group: None, zeros: false };
        let rounded = Rounded::new(DType::F32, &bytes, [3, 2], [2, 1], scheme).unwrap();
        let constant = Constant::encoded(vec![3, 2], Stored::Rounded(rounded.into()), bytes).unwrap();
        let got = constant.to_array().unwrap();
        assert_eq!(got.floats().unwrap(), [0.0, 0.0, 0.0, 0.0, 1.0, 1.0]);
        let wrong = |size| Rounded::new(DType::F32, &Content::from(vec![0u8; 24]), size, [2, 1], scheme);
        assert!(wrong([4, 2]).is_err() && wrong([usize::MAX, 2]).is_err());
    }
}
