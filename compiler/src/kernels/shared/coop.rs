//! What the kernels on matrix units share (`coop.wgsl`): tiles with their costs, knobs, and operands that arrive as
//! eight elements at a time.

pub(crate) mod sums;

use serde::Deserialize;

use super::dot::Signs;
use crate::error::OpError;
use crate::ir::dim::Dim;
use crate::ir::op::Constant;
use crate::ir::storage::Storage;
use crate::ir::tensor::DeviceType;
use crate::kernels::cost::Parameters;
use crate::kernels::kernel::Candidate;
use crate::shader::access::{Access, Coordinates, access};
use crate::shader::pack::Packed;
use crate::shader::pack::presets::{PANELS, PANELS_OF_COLUMNS};
use crate::shader::problem::{Operand, Placement, Problem};
use crate::shader::{Bound, Grid, Launch, Shader};
use crate::target::quirks::Fault;
use crate::target::{MatrixScope, MatrixShape, MatrixType, TargetProfile};

pub(crate) const WGSL: &str = include_str!("coop.wgsl");

/// How a workgroup shares a product; the knobs of `coop.wgsl`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tile {
    subs: [u32; 2],
    parts: u32,
    frags: [u32; 2],
    /// Fragments along K in a stretch.
    depth: u32,
    stages: u32,
}

const fn tile(subs: [u32; 2], parts: u32, frags: [u32; 2], depth: u32, stages: u32) -> Tile {
    Tile { subs, parts, frags, depth, stages }
}

/// Tiles tried: subgroups along M and N, groups along K, fragments per subgroup, depth and stages.
const TILES: &[Tile] = &[
    // Large products: every subgroup 64 x 64.
    tile([4, 2], 1, [4, 4], 2, 1),
    tile([2, 4], 1, [4, 4], 2, 1),
    tile([2, 2], 1, [4, 4], 2, 1),
    tile([2, 2], 1, [4, 4], 4, 1),
    tile([2, 2], 1, [4, 4], 2, 2),
    tile([2, 2], 1, [2, 4], 2, 2),
    tile([2, 2], 1, [4, 2], 2, 2),
    tile([2, 2], 1, [2, 2], 4, 1),
    tile([2, 2], 2, [2, 2], 2, 1),
    // Few rows or columns, long sums: groups of subgroups share K.
    tile([1, 1], 8, [1, 1], 4, 1),
    tile([1, 1], 4, [1, 2], 4, 1),
    tile([1, 1], 8, [1, 2], 4, 1),
    tile([1, 1], 16, [1, 2], 2, 1),
    tile([1, 1], 4, [2, 2], 4, 1),
    tile([1, 1], 8, [2, 2], 2, 1),
    tile([1, 2], 4, [4, 2], 2, 1),
    tile([2, 1], 4, [2, 4], 2, 1),
    tile([1, 2], 1, [4, 2], 4, 1),
    tile([2, 2], 1, [1, 2], 4, 1),
];

/// Elements of the largest tile of a workgroup where larger ones are slow.
const SMALL_TILE: u32 = 64 * 64;

/// The product of matrices that kernels here are made of: the target's first of f16 into f32 by a subgroup.
pub(crate) fn shape<'a>(problem: &Problem<'a>) -> Option<&'a MatrixShape> {
    let target = problem.target;
    let features = &target.features;
    // The second operand tells the precision; the first may be an input of the graph, which is never narrowed.
    let half = problem.operands.get(1).is_some_and(|o| o.dtype.on_device() == DeviceType::F16);
    let suits = features.f16 && features.storage_16 && half && problem.computed.is_float();
    if !suits || !able(target) {
        return None;
    }
    listed(target, (MatrixType::F16, MatrixType::F16, MatrixType::F32))
}

