//! `matvec_panels.wgsl`: matrix products of one to a few rows with a constant that is streamed once, from the panels that
//! matrix units take it in, too.

use serde::Deserialize;

use crate::error::OpError;
use crate::ir::dim::product;
use crate::ir::op::{MatMul, Op};
use crate::ir::tensor::DeviceType;
use crate::kernels::cost::Parameters;
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::kernels::shared::coop;
use crate::kernels::shared::dot::Matrices;
use crate::kernels::shared::product::{Sizes, batch_axes, operand_batch, sizes};
use crate::kernels::shared::window::fits;
use crate::shader::access::Coordinates;
use crate::shader::pack::Packed;
use crate::shader::pack::presets::PANELS;
use crate::shader::problem::Problem;
use crate::shader::{Grid, Launch, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "matvec_panels",
    wgsl: include_str!("matvec_panels.wgsl"),
    candidates,
    launches,
    matrices: None,
    params: &[Group::of::<Params>()],
    in_place: InPlace::Chain,
};

/// Columns of a panel where no matrix unit wants another number.
const COLUMNS: u32 = 16;
/// Most rows worth a walk over the constant, and most that one workgroup multiplies at once.
const MOST_ROWS: i64 = 16;
const MOST_HELD: i64 = 8;
/// Units that an invocation has in flight for up to two rows, and for more.
const UNROLL: [u32; 2] = [4, 2];
/// Invocations whose sums one invocation adds up.
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
}

impl Parameters for Params {
    const GROUP: &str = "matvec_panels";
}

/// The constant in panels, and how it is read.
struct Panels {
    packed: Packed,
    /// Columns of a panel and rows with padding.
    columns: u32,
    rows: usize,
    /// Panels of a matrix where each product of the batch has one of its own.
    apart: Option<usize>,
}

impl Panels {
    fn of(op: &MatMul, problem: &Problem<'_>) -> Option<Self> {
        let Matrices { constant, axes, each } = Matrices::of(op, problem)?;
        let size = |letter: char| axes.iter().find(|(name, _)| *name == letter).map_or(1, |(_, size)| *size);
        let device = constant.dtype.on_device();
        // The panels of matrix units serve products of many rows from the same bytes.
        let (packed, columns, rows) = match coop::matrices(problem).filter(|_| device == DeviceType::F16) {
            Some(shape) => {
                let panels = coop::pack_panels(constant, &axes, shape.k as usize, shape.n);
                (panels.packed, shape.n, panels.rows)
            }
            None => {
                let tiles = [('r', 1), ('n', COLUMNS as usize)];
                (PANELS.of(constant, &axes, &tiles, device), COLUMNS, size('K'))
            }
        };
        let apart = each.then(|| size('N').div_ceil(columns as usize));
        (constant.dtype.is_float() && fits(problem, &packed)).then_some(Self { packed, columns, rows, apart })
    }

    /// Columns in a unit of 16 bytes.
    fn unit(&self) -> u32 {
        if self.packed.device == DeviceType::F16 { 8 } else { 4 }
    }

    /// Units in a row of a panel.
    fn parts(&self) -> u32 {
        self.columns / self.unit()
    }
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Op::MatMul(op) = problem.op else { return Vec::new() };
    let (Some(sizes), Some(panels)) = (sizes(op, problem), Panels::of(op, problem)) else {
        return Vec::new();
    };
    let Some(p) = Params::of(problem) else { return Vec::new() };
    let (m, n, k) = (problem.max(&sizes.m), problem.max(&sizes.n), problem.max(&sizes.k));
    if m > MOST_ROWS || !problem.computed.is_float() {
        return Vec::new();
    }
    let (machine, limits) = (&problem.target.machine, &problem.target.limits);
    let batch = problem.max(&product(&sizes.batch)) as f64;
    let rows = m.clamp(1, MOST_HELD);
    let blocks = (m as f64 / rows as f64).ceil();
    let groups = (n as f64 / f64::from(panels.columns)).ceil();
    let bytes = problem.traffic() as f64 + panels.packed.bytes() as f64 * (blocks - 1.0);
    let held = problem.traffic() as f64 * 1.25 <= machine.last_level_cache as f64;
    let [few, many] = UNROLL;
    let unroll = if rows > 2 { many } else { few };
    [64u32, 128, 256, 512]
        .into_iter()
        .filter(|threads| {
            let memory = memory(&panels, *threads);
            *threads <= limits.max_workgroup_invocations.min(limits.max_workgroup_size[0])
                && memory <= limits.max_workgroup_memory
                && groups <= f64::from(limits.max_workgroup_count[0])
                && (*threads == 64 || i64::from(threads / panels.parts()) <= k)
        })
        .map(|threads| {
            let lanes = threads / panels.parts();
            let all = groups * blocks * batch * f64::from(threads);
            let room = f64::from(machine.compute_units) * f64::from(machine.invocations_per_unit);
            let steps = (k as f64 / f64::from(lanes)).ceil();
            let step = if held { p.cached } else { p.loaded } + p.row * (rows - 1) as f64;
            let waiting = (all / room).ceil() * steps * step * machine.memory_latency_ns;
            let streaming = bytes / machine.bandwidth_gb_s.max(1e-3);
            let flops = 2.0 * (m * n) as f64 * batch * k as f64;
            let busy = (all / room).clamp(1e-3, 1.0);
            let computing = flops / (machine.peak.f32 * p.reached * busy).max(1e-3);
            let reading = streaming.max(waiting) + p.beside * streaming.min(waiting);
            Candidate {
                knobs: vec![("THREADS", threads), ("ROWS", rows as u32), ("UNROLL", unroll)],
                cost: reading.max(computing) + p.ends * machine.memory_latency_ns + machine.launch_us * 1e3,
                reason: format!(
                    "{m} rows: {lanes} invocations share the depth {k} of a panel of {} columns",
                    panels.columns
                ),
            }
        })
        .collect()
}

