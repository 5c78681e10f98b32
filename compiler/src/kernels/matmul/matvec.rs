//! `matvec.wgsl`: small-M matmuls, whose time is bound by reading the second operand once.

use serde::Deserialize;

use super::eligibility::is_eligible;
use crate::error::OpError;
use crate::ir::dim::product;
use crate::ir::op::{MatMul, Op};
use crate::kernels::cost::{Estimate, Overlap, Parameters, barriers, stays_cached};
use crate::kernels::kernel::{Candidate, Configuration, Group, InPlace, Kernel, config};
use crate::kernels::shared::matmul_sizes::{
    MatMulSizes, batch_axes, matmul_sizes, matrix_coordinates, operand_batch,
};
use crate::shader::access::Coordinates;
use crate::shader::problem::{Placement, Problem};
use crate::shader::{Grid, LaunchDraft, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "matvec",
    wgsl: include_str!("matvec.wgsl"),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::from_parameters::<Params>()],
    in_place: InPlace::Epilogue,
};

config! {
    /// Configuration of the kernel `matvec`.
    struct Config {
        /// Number of invocations that split K.
        LANES_K => lanes_k: u32,
        /// Number of invocations of a workgroup along N. Each invocation computes four columns.
        LANES_N => lanes_n: u32,
        /// Number of rows that a workgroup computes.
        ROWS => rows: u32,
    }
}

/// Maximum number of rows that a workgroup computes.
const MAX_GROUP_ROWS: i64 = 8;

/// True if the second operand is contiguous along K and K is not 1. (A read along an axis of one element repeats this
/// element in all four lanes.)
fn along_k(op: &MatMul, problem: &Problem<'_>) -> bool {
    let b = &problem.operands[1];
    let (k, n) = if op.trans_b { (b.rank() - 1, b.rank() - 2) } else { (b.rank() - 2, b.rank() - 1) };
    match &b.placement {
        _ if b.shape[k].is(1) => false,
        Placement::Strided { strides, .. } => strides[k].is(1) || !strides[n].is(1) && op.trans_b,
        Placement::Slices4 => op.trans_b,
    }
}

/// Cost parameters of the kernel `matvec`. All are positive; fields named `.._latencies` are multiples of the memory latency.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Number of loads that an invocation has in flight.
    concurrent_loads: f64,
    /// Weight with which the shorter of two times (streaming the operands, waiting for loads) is added to the longer
    /// one. 0 if the two times overlap completely.
    shorter_time_weight: f64,
    /// Time of a step along K if all operands stay in the cache, in memory latencies.
    cached_step_latencies: f64,
    /// Nanoseconds that each row after the first adds to a level of the reduction tree.
    extra_row_level_ns: f64,
    /// Time of a step along K if operands come from memory, in memory latencies.
    uncached_step_latencies: f64,
    /// Fraction of the peak FLOP/s that the kernel reaches; 0 to 1.
    peak_fraction: f64,
    /// Time that each row after the first adds to a step along K, in memory latencies.
    extra_row_step_latencies: f64,
    /// Time to pass one invocation's sums of one row through workgroup memory, in memory latencies.
    sum_exchange_latencies: f64,
}

impl Parameters for Params {
    const GROUP: &str = "matvec";
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Op::MatMul(op) = problem.op else { return Vec::new() };
    if !problem.computed.is_float() || !is_eligible(KERNEL.name, problem) {
        return Vec::new();
    }
    let Some(sizes) = matmul_sizes(op, problem) else { return Vec::new() };
    let Some(p) = Params::from_problem(problem) else { return Vec::new() };
    let (m, n, k) = (problem.max(&sizes.m), problem.max(&sizes.n), problem.max(&sizes.k));
    let batch = problem.max(&product(&sizes.batch));
    let (machine, limits) = (&problem.target.machine, &problem.target.limits);
    let rows = m.clamp(1, MAX_GROUP_ROWS);
    let blocks = (m as f64 / rows as f64).ceil();
    let groups_n = (n as f64 / 4.0).ceil();
    let groups_k = ((k as f64 / 4.0).ceil() as i64).max(1);
    let along_k = along_k(op, problem);
    // Loads of one step overlap a little, and come from the cache if all operands fit well into it.
    let cached = stays_cached(problem, problem.traffic() as f64);
    let wait =
        machine.memory_latency_ns * if cached { p.cached_step_latencies } else { p.uncached_step_latencies };
    let mut out = Vec::new();
    for lanes_k in [1u32, 4, 8, 16, 32, 64, 128, 256] {
        for lanes_n in [1u32, 2, 4, 8, 16, 32] {
            let threads = lanes_k * lanes_n;
            let memory = threads * 16 * rows as u32;
            let tiles = (groups_n / f64::from(lanes_n)).ceil();
            let fits = threads <= limits.max_workgroup_invocations
                && memory <= limits.max_workgroup_memory
                && tiles <= f64::from(limits.max_workgroup_count[0]);
            let wasted = !(32..=256).contains(&threads) || i64::from(lanes_k) > 2 * groups_k;
            if !fits || wasted {
                continue;
            }
            let groups = tiles * blocks * batch as f64;
            let all = groups * f64::from(threads);
            let room = machine.invocations();
            // A cache line is used completely if adjacent invocations read it together.
            let adjacent = f64::from(if along_k { lanes_k } else { lanes_n });
            let waste = (4.0 / adjacent).clamp(1.0, 4.0);
            // Every invocation has several loads in flight.
            let busy = (p.concurrent_loads * all / room).clamp(1e-3, 1.0);
            let bytes =
                problem.traffic() as f64 + problem.operands[1].bytes(problem.bounds) as f64 * (blocks - 1.0);
            let flops = 2.0 * (m * n * batch) as f64 * k as f64;
            let steps = (groups_k as f64 / f64::from(lanes_k)).ceil();
            let levels = f64::from(lanes_k.ilog2());
            let extra_rows = (rows - 1) as f64;
            let latency = machine.memory_latency_ns;
            let row_latencies = f64::from(threads) * rows as f64 * p.sum_exchange_latencies
                + steps * extra_rows * p.extra_row_step_latencies;
            let waiting = (all / room).ceil()
                * ((steps + 2.0) * wait
                    + row_latencies * latency
                    + levels * p.extra_row_level_ns * extra_rows)
                + barriers(problem, all, levels);
            let estimate = Estimate {
                memory: bytes * waste / (machine.bandwidth_gb_s.max(1e-3) * busy),
                compute: flops / (machine.peak.f32 * p.peak_fraction * busy).max(1e-3),
                latency: waiting,
                overlap: Overlap::PartialReads { shorter_weight: p.shorter_time_weight },
                ..Estimate::for_dispatches(problem, 1.0)
            };
            let reason = format!(
                "matmul of {m} rows: {lanes_k} invocations split K = {k}, {} columns per workgroup",
                lanes_n * 4
            );
            out.push(Candidate::new(&Config { lanes_k, lanes_n, rows: rows as u32 }, estimate, reason));
        }
    }
    out
}

