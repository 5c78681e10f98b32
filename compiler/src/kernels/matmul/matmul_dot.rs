//! `tiled_dot.wgsl` for matrix products of 8-bit integers by dot products of four.

use crate::error::OpError;
use crate::ir::dim::product;
use crate::ir::op::Op;
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::kernels::shared::dot::{self, Signs};
use crate::kernels::shared::product::{Sizes, sizes};
use crate::kernels::shared::tiled_dot;
use crate::shader::problem::Problem;
use crate::shader::{Launch, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "matmul_dot",
    wgsl: tiled_dot::WGSL,
    candidates,
    launches,
    matrices: None,
    params: &[Group::of::<tiled_dot::Params>()],
    in_place: InPlace::Epilogue,
};

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let (Op::MatMul(op), Some(signs)) = (problem.op, Signs::of(problem)) else { return Vec::new() };
    let Some(sizes) = sizes(op, problem).filter(|_| dot::readable(op, problem)) else { return Vec::new() };
    let batch = problem.max(&product(&sizes.batch));
    let packed = dot::packed_b(op, problem).map(|(packed, _)| packed);
    tiled_dot::tiles(
        problem,
        signs,
        batch,
        [&sizes.m, &sizes.n, &sizes.k].map(|d| problem.max(d)),
        packed.as_ref(),
    )
}

fn launches(problem: &Problem<'_>, candidate: &Candidate) -> Result<Vec<Launch>, OpError> {
    let (Op::MatMul(op), Some(signs)) = (problem.op, Signs::of(problem)) else {
        return Err(OpError::new("not a product of 8-bit integers"));
    };
    let Sizes { batch, m, k, n } =
        sizes(op, problem).ok_or_else(|| OpError::new("operands of rank two or more are needed"))?;
    let mut shader = Shader::new(problem);
    dot::load_a(&mut shader, op, signs);
    dot::load_b(&mut shader, op, signs, [&n, &k]);
    dot::store(&mut shader, &batch)?;
    let batch = product(&batch);
    let flops = m.mul(&n).mul(&k).mul(&batch).scale(2);
    let grid = tiled_dot::declare(&mut shader, candidate, signs, &batch, [&m, &n, &k]);
    Ok(vec![shader.finish("matmul_dot", KERNEL.wgsl, grid, flops)?])
}
