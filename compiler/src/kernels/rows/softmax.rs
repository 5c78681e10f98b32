//! `softmax.wgsl`: softmax and log-softmax along any axis.

use super::row_tiling::{Params, RowTiling};
use crate::error::OpError;
use crate::ir::op::Op;
use crate::kernels::cost::named;
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::shader::problem::Problem;
use crate::shader::row_view::{Lanes, RowView, rows_along_axis};
use crate::shader::{LaunchDraft, Shader, ValueType};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "softmax",
    wgsl: concat!(include_str!("../shared/preludes/rows.wgsl"), include_str!("softmax.wgsl")),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::named::<Params>("softmax")],
    in_place: InPlace::FirstAndEpilogue,
};

/// Maximum loads that an invocation has in flight. It is also the maximum number of elements (or vec4s) of a row that
/// an invocation keeps in registers.
const LOADS: u32 = 4;

fn rows<'a>(problem: &Problem<'a>) -> Option<(Problem<'a>, RowView)> {
    let Op::Softmax(op) = problem.op else { return None };
    Some(rows_along_axis(problem, op.axis))
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Some((merged, rows)) = rows(problem) else { return Vec::new() };
    let Some(p) = named::<Params>(problem, KERNEL.name) else { return Vec::new() };
    RowTiling::configurations(&merged, &rows, 8 * rows.lanes.count())
        .iter()
        .map(|s| s.candidate(&p, &merged, &rows, 2.0, LOADS))
        .collect()
}

fn launches(problem: &Problem<'_>, tiling: RowTiling) -> Result<Vec<LaunchDraft>, OpError> {
    let Op::Softmax(op) = problem.op else { return Err(OpError::new("the operator is not a softmax")) };
    let (problem, rows) = rows(problem).ok_or_else(|| OpError::new("the operator is not a softmax"))?;
    let problem = &problem;
    let mut shader = Shader::new(problem);
    let count = rows.lanes.count();
    tiling.declare_cached_rows(&mut shader, problem, &rows, LOADS);
    shader.alias("V", &ValueType::Float.wgsl(count));
    shader.workgroup_memory(tiling.threads() * 8 * count);
    let (prelude, at) = rows.at(&mut shader);
    shader.read("load", "row: u32, i: u32", &prelude, 0, &at);
    shader.write("store", "row: u32, i: u32", &prelude, &at)?;
    if matches!(rows.lanes, Lanes::Along(_)) {
        shader.replace(
            "max_lanes",
            "fn max_lanes(v: V) -> V { return V(max(max(v.x, v.y), max(v.z, v.w))); }".into(),
        );
        shader.replace("sum_lanes", "fn sum_lanes(v: V) -> V { return V(v.x + v.y + v.z + v.w); }".into());
    }
    if op.log {
        shader.replace(
            "finish",
            "fn finish(x: V, max_value: V, sum: V) -> V { return (x - max_value) - log(sum); }".into(),
        );
    }
    let flops = problem.result.elements().scale(8);
    let grid = tiling.grid(problem, &rows.rows());
    Ok(vec![shader.finish("softmax", KERNEL.wgsl, grid, flops)])
}
