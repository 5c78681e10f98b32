//! `matvec_coop.wgsl`: matrix products of a few rows with a constant of few bits, on matrix units.

use serde::Deserialize;

use super::matvec_fragments;
use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::ir::storage::Storage;
use crate::ir::tensor::DeviceType;
use crate::kernels::cost::Parameters;
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::kernels::shared::codes::{Columns, FEW_ROWS, declare_constants};
use crate::kernels::shared::coop;
use crate::kernels::shared::fused::{Fused, Reads};
use crate::kernels::shared::product::{Sizes, one_matrix, sizes};
use crate::shader::codes::eights;
use crate::shader::pack::codes::ROWS as COLUMNS;
use crate::shader::problem::Problem;
use crate::shader::{Bound, Grid, Launch, Need, Shader};
use crate::target::{MatrixScope, MatrixShape, SubgroupOp};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "matvec_coop",
    wgsl: include_str!("matvec_coop.wgsl"),
    candidates,
    launches,
    matrices: Some(MatrixScope::Subgroup),
    params: &[Group::of::<Params>()],
    in_place: InPlace::Epilogue,
};

/// Subgroups of a workgroup, and panels of each constant that it takes.
const SUBS: [u32; 3] = [4, 8, 16];
const PANELS: [u32; 2] = [1, 2];
/// Panels of all constants of a workgroup at most: their sums stay in registers.
const MOST_TILES: u32 = 4;
/// Steps that are loaded before the first is multiplied: the text has each of them, and instructions that run once are fetched
/// more slowly than they run.
const AHEAD: [u32; 2] = [1, 2];

/// Parameters of the estimate; times in latencies of memory.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// What is before the first and after the last load.
    ends: f64,
    /// The wait for what is loaded together.
    loaded: f64,
    /// The part of the lesser of reading and computing that the greater does not hide.
    beside: f64,
    /// Operations that making an element of a code takes, and passing on an element of a row; part of the peak that both reach.
    decoded: f64,
    passed: f64,
    reached: f64,
    /// How long a panel's step takes a subgroup beside what it waits for.
    step: f64,
    /// How long fetching the instructions of one takes.
    fetched: f64,
}

impl Parameters for Params {
    const GROUP: &str = "matvec_coop";
}

/// A product that the kernel computes.
struct Coded<'a> {
    fused: Fused<'a>,
    columns: Columns,
    sizes: Sizes,
}

impl<'a> Coded<'a> {
    /// None where the operator is none, its constants lie otherwise or not alike, there are several products, or rows are sums
    /// with a residual.
    fn of(problem: &Problem<'a>) -> Option<Self> {
        let fused = Fused::of(problem).filter(|fused| fused.residual().is_none())?;
        let columns = Columns::of_all(fused.product, problem, fused.matrices())?;
        let sizes = sizes(fused.product, problem)?;
        let one = product(&sizes.batch).is(1) && columns.apart.is_none() && !fused.product.trans_a;
        let whole = columns.form.depth.is_multiple_of(8) && eights(&columns.form);
        (one && whole).then_some(Self { fused, columns, sizes })
    }

    /// Whether codes take their scales as they become elements, and not their sums.
    fn grouped(&self) -> bool {
        self.columns.form.groups() > 1 || self.columns.form.bias.is_some()
    }

    /// Whether fragments of the rows lie whole in memory: each function has room for the most rows that there may be.
    fn direct(&self, problem: &Problem<'_>, shape: &MatrixShape) -> bool {
        let Some(rows) = problem.operands.first() else { return false };
        rows.dtype.on_device() == DeviceType::F16
            && rows.storage == Storage::Buffer
            && rows.constant.is_none()
            && rows.placement.is_dense(&rows.shape)
            && !self.fused.normalised()
            && problem.max(&self.sizes.m) % i64::from(shape.m) == 0
            && self.eights().is_multiple_of(in_step(problem))
    }

    /// Units of 16 bytes that hold eight depths of four columns.
    fn units(&self) -> u32 {
        if self.columns.form.bits == 4 { 1 } else { 2 }
    }

    /// Eights of depths, as many of which as `in_step` tells are a step.
    fn eights(&self) -> u32 {
        u32::try_from(self.columns.form.depth / 8).unwrap_or(u32::MAX)
    }
}

/// How a workgroup is made up.
#[derive(Debug, Clone, Copy)]
struct Cut {
    threads: u32,
    tiles: u32,
    /// Steps that a subgroup loads together, and how often it does.
    ahead: u32,
    rounds: u32,
    /// Bytes of workgroup memory.
    memory: u32,
}

