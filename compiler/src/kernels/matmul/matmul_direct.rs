//! `matmul_direct.wgsl`: matrix products of any element type, one invocation per element.

use serde::Deserialize;

use crate::error::OpError;
use crate::ir::op::{MatMul, Op};
use crate::kernels::cost::{Parameters, roofline, waiting};
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::kernels::shared::codes::Columns;
use crate::kernels::shared::fused::{Fused, picked};
use crate::kernels::shared::product::sizes;
use crate::shader::access::Coordinates;
use crate::shader::problem::Problem;
use crate::shader::rows::Rows;
use crate::shader::{Class, Grid, Launch, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "matmul_direct",
    wgsl: include_str!("matmul_direct.wgsl"),
    candidates,
    launches,
    matrices: None,
    params: &[Group::of::<Params>()],
    in_place: InPlace::Epilogue,
};

/// Parameters of the estimate.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Part of the arithmetic peak that is reached.
    reached: f64,
    /// Loads of neighbouring depths of a column that overlap.
    row_loads: f64,
    /// The same where they are no neighbours for a subgroup.
    column_loads: f64,
    /// Waits before the first load and after the last.
    ends: f64,
    /// Bytes that a product reads from the cache: neighbours share the elements of the first operand.
    cached_bytes: f64,
    /// How much longer an element takes that is made of a code by itself.
    coded: f64,
}

impl Parameters for Params {
    const GROUP: &str = "matmul_direct";
}

/// The same where a kernel of their own is for such products: this one is the last resort then.
const LAST: f64 = 1e6;

/// The product, of which each may have a matrix that it picks.
fn product<'a>(problem: &Problem<'a>) -> Option<&'a MatMul> {
    Fused::of(problem).filter(Fused::alone).map(|fused| fused.product)
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Some(op) = product(problem) else { return Vec::new() };
    let Some(sizes) = sizes(op, problem) else { return Vec::new() };
    let Some(p) = Params::of(problem) else { return Vec::new() };
    let elements = problem.max(&problem.result.elements()) as f64;
    let depth = problem.max(&sizes.k) as f64;
    let machine = &problem.target.machine;
    // Loads of a few neighbouring depths overlap, less so where they are not neighbours for a subgroup.
    let apart = if op.trans_b { p.column_loads } else { p.row_loads };
    let streamed = Columns::of(op, problem).is_some_and(|c| c.only_streams(problem, problem.max(&sizes.m)));
    let slower = match problem.operands.iter().any(|o| o.codes.is_some()) {
        true if streamed => LAST,
        true => p.coded,
        false => 1.0,
    };
    let waiting = waiting(problem, elements, slower * depth / apart + p.ends);
    let cached = elements * depth * p.cached_bytes / machine.cache_bandwidth_gb_s.max(1e-3);
    vec![Candidate {
        knobs: vec![("THREADS", problem.target.prefer.workgroup_invocations.min(256))],
        cost: roofline(problem, elements * depth * 2.0, problem.traffic() as f64, p.reached)
            .max(waiting.max(cached) + machine.launch_us * 1e3),
        reason: "one invocation per element, nothing shared".into(),
    }]
}

fn launches(problem: &Problem<'_>, candidate: &Candidate) -> Result<Vec<Launch>, OpError> {
    let op = product(problem).ok_or_else(|| OpError::new("not a matrix product"))?;
    let sizes = sizes(op, problem).ok_or_else(|| OpError::new("operands of rank two or more are needed"))?;
    let rows = Rows::new(&problem.result, &[]).scalar();
    let mut shader = Shader::new(problem);
    let threads = candidate.knob("THREADS");
    shader.knob("THREADS", threads);
    shader.alias("E", Class::of(problem.computed).scalar());
    shader.size("units", &rows.rows());
    shader.size("depth", &sizes.k);
    let (prelude, at) = rows.unit(&mut shader);
    let rank = at.axes.len();
    let (row, column) = (&at.axes[rank - 2], &at.axes[rank - 1]);
    // The batch axes of an operand are the last of the result's; where its size is 1 nothing is added.
    let batch = |operand: usize| {
        let own = problem.operands[operand].rank() - 2;
        at.axes[rank - 2 - own..rank - 2].iter().cloned()
    };
    let order = |transposed: bool, first: &str, second: &str| {
        let pair = if transposed { [second, first] } else { [first, second] };
        pair.map(str::to_string)
    };
    let a: Vec<String> = batch(0).chain(order(op.trans_a, row, "k")).collect();
    let picks = matches!(problem.op, Op::GatherMatMul(_));
    let first: Vec<String> = if picks { vec!["picked(unit)".to_string()] } else { batch(1).collect() };
    let b: Vec<String> = first.into_iter().chain(order(op.trans_b, "k", column)).collect();
    shader.read("load_a", "unit: u32, k: u32", &prelude, 0, &Coordinates::element(a));
    let load_b = shader.read_fn("load_b", "unit: u32, k: u32", &prelude, 1, &Coordinates::element(b), false);
    let before = match picks {
        true => picked(&mut shader, "unit", &prelude, &at.axes[..rank - 2]),
        false => String::new(),
    };
    shader.replace("load_b", format!("{before}{load_b}"));
    shader.write("store", "unit: u32", &prelude, &at)?;
    shader.iterations(sizes.k.clone());
    let flops = problem.result.elements().mul(&sizes.k).scale(2);
    let grid = Grid::linear(&rows.rows(), threads, problem.bounds);
    Ok(vec![shader.finish("matmul_direct", KERNEL.wgsl, grid, flops)?])
}
