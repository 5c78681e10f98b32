//! `matvec_panels.wgsl`: matrix products of one to a few rows with a constant that is streamed once, from the panels that
//! matrix units take it in, too.

use serde::Deserialize;

use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::kernels::cost::{Parameters, stays_cached};
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::kernels::shared::cut::{Cut, Memory};
use crate::kernels::shared::fold;
use crate::kernels::shared::fused::{Fused, Reads};
use crate::kernels::shared::product::{Sizes, batch_axes, sizes};
use crate::kernels::shared::residual::declare_rows;
use crate::kernels::shared::row_panels::RowPanels;
use crate::shader::access::Coordinates;
use crate::shader::problem::Problem;
use crate::shader::{Grid, Launch, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "matvec_panels",
    wgsl: include_str!("matvec_panels.wgsl"),
    candidates,
    launches,
    matrices: None,
    params: &[Group::of::<Params>()],
    in_place: InPlace::Epilogue,
};

/// Most rows worth a walk over the constant, and most that one workgroup multiplies at once.
const MOST_ROWS: i64 = 16;
const MOST_HELD: i64 = 8;
/// Most rows of a product that takes in what stands beside it: with more the kernels of many rows, which do not, are faster.
const MOST_FUSED: i64 = 4;
/// Units that an invocation has in flight at most for up to two rows, and for more.
const UNROLL: [u32; 2] = [8, 2];
/// Invocations whose sums one invocation adds up where subgroups do not.
const SHARE: u32 = 16;

/// Parameters of the estimate; waits in latencies of memory.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Part of the arithmetic peak that is reached.
    reached: f64,
    /// Before the first load and after the last.
    ends: f64,
    /// A step's wait for what lies in the cache.
    cached: f64,
    /// A step's wait for what does not.
    loaded: f64,
    /// A step's products with each further row.
    row: f64,
    /// The part of the lesser of reading and waiting that the greater does not hide.
    beside: f64,
    /// How long invocations take to normalise an element of a row each.
    prepared: f64,
}

impl Parameters for Params {
    const GROUP: &str = "matvec_panels";
}

/// Invocations whose sums of the same columns are added up in the first step: a subgroup's where its lanes can.
fn share(cut: Cut, fused: &Fused<'_>, panels: &RowPanels, lanes: Option<u32>) -> u32 {
    let depths = cut.team(fused) / panels.parts();
    lanes.map_or(SHARE.min(depths), |lanes| lanes / panels.parts())
}

/// What sums take, and the elements of rows where these are normalised.
fn memory(
    problem: &Problem<'_>,
    fused: &Fused<'_>,
    panels: &RowPanels,
    k: &Dim,
    cut: Cut,
    lanes: Option<u32>,
) -> Option<Memory> {
    let squares = cut.threads / (share(cut, fused, panels, lanes) * panels.parts()).max(1);
    let cells = if lanes.is_some() { 0 } else { cut.threads };
    let sums = (cells * panels.vectors() / panels.parts() + squares * panels.vectors()) * 16
        + if fused.normalised() { (cells + squares * cut.rows) * 4 } else { 0 }
        + fused.factors(cut.rows);
    let depth = k.as_known().filter(|_| fused.normalised()).and_then(|k| u32::try_from(k).ok());
    Memory::of(problem, sums, depth.and_then(|k| k.checked_mul(cut.rows)), 4)
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Some(fused) = Fused::of(problem) else { return Vec::new() };
    let (Some(sizes), Some(panels)) = (sizes(fused.product, problem), RowPanels::of(&fused, problem)) else {
        return Vec::new();
    };
    let Some(p) = Params::of(problem) else { return Vec::new() };
    let (m, n, k) = (problem.max(&sizes.m), problem.max(&sizes.n), problem.max(&sizes.k));
    let most = if fused.alone() { MOST_ROWS } else { MOST_FUSED };
    if m > most || !problem.computed.is_float() {
        return Vec::new();
    }
    let (machine, limits) = (&problem.target.machine, &problem.target.limits);
    let [batch, later] = fused.batches(problem, &sizes.batch);
    let rows = m.clamp(1, MOST_HELD);
    let blocks = (m as f64 / rows as f64).ceil();
    let tiles = (n as f64 / f64::from(panels.columns)).ceil();
    let bytes = problem.traffic() as f64 + panels.bytes() as f64 * (blocks - 1.0);
    let held = stays_cached(problem, problem.traffic() as f64);
    let [few, many] = UNROLL;
    let most_ahead = if rows > 2 { many } else { few };
    let lanes = panels.lanes(problem);
    let useful = |team: u32| i64::from(team / panels.parts()) <= k;
    let cuts = Cut::all(problem, &fused, rows as u32, lanes, useful, |cut| {
        memory(problem, &fused, &panels, &sizes.k, cut, lanes)
    });
    let mut out = Vec::new();
    for (cut, _) in cuts {
        let Cut { threads, panels: per, .. } = cut;
        let depths = cut.team(&fused) / panels.parts();
        let groups = (tiles / f64::from(per)).ceil();
        let few = per > 1 && f64::from(per) > tiles;
        if groups > f64::from(limits.max_workgroup_count[0]) || few || !fused.takes(per, panels.columns) {
            continue;
        }
        let all = groups * blocks * batch * f64::from(threads);
        let room = f64::from(machine.compute_units) * f64::from(machine.invocations_per_unit);
        let steps = (k as f64 / f64::from(depths)).ceil();
        // As many units in flight as there are, in whole steps.
        let ahead = (1..=most_ahead).rev().find(|ahead| (steps as u32).is_multiple_of(*ahead)).unwrap_or(1);
        let step = if held { p.cached } else { p.loaded } + p.row * (rows - 1) as f64;
        let elements = f64::from(fused.normalisations()) * (k as f64 / f64::from(threads)).ceil();
        let prepared = elements * p.prepared;
        let waiting = (all / room).ceil() * (steps * step + prepared) * machine.memory_latency_ns;
        let streaming = bytes / machine.bandwidth_gb_s.max(1e-3);
        let flops = 2.0 * (m * n) as f64 * batch * k as f64 * fused.matrices() as f64;
        let busy = (all / room).clamp(1e-3, 1.0);
        let computing = flops / (machine.peak.f32 * p.reached * busy).max(1e-3);
        let reading = streaming.max(waiting) + p.beside * streaming.min(waiting);
        out.push(Candidate {
            knobs: vec![("THREADS", threads), ("ROWS", rows as u32), ("UNROLL", ahead), ("PANELS", per)],
            cost: reading.max(computing)
                + later * streaming
                + p.ends * machine.memory_latency_ns
                + machine.launch_us * 1e3,
            reason: format!(
                "{m} rows: {depths} invocations share the depth {k} of a panel of {} columns",
                panels.columns
            ),
        });
    }
    out
}

