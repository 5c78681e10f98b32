//! Constants that refer to the same bytes in another order, shape, range or float type.

use std::ops::Range;

use super::Constant;
use crate::ir::array::{count, strides};
use crate::ir::encoding::{ChannelFactors, Encoding};
use crate::ir::tensor::DType;

impl Constant {
    /// Permutes the axes without changing the bytes. Returns `None` for an empty constant or a wrong permutation.
    pub fn transposed(&self, perm: &[usize]) -> Option<Self> {
        let old = self.strides.clone().unwrap_or_else(|| strides(&self.shape));
        let permute =
            |list: &[usize]| perm.iter().map(|p| list.get(*p).copied()).collect::<Option<Vec<usize>>>();
        let shape = permute(&self.shape)?;
        let new = Some(permute(&old)?).filter(|new| !is_row_major(&shape, new));
        (perm.len() == self.shape.len() && self.elements() > 0).then(|| Self {
            shape,
            strides: new,
            ..self.clone()
        })
    }

    /// Changes the shape without changing the bytes. Returns `None` if the number of elements differs, or if one stride
    /// per axis cannot express the order.
    pub fn reshaped(&self, shape: &[usize]) -> Option<Self> {
        let new = self.strides_for_shape(shape)?;
        let new = Some(new).filter(|new| !is_row_major(shape, new));
        Some(Self { shape: shape.to_vec(), strides: new, ..self.clone() })
    }

    /// Sees a matrix `[O, taps * I]`, whose columns are in the order tap, input channel, as convolution filters of shape
    /// `[O, I, taps..]`. Returns `None` if the number of elements differs.
    pub fn as_filters(&self, shape: &[usize]) -> Option<Self> {
        let [outputs, inputs, taps @ ..] = shape else { return None };
        let taps_first: Vec<usize> =
            [*outputs].into_iter().chain(taps.iter().copied()).chain([*inputs]).collect();
        let perm: Vec<usize> = [0, taps_first.len() - 1].into_iter().chain(1..=taps.len()).collect();
        self.reshaped(&taps_first)?.transposed(&perm)
    }

    /// Sees convolution filters `[O, I, taps..]` as a matrix `[O, taps * I]`, the inverse of [`Self::as_filters`]. Returns
    /// `None` if the elements do not have the order O, taps, I.
    pub fn as_filter_matrix(&self) -> Option<Self> {
        let [outputs, inputs @ ..] = self.shape.as_slice() else { return None };
        let perm: Vec<usize> = [0].into_iter().chain(2..self.shape.len()).chain([1]).collect();
        self.transposed(&perm)?.reshaped(&[*outputs, count(inputs)])
    }

    /// Multiplies convolution filters `[O, I, taps..]` by one factor for each position of axis 0 or 1, before they are
    /// quantized. Returns `None` unless the filters are [`Encoding::QuantizedOnRead`] as one matrix `[O, taps * I]` and there
    /// is a factor for each position.
    pub fn scaled_filters(&self, factors: &[f32], axis: usize) -> Option<Self> {
        let Encoding::QuantizedOnRead(matrix) = &self.encoding else { return None };
        let [outputs, inputs, taps @ ..] = self.shape.as_slice() else { return None };
        let size = [*outputs, count(taps).checked_mul(*inputs)?];
        let rows = Self { shape: size.to_vec(), strides: None, ..self.clone() };
        let seen = rows.as_filters(&self.shape)?;
        if seen.strides != self.strides || self.shape.get(axis) != Some(&factors.len()) {
            return None;
        }
        let factors = match axis {
            0 => ChannelFactors { rows: Some(factors.to_vec().into()), columns: None },
            _ => ChannelFactors { rows: None, columns: Some(factors.repeat(count(taps)).into()) },
        };
        let encoding = Encoding::QuantizedOnRead(matrix.multiplied(&self.bytes, &factors).ok()?.into());
        Some(Self { encoding, ..self.clone() })
    }

