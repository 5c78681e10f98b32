//! Matrix products as the kernels see them: sizes, the axes of the batch, and coordinates of operands.

use crate::ir::dim::Dim;
use crate::ir::op::{MatMul, Op};
use crate::shader::Shader;
use crate::shader::access::Coordinates;
use crate::shader::problem::Problem;
use crate::shader::walk::decompose;

/// Batch axes, M, K and N.
pub(crate) struct Sizes {
    pub(crate) batch: Vec<Dim>,
    pub(crate) m: Dim,
    pub(crate) k: Dim,
    pub(crate) n: Dim,
}

/// The sizes of a product; `None` when an operand is not strided.
pub(crate) fn sizes(op: &MatMul, problem: &Problem<'_>) -> Option<Sizes> {
    let (a, b) = (problem.operands.first()?, problem.operands.get(1)?);
    if a.rank() < 2 || b.rank() < 2 {
        return None;
    }
    let (m, k) = (a.size_from_end(2), a.size_from_end(1));
    let (m, k) = if op.trans_a { (k, m) } else { (m, k) };
    let n = b.size_from_end(if op.trans_b { 2 } else { 1 });
    let shape = &problem.result.shape;
    Some(Sizes { batch: shape[..shape.len() - 2].to_vec(), m, k, n })
}

/// Whether matrices, as many as these axes count, are one for each product of a batch: in order, or picked by numbers.
pub(crate) fn has_one_each(problem: &Problem<'_>, axes: &[usize], batch: &[Dim]) -> bool {
    match problem.op {
        Op::GatherMatMul(_) => axes.len() == 1,
        _ => axes.len() == batch.len() && axes.iter().zip(batch).all(|(own, all)| *all == Dim::from(*own)),
    }
}

/// Statements that split `batch` into the result's leading axes, and those axes.
pub(crate) fn batch_axes(shader: &mut Shader<'_>, batch: &[Dim]) -> (String, Vec<String>) {
    let order: Vec<usize> = (0..batch.len()).rev().collect();
    decompose(shader, batch, &order, "batch")
}

/// The batch coordinates of an operand, broadcast from the result's.
pub(crate) fn operand_batch(shader: &mut Shader<'_>, index: usize) -> (String, Vec<String>) {
    let problem = shader.problem;
    let shape = &problem.result.shape;
    let (prelude, axes) = batch_axes(shader, &shape[..shape.len() - 2]);
    let operand = &problem.operands[index];
    let own = operand.rank() - 2;
    let axes: Vec<String> = axes[axes.len().saturating_sub(own)..]
        .iter()
        .zip(&operand.shape)
        .map(|(a, d)| if d.is(1) { "0u".to_string() } else { a.clone() })
        .collect();
    let prelude = if axes.iter().all(|a| a == "0u") { String::new() } else { prelude };
    (prelude, axes)
}

/// Coordinates of a vector of elements of the only matrix of a tensor: its row, and its place among the vectors of the row.
pub(crate) fn one_matrix(rank: usize, at: [&str; 2]) -> Coordinates {
    let mut axes = vec!["0u".to_string(); rank.saturating_sub(2)];
    axes.extend(at.map(str::to_string));
    Coordinates::four(axes, rank - 1)
}

/// Coordinates of four elements of operand `index` along K: row `row`, group `k4`.
pub(crate) fn matrix_coordinates(
    shader: &mut Shader<'_>,
    index: usize,
    transposed: bool,
    row: &str,
    k4: &str,
) -> (String, Coordinates) {
    let (prelude, mut axes) = operand_batch(shader, index);
    let at = axes.len();
    if transposed {
        axes.extend([k4.to_string(), row.to_string()]);
        (prelude, Coordinates::four(axes, at))
    } else {
        axes.extend([row.to_string(), k4.to_string()]);
        (prelude, Coordinates::four(axes, at + 1))
    }
}
