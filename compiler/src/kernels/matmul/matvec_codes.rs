//! `matvec_codes.wgsl`: matrix products of one to a few rows with a constant of few bits, whose codes are streamed once.

use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::ir::op::Op;
use crate::kernels::kernel::{Candidate, InPlace, Kernel};
use crate::kernels::shared::codes::Columns;
use crate::kernels::shared::product::{Sizes, batch_axes, operand_batch, sizes};
use crate::shader::access::Coordinates;
use crate::shader::pack::codes::ROWS as COLUMNS;
use crate::shader::problem::Problem;
use crate::shader::{Grid, Launch, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "matvec_codes",
    wgsl: include_str!("matvec_codes.wgsl"),
    candidates,
    launches,
    matrices: None,
    params: &[],
    in_place: InPlace::Chain,
};

/// Most rows that one workgroup multiplies at once, where sums of a group are kept beside those of all and where not.
const MOST_HELD: [i64; 2] = [4, 8];
/// Units that an invocation has in flight; more of them leave registers for fewer invocations.
const IN_FLIGHT: usize = 4;
/// Units that are summed up before a scale is applied, at most, and those of them that an invocation takes.
const MOST_PIECE: usize = 64;
const EACH: [usize; 3] = [4, 2, 1];
/// Invocations whose sums one invocation adds up.
const SHARE: u32 = 16;

// As of `matvec_panels`, whose loads are alike: what is before the first and after the last load and a step's wait for what
// lies in the cache and for what does not, in latencies of memory; the part of the lesser of reading and computing that the
// greater does not hide.
const ENDS: f64 = 2.3;
const CACHED: f64 = 0.1;
const LOADED: f64 = 0.42;
const BESIDE: f64 = 0.14;
/// Operations that making a number of a code takes beside its products, and part of the peak that both reach.
const DECODED: f64 = 5.0;
const REACHED: f64 = 0.5;
/// From how many operations for each conversion of an integer on codes become halves instead.
const SLOW_CONVERSION: f64 = 8.0;

/// How invocations share the units of a panel.
#[derive(Debug, Clone, Copy)]
struct Walk {
    /// Depths of a unit.
    deep: usize,
    grouped: bool,
    /// Units that share a scale and are summed up before it is applied, and those of a group.
    piece: usize,
    of_group: usize,
    /// Invocations that take a piece together; all of them where this is 0.
    side: usize,
}

impl Walk {
    /// None where a group ends within a unit.
    fn of(columns: &Columns) -> Option<Self> {
        let form = &columns.form;
        let deep = 8 / form.bits.max(1);
        if form.groups() <= 1 {
            return Some(Self { deep, grouped: false, piece: 0, of_group: 0, side: 0 });
        }
        let of_group = form.group / deep;
        let piece = (1..=MOST_PIECE).rev().find(|piece| of_group.is_multiple_of(*piece))?;
        let each = EACH.into_iter().find(|each| piece.is_multiple_of(*each))?;
        columns.streams().then_some(Self { deep, grouped: true, piece, of_group, side: piece / each })
    }

    /// Units of a piece, and invocations that take one, of a workgroup of so many.
    fn shared(&self, threads: usize) -> [usize; 2] {
        if self.grouped { [self.piece, self.side] } else { [threads, threads] }
    }
}

/// Rows that a workgroup multiplies.
fn held(walk: &Walk, m: i64) -> i64 {
    let [grouped, whole] = MOST_HELD;
    m.clamp(1, if walk.grouped { grouped } else { whole })
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Op::MatMul(op) = problem.op else { return Vec::new() };
    let (Some(sizes), Some(columns)) = (sizes(op, problem), Columns::of(op, problem)) else {
        return Vec::new();
    };
    let (form, Some(walk)) = (columns.form, Walk::of(&columns)) else { return Vec::new() };
    let (m, n, k) = (problem.max(&sizes.m), problem.max(&sizes.n), problem.max(&sizes.k));
    if !columns.only_streams(problem, m) {
        return Vec::new();
    }
    let (machine, limits) = (&problem.target.machine, &problem.target.limits);
    let batch = problem.max(&product(&sizes.batch)) as f64;
    let rows = held(&walk, m);
    let blocks = (m as f64 / rows as f64).ceil();
    let panels = (n as f64 / COLUMNS as f64).ceil();
    let units = form.code_units();
    let bytes = form.bytes() as f64;
    let bandwidth = machine.bandwidth_gb_s.max(1e-3);
    let held = bytes * 1.25 <= machine.last_level_cache as f64;
    let wait = if held { CACHED } else { LOADED } * machine.memory_latency_ns;
    let streaming = bytes / bandwidth;
    // What grows with the rows must not follow from how the work is shared, nor that from the rows: each row has the same
    // sums then. Blocks of rows that read the same panel run side by side: the cache serves all but one of them.
    let again = bytes * (blocks - 1.0) / machine.cache_bandwidth_gb_s.max(1e-3);
    let operations = (n * k) as f64 * batch * (2.0 * m as f64 + DECODED * blocks);
    let computing = operations / (machine.peak.f32 * REACHED).max(1e-3);
    let beside = (problem.traffic() as f64 - bytes).max(0.0) / bandwidth;
    let of_rows = beside + BESIDE * computing + (again + computing - streaming).max(0.0);
    [64u32, 128, 256, 512]
        .into_iter()
        .filter(|threads| {
            let [piece, side] = walk.shared(*threads as usize);
            *threads <= limits.max_workgroup_invocations.min(limits.max_workgroup_size[0])
                && memory(*threads) <= limits.max_workgroup_memory
                && panels * blocks <= f64::from(limits.max_workgroup_count[0])
                && batch <= f64::from(limits.max_workgroup_count[2])
                && side <= *threads as usize
                && (*threads == 64 || *threads as usize / side * piece <= units)
        })
        .map(|threads| {
            let [piece, side] = walk.shared(threads as usize);
            let lanes = threads as usize / side * side;
            let room = f64::from(machine.compute_units) * f64::from(machine.invocations_per_unit);
            let rounds = (panels * batch * f64::from(threads) / room).ceil();
            let waiting = rounds * (units as f64 / lanes as f64).ceil() * wait;
            let reading = streaming.max(waiting) + BESIDE * streaming.min(waiting);
            // Sixteen sums of each invocation are written to workgroup memory and read again.
            let summed = panels * batch * f64::from(threads) * 128.0;
            let adding = summed / machine.cache_bandwidth_gb_s.max(1e-3);
            Candidate {
                knobs: vec![("THREADS", threads), ("ROWS", rows as u32)],
                cost: reading + adding + of_rows + ENDS * machine.memory_latency_ns + machine.launch_us * 1e3,
                reason: format!(
                    "{m} rows: {threads} invocations share a panel of {COLUMNS} columns of {}-bit codes, {side} of them {piece} units at a time",
                    form.bits
                ),
            }
        })
        .collect()
}

