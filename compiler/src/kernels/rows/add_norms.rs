//! `add_norms.wgsl`: the sum of two root-mean-square normalisations of rows along the last axis.

use super::shares::{Params, Shares};
use crate::error::OpError;
use crate::ir::op::Op;
use crate::kernels::cost::named;
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::shader::problem::Problem;
use crate::shader::rows::{Lanes, Rows, along_axis};
use crate::shader::{Class, Launch, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "add_norms",
    wgsl: include_str!("add_norms.wgsl"),
    candidates,
    launches,
    matrices: None,
    params: &[Group::named::<Params>(PARAMETERS)],
    in_place: InPlace::FirstAndEpilogue,
};

/// The group of parameters: it walks rows as `normalize` does.
const PARAMETERS: &str = "normalize";
/// Registers for the elements of either row that an invocation keeps.
const KEEP: u32 = 4;

/// The problem with as few axes as it can have, its rows, and the epsilons.
fn rows<'a>(problem: &Problem<'a>) -> Option<(Problem<'a>, Rows, [f32; 2])> {
    let Op::AddNorms(op) = problem.op else { return None };
    let axis = problem.operands.first()?.rank().checked_sub(1)?;
    let (problem, rows) = along_axis(problem, axis);
    Some((problem, rows, op.epsilons))
}

/// Bytes of workgroup memory per invocation.
fn memory(rows: &Rows) -> u32 {
    rows.lanes.count() * 8
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Some((problem, rows, _)) = rows(problem) else { return Vec::new() };
    let Some(p) = named::<Params>(&problem, PARAMETERS) else { return Vec::new() };
    let shares = Shares::all(&problem, &rows, memory(&rows)).into_iter();
    shares.map(|shares| shares.candidate(&p, &problem, &rows, 2.0, KEEP)).collect()
}

fn launches(problem: &Problem<'_>, candidate: &Candidate) -> Result<Vec<Launch>, OpError> {
    let (problem, rows, [first, second]) =
        rows(problem).ok_or_else(|| OpError::new("not a sum of normalisations"))?;
    let shares = Shares::of(candidate);
    let mut shader = Shader::new(&problem);
    shares.knobs(&mut shader, &problem, &rows, KEEP);
    shader.size("elements", &problem.result.size_from_end(1));
    shader.number("first_epsilon", first);
    shader.number("second_epsilon", second);
    shader.alias("V", &Class::Float.wgsl(rows.lanes.count()));
    shader.workgroup_memory(shares.threads() * memory(&rows));
    let (prelude, at) = rows.at(&mut shader);
    for (name, place) in [("load_a", 0), ("load_b", 2)] {
        shader.read(name, PARAMS, &prelude, place, &at);
    }
    for (name, place) in [("scale_a", 1), ("scale_b", 3)] {
        shader.read_broadcast(name, PARAMS, &prelude, place, &at)?;
    }
    shader.write("store", PARAMS, &prelude, &at)?;
    if matches!(rows.lanes, Lanes::Along(_)) {
        shader.replace("across", ACROSS.into());
    }
    let flops = problem.result.elements().scale(12);
    let grid = shares.grid(&problem, &rows.rows());
    Ok(vec![shader.finish("add_norms", KERNEL.wgsl, grid, flops)?])
}

/// Of the hooks.
const PARAMS: &str = "row: u32, i: u32";

const ACROSS: &str = "fn across(sum: V) -> V { return V(dot(sum, V(1.0))); }";
