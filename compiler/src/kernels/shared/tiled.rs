//! `tiled.wgsl`: float matmuls with tiles in workgroup memory, for matmuls and for 1x1 convolutions with a row per
//! pixel.

use serde::Deserialize;

use crate::ir::dim::Dim;
use crate::kernels::cost::{Estimate, Parameters, barriers, waiting};
use crate::kernels::kernel::{Candidate, config};
use crate::shader::problem::Problem;
use crate::shader::{Grid, Shader};

pub(crate) const WGSL: &str = include_str!("tiled.wgsl");

config! {
    /// Configuration of float matmuls with `tiled.wgsl`.
    pub(crate) struct Config {
        /// Number of invocations of a workgroup along M.
        THREADS_M => threads_m: u32,
        /// Number of invocations of a workgroup along N.
        THREADS_N => threads_n: u32,
        /// Number of rows of the result that an invocation computes.
        ROWS => rows: u32,
        /// Number of columns of the result that an invocation computes, in vec4s.
        COLS => columns: u32,
        /// Size of a K-tile, the range of K that one step multiplies, in elements.
        TILE_K => tile_k: u32,
    }
}

/// Tiles of the candidates. Each lists invocations along M and N, rows and vec4s of columns per invocation, and the
/// size of a K-tile.
const TILES: &[[u32; 5]] =
    &[[8, 8, 4, 1, 16], [8, 8, 8, 2, 16], [4, 16, 4, 1, 16], [2, 32, 1, 1, 32], [16, 4, 4, 1, 16]];

/// Cost parameters of matmuls with `tiled.wgsl`. All are positive; `latencies` are multiples of the memory latency.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Params {
    /// Ratio of the load time of four elements that are not adjacent to the load time of a vec4.
    strided_load_ratio: f64,
    /// Fixed time before the first step along K and after the last step, in memory latencies.
    fixed_latencies: f64,
    /// Time for an invocation to load one vec4 of an operand, in memory latencies.
    load_latencies: f64,
    /// Fraction of the peak FLOP/s that the kernel would reach if all operands were in registers; 0 to 1.
    peak_fraction: f64,
    /// Time of a step along K without its loads, in memory latencies.
    step_latencies: f64,
    /// Time to store a vec4 of the result, in memory latencies.
    store_latencies: f64,
}

impl Parameters for Params {
    const GROUP: &str = "tiled";
}

/// Returns the candidates of `tiled.wgsl` for `batch` matmuls of M x K by K x N within the target's limits, with their
/// costs. `strided` has one flag per operand: true if a vec4 of the operand takes several loads.
pub(crate) fn tile_candidates(
    problem: &Problem<'_>,
    batch: i64,
    [m, n, k]: [i64; 3],
    strided: [bool; 2],
) -> Vec<Candidate> {
    let Some(p) = Params::from_problem(problem) else { return Vec::new() };
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
            let strips_ns = strips / problem.target.machine.cache_bandwidth_gb_s.max(1e-3);
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
            let roofline = Estimate::roofline(problem, flops, problem.traffic() as f64, efficiency);
            let estimate = Estimate {
                // The fitted parameters assume that the launch overlaps with the reads of the strips.
                cache: (strips_ns - roofline.launch).max(0.0),
                latency: waiting(problem, lanes, latencies) + barriers(problem, lanes, 2.0 * steps),
                ..roofline
            };
            let config = Config { threads_m: tm, threads_n: tn, rows, columns: cols, tile_k: tk };
            let reason = format!("{tiles} tiles of {tile_m}x{tile_n} for M x N x K = {m}x{n}x{k}");
            // Sums, four vec4s of the second operand and one of the first.
            Candidate::new(&config, estimate, reason).with_live_values(rows * cols + 5, 0)
        })
        .collect()
}

/// Declares the workgroup memory of a configuration of `tiled.wgsl`, and returns the dispatch grid for `batch` matmuls
/// with M x N results.
pub(crate) fn declare_grid(shader: &mut Shader<'_>, config: Config, batch: &Dim, m: &Dim, n: &Dim) -> Grid {
    let Config { threads_m: tm, threads_n: tn, rows, columns: cols, tile_k: tk } = config;
    shader.workgroup_memory((tm * rows * tk + tk * tn * cols * 4) * 4);
    let groups = [n.ceil_div(i64::from(tn * cols * 4)), m.ceil_div(i64::from(tm * rows)), batch.clone()];
    Grid { groups, workgroup: [tm * tn, 1, 1] }
}
