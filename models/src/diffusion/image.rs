//! Blocks of the UNet and the VAE that work on images `[batch, channels, height, width]`.

use driftc::error::Result;
use driftc::ir::builder::Builder;
use driftc::ir::dim::Dim;
use driftc::ir::graph::NodeId;
use driftc::ir::op::BinaryFn;
use driftc::ir::ops::resize::{Filter, NearestRound};

use crate::blocks::{ConvWindow, conv, group_norm, linear, resize, silu, size};
use crate::weights::Tensors;

/// Adds a residual block of two normalized convolutions. The time embedding, if given, is added between the convolutions.
/// `norm` has the number of groups and the epsilon of the norms.
pub(super) fn resnet(
    g: &mut Builder<'_>,
    w: &dyn Tensors,
    name: &str,
    x: NodeId,
    outputs: usize,
    time: Option<NodeId>,
    norm: (usize, f32),
) -> Result<NodeId> {
    let inputs = size(g, x, 1)?;
    let y = group_norm(g, w, &format!("{name}.norm1"), x, norm.0, norm.1)?;
    let y = silu(g, y)?;
    let mut y = conv(g, w, &format!("{name}.conv1"), y, outputs, ConvWindow::with_kernel(3))?;
    if let Some(time) = time {
        let (batch, width) = (size(g, time, 0)?, size(g, time, 1)?);
        let t = silu(g, time)?;
        let t = linear(g, w, &format!("{name}.time_emb_proj"), t, width, outputs)?;
        let one = Dim::known(1);
        let t = g.reshape(t, vec![batch.into(), outputs.into(), one.clone(), one])?;
        y = g.binary(BinaryFn::Add, y, t)?;
    }
    let y = group_norm(g, w, &format!("{name}.norm2"), y, norm.0, norm.1)?;
    let y = silu(g, y)?;
    let y = conv(g, w, &format!("{name}.conv2"), y, outputs, ConvWindow::with_kernel(3))?;
    let x = match inputs == outputs {
        true => x,
        false => conv(g, w, &format!("{name}.conv_shortcut"), x, outputs, ConvWindow::with_kernel(1))?,
    };
    g.binary(BinaryFn::Add, x, y)
}

/// Doubles the height and width of an image by a nearest-neighbor resize and a convolution.
pub(super) fn upsample(g: &mut Builder<'_>, w: &dyn Tensors, name: &str, x: NodeId) -> Result<NodeId> {
    let sides = [2 * size(g, x, 2)?, 2 * size(g, x, 3)?];
    resize_to(g, w, name, x, sides)
}

/// Changes the height and width of an image by a nearest-neighbor resize and a convolution.
pub(super) fn resize_to(
    g: &mut Builder<'_>,
    w: &dyn Tensors,
    name: &str,
    x: NodeId,
    sides: [usize; 2],
) -> Result<NodeId> {
    g.name = name.to_string();
    let channels = size(g, x, 1)?;
    let y = resize(g, x, sides, Filter::Nearest(NearestRound::Floor))?;
    conv(g, w, &format!("{name}.conv"), y, channels, ConvWindow::with_kernel(3))
}
