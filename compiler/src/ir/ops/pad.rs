//! Elements added before and after, per axis.

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::Array;
use crate::ir::dim::{Bindings, Dim};
use crate::ir::op::{Fusion, Operation};
use crate::ir::ops::check::exactly;
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
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let [x] = exactly(inputs)?;
        if self.before.len() != x.rank() || self.after.len() != x.rank() {
            return Err(OpError::new(format!("a pad before and one after are needed per axis of {x}")));
        }
        let mut shape = Vec::with_capacity(x.rank());
        for ((dim, before), after) in x.shape.iter().zip(&self.before).zip(&self.after) {
            let added = Dim::from(*before).add(&Dim::from(*after));
            if self.mode != PadMode::Constant && dim.is(0) && !added.is(0) {
                return Err(OpError::new(format!("{x} has no element to pad with")));
            }
            shape.push(dim.add(&added));
        }
        Ok(TensorDesc::new(x.dtype, shape))
    }

    fn fusion(&self) -> Fusion {
        Fusion::Injective
    }

    fn eval(&self, _inputs: &[&Array], _out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        Err(OpError::new("no reference yet"))
    }
}
