//! `tiled.wgsl`: float matmuls with tiles in workgroup memory, for matmuls and for 1x1 convolutions with a row per
//! pixel.

use serde::Deserialize;

use crate::ir::dim::Dim;
use crate::kernels::cost::{Parameters, barriers, roofline, waiting};
use crate::kernels::kernel::{Candidate, Configuration, config};
use crate::shader::problem::Problem;
use crate::shader::{Grid, Shader};

pub(crate) const WGSL: &str = include_str!("tiled.wgsl");

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
        /// K per tile.
        TILE_K => tile_k: u32,
    }
}

/// Tiles tried: invocations along M and N, rows and vec4s of columns per invocation, and K per tile.
const TILES: &[[u32; 5]] =
    &[[8, 8, 4, 1, 16], [8, 8, 8, 2, 16], [4, 16, 4, 1, 16], [2, 32, 1, 1, 32], [16, 4, 4, 1, 16]];

/// Cost parameters. All are positive; `latencies` are multiples of the memory latency.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Params {
    /// Ratio of the load time of four elements that are not adjacent to the load time of a vec4.
    strided_load_ratio: f64,
    /// Memory latencies before the first step and after the last step.
    fixed_latencies: f64,
    /// Memory latencies per load of an invocation.
    load_latencies: f64,
    /// Fraction of the peak FLOP/s that multiplying from registers would reach; 0 to 1.
    peak_fraction: f64,
    /// Memory latencies per step along K.
    step_latencies: f64,
    /// Memory latencies per vec4 of the result.
    store_latencies: f64,
}

impl Parameters for Params {
    const GROUP: &str = "tiled";
}

/// Returns the candidates for `batch` matmuls of M x K by K x N within the target's limits, with their costs. If
/// `strided` is true for an operand, a vec4 of it takes several loads.
pub(crate) fn tile_candidates(
    problem: &Problem<'_>,
    batch: i64,
    [m, n, k]: [i64; 3],
    strided: [bool; 2],
) -> Vec<Candidate> {
    let Some(p) = Params::of(problem) else { return Vec::new() };
    let limits = &problem.target.limits;
    TILES
        .iter()
        .filter(|[tm, tn, rows, cols, tk]| {
            let memory = (tm * rows * tk + tk * tn * cols * 4) * 4;
            tm * tn <= limits.max_workgroup_invocations && memory <= limits.max_workgroup_memory
        })
        .map(|&[tm, tn, rows, cols, tk]| {
            let (tile_m, tile_n) = (i64::from(tm * rows), i64::from(tn * cols * 4));
            let tiles = (m as f64 / tile_m as f64).ceil() * (n as f64 / tile_n as f64).ceil() * batch as f64;
            // Whole tiles are computed, every tile reads a strip of each operand, and few tiles leave compute units
            // idle.
            let flops = tiles * (tile_m * tile_n) as f64 * 2.0 * k as f64;
            let reuse = 1.0 / (1.0 / f64::from(rows) + 1.0 / (4.0 * f64::from(cols)));
            let busy = (tiles / f64::from(problem.target.machine.compute_units)).clamp(0.05, 1.0);
            let efficiency = p.peak_fraction * busy * reuse / (reuse + 1.0);
            let strips = tiles * (tile_m + tile_n) as f64 * k as f64 * 4.0;
            let cache = problem.target.machine.cache_bandwidth_gb_s.max(1e-3);
            let lanes = tiles * f64::from(tm * tn);
            let steps = (k as f64 / f64::from(tk)).ceil();
            // The loads of an invocation for a tile follow each other, and so do its stores.
            let loads = [tm * rows * tk / 4, tk * tn * cols]
                .map(|all| (f64::from(all) / f64::from(tm * tn)).max(1.0));
            let loads: f64 = loads
                .iter()
                .zip(strided)
                .map(|(n, strided)| if strided { p.strided_load_ratio * n } else { *n })
                .sum();
            let latencies = p.step_latencies * steps
                + k as f64 / f64::from(tk) * p.load_latencies * loads
                + p.store_latencies * f64::from(rows * cols)
                + p.fixed_latencies;
            let waiting = waiting(problem, lanes, latencies)
                + barriers(problem, lanes, 2.0 * steps)
                + problem.target.machine.launch_us * 1e3;
            let cost = roofline(problem, flops, problem.traffic() as f64, efficiency)
                .max(strips / cache)
                .max(waiting);
            Candidate {
                knobs: Config { threads_m: tm, threads_n: tn, rows, columns: cols, tile_k: tk }.knobs(),
                cost,
                reason: format!("{tiles} tiles of {tile_m}x{tile_n} for {m}x{n}x{k}"),
            }
        })
        .collect()
}

/// Declares the workgroup memory of a configuration, and returns its grid for `batch` matmuls with M x N results.
pub(crate) fn declare_grid(shader: &mut Shader<'_>, config: Config, batch: &Dim, m: &Dim, n: &Dim) -> Grid {
    let Config { threads_m: tm, threads_n: tn, rows, columns: cols, tile_k: tk } = config;
    shader.workgroup_memory((tm * rows * tk + tk * tn * cols * 4) * 4);
    let groups = [n.ceil_div(i64::from(tn * cols * 4)), m.ceil_div(i64::from(tm * rows)), batch.clone()];
    Grid { groups, workgroup: [tm * tn, 1, 1] }
}