fn launches(problem: &Problem<'_>, config: Config) -> Result<Vec<LaunchDraft>, OpError> {
    let Op::MatMul(op) = problem.op else { return Err(OpError::new("not a matmul")) };
    let MatMulSizes { batch, m, k, n } = matmul_sizes(op, problem)
        .ok_or_else(|| OpError::new("a matmul needs operands with at least two axes"))?;
    let mut shader = Shader::new(problem);
    config.declare(&mut shader);
    shader.size("size_m", &m);
    shader.size("size_n", &n);
    shader.size("size_k", &k);
    let (prelude, at) = matrix_coordinates(&mut shader, 0, op.trans_a, "row", "k4");
    shader.read("load_a", "batch: u32, row: u32, k4: u32", &prelude, 0, &at);

    let along_k = along_k(op, problem);
    shader.constant("K_FIRST", along_k);
    let (prelude, mut axes) = operand_batch(&mut shader, 1);
    // A vec4 of b along its contiguous axis: `line` counts vec4s, `at` counts elements of the other axis.
    let (k_name, n_name) = if along_k { ("line", "at") } else { ("at", "line") };
    let first = axes.len();
    let names = if op.trans_b { [n_name, k_name] } else { [k_name, n_name] };
    axes.extend(names.map(str::to_string));
    let lane = if op.trans_b == along_k { first + 1 } else { first };
    let line = shader.read_fn(
        "b_line",
        "batch: u32, line: u32, at: u32",
        &prelude,
        1,
        &Coordinates::vec4(axes, lane),
        false,
    );
    let (group, other, size) = if along_k { ("k4", "n4", &n) } else { ("n4", "k4", &k) };
    // Vectors past the end read the last vector and are replaced by zeros.
    let limit = (!size.is_multiple_of(4)).then(|| shader.dim(size));
    let vectors = [0, 1, 2, 3].map(|j| match &limit {
        Some(limit) if j > 0 => format!(
            "select(vec4<f32>(0.0), b_line(batch, {group}, min({other} * 4u + {j}u, {limit} - 1u)), {other} * 4u + {j}u < {limit})"
        ),
        _ => format!("b_line(batch, {group}, {other} * 4u + {j}u)"),
    });
    let [v0, v1, v2, v3] = vectors;
    shader.replace(
        "load_b",
        format!(
            "{line}fn load_b(batch: u32, k4: u32, n4: u32) -> mat4x4<f32> {{
    return mat4x4<f32>(
        {v0},
        {v1},
        {v2},
        {v3},
    );
}}"
        ),
    );
    if along_k {
        let multiply = "fn multiply_block(a: vec4<f32>, b: mat4x4<f32>) -> vec4<f32> { return a * b; }";
        shader.replace("multiply_block", multiply.into());
    }
    let (prelude, mut axes) = batch_axes(&mut shader, &batch);
    axes.extend(["row".to_string(), "n4".to_string()]);
    let lanes = axes.len() - 1;
    shader.write("store", "batch: u32, row: u32, n4: u32", &prelude, &Coordinates::vec4(axes, lanes))?;

    let Config { lanes_k, lanes_n, rows } = config;
    shader.workgroup_memory(lanes_k * lanes_n * rows * 16);
    let batch = product(&batch);
    let flops = m.mul(&n).mul(&k).mul(&batch).scale(2);
    let groups = [n.ceil_div(i64::from(lanes_n) * 4), m.ceil_div(i64::from(rows)), batch];
    let grid = Grid { groups, workgroup: [lanes_k * lanes_n, 1, 1] };
    Ok(vec![shader.finish("matvec", KERNEL.wgsl, grid, flops)])
}
