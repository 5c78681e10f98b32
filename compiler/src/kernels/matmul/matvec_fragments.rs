//! `matvec_fragments.wgsl`: matrix products of one to a few rows with a constant of few bits or of f16, on matrix units whose
//! fragments are known.

use serde::Deserialize;

use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::kernels::cost::{Parameters, stays_cached};
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::kernels::shared::codes::{Columns, FEW_ROWS, declare_constants};
use crate::kernels::shared::fused::{Fused, Reads};
use crate::kernels::shared::product::{Sizes, one_matrix, sizes};
use crate::kernels::shared::row_panels::RowPanels;
use crate::kernels::shared::{coop, emulated_fragments};
use crate::shader::codes::eights;
use crate::shader::halves;
use crate::shader::pack::codes::ROWS as COLUMNS;
use crate::shader::problem::Problem;
use crate::shader::{Grid, Launch, Need, Shader};
use crate::target::{Fragments, MatrixScope, MatrixShape};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "matvec_fragments",
    wgsl: include_str!("matvec_fragments.wgsl"),
    candidates,
    launches,
    matrices: Some(MatrixScope::Subgroup),
    params: &[Group::of::<Params>()],
    in_place: InPlace::Epilogue,
};

/// Invocations that hold a fragment together.
const LANES: u32 = 32;
/// Rows of a fragment, and depths of a step.
const ROWS: u32 = 8;
const STEP: usize = 32;
/// Subgroups of a workgroup, pairs of panels of each constant that it takes, and steps of a piece.
const SUBS: [u32; 3] = [4, 8, 16];
const PER: [u32; 2] = [1, 2];
const EACH: [u32; 3] = [1, 2, 4];
/// Units of 16 bytes that an invocation has in flight of a pair of panels and of all of them at most: more of them leave too few
/// registers.
const OF_PAIR: u32 = 4;
const MOST_UNITS: u32 = 8;

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
    /// Operations that making an element of a code takes, and reading an element of a row; part of the peak that both reach.
    decoded: f64,
    passed: f64,
    reached: f64,
    /// Operations that an element of a code takes for each further fragment of rows.
    row: f64,
    /// How long a unit of codes takes a subgroup beside what it waits for.
    unit: f64,
}

impl Parameters for Params {
    const GROUP: &str = "matvec_fragments";
}

/// How the constants of a product lie.
enum Constants {
    Codes(Columns),
    Halves(RowPanels),
}

impl Constants {
    /// None where they lie otherwise or not alike.
    fn of(fused: &Fused<'_>, problem: &Problem<'_>) -> Option<Self> {
        if let Some(columns) = Columns::of_all(fused.product, problem, fused.matrices()) {
            let form = &columns.form;
            let in_steps = form.groups() <= 1 || form.group.is_multiple_of(STEP);
            let suits = columns.apart.is_none() && eights(form) && in_steps;
            return suits.then_some(Self::Codes(columns));
        }
        let panels = RowPanels::of(fused, problem)?;
        let suits = panels.half() && panels.columns == COLUMNS as u32 && panels.apart.is_none();
        suits.then_some(Self::Halves(panels))
    }

    /// Bits of an element.
    fn bits(&self) -> u32 {
        match self {
            Self::Codes(columns) => columns.form.bits as u32,
            Self::Halves(_) => 16,
        }
    }

    /// Loads of eight depths of four columns: 16 bytes of codes each, or one depth in f16.
    fn loads(&self) -> u32 {
        match self {
            Self::Codes(_) => self.units(),
            Self::Halves(_) => 8,
        }
    }

    /// Units of 16 bytes that hold eight depths of four columns.
    fn units(&self) -> u32 {
        self.bits() / 4
    }

    /// Loads of a panel.
    fn panel_units(&self) -> usize {
        match self {
            Self::Codes(columns) => columns.form.panel_units(),
            Self::Halves(panels) => panels.rows * COLUMNS / 4,
        }
    }

    /// Steps that share a scale; none where all do.
    fn steps_of_group(&self) -> Option<u32> {
        match self {
            Self::Codes(columns) if columns.form.groups() > 1 => {
                Some(u32::try_from(columns.form.group / STEP).unwrap_or(u32::MAX))
            }
            Self::Codes(_) | Self::Halves(_) => None,
        }
    }

