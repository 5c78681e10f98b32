//! Winograd convolution with 3 x 3 filters: transform tiles of the image, compute one matmul over the channels for
//! each of the 36 or 16 elements of a tile, transform the results back.
//!
//! ```text
//! %2 = conv [N, O, H, W] %0 %1        ->      %3 = winograd-input [36, tiles, C] %0
//!                                             %4 = matmul [36, tiles, O] %3 filters [36, C, O]
//!                                             %5 = winograd-output [N, O, H, W] %4
//! ```
//!
//! Tiles of 4 x 4 results need a quarter of the multiplications (2 x 2: four ninths). In exchange, two tensors of 2.25
//! times (2 x 2: 4 times) the image's size are written and read, and filters are 4 times (2 x 2: 1.8 times) as large.
//! Filters are transformed at compile time, in f64. Tiles and matmul results have the filters' type; `ir/ops/winograd.rs`
//! describes the small error of f16.

use super::{ConstantData, Decomposition, LastNode, Params, placeholder_constant};
use crate::error::{Error, Result};
use crate::ir::array::Array;
use crate::ir::dim::Dim;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{Constant, Conv, MatMul, Op, WinogradInput, WinogradOutput};
use crate::ir::ops::winograd::{self, Matrices};
use crate::ir::tensor::{DType, TensorDesc};
use crate::target::TargetProfile;

/// The decomposition `winograd`, as an entry of the table of decompositions.
pub const DECOMPOSITION: Decomposition = Decomposition {
    name: "winograd",
    alternatives,
    repacks: true,
    max_cost_ratio: |p| p.winograd_max_cost_ratio,
    worth_estimating,
    build,
    describe,
    cases: CASES,
};

const CASES: &[&str] = &[
    r#"
%0 = input {"name":"x","dtype":"f32","shape":[2,17,9,15]}
%1 = constant {"dtype":"f32","shape":[19,17,3,3],"random":1}
%2 = constant {"dtype":"f32","shape":[19],"random":2}
%3 = conv %0 %1 %2 {"strides":[1,1],"dilations":[1,1],"pads_begin":[1,1],"pads_end":[1,1],"group":1}
%4 = relu %3
%5 = add %4 %3
output "y" %5
"#,
    r#"
%0 = input {"name":"x","dtype":"f32","shape":[1,24,8,10]}
%1 = neg %0
%2 = constant {"dtype":"f32","shape":[32,24,3,3],"random":1}
%3 = conv %1 %2 {"strides":[1,1],"dilations":[1,1],"pads_begin":[0,1],"pads_end":[2,0],"group":1}
%4 = neg %3
output "y" %4
"#,
    r#"
symbol n 1..3
symbol h 3..13
%0 = input {"name":"x","dtype":"f32","shape":["n",16,"h",6]}
%1 = constant {"dtype":"f32","shape":[20,16,3,3],"random":1}
%2 = conv %0 %1 {"strides":[1,1],"dilations":[1,1],"pads_begin":[0,0],"pads_end":[0,0],"group":1}
%3 = relu %2
%4 = neg %3
output "y" %4
"#,
];

/// Sides of the Winograd tiles to try, in convolution results: a tile has 4 x 4 or 2 x 2 results.
const OUTPUTS: &[u32] = &[4, 2];

/// A 3 x 3 convolution that Winograd's method can compute.
struct Conv3x3<'g> {
    op: &'g Conv,
    filters: &'g Constant,
    operands: Vec<NodeId>,
}

/// Returns a node as a 3 x 3 convolution that Winograd's method can compute. Returns `None` for other nodes.
fn conv_3x3(graph: &Graph, id: NodeId) -> Option<Conv3x3<'_>> {
    let node = graph.node(id);
    let Op::Conv(op) = &node.op else { return None };
    let operands: Vec<NodeId> = graph.operands(id).into_iter().take(node.arity).collect();
    let filters = graph.constant(*operands.get(1)?)?;
    let [_, _, 3, 3] = filters.shape.as_slice() else { return None };
    // Intermediate values of an integer transform would not fit into 8 bits. Transformed filters are floats, so quantized
    // filters would need more memory than without quantization.
    let float = filters.dtype.is_float() && filters.encoding.quant_format().is_none();
    let plain = float && op.group == 1 && op.strides == [1, 1] && op.dilations == [1, 1];
    plain.then_some(Conv3x3 { op, filters, operands })
}

