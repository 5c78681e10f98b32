//! `matvec_codes.wgsl`: matrix products of one to a few rows with a constant of few bits, whose codes are streamed once.

use serde::Deserialize;

use super::matvec_fragments;
use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::ir::tensor::DeviceType;
use crate::kernels::cost::{Parameters, stays_cached};
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::kernels::shared::codes::{Columns, declare_constants};
use crate::kernels::shared::cut::{Cut, Memory};
use crate::kernels::shared::fold;
use crate::kernels::shared::fused::{Fused, Reads};
use crate::kernels::shared::product::{Sizes, batch_axes, sizes};
use crate::kernels::shared::residual::declare_rows;
use crate::shader::access::Coordinates;
use crate::shader::codes::{as_halves, as_pairs};
use crate::shader::halves;
use crate::shader::pack::codes::{CodePanels, ROWS as COLUMNS};
use crate::shader::problem::Problem;
use crate::shader::{Grid, Launch, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "matvec_codes",
    wgsl: include_str!("matvec_codes.wgsl"),
    candidates,
    launches,
    matrices: None,
    params: &[Group::of::<Params>()],
    in_place: InPlace::Epilogue,
};

/// Most rows that one workgroup multiplies at once.
const MOST_HELD: i64 = 8;
/// Units that an invocation has in flight at most; more of them leave registers for fewer invocations.
const IN_FLIGHT: usize = 8;
/// The same where rows are normalised first, which takes registers too.
const IN_FLIGHT_NORMALISED: usize = 6;
/// What elements of rows that are not normalised yet are multiplied by as they become halves, which hold numbers to 65504.
const SHRINK: &str = "0.015625";
/// Slots that are summed up before a scale is applied, at most, and units of a piece that an invocation takes: among as many
/// in flight the last of these.
const MOST_PIECE: usize = 64;
const EACH: [usize; 3] = [1, 4, 2];
/// Fours of invocations whose sums one invocation adds up where subgroups do not.
const SHARE: u32 = 16;

/// Parameters of the estimate; times in latencies of memory.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// What is before the first and after the last load.
    ends: f64,
    /// A step's wait for what lies in the cache, and for what does not.
    cached: f64,
    loaded: f64,
    /// The part of the lesser of reading and computing that the greater does not hide.
    beside: f64,
    /// Operations that making a number of a code takes beside its products, and part of the peak that both reach.
    decoded: f64,
    reached: f64,
    /// Operations that making one half of a code takes beside its products, which are of two halves at a time.
    paired: f64,
    /// How long an invocation alone takes for an operation.
    operation: f64,
    /// How long invocations take to normalise an element of a row each.
    prepared: f64,
}

impl Parameters for Params {
    const GROUP: &str = "matvec_codes";
}

/// The product, with what is fused to it, and how its constants lie.
struct Coded<'a> {
    fused: Fused<'a>,
    columns: Columns,
}

impl<'a> Coded<'a> {
    /// None where the operator is none, or its constants lie otherwise, or not alike.
    fn of(problem: &Problem<'a>) -> Option<Self> {
        let fused = Fused::of(problem)?;
        let columns = Columns::of_all(fused.product, problem, fused.matrices())?;
        Some(Self { fused, columns })
    }
}

/// How invocations share the slots of a panel.
#[derive(Debug, Clone, Copy)]
struct Walk {
    /// Slots that share a scale and are summed up before it is applied, and those of a group; none with one group.
    piece: Option<usize>,
    of_group: usize,
    slots: usize,
}

/// The same for a number of invocations.
#[derive(Debug, Clone, Copy)]
struct Shared {
    /// Slots of a piece, and fours of invocations that take one.
    piece: usize,
    side: usize,
    /// Pieces that an invocation has in flight.
    ahead: usize,
    pieces: usize,
    /// Whether the last step takes as many slots as the others.
    whole: bool,
}

impl Walk {
    /// None where a group ends within a word.
    fn of(columns: &Columns) -> Option<Self> {
        let form = &columns.form;
        let slots = form.words();
        if form.groups() <= 1 {
            return Some(Self { piece: None, of_group: slots, slots });
        }
        let of_group = form.group / form.of_word();
        let piece = (1..=MOST_PIECE).rev().find(|piece| of_group.is_multiple_of(*piece))?;
        columns.streams().then_some(Self { piece: Some(piece), of_group, slots })
    }

