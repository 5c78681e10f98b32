//! Folds constant scales and shifts into the weights and bias of convolutions and matmuls.
//!
//! ```text
//! %1 = conv %0 %w                            %1 = conv %0 %w' %b
//! %2 = binary mul %1 %s   (s: [64, 1, 1])
//! %3 = binary add %2 %b   (b: [64, 1, 1])  ->
//! ```
//!
//! A batch normalization becomes such a scale and shift. So does any other scale per channel or per tensor. After a
//! convolution or transposed convolution, scale and shift are folded. Before a convolution with padding, only the scale
//! is folded, because padded zeros are not shifted. A matmul has no bias: its shifts stay an epilogue. Weights with
//! another user are not folded, because they would be stored twice. Quantized filters are scaled before they are quantized.

use super::matching::{
    add_floats, affine, binary, floats, name, plain, rewrite, same_type_and_shape, single_use, splat,
};
use super::{Changes, Context};
use crate::error::Result;
use crate::ir::array::count;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{BinaryFn, Conv, Op};

/// Folds constant scales and shifts into the weights and bias of convolutions and matmuls.
pub fn run(graph: &mut Graph, _context: &Context<'_>) -> Result<Changes> {
    rewrite(
        graph,
        &[
            ("scale or shift folded into the convolution or matmul that computes its operand", fold_after),
            ("scale or shift of the input folded into the weights or bias", fold_before),
        ],
    )
}

/// A function `x * scale + shift` whose scale and shift are vectors along one axis, with one element per channel.
pub(super) struct ChannelMap {
    pub(super) x: NodeId,
    pub(super) scale: Option<Vec<f32>>,
    pub(super) shift: Option<Vec<f32>>,
}

/// Returns the scale and shift that a node applies along an axis, if the node's constants vary along this axis only.
pub(super) fn channel_map(graph: &Graph, id: NodeId, axis_from_end: usize) -> Option<ChannelMap> {
    let shape = &graph.tensor(id).shape;
    let channels = usize::try_from(shape.get(shape.len().checked_sub(axis_from_end)?)?.as_known()?).ok()?;
    if let Some((scale, shift, x)) = affine(graph, id) {
        return Some(ChannelMap {
            x,
            scale: (scale != 1.0).then(|| vec![scale; channels]),
            shift: (shift != 0.0).then(|| vec![shift; channels]),
        });
    }
    let (f, a, b) = binary(graph, id)?;
    let vector = |c: NodeId| per_channel(graph, c, axis_from_end, channels);
    let negated = |v: Vec<f32>| v.into_iter().map(|x| -x).collect::<Vec<f32>>();
    let constant_first = graph.constant(a).is_some();
    let (x, c) = if constant_first { (b, a) } else { (a, b) };
    let (scale, shift) = match f {
        BinaryFn::Mul => (Some(vector(c)?), None),
        BinaryFn::Add => (None, Some(vector(c)?)),
        BinaryFn::Sub if constant_first => (Some(vec![-1.0; channels]), Some(vector(c)?)),
        BinaryFn::Sub => (None, Some(negated(vector(c)?))),
        BinaryFn::Div if !constant_first => (Some(vector(c)?.into_iter().map(|x| 1.0 / x).collect()), None),
        _ => return None,
    };
    let finite = scale.iter().chain(&shift).flatten().all(|v| v.is_finite());
    (same_type_and_shape(graph, x, id) && finite).then_some(ChannelMap { x, scale, shift })
}

/// Returns the elements of a constant that varies along one axis only. The axis counts from the end; 1 is the last.
fn per_channel(graph: &Graph, id: NodeId, axis_from_end: usize, channels: usize) -> Option<Vec<f32>> {
    if !graph.tensor(id).dtype.is_float() {
        return None;
    }
    if let Some(value) = splat(graph, id) {
        return Some(vec![value as f32; channels]);
    }
    let shape = &graph.constant(id)?.shape;
    let along = shape.len().checked_sub(axis_from_end).and_then(|i| shape.get(i)).copied()?;
    if along != channels || count(shape) != channels {
        return None;
    }
    floats(graph, id).map(|(_, values)| values)
}

