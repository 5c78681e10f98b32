//! Convolution of `x [N, C, spatial..]` with weights `[O, C / group, kernel..]` and an optional bias `[O]`.

use serde::{Deserialize, Serialize};

use super::check;
use super::window::{Attributes, Window, windows};
use crate::error::OpError;
use crate::ir::array::Array;
use crate::ir::dim::Bindings;
use crate::ir::op::{Fusion, Operation};
use crate::ir::tensor::TensorDesc;

/// Convolution of `x [N, C, spatial..]` with weights `[O, C / group, kernel..]` and an optional bias `[O]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conv {
    /// Per spatial axis.
    pub strides: Vec<usize>,
    /// Per spatial axis.
    pub dilations: Vec<usize>,
    /// Zeros before, per spatial axis.
    pub pads_begin: Vec<usize>,
    /// Zeros after, per spatial axis.
    pub pads_end: Vec<usize>,
    /// Number of independent channel groups.
    pub group: usize,
}

impl Conv {
    /// The window along each spatial axis; ranks and kernel extents are checked.
    fn windows(&self, x: &TensorDesc, w: &TensorDesc) -> Result<Vec<Window>, OpError> {
        if x.rank() < 3 || w.rank() != x.rank() {
            return Err(OpError::new(format!(
                "an input of rank three or more and filters of the same rank are needed, not {x} and {w}"
            )));
        }
        let kernel: Option<Vec<usize>> =
            w.shape[2..].iter().map(|d| usize::try_from(d.as_known()?).ok()).collect();
        let kernel = kernel.ok_or_else(|| OpError::new(format!("the kernel of {w} is not of known size")))?;
        let attributes = Attributes {
            kernel: &kernel,
            strides: &self.strides,
            dilations: &self.dilations,
            pads_begin: &self.pads_begin,
            pads_end: &self.pads_end,
        };
        windows(&attributes, x.rank() - 2)
    }
}

impl Operation for Conv {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let x = check::operands(inputs, 2..=3)?;
        let w = inputs[1];
        check::float(x, "the input")?;
        check::same_type(inputs)?;
        let windows = self.windows(x, w)?;
        let ([batch, channels, spatial @ ..], [filters, per_group, ..]) =
            (x.shape.as_slice(), w.shape.as_slice())
        else {
            return Err(OpError::new(format!("{x} and {w} are not an input and its filters")));
        };
        let group = check::small(self.group, "group")?;
        if group == 0 {
            return Err(OpError::new("group must not be 0"));
        }
        check::equal(channels, &per_group.scale(group), "channels of the input and of the filters")?;
        if filters.as_known().is_some_and(|o| o % group != 0) {
            return Err(OpError::new(format!("{filters} filters do not divide into {group} groups")));
        }
        if let Some(bias) = inputs.get(2) {
            check::vector(bias, filters, "the bias")?;
        }
        let mut shape = vec![batch.clone(), filters.clone()];
        for (d, window) in spatial.iter().zip(&windows) {
            shape.push(window.count(d, false)?);
        }
        Ok(TensorDesc::new(x.dtype, shape))
    }

    fn fusion(&self) -> Fusion {
        Fusion::Anchor
    }

    fn eval(&self, _inputs: &[&Array], _out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        Err(OpError::new("no reference yet"))
    }
}
