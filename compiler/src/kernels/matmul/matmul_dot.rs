//! `tiled_dot.wgsl` for matrix products of 8-bit integers by dot products of four.

use crate::error::OpError;
use crate::ir::dim::product;
use crate::ir::op::Op;
use crate::kernels::kernel::{Candidate, InPlace, Kernel};
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
    cases: CASES,
    matrices: None,
    in_place: InPlace::Chain,
};

const CASES: &[&str] = &[
    r#"
%0 = input {"name":"a","dtype":"i8","shape":[2,3,37,29]}
%1 = input {"name":"b","dtype":"i8","shape":[3,29,41]}
%2 = matmul %0 %1 {"trans_a":false,"trans_b":false}
output "c" %2
"#,
    r#"
%0 = input {"name":"a","dtype":"u8","shape":[70,24]}
%1 = input {"name":"b","dtype":"u8","shape":[36,24]}
%2 = matmul %0 %1 {"trans_a":false,"trans_b":true}
output "c" %2
"#,
    r#"
%0 = input {"name":"a","dtype":"u8","shape":[33,90]}
%1 = constant {"dtype":"i8","shape":[90,70],"random":1}
%2 = constant {"dtype":"i32","shape":[70],"random":2}
%3 = matmul %0 %1 {"trans_a":false,"trans_b":false}
%4 = sub %3 %2
%5 = cast %4 {"to":"f32"}
%6 = affine %5 {"scale":0.01,"shift":3.0}
output "c" %6
"#,
    r#"
%0 = input {"name":"a","dtype":"i8","shape":[3,50,18]}
%1 = constant {"dtype":"u8","shape":[3,21,50],"random":3}
%2 = matmul %0 %1 {"trans_a":true,"trans_b":true}
output "c" %2
"#,
    r#"
symbol m 1..70
symbol k 1..40
%0 = input {"name":"a","dtype":"i8","shape":["m","k"]}
%1 = input {"name":"b","dtype":"u8","shape":["k",35]}
%2 = matmul %0 %1 {"trans_a":false,"trans_b":false}
output "c" %2
"#,
    r#"
%0 = input {"name":"a","dtype":"u8","shape":[21,2048]}
%1 = constant {"dtype":"i8","shape":[22,2048],"random":4}
%2 = matmul %0 %1 {"trans_a":false,"trans_b":true}
output "c" %2
"#,
];

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
