//! `tiled_dot.wgsl`: 8-bit integer matmuls with tiles in workgroup memory and dot products of four elements, for
//! matmuls and for convolutions with a row per pixel.

use serde::Deserialize;

use super::dot::{self, Signs};
use crate::ir::dim::Dim;
use crate::kernels::cost::{Parameters, barriers, waiting};
use crate::kernels::kernel::{Candidate, Configuration, config};
use crate::shader::pack::Packed;
use crate::shader::problem::Problem;
use crate::shader::{Grid, Shader};

pub(crate) const WGSL: &str = include_str!("tiled_dot.wgsl");

config! {
    /// Configuration.
    pub(crate) struct Config {
        /// Invocations along M.
        THREADS_M => threads_m: u32,
        /// Invocations along N.
        THREADS_N => threads_n: u32,
        /// Rows per invocation.
        ROWS => rows: u32,
        /// Vec4s of columns per invocation.
        COLS => columns: u32,
        /// K per tile, in groups of 16.
        TILE_K => tile_k: u32,
    }
}

/// Tiles tried: invocations along M and N, rows and vec4s of columns per invocation, and K per tile in groups of 16.
const TILES: &[[u32; 5]] = &[
    [8, 8, 4, 1, 2],
    [8, 8, 8, 2, 2],
    [16, 16, 8, 2, 2],
    [4, 16, 4, 1, 4],
    [2, 32, 1, 1, 4],
    [16, 4, 4, 1, 2],
];

/// Returns the candidates for `batch` matmuls of M x K by K x N within the target's limits, with their costs.
pub(crate) fn tile_candidates(
    problem: &Problem<'_>,
    signs: Signs,
    batch: i64,
    [m, n, k]: [i64; 3],
    packed_b: Option<&Packed>,
) -> Vec<Candidate> {
    let Some(p) = Params::of(problem) else { return Vec::new() };
    let (machine, limits) = (&problem.target.machine, &problem.target.limits);
    let b_element_bytes = if packed_b.is_some() { 1.0 } else { 4.0 };
    let streaming = dot::traffic(problem, packed_b) / machine.bandwidth_gb_s.max(1e-3);
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
        let correction = match (signs.flips(0), signs.flips(1)) {
            (true, _) => 1.0 / f64::from(rows),
            (_, true) => 0.25 / f64::from(cols),
            _ => 0.0,
        };
        let operations = tiles * (tile_m * tile_n) as f64 * 2.0 * k as f64 * (1.0 + correction);
        let reuse = 1.0 / (1.0 / f64::from(rows) + 1.0 / (4.0 * f64::from(cols)));
        let busy = (tiles / f64::from(machine.compute_units)).clamp(0.05, 1.0);
        let efficiency = p.peak_fraction * busy * reuse / (reuse + 1.0);
        let computing = operations / (machine.peak.int8 * efficiency).max(1e-3);
        let strips = tiles * (tile_m as f64 * 4.0 + tile_n as f64 * b_element_bytes) * k as f64;
        let strips = strips / machine.cache_bandwidth_gb_s.max(1e-3);
        let steps = (k as f64 / f64::from(tk * 16)).ceil();
        let lanes = tiles * f64::from(tm * tn);
        // Loads of an invocation per step: words of the first operand, vec4s of words of the second.
        let a_loads = (f64::from(rows * tk * 4) / f64::from(tn)).max(1.0);
        let b_loads = b_element_bytes * (f64::from(cols * tk * 4) / f64::from(tm)).max(1.0);
        let latencies = p.fixed_latencies
            + steps * (p.step_latencies + p.a_load_latencies * a_loads + p.b_load_latencies * b_loads)
            + p.store_latencies * f64::from(rows * cols);
        let waiting = waiting(problem, lanes, latencies) + barriers(problem, lanes, 2.0 * steps);
        Candidate {
            knobs: Config { threads_m: tm, threads_n: tn, rows, columns: cols, tile_k: tk }.knobs(),
            cost: computing.max(streaming).max(strips).max(waiting) + machine.launch_us * 1e3,
            reason: format!("{tiles} tiles of {tile_m}x{tile_n} for {m}x{n}x{k} by dot products of four"),
        }
    };
    TILES.iter().filter(fits).map(candidate).collect()
}

/// Cost parameters. All are positive; `latencies` are multiples of the memory latency.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Params {
    /// Memory latencies before the first step and after the last step.
    fixed_latencies: f64,
    /// Memory latencies per load of a word of the first operand.
    a_load_latencies: f64,
    /// Memory latencies per load of four words of the second operand.
    b_load_latencies: f64,
    /// Fraction of the peak operations per second that multiplying from registers would reach; 0 to 1.
    peak_fraction: f64,
    /// Memory latencies per step along K.
    step_latencies: f64,
    /// Memory latencies per vec4 of the result.
    store_latencies: f64,
}

impl Parameters for Params {
    const GROUP: &str = "tiled_dot";
}

/// Bytes of workgroup memory of both tiles.
fn workgroup_bytes([tm, tn, rows, cols, tk]: [u32; 5]) -> u32 {
    (tm * rows * tk + tk * 4 * tn * cols) * 16
}

/// Declares the parts of the shader that do not depend on the operands' layouts, and returns the grid for `batch`
/// matmuls.
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
