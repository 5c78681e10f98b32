//! `matvec_dot.wgsl`: matrix products of 8-bit integers of one to a few rows, which cost one walk over the second
//! operand.

use serde::Deserialize;

use crate::error::OpError;
use crate::ir::dim::product;
use crate::ir::op::{MatMul, Op};
use crate::kernels::cost::{Parameters, barriers, waiting};
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::kernels::shared::dot::{self, Signs};
use crate::kernels::shared::product::{Sizes, sizes};
use crate::shader::problem::Problem;
use crate::shader::{Grid, Launch, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "matvec_dot",
    wgsl: include_str!("matvec_dot.wgsl"),
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
/// Words of all rows that are staged at a time.
const STAGED: i64 = 2048;

/// Parameters of the estimate; waits in latencies of memory.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Part of the arithmetic peak that is reached.
    reached: f64,
    /// Loads that an invocation has in flight.
    abreast: f64,
    /// How much more there is to compute where one operand is signed.
    mixed: f64,
    /// Before the first step and after the last.
    ends: f64,
    /// A load of a step.
    load: f64,
    /// A step's products with a row.
    row: f64,
    /// A stage.
    stage: f64,
    /// A word packed for it.
    staged_word: f64,
    /// A level of the tree that adds up the sums of a row.
    level: f64,
    /// The same for each further row.
    level_row: f64,
}

impl Parameters for Params {
    const GROUP: &str = "matvec_dot";
}

/// Whether neighbouring depths of the second operand are neighbours in memory.
fn along_k(op: &MatMul, problem: &Problem<'_>) -> bool {
    op.trans_b && dot::packed_b(op, problem).is_none()
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let (Op::MatMul(op), Some(signs)) = (problem.op, Signs::of(problem)) else { return Vec::new() };
    let Some(sizes) = sizes(op, problem).filter(|_| dot::readable(op, problem)) else { return Vec::new() };
    let Some(p) = Params::of(problem) else { return Vec::new() };
    let [m, n, k] = [&sizes.m, &sizes.n, &sizes.k].map(|d| problem.max(d));
    if m > MOST_ROWS {
        return Vec::new();
    }
    let batch = problem.max(&product(&sizes.batch));
    let (machine, limits) = (&problem.target.machine, &problem.target.limits);
    let rows = m.clamp(1, MOST_HELD);
    let blocks = (m as f64 / rows as f64).ceil();
    let groups_n = (n as f64 / 4.0).ceil();
    let words = ((k as f64 / 4.0).ceil() as i64).max(1);
    let stage = (STAGED / rows).min(words);
    let along_k = along_k(op, problem);
    let packed = dot::packed_b(op, problem).map(|(packed, _)| packed);
    let second =
        packed.as_ref().map_or(problem.operands[1].bytes(problem.bounds) as f64, |p| p.bytes() as f64);
    let traffic = dot::traffic(problem, packed.as_ref());
    let mixed = if signs.flips(0) || signs.flips(1) { p.mixed } else { 1.0 };
    let mut out = Vec::new();
    for lanes_k in [1u32, 4, 8, 16, 32, 64, 128, 256] {
        for lanes_n in [1u32, 2, 4, 8, 16, 32] {
            let threads = lanes_k * lanes_n;
            let tiles = (groups_n / f64::from(lanes_n)).ceil();
            let fits = threads <= limits.max_workgroup_invocations
                && memory(threads, rows as u32, stage as u32) <= limits.max_workgroup_memory
                && tiles <= f64::from(limits.max_workgroup_count[0]);
            let wasted = !(32..=256).contains(&threads) || i64::from(lanes_k) > 2 * words;
            if !fits || wasted {
                continue;
            }
            let all = tiles * blocks * batch as f64 * f64::from(threads);
            let room = f64::from(machine.compute_units) * f64::from(machine.invocations_per_unit);
            // A cache line is used in whole when neighbours read it together.
            let side = f64::from(if along_k { lanes_k } else { lanes_n });
            let waste = (4.0 / side).clamp(1.0, 4.0);
            // Every invocation has several loads in flight.
            let busy = (p.abreast * all / room).clamp(1e-3, 1.0);
            let bytes = traffic + second * (blocks - 1.0);
            let streaming = bytes * waste / (machine.bandwidth_gb_s.max(1e-3) * busy);
            let operations = 2.0 * (m * n * batch) as f64 * k as f64 * mixed;
            let computing = operations / (machine.peak.int8 * p.reached * busy).max(1e-3);
            // Every workgroup packs its rows, and then takes its words.
            let staging = ((rows * words) as f64 / f64::from(threads)).ceil();
            let stages = (words as f64 / stage as f64).ceil();
            let steps = (words as f64 / f64::from(lanes_k)).ceil();
            let loads = if packed.is_some() { 1.0 } else { 4.0 };
            let levels = f64::from(lanes_k.ilog2());
            let rounds = p.ends
                + steps * (p.load * loads + p.row * rows as f64)
                + p.stage * stages
                + p.staged_word * staging
                + levels * (p.level + p.level_row * (rows - 1) as f64);
            let waiting = waiting(problem, all, rounds) + barriers(problem, all, levels);
            out.push(Candidate {
                knobs: vec![
                    ("LANES_K", lanes_k),
                    ("LANES_N", lanes_n),
                    ("ROWS", rows as u32),
                    ("STAGE", stage as u32),
                ],
                cost: streaming.max(computing).max(waiting) + machine.launch_us * 1e3,
                reason: format!(
                    "{m} rows: {lanes_k} invocations share the depth {k} in words of four, {} columns a workgroup",
                    lanes_n * 4
                ),
            });
        }
    }
    out
}

/// Bytes of the staged rows and of the partial sums.
fn memory(threads: u32, rows: u32, stage: u32) -> u32 {
    rows * stage * 4 + threads * rows * 16
}

fn launches(problem: &Problem<'_>, candidate: &Candidate) -> Result<Vec<Launch>, OpError> {
    let (Op::MatMul(op), Some(signs)) = (problem.op, Signs::of(problem)) else {
        return Err(OpError::new("not a product of 8-bit integers"));
    };
    let Sizes { batch, m, k, n } =
        sizes(op, problem).ok_or_else(|| OpError::new("operands of rank two or more are needed"))?;
    let mut shader = Shader::new(problem);
    for (name, value) in &candidate.knobs {
        shader.knob(name, *value);
    }
    shader.size("size_m", &m);
    shader.size("size_n", &n);
    shader.size("size_k", &k);
    shader.constant("K_FIRST", along_k(op, problem));
    signs.declare(&mut shader);
    dot::load_a(&mut shader, op, signs);
    dot::load_b(&mut shader, op, signs, [&n, &k]);
    dot::store(&mut shader, &batch)?;
    let [lanes_k, lanes_n, rows, stage] =
        ["LANES_K", "LANES_N", "ROWS", "STAGE"].map(|name| candidate.knob(name).max(1));
    shader.workgroup_memory(memory(lanes_k * lanes_n, rows, stage));
    let batch = product(&batch);
    let flops = m.mul(&n).mul(&k).mul(&batch).scale(2);
    let groups = [n.ceil_div(i64::from(lanes_n) * 4), m.ceil_div(i64::from(rows)), batch];
    let grid = Grid { groups, workgroup: [lanes_k * lanes_n, 1, 1] };
    Ok(vec![shader.finish("matvec_dot", KERNEL.wgsl, grid, flops)?])
}
