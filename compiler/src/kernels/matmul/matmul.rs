//! `tiled.wgsl` for matrix products of floats.

use crate::error::OpError;
use crate::ir::dim::product;
use crate::ir::op::Op;
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::kernels::shared::codes::Columns;
use crate::kernels::shared::product::{batch_axes, matrix_coordinates, operand_batch, sizes};
use crate::kernels::shared::tiled;
use crate::shader::access::Coordinates;
use crate::shader::problem::Problem;
use crate::shader::{Launch, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "matmul",
    wgsl: tiled::WGSL,
    candidates,
    launches,
    matrices: None,
    params: &[Group::of::<tiled::Params>()],
    in_place: InPlace::Epilogue,
};

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Op::MatMul(op) = problem.op else { return Vec::new() };
    if !problem.computed.is_float() {
        return Vec::new();
    }
    let Some(sizes) = sizes(op, problem) else { return Vec::new() };
    let (m, n, k) = (problem.max(&sizes.m), problem.max(&sizes.n), problem.max(&sizes.k));
    let columns = Columns::of(op, problem);
    if columns.is_some_and(|columns| columns.only_streams(problem, m)) {
        return Vec::new();
    }
    // Four columns of codes are a word.
    let apart = [op.trans_a, op.trans_b && columns.is_none()];
    tiled::tiles(problem, problem.max(&product(&sizes.batch)), [m, n, k], apart)
}

fn launches(problem: &Problem<'_>, candidate: &Candidate) -> Result<Vec<Launch>, OpError> {
    let Op::MatMul(op) = problem.op else { return Err(OpError::new("not a matrix product")) };
    let sizes = sizes(op, problem).ok_or_else(|| OpError::new("operands of rank two or more are needed"))?;
    let mut shader = Shader::new(problem);
    for (name, value) in &candidate.knobs {
        shader.knob(name, *value);
    }
    shader.size("size_m", &sizes.m);
    shader.size("size_n", &sizes.n);
    shader.size("size_k", &sizes.k);
    let a = matrix_coordinates(&mut shader, 0, op.trans_a, "row", "k4");
    shader.read("load_a", "batch: u32, row: u32, k4: u32", &a.0, 0, &a.1);
    match Columns::of(op, problem) {
        Some(columns) => columns.load_fours(&mut shader)?,
        None => {
            let b = matrix_coordinates_columns(&mut shader, 1, op.trans_b, "k", "n4");
            shader.read("load_b", "batch: u32, k: u32, n4: u32", &b.0, 1, &b.1);
        }
    }
    let (prelude, mut axes) = batch_axes(&mut shader, &sizes.batch);
    axes.extend(["row".to_string(), "n4".to_string()]);
    let lanes = axes.len() - 1;
    shader.write("store", "batch: u32, row: u32, n4: u32", &prelude, &Coordinates::four(axes, lanes))?;
    let batch = product(&sizes.batch);
    let flops = sizes.m.mul(&sizes.n).mul(&sizes.k).mul(&batch).scale(2);
    let grid = tiled::grid(&mut shader, candidate, &batch, &sizes.m, &sizes.n);
    Ok(vec![shader.finish("matmul", KERNEL.wgsl, grid, flops)?])
}

/// Coordinates of four elements of operand `index` along N: depth `k`, group `n4`.
fn matrix_coordinates_columns(
    shader: &mut Shader<'_>,
    index: usize,
    transposed: bool,
    k: &str,
    n4: &str,
) -> (String, Coordinates) {
    let (prelude, mut axes) = operand_batch(shader, index);
    let at = axes.len();
    if transposed {
        axes.extend([n4.to_string(), k.to_string()]);
        (prelude, Coordinates::four(axes, at))
    } else {
        axes.extend([k.to_string(), n4.to_string()]);
        (prelude, Coordinates::four(axes, at + 1))
    }
}
