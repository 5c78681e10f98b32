//! `attention_coop.wgsl`: scaled dot-product attention on matrix units: in one dispatch, or for few queries with the keys
//! split among workgroups ("flash decoding"), whose findings `attention_merge.wgsl` joins.

use serde::Deserialize;

use super::attention::{Coded, Preludes, Sizes, axes, cap, declare};
use super::attention_merge::{self, MOST_ROWS};
use crate::error::OpError;
use crate::ir::dim::Dim;
use crate::ir::op::{Attention, Op};
use crate::kernels::cost::Parameters;
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::kernels::shared::coop;
use crate::shader::access::Coordinates;
use crate::shader::problem::Problem;
use crate::shader::{Grid, Launch, Need, Shader};
use crate::target::quirks::Fault;
use crate::target::{MatrixScope, MatrixShape, SubgroupOp};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "attention_coop",
    wgsl: include_str!("attention_coop.wgsl"),
    candidates,
    launches,
    matrices: Some(MatrixScope::Subgroup),
    params: &[Group::of::<Params>()],
    in_place: InPlace::Epilogue,
};

/// How a workgroup walks: its subgroups, and each one's fragments of rows and of keys at a time.
const TILES: &[[u32; 3]] = &[
    [4, 1, 4],
    [4, 2, 4],
    [8, 1, 4],
    [8, 2, 2],
    [4, 2, 2],
    [8, 1, 2],
    [4, 1, 2],
    [4, 1, 8],
    [2, 2, 4],
    [2, 1, 4],
    [2, 1, 2],
    [1, 1, 4],
    [1, 1, 2],
    [4, 1, 5],
];

/// Parts of the keys.
const PARTS: &[u32] = &[1, 2, 4, 8, 16, 32, 64];

/// A workgroup's share in numbers.
struct Tile {
    subs: u32,
    rows: u32,
    keys: u32,
    /// Fragments of head sizes of queries, and of values.
    depth: u32,
    wide: u32,
    /// Vectors of a subgroup's piece of workgroup memory.
    piece: u32,
    /// Bytes of workgroup memory.
    memory: u32,
}

impl Tile {
    fn new([subs, rows, keys]: [u32; 3], shape: &MatrixShape, d: i64, e: i64) -> Self {
        let [depth, wide] = [(d, shape.k), (e, shape.n)].map(|(size, side)| (size as u32).div_ceil(side));
        let span = keys * shape.n;
        let [row_k, row_v] = [depth * shape.k / 8 + 1, wide * shape.n / 8 + 1];
        let piece = shape.m * row_k.max(span / 4 + 1);
        let memory = (span * (row_k + row_v) + subs * piece) * 16;
        Self { subs, rows, keys, depth, wide, piece, memory }
    }

    /// Words that a lane holds: fragments of sums, queries, scores and weights, the keys and values that come next, and
    /// what addresses take.
    fn registers(&self, shape: &MatrixShape, lanes: u32, d: i64, e: i64) -> u32 {
        let span = self.keys * shape.n;
        let fragments =
            self.rows * shape.m * (self.wide * shape.n + self.depth * shape.k / 2 + span + span / 2);
        let loads = |size: i64| (span * (size as u32).div_ceil(8)).div_ceil(self.subs * lanes);
        fragments / lanes + 4 * (loads(d) + loads(e)) + 40
    }

    /// Fragments of values that fit where the scores of a fragment of rows lie.
    fn held(&self) -> u32 {
        (1..=self.keys).rev().find(|held| self.wide.is_multiple_of(*held)).unwrap_or(1)
    }
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Op::Attention(op) = problem.op else { return Vec::new() };
    let (Some(sizes), Some(shape)) = (Sizes::of(problem, op), coop::shape(problem)) else {
        return Vec::new();
    };
    let Some(p) = Params::of(problem) else { return Vec::new() };
    let target = problem.target;
    let lanes = target.subgroup.preferred;
    let able = [SubgroupOp::Basic, SubgroupOp::Vote, SubgroupOp::Shuffle]
        .iter()
        .all(|op| target.has_subgroup_op(*op));
    let sized = (1..=512).contains(&sizes.d) && (1..=512).contains(&sizes.e);
    let scalar_mask = problem.arity > 3 && problem.operands.get(3).is_none_or(|mask| mask.rank() == 0);
    if !able || !sized || scalar_mask || !lanes.is_multiple_of(shape.m) {
        return Vec::new();
    }
    let all = TILES.iter().flat_map(|tile| PARTS.iter().map(|parts| (*tile, *parts)));
    all.filter_map(|(tile, parts)| candidate(&p, problem, shape, (op, &sizes), (tile, parts))).collect()
}