/// The same for numbers of 8 bits into 32, where the kernel can make both operands signed or both unsigned.
fn bytes<'a>(problem: &Problem<'a>) -> Option<&'a MatrixShape> {
    let signs = Signs::of(problem)?;
    // Unsigned numbers of the first operand may become signed, for which the kernel makes up.
    if signs.flips(1) || !problem.target.features.int8 || !able(problem.target) {
        return None;
    }
    let wanted = match signs.unsigned() {
        true => (MatrixType::U8, MatrixType::U8, MatrixType::U32),
        false => (MatrixType::I8, MatrixType::I8, MatrixType::I32),
    };
    listed(problem.target, wanted)
}

/// The product of matrices that a kernel's problem is made of.
pub(crate) fn matrices<'a>(problem: &Problem<'a>) -> Option<&'a MatrixShape> {
    shape(problem).or_else(|| bytes(problem))
}

fn able(target: &TargetProfile) -> bool {
    let sized =
        target.features.subgroup_size_control && target.subgroup.sizes.contains(&target.subgroup.preferred);
    target.features.cooperative_matrix && sized && !target.has_quirk(Fault::CooperativeMatrixSlow)
}

fn listed(target: &TargetProfile, wanted: (MatrixType, MatrixType, MatrixType)) -> Option<&MatrixShape> {
    target.matrix.iter().find(|s| {
        // Eight elements move at a time.
        let sides = s.m % 8 == 0 && s.n % 8 == 0 && s.k % 8 == 0;
        (s.a, s.b, s.c) == wanted && sides && s.scope == MatrixScope::Subgroup
    })
}

/// Bytes of eight elements, and how many of these vectors are 16 bytes.
fn unit(shape: &MatrixShape) -> [u32; 2] {
    if shape.a == MatrixType::F16 { [16, 1] } else { [8, 2] }
}

/// The tiles that the target allows for `batch` products of M x K by K x N. `direct` says that the second operand can
/// come as panels, `scatter` how much longer a load of eight elements of the first takes than where they are neighbours.
pub(crate) fn tiles(
    problem: &Problem<'_>,
    batch: i64,
    sizes: [i64; 3],
    direct: bool,
    scatter: f64,
) -> Vec<Candidate> {
    let (Some(shape), Some(p)) = (matrices(problem), Params::of(problem)) else { return Vec::new() };
    let stagings: &[bool] = if direct { &[true, false] } else { &[true] };
    let mut out = Vec::new();
    for tile in TILES {
        for staged in stagings {
            out.extend(candidate(&p, problem, (shape, *tile, *staged), (batch, sizes, scatter)));
        }
    }
    out
}

