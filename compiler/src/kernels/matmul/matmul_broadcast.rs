//! `matmul_broadcast.wgsl`: float matmuls with a constant second operand, for devices whose subgroup broadcasts cost
//! less than reads.

use serde::Deserialize;

use super::eligibility::is_eligible;
use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::ir::op::{MatMul, Op};
use crate::kernels::cost::{Estimate, Parameters, waiting};
use crate::kernels::kernel::{Candidate, Configuration, Group, InPlace, Kernel, config};
use crate::kernels::shared::matmul_sizes::{MatMulSizes, batch_axes, matmul_sizes, matrix_coordinates};
use crate::kernels::shared::window::{constant, fits};
use crate::shader::access::Coordinates;
use crate::shader::pack::Packed;
use crate::shader::pack::presets::PANELS;
use crate::shader::problem::Problem;
use crate::shader::{Grid, LaunchDraft, Need, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "matmul_broadcast",
    wgsl: include_str!("matmul_broadcast.wgsl"),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::from_parameters::<Params>()],
    in_place: InPlace::Epilogue,
};

config! {
    /// Configuration of the kernel `matmul_broadcast`.
    struct Config {
        /// Invocations per workgroup.
        THREADS => threads: u32,
        /// Number of rows that an invocation computes.
        ROWS => rows: u32,
    }
}

/// Rows per invocation. The shader is unrolled over them, so drivers take long to compile it for more rows.
const ROWS: u32 = 4;

/// Columns per panel (block of columns) of the constant.
const PANEL_COLUMNS: usize = 64;

/// Cost parameters of the kernel `matmul_broadcast`. All are positive.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Fixed time before the first step and after the last step of an invocation, in memory latencies.
    fixed_latencies: f64,
    /// Arithmetic throughput relative to the f32 peak, before it is multiplied by the fraction of the instructions that
    /// are arithmetic. May exceed 1.
    peak_ratio: f64,
    /// Time of a step (four positions along K) of an invocation, in memory latencies.
    step_latencies: f64,
}

impl Parameters for Params {
    const GROUP: &str = "matmul_broadcast";
}

/// Matmul that the kernel can compute: its sizes, and its constant in panels.
struct Shape<'a> {
    op: &'a MatMul,
    sizes: MatMulSizes,
    /// Number of vec4s along K. The rows of the packed constant are padded to it.
    depth: u32,
    lanes: u32,
    packed: Packed,
}

