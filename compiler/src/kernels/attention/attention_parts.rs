//! `attention_parts.wgsl` and `attention_merge.wgsl`: scaled dot-product attention of few queries, with the keys split
//! among workgroups ("flash decoding").

use serde::Deserialize;

use super::attention::{Sizes, declare, joined_queries, loads};
use super::attention_merge::{self, MOST_ROWS};
use crate::error::OpError;
use crate::ir::dim::Dim;
use crate::ir::op::Op;
use crate::kernels::cost::{Parameters, barriers, waiting};
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::shader::problem::Problem;
use crate::shader::{Grid, Launch, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "attention_parts",
    wgsl: include_str!("attention_parts.wgsl"),
    candidates,
    launches,
    matrices: None,
    params: &[Group::of::<Params>()],
    in_place: InPlace::Nothing,
};

/// Parameters of the estimate; waits in latencies of memory.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Part of the arithmetic peak that is reached.
    reached: f64,
    /// A step: two loads wait for each other.
    step: f64,
    /// The loads of queries and of parts, which all wait for.
    ends: f64,
    /// Barriers of a step.
    step_barriers: f64,
    /// Barriers of a query.
    query_barriers: f64,
}

impl Parameters for Params {
    const GROUP: &str = "attention_parts";
}

/// Invocations that share the product of a query and a key.
const LANES: u32 = 8;
/// Invocations that look for the maximum of a query.
const LOOKS: u32 = 8;

/// Bytes of workgroup memory.
fn memory(threads: u32, block: u32, d: i64) -> u32 {
    let d4 = d.unsigned_abs().div_ceil(4) as u32;
    let cells = block.max(joined_queries(block, 1) * 5) * threads;
    block * d4 * 16 + (cells + block * (threads / LANES + LOOKS)) * 4
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Op::Attention(op) = problem.op else { return Vec::new() };
    let Some(sizes) = Sizes::of(problem, op) else { return Vec::new() };
    let Some(p) = Params::of(problem) else { return Vec::new() };
    let rows = problem.max(&sizes.rows()).max(1);
    if sizes.d < 1 || sizes.e < 1 || sizes.d > 1024 || rows > MOST_ROWS {
        return Vec::new();
    }
    let (machine, limits) = (&problem.target.machine, &problem.target.limits);
    let (t, heads) = (problem.max(&sizes.t).max(1) as f64, problem.max(&sizes.heads).max(1) as f64);
    let (d4, e4) = (sizes.d.unsigned_abs().div_ceil(4), sizes.e.unsigned_abs().div_ceil(4));
    let mut out = Vec::new();
    for threads in [64u32, 128, 256] {
        for block in [1u32, 2, 4, 8, 16] {
            for parts in [2u32, 4, 8, 16, 32, 64] {
                let tile = f64::from(threads / LANES);
                let fits = threads <= limits.max_workgroup_invocations.min(limits.max_workgroup_size[0])
                    && u64::from(threads) >= e4
                    && threads >= block * LOOKS
                    && memory(threads, block, sizes.d) <= limits.max_workgroup_memory;
                let wasted = i64::from(block) >= 2 * rows || f64::from(parts) * tile >= 2.0 * t;
                if !fits || wasted {
                    continue;
                }
                let blocks = (rows as f64 / f64::from(block)).ceil();
                let all = heads * blocks * f64::from(parts) * f64::from(threads);
                let steps = (t / (f64::from(parts) * tile)).ceil();
                // Two loads of a step wait for each other, and those of the queries and of the parts for all.
                let waits = p.step * steps + p.ends;
                let walked = blocks * problem.traffic() as f64 * sizes.part(problem);
                let kept = heads * rows as f64 * f64::from(parts) * (4.0 * e4 as f64 + 2.0) * 4.0;
                let streaming = (walked + 2.0 * kept) / machine.bandwidth_gb_s.max(1e-3);
                let room = f64::from(machine.compute_units) * f64::from(machine.invocations_per_unit);
                let busy = (all / room).clamp(1e-3, 1.0);
                let work = 2.0 * heads * blocks * f64::from(block) * t * 4.0 * (d4 + e4) as f64;
                let computing = work / (machine.peak.f32 * p.reached * busy).max(1e-3);
                let idle = waiting(problem, all, waits)
                    + barriers(problem, all, p.step_barriers * steps + p.query_barriers * f64::from(block));
                out.push(Candidate {
                    knobs: vec![("THREADS", threads), ("BLOCK", block), ("PARTS", parts)],
                    cost: streaming.max(computing).max(idle) + 2.0 * machine.launch_us * 1e3,
                    reason: format!("{t} keys in {parts} parts for {rows} queries, {block} at a time"),
                });
            }
        }
    }
    out
}

fn launches(problem: &Problem<'_>, candidate: &Candidate) -> Result<Vec<Launch>, OpError> {
    let Op::Attention(op) = problem.op else { return Err(OpError::new("not attention")) };
    let sizes = Sizes::of(problem, op).ok_or_else(|| OpError::new("head sizes must be known"))?;
    let [threads, block, parts] = ["THREADS", "BLOCK", "PARTS"].map(|name| candidate.knob(name).max(1));
    let e4 = sizes.e.unsigned_abs().div_ceil(4) as u32;
    let mut first = Shader::new(problem);
    first.knob("THREADS", threads);
    first.knob("PARTS", parts);
    first.knob("E4", e4);
    first.knob("BLOCK", block);
    first.knob("ROUND", joined_queries(block, 1));
    first.knob("LANES", LANES);
    first.knob("LOOKS", LOOKS);
    first.knob("D4", sizes.d.unsigned_abs().div_ceil(4) as u32);
    let preludes = declare(&mut first, &sizes, op);
    loads(&mut first, op, &preludes);
    let queries = sizes.rows().mul(&sizes.heads);
    let joined = attention_merge::keep(&mut first, &sizes, parts, threads / LANES);
    first.workgroup_memory(memory(threads, block, sizes.d));
    first.iterations(sizes.t.ceil_div(i64::from(threads / LANES * parts)));
    let blocks = sizes.rows().ceil_div(i64::from(block));
    let groups = [Dim::known(i64::from(parts)), sizes.heads.clone(), blocks];
    let flops = queries.mul(&sizes.t).scale(2 * (sizes.d + sizes.e));
    Ok(vec![
        first.finish("attention_parts", KERNEL.wgsl, Grid { groups, workgroup: [threads, 1, 1] }, flops)?,
        attention_merge::launch(problem, &sizes, &joined)?,
    ])
}