fn launches(problem: &Problem<'_>, candidate: &Candidate) -> Result<Vec<Launch>, OpError> {
    let fused = Fused::of(problem).ok_or_else(|| OpError::new("not a matrix product"))?;
    let op = fused.product;
    let Sizes { batch, m, k, n } =
        sizes(op, problem).ok_or_else(|| OpError::new("operands of rank two or more are needed"))?;
    let panels =
        RowPanels::of(&fused, problem).ok_or_else(|| OpError::new("a constant second operand is needed"))?;
    let mut shader = Shader::new(problem);
    for (name, value) in &candidate.knobs {
        shader.knob(name, *value);
    }
    let cut = Cut::of(candidate);
    let Cut { threads, panels: taken, rows } = cut;
    let unroll = candidate.knob("UNROLL").max(1);
    let lanes = panels.lanes(problem);
    let Memory { bytes, stored } = memory(problem, &fused, &panels, &k, cut, lanes)
        .ok_or_else(|| OpError::new("more workgroup memory is needed than there is"))?;
    let depths = cut.team(&fused) / panels.parts();
    shader.knob("PARTS", panels.parts());
    shader.knob("VECTORS", panels.unit() / 4);
    shader.knob("SHARE", share(cut, &fused, &panels, lanes));
    shader.constant("STORED", stored > 0);
    shader.knob("STORED_ELEMENTS", stored.max(1));
    shader.constant("GUARD_K", !k.is_multiple_of(i64::from(depths * unroll)));
    shader.size("size_m", &m);
    shader.size("size_n", &n);
    shader.size("size_k", &k);
    shader.size("last_panel", &n.plus(-1).floor_div(i64::from(panels.columns)));
    let units = panels.rows as u64 * u64::from(panels.parts());
    shader.replace("panel_units", format!("fn panel_units() -> u32 {{ return {units}u; }}"));
    let apart = panels.apart.unwrap_or(0);
    fused.first_panel(&mut shader, apart);
    shader.workgroup_memory(bytes);
    if let Some(lanes) = lanes {
        fold::declare(&mut shader, lanes, panels.parts(), panels.unit() == 8);
    }

    declare_rows(&fused, &mut shader, Reads::One)?;
    let half = panels.half();
    let columns = panels.columns;
    panels.declare_loads(&mut shader, if half { "vec4<u32>" } else { "vec4<f32>" });
    if !half {
        shader.alias("Unit", "vec4<f32>");
        shader.replace("decode", "fn decode(unit: Unit, i: u32) -> vec4<f32> { return unit; }".into());
    }
    fused.declare(&mut shader, Reads::One)?;
    fused.declare_rotation(&mut shader, columns);
    let (prelude, mut axes) = batch_axes(&mut shader, &batch);
    axes.extend(["row".to_string(), "n4".to_string()]);
    let lane = axes.len() - 1;
    shader.write("store", "batch: u32, row: u32, n4: u32", &prelude, &Coordinates::four(axes, lane))?;

    let batch = product(&batch);
    let flops = m.mul(&n).mul(&k).mul(&batch).scale(2 * fused.matrices() as i64);
    let groups = [n.ceil_div(i64::from(columns * taken)), m.ceil_div(i64::from(rows)), batch];
    let grid = Grid { groups, workgroup: [threads, 1, 1] };
    let mut launch = shader.finish("matvec_panels", KERNEL.wgsl, grid, flops)?;
    launch.subgroup_size = lanes;
    Ok(vec![launch])
}