fn alternatives(graph: &Graph, id: NodeId, _target: &TargetProfile) -> Vec<u32> {
    if conv_3x3(graph, id).is_some() { OUTPUTS.to_vec() } else { Vec::new() }
}

fn worth_estimating(graph: &Graph, id: NodeId, outputs: u32, p: &Params) -> bool {
    let Some(Conv3x3 { filters, .. }) = conv_3x3(graph, id) else { return false };
    let [batch, _, rest @ ..] = graph.tensor(id).shape.as_slice() else { return false };
    let along = |size: &Dim| size.ceil_div(i64::from(outputs));
    let tiles = rest.iter().fold(batch.clone(), |n, size| n.mul(&along(size)));
    let min_channels = filters.shape.iter().take(2).min();
    let enough_channels = min_channels.is_some_and(|channels| *channels as f64 >= p.min_winograd_channels);
    enough_channels && tiles.range(&graph.bounds).1 as f64 >= p.min_winograd_tiles
}

fn describe(outputs: u32) -> String {
    format!("Winograd with tiles of {outputs}x{outputs} results ({})", DECOMPOSITION.name)
}

fn build(graph: &mut Graph, id: NodeId, outputs: u32, data: ConstantData) -> Result<LastNode> {
    let wrong = || Error::internal("winograd", "the node is not a 3 x 3 convolution");
    let Conv3x3 { op, filters, operands } = conv_3x3(graph, id).ok_or_else(wrong)?;
    let outputs = outputs as usize;
    let matrices = Matrices::new(outputs).ok_or_else(wrong)?;
    let pads = |pads: &[usize]| <[usize; 2]>::try_from(pads).map_err(|_| wrong());
    let (pads_begin, pads_end) = (pads(&op.pads_begin)?, pads(&op.pads_end)?);
    let stored = if filters.dtype == DType::F16 { DType::F16 } else { DType::F32 };
    let transformed = transform_filters(filters, &matrices, stored, data)?;
    let (name, shape) = (graph.node(id).name.clone(), graph.tensor(id).shape.clone());

    let image = *operands.first().ok_or_else(wrong)?;
    let tiles = WinogradInput { outputs, pads_begin, pads_end };
    let tiles = graph.add(tiles, &[image], &format!("{name} (tiles)"))?;
    graph.set_storage_type(tiles, stored);
    let constant = graph.add_constant(transformed, &format!("{name} (filters)"))?;
    let matmul = MatMul { trans_a: false, trans_b: false };
    let matmul = graph.add(matmul, &[tiles, constant], &format!("{name} (matmul)"))?;
    graph.set_storage_type(matmul, stored);
    let mut last = vec![matmul];
    last.extend(operands.get(2));
    Ok(LastNode { op: WinogradOutput { outputs, shape }.into(), operands: last, beside: None })
}

/// Returns the filters after the Winograd transform: one matrix `[C, O]` for each element of a tile.
fn transform_filters(
    constant: &Constant,
    matrices: &Matrices,
    stored: DType,
    data: ConstantData,
) -> Result<Constant> {
    let [outputs, inputs] = [0, 1].map(|axis| constant.shape.get(axis).copied().unwrap_or(0));
    let shape = [matrices.side * matrices.side, inputs, outputs];
    if data == ConstantData::Placeholder {
        return placeholder_constant(&TensorDesc::from_sizes(stored, &shape));
    }
    let array = constant.to_array().map_err(|e| Error::internal("winograd", e.0))?;
    let values = winograd::transform_filters(matrices, outputs, inputs, &array.to_floats());
    Ok(Constant::from_array(&Array::f32(&shape, values).cast(stored)))
}
