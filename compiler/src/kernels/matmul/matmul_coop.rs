//! Kernel `matmul_coop`: matmuls of f16 or 8-bit integers on matrix units, by `coop.wgsl`. Constant second operands are
//! packed into panels (blocks of columns); other second operands pass through workgroup memory.

use super::eligibility::is_eligible;
use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::ir::op::{MatMul, Op};
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::kernels::shared::coop::{self, Panels, SecondOperand};
use crate::kernels::shared::dot::ConstantMatrices;
use crate::kernels::shared::matmul_sizes::{MatMulSizes, batch_axes, matmul_sizes, operand_batch};
use crate::kernels::shared::quantized::QuantizedColumns;
use crate::kernels::shared::sum_correction::{declare_sum_correction, needs_sign_correction};
use crate::kernels::shared::window::fits;
use crate::shader::access::Coordinates;
use crate::shader::problem::Problem;
use crate::shader::{LaunchDraft, Shader};
use crate::target::MatrixScope;

pub(crate) const KERNEL: Kernel = Kernel {
    name: "matmul_coop",
    wgsl: coop::WGSL,
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: Some(MatrixScope::Subgroup),
    params: &[Group::from_parameters::<coop::Params>()],
    in_place: InPlace::Epilogue,
};

/// Packs a constant second operand into panels (blocks of columns). Returns `None` if the operand is not constant, has
/// neither one matrix for all batches nor one matrix per batch, or exceeds a limit of the target.
fn panels(op: &MatMul, problem: &Problem<'_>) -> Option<Panels> {
    let ConstantMatrices { constant, axes, per_batch } = ConstantMatrices::from_matmul(op, problem)?;
    let shape = coop::matrix_shape(problem)?;
    let columns = axes.iter().find(|(name, _)| *name == 'N').map_or(1, |(_, size)| *size);
    let mut panels = coop::pack_panels(constant, &axes, shape.k as usize, shape.n);
    panels.panels_per_matrix = per_batch.then(|| columns.div_ceil(shape.n as usize));
    fits(problem, &panels.packed).then_some(panels)
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Op::MatMul(op) = problem.op else { return Vec::new() };
    let Some(MatMulSizes { batch, m, k, n }) = matmul_sizes(op, problem) else { return Vec::new() };
    if coop::matrix_shape(problem).is_none() || !is_eligible(KERNEL.name, problem) {
        return Vec::new();
    }
    let panels = panels(op, problem);
    let direct_b = panels.as_ref().is_some_and(|panels| panels.has_whole_fragments(problem));
    // The sign correction needs a constant with one matrix for all batches, or one for each.
    if panels.is_none() && needs_sign_correction(problem) {
        return Vec::new();
    }
    coop::tile_candidates(
        problem,
        problem.max(&product(&batch)),
        [&m, &n, &k].map(|d| problem.max(d)),
        direct_b,
        1.0,
    )
}

fn launches(problem: &Problem<'_>, config: coop::Config) -> Result<Vec<LaunchDraft>, OpError> {
    let Op::MatMul(op) = problem.op else { return Err(OpError::new("not a matmul")) };
    let MatMulSizes { batch, m, k, n } = matmul_sizes(op, problem)
        .ok_or_else(|| OpError::new("a matmul needs operands with at least two axes"))?;
    let mut shader = Shader::new(problem);
    let coordinates = |shader: &mut Shader<'_>, index: usize, first: &str, second: &str, lane: usize| {
        let (prelude, mut axes) = operand_batch(shader, index);
        let at = axes.len() + lane;
        axes.extend([first.to_string(), second.to_string()]);
        (prelude, Coordinates::vec4(axes, at))
    };
    let (prelude, at) = if op.trans_a {
        coordinates(&mut shader, 0, "k8", "row", 0)
    } else {
        coordinates(&mut shader, 0, "row", "k8", 1)
    };
    let function = coop::vec8_read(&mut shader, "load_a", "batch: u32, row: u32, k8: u32", &prelude, 0, &at)?;
    shader.replace("load_a", function);
    declare_sum_correction(&mut shader, [&n, &k], op.trans_b)?;
    let second = match panels(op, problem) {
        Some(panels) => SecondOperand::Panels(panels),
        None => match QuantizedColumns::from_matmul(op, problem) {
            Some(columns) => {
                let along_k = columns.declare_vec8_load(&mut shader)?;
                SecondOperand::Loaded { along_k }
            }
            None => {
                declare_load_b(&mut shader, op, &k, coordinates)?;
                SecondOperand::Loaded { along_k: op.trans_b }
            }
        },
    };
    shader.constant("ROWS_FIRST", false);
    let (prelude, mut axes) = batch_axes(&mut shader, &batch);
    axes.extend(["row".to_string(), "n4".to_string()]);
    let lanes = axes.len() - 1;
    shader.write("store", "batch: u32, row: u32, n4: u32", &prelude, &Coordinates::vec4(axes, lanes))?;
    let batch = product(&batch);
    let flops = m.mul(&n).mul(&k).mul(&batch).scale(2);
    let grid = coop::declare_matmul(&mut shader, config, [&m, &n, &k.ceil_div(8)], &batch, second)?;
    Ok(coop::with_matrix_requirements(shader.finish("matmul_coop", KERNEL.wgsl, grid, flops), problem))
}

/// Replaces the hook `load_b`, which reads the second operand, for an operand that is not constant.
fn declare_load_b(
    shader: &mut Shader<'_>,
    op: &MatMul,
    k: &Dim,
    coordinates: impl Fn(&mut Shader<'_>, usize, &str, &str, usize) -> (String, Coordinates),
) -> Result<(), OpError> {
    if op.trans_b {
        let (prelude, at) = coordinates(shader, 1, "k", "n8", 1);
        let function = coop::vec8_read(shader, "load_b", "batch: u32, k: u32, n8: u32", &prelude, 1, &at)?;
        shader.replace("load_b", function);
        return Ok(());
    }
    let (prelude, at) = coordinates(shader, 1, "k", "n8", 1);
    let function = coop::vec8_read(shader, "row_b", "batch: u32, k: u32, n8: u32", &prelude, 1, &at)?;
    // K is read in whole groups of eight. Rows past its end are zero, as the columns of a are.
    let size_k = shader.dim(k);
    let call = if k.is_multiple_of(8) {
        "return row_b(batch, k, n8);".to_string()
    } else {
        format!("if (k < {size_k}) {{ return row_b(batch, k, n8); }}\n    return Vec8();")
    };
    shader.replace(
        "load_b",
        format!("{function}fn load_b(batch: u32, k: u32, n8: u32) -> Vec8 {{\n    {call}\n}}\n"),
    );
    Ok(())
}