    /// Whether a product of so many rows is worth a walk over them. One row of eight bits or more takes as long as reading them, which
    /// `matvec_codes` and `matvec_panels` share among more workgroups.
    fn suit(&self, problem: &Problem<'_>, rows: i64) -> bool {
        let fewest = if self.bits() == 4 { 1 } else { 2 };
        (fewest..=FEW_ROWS).contains(&rows)
            && match self {
                Self::Codes(columns) => columns.only_streams(problem, rows),
                Self::Halves(_) => true,
            }
    }
}

/// The target's matrices whose fragments are known, where the product is computed in halves.
fn known<'a>(problem: &Problem<'a>) -> Option<(&'a MatrixShape, Fragments)> {
    let (shape, fragments) = problem.target.known_fragments()?;
    let able = match fragments {
        Fragments::MmaM16N8K16 => coop::able(problem.target) && problem.target.subgroup.preferred == LANES,
        Fragments::Emulated => true,
    };
    (able && coop::in_halves(problem)).then_some((shape, fragments))
}

/// A product that the kernel computes.
struct Streamed<'a> {
    fused: Fused<'a>,
    constants: Constants,
    sizes: Sizes,
    depth: usize,
    shape: &'a MatrixShape,
    fragments: Fragments,
}

impl<'a> Streamed<'a> {
    /// None where the target's fragments are not known, the operator is none, its constants lie otherwise or not alike, there are
    /// several products, or rows are sums with a residual.
    fn of(problem: &Problem<'a>) -> Option<Self> {
        let (shape, fragments) = known(problem)?;
        let fused = Fused::of(problem).filter(|fused| fused.residual().is_none())?;
        let constants = Constants::of(&fused, problem)?;
        let sizes = sizes(fused.product, problem)?;
        let depth = usize::try_from(sizes.k.as_known()?).ok()?;
        let one = product(&sizes.batch).is(1) && !fused.product.trans_a;
        let suits = one && depth.is_multiple_of(8);
        suits.then_some(Self { fused, constants, sizes, depth, shape, fragments })
    }

    /// Steps of 32 depths.
    fn steps(&self) -> u32 {
        u32::try_from(self.depth.div_ceil(STEP)).unwrap_or(u32::MAX)
    }
}

/// How a workgroup is made up.
#[derive(Debug, Clone, Copy)]
struct Cut {
    subs: u32,
    per: u32,
    each: u32,
    /// Panels of all constants, pieces along K, and times that the subgroups take one each.
    panels: u32,
    pieces: u32,
    rounds: u32,
    /// Bytes of workgroup memory.
    memory: u32,
}

impl Cut {
    fn of(streamed: &Streamed<'_>, frags: u32, [subs, per, each]: [u32; 3]) -> Self {
        let pieces = streamed.steps().div_ceil(each);
        let panels = streamed.fused.matrices() as u32 * per * 2;
        let emulated =
            if streamed.fragments == Fragments::Emulated { emulated_fragments::BYTES * LANES } else { 0 };
        let memory = subs * (frags * ROWS * (panels * COLUMNS as u32 * 4 + 4) + emulated);
        Self { subs, per, each, panels, pieces, rounds: pieces.div_ceil(subs), memory }
    }

    fn threads(&self) -> u32 {
        self.subs * LANES
    }
}

/// Fragments of the rows that there may be.
fn frags(problem: &Problem<'_>, sizes: &Sizes) -> u32 {
    (problem.max(&sizes.m).clamp(1, FEW_ROWS) as u32).div_ceil(ROWS)
}

/// Whether a product of codes is for this kernel alone: a product that is computed by one kernel has the same sums in one row and
/// in sixteen.
pub(super) fn takes(problem: &Problem<'_>) -> bool {
    !candidates(problem).is_empty()
}