fn candidate(
    p: &Params,
    problem: &Problem<'_>,
    shape: &MatrixShape,
    (op, sizes): (&Attention, &Sizes),
    (knobs, parts): ([u32; 3], u32),
) -> Option<Candidate> {
    let (machine, limits) = (&problem.target.machine, &problem.target.limits);
    let lanes = problem.target.subgroup.preferred;
    let tile = Tile::new(knobs, shape, sizes.d, sizes.e);
    let threads = tile.subs * lanes;
    let span = tile.keys * shape.n;
    let rows = problem.max(&sizes.rows()).max(1);
    let heads = problem.max(&sizes.heads);
    let high = tile.subs * tile.rows * shape.m;
    let t = sizes.walked(problem, op, i64::from(high));
    let fits = threads <= limits.max_workgroup_invocations
        && threads <= limits.max_workgroup_size[0]
        && tile.subs <= limits.max_workgroup_subgroups
        && tile.memory <= limits.max_workgroup_memory
        && heads <= i64::from(limits.max_workgroup_count[1]);
    let whole = span.is_multiple_of(shape.k) && span.is_multiple_of(8 * (lanes / shape.m));
    // No subgroup without rows, and no second fragment of keys without keys.
    let wasted = tile.subs > 1 && i64::from(high) >= 2 * rows || tile.keys > 2 && f64::from(span) >= 2.0 * t;
    let units = f64::from(machine.compute_units);
    let blocks = (rows as f64 / f64::from(high)).ceil() * heads as f64;
    // Keys are worth splitting where few queries leave half of the device idle as they are.
    let busy = rows > MOST_ROWS || 2.0 * blocks > units;
    let needless = parts > 1 && (busy || f64::from(parts * span) >= 2.0 * t);
    if !fits || !whole || wasted || needless {
        return None;
    }
    let groups = blocks * f64::from(parts);
    let steps = (t / f64::from(parts * span)).ceil();
    let most_registers = f64::from(machine.max_registers);
    let room = f64::from(machine.invocations_per_unit) * f64::from(machine.registers);
    let resident = (room / (f64::from(threads) * most_registers))
        .min(4.0 * f64::from(limits.max_workgroup_memory) / f64::from(tile.memory))
        .floor()
        .clamp(1.0, 4.0);
    // What a subgroup does per step: products, scores, and its part of the bytes of keys and values.
    let scores = f64::from(tile.rows * shape.m * span);
    let depth = f64::from(tile.depth * shape.k + tile.wide * shape.n);
    let unit_peak = machine.peak.matrix_f16.unwrap_or(machine.peak.f16) / units;
    let products = 2.0 * scores * depth / unit_peak;
    let bytes = f64::from(span) * (sizes.d + sizes.e) as f64 * 2.0 / f64::from(tile.subs);
    let latency = machine.memory_latency_ns;
    let alone = p.product * products
        + p.score * latency * scores / 256.0
        + p.load * latency * bytes / (16.0 * f64::from(lanes));
    // Workgroups on the same unit hide each other's waiting until they take turns.
    let beneath = resident.min((groups / units).ceil());
    let cache = machine.cache_bandwidth_gb_s.max(1e-3);
    let turn = p.product_in_turn * products / f64::from(machine.matrix_engines)
        + p.score_flops * scores * units / machine.peak.f32
        + bytes * units / (cache * p.turns);
    let rounds = (groups / (units * resident)).ceil();
    let registers = f64::from(tile.registers(shape, lanes, sizes.d, sizes.e));
    let spilled = 1.0 + (registers - most_registers).max(0.0) / (0.5 * most_registers);
    let computing = rounds * steps * spilled * alone.max(turn * f64::from(tile.subs) * beneath);
    // What parts leave behind is stored and loaded again.
    let found = heads as f64 * rows as f64 * f64::from(parts) * (sizes.e + 2) as f64 * 4.0;
    let (launches, kept) = if parts > 1 { (2.0, 2.0 * found) } else { (1.0, 0.0) };
    let traffic = (problem.traffic() as f64 * sizes.part(problem) + kept) / machine.bandwidth_gb_s.max(1e-3);
    Some(Candidate {
        knobs: vec![("SUBS", tile.subs), ("ROWS", tile.rows), ("KEYS", tile.keys), ("PARTS", parts)],
        cost: computing.max(traffic) + p.ends_ns + launches * machine.launch_us * 1e3,
        reason: format!(
            "matrix units, {groups} workgroups of {high} queries by {} subgroups walk over {t} keys in {parts} parts, \
             {span} at a time",
            tile.subs
        ),
    })
}

/// Parameters of the estimate.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// How much longer the products of one subgroup take than at a unit's peak.
    product: f64,
    /// How much longer a quarter of them takes in turn.
    product_in_turn: f64,
    /// Latencies of memory for 256 scores.
    score: f64,
    /// Operations of a score in turn.
    score_flops: f64,
    /// Latencies of memory for a load of sixteen bytes.
    load: f64,
    /// Part of the cache's bandwidth that is reached in turn.
    turns: f64,
    /// Nanoseconds until the first keys are there and until the last result is stored.
    ends_ns: f64,
}

