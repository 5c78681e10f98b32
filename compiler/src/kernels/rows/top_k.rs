//! `top_k.wgsl`: the largest or smallest elements of each row, or their positions.

use serde::Deserialize;

use super::sort_key::key_function;
use crate::error::OpError;
use crate::ir::op::{Op, TopK};
use crate::kernels::cost::{Estimate, Parameters};
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel, config};
use crate::shader::problem::Problem;
use crate::shader::row_view::{RowView, rows_along_axis};
use crate::shader::{Grid, LaunchDraft, Shader, ValueType};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "top_k",
    wgsl: include_str!("top_k.wgsl"),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::from_parameters::<Params>()],
    in_place: InPlace::Nothing,
};

config! {
    /// Configuration of the kernel `top_k`.
    struct Config {
        /// Invocations per workgroup.
        THREADS => threads: u32,
        /// Number of elements that a workgroup sorts at once, a power of two.
        TILE => tile: u32,
        /// True if a whole row fits in the `TILE` elements that a workgroup sorts at once.
        WHOLE => whole: bool,
    }
}

/// Number of elements of a row that an invocation examines before the workgroup checks whether its tile in workgroup
/// memory may overflow.
const ROUND_ELEMENTS: u32 = 4;

/// Returns the tile that a workgroup sorts: true if it holds a whole row, and the number of its elements. Returns
/// `None` if `k` is too large for the workgroup memory.
fn tile(op: &TopK, problem: &Problem<'_>, rows: &RowView, threads: u32) -> Option<(bool, u32)> {
    let length = u32::try_from(problem.max(&rows.length())).ok()?.max(2);
    let k = u32::try_from(op.k).ok()?;
    let max_tile = problem.target.limits.max_workgroup_memory.saturating_sub(16) / 8;
    let max_tile = if max_tile.is_power_of_two() { max_tile } else { max_tile.next_power_of_two() / 2 };
    if length <= max_tile && length <= 2048 {
        return Some((true, length.next_power_of_two()));
    }
    let half = k.max(threads * ROUND_ELEMENTS).checked_next_power_of_two()?;
    (half.checked_mul(2)? <= max_tile).then_some((false, half * 2))
}

/// Returns the top-k operator of a problem, the problem with merged axes, and its rows.
pub(super) fn top_k_rows<'a>(problem: &Problem<'a>) -> Option<(&'a TopK, Problem<'a>, RowView)> {
    let Op::TopK(op) = problem.op else { return None };
    let (problem, rows) = rows_along_axis(problem, op.axis);
    Some((op, problem, rows.with_scalar_lanes()))
}

/// Cost parameters of the kernel `top_k`. All are positive.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Time of a round, which compares elements of a row with the k-th best element so far, in memory latencies.
    round_latencies: f64,
    /// Time of a stage of the bitonic sort, in memory latencies.
    stage_latencies: f64,
    /// Time of a compare-exchange in a stage of the bitonic sort, in memory latencies.
    swap_latencies: f64,
    /// Additional time of a compare-exchange in the bitonic sort, as a number of barriers. It matters on devices that
    /// run the invocations of a workgroup one after the other, where barriers are expensive.
    swap_barriers: f64,
}

impl Parameters for Params {
    const GROUP: &str = "top_k";
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Some((op, problem, rows)) = top_k_rows(problem) else { return Vec::new() };
    let Some(p) = Params::from_problem(&problem) else { return Vec::new() };
    let (machine, limits) = (&problem.target.machine, &problem.target.limits);
    let (count, length) = (problem.max(&rows.rows()) as f64, problem.max(&rows.length()) as f64);
    let mut out = Vec::new();
    for threads in [32u32, 64, 128, 256].into_iter().filter(|t| *t <= limits.max_workgroup_invocations) {
        let Some((whole, size)) = tile(op, &problem, &rows, threads) else { continue };
        let rounds = if whole { 1.0 } else { (length / f64::from(threads * ROUND_ELEMENTS)).ceil() };
        // All elements of the first tile are appended, and k * ln(n / k) of the random elements after them.
        let sorts = if whole {
            1.0
        } else {
            let k = op.k.max(1) as f64;
            2.0 + k * libm::log((length / k).max(1.0)) / f64::from(size / 2)
        };
        let stages = f64::from(size.ilog2() * (size.ilog2() + 1)) / 2.0;
        let swaps = (f64::from(size / 2) / f64::from(threads)).max(1.0);
        let latency = machine.memory_latency_ns;
        // Devices whose invocations take turns have expensive barriers; their exchanges take turns as well.
        let swap = latency * p.swap_latencies + machine.barrier_ns * p.swap_barriers;
        let sort = stages * (machine.barrier_ns + latency * p.stage_latencies + swap * swaps);
        let round = machine.barrier_ns + latency * p.round_latencies;
        let waves = machine.rounds(count * f64::from(threads));
        let estimate = Estimate {
            latency: waves * (rounds * round + sorts * sort),
            ..Estimate::for_dispatches(&problem, 1.0)
        };
        let reason = format!(
            "{threads} invocations sort tiles of {size} elements about {sorts:.0} times for a row of {length} elements"
        );
        out.push(Candidate::new(&Config { threads, tile: size, whole }, estimate, reason));
    }
    out
}

fn launches(problem: &Problem<'_>, config: Config) -> Result<Vec<LaunchDraft>, OpError> {
    let (op, problem, rows) =
        top_k_rows(problem).ok_or_else(|| OpError::new("the operator is not a top-k"))?;
    let mut shader = Shader::new(&problem);
    let Config { threads, tile, whole } = config;
    shader.knob("THREADS", threads);
    shader.knob("TILE", tile);
    shader.constant("WHOLE", whole);
    shader.knob("ROUND_ELEMENTS", ROUND_ELEMENTS);
    shader.knob("COUNT", u32::try_from(op.k).map_err(|e| OpError::new(e.to_string()))?);
    shader.workgroup_memory(tile * 8 + 16);
    declare_top_k(&mut shader, op, &rows)?;
    let groups = Grid::linear(&rows.rows(), 1, problem.bounds).groups;
    let grid = Grid { groups, workgroup: [threads, 1, 1] };
    let flops = problem.operands[0].elements();
    Ok(vec![shader.finish("top_k", KERNEL.wgsl, grid, flops)])
}

/// Declares the sizes, types and hooks that the kernels `top_k` and `top_k_rank` share.
pub(super) fn declare_top_k(shader: &mut Shader<'_>, op: &TopK, rows: &RowView) -> Result<(), OpError> {
    let class = ValueType::from_dtype(shader.problem.operands[0].dtype);
    shader.size("rows", &rows.rows());
    shader.size("length", &rows.length());
    shader.alias("V", class.scalar());
    shader.replace("key", key_function(class, op.largest));
    let (prelude, at) = rows.at(shader);
    shader.read("load", "row: u32, i: u32", &prelude, 0, &at);
    shader.write("store", "row: u32, i: u32", &prelude, &at)?;
    shader.alias("R", ValueType::from_dtype(shader.problem.computed).scalar());
    if op.indices {
        shader.replace("output_of", "fn output_of(row: u32, at: u32) -> R { return R(at); }".into());
    }
    Ok(())
}
