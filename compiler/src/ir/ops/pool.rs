//! Windows over the spatial axes of `x [N, C, spatial..]`.

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::Array;
use crate::ir::dim::Bindings;
use crate::ir::op::{Fusion, Operation};
use crate::ir::tensor::TensorDesc;

/// How a window combines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PoolKind {
    /// Largest element; padding never wins.
    Max,
    /// Flat index (within the whole input tensor, as i64) of the largest element, spatial axes row-major or column-major.
    MaxIndex {
        /// Whether the first spatial axis is fastest.
        column_major: bool,
    },
    /// Mean; the divisor counts padding when asked.
    Average {
        /// Whether padding counts.
        count_include_pad: bool,
    },
    /// `(sum |x|^p)^(1/p)`.
    Lp {
        /// The exponent.
        p: u32,
    },
}

/// Windows over the spatial axes of `x [N, C, spatial..]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// How a window combines.
    pub kind: PoolKind,
    /// Window extents.
    pub kernel: Vec<usize>,
    /// Per spatial axis.
    pub strides: Vec<usize>,
    /// Per spatial axis.
    pub dilations: Vec<usize>,
    /// Per spatial axis.
    pub pads_begin: Vec<usize>,
    /// Per spatial axis.
    pub pads_end: Vec<usize>,
    /// Whether output extents round up; a window that would start in the end padding is dropped.
    pub ceil: bool,
}

impl Operation for Pool {
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