impl Cut {
    fn of(
        coded: &Coded<'_>,
        problem: &Problem<'_>,
        shape: &MatrixShape,
        [subs, panels, ahead]: [u32; 3],
    ) -> Self {
        let lanes = problem.target.subgroup.preferred;
        let row = in_step(problem) + 1;
        let height = rows(problem, &coded.sizes).next_multiple_of(shape.m);
        let tiles = coded.fused.matrices() as u32 * panels;
        let each = coded.eights().div_ceil(in_step(problem)).div_ceil(subs);
        let rounds = each.div_ceil(ahead).max(1);
        let staged = if coded.direct(problem, shape) { 0 } else { height };
        let piece = ((staged + COLUMNS as u32) * row).max(tiles * height * COLUMNS as u32 / 4);
        let memory = subs * (piece * 16 + height * 4);
        Self { threads: subs * lanes, tiles, ahead, rounds, memory }
    }
}

/// Eights of depths that a subgroup takes in a step.
fn in_step(problem: &Problem<'_>) -> u32 {
    problem.target.subgroup.preferred / 4
}

/// Rows that there may be.
fn rows(problem: &Problem<'_>, sizes: &Sizes) -> u32 {
    problem.max(&sizes.m).clamp(1, FEW_ROWS) as u32
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let (Some(coded), Some(p), Some(shape)) = (Coded::of(problem), Params::of(problem), coop::shape(problem))
    else {
        return Vec::new();
    };
    let target = problem.target;
    let (machine, limits) = (&target.machine, &target.limits);
    let Coded { fused, columns, sizes } = &coded;
    let (m, n, k) = (problem.max(&sizes.m), problem.max(&sizes.n), problem.max(&sizes.k));
    let able = [SubgroupOp::Basic, SubgroupOp::Shuffle].iter().all(|op| target.has_subgroup_op(*op));
    let lanes = target.subgroup.preferred;
    let eights = in_step(problem);
    let divides = lanes.is_multiple_of(4)
        && (COLUMNS as u32).is_multiple_of(shape.n)
        && (eights * 8).is_multiple_of(shape.k);
    let few = (2..=FEW_ROWS).contains(&m) && columns.only_streams(problem, m);
    if !able || !divides || !few || matvec_fragments::takes(problem) {
        return Vec::new();
    }
    let matrices = fused.matrices() as f64;
    let panels = (n as f64 / COLUMNS as f64).ceil();
    let bytes = problem.read_bytes(1) as f64 * matrices;
    let bandwidth = machine.bandwidth_gb_s.max(1e-3);
    let streaming = bytes / bandwidth;
    let beside = (problem.traffic() as f64 - bytes).max(0.0) / bandwidth;
    let peak = (machine.peak.f32 * p.reached).max(1e-3);
    let room = f64::from(machine.compute_units) * f64::from(machine.invocations_per_unit);
    let steps = coded.eights().div_ceil(eights);
    let mut out = Vec::new();
    for per in PANELS {
        for [subs, ahead] in SUBS.into_iter().flat_map(|subs| AHEAD.map(|ahead| [subs, ahead])) {
            let cut = Cut::of(&coded, problem, shape, [subs, per, ahead]);
            let groups = (panels / f64::from(per)).ceil();
            let fits = cut.tiles <= MOST_TILES
                && cut.threads <= limits.max_workgroup_invocations.min(limits.max_workgroup_size[0])
                && subs <= limits.max_workgroup_subgroups
                && cut.memory <= limits.max_workgroup_memory
                && groups <= f64::from(limits.max_workgroup_count[0])
                && (per == 1 || f64::from(per) <= panels)
                && fused.takes(per, COLUMNS as u32);
            let wasted = subs > SUBS[0] && subs > steps || ahead > 1 && subs * (ahead - 1) >= steps;
            if !fits || wasted {
                continue;
            }
            let passed = groups * (m * k) as f64;
            let operations = (n * k) as f64 * matrices * p.decoded + passed * p.passed;
            let again = passed * 2.0 / machine.cache_bandwidth_gb_s.max(1e-3);
            let computing = (operations / peak).max(again);
            let waves = (groups * f64::from(cut.threads) / room).ceil();
            let (rounds, in_round) = (f64::from(cut.rounds), f64::from(cut.ahead * cut.tiles));
            // Instructions of the first round are fetched before they run.
            let alone = rounds * (p.loaded + in_round * p.step) + in_round * p.fetched;
            let waiting = waves * alone * machine.memory_latency_ns;
            let bounds = [streaming, computing, waiting];
            let longest = bounds.into_iter().fold(0.0, f64::max);
            let rest = bounds.into_iter().sum::<f64>() - longest;
            out.push(Candidate {
                knobs: vec![("SUBS", subs), ("PANELS", per), ("AHEAD", ahead)],
                cost: longest + p.beside * rest + beside + p.ends * machine.memory_latency_ns + machine.launch_us * 1e3,
                reason: format!(
                    "{m} rows on matrix units: {subs} subgroups share {per} panels of {COLUMNS} columns of {}-bit codes, {} steps of {} depths at a time",
                    columns.form.bits,
                    cut.ahead,
                    eights * 8
                ),
            });
        }
    }
    out
}

