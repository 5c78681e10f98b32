//! `pad.wgsl`: elements added around a tensor.

use serde::Deserialize;

use crate::error::OpError;
use crate::ir::dim::Dim;
use crate::ir::op::Op;
use crate::ir::ops::pad::PadMode;
use crate::kernels::cost::{Parameters, roofline};
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::shader::class::literal;
use crate::shader::problem::Problem;
use crate::shader::walk::{gather, walk};
use crate::shader::{Class, Grid, Launch, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "pad",
    wgsl: include_str!("pad.wgsl"),
    candidates,
    launches,
    matrices: None,
    params: &[Group::of::<Params>()],
    in_place: InPlace::Nothing,
};

/// Parameters of the estimate.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Part of the arithmetic peak that is reached.
    reached: f64,
    /// Part of the memory's bandwidth that is reached.
    bandwidth: f64,
}

impl Parameters for Params {
    const GROUP: &str = "pad";
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Op::Pad(_) = problem.op else { return Vec::new() };
    let Some(p) = Params::of(problem) else { return Vec::new() };
    let elements = problem.max(&problem.result.elements()) as f64;
    let threads = problem.threads();
    vec![Candidate {
        knobs: vec![("THREADS", threads)],
        cost: roofline(problem, elements, problem.traffic() as f64 / p.bandwidth, p.reached),
        reason: format!("{elements} elements, bound by memory traffic"),
    }]
}

fn launches(problem: &Problem<'_>, candidate: &Candidate) -> Result<Vec<Launch>, OpError> {
    let Op::Pad(op) = problem.op else { return Err(OpError::new("not a pad")) };
    let mut shader = Shader::new(problem);
    let threads = candidate.knob("THREADS");
    shader.knob("THREADS", threads);
    let mode = match op.mode {
        PadMode::Constant => 0,
        PadMode::Reflect => 1,
        PadMode::Edge => 2,
        PadMode::Wrap => 3,
    };
    shader.knob("MODE", mode);
    let keeps = |axis: usize| [&op.before, &op.after].iter().all(|l| l.get(axis).is_some_and(|n| n.is(0)));
    let result = problem.result.clone();
    let walk = walk(&mut shader, &result, keeps);
    let class = Class::of(problem.computed);
    let lanes = walk.lanes();
    shader.alias("value", &class.wgsl(lanes));
    shader.size("units", &walk.units);
    let constant = literal(op.value, class, if walk.apart { 1 } else { lanes });
    let load = gather(&mut shader, &walk, &result, "load", "", 0, |shader, axes| {
        let mut text = String::new();
        let mut places = axes.to_vec();
        for (axis, place) in places.iter_mut().enumerate() {
            if keeps(axis) {
                continue;
            }
            let before = shader.dim(&op.before[axis]);
            let size = shader.dim(&problem.operands[0].shape[axis]);
            text += &format!("    let p{axis} = place({place}, {before}, {size});\n");
            if op.mode == PadMode::Constant {
                text += &format!("    if (p{axis} < 0i) {{ return {constant}; }}\n");
            }
            *place = format!("u32(p{axis})");
        }
        (text, places)
    });
    shader.replace("load", load);
    shader.write("store", "unit: u32", &walk.prelude, &walk.at)?;
    let grid = Grid::linear(&walk.units, threads, problem.bounds);
    Ok(vec![shader.finish("pad", KERNEL.wgsl, grid, Dim::known(0))?])
}
