//! A convolution in groups of few channels as one of fewer groups, whose filters have zeros between what was apart.
//!
//! ```text
//! %2 = conv [N, 6, H, W] %0 %1 [6, 1, 3, 3] group 3    ->    %3 = conv [N, 6, H, W] %0 filters [6, 3, 3, 3] group 1
//! ```
//!
//! Kernels compute four channels at a time. Where the channels of a group are no whole slices of four, two neighbours of
//! a slice need different inputs, and nothing but the fallback kernel, which reads everything for every channel, computes
//! that. Groups that are joined until they are whole slices are multiplied with up to four times as many filters as
//! before, most of them zeros, at a small part of the cost. Sums of what is multiplied with zeros are exact as long as it
//! is finite: a NaN or an infinity in one group spreads over those that it is joined with.

use super::{Decomposition, Elements, Last, Params, stand_in};
use crate::error::{Error, Result};
use crate::ir::array::{Array, Data};
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{Constant, Conv, ConvTranspose, Op};
use crate::ir::tensor::TensorDesc;
use crate::target::TargetProfile;

/// As the table lists it.
pub const DECOMPOSITION: Decomposition = Decomposition {
    name: "whole-groups",
    variants,
    repacks: true,
    margin: |p| p.whole_groups,
    sensible,
    build,
    describe,
    cases: CASES,
};

const CASES: &[&str] = &[
    r#"
%0 = input {"name":"x","dtype":"f32","shape":[2,6,9,7]}
%1 = constant {"dtype":"f32","shape":[12,2,3,2],"random":1}
%2 = constant {"dtype":"f32","shape":[12],"random":2}
%3 = conv %0 %1 %2 {"strides":[2,1],"dilations":[1,2],"pads_begin":[1,0],"pads_end":[2,1],"group":3}
%4 = relu %3
%5 = add %4 %3
output "y" %5
"#,
    r#"
symbol n 1..3
%0 = input {"name":"x","dtype":"f32","shape":["n",12,31]}
%1 = constant {"dtype":"f32","shape":[24,1,5],"random":1}
%2 = conv %0 %1 {"strides":[1],"dilations":[1],"pads_begin":[2],"pads_end":[2],"group":12}
%3 = neg %2
output "y" %3
"#,
    r#"
%0 = input {"name":"x","dtype":"f32","shape":[1,12,3,5,4]}
%1 = constant {"dtype":"f32","shape":[18,2,2,3,3],"random":1}
%2 = conv %0 %1 {"strides":[1,1,1],"dilations":[1,1,1],"pads_begin":[0,1,1],"pads_end":[1,1,1],"group":6}
%3 = neg %2
output "y" %3
"#,
    r#"
%0 = input {"name":"x","dtype":"f32","shape":[1,8,5,6]}
%1 = constant {"dtype":"f32","shape":[8,3,4,4],"random":1}
%2 = conv-transpose %0 %1 {"strides":[2,2],"dilations":[1,1],"pads_begin":[1,1],"pads_end":[1,1],"output_padding":[0,0],"group":8}
%3 = relu %2
output "y" %3
"#,
];

/// A convolution in groups.
struct Grouped<'g> {
    op: &'g Op,
    groups: usize,
    filters: &'g Constant,
    operands: Vec<NodeId>,
}

fn grouped(graph: &Graph, id: NodeId) -> Option<Grouped<'_>> {
    let node = graph.node(id);
    let groups = match &node.op {
        Op::Conv(op) => op.group,
        Op::ConvTranspose(op) => op.group,
        _ => return None,
    };
    let operands: Vec<NodeId> = graph.operands(id).into_iter().take(node.arity).collect();
    let filters = graph.constant(*operands.get(1)?)?;
    // Sums of integers have other kernels.
    let float = filters.dtype.is_float() && filters.shape.len() >= 3;
    (groups > 1 && float).then_some(Grouped { op: &node.op, groups, filters, operands })
}

/// The least number of groups that are whole slices together; all of them, if no smaller number divides theirs.
fn variants(graph: &Graph, id: NodeId, _target: &TargetProfile) -> Vec<u32> {
    let Some(Grouped { groups, filters, .. }) = grouped(graph, id) else { return Vec::new() };
    let (Some(first), Some(second)) = (filters.shape.first(), filters.shape.get(1)) else {
        return Vec::new();
    };
    let whole = |joined: usize| [first / groups, *second].iter().all(|n| (n * joined).is_multiple_of(4));
    // A filter for each channel has a kernel of its own.
    if whole(1) || first / groups == 1 && *second == 1 && matches!(graph.op(id), Op::Conv(_)) {
        return Vec::new();
    }
    let joined = [2, 4].into_iter().find(|joined| groups.is_multiple_of(*joined) && whole(*joined));
    u32::try_from(joined.unwrap_or(groups)).into_iter().collect()
}

fn sensible(_graph: &Graph, _id: NodeId, joined: u32, p: &Params) -> bool {
    f64::from(joined) <= p.most_groups
}

fn describe(joined: u32) -> String {
    format!("{joined} groups joined ({})", DECOMPOSITION.name)
}

fn build(graph: &mut Graph, id: NodeId, joined: u32, elements: Elements) -> Result<Last> {
    let wrong = || Error::internal("whole-groups", "a convolution that it cannot replace");
    let Grouped { op, groups, filters, mut operands } = grouped(graph, id).ok_or_else(wrong)?;
    let group = groups / joined as usize;
    let op: Op = match op {
        Op::Conv(op) => Conv { group, ..op.clone() }.into(),
        Op::ConvTranspose(op) => ConvTranspose { group, ..op.clone() }.into(),
        _ => return Err(wrong()),
    };
    let made = join(filters, groups, joined as usize, elements)?;
    let name = format!("{} (filters)", graph.node(id).name);
    *operands.get_mut(1).ok_or_else(wrong)? = graph.add_constant(made, &name)?;
    Ok(Last { op, operands })
}

/// Filters `[first, second, taps]` as `[first, joined * second, taps]`: those of each group at its place among the joined
/// ones, zeros elsewhere.
fn join(filters: &Constant, groups: usize, joined: usize, elements: Elements) -> Result<Constant> {
    let wrong = |e: crate::error::OpError| Error::internal("whole-groups", e.0);
    let mut shape = filters.shape.clone();
    let (first, second) = (shape[0], shape[1]);
    shape[1] = second * joined;
    if elements == Elements::Any {
        return stand_in(&TensorDesc::of(filters.dtype, &shape));
    }
    let row = second * shape.iter().skip(2).product::<usize>();
    let array = filters.to_array().map_err(wrong)?;
    let values = array.floats().map_err(wrong)?;
    let mut out = vec![0.0; first * joined * row];
    let each = (first / groups).max(1);
    for (i, filter) in values.chunks(row.max(1)).enumerate() {
        let at = (i * joined + i / each % joined) * row;
        if let Some(place) = out.get_mut(at..at + filter.len()) {
            place.copy_from_slice(filter);
        }
    }
    Ok(Constant::from_array(&Array { dtype: filters.dtype, shape, data: Data::Float(out) }))
}