    /// How so many invocations take the slots: in whole steps where that can be, with as many units in flight as may be.
    fn shared(&self, threads: usize, normalised: bool) -> Option<Shared> {
        let in_flight = if normalised { IN_FLIGHT_NORMALISED } else { IN_FLIGHT };
        let fours = threads / 4;
        let splits = EACH.into_iter().filter_map(|each| {
            let piece = self.piece.unwrap_or(fours * each);
            let side = piece / each;
            if !piece.is_multiple_of(each) || side > fours {
                return None;
            }
            let pieces = self.slots.div_ceil(piece);
            let rounds = pieces.div_ceil(fours / side);
            let most = (in_flight / each).clamp(1, rounds);
            let even = pieces.is_multiple_of(fours / side) && fours.is_multiple_of(side);
            let ahead = (1..=most).rev().find(|ahead| rounds.is_multiple_of(*ahead)).unwrap_or(1);
            let whole = even && self.slots.is_multiple_of(piece);
            Some(Shared { piece, side, ahead: if whole { ahead } else { most }, pieces, whole })
        });
        splits.max_by_key(|split| (split.whole, split.ahead * split.piece / split.side))
    }
}

/// Fours of invocations whose sums are added up in the first step: those of a subgroup where its lanes can.
fn share(lanes: Option<u32>) -> u32 {
    lanes.map_or(SHARE, |lanes| lanes / 4)
}

/// What sums take, and the slots of rows where these are normalised.
fn memory(problem: &Problem<'_>, coded: &Coded<'_>, cut: Cut, lanes: Option<u32>) -> Option<Memory> {
    let squares = cut.threads / 4 / share(lanes);
    let normalised = coded.fused.normalised();
    let cells = if lanes.is_some() { 0 } else { cut.threads };
    let sums = (cells + squares * 4) * 16
        + if normalised { (cells + squares * cut.rows * kinds(problem, coded)) * 4 } else { 0 }
        + coded.fused.factors(cut.rows);
    let form = &coded.columns.form;
    let slots = u32::try_from(form.words()).ok()?.checked_mul(cut.rows)?;
    let sums_of_slot = if form.groups() > 1 { 8 } else { 0 };
    let of_slot =
        if packed(problem, form) { 16 } else { u32::try_from(form.of_word()).ok()?.checked_mul(4)? };
    let slot = of_slot.checked_add(sums_of_slot)?;
    Memory::of(problem, sums, normalised.then_some(slots), slot)
}

/// Sums of a row that are found while it is normalised.
fn kinds(problem: &Problem<'_>, coded: &Coded<'_>) -> u32 {
    let form = &coded.columns.form;
    if form.groups() > 1 { 1 } else { 1 + u32::from(!packed(problem, form)) + u32::from(form.bias.is_some()) }
}

/// Whether products are of two halves at a time: where codes become halves and rows are stored as such. Codes of 8 bits gain
/// nothing: reading them takes longer than multiplying.
fn packed(problem: &Problem<'_>, form: &CodePanels) -> bool {
    let stored = problem.operands.first().is_some_and(|rows| rows.dtype.on_device() == DeviceType::F16);
    form.bits == 4 && stored && as_pairs(problem.target)
}

