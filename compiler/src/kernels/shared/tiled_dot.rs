//! `tiled_dot.wgsl`: 8-bit integer matmuls with tiles in workgroup memory and dot products of four elements, for
//! matmuls and for convolutions with a row per pixel.

use serde::Deserialize;

use super::dot::Signs;
use crate::ir::dim::Dim;
use crate::kernels::cost::{Estimate, Parameters, barriers, waiting};
use crate::kernels::kernel::{Candidate, Configuration, config};
use crate::shader::problem::Problem;
use crate::shader::{Grid, Shader};

pub(crate) const WGSL: &str = include_str!("tiled_dot.wgsl");

config! {
    /// Configuration of 8-bit matmuls with `tiled_dot.wgsl`.
    pub(crate) struct Config {
        /// Number of invocations of a workgroup along M.
        THREADS_M => threads_m: u32,
        /// Number of invocations of a workgroup along N.
        THREADS_N => threads_n: u32,
        /// Number of rows of the result that an invocation computes.
        ROWS => rows: u32,
        /// Number of columns of the result that an invocation computes, in vec4s.
        COLS => columns: u32,
        /// Size of a K-tile, the range of K that one step multiplies, in groups of 16 elements.
        TILE_K => tile_k: u32,
    }
}

/// Tiles of the candidates. Each lists invocations along M and N, rows and vec4s of columns per invocation, and the
/// size of a K-tile in groups of 16 elements.
const TILES: &[[u32; 5]] = &[
    [8, 8, 4, 1, 2],
    [8, 8, 8, 2, 2],
    [16, 16, 8, 2, 2],
    [4, 16, 4, 1, 4],
    [2, 32, 1, 1, 4],
    [16, 4, 4, 1, 2],
];

/// Returns the candidates of `tiled_dot.wgsl` for `batch` 8-bit matmuls of M x K by K x N within the target's limits,
/// with their costs.
/// `packed_b` is true if four words of the second operand are adjacent in memory.
pub(crate) fn tile_candidates(
    problem: &Problem<'_>,
    signs: Signs,
    batch: i64,
    [m, n, k]: [i64; 3],
    packed_b: bool,
) -> Vec<Candidate> {
    let Some(p) = Params::from_problem(problem) else { return Vec::new() };
    let (machine, limits) = (&problem.target.machine, &problem.target.limits);
    // Without packing, a vec4 of words is read as the vec4s of four rows or columns.
    let loads_per_vec4_of_words = if packed_b { 1.0 } else { 4.0 };
    let memory = problem.traffic() as f64 / machine.bandwidth_gb_s.max(1e-3);
    let fits = |&&[tm, tn, rows, cols, tk]: &&[u32; 5]| {
        let groups = [n / i64::from(tn * cols * 4), m / i64::from(tm * rows), batch - 1];
        tm * tn <= limits.max_workgroup_invocations
            && workgroup_bytes([tm, tn, rows, cols, tk]) <= limits.max_workgroup_memory
            && groups.iter().zip(limits.max_workgroup_count).all(|(g, limit)| *g < i64::from(limit))
    };
    let candidate = |&[tm, tn, rows, cols, tk]: &[u32; 5]| {
        let (tile_m, tile_n) = (i64::from(tm * rows), i64::from(tn * cols * 4));
        let tiles = (m as f64 / tile_m as f64).ceil() * (n as f64 / tile_n as f64).ceil() * batch as f64;
        // Whole tiles are computed, every tile reads a strip of each operand, and few tiles leave compute units idle.
        let correction = if signs.flips(0) { 1.0 / f64::from(rows) } else { 0.0 }
            + if signs.flips(1) { 0.25 / f64::from(cols) } else { 0.0 };
        let operations = tiles * (tile_m * tile_n) as f64 * 2.0 * k as f64 * (1.0 + correction);
        let reuse = 1.0 / (1.0 / f64::from(rows) + 1.0 / (4.0 * f64::from(cols)));
        let busy = (tiles / f64::from(machine.compute_units)).clamp(0.05, 1.0);
        let efficiency = p.peak_fraction * busy * reuse / (reuse + 1.0);
        let strips = tiles * (tile_m + tile_n) as f64 * k as f64;
        let steps = (k as f64 / f64::from(tk * 16)).ceil();
        let lanes = tiles * f64::from(tm * tn);
        // Loads of an invocation per step: words of the first operand, vec4s of words of the second.
        let a_loads = (f64::from(rows * tk * 4) / f64::from(tn)).max(1.0);
        let b_loads = loads_per_vec4_of_words * (f64::from(cols * tk * 4) / f64::from(tm)).max(1.0);
        let latencies = p.fixed_latencies
            + steps * (p.step_latencies + p.a_load_latencies * a_loads + p.b_load_latencies * b_loads)
            + p.store_latencies * f64::from(rows * cols);
        let estimate = Estimate {
            memory,
            cache: strips / machine.cache_bandwidth_gb_s.max(1e-3),
            compute: operations / (machine.peak.int8 * efficiency).max(1e-3),
            latency: waiting(problem, lanes, latencies) + barriers(problem, lanes, 2.0 * steps),
            ..Estimate::for_dispatches(problem, 1.0)
        };
        let config = Config { threads_m: tm, threads_n: tn, rows, columns: cols, tile_k: tk };
        let reason = format!(
            "{tiles} tiles of {tile_m}x{tile_n} for M x N x K = {m}x{n}x{k} by dot products of four elements"
        );
        // Sums, four vec4s of the second operand and one of the first; sums of the operands' elements.
        let flipped_columns = if signs.flips(0) { cols } else { 0 };
        let flipped_rows = if signs.flips(1) { rows } else { 0 };
        Candidate::new(&config, estimate, reason)
            .with_live_values(rows * cols + 5 + flipped_columns, flipped_rows)
    };
    TILES.iter().filter(fits).map(candidate).collect()
}

