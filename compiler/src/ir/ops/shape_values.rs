//! A small integer tensor whose elements are symbolic dimensions. The operator has no operands.

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::{Array, count};
use crate::ir::dim::{Bindings, Dim};
use crate::ir::op::{Exactness, Facts, Fusion, LayoutClass, Operation, PrecisionClass};
use crate::ir::ops::check::{self, exact_operands};
use crate::ir::tensor::{DType, TensorDesc};

/// A small integer tensor whose elements are symbolic dimensions. The operator has no operands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShapeValues {
    /// An integer type.
    pub dtype: DType,
    /// Shape of the tensor whose elements are the values of symbolic dimensions.
    pub shape: Vec<usize>,
    /// Elements, row-major.
    pub values: Vec<Dim>,
}

impl Operation for ShapeValues {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let [] = exact_operands(inputs)?;
        if !self.dtype.is_integer() {
            return Err(OpError::new(format!(
                "a tensor of sizes must have an integer type, not {}",
                self.dtype.name()
            )));
        }
        if count(&self.shape) != self.values.len() {
            let n = self.values.len();
            return Err(OpError::new(format!("{n} values do not fill the shape {:?}", self.shape)));
        }
        Ok(TensorDesc::from_sizes(self.dtype, &self.shape))
    }

    fn sizes_mut(&mut self) -> Vec<&mut Dim> {
        self.values.iter_mut().collect()
    }

    fn fusion(&self) -> Fusion {
        Fusion::Injective
    }

    fn facts(&self, _inputs: &[&TensorDesc]) -> Facts {
        Facts::new(LayoutClass::RowMajor, PrecisionClass::Other, Exactness::Independent)
    }

    fn eval(&self, inputs: &[&Array], out: &[usize], symbols: &Bindings) -> Result<Array, OpError> {
        check::check_arrays(self, inputs, out)?;
        let values: Result<Vec<i64>, OpError> =
            self.values.iter().map(|v| check::eval_dim(v, symbols)).collect();
        Ok(Array::int(self.dtype, out, values?))
    }
}

#[cfg(test)]
mod tests {
    use super::ShapeValues;
    use crate::ir::dim::{Bindings, Dim};
    use crate::ir::op::Operation;
    use crate::ir::ops::check::run;
    use crate::ir::tensor::DType;

    #[test]
    fn sizes_become_elements() {
        let n = Dim::symbol("n");
        let mut op =
            ShapeValues { dtype: DType::I64, shape: vec![2], values: vec![n.plus(1), 3usize.into()] };
        let y = run(&op, &[], &Bindings::from([("n".into(), 4)])).unwrap();
        assert_eq!(y.ints().unwrap(), [5, 3]);
        assert!(run(&op, &[], &Bindings::new()).is_err());
        op.shape = vec![3];
        assert!(op.infer(&[]).is_err());
        op.shape = vec![usize::MAX, usize::MAX];
        assert!(op.infer(&[]).is_err());
        assert!(ShapeValues { dtype: DType::F32, shape: vec![], values: vec![n] }.infer(&[]).is_err());
    }
}
