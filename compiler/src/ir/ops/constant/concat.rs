//! Concatenation of constant matrices.

use super::Constant;
use super::views::is_row_major;

impl Constant {
    /// Concatenates matrices along an axis (0 or 1) by copying their elements. Returns `None` unless all are plain, have one
    /// type and order, and match along the other axis.
    pub fn concat(matrices: &[&Self], axis: usize) -> Option<Self> {
        let first = *matrices.first()?;
        let other = 1_usize.checked_sub(axis)?;
        let width = first.encoding.plain_dtype()?.bytes();
        let order = order(first, axis)?;
        let (rows, mut shape) = (*first.shape.get(other)?, first.shape.clone());
        for matrix in &matrices[1..] {
            let matches = matrix.encoding == first.encoding
                && matrix.dtype == first.dtype
                && self::order(matrix, axis) == Some(order)
                && matrix.shape.get(other) == Some(&rows);
            if !matches {
                return None;
            }
            shape[axis] += matrix.shape[axis];
        }
        let mut bytes = Vec::with_capacity(rows * shape[axis] * width);
        match order {
            Order::AxisFirst => matrices.iter().for_each(|matrix| bytes.extend_from_slice(&matrix.bytes)),
            Order::AxisLast => {
                for row in 0..rows {
                    for matrix in matrices {
                        let size = matrix.shape[axis] * width;
                        bytes.extend_from_slice(matrix.bytes.get(row * size..(row + 1) * size)?);
                    }
                }
            }
        }
        matrices.iter().for_each(|matrix| matrix.bytes.release());
        let row_major = (order == Order::AxisFirst) == (axis == 0);
        let strides = (!row_major).then(|| vec![1, shape[0]]);
        Some(Self { shape, strides, bytes: bytes.into(), ..first.clone() })
    }
}

/// Order of a matrix's elements in memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// Neighbors along the axis are a row apart.
    AxisFirst,
    /// Neighbors along the axis are adjacent.
    AxisLast,
}

/// Returns the order of a matrix's elements relative to an axis. Returns `None` for other tensors.
fn order(matrix: &Constant, axis: usize) -> Option<Order> {
    let [rows, _] = matrix.shape[..] else { return None };
    let row_major = match matrix.strides.as_deref() {
        None => true,
        Some([1, stride]) if *stride == rows => false,
        Some(strides) if is_row_major(&matrix.shape, strides) => true,
        Some(_) => return None,
    };
    Some(if row_major == (axis == 0) { Order::AxisFirst } else { Order::AxisLast })
}
