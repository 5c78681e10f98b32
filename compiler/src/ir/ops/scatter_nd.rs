//! A copy of the first operand with slices replaced or combined at index tuples. Operands: tensor, index tuples,
//! updates.

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::{Array, count};
use crate::ir::dim::{Bindings, Dim};
use crate::ir::op::{Combine, Exactness, Facts, Fusion, LayoutClass, Operation, PrecisionClass};
use crate::ir::ops::check::{self, exact_operands};
use crate::ir::ops::gather_nd::{starts, tuple_length};
use crate::ir::ops::scatter_elements::{check_updates, scatter};
use crate::ir::tensor::TensorDesc;

/// A copy of the first operand with slices replaced or combined at index tuples. Operands: tensor, index tuples,
/// updates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScatterNd {
    /// Function that combines an update with the existing element.
    pub combine: Combine,
}

impl Operation for ScatterNd {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let [x, indices, updates] = exact_operands(inputs)?;
        check::indices(indices)?;
        let tuple = tuple_length(indices, x.rank())?;
        let mut shape = indices.shape.clone();
        shape.pop();
        shape.extend(x.shape.iter().skip(tuple).cloned());
        check_updates(self.combine, x, updates, &shape)?;
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
        let tuple = indices.shape.last().copied().unwrap_or(1);
        let starts = starts(&x.shape, indices, 0)?;
        scatter(self.combine, x, &starts, count(&x.shape[tuple..]), updates)
    }
}

#[cfg(test)]
mod tests {
    use super::ScatterNd;
    use crate::ir::array::Array;
    use crate::ir::dim::Bindings;
    use crate::ir::op::{Combine, Operation};
    use crate::ir::ops::check::run;
    use crate::ir::tensor::{DType, TensorDesc};

    #[test]
    fn updates_slices() {
        let x = Array::int(DType::I8, &[2, 2], vec![1, 2, 3, 100]);
        let at = Array::int(DType::I64, &[2, 1], vec![1, -1]);
        let updates = Array::int(DType::I8, &[2, 2], vec![5, 20, 7, 20]);
        let with = |combine| {
            run(&ScatterNd { combine }, &[&x, &at, &updates], &Bindings::new())
                .unwrap()
                .ints()
                .unwrap()
                .to_vec()
        };
        assert_eq!(with(Combine::Replace), [1, 2, 7, 20]);
        assert_eq!(with(Combine::Add), [1, 2, 15, -116]);
        let one = Array::int(DType::I64, &[2], vec![0, 1]);
        let y = run(
            &ScatterNd { combine: Combine::Replace },
            &[&x, &one, &Array::int(DType::I8, &[], vec![9])],
            &Bindings::new(),
        );
        assert_eq!(y.unwrap().ints().unwrap(), [1, 9, 3, 100]);
    }

    #[test]
    fn refuses() {
        let x = TensorDesc::from_sizes(DType::F32, &[2, 2]);
        let op = ScatterNd { combine: Combine::Replace };
        let at = TensorDesc::from_sizes(DType::I64, &[1, 1]);
        assert!(op.infer(&[&x, &at, &TensorDesc::from_sizes(DType::F32, &[1, 2])]).is_ok());
        assert!(op.infer(&[&x, &at, &TensorDesc::from_sizes(DType::F32, &[1])]).is_err());
        assert!(op.infer(&[&x, &x, &x]).is_err());
        assert!(op.infer(&[&x, &TensorDesc::from_sizes(DType::I64, &[1, 3]), &x]).is_err());
    }
}
