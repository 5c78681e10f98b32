//! Kernel `matmul`: float matmuls with tiles in workgroup memory, by `tiled.wgsl`.

use super::eligibility::is_eligible;
use crate::error::OpError;
use crate::ir::dim::product;
use crate::ir::op::Op;
use crate::kernels::kernel::{Candidate, Configuration, Group, InPlace, Kernel};
use crate::kernels::shared::matmul_sizes::{batch_axes, matmul_sizes, matrix_coordinates, operand_batch};
use crate::kernels::shared::quantized::QuantizedColumns;
use crate::kernels::shared::tiled;
use crate::shader::access::Coordinates;
use crate::shader::problem::Problem;
use crate::shader::{LaunchDraft, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "matmul",
    wgsl: tiled::WGSL,
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::from_parameters::<tiled::Params>()],
    in_place: InPlace::Epilogue,
};

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Op::MatMul(op) = problem.op else { return Vec::new() };
    if !problem.computed.is_float() || !is_eligible(KERNEL.name, problem) {
        return Vec::new();
    }
    let Some(sizes) = matmul_sizes(op, problem) else { return Vec::new() };
    let (m, n, k) = (problem.max(&sizes.m), problem.max(&sizes.n), problem.max(&sizes.k));
    let columns = QuantizedColumns::from_matmul(op, problem);
    // A packed word per column serves four adjacent columns of quantized weights.
    let strided = [op.trans_a, op.trans_b && columns.is_none()];
    tiled::tile_candidates(problem, problem.max(&product(&sizes.batch)), [m, n, k], strided)
}

fn launches(problem: &Problem<'_>, config: tiled::Config) -> Result<Vec<LaunchDraft>, OpError> {
    let Op::MatMul(op) = problem.op else { return Err(OpError::new("not a matmul")) };
    let sizes = matmul_sizes(op, problem)
        .ok_or_else(|| OpError::new("a matmul needs operands with at least two axes"))?;
    let mut shader = Shader::new(problem);
    config.declare(&mut shader);
    shader.size("size_m", &sizes.m);
    shader.size("size_n", &sizes.n);
    shader.size("size_k", &sizes.k);
    let a = matrix_coordinates(&mut shader, 0, op.trans_a, "row", "k4");
    shader.read("load_a", "batch: u32, row: u32, k4: u32", &a.0, 0, &a.1);
    match QuantizedColumns::from_matmul(op, problem) {
        Some(columns) => columns.declare_vec4_load(&mut shader)?,
        None => {
            let b = column_vec4_coordinates(&mut shader, 1, op.trans_b, "k", "n4");
            shader.read("load_b", "batch: u32, k: u32, n4: u32", &b.0, 1, &b.1);
        }
    }
    let (prelude, mut axes) = batch_axes(&mut shader, &sizes.batch);
    axes.extend(["row".to_string(), "n4".to_string()]);
    let lanes = axes.len() - 1;
    shader.write("store", "batch: u32, row: u32, n4: u32", &prelude, &Coordinates::vec4(axes, lanes))?;
    let batch = product(&sizes.batch);
    let flops = sizes.m.mul(&sizes.n).mul(&sizes.k).mul(&batch).scale(2);
    let grid = tiled::declare_grid(&mut shader, config, &batch, &sizes.m, &sizes.n);
    Ok(vec![shader.finish("matmul", KERNEL.wgsl, grid, flops)])
}

/// Returns the coordinates of four elements of the second operand along N: row `k`, columns from `4 * n4`.
fn column_vec4_coordinates(
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
        (prelude, Coordinates::vec4(axes, at))
    } else {
        axes.extend([k.to_string(), n4.to_string()]);
        (prelude, Coordinates::vec4(axes, at + 1))
    }
}
