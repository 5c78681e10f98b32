//! `matmul_direct.wgsl`: matmuls of any element type, with one invocation per element of the result.

use serde::Deserialize;

use super::eligibility::{is_eligible, is_last_resort};
use crate::error::OpError;
use crate::ir::op::{MatMul, Op};
use crate::kernels::cost::{Estimate, Parameters, Thresholds, waiting};
use crate::kernels::kernel::{Candidate, Configuration, Group, InPlace, Kernel, ThreadsConfig};
use crate::kernels::shared::matmul_node::{MatMulNode, matrix_index_function};
use crate::kernels::shared::matmul_sizes::matmul_sizes;
use crate::shader::access::Coordinates;
use crate::shader::problem::Problem;
use crate::shader::row_view::RowView;
use crate::shader::{Grid, LaunchDraft, Shader, ValueType};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "matmul_direct",
    wgsl: include_str!("matmul_direct.wgsl"),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::from_parameters::<Params>()],
    in_place: InPlace::Epilogue,
};

/// Cost parameters of the kernel `matmul_direct`. All are positive; fields named `.._latencies` are multiples of the
/// memory latency.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Bytes that a multiply-add reads from the cache on average. The number is less than the bytes of two elements,
    /// because adjacent invocations read the same elements of the first operand.
    cache_bytes_per_multiply_add: f64,
    /// Ratio of the load time of a quantized element, which is dequantized on its own, to the load time of a float.
    quantized_load_ratio: f64,
    /// Number of loads along a column of the second operand that overlap in an invocation, if this operand is transposed.
    transposed_concurrent_loads: f64,
    /// Fixed time before the first load and after the last load of an invocation, in memory latencies.
    fixed_latencies: f64,
    /// Fraction of the peak FLOP/s that the kernel reaches; 0 to 1.
    peak_fraction: f64,
    /// Number of loads along a column of the second operand that overlap in an invocation, if this operand is not transposed.
    concurrent_loads: f64,
}

impl Parameters for Params {
    const GROUP: &str = "matmul_direct";
}

/// Returns the problem's matmul, or `None` if the matmul has fused operations. The problem may be a `GatherMatMul`, in
/// which each batch selects its matrix by index.
fn plain_matmul<'a>(problem: &Problem<'a>) -> Option<&'a MatMul> {
    MatMulNode::from_problem(problem).filter(MatMulNode::is_plain).map(|node| node.matmul)
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Some(op) = plain_matmul(problem) else { return Vec::new() };
    let Some(sizes) = matmul_sizes(op, problem).filter(|_| is_eligible(KERNEL.name, problem)) else {
        return Vec::new();
    };
    let Some(p) = Params::from_problem(problem) else { return Vec::new() };
    let elements = problem.max(&problem.result.elements()) as f64;
    let depth = problem.max(&sizes.k) as f64;
    let machine = &problem.target.machine;
    // Loads of a few adjacent positions along K overlap, but less if a subgroup's loads are not adjacent.
    let concurrent = if op.trans_b { p.transposed_concurrent_loads } else { p.concurrent_loads };
    let load_ratio = match problem.operands.iter().any(|o| o.quantized.is_some()) {
        true if is_last_resort(KERNEL.name, problem) => match Thresholds::from_problem(problem) {
            Some(thresholds) => thresholds.last_resort_load_ratio,
            None => return Vec::new(),
        },
        true => p.quantized_load_ratio,
        false => 1.0,
    };
    let cached_bytes = elements * depth * p.cache_bytes_per_multiply_add;
    let estimate = Estimate {
        cache: cached_bytes / machine.cache_bandwidth_gb_s.max(1e-3),
        latency: waiting(problem, elements, load_ratio * depth / concurrent + p.fixed_latencies),
        ..Estimate::roofline(problem, elements * depth * 2.0, problem.traffic() as f64, p.peak_fraction)
    };
    let config = ThreadsConfig { threads: problem.target.prefer.workgroup_invocations.min(256) };
    vec![Candidate::new(
        &config,
        estimate,
        "one invocation per element of the result, no reuse of loads between invocations",
    )]
}

fn launches(problem: &Problem<'_>, config: ThreadsConfig) -> Result<Vec<LaunchDraft>, OpError> {
    let op = plain_matmul(problem)
        .ok_or_else(|| OpError::new("the operator is not a matmul, or it has fused operations"))?;
    let sizes = matmul_sizes(op, problem)
        .ok_or_else(|| OpError::new("a matmul needs operands with at least two axes"))?;
    let rows = RowView::new(&problem.result, &[]).with_scalar_lanes();
    let mut shader = Shader::new(problem);
    let threads = config.threads;
    config.declare(&mut shader);
    shader.alias("E", ValueType::from_dtype(problem.computed).scalar());
    shader.size("units", &rows.rows());
    shader.size("size_k", &sizes.k);
    let (prelude, at) = rows.unit(&mut shader);
    let rank = at.axes.len();
    let (row, column) = (&at.axes[rank - 2], &at.axes[rank - 1]);
    // The batch axes of an operand are the last batch axes of the result. Reads broadcast axes of size 1.
    let batch = |operand: usize| {
        let batch_rank = problem.operands[operand].rank() - 2;
        at.axes[rank - 2 - batch_rank..rank - 2].iter().cloned()
    };
    let order = |transposed: bool, first: &str, second: &str| {
        let pair = if transposed { [second, first] } else { [first, second] };
        pair.map(str::to_string)
    };
    let a: Vec<String> = batch(0).chain(order(op.trans_a, row, "k")).collect();
    let gathered = matches!(problem.op, Op::GatherMatMul(_));
    let matrix: Vec<String> =
        if gathered { vec!["matrix_index(unit)".to_string()] } else { batch(1).collect() };
    let b: Vec<String> = matrix.into_iter().chain(order(op.trans_b, "k", column)).collect();
    shader.read("load_a", "unit: u32, k: u32", &prelude, 0, &Coordinates::element(a));
    let load_b = shader.read_fn("load_b", "unit: u32, k: u32", &prelude, 1, &Coordinates::element(b), false);
    let index_function = match gathered {
        true => matrix_index_function(&mut shader, "unit", &prelude, &at.axes[..rank - 2]),
        false => String::new(),
    };
    shader.replace("load_b", format!("{index_function}{load_b}"));
    shader.write("store", "unit: u32", &prelude, &at)?;
    shader.iterations(sizes.k.clone());
    let flops = problem.result.elements().mul(&sizes.k).scale(2);
    let grid = Grid::linear(&rows.rows(), threads, problem.bounds);
    Ok(vec![shader.finish("matmul_direct", KERNEL.wgsl, grid, flops)])
}
