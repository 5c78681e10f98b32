//! `softmax.wgsl`: softmax and log-softmax along any axis.

use super::shares::{Params, Shares};
use crate::error::OpError;
use crate::ir::op::Op;
use crate::kernels::cost::named;
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::shader::problem::Problem;
use crate::shader::rows::{Lanes, Rows, along_axis};
use crate::shader::{Class, Launch, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "softmax",
    wgsl: include_str!("softmax.wgsl"),
    candidates,
    launches,
    matrices: None,
    params: &[Group::named::<Params>("softmax")],
    in_place: InPlace::FirstAndEpilogue,
};

/// Registers for the elements of a row that an invocation keeps.
const KEEP: u32 = 4;

fn rows<'a>(problem: &Problem<'a>) -> Option<(Problem<'a>, Rows)> {
    let Op::Softmax(op) = problem.op else { return None };
    Some(along_axis(problem, op.axis))
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Some((merged, rows)) = rows(problem) else { return Vec::new() };
    let Some(p) = named::<Params>(problem, KERNEL.name) else { return Vec::new() };
    Shares::all(&merged, &rows, 8 * rows.lanes.count())
        .iter()
        .map(|s| s.candidate(&p, &merged, &rows, 2.0, KEEP))
        .collect()
}

fn launches(problem: &Problem<'_>, candidate: &Candidate) -> Result<Vec<Launch>, OpError> {
    let Op::Softmax(op) = problem.op else { return Err(OpError::new("not a softmax")) };
    let (problem, rows) = rows(problem).ok_or_else(|| OpError::new("not a softmax"))?;
    let problem = &problem;
    let mut shader = Shader::new(problem);
    let shares = Shares::of(candidate);
    let count = rows.lanes.count();
    shares.knobs(&mut shader, problem, &rows, KEEP);
    shader.alias("V", &Class::Float.wgsl(count));
    shader.workgroup_memory(shares.threads() * 8 * count);
    let (prelude, at) = rows.at(&mut shader);
    shader.read("load", "row: u32, i: u32", &prelude, 0, &at);
    shader.write("store", "row: u32, i: u32", &prelude, &at)?;
    if matches!(rows.lanes, Lanes::Along(_)) {
        shader.replace(
            "across_max",
            "fn across_max(v: V) -> V { return V(max(max(v.x, v.y), max(v.z, v.w))); }".into(),
        );
        shader.replace("across_sum", "fn across_sum(v: V) -> V { return V(v.x + v.y + v.z + v.w); }".into());
    }
    if op.log {
        shader.replace(
            "finish",
            "fn finish(x: V, top: V, sum: V) -> V { return (x - top) - log(sum); }".into(),
        );
    }
    let flops = problem.result.elements().scale(8);
    let grid = shares.grid(problem, &rows.rows());
    Ok(vec![shader.finish("softmax", KERNEL.wgsl, grid, flops)?])
}
