//! Elements added before and after, per axis.

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::Array;
use crate::ir::dim::Bindings;
use crate::ir::op::{Fusion, Operation};
use crate::ir::tensor::TensorDesc;

/// Where added elements come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PadMode {
    /// A constant.
    Constant,
    /// Mirrored without repeating the edge.
    Reflect,
    /// The edge repeated.
    Edge,
    /// The other end.
    Wrap,
}

/// Elements added before and after, per axis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pad {
    /// Where added elements come from.
    pub mode: PadMode,
    /// Per axis.
    pub before: Vec<usize>,
    /// Per axis.
    pub after: Vec<usize>,
    /// The added value in constant mode.
    pub value: f64,
}

impl Operation for Pad {
    fn infer(&self, _inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        Err(OpError::new("no shape rule yet"))
    }

    fn fusion(&self) -> Fusion {
        Fusion::Injective
    }

    fn eval(&self, _inputs: &[&Array], _out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        Err(OpError::new("no reference yet"))
    }
}
