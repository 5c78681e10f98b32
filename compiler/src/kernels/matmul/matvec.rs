//! `matvec.wgsl`: matrix products of one to a few rows, which cost one walk over the second operand.

use serde::Deserialize;

use super::matvec_fragments;
use crate::error::OpError;
use crate::ir::dim::product;
use crate::ir::op::{MatMul, Op};
use crate::kernels::cost::{Parameters, barriers, stays_cached};
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::kernels::shared::product::{Sizes, batch_axes, matrix_coordinates, operand_batch, sizes};
use crate::shader::access::Coordinates;
use crate::shader::problem::{Placement, Problem};
use crate::shader::{Grid, Launch, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "matvec",
    wgsl: include_str!("matvec.wgsl"),
    candidates,
    launches,
    matrices: None,
    params: &[Group::of::<Params>()],
    in_place: InPlace::Epilogue,
};

/// Most rows worth a walk over the second operand.
const MOST_ROWS: i64 = 16;
/// Most rows that one workgroup multiplies at once.
const MOST_HELD: i64 = 8;

/// Whether the second operand's elements along K are neighbours in memory, of which there is more than one: a lane axis of
/// one element is read into all lanes.
fn along_k(op: &MatMul, problem: &Problem<'_>) -> bool {
    let b = &problem.operands[1];
    let (k, n) = if op.trans_b { (b.rank() - 1, b.rank() - 2) } else { (b.rank() - 2, b.rank() - 1) };
    match &b.placement {
        _ if b.shape[k].is(1) => false,
        Placement::Strided { strides, .. } => strides[k].is(1) || !strides[n].is(1) && op.trans_b,
        Placement::Slices4 => op.trans_b,
    }
}

/// Parameters of the estimate; waits in latencies of memory where nothing else is said.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Part of the arithmetic peak that is reached.
    reached: f64,
    /// Loads that an invocation has in flight.
    abreast: f64,
    /// A step's wait for what lies in the cache.
    cached: f64,
    /// A step's wait for what does not.
    loaded: f64,
    /// A step's products with each further row.
    row: f64,
    /// Passing an invocation's sums of a row through workgroup memory.
    shared: f64,
    /// Nanoseconds of a level of the tree that adds up the sums of each further row.
    level_ns: f64,
    /// The part of the lesser of reading and waiting that the greater does not hide.
    beside: f64,
}

impl Parameters for Params {
    const GROUP: &str = "matvec";
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Op::MatMul(op) = problem.op else { return Vec::new() };
    // Codes are worth a kernel that reads whole units of them.
    if !problem.computed.is_float() || problem.operands.get(1).is_none_or(|b| b.codes.is_some()) {
        return Vec::new();
    }
    let Some(sizes) = sizes(op, problem) else { return Vec::new() };
    let Some(p) = Params::of(problem) else { return Vec::new() };
    let (m, n, k) = (problem.max(&sizes.m), problem.max(&sizes.n), problem.max(&sizes.k));
    if m > MOST_ROWS || matvec_fragments::streams(problem) {
        return Vec::new();
    }
    let batch = problem.max(&product(&sizes.batch));
    let (machine, limits) = (&problem.target.machine, &problem.target.limits);
    let rows = m.clamp(1, MOST_HELD);
    let blocks = (m as f64 / rows as f64).ceil();
    let groups_n = (n as f64 / 4.0).ceil();
    let groups_k = ((k as f64 / 4.0).ceil() as i64).max(1);
    let along_k = along_k(op, problem);
    // Loads of one step overlap a little, and come from the cache where everything fits well into it.
    let held = stays_cached(problem, problem.traffic() as f64);
    let wait = machine.memory_latency_ns * if held { p.cached } else { p.loaded };
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
            let room = f64::from(machine.compute_units) * f64::from(machine.invocations_per_unit);
            // A cache line is used in whole when neighbours read it together.
            let side = f64::from(if along_k { lanes_k } else { lanes_n });
            let waste = (4.0 / side).clamp(1.0, 4.0);
            // Every invocation has several loads in flight.
            let busy = (p.abreast * all / room).clamp(1e-3, 1.0);
            let bytes =
                problem.traffic() as f64 + problem.operands[1].bytes(problem.bounds) as f64 * (blocks - 1.0);
            let streaming = bytes * waste / (machine.bandwidth_gb_s.max(1e-3) * busy);
            let flops = 2.0 * (m * n * batch) as f64 * k as f64;
            let computing = flops / (machine.peak.f32 * p.reached * busy).max(1e-3);
            let steps = (groups_k as f64 / f64::from(lanes_k)).ceil();
            let levels = f64::from(lanes_k.ilog2());
            let more = (rows - 1) as f64;
            let latency = machine.memory_latency_ns;
            let shared = f64::from(threads) * rows as f64 * p.shared + steps * more * p.row;
            let waiting = (all / room).ceil()
                * ((steps + 2.0) * wait + shared * latency + levels * p.level_ns * more)
                + barriers(problem, all, levels);
            let reading = streaming.max(waiting) + p.beside * streaming.min(waiting);
            out.push(Candidate {
                knobs: vec![("LANES_K", lanes_k), ("LANES_N", lanes_n), ("ROWS", rows as u32)],
                cost: reading.max(computing) + machine.launch_us * 1e3,
                reason: format!(
                    "{m} rows: {lanes_k} invocations share the depth {k}, {} columns a workgroup",
                    lanes_n * 4
                ),
            });
        }
    }
    out
}

