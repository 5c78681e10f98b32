//! A convolution with windows of 3 x 3 as Winograd's: tiles of the image are transformed, each of their 36 or 16 elements
//! takes part in a matrix product over the channels, and the products are transformed into the result.
//!
//! ```text
//! %2 = conv [N, O, H, W] %0 %1        ->      %3 = winograd-input [36, tiles, C] %0
//!                                             %4 = matmul [36, tiles, O] %3 filters [36, C, O]
//!                                             %5 = winograd-output [N, O, H, W] %4
//! ```
//!
//! For tiles of 4 x 4 results that is a quarter of the multiplications (for 2 x 2, four ninths), for which the tiles pass
//! through memory twice, 2.25 (4) times as large as the image, and filters are 4 (1.8) times as large. Filters are
//! transformed here, in f64. Tiles and products are stored as the filters are: `ir/ops/winograd.rs` says how little that
//! costs in f16.

use super::{Decomposition, Elements, Last, Params, stand_in};
use crate::error::{Error, Result};
use crate::ir::array::Array;
use crate::ir::dim::Dim;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{Constant, Conv, MatMul, Op, WinogradInput, WinogradOutput};
use crate::ir::ops::winograd::{Matrices, filters};
use crate::ir::tensor::{DType, TensorDesc};
use crate::target::TargetProfile;

/// As the table lists it.
pub const DECOMPOSITION: Decomposition = Decomposition {
    name: "winograd",
    variants,
    repacks: true,
    margin: |p| p.winograd,
    sensible,
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

/// Results along a side of a tile.
const OUTPUTS: &[u32] = &[4, 2];

/// A convolution as this decomposition sees it.
struct Windows<'g> {
    op: &'g Conv,
    filters: &'g Constant,
    operands: Vec<NodeId>,
}

fn windows(graph: &Graph, id: NodeId) -> Option<Windows<'_>> {
    let node = graph.node(id);
    let Op::Conv(op) = &node.op else { return None };
    let operands: Vec<NodeId> = graph.operands(id).into_iter().take(node.arity).collect();
    let filters = graph.constant(*operands.get(1)?)?;
    let [_, _, 3, 3] = filters.shape.as_slice() else { return None };
    // Its transforms are of floats; integers would need more than 8 bits between them.
    let float = filters.dtype.is_float();
    let plain = float && op.group == 1 && op.strides == [1, 1] && op.dilations == [1, 1];
    plain.then_some(Windows { op, filters, operands })
}

fn variants(graph: &Graph, id: NodeId, _target: &TargetProfile) -> Vec<u32> {
    if windows(graph, id).is_some() { OUTPUTS.to_vec() } else { Vec::new() }
}

fn sensible(graph: &Graph, id: NodeId, outputs: u32, p: &Params) -> bool {
    let Some(Windows { filters, .. }) = windows(graph, id) else { return false };
    let [batch, _, rest @ ..] = graph.tensor(id).shape.as_slice() else { return false };
    let along = |size: &Dim| size.ceil_div(i64::from(outputs));
    let tiles = rest.iter().fold(batch.clone(), |n, size| n.mul(&along(size)));
    let channels = filters.shape.iter().take(2).min().is_some_and(|least| *least as f64 >= p.fewest_channels);
    channels && tiles.range(&graph.bounds).1 as f64 >= p.fewest_tiles
}

fn describe(outputs: u32) -> String {
    format!("Winograd's tiles of {outputs}x{outputs} results ({})", DECOMPOSITION.name)
}

fn build(graph: &mut Graph, id: NodeId, outputs: u32, elements: Elements) -> Result<Last> {
    let wrong = || Error::internal("winograd", "a convolution that it cannot replace");
    let Windows { op, filters, operands } = windows(graph, id).ok_or_else(wrong)?;
    let outputs = outputs as usize;
    let matrices = Matrices::new(outputs).ok_or_else(wrong)?;
    let pads = |pads: &[usize]| <[usize; 2]>::try_from(pads).map_err(|_| wrong());
    let (pads_begin, pads_end) = (pads(&op.pads_begin)?, pads(&op.pads_end)?);
    let stored = if filters.dtype == DType::F16 { DType::F16 } else { DType::F32 };
    let transformed = transform(filters, &matrices, stored, elements)?;
    let (name, shape) = (graph.node(id).name.clone(), graph.tensor(id).shape.clone());

    let image = *operands.first().ok_or_else(wrong)?;
    let tiles = WinogradInput { outputs, pads_begin, pads_end };
    let tiles = graph.add(tiles, &[image], &format!("{name} (tiles)"))?;
    graph.set_storage_type(tiles, stored);
    let constant = graph.add_constant(transformed, &format!("{name} (filters)"))?;
    let product = MatMul { trans_a: false, trans_b: false };
    let product = graph.add(product, &[tiles, constant], &format!("{name} (products)"))?;
    graph.set_storage_type(product, stored);
    let mut last = vec![product];
    last.extend(operands.get(2));
    Ok(Last { op: WinogradOutput { outputs, shape }.into(), operands: last })
}

/// The filters as one matrix `[C, O]` for each product.
fn transform(
    constant: &Constant,
    matrices: &Matrices,
    stored: DType,
    elements: Elements,
) -> Result<Constant> {
    let [outputs, inputs] = [0, 1].map(|axis| constant.shape.get(axis).copied().unwrap_or(0));
    let shape = [matrices.side * matrices.side, inputs, outputs];
    if elements == Elements::Any {
        return stand_in(&TensorDesc::of(stored, &shape));
    }
    let array = constant.to_array().map_err(|e| Error::internal("winograd", e.0))?;
    let values = filters(matrices, outputs, inputs, &array.to_floats());
    Ok(Constant::from_array(&Array::f32(&shape, values).cast(stored)))
}
