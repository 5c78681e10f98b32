//! Windows over the spatial axes of `x [N, C, spatial..]`.

use serde::{Deserialize, Serialize};

use super::check;
use super::window::{Attributes, Window, windows};
use crate::error::OpError;
use crate::ir::array::Array;
use crate::ir::dim::Bindings;
use crate::ir::op::{Fusion, Operation};
use crate::ir::tensor::{DType, TensorDesc};

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

impl Pool {
    /// The window along each spatial axis.
    fn windows(&self, spatial: usize) -> Result<Vec<Window>, OpError> {
        if spatial == 0 {
            return Err(OpError::new("an input of rank three or more is needed"));
        }
        let attributes = Attributes {
            kernel: &self.kernel,
            strides: &self.strides,
            dilations: &self.dilations,
            pads_begin: &self.pads_begin,
            pads_end: &self.pads_end,
        };
        windows(&attributes, spatial)
    }
}

impl Operation for Pool {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let x = check::operands(inputs, 1..=1)?;
        match self.kind {
            PoolKind::Max | PoolKind::MaxIndex { .. } => check::numeric(x, "the input")?,
            PoolKind::Average { .. } => check::float(x, "the input")?,
            PoolKind::Lp { p: 0 } => return Err(OpError::new("the exponent p must not be 0")),
            PoolKind::Lp { .. } => check::float(x, "the input")?,
        }
        let [batch, channels, spatial @ ..] = x.shape.as_slice() else {
            return Err(OpError::new(format!("an input of rank three or more is needed, not {x}")));
        };
        let windows = self.windows(spatial.len())?;
        let mut shape = vec![batch.clone(), channels.clone()];
        for (d, window) in spatial.iter().zip(&windows) {
            shape.push(window.count(d, self.ceil)?);
        }
        let dtype = if matches!(self.kind, PoolKind::MaxIndex { .. }) { DType::I64 } else { x.dtype };
        Ok(TensorDesc::new(dtype, shape))
    }

    fn fusion(&self) -> Fusion {
        Fusion::Reduce
    }

    fn eval(&self, _inputs: &[&Array], _out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        Err(OpError::new("no reference yet"))
    }
}