    /// Returns the strides that give the constant another shape without changing the bytes. Returns `None` if the
    /// number of elements differs, or if one stride per axis cannot express the order.
    pub fn strides_for_shape(&self, shape: &[usize]) -> Option<Vec<usize>> {
        if count(shape) != self.elements() {
            return None;
        }
        let Some(old) = &self.strides else { return Some(strides(shape)) };
        let mut axes =
            self.shape.iter().copied().zip(old.iter().copied()).filter(|(size, _)| *size != 1).rev();
        // Elements of the current old axis that no new axis covers yet, and their stride.
        let mut left = (1usize, 0usize);
        let mut out = Vec::with_capacity(shape.len());
        for size in shape.iter().rev() {
            let mut missing = *size;
            if missing == 1 {
                out.push(0);
                continue;
            }
            if left.0 == 1 {
                left = axes.next()?;
            }
            out.push(left.1);
            while missing > left.0 {
                // Adjacent old axes without a gap between them count as one axis.
                let next = axes.next()?;
                if !missing.is_multiple_of(left.0) || next.1 != left.0 * left.1 {
                    return None;
                }
                missing /= left.0;
                left = next;
            }
            if !left.0.is_multiple_of(missing) {
                return None;
            }
            left = (left.0 / missing, left.1 * missing);
        }
        out.reverse();
        Some(out)
    }

    /// Returns a constant of the positions `range` of an axis. If the axis is the outermost one in the stored bytes,
    /// the result refers to a range of them without copying. Otherwise plain row-major elements are copied. Returns
    /// `None` for stacks, for separate scales ([`Encoding::GroupQuantized`]), and for ranges that split a quantized
    /// block.
    pub fn slice(&self, axis: usize, range: Range<usize>) -> Option<Self> {
        let old = self.strides.clone().unwrap_or_else(|| strides(&self.shape));
        let (size, stride) = (*self.shape.get(axis)?, *old.get(axis)?);
        if range.is_empty() || range.end > size {
            return None;
        }
        if size.checked_mul(stride)? != self.elements() {
            return self.copy_slice(axis, range);
        }
        let (start, end) = (range.start * stride, range.end * stride);
        let (encoding, bytes) = match &self.encoding {
            Encoding::Plain(dtype) => (self.encoding.clone(), start * dtype.bytes()..end * dtype.bytes()),
            Encoding::Blocks(kind) => {
                let whole = |n: usize| {
                    n.is_multiple_of(kind.elements()).then_some(n / kind.elements() * kind.bytes())
                };
                (self.encoding.clone(), whole(start)?..whole(end)?)
            }
            Encoding::QuantizedOnRead(matrix) => {
                let (rows, bytes) = matrix.row_range(start..end, self.bytes.len())?;
                (Encoding::QuantizedOnRead(rows.into()), bytes)
            }
            Encoding::GroupQuantized(_) | Encoding::Stack(_) => return None,
        };
        if bytes.end > self.bytes.len() {
            return None;
        }
        let mut shape = self.shape.clone();
        *shape.get_mut(axis)? = range.len();
        let strides = Some(old).filter(|strides| !is_row_major(&shape, strides));
        Some(Self { dtype: self.dtype, shape, encoding, strides, bytes: self.bytes.slice(bytes) })
    }

    /// Copies the positions `range` of an axis to a new constant. Returns `None` unless the elements are plain and
    /// row-major.
    fn copy_slice(&self, axis: usize, range: Range<usize>) -> Option<Self> {
        let width = self.encoding.plain_dtype().filter(|_| self.strides.is_none())?.bytes();
        let inner = count(self.shape.get(axis + 1..)?) * width;
        let mut shape = self.shape.clone();
        let size = std::mem::replace(shape.get_mut(axis)?, range.len());
        let mut bytes = Vec::with_capacity(count(&shape) * width);
        for outer in self.bytes.chunks_exact((size * inner).max(1)) {
            bytes.extend_from_slice(outer.get(range.start * inner..range.end * inner)?);
        }
        Some(Self { shape, bytes: bytes.into(), ..self.clone() })
    }

    /// Casts the constant to another float type without changing the bytes. Returns `None` if a cast must compute
    /// elements, for example because it would round twice.
    pub fn cast(&self, dtype: DType) -> Option<Self> {
        let stored = self.encoding.element_type();
        let wider = match stored {
            DType::F16 | DType::Bf16 => matches!(self.dtype, DType::F32 | DType::F64),
            DType::F32 => self.dtype == DType::F64,
            _ => false,
        };
        // Rounding twice differs from rounding once.
        let exact = self.dtype == stored || wider;
        let floats = self.dtype.is_float() && dtype.is_float();
        (exact && floats).then(|| Self { dtype, ..self.clone() })
    }
}

/// True if strides are row-major; axes of one element are ignored.
pub(super) fn is_row_major(shape: &[usize], new: &[usize]) -> bool {
    strides(shape).iter().zip(new).zip(shape).all(|((a, b), size)| a == b || *size == 1)
}
