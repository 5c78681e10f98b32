//! `arg_reduce.wgsl`: positions of largest and smallest elements along any axis.

use super::order::key;
use super::shares::{Params, Shares};
use crate::error::OpError;
use crate::ir::op::{ArgReduce, Op};
use crate::kernels::cost::named;
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::shader::problem::Problem;
use crate::shader::rows::{Reduced, reduced};
use crate::shader::{Class, Launch, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "arg_reduce",
    wgsl: include_str!("arg_reduce.wgsl"),
    candidates,
    launches,
    matrices: None,
    params: &[Group::named::<Params>("arg_reduce")],
    in_place: InPlace::Nothing,
};

fn rows<'a>(op: &ArgReduce, problem: &Problem<'a>) -> Reduced<'a> {
    let mut reduced = reduced(problem, &[op.axis], op.keepdims);
    reduced.rows = reduced.rows.single();
    reduced
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Op::ArgReduce(op) = problem.op else { return Vec::new() };
    let Some(p) = named::<Params>(problem, KERNEL.name) else { return Vec::new() };
    let Reduced { problem, rows, .. } = rows(op, problem);
    let shares = Shares::all(&problem, &rows, 8 * rows.lanes.count());
    shares.iter().map(|s| s.candidate(&p, &problem, &rows, 1.0, 1)).collect()
}

fn launches(problem: &Problem<'_>, candidate: &Candidate) -> Result<Vec<Launch>, OpError> {
    let Op::ArgReduce(op) = problem.op else { return Err(OpError::new("not an arg-max or arg-min")) };
    let Reduced { problem, rows, kept } = rows(op, problem);
    let lanes = rows.lanes.count();
    let mut shader = Shader::new(&problem);
    let shares = Shares::of(candidate);
    shares.split(&mut shader, &rows);
    let class = Class::of(problem.operands[0].dtype);
    shader.constant("LAST", op.last);
    shader.alias("V", &class.wgsl(lanes));
    shader.alias("U", &Class::Uint.wgsl(lanes));
    shader.alias("I", &Class::Int.wgsl(lanes));
    shader.replace("key", key(class, op.largest));
    shader.workgroup_memory(shares.threads() * 8 * lanes);
    let (prelude, at) = rows.at(&mut shader);
    shader.read("load", "row: u32, i: u32", &prelude, 0, &at);
    let (prelude, at) = rows.result(&mut shader, kept);
    shader.write("store", "row: u32", &prelude, &at)?;
    let flops = problem.operands[0].elements();
    let grid = shares.grid(&problem, &rows.rows());
    Ok(vec![shader.finish("arg_reduce", KERNEL.wgsl, grid, flops)?])
}