/// Rows that a workgroup multiplies.
fn held(m: i64) -> i64 {
    m.clamp(1, MOST_HELD)
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let (Some(coded), Some(p)) = (Coded::of(problem), Params::of(problem)) else { return Vec::new() };
    let Coded { fused, columns } = coded;
    let (Some(sizes), Some(walk)) = (sizes(fused.product, problem), Walk::of(&columns)) else {
        return Vec::new();
    };
    let (form, matrices) = (columns.form, fused.matrices() as f64);
    let (m, n, k) = (problem.max(&sizes.m), problem.max(&sizes.n), problem.max(&sizes.k));
    if !columns.only_streams(problem, m) || matvec_fragments::takes(problem) {
        return Vec::new();
    }
    let (machine, limits) = (&problem.target.machine, &problem.target.limits);
    let [batch, later] = fused.batches(problem, &sizes.batch);
    let rows = held(m);
    let blocks = (m as f64 / rows as f64).ceil();
    let panels = (n as f64 / COLUMNS as f64).ceil();
    let bytes = problem.read_bytes(1) as f64 * matrices;
    let bandwidth = machine.bandwidth_gb_s.max(1e-3);
    let held = stays_cached(problem, bytes);
    let wait = if held { p.cached } else { p.loaded } * machine.memory_latency_ns;
    let streaming = bytes / bandwidth;
    // What grows with the rows must not follow from how the work is shared, nor that from the rows: each row has the same
    // sums then. Blocks of rows that read the same panel run side by side: the cache serves all but one of them.
    let again = bytes * (blocks - 1.0) / machine.cache_bandwidth_gb_s.max(1e-3);
    let (multiplied, decoded) = if packed(problem, &form) { (1.0, p.paired) } else { (2.0, p.decoded) };
    let operations = (n * k) as f64 * matrices * batch * (multiplied * m as f64 + decoded * blocks);
    let computing = operations / (machine.peak.f32 * p.reached).max(1e-3);
    let beside = (problem.traffic() as f64 - bytes).max(0.0) / bandwidth;
    let of_rows =
        beside + p.beside * computing + (again + computing - streaming).max(0.0) + later * streaming;
    let lanes = fold::lanes(problem);
    let useful = |team: u32| team as usize / 4 <= walk.slots;
    let cuts =
        Cut::all(problem, &fused, rows as u32, lanes, useful, |cut| memory(problem, &coded, cut, lanes));
    let mut out = Vec::new();
    for (cut, Memory { stored, .. }) in cuts {
        let Cut { threads, panels: per, .. } = cut;
        let team = cut.team(&fused);
        let groups = (panels / f64::from(per)).ceil();
        let fits = groups * blocks <= f64::from(limits.max_workgroup_count[0])
            && batch <= f64::from(limits.max_workgroup_count[2])
            && (per == 1 || f64::from(per) <= panels)
            && fused.takes(per, COLUMNS as u32);
        let Some(shared) = walk.shared(team as usize, fused.normalised()).filter(|_| fits) else { continue };
        let Shared { piece, side, ahead, .. } = shared;
        let fours = team as usize / 4 / side * side;
        let room = f64::from(machine.compute_units) * f64::from(machine.invocations_per_unit);
        let rounds = (groups * batch * f64::from(threads) / room).ceil();
        let in_flight = ahead * piece / side;
        let steps = (walk.slots as f64 / (fours * in_flight) as f64).ceil();
        let codes = (walk.slots * 4 * form.of_word()) as f64 / fours as f64;
        let alone = codes * (multiplied + decoded) * p.operation * machine.memory_latency_ns;
        let elements = f64::from(fused.normalisations()) * (k as f64 / f64::from(threads)).ceil();
        let prepared = elements * p.prepared;
        let waiting = rounds * (steps * wait + alone + prepared * machine.memory_latency_ns);
        let reading = streaming.max(waiting) + p.beside * streaming.min(waiting);
        // Four sums of each invocation, or of one of a subgroup, are written to workgroup memory and read again.
        let summed =
            groups * batch * f64::from(threads) * 32.0 / f64::from(lanes.map_or(1, |lanes| lanes / 4));
        let adding = summed / machine.cache_bandwidth_gb_s.max(1e-3);
        out.push(Candidate {
            knobs: vec![("THREADS", threads), ("ROWS", rows as u32), ("PANELS", per)],
            cost: reading + adding + of_rows + p.ends * machine.memory_latency_ns + machine.launch_us * 1e3,
            reason: format!(
                "{m} rows{}: {team} invocations share a panel of {COLUMNS} columns of {}-bit codes, {} of them {piece} words of each column at a time, with {in_flight} units in flight",
                if stored > 0 { " in workgroup memory" } else { "" },
                form.bits,
                side * 4
            ),
        });
    }
    out
}