/// Folds the scale and shift after a convolution, or the scale after a matmul.
fn fold_after(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let axis = |op: &Op, rank: usize| match op {
        Op::Conv(_) | Op::ConvTranspose(_) => rank.checked_sub(1),
        Op::MatMul(_) => Some(1),
        _ => None,
    };
    let rank = graph.tensor(id).rank();
    for candidate in graph.operands(id) {
        let Some((op, operands)) = plain(graph, candidate) else { continue };
        let Some(axis_from_end) = axis(op, rank) else { continue };
        if !single_use(graph, candidate) {
            continue;
        }
        let op = op.clone();
        let Some(map) = channel_map(graph, id, axis_from_end).filter(|m| m.x == candidate) else { continue };
        let Some(weights) = operands.get(1).copied() else { continue };
        let mut folded = operands.clone();
        if let Some(scale) = &map.scale {
            let Some(scaled) = scale_results(graph, &op, weights, scale)? else { continue };
            folded[1] = scaled;
        }
        if !matches!(op, Op::MatMul(_)) && (map.shift.is_some() || folded.len() > 2) {
            let Some(bias) = bias(graph, operands.get(2).copied(), &map, weights)? else { continue };
            folded.truncate(2);
            folded.push(bias);
        } else if map.shift.is_some() {
            continue;
        }
        return graph.add(op, &folded, &name(graph, candidate)).map(Some);
    }
    Ok(None)
}

/// Adds the new bias constant of a convolution whose result is scaled and shifted.
fn bias(graph: &mut Graph, old: Option<NodeId>, map: &ChannelMap, like: NodeId) -> Result<Option<NodeId>> {
    let length = map.scale.as_ref().or(map.shift.as_ref()).map_or(0, Vec::len);
    let mut values = match old {
        Some(old) => match floats(graph, old) {
            Some((_, values)) if values.len() == length => values,
            _ => return Ok(None),
        },
        None => vec![0.0; length],
    };
    for (i, v) in values.iter_mut().enumerate() {
        let scale = map.scale.as_ref().and_then(|s| s.get(i)).copied().unwrap_or(1.0);
        let shift = map.shift.as_ref().and_then(|s| s.get(i)).copied().unwrap_or(0.0);
        *v = *v * scale + shift;
    }
    let dtype = graph.tensor(old.unwrap_or(like)).dtype;
    let name = name(graph, old.unwrap_or(like));
    add_floats(graph, dtype, &[length], values, &name).map(Some)
}

/// Folds the scale of the input of a convolution or matmul, and the shift if a convolution has no padding.
fn fold_before(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let Some((op, operands)) = plain(graph, id) else { return Ok(None) };
    let (Some(x), Some(weights)) = (operands.first().copied(), operands.get(1).copied()) else {
        return Ok(None);
    };
    let rank = graph.tensor(x).rank();
    let axis_from_end = match op {
        Op::Conv(_) | Op::ConvTranspose(_) if rank >= 2 => rank - 1,
        Op::MatMul(m) if !m.trans_a => 1,
        _ => return Ok(None),
    };
    let op = op.clone();
    let Some(map) = channel_map(graph, x, axis_from_end).filter(|_| single_use(graph, x)) else {
        return Ok(None);
    };
    let mut folded = operands.clone();
    if let Some(shift) = &map.shift {
        let Some(bias) = bias_of_shift(graph, &op, &operands, shift)? else { return Ok(None) };
        folded.truncate(2);
        folded.push(bias);
    }
    if let Some(scale) = &map.scale {
        let Some(scaled) = scale_inputs(graph, &op, weights, scale)? else { return Ok(None) };
        folded[1] = scaled;
    }
    folded[0] = map.x;
    graph.add(op, &folded, &name(graph, id)).map(Some)
}

/// Adds the new bias constant of a convolution without padding whose input channels are shifted.
fn bias_of_shift(graph: &mut Graph, op: &Op, operands: &[NodeId], shift: &[f32]) -> Result<Option<NodeId>> {
    let Op::Conv(conv) = op else { return Ok(None) };
    if conv.pads_begin.iter().chain(&conv.pads_end).any(|p| *p > 0) {
        return Ok(None);
    }
    let Some((shape, weights)) = operands.get(1).and_then(|w| floats(graph, *w)) else { return Ok(None) };
    let (Some(outputs), Some(inputs)) = (shape.first().copied(), shape.get(1).copied()) else {
        return Ok(None);
    };
    let old = match operands.get(2) {
        Some(bias) => match floats(graph, *bias) {
            Some((_, values)) if values.len() == outputs => values,
            _ => return Ok(None),
        },
        None => vec![0.0; outputs],
    };
    let taps = count(&shape[2..]);
    let (Some(per_group), true) = (outputs.checked_div(conv.group), inputs * taps > 0) else {
        return Ok(None);
    };
    let mut values = Vec::with_capacity(outputs);
    for (o, (kernel, old)) in weights.chunks_exact(inputs * taps).zip(&old).enumerate() {
        let first = o.checked_div(per_group).unwrap_or(0) * inputs;
        let mut sum = f64::from(*old);
        for (i, w) in kernel.iter().enumerate() {
            sum += f64::from(*w) * f64::from(shift.get(first + i / taps).copied().unwrap_or(0.0));
        }
        values.push(sum as f32);
    }
    let like = operands.get(2).or(operands.get(1)).copied().unwrap_or(operands[0]);
    let (dtype, name) = (graph.tensor(like).dtype, name(graph, like));
    add_floats(graph, dtype, &[outputs], values, &name).map(Some)
}