impl Parameters for Params {
    const GROUP: &str = "attention_coop";
}

fn launches(problem: &Problem<'_>, candidate: &Candidate) -> Result<Vec<Launch>, OpError> {
    let Op::Attention(op) = problem.op else { return Err(OpError::new("not attention")) };
    let sizes = Sizes::of(problem, op).ok_or_else(|| OpError::new("head sizes must be known"))?;
    let shape = coop::shape(problem).ok_or_else(|| OpError::new("no matrix units"))?;
    let parts = candidate.knob("PARTS").max(1);
    let tile = Tile::new(["SUBS", "ROWS", "KEYS"].map(|name| candidate.knob(name)), shape, sizes.d, sizes.e);
    let mut shader = Shader::new(problem);
    coop::sides(&mut shader, shape);
    let [d, e] = [sizes.d, sizes.e].map(|size| size.unsigned_abs() as u32);
    for (name, value) in [
        ("SUBS", tile.subs),
        ("ROWS", tile.rows),
        ("KEYS", tile.keys),
        ("D8", d.div_ceil(8)),
        ("E8", e.div_ceil(8)),
        ("E4", e.div_ceil(4)),
        ("DEPTH", tile.depth),
        ("WIDE", tile.wide),
        ("HELD", tile.held()),
        ("PARTS", parts),
        ("SIZE_S", tile.piece),
    ] {
        shader.knob(name, value);
    }
    let masked = problem.arity > 3;
    shader.constant("MASKED", masked);
    let span = i64::from(tile.keys * shape.n);
    shader.constant("GUARDED", op.causal || op.window.is_some() || !sizes.keys.is_multiple_of(span));
    // Where nothing is done to the scores they are logarithms to base two from the start.
    let plain = !masked && op.softcap.is_none();
    let scale = if plain { op.scale * std::f32::consts::LOG2_E } else { op.scale };
    shader.number("scale", scale);
    cap(&mut shader, op, "vec4<f32>");
    if plain {
        shader.constant("UNIT", "1.0");
    }
    if problem.target.has_quirk(Fault::SubgroupBarriersWaitForWorkgroup) {
        // Then all subgroups take the branch with barriers, or none does.
        shader.replace("raises", "fn raises(wanted: bool) -> bool { return true; }".into());
    } else {
        shader.needs(&[Need::SubgroupVote]);
    }
    shader.needs(&[Need::SubgroupShuffle]);
    let Preludes { key, query } = declare(&mut shader, &sizes, op);
    for (index, name, params, prelude, place) in [
        (0, "load_q", "head: u32, row: u32, d8: u32", &query, ["b", "h", "s", "d8"]),
        (1, "load_k", "head: u32, key: u32, d8: u32", &key, ["b", "hk", "key", "d8"]),
        (2, "load_v", "head: u32, key: u32, e8: u32", &key, ["b", "hk", "key", "e8"]),
    ] {
        if let Some(coded) = Coded::of(&mut shader, index, prelude) {
            shader.replace(name, coded.eight(name, place[3]));
            continue;
        }
        let at = Coordinates::four(axes(place), 3);
        let text = coop::eight(&mut shader, name, params, prelude, index, &at)?;
        shader.replace(name, text);
    }
    if masked {
        let rank = problem.operands[3].rank();
        let at = Coordinates::four(axes(["b", "h", "s", "key4"]).split_off(4 - rank), rank - 1);
        shader.read("mask", "head: u32, row: u32, key4: u32", &query, 3, &at);
    }
    let joined = if parts > 1 {
        shader.replace("store", "fn store(head: u32, row: u32, e4: u32, v: vec4<f32>) {}".into());
        Some(attention_merge::keep(&mut shader, &sizes, parts, tile.keys * shape.n))
    } else {
        let at = Coordinates::four(axes(["b", "h", "s", "e4"]), 3);
        shader.write("store", "head: u32, row: u32, e4: u32", &query, &at)?;
        None
    };
    shader.workgroup_memory(tile.memory);
    let high = i64::from(tile.subs * tile.rows * shape.m);
    let groups = [sizes.rows().ceil_div(high), sizes.heads.clone(), Dim::known(i64::from(parts))];
    let flops = sizes.rows().mul(&sizes.heads).mul(&sizes.t).scale(2 * (sizes.d + sizes.e));
    let threads = tile.subs * problem.target.subgroup.preferred;
    let grid = Grid { groups, workgroup: [threads, 1, 1] };
    let mut launches = coop::launch(shader.finish("attention_coop", KERNEL.wgsl, grid, flops)?, problem);
    if let Some(joined) = joined {
        launches.push(attention_merge::launch(problem, &sizes, &joined)?);
    }
    Ok(launches)
}
