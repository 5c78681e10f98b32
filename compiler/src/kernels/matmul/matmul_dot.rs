//! Kernel `matmul_dot`: matmuls of 8-bit integers by dot products of four elements, with `tiled_dot.wgsl`.

use super::eligibility::is_eligible;
use crate::error::OpError;
use crate::ir::dim::product;
use crate::ir::op::Op;
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::kernels::shared::dot::{self, Signs};
use crate::kernels::shared::matmul_sizes::{MatMulSizes, matmul_sizes};
use crate::kernels::shared::tiled_dot;
use crate::shader::problem::Problem;
use crate::shader::{LaunchDraft, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "matmul_dot",
    wgsl: tiled_dot::WGSL,
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::from_parameters::<tiled_dot::Params>()],
    in_place: InPlace::Epilogue,
};

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let (Op::MatMul(op), Some(signs)) = (problem.op, Signs::from_problem(problem)) else { return Vec::new() };
    let Some(sizes) = matmul_sizes(op, problem).filter(|_| dot::readable(op, problem)) else {
        return Vec::new();
    };
    if !is_eligible(KERNEL.name, problem) {
        return Vec::new();
    }
    let batch = problem.max(&product(&sizes.batch));
    tiled_dot::tile_candidates(
        problem,
        signs,
        batch,
        [&sizes.m, &sizes.n, &sizes.k].map(|d| problem.max(d)),
        dot::packed_b(op, problem).is_some(),
    )
}

fn launches(problem: &Problem<'_>, config: tiled_dot::Config) -> Result<Vec<LaunchDraft>, OpError> {
    let (Op::MatMul(op), Some(signs)) = (problem.op, Signs::from_problem(problem)) else {
        return Err(OpError::new("the operator is not a matmul of 8-bit integers"));
    };
    let MatMulSizes { batch, m, k, n } = matmul_sizes(op, problem)
        .ok_or_else(|| OpError::new("a matmul needs operands with at least two axes"))?;
    let mut shader = Shader::new(problem);
    dot::declare_load_a(&mut shader, op, signs);
    dot::declare_load_b(&mut shader, op, signs, [&n, &k]);
    dot::declare_store(&mut shader, &batch)?;
    let batch = product(&batch);
    let flops = m.mul(&n).mul(&k).mul(&batch).scale(2);
    let grid = tiled_dot::declare_matmul(&mut shader, config, signs, &batch, [&m, &n, &k]);
    Ok(vec![shader.finish("matmul_dot", KERNEL.wgsl, grid, flops)])
}
