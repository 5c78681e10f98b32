//! The tiles of the kernels on matrix units, and what each takes.

use serde::Deserialize;

use super::{matrices, unit};
use crate::kernels::cost::Parameters;
use crate::kernels::kernel::Candidate;
use crate::shader::problem::Problem;
use crate::target::quirks::Fault;
use crate::target::{MatrixShape, MatrixType};

/// How a workgroup shares a product; the knobs of `coop.wgsl`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tile {
    pub(super) subs: [u32; 2],
    pub(super) parts: u32,
    pub(super) frags: [u32; 2],
    /// Fragments along K in a stretch.
    pub(super) depth: u32,
    pub(super) stages: u32,
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
pub(super) fn memory(shape: &MatrixShape, tile: Tile, staged: bool, held: u32) -> u32 {
    let depth8 = tile.depth * shape.k / 8;
    let [unit, pad] = unit(shape);
    let a = tile.subs[0] * tile.frags[0] * shape.m * (depth8 + pad);
    let panels = tile.subs[1] * tile.frags[1];
    let b = (panels * shape.n * (depth8 + pad)).max(depth8 * 8 * (panels * shape.n / 8 + pad));
    let sums = tile.subs[0] * tile.subs[1] * tile.parts * held * shape.m * (shape.n / 4 + 1);
    let b = if staged { tile.stages * tile.parts * b } else { 1 };
    (tile.stages * tile.parts * a + b) * unit + sums * 16
}
