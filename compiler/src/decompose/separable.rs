//! Fuses a depthwise convolution and the pointwise convolution after it into one dispatch.
//!
//! ```text
//! %2 = conv [N, C, H, W] %0 %1 then (relu #0)        ->      %4 = separable-conv [N, O, H, W] %0 %1 %3
//! %4 = conv [N, O, H, W] %2 %3
//! ```
//!
//! The intermediate tensor, often larger than image and result, is neither written nor read. A launch and a barrier are
//! saved. In exchange, the depthwise convolution is computed again for each block of output channels that a workgroup
//! computes at a time. The depthwise result must have no other user.

use super::{ConstantData, Decomposition, LastNode, Params};
use crate::error::{Error, Result};
use crate::ir::dim::Dim;
use crate::ir::element::{Arg, BinaryFn, Element, EpilogueStep};
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{Conv, Op, Reshape, SeparableConv};
use crate::ir::ops::separable_conv::FIRST_EPILOGUE_OPERAND;
use crate::target::TargetProfile;

/// The decomposition `separable`, as an entry of the table of decompositions.
pub const DECOMPOSITION: Decomposition = Decomposition {
    name: "separable",
    alternatives,
    repacks: true,
    max_cost_ratio: |p| p.separable_max_cost_ratio,
    worth_estimating,
    build,
    describe,
    cases: CASES,
};

const CASES: &[&str] = &[
    r#"
%0 = input {"name":"x","dtype":"f32","shape":[2,10,9,11]}
%1 = input {"name":"r","dtype":"f32","shape":[2,22,5,6]}
%2 = neg %0
%3 = constant {"dtype":"f32","shape":[10,1,3,3],"random":1}
%4 = constant {"dtype":"f32","shape":[10],"random":2}
%5 = conv %2 %3 %4 {"strides":[2,2],"dilations":[1,1],"pads_begin":[1,1],"pads_end":[1,1],"group":10}
%6 = clip %5 {"low":0.0,"high":6.0}
%7 = constant {"dtype":"f32","shape":[22,10,1,1],"random":3}
%8 = constant {"dtype":"f32","shape":[22],"random":4}
%9 = conv %6 %7 %8 {"strides":[1,1],"dilations":[1,1],"pads_begin":[0,0],"pads_end":[0,0],"group":1}
%10 = add %9 %1
%11 = neg %10
output "y" %11
"#,
    r#"
symbol n 1..3
symbol h 3..13
%0 = input {"name":"x","dtype":"f32","shape":["n",16,"h",6]}
%1 = constant {"dtype":"f32","shape":[16,1,5,5],"random":1}
%2 = conv %0 %1 {"strides":[1,1],"dilations":[1,1],"pads_begin":[2,2],"pads_end":[2,2],"group":16}
%3 = constant {"dtype":"f32","shape":[16,1,1],"random":2}
%4 = mul %2 %3
%5 = hard-swish %4
%6 = constant {"dtype":"f32","shape":[40,16,1,1],"random":3}
%7 = conv %5 %6 {"strides":[1,1],"dilations":[1,1],"pads_begin":[0,0],"pads_end":[0,0],"group":1}
%8 = relu %7
%9 = neg %8
output "y" %9
"#,
    r#"
%0 = input {"name":"x","dtype":"f32","shape":[1,13,31]}
%1 = constant {"dtype":"f32","shape":[13,1,3],"random":1}
%2 = constant {"dtype":"f32","shape":[13],"random":2}
%3 = conv %0 %1 %2 {"strides":[1],"dilations":[2],"pads_begin":[2],"pads_end":[2],"group":13}
%4 = sigmoid %3
%5 = constant {"dtype":"f32","shape":[3,13,1],"random":3}
%6 = conv %4 %5 {"strides":[1],"dilations":[1],"pads_begin":[0],"pads_end":[0],"group":1}
%7 = neg %6
output "y" %7
"#,
];

/// A depthwise convolution with the pointwise convolution that reads it.
struct ConvPair<'g> {
    depthwise_id: NodeId,
    depthwise: &'g Conv,
    /// Operands of the pointwise convolution; the first one is the depthwise result.
    operands: Vec<NodeId>,
}