/// Multiplies the weights of each output channel by the channel's element of `scale`.
fn scale_results(graph: &mut Graph, op: &Op, weights: NodeId, scale: &[f32]) -> Result<Option<NodeId>> {
    scale_weights(graph, op, weights, scale, Side::Result)
}

/// Multiplies the weights of each input channel by the channel's element of `scale`.
fn scale_inputs(graph: &mut Graph, op: &Op, weights: NodeId, scale: &[f32]) -> Result<Option<NodeId>> {
    scale_weights(graph, op, weights, scale, Side::Input)
}

/// Side of an operator (input or result) to which the scaled channels belong.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    Result,
    Input,
}

fn scale_weights(
    graph: &mut Graph,
    op: &Op,
    weights: NodeId,
    scale: &[f32],
    side: Side,
) -> Result<Option<NodeId>> {
    if !single_use(graph, weights) {
        return Ok(None);
    }
    if let Some(scaled) = scale_before_quantization(graph, op, weights, scale, side)? {
        return Ok(Some(scaled));
    }
    let Some((shape, mut values)) = floats(graph, weights) else { return Ok(None) };
    let Some(channels) = channels(op, &shape, side) else { return Ok(None) };
    for (i, v) in values.iter_mut().enumerate() {
        let Some(s) = scale.get(channels.channel_of(i)) else { return Ok(None) };
        *v *= s;
    }
    let (dtype, name) = (graph.tensor(weights).dtype, name(graph, weights));
    add_floats(graph, dtype, &shape, values, &name).map(Some)
}

/// Multiplies the filters of a dense convolution by the elements of `scale` before they are quantized. Returns `None` if the
/// weights are not quantized while they are read.
fn scale_before_quantization(
    graph: &mut Graph,
    op: &Op,
    weights: NodeId,
    scale: &[f32],
    side: Side,
) -> Result<Option<NodeId>> {
    let (Op::Conv(Conv { group: 1, .. }), Some(filters)) = (op, graph.constant(weights)) else {
        return Ok(None);
    };
    let Some(scaled) = filters.scaled_filters(scale, usize::from(side == Side::Input)) else {
        return Ok(None);
    };
    let name = name(graph, weights);
    graph.add_constant(scaled, &name).map(Some)
}

/// Map from the flat index of a weight to its channel: the index along one axis, plus an offset for the group to which
/// the index along the first axis belongs.
struct Channels {
    inner: usize,
    length: usize,
    first: usize,
    rows_per_group: usize,
    group_step: usize,
}

impl Channels {
    fn channel_of(&self, index: usize) -> usize {
        let group = index / self.first / self.rows_per_group;
        index / self.inner % self.length + group * self.group_step
    }
}

fn channels(op: &Op, shape: &[usize], side: Side) -> Option<Channels> {
    let rank = shape.len();
    let inner = |axis: usize| count(shape.get(axis + 1..).unwrap_or_default());
    let (axis, groups, group_step) = match (op, side) {
        // [O, C / group, kernel..]
        (Op::Conv(_), Side::Result) => (0, 1, 0),
        (Op::Conv(conv), Side::Input) => (1, conv.group, *shape.get(1)?),
        // [C, O / group, kernel..]
        (Op::ConvTranspose(_), Side::Input) => (0, 1, 0),
        (Op::ConvTranspose(conv), Side::Result) => (1, conv.group, *shape.get(1)?),
        (Op::MatMul(m), side) => {
            let last = (side == Side::Result) != m.trans_b;
            (rank.checked_sub(if last { 1 } else { 2 })?, 1, 0)
        }
        _ => return None,
    };
    let channels = Channels {
        inner: inner(axis),
        length: *shape.get(axis)?,
        first: inner(0),
        rows_per_group: shape.first()?.checked_div(groups)?,
        group_step,
    };
    let valid =
        channels.inner > 0 && channels.length > 0 && channels.first > 0 && channels.rows_per_group > 0;
    valid.then_some(channels)
}
