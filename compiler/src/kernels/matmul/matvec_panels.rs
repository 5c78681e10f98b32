//! `matvec_panels.wgsl`: small-M matmuls with a float constant that is read once. The constant is packed into panels
//! (blocks of columns), which kernels on matrix units read too.

use serde::Deserialize;

use super::eligibility::is_eligible;
use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::kernels::cost::{Estimate, Overlap, Parameters, stays_cached};
use crate::kernels::kernel::{Candidate, Configuration, Group, InPlace, Kernel, config};
use crate::kernels::shared::float_panels::FloatPanels;
use crate::kernels::shared::matmul_node::{MatMulNode, VectorWidth};
use crate::kernels::shared::matmul_sizes::{MatMulSizes, batch_axes, matmul_sizes};
use crate::kernels::shared::panel_tile::{PanelTile, TileMemory};
use crate::kernels::shared::residual_rows::declare_row_loads;
use crate::kernels::shared::subgroup_sums;
use crate::shader::access::Coordinates;
use crate::shader::problem::Problem;
use crate::shader::{Grid, LaunchDraft, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "matvec_panels",
    wgsl: include_str!("matvec_panels.wgsl"),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::from_parameters::<Params>()],
    in_place: InPlace::Epilogue,
};

config! {
    /// Configuration of the kernel `matvec_panels`.
    struct Config {
        /// Invocations per workgroup.
        THREADS => threads: u32,
        /// Number of rows that a workgroup computes.
        ROWS => rows: u32,
        /// Number of loads that an invocation has in flight.
        UNROLL => unroll: u32,
        /// Number of panels (blocks of columns) of each weight matrix that a workgroup computes.
        PANELS => panels: u32,
    }
}

/// Maximum number of rows that a workgroup computes.
const MAX_GROUP_ROWS: i64 = 8;
/// Maximum number of loads that an invocation has in flight: first with one or two rows, then with more rows.
const MAX_UNROLL: [u32; 2] = [8, 2];
/// Number of invocations whose sums one invocation adds, on devices where the kernel does not add sums by subgroup
/// operations.
const PARTIAL_LANES: u32 = 16;

/// Cost parameters of the kernel `matvec_panels`. All are positive; fields named `.._latencies` are multiples of the
/// memory latency.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Weight with which the shorter of two times (streaming the operands, waiting for loads) is added to the longer
    /// one. 0 if the two times overlap completely.
    shorter_time_weight: f64,
    /// Time of a step along K if all operands stay in the cache, in memory latencies.
    cached_step_latencies: f64,
    /// Fixed time before the first load and after the last load, in memory latencies.
    fixed_latencies: f64,
    /// Time of a step along K if operands come from memory, in memory latencies.
    uncached_step_latencies: f64,
    /// Time per element of a row that an invocation normalizes (fused RMSNorm), in memory latencies.
    norm_element_latencies: f64,
    /// Fraction of the peak FLOP/s that the kernel reaches; 0 to 1.
    peak_fraction: f64,
    /// Time that each row after the first adds to a step along K, in memory latencies.
    extra_row_step_latencies: f64,
}

impl Parameters for Params {
    const GROUP: &str = "matvec_panels";
}

/// Returns the number of invocations whose sums of the same columns are added in the first step of the reduction: the
/// invocations of a subgroup where possible.
fn partial_lanes(
    tile: PanelTile,
    node: &MatMulNode<'_>,
    panels: &FloatPanels,
    subgroup_lanes: Option<u32>,
) -> u32 {
    let k_lanes = tile.panel_threads(node) / panels.loads_per_row();
    subgroup_lanes.map_or(PARTIAL_LANES.min(k_lanes), |lanes| lanes / panels.loads_per_row())
}

