//! `matmul.wgsl`: matrix products, and 1x1 convolutions as products with a row per pixel.

use super::access::Coordinates;
use super::map::decompose;
use super::problem::Problem;
use super::shader::{Grid, Launch, Shader};
use super::{Candidate, Kernel, barriers, roofline, waiting};
use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::ir::op::{MatMul, Op};

pub(super) const KERNEL: Kernel =
    Kernel { name: "matmul", wgsl: include_str!("matmul.wgsl"), candidates, launches, cases: CASES };

const CASES: &[&str] = &[
    r#"
%0 = input {"name":"a","dtype":"f32","shape":[2,3,37,29]}
%1 = input {"name":"b","dtype":"f32","shape":[3,29,41]}
%2 = matmul %0 %1 {"trans_a":false,"trans_b":false}
output "c" %2
"#,
    r#"
%0 = input {"name":"a","dtype":"f32","shape":[24,70]}
%1 = input {"name":"b","dtype":"f32","shape":[36,24]}
%2 = matmul %0 %1 {"trans_a":true,"trans_b":true}
output "c" %2
"#,
];

/// Tiles tried: invocations along M and N, rows and groups of four columns per invocation, and depth.
const TILES: &[[u32; 5]] =
    &[[8, 8, 4, 1, 16], [8, 8, 8, 2, 16], [4, 16, 4, 1, 16], [2, 32, 1, 1, 32], [16, 4, 4, 1, 16]];

/// Batch axes, M, K and N.
pub(super) struct Sizes {
    pub(super) batch: Vec<Dim>,
    pub(super) m: Dim,
    pub(super) k: Dim,
    pub(super) n: Dim,
}

/// The sizes of a product; `None` when an operand is not strided.
pub(super) fn sizes(op: &MatMul, problem: &Problem<'_>) -> Option<Sizes> {
    let (a, b) = (problem.operands.first()?, problem.operands.get(1)?);
    if a.rank() < 2 || b.rank() < 2 {
        return None;
    }
    let (m, k) = (a.size_from_end(2), a.size_from_end(1));
    let (m, k) = if op.trans_a { (k, m) } else { (m, k) };
    let n = b.size_from_end(if op.trans_b { 2 } else { 1 });
    let shape = &problem.result.shape;
    Some(Sizes { batch: shape[..shape.len() - 2].to_vec(), m, k, n })
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Op::MatMul(op) = problem.op else { return Vec::new() };
    if !problem.computed.is_float() {
        return Vec::new();
    }
    let Some(sizes) = sizes(op, problem) else { return Vec::new() };
    let (m, n, k) = (problem.max(&sizes.m), problem.max(&sizes.n), problem.max(&sizes.k));
    tiles(problem, problem.max(&product(&sizes.batch)), [m, n, k], [op.trans_a, op.trans_b])
}