fn candidate(
    p: &Params,
    problem: &Problem<'_>,
    (shape, tile, staged): (&MatrixShape, Tile, bool),
    (batch, [m, n, k], scatter): (i64, [i64; 3], f64),
) -> Option<Candidate> {
    let (machine, limits) = (&problem.target.machine, &problem.target.limits);
    let lanes = problem.target.subgroup.preferred;
    let subs = tile.subs[0] * tile.subs[1];
    let threads = subs * tile.parts * lanes;
    let side = [shape.m, shape.n];
    let [tm, tn] = [0, 1].map(|i| tile.subs[i] * tile.frags[i] * side[i]);
    let depth = tile.depth * shape.k;
    let large = tm * tn > SMALL_TILE && problem.target.has_quirk(Fault::LargeMatrixTilesSlow);
    if (!staged && tile.stages > 1) || large {
        return None;
    }
    let held = (1..=tile.frags[1]).rev().find(|held| {
        tile.frags[1].is_multiple_of(*held)
            && memory(shape, tile, staged, *held) <= limits.max_workgroup_memory
    })?;
    let fits = threads <= limits.max_workgroup_invocations
        && threads <= limits.max_workgroup_size[0]
        && subs * tile.parts <= limits.max_workgroup_subgroups;
    let rows = (m as f64 / f64::from(tm)).ceil();
    let columns = (n as f64 / f64::from(tn)).ceil();
    let steps = (k as f64 / f64::from(depth * tile.parts)).ceil();
    let groups = rows * columns * batch as f64;
    // Parts that would have nothing to do.
    let idle = tile.parts > 1 && i64::from(depth * (tile.parts - 1)) >= k;
    if !fits
        || idle
        || rows * columns > f64::from(limits.max_workgroup_count[0])
        || batch > i64::from(limits.max_workgroup_count[2])
    {
        return None;
    }
    let units = f64::from(machine.compute_units);
    let engines = f64::from(machine.matrix_engines);
    // Flops per nanosecond of one unit.
    let peak = match shape.a {
        MatrixType::F16 => machine.peak.matrix_f16.unwrap_or(machine.peak.f16),
        _ => machine.peak.matrix_int8.unwrap_or(machine.peak.int8),
    } / units;
    let resident = (f64::from(machine.invocations_per_unit) / f64::from(threads))
        .min(f64::from(limits.max_workgroup_memory) / f64::from(memory(shape, tile, staged, held)))
        .floor()
        .clamp(1.0, 4.0);
    let [a, b] = tile.frags.map(f64::from);
    let [high, wide] = [tm, tn].map(f64::from);
    let stretch = f64::from(depth);
    // What a tile loads falls with its sides, and with it what keeps the matrix units from their peak.
    let [fragment, tile_side] = [a * b / (a + b), high * wide / (high + wide)];
    let reuse =
        p.reached * fragment / (fragment + p.between_fragments) * tile_side / (tile_side + p.between_tiles);
    let busy = (groups * f64::from(subs * tile.parts) / (engines * units)).clamp(1e-3, 1.0);
    let deep = steps * stretch * f64::from(tile.parts);
    let computing = groups * 2.0 * high * wide * deep / (peak * units * reuse * busy);
    let beside = if staged { 1.0 } else { f64::from(tile.subs[0]) };
    let cache = machine.cache_bandwidth_gb_s.max(1e-3);
    // Bytes of an element of either operand, where those of the first have 32 bits if matrices take 8.
    let [wide_a, wide_b] = if shape.a == MatrixType::F16 { [2.0, 2.0] } else { [4.0, 1.0] };
    let reading = groups * deep * (wide_a * high + wide_b * wide * beside)
        / (cache * p.read_through * (groups / units).clamp(0.05, 1.0));
    // A step waits for memory, for its own loads and products; workgroups on the same unit hide that from each other
    // until their loads take turns.
    let rounds = (groups / (units * resident)).ceil();
    let beneath = resident.min((groups / units).ceil());
    let group_loads = (wide_a * high + if staged { wide_b * wide } else { 0.0 }) * stretch / 16.0;
    let loads = group_loads / f64::from(subs * lanes) * scatter;
    // Eight elements that are made of codes wait for these and for their scales, one eight after the other.
    let coded = problem.operands.get(1).is_some_and(|b| b.codes.is_some());
    let made = if coded { wide_b * wide * stretch / 16.0 / f64::from(subs * lanes) } else { 0.0 };
    let direct = if staged { 0.0 } else { b * stretch / f64::from(shape.k) };
    let overlap = if tile.stages > 1 { p.overlapped } else { 1.0 };
    let products = a * b * 2.0 * f64::from(shape.m * shape.n) * stretch / peak;
    let latency = machine.memory_latency_ns;
    let alone = latency * (p.step * overlap + p.load * loads + p.coded * made + p.direct * direct)
        + p.product * products;
    let in_turn = group_loads * scatter * f64::from(tile.parts) * beneath * 16.0 * units / (cache * p.turns);
    let waiting = rounds * steps * alone.max(in_turn);
    let finish = rounds * a * b / f64::from(held) * p.finish_ns * (1.0 + p.part * f64::from(tile.parts - 1));
    let traffic = problem.traffic() as f64 / machine.bandwidth_gb_s.max(1e-3);
    let time = computing.max(reading).max(waiting).max(traffic) + finish;
    let through = if staged { "workgroup memory" } else { "global memory" };
    Some(Candidate {
        knobs: vec![
            ("SUBS_M", tile.subs[0]),
            ("SUBS_N", tile.subs[1]),
            ("PARTS", tile.parts),
            ("FRAGS_M", tile.frags[0]),
            ("FRAGS_N", tile.frags[1]),
            ("DEPTH", depth),
            ("STAGES", tile.stages),
            ("HELD", held),
            ("STAGED_B", u32::from(staged)),
        ],
        cost: time + p.ends_ns + machine.launch_us * 1e3,
        reason: format!(
            "matrix units, tiles of {tm}x{tn}, {groups} of them for {m}x{n}x{k} in {steps} steps of {} along K by {} subgroups, b through {through}",
            depth * tile.parts,
            subs * tile.parts
        ),
    })
}