/// Returns the sizes and the packed constant of a matmul, or `None` if the kernel cannot compute the problem.
fn shape<'a>(problem: &Problem<'a>) -> Option<Shape<'a>> {
    let Op::MatMul(op) = problem.op else { return None };
    let lanes = problem.target.shuffling_subgroup()?;
    let (weights, sizes) = (constant(problem, 1)?, matmul_sizes(op, problem)?);
    let known = |d: &Dim| d.as_known().and_then(|d| usize::try_from(d).ok());
    let (k, n) = (known(&sizes.k)?, known(&sizes.n)?);
    let one_matrix = weights.elements() == k.checked_mul(n)?;
    if op.trans_a || !one_matrix || k == 0 || !problem.computed.is_float() {
        return None;
    }
    let axes = if op.trans_b { [('N', n), ('K', k)] } else { [('K', k), ('N', n)] };
    let device = problem.operands.get(1)?.dtype.on_device();
    let packed = PANELS.packed(weights, &axes, &[('r', 4), ('n', PANEL_COLUMNS)], device);
    let depth = u32::try_from(k.div_ceil(4)).ok()?;
    fits(problem, &packed).then_some(Shape { op, sizes, depth, lanes, packed })
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let machine = &problem.target.machine;
    if machine.shuffle_fmas >= machine.uniform_read_fmas || !is_eligible(KERNEL.name, problem) {
        return Vec::new();
    }
    let (Some(shape), Some(p)) = (shape(problem), Params::from_problem(problem)) else { return Vec::new() };
    let limits = &problem.target.limits;
    let batch = problem.max(&product(&shape.sizes.batch)) as f64;
    let (m, columns) = (problem.max(&shape.sizes.m), problem.max(&shape.sizes.n.ceil_div(4)));
    let mut out = Vec::new();
    for threads in [shape.lanes, 4 * shape.lanes] {
        let possible = threads <= limits.max_workgroup_invocations
            && threads <= limits.max_workgroup_size[0]
            && threads / shape.lanes <= limits.max_workgroup_subgroups;
        if !possible {
            continue;
        }
        let rows = ROWS;
        let blocks = (m as f64 / f64::from(rows)).ceil();
        let lanes = (columns as f64 / f64::from(threads)).ceil() * f64::from(threads) * blocks * batch;
        let steps = f64::from(shape.depth.div_ceil(shape.lanes) * shape.lanes);
        let flops = lanes * f64::from(rows) * steps * 32.0;
        // Per step: four vec4 multiply-adds per row, one broadcast per row, the subgroup's share of the loads of
        // the rows, and four loads of the constant.
        let arithmetic = 4.0 * f64::from(rows);
        let reads = f64::from(rows) * (machine.shuffle_fmas + 1.0 / f64::from(shape.lanes)) + 4.0;
        let occupancy = (lanes / machine.invocations()).clamp(0.001, 1.0);
        let efficiency = p.peak_ratio * occupancy * arithmetic / (arithmetic + reads);
        let estimate = Estimate {
            latency: waiting(problem, lanes, p.step_latencies * steps + p.fixed_latencies),
            ..Estimate::roofline(problem, flops, problem.traffic() as f64, efficiency)
        };
        let reason = format!(
            "{rows} rows per invocation, {lanes} invocations; subgroups of {} broadcast the rows",
            shape.lanes
        );
        out.push(Candidate::new(&Config { threads, rows }, estimate, reason));
    }
    out
}

fn launches(problem: &Problem<'_>, config: Config) -> Result<Vec<LaunchDraft>, OpError> {
    let Shape { op, sizes, depth, lanes, packed } =
        shape(problem).ok_or_else(|| OpError::new("the second operand is not one float constant"))?;
    let mut shader = Shader::new(problem);
    shader.needs(&[Need::Subgroups, Need::SubgroupShuffle]);
    config.declare(&mut shader);
    shader.knob("LANES", lanes);
    shader.knob("DEPTH", depth);
    shader.size("size_m", &sizes.m);
    shader.size("column_vec4s", &sizes.n.ceil_div(4));
    let a = matrix_coordinates(&mut shader, 0, op.trans_a, "row", "k4");
    shader.read("load_a", "batch: u32, row: u32, k4: u32", &a.0, 0, &a.1);
    let width = PANEL_COLUMNS / 4;
    let rows = 4 * depth;
    let index = format!("((n4 / {width}u * {rows}u + k) * {width}u + n4 % {width}u)");
    let vector = shader.packed_vector_in(packed, &index, problem.target.prefer.storage.recurrent_weights);
    let load_b = format!("fn load_b(k: u32, n4: u32) -> vec4<f32> {{ return vec4<f32>({vector}); }}");
    shader.replace("load_b", load_b);
    let (prelude, mut axes) = batch_axes(&mut shader, &sizes.batch);
    axes.extend(["row".to_string(), "n4".to_string()]);
    let lane = axes.len() - 1;
    shader.write("store", "batch: u32, row: u32, n4: u32", &prelude, &Coordinates::vec4(axes, lane))?;
    let batch = product(&sizes.batch);
    let flops = sizes.m.mul(&sizes.n).mul(&sizes.k).mul(&batch).scale(2);
    let columns = sizes.n.ceil_div(4).ceil_div(i64::from(config.threads));
    let grid = Grid {
        groups: [columns, sizes.m.ceil_div(i64::from(config.rows)), batch],
        workgroup: [config.threads, 1, 1],
    };
    let mut launch = shader.finish(KERNEL.name, KERNEL.wgsl, grid, flops);
    launch.subgroup_size = Some(lanes);
    Ok(vec![launch])
}
