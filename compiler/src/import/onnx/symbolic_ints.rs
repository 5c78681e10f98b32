//! Small integer tensors whose elements are known, as numbers or as expressions of symbolic sizes.
//!
//! Models compute shapes with ordinary operators (Shape, Gather, Concat, ...). A tensor of this module holds the
//! results of these operators while importing; [`super::shape_eval`] evaluates the operators.

use super::refused::Refused;
use crate::ir::array::Array;
use crate::ir::builder::Builder;
use crate::ir::dim::{Bounds, Dim};
use crate::ir::graph::NodeId;
use crate::ir::op::{Constant, ShapeValues};
use crate::ir::tensor::DType;

/// A small integer or bool tensor with known elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SymbolicInts {
    /// Element type: an integer type or bool.
    pub(super) dtype: DType,
    /// Sizes.
    pub(super) shape: Vec<usize>,
    /// Elements, row-major.
    pub(super) values: Vec<Dim>,
}

impl SymbolicInts {
    /// Creates an i64 vector with the given elements.
    pub(super) fn vector(values: Vec<Dim>) -> Self {
        Self { dtype: DType::I64, shape: vec![values.len()], values }
    }

    /// Creates a tensor of known integers from a constant array; `None` if the array holds floats.
    pub(super) fn from_array(array: &Array) -> Option<Self> {
        let values = array.ints().ok()?.iter().map(|v| Dim::known(*v)).collect();
        Some(Self { dtype: array.dtype, shape: array.shape.clone(), values })
    }

    /// Returns the elements as numbers; `None` if an element depends on a symbol.
    pub(super) fn known(&self) -> Option<Vec<i64>> {
        self.values.iter().map(Dim::as_known).collect()
    }

    /// Returns the tensor as a constant array; `None` if an element depends on a symbol.
    pub(super) fn to_array(&self) -> Option<Array> {
        Some(Array::int(self.dtype, &self.shape, self.known()?))
    }

    /// Returns the element of a tensor that has only one; `None` for other tensors.
    pub(super) fn scalar(&self) -> Option<&Dim> {
        match self.values.as_slice() {
            [value] => Some(value),
            _ => None,
        }
    }

    /// Adds the tensor to the graph: as a constant, or as sizes whose values are written at run time.
    pub(super) fn materialize(&self, b: &mut Builder<'_>) -> Result<NodeId, Refused> {
        if let Some(array) = self.to_array() {
            return Ok(b.add(Constant::from_array(&array), &[])?);
        }
        let op = ShapeValues { dtype: self.dtype, shape: self.shape.clone(), values: self.values.clone() };
        Ok(b.add(op, &[])?)
    }
}

/// Returns `f(x - y)` if its value is the same for all values of the symbols within their bounds, else `None`. The
/// value of `f` must depend only on the sign of its argument, as with comparisons.
pub(super) fn compare(x: &Dim, y: &Dim, bounds: &Bounds, f: impl Fn(i64) -> bool) -> Option<bool> {
    let (low, high) = x.sub(y).range(bounds);
    // The predicates change only at zero, so the ends and the neighborhood of zero decide.
    let probes = [low, high, (-1i64).clamp(low, high), 0i64.clamp(low, high), 1i64.clamp(low, high)];
    let first = f(low);
    probes.iter().all(|p| f(*p) == first).then_some(first)
}
