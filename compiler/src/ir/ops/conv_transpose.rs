//! Transposed convolution of `x [N, C, spatial..]` with weights `[C, O / group, kernel..]` and an optional bias `[O]`.
//!
//! Output extent: `(in - 1) * stride + dilation * (kernel - 1) + 1 + output_padding - pads_begin - pads_end`.

use serde::{Deserialize, Serialize};

use super::check;
use super::window::{Attributes, Window, windows};
use crate::error::OpError;
use crate::ir::array::Array;
use crate::ir::dim::Bindings;
use crate::ir::op::{Fusion, Operation};
use crate::ir::tensor::TensorDesc;

/// Transposed convolution of `x [N, C, spatial..]` with weights `[C, O / group, kernel..]` and an optional bias `[O]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConvTranspose {
    /// Per spatial axis.
    pub strides: Vec<usize>,
    /// Per spatial axis.
    pub dilations: Vec<usize>,
    /// Cropped before, per spatial axis.
    pub pads_begin: Vec<usize>,
    /// Cropped after, per spatial axis.
    pub pads_end: Vec<usize>,
    /// Extra extent at the end, per spatial axis.
    pub output_padding: Vec<usize>,
    /// Number of independent channel groups.
    pub group: usize,
}

impl ConvTranspose {
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
        let spatial = x.rank() - 2;
        if self.output_padding.len() != spatial {
            return Err(OpError::new(format!(
                "output_padding has {} values for {spatial} spatial axes",
                self.output_padding.len()
            )));
        }
        let attributes = Attributes {
            kernel: &kernel,
            strides: &self.strides,
            dilations: &self.dilations,
            pads_begin: &self.pads_begin,
            pads_end: &self.pads_end,
        };
        windows(&attributes, spatial)
    }
}

impl Operation for ConvTranspose {
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
        let channels = check::equal(channels, filters, "channels of the input and of the filters")?;
        if channels.as_known().is_some_and(|c| c % group != 0) {
            return Err(OpError::new(format!("{channels} channels do not divide into {group} groups")));
        }
        let outputs = per_group.scale(group);
        if let Some(bias) = inputs.get(2) {
            check::vector(bias, &outputs, "the bias")?;
        }
        let mut shape = vec![batch.clone(), outputs];
        for ((d, window), extra) in spatial.iter().zip(&windows).zip(&self.output_padding) {
            let extra = check::small(*extra, "output padding")?;
            let rest = window.extent() + extra - window.begin - window.end;
            let size = d.plus(-1).scale(window.stride).plus(rest);
            if size.as_known().is_some_and(|n| n <= 0) {
                return Err(OpError::new(format!("the padding crops the whole output of {x}")));
            }
            shape.push(size);
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
