//! Sizes of a matmul, its batch axes, and the coordinates of its operands in WGSL.

use crate::ir::dim::Dim;
use crate::ir::op::{MatMul, Op};
use crate::shader::Shader;
use crate::shader::access::Coordinates;
use crate::shader::element_walk::split_index;
use crate::shader::problem::Problem;

/// Sizes of a matmul: batch axes, M, K and N.
pub(crate) struct MatMulSizes {
    pub(crate) batch: Vec<Dim>,
    pub(crate) m: Dim,
    pub(crate) k: Dim,
    pub(crate) n: Dim,
}

/// Returns the sizes of a matmul, or `None` if an operand has less than two axes.
pub(crate) fn matmul_sizes(op: &MatMul, problem: &Problem<'_>) -> Option<MatMulSizes> {
    let (a, b) = (problem.operands.first()?, problem.operands.get(1)?);
    if a.rank() < 2 || b.rank() < 2 {
        return None;
    }
    let (m, k) = (a.size_from_end(2), a.size_from_end(1));
    let (m, k) = if op.trans_a { (k, m) } else { (m, k) };
    let n = b.size_from_end(if op.trans_b { 2 } else { 1 });
    let shape = &problem.result.shape;
    Some(MatMulSizes { batch: shape[..shape.len() - 2].to_vec(), m, k, n })
}

/// True if a constant, whose axes before the matrix axes have the sizes `axes`, holds one matrix for each batch. The
/// matrices are in the order of the batch, or each batch selects one by index (`GatherMatMul`).
pub(crate) fn has_matrix_per_batch(problem: &Problem<'_>, axes: &[usize], batch: &[Dim]) -> bool {
    match problem.op {
        Op::GatherMatMul(_) => axes.len() == 1,
        _ => {
            axes.len() == batch.len() && axes.iter().zip(batch).all(|(axis, size)| *size == Dim::from(*axis))
        }
    }
}

/// Returns WGSL statements that split the index `batch` into coordinates along the result's batch axes, and the names
/// of these coordinates.
pub(crate) fn batch_axes(shader: &mut Shader<'_>, batch: &[Dim]) -> (String, Vec<String>) {
    let order: Vec<usize> = (0..batch.len()).rev().collect();
    split_index(shader, batch, &order, "batch")
}

/// Returns WGSL statements, and the coordinates of operand `index` along its batch axes that these statements compute.
/// Axes of size 1 are broadcast.
pub(crate) fn operand_batch(shader: &mut Shader<'_>, index: usize) -> (String, Vec<String>) {
    let problem = shader.problem;
    let shape = &problem.result.shape;
    let (prelude, axes) = batch_axes(shader, &shape[..shape.len() - 2]);
    let operand = &problem.operands[index];
    let batch_rank = operand.rank() - 2;
    let axes: Vec<String> = axes[axes.len().saturating_sub(batch_rank)..]
        .iter()
        .zip(&operand.shape)
        .map(|(a, d)| if d.is(1) { "0u".to_string() } else { a.clone() })
        .collect();
    let prelude = if axes.iter().all(|a| a == "0u") { String::new() } else { prelude };
    (prelude, axes)
}

/// Returns the WGSL coordinates of a vec4 in a tensor that holds one matrix: row `at[0]`, and vec4 `at[1]` of this row.
pub(crate) fn single_matrix_coordinates(rank: usize, at: [&str; 2]) -> Coordinates {
    let mut axes = vec!["0u".to_string(); rank.saturating_sub(2)];
    axes.extend(at.map(str::to_string));
    Coordinates::vec4(axes, rank - 1)
}

/// Returns the WGSL coordinates of four elements of matmul operand `index`, in row `row` at four K positions from
/// `4 * k4`, and the statements that compute the coordinates.
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
        (prelude, Coordinates::vec4(axes, at))
    } else {
        axes.extend([row.to_string(), k4.to_string()]);
        (prelude, Coordinates::vec4(axes, at + 1))
    }
}
