//! The contents of a state: memory of the device that is kept between runs, and zero before the first.
//!
//! The value is what the state held when the run began. What it holds afterwards is said by a store of the graph
//! ([`crate::ir::graph::Graph::add_store`]).

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::Array;
use crate::ir::dim::{Bindings, Dim};
use crate::ir::op::{Fusion, Operation};
use crate::ir::ops::check::exactly;
use crate::ir::tensor::{DType, TensorDesc};

/// The contents of a state. Functions of a bundle share states of one name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Name of the state.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Sizes, which are known.
    pub shape: Vec<usize>,
}

impl Operation for State {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let [] = exactly(inputs)?;
        Ok(TensorDesc::new(self.dtype, self.shape.iter().copied().map(Dim::from).collect()))
    }

    fn fusion(&self) -> Fusion {
        Fusion::Opaque
    }

    /// Zeros: a run that carries states puts their contents in the place of this.
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
        assert!(state.infer(&[&TensorDesc::of(DType::F32, &[])]).is_err());
    }
}
