//! `coop.wgsl` for matrix products in f16 or of 8-bit integers: constants as panels, other second operands through
//! workgroup memory.

use super::matvec_fragments;
use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::ir::op::{MatMul, Op};
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::kernels::shared::codes::Columns;
use crate::kernels::shared::coop::{self, Panels, Second, sums};
use crate::kernels::shared::dot::{Matrices, Signs};
use crate::kernels::shared::product::{Sizes, batch_axes, operand_batch, sizes};
use crate::kernels::shared::window::fits;
use crate::shader::access::Coordinates;
use crate::shader::problem::Problem;
use crate::shader::{Launch, Shader};
use crate::target::MatrixScope;

pub(crate) const KERNEL: Kernel = Kernel {
    name: "matmul_coop",
    wgsl: coop::WGSL,
    candidates,
    launches,
    matrices: Some(MatrixScope::Subgroup),
    params: &[Group::of::<coop::Params>()],
    in_place: InPlace::Epilogue,
};

/// The second operand as panels, when it is a constant: one matrix for all products of the batch, or one for each.
fn panels(op: &MatMul, problem: &Problem<'_>) -> Option<Panels> {
    let Matrices { constant, axes, each } = Matrices::of(op, problem)?;
    let shape = coop::matrices(problem)?;
    let wide = axes.iter().find(|(name, _)| *name == 'N').map_or(1, |(_, size)| *size);
    let mut panels = coop::pack_panels(constant, &axes, shape.k as usize, shape.n);
    panels.apart = each.then(|| wide.div_ceil(shape.n as usize));
    fits(problem, &panels.packed).then_some(panels)
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Op::MatMul(op) = problem.op else { return Vec::new() };
    let Some(Sizes { batch, m, k, n }) = sizes(op, problem) else { return Vec::new() };
    let few = Columns::of(op, problem).is_some_and(|c| c.only_streams(problem, problem.max(&m)));
    if coop::matrices(problem).is_none() || few || matvec_fragments::streams(problem) {
        return Vec::new();
    }
    let panels = panels(op, problem);
    let direct = panels.as_ref().is_some_and(|panels| panels.in_fragments(problem));
    // What makes up for changed signs is known for constants with a matrix for all products or one for each.
    if panels.is_none() && Signs::of(problem).is_some_and(|signs| signs.flips(0)) {
        return Vec::new();
    }
    coop::tiles(problem, problem.max(&product(&batch)), [&m, &n, &k].map(|d| problem.max(d)), direct, 1.0)
}

fn launches(problem: &Problem<'_>, candidate: &Candidate) -> Result<Vec<Launch>, OpError> {
    let Op::MatMul(op) = problem.op else { return Err(OpError::new("not a matrix product")) };
    let Sizes { batch, m, k, n } =
        sizes(op, problem).ok_or_else(|| OpError::new("operands of rank two or more are needed"))?;
    let mut shader = Shader::new(problem);
    let matrix = |shader: &mut Shader<'_>, index: usize, first: &str, second: &str, lane: usize| {
        let (prelude, mut axes) = operand_batch(shader, index);
        let at = axes.len() + lane;
        axes.extend([first.to_string(), second.to_string()]);
        (prelude, Coordinates::four(axes, at))
    };
    let (prelude, at) = if op.trans_a {
        matrix(&mut shader, 0, "k8", "row", 0)
    } else {
        matrix(&mut shader, 0, "row", "k8", 1)
    };
    let text = coop::eight(&mut shader, "load_a", "batch: u32, row: u32, k8: u32", &prelude, 0, &at)?;
    shader.replace("load_a", text);
    sums::correct(&mut shader, [&n, &k], op.trans_b)?;
    let second = match panels(op, problem) {
        Some(panels) => Second::Panels(panels),
        None => match Columns::of(op, problem) {
            Some(columns) => {
                let along_k = columns.load_eights(&mut shader)?;
                Second::Loaded { along_k }
            }
            None => {
                load_b(&mut shader, op, &k, matrix)?;
                Second::Loaded { along_k: op.trans_b }
            }
        },
    };
    shader.constant("ROWS_FIRST", false);
    let (prelude, mut axes) = batch_axes(&mut shader, &batch);
    axes.extend(["row".to_string(), "n4".to_string()]);
    let lanes = axes.len() - 1;
    shader.write("store", "batch: u32, row: u32, n4: u32", &prelude, &Coordinates::four(axes, lanes))?;
    let batch = product(&batch);
    let flops = m.mul(&n).mul(&k).mul(&batch).scale(2);
    let grid = coop::declare(&mut shader, candidate, [&m, &n, &k.ceil_div(8)], &batch, second)?;
    Ok(coop::launch(shader.finish("matmul_coop", KERNEL.wgsl, grid, flops)?, problem))
}

/// The hook for a second operand that is no constant.
fn load_b(
    shader: &mut Shader<'_>,
    op: &MatMul,
    k: &Dim,
    matrix: impl Fn(&mut Shader<'_>, usize, &str, &str, usize) -> (String, Coordinates),
) -> Result<(), OpError> {
    if op.trans_b {
        let (prelude, at) = matrix(shader, 1, "k", "n8", 1);
        let text = coop::eight(shader, "load_b", "batch: u32, k: u32, n8: u32", &prelude, 1, &at)?;
        shader.replace("load_b", text);
        return Ok(());
    }
    let (prelude, at) = matrix(shader, 1, "k", "n8", 1);
    let text = coop::eight(shader, "row_b", "batch: u32, k: u32, n8: u32", &prelude, 1, &at)?;
    // K is walked in whole groups of eight; rows past its end count as zero, as the columns of a do.
    let deep = shader.dim(k);
    let call = if k.is_multiple_of(8) {
        "return row_b(batch, k, n8);".to_string()
    } else {
        format!("if (k < {deep}) {{ return row_b(batch, k, n8); }}\n    return Unit();")
    };
    shader.replace(
        "load_b",
        format!("{text}fn load_b(batch: u32, k: u32, n8: u32) -> Unit {{\n    {call}\n}}\n"),
    );
    Ok(())
}