fn launches(problem: &Problem<'_>, candidate: &Candidate) -> Result<Vec<Launch>, OpError> {
    let Op::MatMul(op) = problem.op else { return Err(OpError::new("not a matrix product")) };
    let Sizes { batch, m, k, n } =
        sizes(op, problem).ok_or_else(|| OpError::new("operands of rank two or more are needed"))?;
    let mut shader = Shader::new(problem);
    for (name, value) in &candidate.knobs {
        shader.knob(name, *value);
    }
    shader.size("size_m", &m);
    shader.size("size_n", &n);
    shader.size("size_k", &k);
    let (prelude, at) = matrix_coordinates(&mut shader, 0, op.trans_a, "row", "k4");
    shader.read("load_a", "batch: u32, row: u32, k4: u32", &prelude, 0, &at);

    let along_k = along_k(op, problem);
    shader.constant("K_FIRST", along_k);
    let (prelude, mut axes) = operand_batch(&mut shader, 1);
    // One vector of b along the axis on which it lies: `line` counts groups of four, `at` single elements.
    let (of_k, of_n) = if along_k { ("line", "at") } else { ("at", "line") };
    let first = axes.len();
    let names = if op.trans_b { [of_n, of_k] } else { [of_k, of_n] };
    axes.extend(names.map(str::to_string));
    let lane = if op.trans_b == along_k { first + 1 } else { first };
    let line = shader.read_fn(
        "b_line",
        "batch: u32, line: u32, at: u32",
        &prelude,
        1,
        &Coordinates::four(axes, lane),
        false,
    );
    let (group, other, size) = if along_k { ("k4", "n4", &n) } else { ("n4", "k4", &k) };
    // Vectors past the end are read from the last one and replaced by zeros.
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
        shader
            .replace("times", "fn times(a: vec4<f32>, b: mat4x4<f32>) -> vec4<f32> { return a * b; }".into());
    }
    let (prelude, mut axes) = batch_axes(&mut shader, &batch);
    axes.extend(["row".to_string(), "n4".to_string()]);
    let lanes = axes.len() - 1;
    shader.write("store", "batch: u32, row: u32, n4: u32", &prelude, &Coordinates::four(axes, lanes))?;

    let [lanes_k, lanes_n, rows] = ["LANES_K", "LANES_N", "ROWS"].map(|name| candidate.knob(name).max(1));
    shader.workgroup_memory(lanes_k * lanes_n * rows * 16);
    let batch = product(&batch);
    let flops = m.mul(&n).mul(&k).mul(&batch).scale(2);
    let groups = [n.ceil_div(i64::from(lanes_n) * 4), m.ceil_div(i64::from(rows)), batch];
    let grid = Grid { groups, workgroup: [lanes_k * lanes_n, 1, 1] };
    Ok(vec![shader.finish("matvec", KERNEL.wgsl, grid, flops)?])
}