fn launches(problem: &Problem<'_>, candidate: &Candidate) -> Result<Vec<Launch>, OpError> {
    let wanted = || OpError::new("a product with constants of codes along the depth is needed");
    let coded = Coded::of(problem).ok_or_else(wanted)?;
    let Coded { fused, columns } = coded;
    let op = fused.product;
    let Sizes { batch, m, k, n } =
        sizes(op, problem).ok_or_else(|| OpError::new("operands of rank two or more are needed"))?;
    let walk = Walk::of(&columns).ok_or_else(wanted)?;
    let Columns { form, apart } = columns;
    let mut shader = Shader::new(problem);
    for (name, value) in &candidate.knobs {
        shader.knob(name, *value);
    }
    let cut = Cut::of(candidate);
    let Cut { threads, panels, rows } = cut;
    let team = threads as usize / fused.matrices() / panels as usize;
    let Shared { piece, side, ahead, pieces, whole } =
        walk.shared(team, fused.normalised()).ok_or_else(wanted)?;
    let lanes = fold::lanes(problem);
    let Memory { bytes, stored } = memory(problem, &coded, cut, lanes).ok_or_else(wanted)?;
    let whole = whole && form.depth.is_multiple_of(form.of_word());
    for (name, value) in [("BITS", form.bits), ("PIECE", piece), ("SIDE", side), ("AHEAD", ahead)] {
        shader.constant(name, format_args!("{value}u"));
    }
    shader.constant("GROUPED", walk.piece.is_some());
    shader.constant("BIASED", form.bias.is_some());
    shader.constant("GUARD", !whole);
    shader.constant("HALVES", as_halves(problem.target));
    shader.constant("ZERO", format_args!("{}.0", form.zero));
    let packed = packed(problem, &form);
    let taken = if packed { 1 } else { form.of_word() as u32 / 4 };
    shader.constant("PACKED", packed);
    shader.knob("TAKEN", taken);
    if packed {
        shader.pairs(&form);
        for (name, text) in halves::product_hooks() {
            shader.replace(name, text);
        }
        shader.constant("SMALLER", format_args!("{}.0", halves::smaller(&form)));
        shader.constant("SHRINK", if fused.normalised() { SHRINK } else { "1.0" });
    }
    shader.size("size_m", &m);
    shader.size("size_n", &n);
    shader.size("size_k", &k);
    shader.size("row_blocks", &m.ceil_div(i64::from(rows)));
    let panels_apart = apart.map_or(0, |columns| columns / COLUMNS);
    let of_group = (walk.of_group / piece).max(1);
    let sizes = [("panel_units", form.panel_units()), ("pieces", pieces), ("pieces_of_group", of_group)];
    for (name, size) in sizes {
        shader.replace(name, format!("fn {name}() -> u32 {{ return {size}u; }}"));
    }
    fused.first_panel(&mut shader, panels_apart);
    shader.workgroup_memory(bytes);
    shader.size("last_panel", &n.plus(-1).floor_div(COLUMNS as i64));
    shader.constant("SLOTS", format_args!("{}u", walk.slots));
    shader.constant("STORED", stored > 0);
    shader.knob("STORED_SLOTS", stored.max(1));
    shader.knob("SHARE", share(lanes));
    shader.knob("KINDS", kinds(problem, &coded));
    if let Some(lanes) = lanes {
        fold::declare(&mut shader, lanes, 4, false);
    }

    declare_rows(&fused, &mut shader, Reads::Four)?;
    declare_constants(&mut shader, fused.matrices(), |shader, name, index| shader.code_hooks(name, index))?;
    fused.declare(&mut shader, Reads::Four)?;
    fused.declare_rotation(&mut shader, COLUMNS as u32);
    let (prelude, mut axes) = batch_axes(&mut shader, &batch);
    axes.extend(["row".to_string(), "n4".to_string()]);
    let lane = axes.len() - 1;
    shader.write("store", "batch: u32, row: u32, n4: u32", &prelude, &Coordinates::four(axes, lane))?;

    let batch = product(&batch);
    let flops = m.mul(&n).mul(&k).mul(&batch).scale(2 * fused.matrices() as i64);
    let taken = n.ceil_div(COLUMNS as i64 * i64::from(panels));
    let groups = [taken.mul(&m.ceil_div(i64::from(rows))), Dim::known(1), batch];
    let grid = Grid { groups, workgroup: [threads, 1, 1] };
    let mut launch = shader.finish("matvec_codes", KERNEL.wgsl, grid, flops)?;
    launch.subgroup_size = lanes;
    Ok(vec![launch])
}
