//! Combines the elements along axes.

use serde::{Deserialize, Serialize};

use super::check;
use crate::error::OpError;
use crate::ir::array::Array;
use crate::ir::dim::{Bindings, Dim};
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
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let x = check::operands(inputs, 1..=1)?;
        if !matches!(self.kind, ReduceKind::Max | ReduceKind::Min) {
            check::numeric(x, "the input")?;
        }
        if self.axes.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err(OpError::new(format!("axes {:?} are not sorted and distinct", self.axes)));
        }
        for axis in &self.axes {
            check::axis(x, *axis)?;
        }
        let mut shape = Vec::with_capacity(x.rank());
        for (i, d) in x.shape.iter().enumerate() {
            if !self.axes.contains(&i) {
                shape.push(d.clone());
            } else if self.keepdims {
                shape.push(Dim::known(1));
            }
        }
        Ok(TensorDesc::new(x.dtype, shape))
    }

    fn fusion(&self) -> Fusion {
        Fusion::Reduce
    }

    fn eval(&self, _inputs: &[&Array], _out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        Err(OpError::new("no reference yet"))
    }
}