/// Returns the workgroup memory that a tile needs for sums and for normalized rows, or `None` if the target has too little.
fn memory(
    problem: &Problem<'_>,
    node: &MatMulNode<'_>,
    panels: &FloatPanels,
    k: &Dim,
    tile: PanelTile,
    subgroup_lanes: Option<u32>,
) -> Option<TileMemory> {
    let partials =
        tile.threads / (partial_lanes(tile, node, panels, subgroup_lanes) * panels.loads_per_row()).max(1);
    let invocations = if subgroup_lanes.is_some() { 0 } else { tile.threads };
    let sums = (invocations * panels.column_vec4s() / panels.loads_per_row()
        + partials * panels.column_vec4s())
        * 16
        + if node.has_norm() { (invocations + partials * tile.rows) * 4 } else { 0 }
        + node.inner_factor_bytes(tile.rows);
    let depth = k.as_known().filter(|_| node.has_norm()).and_then(|k| u32::try_from(k).ok());
    TileMemory::choose(problem, sums, depth.and_then(|k| k.checked_mul(tile.rows)), 4)
}
fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Some(node) = MatMulNode::from_problem(problem) else { return Vec::new() };
    let (Some(sizes), Some(panels)) =
        (matmul_sizes(node.matmul, problem), FloatPanels::from_node(&node, problem))
    else {
        return Vec::new();
    };
    let Some(p) = Params::from_problem(problem) else { return Vec::new() };
    let (m, n, k) = (problem.max(&sizes.m), problem.max(&sizes.n), problem.max(&sizes.k));
    if !is_eligible(KERNEL.name, problem) || !problem.computed.is_float() {
        return Vec::new();
    }
    let (machine, limits) = (&problem.target.machine, &problem.target.limits);
    let [batch, serial_batches] = node.parallel_and_serial_batches(problem, &sizes.batch);
    let rows = m.clamp(1, MAX_GROUP_ROWS);
    let blocks = (m as f64 / rows as f64).ceil();
    let panel_count = (n as f64 / f64::from(panels.columns)).ceil();
    let bytes = problem.traffic() as f64 + panels.bytes() as f64 * (blocks - 1.0);
    let cached = stays_cached(problem, problem.traffic() as f64);
    let [max_unroll_few_rows, max_unroll_more_rows] = MAX_UNROLL;
    let max_unroll = if rows > 2 { max_unroll_more_rows } else { max_unroll_few_rows };
    let subgroup_lanes = panels.subgroup_lanes(problem);
    let is_useful = |panel_threads: u32| i64::from(panel_threads / panels.loads_per_row()) <= k;
    let tiles = PanelTile::enumerate(problem, &node, rows as u32, subgroup_lanes, is_useful, |tile| {
        memory(problem, &node, &panels, &sizes.k, tile, subgroup_lanes)
    });
    let mut out = Vec::new();
    for (tile, _) in tiles {
        let PanelTile { threads, panels: group_panels, .. } = tile;
        let k_lanes = tile.panel_threads(&node) / panels.loads_per_row();
        let groups = (panel_count / f64::from(group_panels)).ceil();
        let too_few_panels = group_panels > 1 && f64::from(group_panels) > panel_count;
        if groups > f64::from(limits.max_workgroup_count[0])
            || too_few_panels
            || !node.supports_panels(group_panels, panels.columns)
        {
            continue;
        }
        let all = groups * blocks * batch * f64::from(threads);
        let room = machine.invocations();
        let steps = (k as f64 / f64::from(k_lanes)).ceil();
        // The maximum number of loads in flight that divides the steps.
        let unroll =
            (1..=max_unroll).rev().find(|unroll| (steps as u32).is_multiple_of(*unroll)).unwrap_or(1);
        let step = if cached { p.cached_step_latencies } else { p.uncached_step_latencies }
            + p.extra_row_step_latencies * (rows - 1) as f64;
        let norm_elements = f64::from(node.norm_count()) * (k as f64 / f64::from(threads)).ceil();
        let normalizing = norm_elements * p.norm_element_latencies;
        let streaming = bytes / machine.bandwidth_gb_s.max(1e-3);
        let flops = 2.0 * (m * n) as f64 * batch * k as f64 * node.matrices() as f64;
        let busy = (all / room).clamp(1e-3, 1.0);
        let estimate = Estimate {
            memory: streaming,
            compute: flops / (machine.peak.f32 * p.peak_fraction * busy).max(1e-3),
            latency: (all / room).ceil() * (steps * step + normalizing) * machine.memory_latency_ns,
            overlap: Overlap::PartialReads { shorter_weight: p.shorter_time_weight },
            serial: serial_batches * streaming,
            fixed: p.fixed_latencies * machine.memory_latency_ns,
            ..Estimate::for_dispatches(problem, 1.0)
        };
        let config = Config { threads, rows: rows as u32, unroll, panels: group_panels };
        let reason = format!(
            "matmul of {m} rows: {k_lanes} invocations split K = {k} of each panel of {} columns",
            panels.columns
        );
        out.push(Candidate::new(&config, estimate, reason));
    }
    out
}

