//! `top_k_rank.wgsl`: the largest or smallest elements of each row, if they are too many for workgroup memory.

use serde::Deserialize;

use super::top_k::{declare_top_k, top_k_rows};
use crate::error::OpError;
use crate::kernels::cost::Parameters;
use crate::kernels::kernel::{Candidate, Configuration, Group, InPlace, Kernel, ThreadsConfig};
use crate::shader::problem::Problem;
use crate::shader::{Grid, Launch, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "top_k_rank",
    wgsl: include_str!("top_k_rank.wgsl"),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::of::<Params>()],
    in_place: InPlace::Nothing,
};

/// Cost parameters. All are positive.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Memory latencies per comparison.
    comparison_latencies: f64,
    /// Minimum nanoseconds per comparison.
    min_comparison_ns: f64,
}

impl Parameters for Params {
    const GROUP: &str = "top_k_rank";
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Some((_, problem, rows)) = top_k_rows(problem) else { return Vec::new() };
    let Some(p) = Params::of(&problem) else { return Vec::new() };
    let (count, length) = (problem.max(&rows.rows()) as f64, problem.max(&rows.length()) as f64);
    let machine = &problem.target.machine;
    let room = machine.invocations();
    let waves = (count * length / room).ceil().max(1.0);
    let comparison_ns = (p.comparison_latencies * machine.memory_latency_ns).max(p.min_comparison_ns);
    vec![Candidate {
        knobs: ThreadsConfig { threads: problem.threads() }.knobs(),
        cost: waves * length * comparison_ns + machine.launch_us * 1e3,
        reason: format!("each of {length} elements compared with every other"),
    }]
}

fn launches(problem: &Problem<'_>, config: ThreadsConfig) -> Result<Vec<Launch>, OpError> {
    let (op, problem, rows) =
        top_k_rows(problem).ok_or_else(|| OpError::new("the operator is not a top-k"))?;
    let mut shader = Shader::new(&problem);
    let ThreadsConfig { threads } = config;
    config.declare(&mut shader);
    shader.knob("COUNT", u32::try_from(op.k).map_err(|e| OpError::new(e.to_string()))?);
    declare_top_k(&mut shader, op, &rows)?;
    shader.iterations(rows.length());
    let units = rows.rows().mul(&rows.length());
    let grid = Grid::linear(&units, threads, problem.bounds);
    let flops = units.mul(&rows.length());
    Ok(vec![shader.finish("top_k_rank", KERNEL.wgsl, grid, flops)?])
}