/// Cost parameters of 8-bit matmuls with `tiled_dot.wgsl`. All are positive; `latencies` are multiples of the memory latency.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Params {
    /// Fixed time before the first step along K and after the last step, in memory latencies.
    fixed_latencies: f64,
    /// Time to load a word of four elements of the first operand, in memory latencies.
    a_load_latencies: f64,
    /// Time to load four words of the second operand, in memory latencies.
    b_load_latencies: f64,
    /// Fraction of the peak 8-bit operations per second that the kernel would reach if all operands were in registers; 0 to 1.
    peak_fraction: f64,
    /// Time of a step along K without its loads, in memory latencies.
    step_latencies: f64,
    /// Time to store a vec4 of the result, in memory latencies.
    store_latencies: f64,
}

impl Parameters for Params {
    const GROUP: &str = "tiled_dot";
}

/// Returns the workgroup memory of the K-tiles of both operands, in bytes.
fn workgroup_bytes([tm, tn, rows, cols, tk]: [u32; 5]) -> u32 {
    (tm * rows * tk + tk * 4 * tn * cols) * 16
}

/// Declares the parts of `tiled_dot.wgsl` that do not depend on the operands' layouts, and returns the dispatch grid
/// for `batch` matmuls.
pub(crate) fn declare_matmul(
    shader: &mut Shader<'_>,
    config: Config,
    signs: Signs,
    batch: &Dim,
    [m, n, k]: [&Dim; 3],
) -> Grid {
    config.declare(shader);
    shader.size("size_m", m);
    shader.size("size_n", n);
    shader.size("size_k", k);
    signs.declare(shader);
    let Config { threads_m: tm, threads_n: tn, rows, columns: cols, tile_k: tk } = config;
    shader.workgroup_memory(workgroup_bytes([tm, tn, rows, cols, tk]));
    let groups = [n.ceil_div(i64::from(tn * cols * 4)), m.ceil_div(i64::from(tm * rows)), batch.clone()];
    Grid { groups, workgroup: [tm * tn, 1, 1] }
}
