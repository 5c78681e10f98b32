//! `cum_sum.wgsl`: cumulative sum along any axis, of floats and integers.

use super::row_tiling::{Params, RowTiling};
use crate::error::OpError;
use crate::ir::op::Op;
use crate::kernels::cost::{Estimate, barriers, named};
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::shader::problem::Problem;
use crate::shader::row_view::{RowView, rows_along_axis};
use crate::shader::{LaunchDraft, Shader, ValueType};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "cum_sum",
    wgsl: concat!(include_str!("../shared/preludes/rows.wgsl"), include_str!("cum_sum.wgsl")),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::named::<Params>("cum_sum")],
    in_place: InPlace::Nothing,
};

/// Returns the problem of a cumulative sum with merged axes, and the view of its operand as rows. A vec4 may hold
/// elements of four rows, but not four elements of one row.
fn rows<'a>(problem: &Problem<'a>) -> Option<(Problem<'a>, RowView)> {
    let Op::CumSum(op) = problem.op else { return None };
    let (problem, rows) = rows_along_axis(problem, op.axis);
    Some((problem, rows.without_lanes_along()))
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Some((merged, rows)) = rows(problem) else { return Vec::new() };
    let Some(p) = named::<Params>(problem, KERNEL.name) else { return Vec::new() };
    RowTiling::configurations(&merged, &rows, 4 * rows.lanes.count())
        .iter()
        .map(|s| {
            let candidate = s.candidate(&p, &merged, &rows, 1.0, 1);
            // Each block takes a scan through workgroup memory.
            let blocks = (problem.max(&rows.length()) as f64 / f64::from(s.lanes)).ceil();
            let lanes = problem.max(&rows.rows()) as f64 * f64::from(s.lanes);
            let scans = barriers(problem, lanes, blocks * f64::from(s.lanes.ilog2()) * 2.0);
            let estimate = Estimate { serial: scans, ..candidate.estimate };
            candidate.with_estimate(estimate)
        })
        .collect()
}

fn launches(problem: &Problem<'_>, tiling: RowTiling) -> Result<Vec<LaunchDraft>, OpError> {
    let Op::CumSum(op) = problem.op else { return Err(OpError::new("the operator is not a cumulative sum")) };
    let (problem, rows) =
        rows(problem).ok_or_else(|| OpError::new("the operator is not a cumulative sum"))?;
    let mut shader = Shader::new(&problem);
    tiling.declare_rows(&mut shader, &rows);
    shader.constant("EXCLUSIVE", op.exclusive);
    shader.constant("REVERSE", op.reverse);
    shader.alias("V", &ValueType::from_dtype(problem.computed).wgsl(rows.lanes.count()));
    shader.workgroup_memory(tiling.threads() * 4 * rows.lanes.count());
    let (prelude, at) = rows.at(&mut shader);
    shader.read("load", "row: u32, i: u32", &prelude, 0, &at);
    shader.write("store", "row: u32, i: u32", &prelude, &at)?;
    let flops = problem.result.elements();
    let grid = tiling.grid(&problem, &rows.rows());
    Ok(vec![shader.finish("cum_sum", KERNEL.wgsl, grid, flops)])
}
