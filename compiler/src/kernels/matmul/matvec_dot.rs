//! `matvec_dot.wgsl`: small-M matmuls of 8-bit integers, whose time is bound by reading the second operand once.

use serde::Deserialize;

use super::eligibility::is_eligible;
use crate::error::OpError;
use crate::ir::dim::product;
use crate::ir::op::{MatMul, Op};
use crate::kernels::cost::{Estimate, Parameters, barriers, waiting};
use crate::kernels::kernel::{Candidate, Configuration, Group, InPlace, Kernel, config};
use crate::kernels::shared::dot::{self, Signs};
use crate::kernels::shared::matmul_sizes::{MatMulSizes, matmul_sizes};
use crate::shader::problem::Problem;
use crate::shader::{Grid, LaunchDraft, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "matvec_dot",
    wgsl: include_str!("matvec_dot.wgsl"),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::from_parameters::<Params>()],
    in_place: InPlace::Epilogue,
};

config! {
    /// Configuration of the kernel `matvec_dot`.
    struct Config {
        /// Number of invocations that split K.
        LANES_K => lanes_k: u32,
        /// Number of invocations of a workgroup along N. Each invocation computes four columns.
        LANES_N => lanes_n: u32,
        /// Number of rows that a workgroup computes.
        ROWS => rows: u32,
        /// Number of packed words of each row that a workgroup copies to workgroup memory at a time.
        STAGED_WORDS => staged_words: u32,
    }
}

/// Maximum number of rows that a workgroup computes.
const MAX_GROUP_ROWS: i64 = 8;
/// Maximum packed words, over all rows, that a workgroup copies to workgroup memory at a time.
const MAX_STAGED_WORDS: i64 = 2048;

/// Cost parameters of the kernel `matvec_dot`. All are positive; fields named `.._latencies` are multiples of the memory latency.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Number of loads that an invocation has in flight.
    concurrent_loads: f64,
    /// Fixed time before the first step and after the last step, in memory latencies.
    fixed_latencies: f64,
    /// Time of a level of the reduction tree with one row, in memory latencies.
    level_latencies: f64,
    /// Time that each row after the first adds to a level of the reduction tree, in memory latencies.
    extra_row_level_latencies: f64,
    /// Time of one load of the second operand in a step along K, in memory latencies.
    load_latencies: f64,
    /// Ratio of the number of operations with the sign correction, for one signed and one unsigned operand,
    /// to the number without it.
    mixed_sign_operation_ratio: f64,
    /// Fraction of the peak 8-bit integer operations per second that the kernel reaches; 0 to 1.
    peak_fraction: f64,
    /// Time of the dot products of one row in a step along K, in memory latencies.
    row_latencies: f64,
    /// Time of a stage, in which a workgroup copies its rows to workgroup memory, in memory latencies.
    stage_latencies: f64,
    /// Time to pack one word of a row that an invocation stages, in memory latencies.
    staged_word_latencies: f64,
}

impl Parameters for Params {
    const GROUP: &str = "matvec_dot";
}

