//! `arg_reduce.wgsl`: arg-max and arg-min along any axis.

use super::row_tiling::{Params, RowTiling};
use super::sort_key::key_function;
use crate::error::OpError;
use crate::ir::op::{ArgReduce, Op};
use crate::kernels::cost::named;
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::shader::problem::Problem;
use crate::shader::row_view::{ReductionRows, reduction_rows};
use crate::shader::{LaunchDraft, Shader, ValueType};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "arg_reduce",
    wgsl: concat!(include_str!("../shared/preludes/rows.wgsl"), include_str!("arg_reduce.wgsl")),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::named::<Params>("arg_reduce")],
    in_place: InPlace::Nothing,
};

fn rows<'a>(op: &ArgReduce, problem: &Problem<'a>) -> ReductionRows<'a> {
    let mut reduced = reduction_rows(problem, &[op.axis], op.keepdims);
    reduced.rows = reduced.rows.without_lanes_along();
    reduced
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Op::ArgReduce(op) = problem.op else { return Vec::new() };
    let Some(p) = named::<Params>(problem, KERNEL.name) else { return Vec::new() };
    let ReductionRows { problem, rows, .. } = rows(op, problem);
    let tilings = RowTiling::configurations(&problem, &rows, 8 * rows.lanes.count());
    tilings.iter().map(|s| s.candidate(&p, &problem, &rows, 1.0, 1)).collect()
}

fn launches(problem: &Problem<'_>, tiling: RowTiling) -> Result<Vec<LaunchDraft>, OpError> {
    let Op::ArgReduce(op) = problem.op else {
        return Err(OpError::new("the operator is not an arg-max or arg-min"));
    };
    let ReductionRows { problem, rows, kept } = rows(op, problem);
    let lanes = rows.lanes.count();
    let mut shader = Shader::new(&problem);
    tiling.declare_rows(&mut shader, &rows);
    let class = ValueType::from_dtype(problem.operands[0].dtype);
    shader.constant("LAST", op.last);
    shader.alias("V", &class.wgsl(lanes));
    shader.alias("U", &ValueType::Uint.wgsl(lanes));
    shader.alias("I", &ValueType::Int.wgsl(lanes));
    shader.replace("key", key_function(class, op.largest));
    shader.workgroup_memory(tiling.threads() * 8 * lanes);
    let (prelude, at) = rows.at(&mut shader);
    shader.read("load", "row: u32, i: u32", &prelude, 0, &at);
    let (prelude, at) = rows.result(&mut shader, kept);
    shader.write("store", "row: u32", &prelude, &at)?;
    let flops = problem.operands[0].elements();
    let grid = tiling.grid(&problem, &rows.rows());
    Ok(vec![shader.finish("arg_reduce", KERNEL.wgsl, grid, flops)])
}