fn launches(problem: &Problem<'_>, candidate: &Candidate) -> Result<Vec<Launch>, OpError> {
    let wanted = || OpError::new("a product of a few rows with constants of codes along the depth is needed");
    let coded = Coded::of(problem).ok_or_else(wanted)?;
    let shape = coop::shape(problem).ok_or_else(wanted)?;
    let [subs, panels, ahead] = ["SUBS", "PANELS", "AHEAD"].map(|name| candidate.knob(name).max(1));
    let cut = Cut::of(&coded, problem, shape, [subs, panels, ahead]);
    let Coded { fused, columns, sizes } = &coded;
    let form = columns.form;
    let mut shader = Shader::new(problem);
    coop::sides(&mut shader, shape);
    shader.knob("SUBS", subs);
    shader.knob("PANELS", panels);
    shader.knob("ROWS", rows(problem, sizes));
    shader.knob("UNITS", coded.units());
    shader.knob("AHEAD", ahead);
    shader.constant("GROUPED", coded.grouped());
    shader.constant("BIASED", form.bias.is_some());
    let taken = cut.rounds * cut.ahead * subs * in_step(problem);
    shader.constant("GUARD", taken != coded.eights());
    shader.size("size_m", &sizes.m);
    shader.size("size_n", &sizes.n);
    shader.size("last_panel", &sizes.n.plus(-1).floor_div(COLUMNS as i64));
    let numbers = [
        ("size_k8", form.depth / 8),
        ("rounds", cut.rounds as usize),
        ("panel_units", form.panel_units()),
        ("eights_of_group", (form.group / 8).max(1)),
    ];
    for (name, number) in numbers {
        shader.replace(name, format!("fn {name}() -> u32 {{ return {number}u; }}"));
    }
    shader.needs(&[Need::SubgroupShuffle]);
    shader.workgroup_memory(cut.memory);

    let at = one_matrix(problem.operands.first().map_or(2, |a| a.rank()), ["row", "k8"]);
    let direct = coded.direct(problem, shape);
    shader.knob("DIRECT", direct.into());
    shader.constant("MORE", cut.rounds > 1);
    shader.knob("STAGED", if direct { 0 } else { rows(problem, sizes).next_multiple_of(shape.m) });
    if direct {
        let rows = shader.bind(Bound::Operand(0), "vec4<f32>", false);
        let eights = coded.eights();
        shader.replace(
            "fragment_a",
            format!(
                "fn fragment_a(row: u32, k8: u32) -> MatrixA {{
    let at = row * {eights}u + k8;
    return coopLoadT<MatrixA>(&{rows}[at], {eights}u);
}}"
            ),
        );
        let none = "fn load_a(row: u32, k8: u32) -> vec4<f32> { return vec4<f32>(); }";
        shader.replace("load_a", none.to_string());
    } else {
        let text = coop::eight(&mut shader, "load_a", "row: u32, k8: u32", "", 0, &at)?;
        shader.replace("load_a", text);
    }
    declare_constants(&mut shader, fused.matrices(), |shader, name, index| shader.code_words(name, index))?;
    let head = "fn elements(first: u32, second: u32, scale: f32, bias: f32) -> vec4<u32>";
    shader.replace("elements", format!("{head} {{ return first_of(first, second, scale, bias); }}"));
    fused.declare(&mut shader, Reads::Four)?;
    fused.declare_rotation(&mut shader, COLUMNS as u32);
    let at = one_matrix(problem.result.rank(), ["row", "n4"]);
    shader.write("store", "row: u32, n4: u32", "", &at)?;

    let flops = sizes.m.mul(&sizes.n).mul(&sizes.k).scale(2 * fused.matrices() as i64);
    let groups = [sizes.n.ceil_div(COLUMNS as i64 * i64::from(panels)), Dim::known(1), Dim::known(1)];
    let grid = Grid { groups, workgroup: [cut.threads, 1, 1] };
    Ok(coop::launch(shader.finish("matvec_coop", KERNEL.wgsl, grid, flops)?, problem))
}
