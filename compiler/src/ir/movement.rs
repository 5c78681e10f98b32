//! Data movement on host arrays, used by the CPU references of the data-movement operators. Offsets count elements of
//! the source. An offset outside the source is an error, never a panic.

use super::array::{Array, Data, count, strides};
use crate::error::OpError;

/// Returns the elements at the given offsets of the source.
pub(crate) fn gather(x: &Array, shape: &[usize], offsets: &[usize]) -> Result<Array, OpError> {
    copy_chunks(x, shape, offsets, 1)
}

/// Returns the elements at the given offsets of the source; `fill` where the offset is `None`.
pub(crate) fn gather_or(
    x: &Array,
    shape: &[usize],
    offsets: &[Option<usize>],
    fill: f64,
) -> Result<Array, OpError> {
    fn go<T: Copy>(from: &[T], offsets: &[Option<usize>], fill: T) -> Result<Vec<T>, OpError> {
        let at = |o: &Option<usize>| o.map_or(Some(fill), |o| from.get(o).copied());
        offsets.iter().map(|o| at(o).ok_or_else(outside)).collect()
    }
    let data = match &x.data {
        Data::Float(v) => Data::Float(go(v, offsets, fill as f32)?),
        Data::Int(v) => Data::Int(go(v, offsets, fill as i64)?),
    };
    complete(x, shape, data)
}

/// Concatenates runs of `length` elements that start at the given offsets of the source.
pub(crate) fn copy_chunks(
    x: &Array,
    shape: &[usize],
    starts: &[usize],
    length: usize,
) -> Result<Array, OpError> {
    fn go<T: Copy>(from: &[T], starts: &[usize], length: usize) -> Result<Vec<T>, OpError> {
        let mut out = Vec::with_capacity(starts.len().saturating_mul(length).min(1 << 30));
        for start in starts {
            let end = start.checked_add(length);
            let run = end.and_then(|end| from.get(*start..end)).ok_or_else(outside)?;
            out.extend_from_slice(run);
        }
        Ok(out)
    }
    let data = match &x.data {
        Data::Float(v) => Data::Float(go(v, starts, length)?),
        Data::Int(v) => Data::Int(go(v, starts, length)?),
    };
    complete(x, shape, data)
}

/// Returns the elements of the source at the offsets `base + sum of coordinate * step`, for every coordinate of
/// `shape`, in row-major order.
pub(crate) fn strided(x: &Array, shape: &[usize], steps: &[i64], base: i64) -> Result<Array, OpError> {
    fn go<T: Copy>(from: &[T], shape: &[usize], steps: &[i64], base: i64) -> Result<Vec<T>, OpError> {
        if count(shape) == 0 {
            return Ok(Vec::new());
        }
        check_offsets(from.len(), shape, steps, base)?;
        let mut out = Vec::with_capacity(count(shape));
        let (last, outer) = shape.split_last().map_or((1, &[][..]), |(l, o)| (*l, o));
        let step = steps.last().copied().unwrap_or(0);
        let mut coords = vec![0usize; outer.len()];
        let mut start = base;
        loop {
            let mut at = start;
            for _ in 0..last {
                out.push(*usize::try_from(at).ok().and_then(|i| from.get(i)).ok_or_else(outside)?);
                // The sum after the last element is unused and may wrap.
                at = at.wrapping_add(step);
            }
            // Advance the outer coordinates, last axis first.
            let mut axis = outer.len();
            loop {
                if axis == 0 {
                    return Ok(out);
                }
                axis -= 1;
                coords[axis] += 1;
                start = start.wrapping_add(steps[axis]);
                if coords[axis] < outer[axis] {
                    break;
                }
                start = start.wrapping_sub(steps[axis].wrapping_mul(outer[axis] as i64));
                coords[axis] = 0;
            }
        }
    }
    if steps.len() != shape.len() {
        return Err(OpError::new(format!("{} steps for {} axes", steps.len(), shape.len())));
    }
    let data = match &x.data {
        Data::Float(v) => Data::Float(go(v, shape, steps, base)?),
        Data::Int(v) => Data::Int(go(v, shape, steps, base)?),
    };
    complete(x, shape, data)
}

/// Broadcasts an array: repeats axes of size 1 and adds leading axes.
pub(crate) fn expand(x: &Array, shape: &[usize]) -> Result<Array, OpError> {
    let fail = || OpError::new(format!("shape {:?} does not broadcast to {shape:?}", x.shape));
    let skip = shape.len().checked_sub(x.shape.len()).ok_or_else(fail)?;
    let mut steps = vec![0i64; shape.len()];
    for (axis, (size, stride)) in x.shape.iter().zip(strides(&x.shape)).enumerate() {
        let to = shape.get(axis + skip).copied().ok_or_else(fail)?;
        if *size != to && *size != 1 {
            return Err(fail());
        }
        if *size == to
            && let Some(step) = steps.get_mut(axis + skip)
        {
            *step = i64::try_from(stride).map_err(|_| fail())?;
        }
    }
    strided(x, shape, &steps, 0)
}

