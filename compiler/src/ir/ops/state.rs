//! The contents of a state: device memory that survives a run, zero before the first run.
//!
//! The operator's value is the contents at the start of the run. A store of the graph sets the contents at the end of
//! the run ([`crate::ir::graph::Graph::add_store`]).

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::Array;
use crate::ir::dim::{Bindings, Dim};
use crate::ir::op::{Exactness, Facts, Fusion, LayoutClass, Operation, PrecisionClass};
use crate::ir::ops::check::exact_operands;
use crate::ir::tensor::{DType, TensorDesc};

/// The contents of a state. Functions of a bundle that name the same state share its memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Name of the state.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Shape.
    pub shape: Vec<usize>,
}

impl Operation for State {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let [] = exact_operands(inputs)?;
        Ok(TensorDesc::new(self.dtype, self.shape.iter().copied().map(Dim::from).collect()))
    }

    fn sizes_mut(&mut self) -> Vec<&mut Dim> {
        Vec::new()
    }

    fn fusion(&self) -> Fusion {
        Fusion::Opaque
    }

    fn facts(&self, _inputs: &[&TensorDesc]) -> Facts {
        Facts::new(LayoutClass::RowMajor, PrecisionClass::State, Exactness::Independent)
    }

    /// Returns zeros, the contents before the first run. An evaluation that keeps states uses their contents instead.
    fn eval(&self, _inputs: &[&Array], out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        Ok(Array::zeros(self.dtype, out))
    }
}

#[cfg(test)]
mod tests {
    use super::State;
    use crate::ir::op::Operation;
    use crate::ir::tensor::{DType, TensorDesc};

    #[test]
    fn has_its_declared_type() {
        let state = State { name: "keys".into(), dtype: DType::F16, shape: vec![1, 8] };
        assert_eq!(state.infer(&[]).unwrap().to_string(), "f16[1, 8]");
        assert!(state.infer(&[&TensorDesc::from_sizes(DType::F32, &[])]).is_err());
    }
}
