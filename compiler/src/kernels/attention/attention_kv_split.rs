//! `attention_kv_split.wgsl` and `attention_merge.wgsl`: scaled dot-product attention of few queries, with the keys
//! split among workgroups (flash decoding).

use serde::Deserialize;

use super::attention::{Sizes, declare_loads, declare_sizes, summed_queries};
use super::attention_merge::{self, MAX_SPLIT_ROWS};
use crate::error::OpError;
use crate::ir::dim::Dim;
use crate::ir::op::Op;
use crate::kernels::cost::{Estimate, Parameters, barriers, waiting};
use crate::kernels::kernel::{Candidate, Configuration, Group, InPlace, Kernel, config};
use crate::shader::problem::Problem;
use crate::shader::{Grid, LaunchDraft, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "attention_kv_split",
    wgsl: include_str!("attention_kv_split.wgsl"),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::from_parameters::<Params>()],
    in_place: InPlace::Nothing,
};

config! {
    /// Configuration of the kernel `attention_kv_split`.
    struct Config {
        /// Invocations per workgroup.
        THREADS => threads: u32,
        /// Queries per workgroup.
        QUERIES => queries: u32,
        /// Number of workgroups that split the keys of a query.
        KV_SPLIT => kv_split: u32,
    }
}

/// Cost parameters of the kernel `attention_kv_split`. All are positive.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Fixed time to load the queries and to merge the KV splits, in memory latencies.
    fixed_latencies: f64,
    /// Number of barriers after the loop over keys, per query of a workgroup.
    query_barriers: f64,
    /// Fraction of the f32 peak that the kernel reaches at full occupancy. 0 to 1.
    peak_fraction: f64,
    /// Time of a step of the loop over keys, in memory latencies. A step loads keys, then values.
    step_latencies: f64,
    /// Number of barriers per step of the loop over keys.
    step_barriers: f64,
}

impl Parameters for Params {
    const GROUP: &str = "attention_kv_split";
}

/// Number of invocations that compute the dot product of a query and a key together.
const LANES: u32 = 8;
/// Number of invocations that compute the maximum score of a query together.
const MAX_LANES: u32 = 8;

/// Returns the workgroup memory of the kernel `attention_kv_split`, in bytes.
fn memory(Config { threads, queries, .. }: Config, d: i64) -> u32 {
    let d4 = d.unsigned_abs().div_ceil(4) as u32;
    let cells = queries.max(summed_queries(queries, 1) * 5) * threads;
    queries * d4 * 16 + (cells + queries * (threads / LANES + MAX_LANES)) * 4
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Op::Attention(op) = problem.op else { return Vec::new() };
    let Some(sizes) = Sizes::from_problem(problem, op) else { return Vec::new() };
    let Some(p) = Params::from_problem(problem) else { return Vec::new() };
    let rows = problem.max(&sizes.rows()).max(1);
    if sizes.d < 1 || sizes.e < 1 || sizes.d > 1024 || rows > MAX_SPLIT_ROWS {
        return Vec::new();
    }
    let (machine, limits) = (&problem.target.machine, &problem.target.limits);
    let (t, heads) = (problem.max(&sizes.t).max(1) as f64, problem.max(&sizes.heads).max(1) as f64);
    let (d4, e4) = (sizes.d.unsigned_abs().div_ceil(4), sizes.e.unsigned_abs().div_ceil(4));
    let mut out = Vec::new();
    for threads in [64u32, 128, 256] {
        for queries in [1u32, 2, 4, 8, 16] {
            for kv_split in [2u32, 4, 8, 16, 32, 64] {
                let config = Config { threads, queries, kv_split };
                let tile = f64::from(threads / LANES);
                let fits = threads <= limits.max_workgroup_invocations.min(limits.max_workgroup_size[0])
                    && u64::from(threads) >= e4
                    && threads >= queries * MAX_LANES
                    && memory(config, sizes.d) <= limits.max_workgroup_memory;
                let wasted = i64::from(queries) >= 2 * rows || f64::from(kv_split) * tile >= 2.0 * t;
                if !fits || wasted {
                    continue;
                }
                let blocks = (rows as f64 / f64::from(queries)).ceil();
                let invocations = heads * blocks * f64::from(kv_split) * f64::from(threads);
                let steps = (t / (f64::from(kv_split) * tile)).ceil();
                let latencies = p.step_latencies * steps + p.fixed_latencies;
                let read_bytes = blocks * problem.traffic() as f64 * sizes.read_fraction(problem);
                let partial_bytes = heads * rows as f64 * f64::from(kv_split) * (4.0 * e4 as f64 + 2.0) * 4.0;
                let resident = machine.invocations();
                let occupancy = (invocations / resident).clamp(1e-3, 1.0);
                let work = 2.0 * heads * blocks * f64::from(queries) * t * 4.0 * (d4 + e4) as f64;
                let barrier_count = p.step_barriers * steps + p.query_barriers * f64::from(queries);
                let estimate = Estimate {
                    memory: (read_bytes + 2.0 * partial_bytes) / machine.bandwidth_gb_s.max(1e-3),
                    compute: work / (machine.peak.f32 * p.peak_fraction * occupancy).max(1e-3),
                    latency: waiting(problem, invocations, latencies)
                        + barriers(problem, invocations, barrier_count),
                    ..Estimate::for_dispatches(problem, 2.0)
                };
                let reason = format!(
                    "{t} keys, split among {kv_split} workgroups (KV splits), for {rows} queries; {queries} queries per workgroup"
                );
                // Sums of weighted values, a query and a key; scores, maximum scores and sums of weights.
                out.push(
                    Candidate::new(&config, estimate, reason).with_live_values(queries + 2, 3 * queries),
                );
            }
        }
    }
    out
}

fn launches(problem: &Problem<'_>, config: Config) -> Result<Vec<LaunchDraft>, OpError> {
    let Op::Attention(op) = problem.op else { return Err(OpError::new("the operator is not attention")) };
    let sizes = Sizes::from_problem(problem, op)
        .ok_or_else(|| OpError::new("a head size is symbolic; it must be known"))?;
    let Config { threads, queries, kv_split } = config;
    let e4 = sizes.e.unsigned_abs().div_ceil(4) as u32;
    let mut first = Shader::new(problem);
    config.declare(&mut first);
    first.knob("E4", e4);
    first.knob("SUMMED_QUERIES", summed_queries(queries, 1));
    first.knob("LANES", LANES);
    first.knob("MAX_LANES", MAX_LANES);
    first.knob("D4", sizes.d.unsigned_abs().div_ceil(4) as u32);
    let coordinates = declare_sizes(&mut first, &sizes, op);
    declare_loads(&mut first, op, &coordinates);
    let all_queries = sizes.rows().mul(&sizes.heads);
    let partials = attention_merge::declare_partials(&mut first, &sizes, kv_split, threads / LANES);
    first.workgroup_memory(memory(config, sizes.d));
    first.iterations(sizes.t.ceil_div(i64::from(threads / LANES * kv_split)));
    let blocks = sizes.rows().ceil_div(i64::from(queries));
    let groups = [Dim::known(i64::from(kv_split)), sizes.heads.clone(), blocks];
    let flops = all_queries.mul(&sizes.t).scale(2 * (sizes.d + sizes.e));
    Ok(vec![
        first.finish("attention_kv_split", KERNEL.wgsl, Grid { groups, workgroup: [threads, 1, 1] }, flops),
        attention_merge::launch(problem, &sizes, &partials)?,
    ])
}
