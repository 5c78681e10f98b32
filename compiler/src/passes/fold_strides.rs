//! Rewrites a strided 1-D convolution of one channel as a convolution of stride 1 with `stride` channels.
//!
//! ```text
//! %1 = conv {"strides": [s]} %0[n, 1, l] %w[o, 1, k]
//!   ->
//! %1 = reshape %0 to [n, t, s], transpose to [n, s, t]
//! %2 = conv {"strides": [1]} %1 %w'[o, s, k / s]
//! ```
//!
//! Kernels read channels as vec4, so a single channel wastes three of four lanes. Audio transforms and speech encoders
//! cut a signal into frames with such convolutions. Filters are padded with zeros to a multiple of the stride, and the
//! end of the input is padded by the number of added taps. Filters must be constant, because their elements are
//! rearranged.

use super::matching::{name, plain, rewrite};
use super::{Changes, Context};
use crate::error::Result;
use crate::ir::dim::Dim;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{Op, Pad, Reshape, Slice, Transpose};
use crate::ir::ops::pad::PadMode;

/// Rewrites strided 1-D convolutions of one channel as convolutions of stride 1 with more channels.
pub fn run(graph: &mut Graph, _context: &Context<'_>) -> Result<Changes> {
    rewrite(graph, &[("stride folded into channels", fold)])
}

fn fold(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let Some((Op::Conv(conv), operands)) = plain(graph, id) else { return Ok(None) };
    let ([stride], [1], [begin], [end], 1) = (
        conv.strides.as_slice(),
        conv.dilations.as_slice(),
        conv.pads_begin.as_slice(),
        conv.pads_end.as_slice(),
        conv.group,
    ) else {
        return Ok(None);
    };
    let (mut conv, [stride, begin, end]) = (conv.clone(), [stride, begin, end].map(|n| Dim::from(*n)));
    let [x, w, bias @ ..] = operands.as_slice() else { return Ok(None) };
    let (Some(s), [batch, channels, length], [filters, _, kernel], [_, _, count]) = (
        stride.as_known().filter(|s| *s > 1),
        graph.tensor(*x).shape.as_slice(),
        graph.tensor(*w).shape.as_slice(),
        graph.tensor(id).shape.as_slice(),
    ) else {
        return Ok(None);
    };
    let Some(k) = kernel.as_known().filter(|_| channels.is(1) && graph.constant(*w).is_some()) else {
        return Ok(None);
    };
    let (batch, length, filters, count) = (batch.clone(), length.clone(), filters.clone(), count.clone());
    let (taps, label, one) = (Dim::known(k).ceil_div(s), name(graph, id), Dim::known(1));
    let missing = taps.scale(s).plus(-k);
    let blocks = count.add(&taps).plus(-1);

    let mut rows = *x;
    let after = end.add(&missing);
    if !begin.is(0) || !after.is(0) {
        rows = padded(graph, rows, begin.clone(), after.clone(), &label)?;
    }
    let whole = blocks.scale(s);
    if whole != length.add(&begin).add(&after) {
        let sizes = vec![batch.clone(), one.clone(), whole];
        rows =
            graph.add(Slice { starts: vec![Dim::known(0); 3], steps: vec![1; 3], sizes }, &[rows], &label)?;
    }
    let rows = swapped(graph, rows, &[batch, blocks, stride.clone()], &label)?;
    let mut w = *w;
    if !missing.is(0) {
        w = padded(graph, w, Dim::known(0), missing, &label)?;
    }
    let w = swapped(graph, w, &[filters, taps, stride], &label)?;
    conv.strides = vec![1];
    conv.pads_begin = vec![0];
    conv.pads_end = vec![0];
    let operands: Vec<NodeId> = [rows, w].into_iter().chain(bias.iter().copied()).collect();
    graph.add(conv, &operands, &label).map(Some)
}

/// Adds a node that pads the last of three axes with zeros.
fn padded(graph: &mut Graph, x: NodeId, before: Dim, after: Dim, label: &str) -> Result<NodeId> {
    let around = |n: Dim| vec![Dim::known(0), Dim::known(0), n];
    let pad = Pad { mode: PadMode::Constant, before: around(before), after: around(after), value: 0.0 };
    graph.add(pad, &[x], label)
}

/// Adds a reshape to `shape`, and a transpose of the last two of three axes.
fn swapped(graph: &mut Graph, x: NodeId, shape: &[Dim; 3], label: &str) -> Result<NodeId> {
    let x = graph.add(Reshape { shape: shape.to_vec() }, &[x], label)?;
    graph.add(Transpose { perm: vec![0, 2, 1] }, &[x], label)
}
