//! `pad.wgsl`: pads a tensor along any axes.

use serde::Deserialize;

use crate::error::OpError;
use crate::ir::dim::Dim;
use crate::ir::op::Op;
use crate::ir::ops::pad::PadMode;
use crate::kernels::cost::{Estimate, Parameters};
use crate::kernels::kernel::{Candidate, Configuration, Group, InPlace, Kernel, ThreadsConfig};
use crate::shader::element_walk::{gather_function, walk_elements};
use crate::shader::problem::Problem;
use crate::shader::value_type::literal;
use crate::shader::{Grid, LaunchDraft, Shader, ValueType};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "pad",
    wgsl: include_str!("pad.wgsl"),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::from_parameters::<Params>()],
    in_place: InPlace::Nothing,
};

/// Cost parameters of the kernel `pad`. All are between 0 and 1.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Fraction of the memory bandwidth that the kernel reaches.
    bandwidth_fraction: f64,
    /// Fraction of the f32 peak that the kernel reaches.
    peak_fraction: f64,
}

impl Parameters for Params {
    const GROUP: &str = "pad";
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Op::Pad(_) = problem.op else { return Vec::new() };
    let Some(p) = Params::from_problem(problem) else { return Vec::new() };
    let elements = problem.max(&problem.result.elements()) as f64;
    let bytes = problem.traffic() as f64 / p.bandwidth_fraction;
    vec![Candidate::new(
        &ThreadsConfig { threads: problem.threads() },
        Estimate::roofline(problem, elements, bytes, p.peak_fraction),
        format!("{elements} result elements, bound by memory traffic"),
    )]
}

fn launches(problem: &Problem<'_>, config: ThreadsConfig) -> Result<Vec<LaunchDraft>, OpError> {
    let Op::Pad(op) = problem.op else { return Err(OpError::new("the operator is not a pad")) };
    let mut shader = Shader::new(problem);
    let ThreadsConfig { threads } = config;
    config.declare(&mut shader);
    let mode = match op.mode {
        PadMode::Constant => 0,
        PadMode::Reflect => 1,
        PadMode::Edge => 2,
        PadMode::Wrap => 3,
    };
    shader.knob("MODE", mode);
    let keeps = |axis: usize| [&op.before, &op.after].iter().all(|l| l.get(axis).is_some_and(|n| n.is(0)));
    let result = problem.result.clone();
    let walk = walk_elements(&mut shader, &result, keeps);
    let class = ValueType::from_dtype(problem.computed);
    let lanes = walk.lanes();
    shader.alias("value", &class.wgsl(lanes));
    shader.size("units", &walk.units);
    let constant = literal(op.value, class, if walk.lanes_apart { 1 } else { lanes });
    let load = gather_function(&mut shader, &walk, &result, "load", "", 0, |shader, axes| {
        let mut text = String::new();
        let mut coordinates = axes.to_vec();
        for (axis, coordinate) in coordinates.iter_mut().enumerate() {
            if keeps(axis) {
                continue;
            }
            let before = shader.dim(&op.before[axis]);
            let size = shader.dim(&problem.operands[0].shape[axis]);
            text += &format!("    let p{axis} = source_position({coordinate}, {before}, {size});\n");
            if op.mode == PadMode::Constant {
                text += &format!("    if (p{axis} < 0i) {{ return {constant}; }}\n");
            }
            *coordinate = format!("u32(p{axis})");
        }
        (text, coordinates)
    });
    shader.replace("load", load);
    shader.write("store", "unit: u32", &walk.prelude, &walk.at)?;
    let grid = Grid::linear(&walk.units, threads, problem.bounds);
    Ok(vec![shader.finish("pad", KERNEL.wgsl, grid, Dim::known(0))])
}