/// Parameters of the estimate; waits in latencies of memory where nothing else is said.
///
/// The part of the peak that a tile of sides `h` and `w` reaches is `reached * s / (s + between_tiles)` for
/// `s = h w / (h + w)`; fragments alike.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Params {
    /// See above.
    reached: f64,
    /// See above.
    between_tiles: f64,
    /// See above.
    between_fragments: f64,
    /// Part of the cache's bandwidth that all tiles together read with.
    read_through: f64,
    /// A step's own waiting.
    step: f64,
    /// A load of sixteen bytes.
    load: f64,
    /// Eight elements made of codes.
    coded: f64,
    /// A fragment loaded from global memory.
    direct: f64,
    /// What is left of a step's waiting with two stretches in workgroup memory.
    overlapped: f64,
    /// How much longer than at the unit's peak the products of one subgroup take.
    product: f64,
    /// Part of the cache's bandwidth that the loads of workgroups on one unit reach.
    turns: f64,
    /// Nanoseconds for passing one held row of fragments through workgroup memory.
    finish_ns: f64,
    /// The part of that which every further summand adds.
    part: f64,
    /// Nanoseconds until the first stretch is there and until the last store is done.
    ends_ns: f64,
}

impl Parameters for Params {
    const GROUP: &str = "coop";
}

/// Bytes of workgroup memory.
fn memory(shape: &MatrixShape, tile: Tile, staged: bool, held: u32) -> u32 {
    let depth8 = tile.depth * shape.k / 8;
    let [unit, pad] = unit(shape);
    let a = tile.subs[0] * tile.frags[0] * shape.m * (depth8 + pad);
    let panels = tile.subs[1] * tile.frags[1];
    let b = (panels * shape.n * (depth8 + pad)).max(depth8 * 8 * (panels * shape.n / 8 + pad));
    let sums = tile.subs[0] * tile.subs[1] * tile.parts * held * shape.m * (shape.n / 4 + 1);
    let b = if staged { tile.stages * tile.parts * b } else { 1 };
    (tile.stages * tile.parts * a + b) * unit + sums * 16
}

/// A constant in panels of as many columns as a matrix has.
pub(crate) struct Panels {
    pub(crate) packed: Packed,
    /// Rows of a panel, with those that pad it.
    pub(crate) rows: usize,
    /// Rows that are padded together: of numbers of 8 bits so many of a column are neighbours.
    round: usize,
    /// How many panels each product of the batch has for itself; none where all have the same ones.
    pub(crate) apart: Option<usize>,
}

impl Panels {
    /// Whether fragments may be loaded from global memory: a panel is a number of them one after the other.
    pub(crate) fn in_fragments(&self, problem: &Problem<'_>) -> bool {
        let depth = matrices(problem).map_or(0, |shape| shape.k as usize);
        let right = self.packed.device == DeviceType::F16
            || !problem.target.has_quirk(Fault::ByteFragmentsFromMemoryWrong);
        right && self.rows.is_multiple_of(depth)
    }
}

/// Where the second operand comes from.
pub(crate) enum Second {
    /// A constant.
    Panels(Panels),
    /// `load_b` is replaced by the caller; whether it reads along K.
    Loaded { along_k: bool },
}

