//! Iteration over host tensors: lanes along one axis, strided offsets over several axes, and broadcasting.

use std::cmp::Ordering;

use rayon::prelude::{IndexedParallelIterator, ParallelIterator, ParallelSliceMut};

use crate::ir::array::{count, strides};
use crate::ir::tensor::DType;

/// Applies `f(lane, result)` to every lane of `x` along an axis. A lane is the sequence of elements along the axis.
/// Each result has `length` elements and replaces its lane.
pub(crate) fn map_lanes<T, U>(
    x: &[T],
    shape: &[usize],
    axis: usize,
    length: usize,
    f: impl Fn(&[T], &mut [U]) + Sync,
) -> Vec<U>
where
    T: Copy + Send + Sync,
    U: Copy + Default + Send,
{
    let (outer, rest) = shape.split_at(axis);
    let n = rest.first().copied().unwrap_or(1);
    let inner = count(rest.get(1..).unwrap_or(&[]));
    let total = count(outer).saturating_mul(length).saturating_mul(inner);
    let mut out = vec![U::default(); total];
    if total == 0 {
        return out;
    }
    let block = length * inner;
    out.par_chunks_mut(block).enumerate().for_each(|(o, out)| {
        let x = &x[o * n * inner..][..n * inner];
        if inner == 1 {
            return f(x, out);
        }
        let mut lane: Vec<T> = Vec::with_capacity(n);
        let mut result = vec![U::default(); length];
        for i in 0..inner {
            lane.clear();
            lane.extend(x.iter().skip(i).step_by(inner));
            f(&lane, &mut result);
            for (out, r) in out.iter_mut().skip(i).step_by(inner).zip(&result) {
                *out = *r;
            }
        }
    });
    out
}

/// Iterates over the offsets of all elements of a tensor with the given sizes and strides (`steps`), in row-major order.
pub(crate) fn strided_offsets(sizes: &[usize], steps: &[usize]) -> impl Iterator<Item = usize> {
    let axes: Vec<(usize, usize)> = sizes.iter().copied().zip(steps.iter().copied()).collect();
    let mut at = vec![0usize; axes.len()];
    let mut next = (count(sizes) > 0).then_some(0usize);
    std::iter::from_fn(move || {
        let current = next?;
        next = None;
        let mut offset = current;
        for (i, (size, step)) in axes.iter().enumerate().rev() {
            at[i] += 1;
            if at[i] < *size {
                next = Some(offset + step);
                break;
            }
            at[i] = 0;
            offset -= step * (size - 1);
        }
        Some(current)
    })
}

/// Returns the strides for reading a tensor that is broadcast to a shape. The stride is 0 for axes of size 1.
pub(crate) fn broadcast_strides(from: &[usize], to: &[usize]) -> Vec<usize> {
    let mut steps = vec![0; to.len()];
    let skip = to.len().saturating_sub(from.len());
    for ((step, stride), size) in steps[skip..].iter_mut().zip(strides(from)).zip(from) {
        *step = if *size == 1 { 0 } else { stride };
    }
    steps
}

/// Returns, for each element of the shape `to`, the offset of the element to read from a tensor of shape `from` that
/// broadcasts to it.
pub(crate) fn broadcast_offsets(from: &[usize], to: &[usize]) -> Vec<usize> {
    strided_offsets(to, &broadcast_strides(from, to)).collect()
}

/// Compares floats; NaN is greater than all numbers, and both zeros are equal.
pub(crate) fn float_order(a: f32, b: f32) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// Compares two integers of a declared type; u64 values are stored as i64 and compare as unsigned.
pub(crate) fn int_order(dtype: DType, a: i64, b: i64) -> Ordering {
    if dtype == DType::U64 { (a as u64).cmp(&(b as u64)) } else { a.cmp(&b) }
}

/// Minimum and maximum of an integer type, in the representation of [`crate::ir::array::Array`].
pub(crate) fn int_range(dtype: DType) -> (i64, i64) {
    match dtype {
        DType::I8 => (i8::MIN.into(), i8::MAX.into()),
        DType::I16 => (i16::MIN.into(), i16::MAX.into()),
        DType::I32 => (i32::MIN.into(), i32::MAX.into()),
        DType::U8 => (0, u8::MAX.into()),
        DType::U16 => (0, u16::MAX.into()),
        DType::U32 => (0, u32::MAX.into()),
        DType::U64 => (0, -1),
        DType::Bool => (0, 1),
        DType::I64 | DType::F32 | DType::F16 | DType::Bf16 | DType::F64 => (i64::MIN, i64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::{broadcast_offsets, map_lanes, strided_offsets};

    #[test]
    fn offsets_and_broadcasts() {
        assert_eq!(strided_offsets(&[2, 3], &[10, 1]).collect::<Vec<_>>(), [0, 1, 2, 10, 11, 12]);
        assert_eq!(strided_offsets(&[], &[]).collect::<Vec<_>>(), [0]);
        assert_eq!(strided_offsets(&[2, 0], &[1, 1]).count(), 0);
        assert_eq!(broadcast_offsets(&[2, 1], &[2, 2, 3]), [0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1]);
    }

    #[test]
    fn lanes_along_an_inner_axis() {
        let x = [1, 2, 3, 4, 5, 6, 7, 8];
        let sums = map_lanes(&x, &[2, 2, 2], 1, 1, |lane, out: &mut [i32]| out[0] = lane.iter().sum());
        assert_eq!(sums, [4, 6, 12, 14]);
        assert_eq!(map_lanes(&[0i32; 0], &[2, 0, 2], 1, 1, |_, out: &mut [i32]| out[0] = 7), [7; 4]);
    }
}
