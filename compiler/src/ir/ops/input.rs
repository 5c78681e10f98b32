//! A graph input.

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::Array;
use crate::ir::dim::{Bindings, Dim};
use crate::ir::op::{Exactness, Facts, Fusion, LayoutClass, Operation, PrecisionClass};
use crate::ir::ops::check::exact_operands;
use crate::ir::tensor::{DType, TensorDesc};

/// A graph input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// Name of the input in the model.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Shape of the input; symbols get values when the bundle runs.
    pub shape: Vec<Dim>,
}

impl Operation for Input {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let [] = exact_operands(inputs)?;
        Ok(TensorDesc::new(self.dtype, self.shape.clone()))
    }

    fn sizes_mut(&mut self) -> Vec<&mut Dim> {
        self.shape.iter_mut().collect()
    }

    fn fusion(&self) -> Fusion {
        Fusion::Opaque
    }

    fn facts(&self, _inputs: &[&TensorDesc]) -> Facts {
        Facts::new(LayoutClass::RowMajor, PrecisionClass::Input, Exactness::Independent)
    }

    fn eval(&self, _inputs: &[&Array], _out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        Err(OpError::new(format!("the caller must provide the value of input `{}`", self.name)))
    }
}

#[cfg(test)]
mod tests {
    use super::Input;
    use crate::ir::dim::Dim;
    use crate::ir::op::Operation;
    use crate::ir::tensor::{DType, TensorDesc};

    #[test]
    fn has_its_declared_type() {
        let input =
            Input { name: "x".into(), dtype: DType::U8, shape: vec![Dim::symbol("n"), 2usize.into()] };
        assert_eq!(input.infer(&[]).unwrap().to_string(), "u8[n, 2]");
        assert!(input.infer(&[&TensorDesc::from_sizes(DType::F32, &[])]).is_err());
    }
}