/// Sets the knobs, sizes and the second operand, and returns the grid. `k8` is K in groups of eight.
pub(crate) fn declare(
    shader: &mut Shader<'_>,
    candidate: &Candidate,
    [m, n, k8]: [&Dim; 3],
    batch: &Dim,
    second: Second,
) -> Result<Grid, OpError> {
    let shape = matrices(shader.problem).ok_or_else(|| OpError::new("no matrix units"))?.clone();
    for (name, value) in candidate.knobs.iter().filter(|(name, _)| *name != "STAGED_B") {
        shader.knob(name, *value);
    }
    let staged = candidate.knob("STAGED_B") == 1;
    shader.constant("STAGED_B", staged);
    sides(shader, &shape);
    if shape.a != MatrixType::F16 {
        shader.alias("Unit", "vec2<f32>");
        shader.alias("Sum", "vec4<i32>");
        shader.knob("PAD", unit(&shape)[1]);
        shader.replace("sum_of", "fn sum_of(v: vec4<f32>) -> Sum { return bitcast<vec4<i32>>(v); }".into());
    }
    let [subs_m, subs_n, parts, frags_m, frags_n, depth, stages, held] =
        ["SUBS_M", "SUBS_N", "PARTS", "FRAGS_M", "FRAGS_N", "DEPTH", "STAGES", "HELD"]
            .map(|name| candidate.knob(name));
    let tile =
        Tile { subs: [subs_m, subs_n], parts, frags: [frags_m, frags_n], depth: depth / shape.k, stages };
    shader.workgroup_memory(memory(&shape, tile, staged, held));
    let groups_m = m.ceil_div(i64::from(subs_m * frags_m * shape.m));
    let groups_n = n.ceil_div(i64::from(subs_n * frags_n * shape.n));
    shader.size("size_m", m);
    shader.size("size_n", n);
    shader.size("size_k8", k8);
    shader.size("groups_m", &groups_m);
    shader.size("groups_n", &groups_n);
    shader.knob("BAND", 8);
    let multiple = |size: &Dim, of: u32| size.is_multiple_of(i64::from(of));
    shader.constant("GUARD_M", !multiple(m, subs_m * frags_m * shape.m));
    shader.constant("GUARD_N", !multiple(n, subs_n * frags_n * shape.n));
    shader.constant("GUARD_K", !multiple(k8, depth / 8 * parts));
    let along_k = match second {
        Second::Panels(panels) => {
            read_panels(shader, &shape, panels, staged);
            shape.a != MatrixType::F16
        }
        Second::Loaded { along_k } => along_k,
    };
    if along_k {
        shader.constant("B_ALONG_K", true);
        shader.constant("SIZE_B", "TILE_N * ROW_A");
        shader.replace(
            "tiled_b",
            "fn tiled_b(base: u32, panel: u32, k: u32) -> MatrixB {
    let at = base + panel * SIDE_N * ROW_A + k * (SIDE_K / 8u);
    return coopLoad<MatrixB>(&tile_b[at], ROW_A);
}"
            .into(),
        );
    }
    if !staged {
        shader.replace(
            "tiled_b",
            "fn tiled_b(base: u32, panel: u32, k: u32) -> MatrixB { return MatrixB(); }".into(),
        );
        // Nothing is staged, and memory that is declared counts.
        shader.replace("tile_b", "var<workgroup> tile_b: array<Unit, 1>;".into());
        shader.replace(
            "stretch_b",
            "fn stretch_b(batch: u32, first_panel: u32, k8: u32, i: u32) -> Unit { return Unit(); }".into(),
        );
    }
    let threads = subs_m * subs_n * parts * shader.problem.target.subgroup.preferred;
    Ok(Grid { groups: [groups_m.mul(&groups_n), Dim::known(1), batch.clone()], workgroup: [threads, 1, 1] })
}

/// Sets the subgroup's size and the matrix types.
pub(crate) fn sides(shader: &mut Shader<'_>, shape: &MatrixShape) {
    shader.knob("LANES", shader.problem.target.subgroup.preferred);
    shader.knob("SIDE_M", shape.m);
    shader.knob("SIDE_N", shape.n);
    shader.knob("SIDE_K", shape.k);
    if shape.m.max(shape.n).max(shape.k) <= 8 {
        for (name, role) in [("MatrixA", "A"), ("MatrixB", "B"), ("MatrixC", "C")] {
            shader.alias(name, &format!("coop_mat8x8<f32, {role}>"));
        }
    }
}

