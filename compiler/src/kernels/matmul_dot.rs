//! `matmul_dot.wgsl`: matrix products of 8-bit integers by dot products of four.

use super::dot::{self, Signs};
use super::matmul::{Sizes, sizes};
use super::pack::Packed;
use super::problem::Problem;
use super::shader::{Grid, Launch, Shader};
use super::{Candidate, Kernel, barriers, waiting};
use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::ir::op::Op;

pub(super) const KERNEL: Kernel =
    Kernel { name: "matmul_dot", wgsl: include_str!("matmul_dot.wgsl"), candidates, launches, cases: CASES };

const CASES: &[&str] = &[
    r#"
%0 = input {"name":"a","dtype":"i8","shape":[2,3,37,29]}
%1 = input {"name":"b","dtype":"i8","shape":[3,29,41]}
%2 = matmul %0 %1 {"trans_a":false,"trans_b":false}
output "c" %2
"#,
    r#"
%0 = input {"name":"a","dtype":"u8","shape":[70,24]}
%1 = input {"name":"b","dtype":"u8","shape":[36,24]}
%2 = matmul %0 %1 {"trans_a":false,"trans_b":true}
output "c" %2
"#,
    r#"
%0 = input {"name":"a","dtype":"u8","shape":[33,90]}
%1 = constant {"dtype":"i8","shape":[90,70],"random":1}
%2 = constant {"dtype":"i32","shape":[70],"random":2}
%3 = matmul %0 %1 {"trans_a":false,"trans_b":false}
%4 = sub %3 %2
%5 = cast %4 {"to":"f32"}
%6 = affine %5 {"scale":0.01,"shift":3.0}
output "c" %6
"#,
    r#"
%0 = input {"name":"a","dtype":"i8","shape":[3,50,18]}
%1 = constant {"dtype":"u8","shape":[3,21,50],"random":3}
%2 = matmul %0 %1 {"trans_a":true,"trans_b":true}
output "c" %2
"#,
    r#"
symbol m 1..70
symbol k 1..40
%0 = input {"name":"a","dtype":"i8","shape":["m","k"]}
%1 = input {"name":"b","dtype":"u8","shape":["k",35]}
%2 = matmul %0 %1 {"trans_a":false,"trans_b":false}
output "c" %2
"#,
    r#"
%0 = input {"name":"a","dtype":"u8","shape":[21,2048]}
%1 = constant {"dtype":"i8","shape":[22,2048],"random":4}
%2 = matmul %0 %1 {"trans_a":false,"trans_b":true}
output "c" %2
"#,
];

/// Tiles tried: invocations along M and N, rows and groups of four columns per invocation, and depth in groups of 16.
const TILES: &[[u32; 5]] = &[
    [8, 8, 4, 1, 2],
    [8, 8, 8, 2, 2],
    [16, 16, 8, 2, 2],
    [4, 16, 4, 1, 4],
    [2, 32, 1, 1, 4],
    [16, 4, 4, 1, 2],
];

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let (Op::MatMul(op), Some(signs)) = (problem.op, Signs::of(problem)) else { return Vec::new() };
    let Some(sizes) = sizes(op, problem).filter(|_| dot::readable(op, problem)) else { return Vec::new() };
    let batch = problem.max(&product(&sizes.batch));
    let packed = dot::packed_b(op, problem).map(|(packed, _)| packed);
    tiles(problem, signs, batch, [&sizes.m, &sizes.n, &sizes.k].map(|d| problem.max(d)), packed.as_ref())
}

/// The tiles that the target allows for `batch` products of M x K by K x N, with their costs.
pub(super) fn tiles(
    problem: &Problem<'_>,
    signs: Signs,
    batch: i64,
    [m, n, k]: [i64; 3],
    packed: Option<&Packed>,
) -> Vec<Candidate> {
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
        let efficiency = 0.6 * busy * reuse / (reuse + 1.0);
        let computing = operations / (machine.peak.int8 * efficiency).max(1e-3);
        let strips = tiles * (tile_m as f64 * 4.0 + tile_n as f64 * wide) * k as f64;
        let strips = strips / machine.cache_bandwidth_gb_s.max(1e-3);
        let steps = (k as f64 / f64::from(tk * 16)).ceil();
        let lanes = tiles * f64::from(tm * tn);
        // Loads of an invocation in a step: words of the first operand, four of them of the second.
        let first = (f64::from(rows * tk * 4) / f64::from(tn)).max(1.0);
        let second = wide * (f64::from(cols * tk * 4) / f64::from(tm)).max(1.0);
        let rounds =
            FIRST + steps * (STEP + LOAD_A * first + LOAD_B * second) + STORE * f64::from(rows * cols);
        let waiting = waiting(problem, lanes, rounds) + barriers(problem, lanes, 2.0 * steps);
        Candidate {
            knobs: vec![("THREADS_M", tm), ("THREADS_N", tn), ("ROWS", rows), ("COLS", cols), ("TILE_K", tk)],
            cost: computing.max(streaming).max(strips).max(waiting) + machine.launch_us * 1e3,
            reason: format!("tiles of {tile_m}x{tile_n}, {tiles} of them for {m}x{n}x{k} in words of four"),
        }
    };
    TILES.iter().filter(fits).map(candidate).collect()
}

// In latencies of memory, fitted to 114 measurements of 22 products and convolutions on an NVIDIA H200
// (`benches/kernels.rs`): what is before and after all steps, a step, its loads and four columns of the result.
const FIRST: f64 = 3.7;
const STEP: f64 = 1.1;
const LOAD_A: f64 = 0.075;
const LOAD_B: f64 = 0.022;
const STORE: f64 = 0.24;

/// Bytes of both tiles.
fn memory([tm, tn, rows, cols, tk]: [u32; 5]) -> u32 {
    (tm * rows * tk + tk * 4 * tn * cols) * 16
}

fn launches(problem: &Problem<'_>, candidate: &Candidate) -> Result<Vec<Launch>, OpError> {
    let (Op::MatMul(op), Some(signs)) = (problem.op, Signs::of(problem)) else {
        return Err(OpError::new("not a product of 8-bit integers"));
    };
    let Sizes { batch, m, k, n } =
        sizes(op, problem).ok_or_else(|| OpError::new("operands of rank two or more are needed"))?;
    let mut shader = Shader::new(problem);
    dot::load_a(&mut shader, op, signs);
    dot::load_b(&mut shader, op, signs, [&n, &k]);
    dot::store(&mut shader, &batch)?;
    let batch = product(&batch);
    let flops = m.mul(&n).mul(&k).mul(&batch).scale(2);
    let grid = declare(&mut shader, candidate, signs, &batch, [&m, &n, &k]);
    Ok(vec![shader.finish("matmul_dot", KERNEL.wgsl, grid, flops)?])
}

/// Declares what does not depend on where the operands lie, and gives the grid for `batch` products.
pub(super) fn declare(
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
