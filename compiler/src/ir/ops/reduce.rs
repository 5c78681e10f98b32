//! Combines the elements along axes.

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::Array;
use crate::ir::dim::Bindings;
use crate::ir::op::{Fusion, Operation};
use crate::ir::tensor::TensorDesc;

/// How elements combine, by ONNX's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the names are ONNX's operators")]
pub enum ReduceKind {
    Sum,
    Mean,
    Max,
    Min,
    Prod,
    L1,
    L2,
    LogSum,
    LogSumExp,
    SumSquare,
}

/// Combines the elements along axes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reduce {
    /// How elements combine.
    pub kind: ReduceKind,
    /// Sorted, distinct axes; empty leaves the tensor as it is.
    pub axes: Vec<usize>,
    /// Whether reduced axes stay with size 1.
    pub keepdims: bool,
}

impl Operation for Reduce {
    fn infer(&self, _inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        Err(OpError::new("no shape rule yet"))
    }

    fn fusion(&self) -> Fusion {
        Fusion::Reduce
    }

    fn eval(&self, _inputs: &[&Array], _out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        Err(OpError::new("no reference yet"))
    }
}