/// Bytes of workgroup memory.
fn memory(threads: u32) -> u32 {
    (threads * 4 + threads / SHARE * 4) * 16
}

fn launches(problem: &Problem<'_>, candidate: &Candidate) -> Result<Vec<Launch>, OpError> {
    let Op::MatMul(op) = problem.op else { return Err(OpError::new("not a matrix product")) };
    let Sizes { batch, m, k, n } =
        sizes(op, problem).ok_or_else(|| OpError::new("operands of rank two or more are needed"))?;
    let wanted = || OpError::new("a constant second operand of codes along the depth is needed");
    let columns = Columns::of(op, problem).ok_or_else(wanted)?;
    let walk = Walk::of(&columns).ok_or_else(wanted)?;
    let Columns { form, apart } = columns;
    let mut shader = Shader::new(problem);
    for (name, value) in &candidate.knobs {
        shader.knob(name, *value);
    }
    let [threads, rows] = ["THREADS", "ROWS"].map(|name| candidate.knob(name).max(1));
    let [piece, side] = walk.shared(threads as usize);
    let (blocks, each) = (threads as usize / side, piece / side);
    let pieces = form.code_units().div_ceil(piece);
    let ahead = (IN_FLIGHT / each).clamp(1, pieces.div_ceil(blocks).max(1));
    let whole = form.depth.is_multiple_of(piece * walk.deep) && pieces.is_multiple_of(blocks * ahead);
    for (name, value) in [("BITS", form.bits), ("PIECE", piece), ("SIDE", side), ("AHEAD", ahead)] {
        shader.constant(name, format_args!("{value}u"));
    }
    let machine = &problem.target.machine;
    let conversions = machine.peak.int_to_float.unwrap_or(machine.peak.f32);
    shader.constant("GROUPED", walk.grouped);
    shader.constant("GUARD", !whole);
    shader.constant("HALVES", conversions * SLOW_CONVERSION <= machine.peak.f32);
    shader.constant("ZERO", format_args!("{}.0", form.zero));
    shader.size("size_m", &m);
    shader.size("size_n", &n);
    shader.size("size_k", &k);
    shader.size("row_blocks", &m.ceil_div(i64::from(rows)));
    let panels_apart = apart.map_or(0, |columns| columns / COLUMNS);
    let of_group = (walk.of_group / piece.max(1)).max(1);
    let sizes = [
        ("panel_units", form.panel_units()),
        ("code_units", form.code_units()),
        ("pieces", pieces),
        ("pieces_of_group", of_group),
    ];
    for (name, size) in sizes {
        shader.replace(name, format!("fn {name}() -> u32 {{ return {size}u; }}"));
    }
    let first = format!("fn first_panel(batch: u32) -> u32 {{ return batch * {panels_apart}u; }}");
    shader.replace("first_panel", first);
    shader.workgroup_memory(memory(threads));

    let (prelude, mut axes) = operand_batch(&mut shader, 0);
    axes.extend(if op.trans_a { ["k", "row"] } else { ["row", "k"] }.map(str::to_string));
    shader.read("load_a", "batch: u32, row: u32, k: u32", &prelude, 0, &Coordinates::element(axes));
    let buffer = shader.code_hooks(1)?;
    shader.replace("load_b", format!("fn load_b(at: u32) -> vec4<u32> {{ return {buffer}[at]; }}"));
    let (prelude, mut axes) = batch_axes(&mut shader, &batch);
    axes.extend(["row".to_string(), "n4".to_string()]);
    let lane = axes.len() - 1;
    shader.write("store", "batch: u32, row: u32, n4: u32", &prelude, &Coordinates::four(axes, lane))?;

    let batch = product(&batch);
    let flops = m.mul(&n).mul(&k).mul(&batch).scale(2);
    let groups = [n.ceil_div(COLUMNS as i64).mul(&m.ceil_div(i64::from(rows))), Dim::known(1), batch];
    let grid = Grid { groups, workgroup: [threads, 1, 1] };
    Ok(vec![shader.finish("matvec_codes", KERNEL.wgsl, grid, flops)?])
}