/// Whether the constants of products of a few rows are of f16 and come out of memory, not out of the cache: this kernel and
/// `matvec_panels` stream them at the memory's speed, other kernels do not.
pub(super) fn streams(problem: &Problem<'_>) -> bool {
    let (Some(_), Some(fused)) = (known(problem), Fused::of(problem)) else { return false };
    let few = sizes(fused.product, problem).is_some_and(|sizes| problem.max(&sizes.m) <= FEW_ROWS);
    let cached = stays_cached(problem, problem.read_bytes(1) as f64);
    few && !cached && RowPanels::of(&fused, problem).is_some_and(|panels| panels.half())
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let (Some(streamed), Some(p)) = (Streamed::of(problem), Params::of(problem)) else { return Vec::new() };
    let target = problem.target;
    let (machine, limits) = (&target.machine, &target.limits);
    let Streamed { fused, constants, sizes, .. } = &streamed;
    let (m, n, k) = (problem.max(&sizes.m), problem.max(&sizes.n), problem.max(&sizes.k));
    if !constants.suit(problem, m) {
        return Vec::new();
    }
    let decoded = match constants {
        Constants::Codes(_) => p.decoded,
        Constants::Halves(_) => 0.0,
    };
    let matrices = fused.matrices() as f64;
    let panels = (n as f64 / COLUMNS as f64).ceil();
    let bytes = problem.read_bytes(1) as f64 * matrices;
    let bandwidth = machine.bandwidth_gb_s.max(1e-3);
    let streaming = bytes / bandwidth;
    let beside = (problem.traffic() as f64 - bytes).max(0.0) / bandwidth;
    let peak = (machine.peak.f32 * p.reached).max(1e-3);
    let room = f64::from(machine.compute_units) * f64::from(machine.invocations_per_unit);
    let cuts = SUBS.into_iter().flat_map(|subs| PER.map(|per| [subs, per]));
    // How the work is shared must not follow from the number of rows: each row has the same sums then.
    let most = FEW_ROWS as u32 / ROWS;
    let cuts = cuts.flat_map(|[subs, per]| EACH.map(|each| Cut::of(&streamed, most, [subs, per, each])));
    let frags = frags(problem, sizes);
    let of_rows = f64::from(frags - 1) * p.row * (n * k) as f64 * matrices / peak;
    let mut out = Vec::new();
    for cut in cuts {
        let Cut { subs, per, each, .. } = cut;
        let units = each * constants.units() * cut.panels / 2;
        let groups = (panels / f64::from(per * 2)).ceil();
        let in_groups = constants.steps_of_group().is_none_or(|steps| steps.is_multiple_of(each));
        let fits = units <= MOST_UNITS
            && each * constants.units() <= OF_PAIR
            && in_groups
            && cut.threads() <= limits.max_workgroup_invocations.min(limits.max_workgroup_size[0])
            && subs <= limits.max_workgroup_subgroups
            && cut.memory <= limits.max_workgroup_memory
            && groups <= f64::from(limits.max_workgroup_count[0])
            && (per == 1 || f64::from(per * 2) <= panels)
            && fused.takes(per * 2, COLUMNS as u32);
        if !fits || subs > SUBS[0] && subs > cut.pieces {
            continue;
        }
        let passed = groups * k as f64 * f64::from(ROWS);
        let operations = (n * k) as f64 * matrices * decoded + passed * p.passed;
        let again = passed * 2.0 / machine.cache_bandwidth_gb_s.max(1e-3);
        let computing = (operations / peak).max(again);
        let waves = (groups * f64::from(cut.threads()) / room).ceil();
        let alone = f64::from(cut.rounds) * (p.loaded + f64::from(units) * p.unit);
        let waiting = waves * alone * machine.memory_latency_ns;
        let bounds = [streaming, computing, waiting];
        let longest = bounds.into_iter().fold(0.0, f64::max);
        let rest = bounds.into_iter().sum::<f64>() - longest;
        out.push(Candidate {
            knobs: vec![("SUBS", subs), ("PER", per), ("EACH", each)],
            cost: longest + p.beside * rest + of_rows + beside + p.ends * machine.memory_latency_ns + machine.launch_us * 1e3,
            reason: format!(
                "{m} rows on matrix units: {subs} subgroups share {} panels of {COLUMNS} columns of {} bits an element, with {units} units in flight",
                per * 2,
                constants.bits()
            ),
        });
    }
    out
}