/// The tiles that the target allows for `batch` products of M x K by K x N, with their costs. Of an operand that is
/// `apart` a vector of four elements takes several loads.
pub(super) fn tiles(
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

fn launches(problem: &Problem<'_>, candidate: &Candidate) -> Result<Vec<Launch>, OpError> {
    let Op::MatMul(op) = problem.op else { return Err(OpError::new("not a matrix product")) };
    let sizes = sizes(op, problem).ok_or_else(|| OpError::new("operands of rank two or more are needed"))?;
    let mut shader = Shader::new(problem);
    for (name, value) in &candidate.knobs {
        shader.knob(name, *value);
    }
    shader.size("size_m", &sizes.m);
    shader.size("size_n", &sizes.n);
    shader.size("size_k", &sizes.k);
    let a = matrix_coordinates(&mut shader, 0, op.trans_a, "row", "k4");
    shader.read("load_a", "batch: u32, row: u32, k4: u32", &a.0, 0, &a.1);
    let b = matrix_coordinates_columns(&mut shader, 1, op.trans_b, "k", "n4");
    shader.read("load_b", "batch: u32, k: u32, n4: u32", &b.0, 1, &b.1);
    let (prelude, mut axes) = batch_axes(&mut shader, &sizes.batch);
    axes.extend(["row".to_string(), "n4".to_string()]);
    let lanes = axes.len() - 1;
    shader.write("store", "batch: u32, row: u32, n4: u32", &prelude, &Coordinates::four(axes, lanes))?;
    let batch = product(&sizes.batch);
    let flops = sizes.m.mul(&sizes.n).mul(&sizes.k).mul(&batch).scale(2);
    let grid = grid(&mut shader, candidate, &batch, &sizes.m, &sizes.n);
    Ok(vec![shader.finish("matmul", KERNEL.wgsl, grid, flops)?])
}

/// The grid of a candidate for `batch` products with M x N results, after telling its workgroup memory.
pub(super) fn grid(shader: &mut Shader<'_>, candidate: &Candidate, batch: &Dim, m: &Dim, n: &Dim) -> Grid {
    let [tm, tn, rows, cols, tk] =
        ["THREADS_M", "THREADS_N", "ROWS", "COLS", "TILE_K"].map(|n| candidate.knob(n));
    shader.workgroup_memory((tm * rows * tk + tk * tn * cols * 4) * 4);
    let groups = [n.ceil_div(i64::from(tn * cols * 4)), m.ceil_div(i64::from(tm * rows)), batch.clone()];
    Grid { groups, workgroup: [tm * tn, 1, 1] }
}

/// Statements that split `batch` into the result's leading axes, and those axes.
pub(super) fn batch_axes(shader: &mut Shader<'_>, batch: &[Dim]) -> (String, Vec<String>) {
    let order: Vec<usize> = (0..batch.len()).rev().collect();
    decompose(shader, batch, &order, "batch")
}

/// The batch coordinates of an operand, broadcast from the result's.
pub(super) fn operand_batch(shader: &mut Shader<'_>, index: usize) -> (String, Vec<String>) {
    let problem = shader.problem;
    let shape = &problem.result.shape;
    let (prelude, axes) = batch_axes(shader, &shape[..shape.len() - 2]);
    let operand = &problem.operands[index];
    let own = operand.rank() - 2;
    let axes: Vec<String> = axes[axes.len().saturating_sub(own)..]
        .iter()
        .zip(&operand.shape)
        .map(|(a, d)| if d.is(1) { "0u".to_string() } else { a.clone() })
        .collect();
    let prelude = if axes.iter().all(|a| a == "0u") { String::new() } else { prelude };
    (prelude, axes)
}

/// Coordinates of four elements of operand `index` along K: row `row`, group `k4`.
pub(super) fn matrix_coordinates(
    shader: &mut Shader<'_>,
    index: usize,
    transposed: bool,
    row: &str,
    k4: &str,
) -> (String, Coordinates) {
    let (prelude, mut axes) = operand_batch(shader, index);
    let at = axes.len();
    if transposed {
        axes.extend([k4.to_string(), row.to_string()]);
        (prelude, Coordinates::four(axes, at))
    } else {
        axes.extend([row.to_string(), k4.to_string()]);
        (prelude, Coordinates::four(axes, at + 1))
    }
}

/// Coordinates of four elements of operand `index` along N: depth `k`, group `n4`.
fn matrix_coordinates_columns(
    shader: &mut Shader<'_>,
    index: usize,
    transposed: bool,
    k: &str,
    n4: &str,
) -> (String, Coordinates) {
    let (prelude, mut axes) = operand_batch(shader, index);
    let at = axes.len();
    if transposed {
        axes.extend([n4.to_string(), k.to_string()]);
        (prelude, Coordinates::four(axes, at))
    } else {
        axes.extend([k.to_string(), n4.to_string()]);
        (prelude, Coordinates::four(axes, at + 1))
    }
}
