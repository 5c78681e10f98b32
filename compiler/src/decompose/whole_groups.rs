//! Rewrites a grouped convolution with few channels per group as a convolution with fewer groups, padding filters by
//! zeros.
//!
//! ```text
//! %2 = conv [N, 6, H, W] %0 %1 [6, 1, 3, 3] group 3    ->    %3 = conv [N, 6, H, W] %0 filters [6, 3, 3, 3] group 1
//! ```
//!
//! Kernels compute four channels at a time. If the channels of a group are not a multiple of four, channels of one vec4
//! need different inputs, and only the fallback kernel, which reads all inputs for each channel, can compute that. This
//! decomposition joins groups until their channels are multiples of four. The joined filters are up to four times as
//! large and mostly zeros, but cost a fraction of the fallback. Multiplication with zeros is exact for finite values: a
//! NaN or an infinity in one group spreads to the groups that it is joined with.

use super::{ConstantData, Decomposition, LastNode, Params, placeholder_constant};
use crate::error::{Error, Result};
use crate::ir::array::{Array, Data};
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{Constant, Conv, ConvTranspose, Op};
use crate::ir::tensor::TensorDesc;
use crate::target::TargetProfile;

/// The decomposition `whole-groups`, as an entry of the table of decompositions.
pub const DECOMPOSITION: Decomposition = Decomposition {
    name: "whole-groups",
    alternatives,
    repacks: true,
    max_cost_ratio: |p| p.whole_groups_max_cost_ratio,
    worth_estimating,
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

/// A grouped convolution.
struct Grouped<'g> {
    op: &'g Op,
    groups: usize,
    filters: &'g Constant,
    operands: Vec<NodeId>,
}

/// Returns a node as a grouped convolution of floats. Returns `None` for other nodes.
fn grouped(graph: &Graph, id: NodeId) -> Option<Grouped<'_>> {
    let node = graph.node(id);
    let groups = match &node.op {
        Op::Conv(op) => op.group,
        Op::ConvTranspose(op) => op.group,
        _ => return None,
    };
    let operands: Vec<NodeId> = graph.operands(id).into_iter().take(node.arity).collect();
    let filters = graph.constant(*operands.get(1)?)?;
    // Integer convolutions use other kernels.
    let float = filters.dtype.is_float() && filters.shape.len() >= 3;
    (groups > 1 && float).then_some(Grouped { op: &node.op, groups, filters, operands })
}

/// Returns a list with one item, the number of groups to join: the smallest number (2 or 4) of groups whose channels
/// together are multiples of four, else the number of all groups. The list is empty if the decomposition does not apply.
fn alternatives(graph: &Graph, id: NodeId, _target: &TargetProfile) -> Vec<u32> {
    let Some(Grouped { groups, filters, .. }) = grouped(graph, id) else { return Vec::new() };
    let (Some(first), Some(second)) = (filters.shape.first(), filters.shape.get(1)) else {
        return Vec::new();
    };
    let whole = |joined: usize| [first / groups, *second].iter().all(|n| (n * joined).is_multiple_of(4));
    // Depthwise convolutions have their own kernel.
    if whole(1) || first / groups == 1 && *second == 1 && matches!(graph.op(id), Op::Conv(_)) {
        return Vec::new();
    }
    let joined = [2, 4].into_iter().find(|joined| groups.is_multiple_of(*joined) && whole(*joined));
    u32::try_from(joined.unwrap_or(groups)).into_iter().collect()
}

fn worth_estimating(_graph: &Graph, _id: NodeId, joined: u32, p: &Params) -> bool {
    f64::from(joined) <= p.max_joined_groups
}

fn describe(joined: u32) -> String {
    format!("{joined} groups joined ({})", DECOMPOSITION.name)
}

fn build(graph: &mut Graph, id: NodeId, joined: u32, data: ConstantData) -> Result<LastNode> {
    let wrong = || Error::internal("whole-groups", "the node is not a grouped convolution");
    let Grouped { op, groups, filters, mut operands } = grouped(graph, id).ok_or_else(wrong)?;
    let group = groups / joined as usize;
    let op: Op = match op {
        Op::Conv(op) => Conv { group, ..op.clone() }.into(),
        Op::ConvTranspose(op) => ConvTranspose { group, ..op.clone() }.into(),
        _ => return Err(wrong()),
    };
    let made = join(filters, groups, joined as usize, data)?;
    let name = format!("{} (filters)", graph.node(id).name);
    *operands.get_mut(1).ok_or_else(wrong)? = graph.add_constant(made, &name)?;
    Ok(LastNode { op, operands, beside: None })
}

/// Expands the filters of a grouped convolution from `[first, second, taps]` to `[first, joined * second, taps]`;
/// `second` is the number of channels of one group. Each filter keeps its values at its group's position among the
/// joined groups; the other values are zeros.
fn join(filters: &Constant, groups: usize, joined: usize, data: ConstantData) -> Result<Constant> {
    let wrong = |e: crate::error::OpError| Error::internal("whole-groups", e.0);
    let mut shape = filters.shape.clone();
    let (first, second) = (shape[0], shape[1]);
    shape[1] = second * joined;
    if data == ConstantData::Placeholder {
        return placeholder_constant(&TensorDesc::from_sizes(filters.dtype, &shape));
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
