//! A step of random graphs that multiplies 8-bit integers.

use driftc::Result;
use driftc::ir::array::Array;
use driftc::ir::element::UnaryFn;
use driftc::ir::graph::NodeId;
use driftc::ir::op::{Concat, MatMul};
use driftc::ir::tensor::DType;

use super::Growth;

/// Largest magnitude of an unsigned times a signed 8-bit integer.
const MAX_PRODUCT: usize = 255 * 128;

/// Appends columns to `x`: an input of 8-bit integers times constant 8-bit weights, scaled to 1.
pub(super) fn integer_matmul(g: &mut Growth<'_>, x: NodeId) -> Result<Option<NodeId>> {
    let (shape, Some(depth)) = (g.shape(x), g.width(x)) else { return Ok(None) };
    if shape.len() < 2 || !(1..=64).contains(&depth) {
        return Ok(None);
    }
    let columns = g.rng.pick(&[1, 3, 4]);
    let name = format!("integers{}", g.builder.graph.inputs().len());
    let rows = g.builder.input(&name, DType::U8, shape.clone())?;
    let weights = (0..depth * columns).map(|_| g.rng.below(256) as i64 - 128).collect();
    let weights = g.builder.constant(&Array::int(DType::I8, &[depth, columns], weights))?;
    let sums = g.builder.add(MatMul { trans_a: false, trans_b: false }, &[rows, weights])?;
    let sums = g.builder.cast(sums, DType::F32)?;
    let scale = 1.0 / (depth * MAX_PRODUCT) as f32;
    let products = g.builder.unary(UnaryFn::Affine { scale, shift: 0.0 }, sums)?;
    g.builder.add(Concat { axis: shape.len() - 1 }, &[x, products]).map(Some)
}
