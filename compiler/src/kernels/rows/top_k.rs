//! `top_k.wgsl`: the first elements of each row by value, or their positions.

use serde::Deserialize;

use super::order::key;
use crate::error::OpError;
use crate::ir::op::{Op, TopK};
use crate::kernels::cost::Parameters;
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::shader::problem::Problem;
use crate::shader::rows::{Rows, along_axis};
use crate::shader::{Class, Grid, Launch, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "top_k",
    wgsl: include_str!("top_k.wgsl"),
    candidates,
    launches,
    matrices: None,
    params: &[Group::of::<Params>()],
    in_place: InPlace::Nothing,
};

/// Elements that an invocation looks at between two checks.
const KEEP: u32 = 4;

/// The row length, and the tile that suits it: whether a row fits, and the tile's size.
fn tile(op: &TopK, problem: &Problem<'_>, rows: &Rows, threads: u32) -> Option<(bool, u32)> {
    let length = u32::try_from(problem.max(&rows.length())).ok()?.max(2);
    let k = u32::try_from(op.k).ok()?;
    let most = problem.target.limits.max_workgroup_memory.saturating_sub(16) / 8;
    let most = if most.is_power_of_two() { most } else { most.next_power_of_two() / 2 };
    if length <= most && length <= 2048 {
        return Some((true, length.next_power_of_two()));
    }
    let half = k.max(threads * KEEP).checked_next_power_of_two()?;
    (half.checked_mul(2)? <= most).then_some((false, half * 2))
}

/// The operator, the problem with as few axes as possible, and its rows.
pub(super) fn top_k_rows<'a>(problem: &Problem<'a>) -> Option<(&'a TopK, Problem<'a>, Rows)> {
    let Op::TopK(op) = problem.op else { return None };
    let (problem, rows) = along_axis(problem, op.axis);
    Some((op, problem, rows.scalar()))
}

/// Parameters of the estimate, in latencies of memory where nothing else is said.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// A stage of a sort.
    stage: f64,
    /// A swap of one.
    swap: f64,
    /// A swap, in barriers: where these take time invocations take turns.
    swap_in_turn: f64,
    /// A round of elements that are compared with the least that is kept.
    round: f64,
}

impl Parameters for Params {
    const GROUP: &str = "top_k";
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Some((op, problem, rows)) = top_k_rows(problem) else { return Vec::new() };
    let Some(p) = Params::of(&problem) else { return Vec::new() };
    let (machine, limits) = (&problem.target.machine, &problem.target.limits);
    let (count, length) = (problem.max(&rows.rows()) as f64, problem.max(&rows.length()) as f64);
    let mut out = Vec::new();
    for threads in [32u32, 64, 128, 256].into_iter().filter(|t| *t <= limits.max_workgroup_invocations) {
        let Some((whole, size)) = tile(op, &problem, &rows, threads) else { continue };
        let rounds = if whole { 1.0 } else { (length / f64::from(threads * KEEP)).ceil() };
        // The first elements all pass, of random ones after them k * ln(n / k).
        let sorts = if whole {
            1.0
        } else {
            let k = op.k.max(1) as f64;
            2.0 + k * (length / k).max(1.0).ln() / f64::from(size / 2)
        };
        let stages = f64::from(size.ilog2() * (size.ilog2() + 1)) / 2.0;
        let swaps = (f64::from(size / 2) / f64::from(threads)).max(1.0);
        let latency = machine.memory_latency_ns;
        // Devices whose invocations take turns swap in turns as well.
        let swap = latency * p.swap + machine.barrier_ns * p.swap_in_turn;
        let sort = stages * (machine.barrier_ns + latency * p.stage + swap * swaps);
        let round = machine.barrier_ns + latency * p.round;
        let room = machine.invocations();
        let waves = (count * f64::from(threads) / room).ceil().max(1.0);
        out.push(Candidate {
            knobs: vec![("THREADS", threads), ("TILE", size), ("WHOLE", whole.into())],
            cost: waves * (rounds * round + sorts * sort) + machine.launch_us * 1e3,
            reason: format!("{threads} invocations sort {size} of {length} elements about {sorts:.0} times"),
        });
    }
    out
}

fn launches(problem: &Problem<'_>, candidate: &Candidate) -> Result<Vec<Launch>, OpError> {
    let (op, problem, rows) = top_k_rows(problem).ok_or_else(|| OpError::new("not a top-k"))?;
    let mut shader = Shader::new(&problem);
    let [threads, tile] = ["THREADS", "TILE"].map(|name| candidate.knob(name));
    shader.knob("THREADS", threads);
    shader.knob("TILE", tile);
    shader.constant("WHOLE", candidate.knob("WHOLE") == 1);
    shader.knob("KEEP", KEEP);
    shader.knob("COUNT", u32::try_from(op.k).map_err(|e| OpError::new(e.to_string()))?);
    shader.workgroup_memory(tile * 8 + 16);
    hooks(&mut shader, op, &rows)?;
    let groups = Grid::linear(&rows.rows(), 1, problem.bounds).groups;
    let grid = Grid { groups, workgroup: [threads, 1, 1] };
    let flops = problem.operands[0].elements();
    Ok(vec![shader.finish("top_k", KERNEL.wgsl, grid, flops)?])
}

/// The sizes, types and hooks that both kernels of the operator have.
pub(super) fn hooks(shader: &mut Shader<'_>, op: &TopK, rows: &Rows) -> Result<(), OpError> {
    let class = Class::of(shader.problem.operands[0].dtype);
    shader.size("rows", &rows.rows());
    shader.size("length", &rows.length());
    shader.alias("V", class.scalar());
    shader.replace("key", key(class, op.largest));
    let (prelude, at) = rows.at(shader);
    shader.read("load", "row: u32, i: u32", &prelude, 0, &at);
    shader.write("store", "row: u32, i: u32", &prelude, &at)?;
    shader.alias("R", Class::of(shader.problem.computed).scalar());
    if op.indices {
        shader.replace("chosen", "fn chosen(row: u32, at: u32) -> R { return R(at); }".into());
    }
    Ok(())
}
