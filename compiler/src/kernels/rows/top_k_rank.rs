//! `top_k_rank.wgsl`: the largest or smallest elements of each row, where `k` is too large for `top_k` and its
//! workgroup memory.

use serde::Deserialize;

use super::top_k::{declare_top_k, top_k_rows};
use crate::error::OpError;
use crate::kernels::cost::{Estimate, Parameters};
use crate::kernels::kernel::{Candidate, Configuration, Group, InPlace, Kernel, ThreadsConfig};
use crate::shader::problem::Problem;
use crate::shader::{Grid, LaunchDraft, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "top_k_rank",
    wgsl: include_str!("top_k_rank.wgsl"),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::from_parameters::<Params>()],
    in_place: InPlace::Nothing,
};

/// Cost parameters of the kernel `top_k_rank`. All are positive.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Time of a comparison of two elements, in memory latencies.
    comparison_latencies: f64,
    /// Minimum nanoseconds per comparison of two elements.
    min_comparison_ns: f64,
}

impl Parameters for Params {
    const GROUP: &str = "top_k_rank";
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Some((_, problem, rows)) = top_k_rows(problem) else { return Vec::new() };
    let Some(p) = Params::from_problem(&problem) else { return Vec::new() };
    let (count, length) = (problem.max(&rows.rows()) as f64, problem.max(&rows.length()) as f64);
    let machine = &problem.target.machine;
    let waves = machine.rounds(count * length);
    let comparison_ns = (p.comparison_latencies * machine.memory_latency_ns).max(p.min_comparison_ns);
    let estimate =
        Estimate { latency: waves * length * comparison_ns, ..Estimate::for_dispatches(&problem, 1.0) };
    let reason = format!("each of the {length} elements of a row is compared with every other");
    vec![Candidate::new(&ThreadsConfig { threads: problem.threads() }, estimate, reason)]
}

fn launches(problem: &Problem<'_>, config: ThreadsConfig) -> Result<Vec<LaunchDraft>, OpError> {
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
    Ok(vec![shader.finish("top_k_rank", KERNEL.wgsl, grid, flops)])
}