/// Reads the second operand from panels.
fn read_panels(shader: &mut Shader<'_>, shape: &MatrixShape, panels: Panels, staged: bool) {
    let Panels { packed, rows, round, apart } = panels;
    let bound = shader.packed(packed);
    let first = apart.map_or(String::new(), |count| format!("batch * {count}u + "));
    let (element, at) = if shape.a == MatrixType::F16 {
        ("vec4<f32>", format!("(({first}n8 / S8) * {rows}u + k) * S8 + n8 % S8"))
    } else {
        // `k` is a column and `n8` counts rows, see B_ALONG_K.
        let (stretches, units) = (rows / round, round / 8);
        let stretch = format!("({first}k / SIDE_N) * {stretches}u + n8 / {units}u");
        ("vec2<f32>", format!("(({stretch}) * SIDE_N + k % SIDE_N) * {units}u + n8 % {units}u"))
    };
    let buffer = shader.bind(bound, element, false);
    if staged {
        let text = format!("fn load_b(batch: u32, k: u32, n8: u32) -> Unit {{ return {buffer}[{at}]; }}");
        shader.replace("load_b", text);
    } else {
        shader.replace(
            "fragment_b",
            format!(
                "fn fragment_b(batch: u32, panel: u32, k: u32) -> MatrixB {{
    let at = (({first}panel) * {rows}u + k * SIDE_K) * S8;
    return coopLoadT<MatrixB>(&{buffer}[at], S8);
}}"
            ),
        );
    }
}

/// Panels of a constant, whose axes are those of its elements: `N` that of the columns, `K` that of the rows, whose
/// number is padded to `round`, `S` one around them, and each position along `B` has panels of its own. In f16 a row of a
/// panel is together, of numbers of 8 bits `round` rows of a column are.
pub(crate) fn pack_panels(constant: &Constant, axes: &[(char, usize)], round: usize, side: u32) -> Panels {
    let tiles = [('r', round), ('n', side as usize)];
    let packed = if constant.dtype.is_float() {
        PANELS.of(constant, axes, &tiles, DeviceType::F16)
    } else {
        PANELS_OF_COLUMNS.of(constant, axes, &tiles, DeviceType::Byte)
    };
    let size = |letter: char| axes.iter().find(|(name, _)| *name == letter).map_or(1, |(_, size)| *size);
    Panels { packed, rows: size('S') * size('K').next_multiple_of(round), round, apart: None }
}

/// The text of a function that reads eight neighbours of operand `index` along the lane axis as four words of f16, or as
/// two of numbers of 8 bits.
/// `at` gives the coordinates with the lane's place as the name of a variable that counts groups of eight.
pub(crate) fn eight(
    shader: &mut Shader<'_>,
    name: &str,
    params: &str,
    prelude: &str,
    index: usize,
    at: &Coordinates,
) -> Result<String, OpError> {
    let operand =
        shader.problem.operands.get(index).ok_or_else(|| OpError::new("a missing operand"))?.clone();
    let lane = at.lanes.ok_or_else(|| OpError::new("eight elements lie along an axis"))?;
    let variable = at.axes[lane].clone();
    if let Some(octets) = octets(&operand, lane) {
        // Seen as a tensor of vectors of four that lie in pairs, the pairs are vectors of eight.
        let how = access(&mut shader.words, &octets, at, true);
        if let Access::Vector { index: place } = how {
            let buffer = shader.bind(Bound::Operand(index), "vec4<f32>", false);
            return Ok(format!(
                "fn {name}({params}) -> vec4<f32> {{\n{prelude}    return {buffer}[{place}];\n}}\n"
            ));
        }
    }
    let half = four(shader, &format!("{name}_four"), params, &variable, prelude, index, at)?;
    let names = names(params);
    let call = |place: String| {
        let args: Vec<String> =
            names.iter().map(|n| if *n == variable { place.clone() } else { (*n).to_string() }).collect();
        format!("{name}_four({})", args.join(", "))
    };
    let end = operand.shape[lane].ceil_div(4);
    let second = format!("{variable} * 2u + 1u");
    let high = if end.is_multiple_of(2) {
        call(second)
    } else {
        let end = shader.dim(&end);
        let zero = if operand.dtype.is_float() { "vec2<f32>()" } else { "0.0" };
        format!("select({zero}, {}, {second} < {end})", call(format!("min({second}, {end} - 1u)")))
    };
    let low = call(format!("{variable} * 2u"));
    let ty = if operand.dtype.is_float() { "vec4<f32>" } else { "vec2<f32>" };
    Ok(format!("{half}fn {name}({params}) -> {ty} {{\n    return {ty}({low}, {high});\n}}\n"))
}