/// True if the second operand is not packed and is contiguous along K.
fn along_k(op: &MatMul, problem: &Problem<'_>) -> bool {
    op.trans_b && dot::packed_b(op, problem).is_none()
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let (Op::MatMul(op), Some(signs)) = (problem.op, Signs::from_problem(problem)) else { return Vec::new() };
    let Some(sizes) = matmul_sizes(op, problem).filter(|_| dot::readable(op, problem)) else {
        return Vec::new();
    };
    let Some(p) = Params::from_problem(problem) else { return Vec::new() };
    let [m, n, k] = [&sizes.m, &sizes.n, &sizes.k].map(|d| problem.max(d));
    if !is_eligible(KERNEL.name, problem) {
        return Vec::new();
    }
    let batch = problem.max(&product(&sizes.batch));
    let (machine, limits) = (&problem.target.machine, &problem.target.limits);
    let rows = m.clamp(1, MAX_GROUP_ROWS);
    let blocks = (m as f64 / rows as f64).ceil();
    let groups_n = (n as f64 / 4.0).ceil();
    let words = ((k as f64 / 4.0).ceil() as i64).max(1);
    let staged_words = (MAX_STAGED_WORDS / rows).min(words);
    let along_k = along_k(op, problem);
    let packed = dot::packed_b(op, problem).map(|(packed, _)| packed);
    let second =
        packed.as_ref().map_or(problem.operands[1].bytes(problem.bounds) as f64, |p| p.bytes() as f64);
    let traffic = problem.traffic() as f64;
    let mixed = if signs.flips(0) || signs.flips(1) { p.mixed_sign_operation_ratio } else { 1.0 };
    let mut out = Vec::new();
    for lanes_k in [1u32, 4, 8, 16, 32, 64, 128, 256] {
        for lanes_n in [1u32, 2, 4, 8, 16, 32] {
            let threads = lanes_k * lanes_n;
            let tiles = (groups_n / f64::from(lanes_n)).ceil();
            let fits = threads <= limits.max_workgroup_invocations
                && workgroup_bytes(threads, rows as u32, staged_words as u32) <= limits.max_workgroup_memory
                && tiles <= f64::from(limits.max_workgroup_count[0]);
            let wasted = !(32..=256).contains(&threads) || i64::from(lanes_k) > 2 * words;
            if !fits || wasted {
                continue;
            }
            let all = tiles * blocks * batch as f64 * f64::from(threads);
            let room = machine.invocations();
            // A cache line is used completely if adjacent invocations read it together.
            let adjacent = f64::from(if along_k { lanes_k } else { lanes_n });
            let waste = (4.0 / adjacent).clamp(1.0, 4.0);
            // Every invocation has several loads in flight.
            let busy = (p.concurrent_loads * all / room).clamp(1e-3, 1.0);
            let bytes = traffic + second * (blocks - 1.0);
            let operations = 2.0 * (m * n * batch) as f64 * k as f64 * mixed;
            // Every workgroup first packs its rows, and then multiplies.
            let staging = ((rows * words) as f64 / f64::from(threads)).ceil();
            let stages = (words as f64 / staged_words as f64).ceil();
            let steps = (words as f64 / f64::from(lanes_k)).ceil();
            let loads = if packed.is_some() { 1.0 } else { 4.0 };
            let levels = f64::from(lanes_k.ilog2());
            let latencies = p.fixed_latencies
                + steps * (p.load_latencies * loads + p.row_latencies * rows as f64)
                + p.stage_latencies * stages
                + p.staged_word_latencies * staging
                + levels * (p.level_latencies + p.extra_row_level_latencies * (rows - 1) as f64);
            let estimate = Estimate {
                memory: bytes * waste / (machine.bandwidth_gb_s.max(1e-3) * busy),
                compute: operations / (machine.peak.int8 * p.peak_fraction * busy).max(1e-3),
                latency: waiting(problem, all, latencies) + barriers(problem, all, levels),
                ..Estimate::for_dispatches(problem, 1.0)
            };
            let config = Config { lanes_k, lanes_n, rows: rows as u32, staged_words: staged_words as u32 };
            let reason = format!(
                "matmul of {m} rows: {lanes_k} invocations split K = {k} in words of four 8-bit elements, {} columns per workgroup",
                lanes_n * 4
            );
            out.push(Candidate::new(&config, estimate, reason));
        }
    }
    out
}

/// Returns the workgroup memory of the staged rows and the partial sums, in bytes.
fn workgroup_bytes(threads: u32, rows: u32, staged_words: u32) -> u32 {
    rows * staged_words * 4 + threads * rows * 16
}

fn launches(problem: &Problem<'_>, config: Config) -> Result<Vec<LaunchDraft>, OpError> {
    let (Op::MatMul(op), Some(signs)) = (problem.op, Signs::from_problem(problem)) else {
        return Err(OpError::new("the operator is not a matmul of 8-bit integers"));
    };
    let MatMulSizes { batch, m, k, n } = matmul_sizes(op, problem)
        .ok_or_else(|| OpError::new("a matmul needs operands with at least two axes"))?;
    let mut shader = Shader::new(problem);
    config.declare(&mut shader);
    shader.size("size_m", &m);
    shader.size("size_n", &n);
    shader.size("size_k", &k);
    shader.constant("K_FIRST", along_k(op, problem));
    signs.declare(&mut shader);
    dot::declare_load_a(&mut shader, op, signs);
    dot::declare_load_b(&mut shader, op, signs, [&n, &k]);
    dot::declare_store(&mut shader, &batch)?;
    let Config { lanes_k, lanes_n, rows, staged_words } = config;
    shader.workgroup_memory(workgroup_bytes(lanes_k * lanes_n, rows, staged_words));
    let batch = product(&batch);
    let flops = m.mul(&n).mul(&k).mul(&batch).scale(2);
    let groups = [n.ceil_div(i64::from(lanes_n) * 4), m.ceil_div(i64::from(rows)), batch];
    let grid = Grid { groups, workgroup: [lanes_k * lanes_n, 1, 1] };
    Ok(vec![shader.finish("matvec_dot", KERNEL.wgsl, grid, flops)])
}