fn launches(problem: &Problem<'_>, config: Config) -> Result<Vec<LaunchDraft>, OpError> {
    let node = MatMulNode::from_problem(problem).ok_or_else(|| OpError::new("not a matmul"))?;
    let op = node.matmul;
    let MatMulSizes { batch, m, k, n } = matmul_sizes(op, problem)
        .ok_or_else(|| OpError::new("a matmul needs operands with at least two axes"))?;
    let panels = FloatPanels::from_node(&node, problem)
        .ok_or_else(|| OpError::new("the second operand is not a float constant"))?;
    let mut shader = Shader::new(problem);
    config.declare(&mut shader);
    let Config { threads, rows, unroll, panels: group_panels } = config;
    let tile = PanelTile { threads, panels: group_panels, rows };
    let subgroup_lanes = panels.subgroup_lanes(problem);
    let TileMemory { bytes, stored_items } = memory(problem, &node, &panels, &k, tile, subgroup_lanes)
        .ok_or_else(|| OpError::new("the tile needs more workgroup memory than the target has"))?;
    let k_lanes = tile.panel_threads(&node) / panels.loads_per_row();
    shader.knob("LOADS_PER_ROW", panels.loads_per_row());
    shader.knob("VEC4S_PER_LOAD", panels.columns_per_load() / 4);
    shader.knob("PARTIAL_LANES", partial_lanes(tile, &node, &panels, subgroup_lanes));
    shader.constant("STORED", stored_items > 0);
    shader.knob("STORED_ELEMENTS", stored_items.max(1));
    shader.constant("GUARD_K", !k.is_multiple_of(i64::from(k_lanes * unroll)));
    shader.size("size_m", &m);
    shader.size("size_n", &n);
    shader.size("size_k", &k);
    shader.size("last_panel", &n.plus(-1).floor_div(i64::from(panels.columns)));
    let panel_loads = panels.padded_k as u64 * u64::from(panels.loads_per_row());
    shader.replace("panel_loads", format!("fn panel_loads() -> u32 {{ return {panel_loads}u; }}"));
    node.declare_first_panel(&mut shader, panels.panels_per_matrix.unwrap_or(0));
    shader.workgroup_memory(bytes);
    if let Some(lanes) = subgroup_lanes {
        let two_vec4s = panels.columns_per_load() == 8;
        subgroup_sums::declare_subgroup_sums(&mut shader, lanes, panels.loads_per_row(), two_vec4s);
    }

    declare_row_loads(&node, &mut shader, VectorWidth::Scalar)?;
    let f16 = panels.is_f16();
    let columns = panels.columns;
    panels.declare_loads(&mut shader, if f16 { "vec4<u32>" } else { "vec4<f32>" });
    if !f16 {
        shader.alias("PanelLoad", "vec4<f32>");
        let column_vec4 = "fn column_vec4(load: PanelLoad, i: u32) -> vec4<f32> { return load; }";
        shader.replace("column_vec4", column_vec4.into());
    }
    node.declare_fusions(&mut shader, VectorWidth::Scalar)?;
    node.declare_rotation(&mut shader, columns);
    let (prelude, mut axes) = batch_axes(&mut shader, &batch);
    axes.extend(["row".to_string(), "n4".to_string()]);
    let lane = axes.len() - 1;
    shader.write("store", "batch: u32, row: u32, n4: u32", &prelude, &Coordinates::vec4(axes, lane))?;

    let batch = product(&batch);
    let flops = m.mul(&n).mul(&k).mul(&batch).scale(2 * node.matrices() as i64);
    let groups = [n.ceil_div(i64::from(columns * group_panels)), m.ceil_div(i64::from(rows)), batch];
    let grid = Grid { groups, workgroup: [threads, 1, 1] };
    let mut launch = shader.finish("matvec_panels", KERNEL.wgsl, grid, flops);
    launch.subgroup_size = subgroup_lanes;
    Ok(vec![launch])
}