fn launches(problem: &Problem<'_>, candidate: &Candidate) -> Result<Vec<Launch>, OpError> {
    let wanted = || {
        OpError::new("a product of a few rows with constants of codes along the depth or of f16 is needed")
    };
    let streamed = Streamed::of(problem).ok_or_else(wanted)?;
    let frags = frags(problem, &streamed.sizes);
    let cut = Cut::of(&streamed, frags, ["SUBS", "PER", "EACH"].map(|name| candidate.knob(name).max(1)));
    let Streamed { fused, constants, sizes, depth, shape, fragments } = streamed;
    let mut shader = Shader::new(problem);
    shader.knob("SUBS", cut.subs);
    shader.knob("PER", cut.per);
    shader.knob("EACH", cut.each);
    shader.knob("FRAGS", frags);
    shader.knob("BITS", constants.bits());
    shader.knob("UNITS", constants.loads());
    shader.constant("GUARD", cut.rounds * cut.subs * cut.each * STEP as u32 != depth as u32);
    shader.size("size_m", &sizes.m);
    shader.size("size_n", &sizes.n);
    shader.size("last_panel", &sizes.n.plus(-1).floor_div(COLUMNS as i64));
    let numbers = [
        ("size_k8", depth / 8),
        ("rounds", cut.rounds as usize),
        ("pieces", cut.pieces as usize),
        ("pieces_of_group", constants.steps_of_group().map_or(1, |steps| (steps / cut.each).max(1)) as usize),
        ("panel_units", constants.panel_units()),
    ];
    for (name, number) in numbers {
        shader.replace(name, format!("fn {name}() -> u32 {{ return {number}u; }}"));
    }
    shader.workgroup_memory(cut.memory);
    shader.replace("scaled", halves::scaled_pairs());
    shader.needs(&[Need::F16]);

    let at = one_matrix(problem.operands.first().map_or(2, |a| a.rank()), ["row", "k8"]);
    let text = coop::eight(&mut shader, "load_a", "row: u32, k8: u32", "", 0, &at)?;
    shader.replace("load_a", text);
    declare(constants, &fused, &mut shader)?;
    fused.declare(&mut shader, Reads::Eight)?;
    fused.declare_rotation(&mut shader, COLUMNS as u32);
    let at = one_matrix(problem.result.rank(), ["row", "n4"]);
    shader.write("store", "row: u32, n4: u32", "", &at)?;

    match fragments {
        Fragments::MmaM16N8K16 => {
            shader.needs(&[Need::Subgroups]);
            let main = "@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(subgroup_id) subgroup: u32, @builtin(subgroup_invocation_id) lane: u32) {
    multiply(group.x, subgroup * LANES + lane);
}";
            shader.replace("main", main.to_string());
        }
        Fragments::Emulated => shader.replace("multiply_fragments", emulated_fragments::WGSL.to_string()),
    }
    let flops = sizes.m.mul(&sizes.n).mul(&sizes.k).scale(2 * fused.matrices() as i64);
    let taken = COLUMNS as i64 * i64::from(cut.per * 2);
    let groups = [sizes.n.ceil_div(taken), Dim::known(1), Dim::known(1)];
    let grid = Grid { groups, workgroup: [cut.threads(), 1, 1] };
    let mut launch = shader.finish("matvec_fragments", KERNEL.wgsl, grid, flops)?;
    if fragments == Fragments::MmaM16N8K16 {
        launch.subgroup_size = Some(LANES);
        launch.matrix = Some(shape.clone());
    }
    Ok(vec![launch])
}

/// Replaces what depends on how the constants lie.
fn declare(constants: Constants, fused: &Fused<'_>, shader: &mut Shader<'_>) -> Result<(), OpError> {
    match constants {
        Constants::Codes(Columns { form, .. }) => {
            shader.constant("GROUPED", form.groups() > 1);
            shader.constant("BIASED", form.bias.is_some());
            shader.constant("SMALLER", format_args!("{}.0", halves::smaller(&form)));
            shader.pairs(&form);
            shader.replace("elements", halves::elements_of_codes(&form));
            declare_constants(shader, fused.matrices(), |shader, name, index| shader.code_hooks(name, index))
        }
        Constants::Halves(panels) => {
            shader.constant("GROUPED", false);
            shader.constant("BIASED", false);
            shader.constant("SMALLER", "1.0");
            shader.alias("Unit", "vec2<u32>");
            shader.replace("elements", halves::elements_of_halves());
            panels.declare_loads(shader, "vec2<u32>");
            Ok(())
        }
    }
}
