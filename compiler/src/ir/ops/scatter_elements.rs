//! A copy of the first operand with elements replaced or combined at indices along an axis. Operands: tensor, indices,
//! updates.

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::{Array, Data, round_floats};
use crate::ir::dim::{Bindings, Dim};
use crate::ir::element::{BinaryFn, eval_binary, eval_binary_int};
use crate::ir::op::{Combine, Exactness, Facts, Fusion, LayoutClass, Operation, PrecisionClass};
use crate::ir::ops::check::{self, exact_operands};
use crate::ir::ops::gather_elements::{check_inside, offsets};
use crate::ir::tensor::{DType, TensorDesc};

/// A copy of the first operand with elements replaced or combined at indices along an axis. Operands: tensor, indices,
/// updates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScatterElements {
    /// The axis.
    pub axis: usize,
    /// Function that combines an update with the existing element.
    pub combine: Combine,
}

impl Operation for ScatterElements {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let [x, indices, updates] = exact_operands(inputs)?;
        check::indices(indices)?;
        check_inside(x, indices, self.axis)?;
        check_updates(self.combine, x, updates, &indices.shape)?;
        Ok(TensorDesc::new(x.dtype, x.shape.clone()))
    }

    fn sizes_mut(&mut self) -> Vec<&mut Dim> {
        Vec::new()
    }

    fn fusion(&self) -> Fusion {
        Fusion::Opaque
    }

    fn facts(&self, _inputs: &[&TensorDesc]) -> Facts {
        Facts::new(LayoutClass::RowMajor, PrecisionClass::Other, Exactness::Independent)
    }

    fn eval(&self, inputs: &[&Array], out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        check::check_arrays(self, inputs, out)?;
        let [x, indices, updates] = inputs else { return Err(OpError::new("expected three operands")) };
        let offsets = offsets(&x.shape, indices, self.axis)?;
        scatter(self.combine, x, &offsets, 1, updates)
    }
}

/// Checks that a scatter's updates have the tensor's type and the given shape, and that the type can be combined.
pub(super) fn check_updates(
    combine: Combine,
    x: &TensorDesc,
    updates: &TensorDesc,
    shape: &[Dim],
) -> Result<(), OpError> {
    let same = shape.len() == updates.rank()
        && shape.iter().zip(&updates.shape).all(|(a, b)| check::equal_sizes(a, b, "sizes").is_ok());
    if check::same_type(&[x, updates]).is_err() || !same {
        let needed = TensorDesc::new(x.dtype, shape.to_vec());
        return Err(OpError::new(format!("the updates of a scatter must be {needed}, not {updates}")));
    }
    if combine != Combine::Replace && x.dtype == DType::Bool {
        return Err(OpError::new("updates of type bool can only replace elements"));
    }
    Ok(())
}

/// Returns a copy of a tensor into which a scatter's updates are combined. For each offset in `starts`, in order, the
/// next `length` updates are combined with the elements from that offset on.
pub(super) fn scatter(
    combine: Combine,
    x: &Array,
    starts: &[usize],
    length: usize,
    updates: &Array,
) -> Result<Array, OpError> {
    fn go<T: Copy>(into: &mut [T], starts: &[usize], length: usize, updates: &[T], f: impl Fn(T, T) -> T) {
        for (start, run) in starts.iter().zip(updates.chunks_exact(length)) {
            for (to, update) in into.iter_mut().skip(*start).zip(run) {
                *to = f(*to, *update);
            }
        }
    }
    let mut result = x.clone();
    if length == 0 {
        return Ok(result);
    }
    let f = match combine {
        Combine::Replace => None,
        Combine::Add => Some(BinaryFn::Add),
        Combine::Mul => Some(BinaryFn::Mul),
        Combine::Max => Some(BinaryFn::Max),
        Combine::Min => Some(BinaryFn::Min),
    };
    match &mut result.data {
        Data::Float(into) => {
            let merge = |a, b| f.map_or(b, |f| eval_binary(f, a, b));
            go(into, starts, length, updates.floats()?, merge);
            round_floats(x.dtype, into);
        }
        Data::Int(into) => {
            let merge = |a, b| f.map_or(b, |f| eval_binary_int(f, x.dtype, a, b));
            go(into, starts, length, updates.ints()?, merge);
        }
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::ScatterElements;
    use crate::ir::array::Array;
    use crate::ir::dim::Bindings;
    use crate::ir::op::{Combine, Operation};
    use crate::ir::ops::check::run;
    use crate::ir::tensor::{DType, TensorDesc};

    #[test]
    fn updates_in_order() {
        let x = Array::f32(&[1, 4], vec![1.0, 2.0, 3.0, 4.0]);
        let at = Array::int(DType::I64, &[1, 3], vec![1, -1, 1]);
        let updates = Array::f32(&[1, 3], vec![5.0, 0.5, 6.0]);
        for (combine, expected) in [
            (Combine::Replace, [1.0, 6.0, 3.0, 0.5]),
            (Combine::Add, [1.0, 13.0, 3.0, 4.5]),
            (Combine::Mul, [1.0, 60.0, 3.0, 2.0]),
            (Combine::Max, [1.0, 6.0, 3.0, 4.0]),
            (Combine::Min, [1.0, 2.0, 3.0, 0.5]),
        ] {
            let y = run(&ScatterElements { axis: 1, combine }, &[&x, &at, &updates], &Bindings::new());
            assert_eq!(y.unwrap().floats().unwrap(), expected, "{combine:?}");
        }
        let bad = Array::int(DType::I64, &[1, 3], vec![1, 4, 1]);
        let op = ScatterElements { axis: 1, combine: Combine::Replace };
        assert!(run(&op, &[&x, &bad, &updates], &Bindings::new()).is_err());
    }

    #[test]
    fn refuses() {
        let x = TensorDesc::from_sizes(DType::F32, &[2]);
        let at = TensorDesc::from_sizes(DType::I64, &[1]);
        let op = |combine| ScatterElements { axis: 0, combine };
        assert!(op(Combine::Add).infer(&[&x, &at, &TensorDesc::from_sizes(DType::F32, &[2])]).is_err());
        assert!(op(Combine::Add).infer(&[&x, &at, &TensorDesc::from_sizes(DType::I64, &[1])]).is_err());
        let flags = TensorDesc::from_sizes(DType::Bool, &[1]);
        assert!(op(Combine::Add).infer(&[&flags, &at, &flags]).is_err());
        assert!(op(Combine::Replace).infer(&[&flags, &at, &flags]).is_ok());
    }
}
