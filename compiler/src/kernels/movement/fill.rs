//! `fill.wgsl`: tensors without operands, ranges and sizes.

use serde::Deserialize;

use crate::error::OpError;
use crate::ir::op::Op;
use crate::kernels::cost::{Parameters, roofline};
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::shader::problem::{Placement, Problem};
use crate::shader::rows::Rows;
use crate::shader::{Class, Grid, Launch, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "fill",
    wgsl: include_str!("fill.wgsl"),
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
    /// Part of the memory's bandwidth that is reached.
    bandwidth: f64,
}

impl Parameters for Params {
    const GROUP: &str = "fill";
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    if !matches!(problem.op, Op::Range(_) | Op::ShapeValues(_)) {
        return Vec::new();
    }
    let Some(p) = Params::of(problem) else { return Vec::new() };
    vec![Candidate {
        knobs: vec![("THREADS", problem.threads())],
        cost: roofline(problem, 0.0, problem.traffic() as f64 / p.bandwidth, 1.0),
        reason: "one invocation per element".into(),
    }]
}

fn launches(problem: &Problem<'_>, candidate: &Candidate) -> Result<Vec<Launch>, OpError> {
    let mut shader = Shader::new(problem);
    let class = Class::of(problem.computed);
    let body = match problem.op {
        Op::Range(op) => {
            let start = shader.dim(&op.start);
            format!("    return E({start}) + E(unit) * E({}u);\n", op.step as u32)
        }
        Op::ShapeValues(op) => {
            let values: Vec<String> = op
                .values
                .iter()
                .enumerate()
                .map(|(i, v)| format!("        case {i}u: {{ return E({}); }}\n", shader.dim(v)))
                .collect();
            format!("    switch unit {{\n{}        default: {{ return E(); }}\n    }}\n", values.concat())
        }
        _ => return Err(OpError::new("the operator has operands")),
    };
    // Values are counted in the order of rows, however the result lies.
    let mut result = problem.result.clone();
    result.placement = Placement::dense(&result.shape);
    let rows = Rows::new(&result, &[]).scalar();
    let threads = candidate.knob("THREADS");
    shader.knob("THREADS", threads);
    shader.alias("E", class.scalar());
    shader.size("units", &rows.rows());
    shader.replace("value", format!("fn value(unit: u32) -> E {{\n{body}}}"));
    let (prelude, at) = rows.unit(&mut shader);
    shader.write("store", "unit: u32", &prelude, &at)?;
    let grid = Grid::linear(&rows.rows(), threads, problem.bounds);
    Ok(vec![shader.finish("fill", KERNEL.wgsl, grid, problem.result.elements())?])
}