/// The names in a list of parameters such as `batch: u32, row: u32`.
fn names(params: &str) -> Vec<&str> {
    params.split(',').filter_map(|p| p.split(':').next()).map(str::trim).collect()
}

/// The text of a function that reads four neighbours as two words of f16, or as one of numbers of 8 bits; `variable`,
/// one of `params`, counts groups of four.
fn four(
    shader: &mut Shader<'_>,
    name: &str,
    params: &str,
    variable: &str,
    prelude: &str,
    index: usize,
    at: &Coordinates,
) -> Result<String, OpError> {
    let operand = shader.problem.operands[index].clone();
    let mut here = at.clone();
    if let Some(lane) = at.lanes {
        here.axes[lane] = variable.to_string();
    }
    let how = access(&mut shader.words, &operand, &here, false);
    let elements = operand.storage == Storage::Buffer && operand.codes.is_none();
    let raw = operand.dtype.on_device() == DeviceType::F16 && elements;
    if let (Access::Vector { index: place }, true) = (&how, raw) {
        let buffer = shader.bind(Bound::Operand(index), "vec2<f32>", false);
        return Ok(format!(
            "fn {name}({params}) -> vec2<f32> {{\n{prelude}    return {buffer}[{place}];\n}}\n"
        ));
    }
    let plain = shader.read_fn(&format!("{name}_plain"), params, prelude, index, &here, false);
    let names = names(params);
    if !operand.dtype.is_float() {
        let word = format!("word(vec4<u32>({name}_plain({})))", names.join(", "));
        return Ok(format!("{plain}fn {name}({params}) -> f32 {{\n    return bitcast<f32>({word});\n}}\n"));
    }
    Ok(format!(
        "{plain}fn {name}({params}) -> vec2<f32> {{
    let v = {name}_plain({});
    return bitcast<vec2<f32>>(vec2<u32>(pack2x16float(v.xy), pack2x16float(v.zw)));
}}
",
        names.join(", ")
    ))
}

/// The operand as a tensor whose vectors of four are eight elements; `None` where eight neighbours along `lane` are
/// not an aligned vector.
pub(crate) fn octets<'a>(operand: &Operand<'a>, lane: usize) -> Option<Operand<'a>> {
    let Placement::Strided { strides, offset } = &operand.placement else { return None };
    if operand.dtype.on_device() != DeviceType::F16 || operand.codes.is_some() {
        return None;
    }
    let others = strides.iter().enumerate().filter(|(i, _)| *i != lane && !operand.shape[*i].is(1));
    let aligned = others.map(|(_, s)| s).chain([offset, &operand.shape[lane]]).all(|d| d.is_multiple_of(8));
    if !aligned || !strides[lane].is(1) {
        return None;
    }
    let mut half = operand.clone();
    let strides = strides.iter().enumerate().map(|(i, s)| if i == lane { s.clone() } else { s.floor_div(2) });
    half.placement = Placement::Strided { strides: strides.collect(), offset: offset.floor_div(2) };
    half.shape[lane] = operand.shape[lane].floor_div(2);
    Some(half)
}

/// The launch with what the device must be asked for.
pub(crate) fn launch(mut launch: Launch, problem: &Problem<'_>) -> Vec<Launch> {
    launch.subgroup_size = Some(problem.target.subgroup.preferred);
    launch.matrix = matrices(problem).cloned();
    vec![launch]
}