/// Returns the pair of a depthwise convolution and the pointwise convolution `id` that reads it. Returns `None` for
/// other nodes.
fn conv_pair(graph: &Graph, id: NodeId) -> Option<ConvPair<'_>> {
    let node = graph.node(id);
    let Op::Conv(op) = &node.op else { return None };
    let operands: Vec<NodeId> = graph.operands(id).into_iter().take(node.arity).collect();
    let [first, matrix, ..] = operands.as_slice() else { return None };
    let axes = node.tensor.rank().checked_sub(2)?;
    let matrix = graph.constant(*matrix)?;
    // The kernels pack both filters, which would store quantized filters as floats.
    let one_tap =
        matrix.shape.iter().skip(2).all(|taps| *taps == 1) && matrix.encoding.quant_format().is_none();
    let plain = Conv { dilations: vec![1; axes], ..op.clone() } == SeparableConv::pointwise(axes);
    let Op::Conv(depthwise) = graph.op(*first) else { return None };
    let filters = graph.constant(*graph.operands(*first).get(1)?)?;
    let one_each = filters.shape.get(..2) == Some(&[depthwise.group, 1]) && (1..=2).contains(&axes);
    let kept = graph.use_count(*first) == 1 && filters.dtype.is_float();
    (one_tap && plain && one_each && kept).then_some(ConvPair { depthwise_id: *first, depthwise, operands })
}

fn alternatives(graph: &Graph, id: NodeId, target: &TargetProfile) -> Vec<u32> {
    let Some(pair) = conv_pair(graph, id) else { return Vec::new() };
    // All operands of both except the intermediate tensor, and the result.
    let buffers = graph.operands(id).len() + graph.operands(pair.depthwise_id).len();
    if buffers <= target.limits.max_storage_buffers as usize { vec![1] } else { Vec::new() }
}

fn worth_estimating(_graph: &Graph, _id: NodeId, _number: u32, _p: &Params) -> bool {
    true
}

fn describe(_number: u32) -> String {
    format!("depthwise and pointwise convolution fused ({})", DECOMPOSITION.name)
}

fn build(graph: &mut Graph, id: NodeId, _number: u32, _data: ConstantData) -> Result<LastNode> {
    let wrong =
        || Error::internal("separable", "the node is not a pointwise convolution after a depthwise one");
    let ConvPair { depthwise_id: first, depthwise, operands: second } =
        conv_pair(graph, id).ok_or_else(wrong)?;
    let (depthwise, node, given) = (depthwise.clone(), graph.node(first).clone(), graph.operands(first));
    let [image, filters, ..] = given.as_slice() else { return Err(wrong()) };
    let mut operands = vec![*image, *filters, *second.get(1).ok_or_else(wrong)?];
    let mut epilogue = Vec::new();
    // The bias of the depthwise convolution becomes the first step of the epilogue between the two.
    if let Some(bias) = given.get(2).filter(|_| node.arity > 2) {
        let ones = node.tensor.rank().saturating_sub(2);
        let channels = node.tensor.shape.get(1).cloned().ok_or_else(wrong)?;
        let shape = [channels].into_iter().chain(std::iter::repeat_n(Dim::known(1), ones)).collect();
        operands.push(graph.add(Reshape { shape }, &[*bias], &format!("{} (bias)", node.name))?);
        let args = vec![Arg::Step(0), Arg::Input(FIRST_EPILOGUE_OPERAND as u32)];
        epilogue.push(EpilogueStep { element: Element::Binary(BinaryFn::Add), args });
    }
    let (shift, before) = (epilogue.len() as u32, operands.len());
    for step in &node.epilogue {
        let mut args = Vec::with_capacity(step.args.len());
        for arg in &step.args {
            args.push(match *arg {
                Arg::Step(s) => Arg::Step(s + shift),
                Arg::Input(k) => {
                    let operand = *given.get(k as usize).ok_or_else(wrong)?;
                    let known = operands.iter().skip(before).position(|o| *o == operand);
                    let place = known.map_or(operands.len(), |known| before + known);
                    if known.is_none() {
                        operands.push(operand);
                    }
                    Arg::Input(u32::try_from(place).map_err(|_| wrong())?)
                }
            });
        }
        epilogue.push(EpilogueStep { element: step.element, args });
    }
    let bias = second.get(2).copied();
    operands.extend(bias);
    Ok(LastNode {
        op: SeparableConv { depthwise, epilogue, bias: bias.is_some() }.into(),
        operands,
        beside: None,
    })
}