/// Returns the sums of offsets for every combination of one offset per axis, last axis fastest. A sum is `None` if one
/// of its offsets is `None`.
pub(crate) fn combine_offsets(axes: &[Vec<Option<usize>>]) -> Vec<Option<usize>> {
    let mut all = vec![Some(0usize)];
    for axis in axes {
        let mut next = Vec::with_capacity(all.len().saturating_mul(axis.len()).min(1 << 30));
        for base in &all {
            next.extend(axis.iter().map(|o| Some((*base)?.saturating_add((*o)?))));
        }
        all = next;
    }
    all
}

/// Converts an index of an axis, which counts from the end if it is negative, to an index from the start.
pub(crate) fn normalize_index(index: i64, size: usize) -> Result<usize, OpError> {
    let signed = size as i64;
    let at = if index < 0 { index.saturating_add(signed) } else { index };
    usize::try_from(at)
        .ok()
        .filter(|i| *i < size)
        .ok_or_else(|| OpError::new(format!("index {index} is outside an axis of size {size}")))
}

/// Fails unless the smallest and the largest offset of a strided view are inside the source, which has `length`
/// elements.
fn check_offsets(length: usize, shape: &[usize], steps: &[i64], base: i64) -> Result<(), OpError> {
    let (mut low, mut high) = (i128::from(base), i128::from(base));
    for (size, step) in shape.iter().zip(steps) {
        let reach = i128::from(*step) * (*size as i128 - 1);
        if reach < 0 {
            low += reach;
        } else {
            high += reach;
        }
    }
    if low < 0 || high >= length as i128 { Err(outside()) } else { Ok(()) }
}

fn outside() -> OpError {
    OpError::new("the operator reads an element outside the tensor")
}

fn complete(x: &Array, shape: &[usize], data: Data) -> Result<Array, OpError> {
    let n = match &data {
        Data::Float(v) => v.len(),
        Data::Int(v) => v.len(),
    };
    if n != count(shape) {
        return Err(OpError::new(format!("{n} elements do not fill the shape {shape:?}")));
    }
    Ok(Array { dtype: x.dtype, shape: shape.to_vec(), data })
}

#[cfg(test)]
mod tests {
    use super::{combine_offsets, copy_chunks, expand, gather_or, normalize_index, strided};
    use crate::ir::array::Array;

    #[test]
    fn strided_views() {
        let x = Array::i64s(&[0, 1, 2, 3, 4, 5]);
        assert_eq!(strided(&x, &[3, 2], &[1, 3], 0).unwrap().ints().unwrap(), [0, 3, 1, 4, 2, 5]);
        assert_eq!(strided(&x, &[3], &[-2], 5).unwrap().ints().unwrap(), [5, 3, 1]);
        assert_eq!(strided(&x, &[], &[], 4).unwrap().ints().unwrap(), [4]);
        assert!(strided(&x, &[0, 2], &[100, 100], 0).unwrap().is_empty());
        assert!(strided(&x, &[3], &[-2], 3).is_err());
        assert!(strided(&x, &[7], &[1], 0).is_err());
        assert!(strided(&x, &[2], &[i64::MAX], i64::MAX).is_err());
        assert_eq!(strided(&x, &[1, 1], &[i64::MAX, i64::MIN], 5).unwrap().ints().unwrap(), [5]);
    }

    #[test]
    fn expansion_and_combination() {
        let x = Array::int(crate::ir::tensor::DType::I32, &[2, 1], vec![1, 2]);
        assert_eq!(expand(&x, &[2, 2, 2]).unwrap().ints().unwrap(), [1, 1, 2, 2, 1, 1, 2, 2]);
        assert!(expand(&x, &[3, 2]).is_err());
        assert!(expand(&x, &[2]).is_err());
        let offsets = combine_offsets(&[vec![Some(0), None], vec![Some(1), Some(2)]]);
        assert_eq!(offsets, [Some(1), Some(2), None, None]);
        let y = Array::i64s(&[5, 6, 7]);
        assert_eq!(gather_or(&y, &[2, 2], &offsets, 9.0).unwrap().ints().unwrap(), [6, 7, 9, 9]);
        assert!(copy_chunks(&y, &[2], &[2], 2).is_err());
        assert_eq!(normalize_index(-1, 3).unwrap(), 2);
        assert!(normalize_index(3, 3).is_err());
        assert!(normalize_index(i64::MIN, 3).is_err());
    }
}
