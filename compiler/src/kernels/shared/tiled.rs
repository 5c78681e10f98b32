//! `tiled.wgsl`: products of floats by tiles in workgroup memory, for matrices and for pointwise convolutions with a row
//! per pixel.

use serde::Deserialize;

use crate::ir::dim::Dim;
use crate::kernels::cost::{Parameters, barriers, roofline, waiting};
use crate::kernels::kernel::Candidate;
use crate::shader::problem::Problem;
use crate::shader::{Grid, Shader};

pub(crate) const WGSL: &str = include_str!("tiled.wgsl");

/// Tiles tried: invocations along M and N, rows and groups of four columns per invocation, and depth.
const TILES: &[[u32; 5]] =
    &[[8, 8, 4, 1, 16], [8, 8, 8, 2, 16], [4, 16, 4, 1, 16], [2, 32, 1, 1, 32], [16, 4, 4, 1, 16]];

/// Parameters of the estimate; waits in latencies of memory.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Params {
    /// Part of the peak that products from registers would reach.
    reached: f64,
    /// A step along the depth.
    step: f64,
    /// A load of an invocation.
    load: f64,
    /// Loads of four elements that are no neighbours.
    apart: f64,
    /// A vector of the result.
    store: f64,
    /// Before the first step and after the last.
    ends: f64,
}

impl Parameters for Params {
    const GROUP: &str = "tiled";
}

/// The tiles that the target allows for `batch` products of M x K by K x N, with their costs. Of an operand that is
/// `apart` a vector of four elements takes several loads.
pub(crate) fn tiles(
    problem: &Problem<'_>,
    batch: i64,
    [m, n, k]: [i64; 3],
    apart: [bool; 2],
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
            // Whole tiles are computed; every tile reads a strip of each operand; few tiles leave units idle.
            let flops = tiles * (tile_m * tile_n) as f64 * 2.0 * k as f64;
            let reuse = 1.0 / (1.0 / f64::from(rows) + 1.0 / (4.0 * f64::from(cols)));
            let busy = (tiles / f64::from(problem.target.machine.compute_units)).clamp(0.05, 1.0);
            let efficiency = p.reached * busy * reuse / (reuse + 1.0);
            let strips = tiles * (tile_m + tile_n) as f64 * k as f64 * 4.0;
            let cache = problem.target.machine.cache_bandwidth_gb_s.max(1e-3);
            let lanes = tiles * f64::from(tm * tn);
            let steps = (k as f64 / f64::from(tk)).ceil();
            // An invocation's loads for a tile follow each other, and so do its stores.
            let loads = [tm * rows * tk / 4, tk * tn * cols]
                .map(|all| (f64::from(all) / f64::from(tm * tn)).max(1.0));
            let loads: f64 =
                loads.iter().zip(apart).map(|(n, apart)| if apart { p.apart * n } else { *n }).sum();
            let rounds = p.step * steps
                + k as f64 / f64::from(tk) * p.load * loads
                + p.store * f64::from(rows * cols)
                + p.ends;
            let waiting = waiting(problem, lanes, rounds)
                + barriers(problem, lanes, 2.0 * steps)
                + problem.target.machine.launch_us * 1e3;
            let cost = roofline(problem, flops, problem.traffic() as f64, efficiency)
                .max(strips / cache)
                .max(waiting);
            Candidate {
                knobs: vec![
                    ("THREADS_M", tm),
                    ("THREADS_N", tn),
                    ("ROWS", rows),
                    ("COLS", cols),
                    ("TILE_K", tk),
                ],
                cost,
                reason: format!("tiles of {tile_m}x{tile_n}, {tiles} of them for {m}x{n}x{k}"),
            }
        })
        .collect()
}

/// The grid of a candidate for `batch` products with M x N results, after telling its workgroup memory.
pub(crate) fn grid(shader: &mut Shader<'_>, candidate: &Candidate, batch: &Dim, m: &Dim, n: &Dim) -> Grid {
    let [tm, tn, rows, cols, tk] =
        ["THREADS_M", "THREADS_N", "ROWS", "COLS", "TILE_K"].map(|n| candidate.knob(n));
    shader.workgroup_memory((tm * rows * tk + tk * tn * cols * 4) * 4);
    let groups = [n.ceil_div(i64::from(tn * cols * 4)), m.ceil_div(i64::from(tm * rows)), batch.clone()];
    Grid { groups, workgroup: [tm * tn, 1, 1] }
}
