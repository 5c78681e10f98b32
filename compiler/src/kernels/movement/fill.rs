//! `fill.wgsl`: computes tensors that have no operands: ranges, and tensors of sizes (as from ONNX Shape).

use serde::Deserialize;

use crate::error::OpError;
use crate::ir::op::Op;
use crate::kernels::cost::{Estimate, Parameters};
use crate::kernels::kernel::{Candidate, Configuration, Group, InPlace, Kernel, ThreadsConfig};
use crate::shader::problem::{Placement, Problem};
use crate::shader::row_view::RowView;
use crate::shader::{Grid, LaunchDraft, Shader, ValueType};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "fill",
    wgsl: include_str!("fill.wgsl"),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::from_parameters::<Params>()],
    in_place: InPlace::Nothing,
};

/// Cost parameters of the kernel `fill`. All are between 0 and 1.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Fraction of the memory bandwidth that the kernel reaches.
    bandwidth_fraction: f64,
}

impl Parameters for Params {
    const GROUP: &str = "fill";
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    if !matches!(problem.op, Op::Range(_) | Op::ShapeValues(_)) {
        return Vec::new();
    }
    let Some(p) = Params::from_problem(problem) else { return Vec::new() };
    let estimate = Estimate::roofline(problem, 0.0, problem.traffic() as f64 / p.bandwidth_fraction, 1.0);
    let config = ThreadsConfig { threads: problem.threads() };
    vec![Candidate::new(&config, estimate, "one invocation per element")]
}

fn launches(problem: &Problem<'_>, config: ThreadsConfig) -> Result<Vec<LaunchDraft>, OpError> {
    let mut shader = Shader::new(problem);
    let class = ValueType::from_dtype(problem.computed);
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
    // Elements are numbered in row-major order for every layout of the result.
    let mut result = problem.result.clone();
    result.placement = Placement::dense(&result.shape);
    let rows = RowView::new(&result, &[]).with_scalar_lanes();
    let ThreadsConfig { threads } = config;
    config.declare(&mut shader);
    shader.alias("E", class.scalar());
    shader.size("units", &rows.rows());
    shader.replace("value", format!("fn value(unit: u32) -> E {{\n{body}}}"));
    let (prelude, at) = rows.unit(&mut shader);
    shader.write("store", "unit: u32", &prelude, &at)?;
    let grid = Grid::linear(&rows.rows(), threads, problem.bounds);
    Ok(vec![shader.finish("fill", KERNEL.wgsl, grid, problem.result.elements())])
}
