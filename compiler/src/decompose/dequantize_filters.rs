//! Rewrites a convolution with quantized filters as dequantizing the filters and a convolution with the floats.
//!
//! ```text
//! %2 = conv [N, O, H, W] %0 %1 (u8 [O, I, 3, 3])    ->    %3 = relayout [9 * I, O] %1 seen as [9 * I, O]
//!                                                         %4 = reshape [3, 3, I, O] %3
//!                                                         %5 = transpose [O, I, 3, 3] %4
//!                                                         %6 = conv [N, O, H, W] %0 %5
//! ```
//!
//! A kernel that reads quantized filters dequantizes them once per tile of pixels. With many pixels that takes longer than
//! dequantizing once and reading floats. The reshape and the transpose move nothing. Output channels are contiguous, so that
//! kernels load vectors of output channels. Floats have the type of the convolution's filters; in f16 they are rounded exactly
//! as the kernels for matrix units round them.

use super::{ConstantData, Decomposition, LastNode};
use crate::error::{Error, Result};
use crate::ir::dim::Dim;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{Constant, Conv, Op, Relayout, Reshape, Transpose};
use crate::ir::tensor::Layout;
use crate::shader::pack::quantized_panels::QuantizedPanels;
use crate::target::TargetProfile;

/// The decomposition `dequantize-filters`, as an entry of the table of decompositions.
pub const DECOMPOSITION: Decomposition = Decomposition {
    name: "dequantize-filters",
    alternatives,
    repacks: false,
    max_cost_ratio: |p| p.dequantize_max_cost_ratio,
    worth_estimating: |_, _, _, _| true,
    build,
    describe: |_| format!("filters dequantized first ({})", DECOMPOSITION.name),
    cases: CASES,
};

const CASES: &[&str] = &[
    r#"
%0 = input {"name":"x","dtype":"f32","shape":[2,32,9,11]}
%1 = neg %0
%2 = constant {"dtype":"f32","shape":[24,32,3,3],"encoding":"u8 in groups of 288","random":1}
%3 = constant {"dtype":"f32","shape":[24],"random":2}
%4 = conv %1 %2 %3 {"strides":[2,1],"dilations":[1,1],"pads_begin":[1,1],"pads_end":[1,1],"group":1}
%5 = relu %4
output "y" %5
"#,
    r#"
symbol n 1..3
symbol h 3..13
%0 = input {"name":"x","dtype":"f32","shape":["n",64,"h",6]}
%1 = constant {"dtype":"f32","shape":[20,64,2,3],"encoding":"u4 in groups of 64 with zeros","random":1}
%2 = conv %0 %1 {"strides":[1,1],"dilations":[2,1],"pads_begin":[0,1],"pads_end":[1,0],"group":1}
%3 = neg %2
output "y" %3
"#,
    r#"
%0 = input {"name":"x","dtype":"f32","shape":[1,40,150]}
%1 = constant {"dtype":"f32","shape":[48,40,1],"encoding":"u8 in groups of 40","random":1}
%2 = conv %0 %1 {"strides":[1],"dilations":[1],"pads_begin":[0],"pads_end":[0],"group":1}
%3 = constant {"dtype":"f32","shape":[32,48,5],"encoding":"u4 in groups of 16","random":2}
%4 = conv %2 %3 {"strides":[2],"dilations":[1],"pads_begin":[2],"pads_end":[2],"group":1}
output "y" %4
"#,
];

/// A dense convolution with quantized filters.
struct QuantizedConv<'g> {
    op: &'g Conv,
    operands: Vec<NodeId>,
    filters: &'g Constant,
    /// The filters as a matrix `[taps * I, O]`.
    matrix: Constant,
}

/// Returns a node as a dense convolution with quantized filters. Returns `None` for other nodes.
fn quantized_conv(graph: &Graph, id: NodeId) -> Option<QuantizedConv<'_>> {
    let node = graph.node(id);
    let Op::Conv(op) = &node.op else { return None };
    let operands: Vec<NodeId> = graph.operands(id).into_iter().take(node.arity).collect();
    let filters = graph.constant(*operands.get(1)?)?;
    QuantizedPanels::from_constant(filters)?;
    let matrix = filters.as_filter_matrix()?.transposed(&[1, 0])?;
    QuantizedPanels::from_constant(&matrix)?;
    (op.group == 1).then_some(QuantizedConv { op, operands, filters, matrix })
}

fn alternatives(graph: &Graph, id: NodeId, _target: &TargetProfile) -> Vec<u32> {
    if quantized_conv(graph, id).is_some() { vec![1] } else { Vec::new() }
}

fn build(graph: &mut Graph, id: NodeId, _number: u32, _data: ConstantData) -> Result<LastNode> {
    let wrong =
        || Error::internal(DECOMPOSITION.name, "the node is not a convolution with quantized filters");
    let QuantizedConv { op, mut operands, filters, matrix } = quantized_conv(graph, id).ok_or_else(wrong)?;
    let (op, name) = (op.clone(), format!("{} (dequantized)", graph.node(id).name));
    let rank = filters.shape.len();
    let (Some(channels), Some(taps)) = (filters.shape.get(..2), filters.shape.get(2..)) else {
        return Err(wrong());
    };
    // Axes from the slowest one: taps, input channels, output channels.
    let shape = taps.iter().chain(channels.iter().rev()).map(|size| Dim::from(*size)).collect();
    let perm = [rank - 1, rank - 2].into_iter().chain(0..rank - 2).collect();
    let quantized = graph.add_constant(matrix, &name)?;
    let floats = graph.add(Relayout { layout: Layout::RowMajor }, &[quantized], &name)?;
    let floats = graph.add(Reshape { shape }, &[floats], &name)?;
    let floats = graph.add(Transpose { perm }, &[floats], &name)?;
    *operands.get_mut(1).ok_or_else(wrong)? = floats;
    Ok(LastNode { op: op.into(), operands, beside: None })
}