/// Bytes of workgroup memory.
fn memory(panels: &Panels, threads: u32) -> u32 {
    let lanes = threads / panels.parts();
    (threads * panels.unit() + lanes / SHARE.min(lanes) * panels.columns) * 4
}

fn launches(problem: &Problem<'_>, candidate: &Candidate) -> Result<Vec<Launch>, OpError> {
    let Op::MatMul(op) = problem.op else { return Err(OpError::new("not a matrix product")) };
    let Sizes { batch, m, k, n } =
        sizes(op, problem).ok_or_else(|| OpError::new("operands of rank two or more are needed"))?;
    let panels =
        Panels::of(op, problem).ok_or_else(|| OpError::new("a constant second operand is needed"))?;
    let mut shader = Shader::new(problem);
    for (name, value) in &candidate.knobs {
        shader.knob(name, *value);
    }
    let [threads, rows, unroll] = ["THREADS", "ROWS", "UNROLL"].map(|name| candidate.knob(name).max(1));
    let lanes = threads / panels.parts();
    shader.knob("PARTS", panels.parts());
    shader.knob("VECTORS", panels.unit() / 4);
    shader.knob("SHARE", SHARE.min(lanes));
    shader.constant("GUARD_K", !k.is_multiple_of(i64::from(lanes * unroll)));
    shader.size("size_m", &m);
    shader.size("size_n", &n);
    shader.size("size_k", &k);
    let units = panels.rows as u64 * u64::from(panels.parts());
    shader.replace("panel_units", format!("fn panel_units() -> u32 {{ return {units}u; }}"));
    let apart = panels.apart.unwrap_or(0);
    shader
        .replace("first_panel", format!("fn first_panel(batch: u32) -> u32 {{ return batch * {apart}u; }}"));
    shader.workgroup_memory(memory(&panels, threads));

    let (prelude, mut axes) = operand_batch(&mut shader, 0);
    axes.extend(if op.trans_a { ["k", "row"] } else { ["row", "k"] }.map(str::to_string));
    shader.read("load_a", "batch: u32, row: u32, k: u32", &prelude, 0, &Coordinates::element(axes));
    let half = panels.packed.device == DeviceType::F16;
    let columns = panels.columns;
    let bound = shader.packed(panels.packed);
    let buffer = shader.bind(bound, if half { "vec4<u32>" } else { "vec4<f32>" }, false);
    shader.replace("load_b", format!("fn load_b(at: u32) -> Unit {{ return {buffer}[at]; }}"));
    if !half {
        shader.alias("Unit", "vec4<f32>");
        shader.replace("decode", "fn decode(unit: Unit, i: u32) -> vec4<f32> { return unit; }".into());
    }
    let (prelude, mut axes) = batch_axes(&mut shader, &batch);
    axes.extend(["row".to_string(), "n4".to_string()]);
    let lane = axes.len() - 1;
    shader.write("store", "batch: u32, row: u32, n4: u32", &prelude, &Coordinates::four(axes, lane))?;

    let batch = product(&batch);
    let flops = m.mul(&n).mul(&k).mul(&batch).scale(2);
    let groups = [n.ceil_div(i64::from(columns)), m.ceil_div(i64::from(rows)), batch];
    Ok(vec![shader.finish(
        "matvec_panels",
        KERNEL.wgsl,
        Grid { groups, workgroup: [threads, 1, 1] },
        flops,
    )?])
}
