//! `tiled.wgsl`: products of floats by tiles in workgroup memory, for matrices and for convolutions of one tap with a row
//! per pixel.

use crate::ir::dim::Dim;
use crate::kernels::cost::{barriers, roofline, waiting};
use crate::kernels::kernel::Candidate;
use crate::shader::problem::Problem;
use crate::shader::{Grid, Shader};

pub(crate) const WGSL: &str = include_str!("tiled.wgsl");

/// Tiles tried: invocations along M and N, rows and groups of four columns per invocation, and depth.
const TILES: &[[u32; 5]] =
    &[[8, 8, 4, 1, 16], [8, 8, 8, 2, 16], [4, 16, 4, 1, 16], [2, 32, 1, 1, 32], [16, 4, 4, 1, 16]];

/// The tiles that the target allows for `batch` products of M x K by K x N, with their costs. Of an operand that is
/// `apart` a vector of four elements takes several loads.
pub(crate) fn tiles(
    problem: &Problem<'_>,
    batch: i64,
    [m, n, k]: [i64; 3],
    apart: [bool; 2],
) -> Vec<Candidate> {
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
            let efficiency = 0.6 * busy * reuse / (reuse + 1.0);
            let strips = tiles * (tile_m + tile_n) as f64 * k as f64 * 4.0;
            let cache = problem.target.machine.cache_bandwidth_gb_s.max(1e-3);
            let lanes = tiles * f64::from(tm * tn);
            let steps = (k as f64 / f64::from(tk)).ceil();
            // Fitted within 18 % to 80 measurements of small products on an NVIDIA H200: an invocation's loads for a tile
            // follow each other, and so do its stores.
            let loads = [tm * rows * tk / 4, tk * tn * cols]
                .map(|all| (f64::from(all) / f64::from(tm * tn)).max(1.0));
            let loads: f64 = loads.iter().zip(apart).map(|(n, apart)| if apart { 2.4 * n } else { *n }).sum();
            let rounds =
                steps / 3.0 + k as f64 / f64::from(tk) * 0.15 * loads + 0.2 * f64::from(rows * cols) + 4.5;
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
