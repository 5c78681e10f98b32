//! Recognizes group and instance norms between reshapes, and folds scales and shifts per channel into them.
//!
//! ```text
//! %1 = reshape %0 {"shape":[1, 8, 1024]}     (of [1, 32, 16, 16])
//! %2 = group-norm %1 {"groups":8}            (scale ones, bias zeros)
//! %3 = reshape %2 {"shape":[1, 32, 16, 16]}
//! %4 = mul %3 %scale
//! %5 = add %4 %bias                          ->      %5 = group-norm %0 %scale %bias {"groups":8}
//! ```
//!
//! The norm between the reshapes may also be a layer norm over the last axes: `recognize-layer-norm` makes one of a
//! group norm that a model spells out.

use super::fold_batch_norm::channel_map;
use super::matching::{Rule, add_floats, floats, name, only_operand, plain, rewrite, single_use, splat};
use super::{Changes, Context};
use crate::error::Result;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{GroupNorm, LayerNorm, Op};

const RULES: &[(&str, Rule)] = &[
    ("recognized as group norm", grouped),
    ("recognized as instance norm", instance),
    ("scale or shift per channel folded into the norm", channels),
];

/// Recognizes norms over groups of channels.
pub fn run(graph: &mut Graph, _context: &Context<'_>) -> Result<Changes> {
    rewrite(graph, RULES)
}

/// A norm over all axes after axis 1: number of groups, epsilon, scale and bias of each group, and operand.
struct Core {
    groups: usize,
    epsilon: f32,
    scale: Vec<f32>,
    bias: Vec<f32>,
    x: NodeId,
}

fn core(graph: &Graph, id: NodeId) -> Option<Core> {
    let (op, operands) = plain(graph, id)?;
    let x = *operands.first()?;
    let groups = usize::try_from(graph.tensor(x).shape.get(1)?.as_known()?).ok()?;
    match op {
        Op::GroupNorm(norm) if norm.groups == groups => {
            let (_, scale) = floats(graph, *operands.get(1)?)?;
            let (_, bias) = floats(graph, *operands.get(2)?)?;
            (scale.len() == groups && bias.len() == groups).then_some(Core {
                groups,
                epsilon: norm.epsilon,
                scale,
                bias,
                x,
            })
        }
        Op::LayerNorm(LayerNorm { axis: 2, epsilon, rms: false }) => {
            let scale = splat(graph, *operands.get(1)?)? as f32;
            let bias = match operands.get(2) {
                Some(bias) => splat(graph, *bias)? as f32,
                None => 0.0,
            };
            let (scale, bias) = (vec![scale; groups], vec![bias; groups]);
            Some(Core { groups, epsilon: *epsilon, scale, bias, x })
        }
        _ => None,
    }
}

/// Replaces a norm over groups of channels, which a model computes between two reshapes, by a group norm.
fn grouped(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let Some((Op::Reshape(_), operands)) = plain(graph, id) else { return Ok(None) };
    let Some(core) = operands.first().and_then(|n| core(graph, *n)) else { return Ok(None) };
    let Some((Op::Reshape(_), _)) = plain(graph, core.x) else { return Ok(None) };
    let Some(x) = only_operand(graph, core.x) else { return Ok(None) };
    let (outer, inner) = (graph.tensor(x), graph.tensor(core.x));
    let same_batch = outer.rank() >= 3 && outer.shape.first() == inner.shape.first();
    let channels = outer.shape.get(1).and_then(|c| usize::try_from(c.as_known()?).ok());
    let Some(channels) = channels.filter(|c| same_batch && c.checked_rem(core.groups) == Some(0)) else {
        return Ok(None);
    };
    let per_group = channels / core.groups.max(1);
    let spread = |values: &[f32]| values.iter().flat_map(|v| std::iter::repeat_n(*v, per_group)).collect();
    add_norm(graph, core.groups, core.epsilon, x, spread(&core.scale), spread(&core.bias), &name(graph, id))
        .map(Some)
}

/// Replaces a layer norm over the spatial axes of an image, with a scalar scale and bias, by an instance norm.
fn instance(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let Some((Op::LayerNorm(_), _)) = plain(graph, id) else { return Ok(None) };
    let Some(core) = core(graph, id) else { return Ok(None) };
    if graph.tensor(core.x).rank() < 4 {
        return Ok(None);
    }
    add_norm(graph, core.groups, core.epsilon, core.x, core.scale, core.bias, &name(graph, id)).map(Some)
}

fn add_norm(
    graph: &mut Graph,
    groups: usize,
    epsilon: f32,
    x: NodeId,
    scale: Vec<f32>,
    bias: Vec<f32>,
    name: &str,
) -> Result<NodeId> {
    let dtype = graph.tensor(x).dtype;
    let channels = scale.len();
    let scale = add_floats(graph, dtype, &[channels], scale, name)?;
    let bias = add_floats(graph, dtype, &[channels], bias, name)?;
    graph.add(GroupNorm { groups, epsilon }, &[x, scale, bias], name)
}

/// Folds a scale or shift of each channel into a norm with constant scale and bias.
fn channels(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let rank = graph.tensor(id).rank();
    let Some(map) = rank.checked_sub(1).filter(|n| *n > 1).and_then(|n| channel_map(graph, id, n)) else {
        return Ok(None);
    };
    let Some((Op::GroupNorm(norm), operands)) = plain(graph, map.x).filter(|_| single_use(graph, map.x))
    else {
        return Ok(None);
    };
    let (groups, epsilon) = (norm.groups, norm.epsilon);
    let [x, scale, bias] = operands.as_slice() else { return Ok(None) };
    let (Some((_, mut scale)), Some((_, mut bias))) = (floats(graph, *scale), floats(graph, *bias)) else {
        return Ok(None);
    };
    for (i, (s, b)) in scale.iter_mut().zip(&mut bias).enumerate() {
        let factor = map.scale.as_ref().and_then(|v| v.get(i)).copied().unwrap_or(1.0);
        let shift = map.shift.as_ref().and_then(|v| v.get(i)).copied().unwrap_or(0.0);
        *s *= factor;
        *b = *b * factor + shift;
    }
    add_norm(graph, groups, epsilon, *x, scale, bias, &name(graph, map.x)).map(Some)
}
