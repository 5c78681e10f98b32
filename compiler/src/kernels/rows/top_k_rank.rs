//! `top_k_rank.wgsl`: the first elements of long rows when there are too many of them for workgroup memory.

use serde::Deserialize;

use super::top_k::{hooks, top_k_rows};
use crate::error::OpError;
use crate::kernels::cost::Parameters;
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::shader::problem::Problem;
use crate::shader::{Grid, Launch, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "top_k_rank",
    wgsl: include_str!("top_k_rank.wgsl"),
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
    /// A comparison, in latencies of memory.
    compared: f64,
    /// A comparison takes so many nanoseconds at least.
    least_ns: f64,
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
    let compared = (p.compared * machine.memory_latency_ns).max(p.least_ns);
    vec![Candidate {
        knobs: vec![("THREADS", problem.threads())],
        cost: waves * length * compared + machine.launch_us * 1e3,
        reason: format!("each of {length} elements compared with every other"),
    }]
}

fn launches(problem: &Problem<'_>, candidate: &Candidate) -> Result<Vec<Launch>, OpError> {
    let (op, problem, rows) = top_k_rows(problem).ok_or_else(|| OpError::new("not a top-k"))?;
    let mut shader = Shader::new(&problem);
    let threads = candidate.knob("THREADS");
    shader.knob("THREADS", threads);
    shader.knob("COUNT", u32::try_from(op.k).map_err(|e| OpError::new(e.to_string()))?);
    hooks(&mut shader, op, &rows)?;
    shader.iterations(rows.length());
    let units = rows.rows().mul(&rows.length());
    let grid = Grid::linear(&units, threads, problem.bounds);
    let flops = units.mul(&rows.length());
    Ok(vec![shader.finish("top_k_rank", KERNEL.wgsl, grid, flops)?])
}
