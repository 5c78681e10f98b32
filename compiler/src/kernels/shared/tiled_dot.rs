//! `tiled_dot.wgsl`: products of 8-bit integers by tiles in workgroup memory and dot products of four, for matrices and for
//! convolutions with a row per pixel.

use serde::Deserialize;

use super::dot::{self, Signs};
use crate::ir::dim::Dim;
use crate::kernels::cost::{Parameters, barriers, waiting};
use crate::kernels::kernel::Candidate;
use crate::shader::pack::Packed;
use crate::shader::problem::Problem;
use crate::shader::{Grid, Shader};

pub(crate) const WGSL: &str = include_str!("tiled_dot.wgsl");

/// Tiles tried: invocations along M and N, rows and groups of four columns per invocation, and depth in groups of 16.
const TILES: &[[u32; 5]] = &[
    [8, 8, 4, 1, 2],
    [8, 8, 8, 2, 2],
    [16, 16, 8, 2, 2],
    [4, 16, 4, 1, 4],
    [2, 32, 1, 1, 4],
    [16, 4, 4, 1, 2],
];

/// The tiles that the target allows for `batch` products of M x K by K x N, with their costs.
pub(crate) fn tiles(
    problem: &Problem<'_>,
    signs: Signs,
    batch: i64,
    [m, n, k]: [i64; 3],
    packed: Option<&Packed>,
) -> Vec<Candidate> {
    let Some(p) = Params::of(problem) else { return Vec::new() };
    let (machine, limits) = (&problem.target.machine, &problem.target.limits);
    let wide = if packed.is_some() { 1.0 } else { 4.0 };
    let streaming = dot::traffic(problem, packed) / machine.bandwidth_gb_s.max(1e-3);
    let fits = |&&[tm, tn, rows, cols, tk]: &&[u32; 5]| {
        let groups = [n / i64::from(tn * cols * 4), m / i64::from(tm * rows), batch - 1];
        tm * tn <= limits.max_workgroup_invocations
            && memory([tm, tn, rows, cols, tk]) <= limits.max_workgroup_memory
            && groups.iter().zip(limits.max_workgroup_count).all(|(g, most)| *g < i64::from(most))
    };
    let candidate = |&[tm, tn, rows, cols, tk]: &[u32; 5]| {
        let (tile_m, tile_n) = (i64::from(tm * rows), i64::from(tn * cols * 4));
        let tiles = (m as f64 / tile_m as f64).ceil() * (n as f64 / tile_n as f64).ceil() * batch as f64;
        // Whole tiles are computed; every tile reads a strip of each operand; few tiles leave units idle.
        let extra = match (signs.flips(0), signs.flips(1)) {
            (true, _) => 1.0 / f64::from(rows),
            (_, true) => 0.25 / f64::from(cols),
            _ => 0.0,
        };
        let operations = tiles * (tile_m * tile_n) as f64 * 2.0 * k as f64 * (1.0 + extra);
        let reuse = 1.0 / (1.0 / f64::from(rows) + 1.0 / (4.0 * f64::from(cols)));
        let busy = (tiles / f64::from(machine.compute_units)).clamp(0.05, 1.0);
        let efficiency = p.reached * busy * reuse / (reuse + 1.0);
        let computing = operations / (machine.peak.int8 * efficiency).max(1e-3);
        let strips = tiles * (tile_m as f64 * 4.0 + tile_n as f64 * wide) * k as f64;
        let strips = strips / machine.cache_bandwidth_gb_s.max(1e-3);
        let steps = (k as f64 / f64::from(tk * 16)).ceil();
        let lanes = tiles * f64::from(tm * tn);
        // Loads of an invocation in a step: words of the first operand, four of them of the second.
        let first = (f64::from(rows * tk * 4) / f64::from(tn)).max(1.0);
        let second = wide * (f64::from(cols * tk * 4) / f64::from(tm)).max(1.0);
        let rounds = p.ends
            + steps * (p.step + p.load_a * first + p.load_b * second)
            + p.store * f64::from(rows * cols);
        let waiting = waiting(problem, lanes, rounds) + barriers(problem, lanes, 2.0 * steps);
        Candidate {
            knobs: vec![("THREADS_M", tm), ("THREADS_N", tn), ("ROWS", rows), ("COLS", cols), ("TILE_K", tk)],
            cost: computing.max(streaming).max(strips).max(waiting) + machine.launch_us * 1e3,
            reason: format!("tiles of {tile_m}x{tile_n}, {tiles} of them for {m}x{n}x{k} in words of four"),
        }
    };
    TILES.iter().filter(fits).map(candidate).collect()
}

/// Parameters of the estimate; waits in latencies of memory.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Params {
    /// Part of the peak that products from registers would reach.
    reached: f64,
    /// Before the first step and after the last.
    ends: f64,
    /// A step along the depth.
    step: f64,
    /// A load of a word of the first operand.
    load_a: f64,
    /// A load of four words of the second.
    load_b: f64,
    /// Four columns of the result.
    store: f64,
}

impl Parameters for Params {
    const GROUP: &str = "tiled_dot";
}

/// Bytes of both tiles.
fn memory([tm, tn, rows, cols, tk]: [u32; 5]) -> u32 {
    (tm * rows * tk + tk * 4 * tn * cols) * 16
}

/// Declares what does not depend on where the operands lie, and gives the grid for `batch` products.
pub(crate) fn declare(
    shader: &mut Shader<'_>,
    candidate: &Candidate,
    signs: Signs,
    batch: &Dim,
    [m, n, k]: [&Dim; 3],
) -> Grid {
    for (name, value) in &candidate.knobs {
        shader.knob(name, *value);
    }
    shader.size("size_m", m);
    shader.size("size_n", n);
    shader.size("size_k", k);
    signs.declare(shader);
    let knobs = ["THREADS_M", "THREADS_N", "ROWS", "COLS", "TILE_K"].map(|name| candidate.knob(name));
    shader.workgroup_memory(memory(knobs));
    let [tm, tn, rows, cols, _] = knobs;
    let groups = [n.ceil_div(i64::from(tn * cols * 4)), m.ceil_div(i64::from(tm * rows)), batch.clone()];
    Grid { groups, workgroup: [tm * tn, 1, 1] }
}
