//! `attention_coop.wgsl`: scaled dot-product attention on matrix units. For few queries, several workgroups split the
//! keys (flash decoding), and a second dispatch, `attention_merge.wgsl`, merges their results.

use serde::Deserialize;

use super::attention::Sizes;
use super::attention_merge::{self, KV_SPLITS, MAX_SPLIT_ROWS};
use super::f16_hooks::{declare_loads, declare_visibility, has_readable_operands, is_plain};
use crate::error::OpError;
use crate::ir::dim::Dim;
use crate::ir::op::{Attention, Op};
use crate::kernels::cost::{Estimate, Parameters};
use crate::kernels::kernel::{Candidate, Configuration, Group, InPlace, Kernel, config};
use crate::kernels::shared::coop;
use crate::shader::problem::Problem;
use crate::shader::{Grid, LaunchDraft, Need, Shader};
use crate::target::quirks::Fault;
use crate::target::{MatrixScope, MatrixShape, SubgroupOp};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "attention_coop",
    wgsl: include_str!("attention_coop.wgsl"),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: Some(MatrixScope::Subgroup),
    params: &[Group::from_parameters::<Params>()],
    in_place: InPlace::Epilogue,
};

config! {
    /// Configuration of the kernel `attention_coop`.
    struct Config {
        /// Subgroups per workgroup.
        SUBGROUPS => subgroups: u32,
        /// Number of matrix fragments of query rows per subgroup.
        ROW_FRAGS => row_frags: u32,
        /// Number of matrix fragments of keys per step of the loop over keys.
        KEY_FRAGS => key_frags: u32,
        /// Number of workgroups that split the keys of a query. With 1, the keys are not split.
        KV_SPLIT => kv_split: u32,
    }
}

/// Tiles that are tried: subgroups per workgroup, fragments of query rows per subgroup, and fragments of keys per step.
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

/// Sizes of the tile of query rows and keys that a workgroup of `attention_coop` processes in a step.
struct Tile {
    subgroups: u32,
    row_frags: u32,
    key_frags: u32,
    /// Head size of queries and keys, in matrix fragments.
    depth_frags: u32,
    /// Head size of values, in matrix fragments.
    value_frags: u32,
    /// Workgroup memory of a subgroup, in vec4s. It first holds the queries, then the scores.
    subgroup_vec4s: u32,
    /// Workgroup memory of a workgroup, in bytes.
    memory: u32,
}

impl Tile {
    fn new(config: Config, shape: &MatrixShape, d: i64, e: i64) -> Self {
        let Config { subgroups, row_frags, key_frags, .. } = config;
        let [depth_frags, value_frags] =
            [(d, shape.k), (e, shape.n)].map(|(size, side)| (size as u32).div_ceil(side));
        let key_tile = key_frags * shape.n;
        let [pitch_k, pitch_v] = [depth_frags * shape.k / 8 + 1, value_frags * shape.n / 8 + 1];
        let subgroup_vec4s = shape.m * pitch_k.max(key_tile / 4 + 1);
        let memory = (key_tile * (pitch_k + pitch_v) + subgroups * subgroup_vec4s) * 16;
        Self { subgroups, row_frags, key_frags, depth_frags, value_frags, subgroup_vec4s, memory }
    }

    /// Returns an estimate of the 32-bit registers per invocation: fragments of sums, queries, scores and weights, the
    /// loads of the next tile, and an allowance for addresses.
    fn registers(&self, shape: &MatrixShape, lanes: u32, d: i64, e: i64) -> u32 {
        let key_tile = self.key_frags * shape.n;
        let head = self.value_frags * shape.n + self.depth_frags * shape.k / 2;
        let fragments = self.row_frags * shape.m * (head + key_tile + key_tile / 2);
        let loads = |size: i64| (key_tile * (size as u32).div_ceil(8)).div_ceil(self.subgroups * lanes);
        fragments / lanes + 4 * (loads(d) + loads(e)) + 40
    }

    /// Returns the number of matrix fragments with sums of weighted values that pass through workgroup memory at once.
    /// They reuse the memory for the scores of one fragment of query rows.
    fn staged_frags(&self) -> u32 {
        (1..=self.key_frags).rev().find(|staged| self.value_frags.is_multiple_of(*staged)).unwrap_or(1)
    }
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Op::Attention(op) = problem.op else { return Vec::new() };
    let (Some(sizes), Some(shape)) = (Sizes::from_problem(problem, op), coop::f16_matrix_shape(problem))
    else {
        return Vec::new();
    };
    let Some(p) = Params::from_problem(problem) else { return Vec::new() };
    let target = problem.target;
    let lanes = target.subgroup.preferred;
    let able = [SubgroupOp::Basic, SubgroupOp::Vote, SubgroupOp::Shuffle]
        .iter()
        .all(|op| target.has_subgroup_op(*op));
    if !able || !has_readable_operands(problem, &sizes) || !lanes.is_multiple_of(shape.m) {
        return Vec::new();
    }
    let configs = TILES.iter().flat_map(|[subgroups, row_frags, key_frags]| {
        KV_SPLITS.iter().map(|kv_split| Config {
            subgroups: *subgroups,
            row_frags: *row_frags,
            key_frags: *key_frags,
            kv_split: *kv_split,
        })
    });
    configs.filter_map(|config| candidate(&p, problem, shape, (op, &sizes), config)).collect()
}

fn candidate(
    p: &Params,
    problem: &Problem<'_>,
    shape: &MatrixShape,
    (op, sizes): (&Attention, &Sizes),
    config: Config,
) -> Option<Candidate> {
    let (machine, limits) = (&problem.target.machine, &problem.target.limits);
    let lanes = problem.target.subgroup.preferred;
    let tile = Tile::new(config, shape, sizes.d, sizes.e);
    let kv_split = config.kv_split;
    let threads = tile.subgroups * lanes;
    let key_tile = tile.key_frags * shape.n;
    let rows = problem.max(&sizes.rows()).max(1);
    let heads = problem.max(&sizes.heads);
    let group_rows = tile.subgroups * tile.row_frags * shape.m;
    let t = sizes.visible_keys(problem, op, i64::from(group_rows));
    let fits = threads <= limits.max_workgroup_invocations
        && threads <= limits.max_workgroup_size[0]
        && tile.subgroups <= limits.max_workgroup_subgroups
        && tile.memory <= limits.max_workgroup_memory
        && heads <= i64::from(limits.max_workgroup_count[1]);
    let divisible = key_tile.is_multiple_of(shape.k) && key_tile.is_multiple_of(8 * (lanes / shape.m));
    // Every subgroup must have rows, and every fragment of keys must have keys.
    let wasted = tile.subgroups > 1 && i64::from(group_rows) >= 2 * rows
        || tile.key_frags > 2 && f64::from(key_tile) >= 2.0 * t;
    let units = f64::from(machine.compute_units);
    let blocks = (rows as f64 / f64::from(group_rows)).ceil() * heads as f64;
    // Split keys only if there are few queries and more than half of the device would be idle.
    let is_busy = rows > MAX_SPLIT_ROWS || 2.0 * blocks > units;
    let needless = kv_split > 1 && (is_busy || f64::from(kv_split * key_tile) >= 2.0 * t);
    if !fits || !divisible || wasted || needless {
        return None;
    }
    let groups = blocks * f64::from(kv_split);
    let steps = (t / f64::from(kv_split * key_tile)).ceil();
    let estimate = estimate(p, problem, (shape, &tile, kv_split), sizes, (groups, steps));
    let reason = format!(
        "matrix units, {groups} workgroups of {group_rows} queries by {} subgroups loop over {t} keys in tiles of \
         {key_tile}, {kv_split} KV splits",
        tile.subgroups
    );
    let registers = tile.registers(shape, lanes, sizes.d, sizes.e);
    Some(Candidate::new(&config, estimate, reason).with_registers(registers))
}

/// Returns the estimated time of `groups` workgroups, each with `steps` steps of the loop over keys.
fn estimate(
    p: &Params,
    problem: &Problem<'_>,
    (shape, tile, kv_split): (&MatrixShape, &Tile, u32),
    sizes: &Sizes,
    (groups, steps): (f64, f64),
) -> Estimate {
    let (machine, limits) = (&problem.target.machine, &problem.target.limits);
    let lanes = problem.target.subgroup.preferred;
    let units = f64::from(machine.compute_units);
    let max_registers = f64::from(machine.max_registers);
    let registers_per_unit = f64::from(machine.invocations_per_unit) * f64::from(machine.registers);
    let resident = (registers_per_unit / (f64::from(tile.subgroups * lanes) * max_registers))
        .min(4.0 * f64::from(limits.max_workgroup_memory) / f64::from(tile.memory))
        .floor()
        .clamp(1.0, 4.0);
    // Workgroups on one compute unit hide each other's latency until they compete for it.
    let active = resident.min((groups / units).ceil());
    let rounds = (groups / (units * resident)).ceil();
    let registers = f64::from(tile.registers(shape, lanes, sizes.d, sizes.e));
    let spilled = 1.0 + (registers - max_registers).max(0.0) / (0.5 * max_registers);
    // Partial results are stored and loaded again.
    let rows = problem.max(&sizes.rows()).max(1);
    let heads = problem.max(&sizes.heads);
    let partial_bytes = heads as f64 * rows as f64 * f64::from(kv_split) * (sizes.e + 2) as f64 * 4.0;
    let (launches, moved_bytes) = if kv_split > 1 { (2.0, 2.0 * partial_bytes) } else { (1.0, 0.0) };
    let bytes = problem.traffic() as f64 * sizes.read_fraction(problem) + moved_bytes;
    Estimate {
        memory: bytes / machine.bandwidth_gb_s.max(1e-3),
        compute: rounds * steps * spilled * step_ns(p, problem, (shape, tile), sizes, active),
        fixed: launches * p.fixed_ns,
        ..Estimate::for_dispatches(problem, launches)
    }
}

/// Returns the nanoseconds of a step of the loop over keys, for `active` workgroups on a compute unit, without spills
/// of registers.
fn step_ns(
    p: &Params,
    problem: &Problem<'_>,
    (shape, tile): (&MatrixShape, &Tile),
    sizes: &Sizes,
    active: f64,
) -> f64 {
    let machine = &problem.target.machine;
    let units = f64::from(machine.compute_units);
    let key_tile = tile.key_frags * shape.n;
    // Work of a subgroup per step: matmuls, scores, and its share of the loaded bytes of keys and values.
    let scores = f64::from(tile.row_frags * shape.m * key_tile);
    let depth = f64::from(tile.depth_frags * shape.k + tile.value_frags * shape.n);
    let unit_peak = machine.peak.matrix_f16.unwrap_or(machine.peak.f16) / units;
    let matmuls_ns = 2.0 * scores * depth / unit_peak;
    let bytes = f64::from(key_tile) * (sizes.d + sizes.e) as f64 * 2.0 / f64::from(tile.subgroups);
    let latency = machine.memory_latency_ns;
    let alone = p.matmul_time_ratio * matmuls_ns
        + p.score_latencies * latency * scores / 256.0
        + p.load_latencies * latency * bytes / (16.0 * f64::from(problem.target.subgroup.preferred));
    let cache = machine.cache_bandwidth_gb_s.max(1e-3);
    let turn = p.serial_matmul_time_ratio * matmuls_ns / f64::from(machine.matrix_engines)
        + p.score_operations * scores * units / machine.peak.f32
        + bytes * units / (cache * p.cache_bandwidth_fraction);
    alone.max(turn * f64::from(tile.subgroups) * active)
}

/// Cost parameters of the kernel `attention_coop`. All are positive.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Fixed nanoseconds before the first keys are loaded and after the last result is computed.
    fixed_ns: f64,
    /// Time of a 16-byte load of keys or values, in memory latencies.
    load_latencies: f64,
    /// Ratio of the matmul time of a subgroup that runs alone to the time at the peak FLOP/s of a compute unit. 1 or more.
    matmul_time_ratio: f64,
    /// Ratio of the matmul time of subgroups that take turns on a matrix unit to the time at the unit's peak FLOP/s. 1 or more.
    serial_matmul_time_ratio: f64,
    /// Time to turn 256 scores of a subgroup into softmax weights, in memory latencies.
    score_latencies: f64,
    /// Floating-point operations per score. They count where subgroups compete for a compute unit.
    score_operations: f64,
    /// Fraction of the cache bandwidth that subgroups reach where they compete for a compute unit. 0 to 1.
    cache_bandwidth_fraction: f64,
}

impl Parameters for Params {
    const GROUP: &str = "attention_coop";
}

fn launches(problem: &Problem<'_>, config: Config) -> Result<Vec<LaunchDraft>, OpError> {
    let Op::Attention(op) = problem.op else { return Err(OpError::new("the operator is not attention")) };
    let sizes = Sizes::from_problem(problem, op)
        .ok_or_else(|| OpError::new("a head size is symbolic; it must be known"))?;
    let shape =
        coop::f16_matrix_shape(problem).ok_or_else(|| OpError::new("the device has no matrix units"))?;
    let Config { kv_split, .. } = config;
    let tile = Tile::new(config, shape, sizes.d, sizes.e);
    let mut shader = Shader::new(problem);
    coop::declare_matrix_types(&mut shader, shape);
    let [d, e] = [sizes.d, sizes.e].map(|size| size.unsigned_abs() as u32);
    config.declare(&mut shader);
    for (name, value) in [
        ("D8", d.div_ceil(8)),
        ("E8", e.div_ceil(8)),
        ("E4", e.div_ceil(4)),
        ("DEPTH_FRAGS", tile.depth_frags),
        ("VALUE_FRAGS", tile.value_frags),
        ("STAGED_FRAGS", tile.staged_frags()),
        ("SIZE_S", tile.subgroup_vec4s),
    ] {
        shader.knob(name, value);
    }
    declare_visibility(&mut shader, &sizes, op, tile.key_frags * shape.n);
    // Without mask and soft cap, the scale makes scores logarithms to base 2.
    let plain = is_plain(problem, op);
    shader.number("scale", if plain { op.scale * std::f32::consts::LOG2_E } else { op.scale });
    if plain {
        shader.constant("EXP2_SCALE", "1.0");
    }
    if problem.target.has_quirk(Fault::SubgroupBarriersWaitForWorkgroup) {
        // All subgroups must take the branch with barriers.
        shader.replace("any_lane", "fn any_lane(wanted: bool) -> bool { return true; }".into());
    } else {
        shader.needs(&[Need::SubgroupVote]);
    }
    shader.needs(&[Need::SubgroupShuffle]);
    let query = declare_loads(&mut shader, &sizes, op)?;
    let key_tile = tile.key_frags * shape.n;
    let partials = attention_merge::declare_results(&mut shader, &sizes, &query, kv_split, key_tile)?;
    shader.workgroup_memory(tile.memory);
    let group_rows = i64::from(tile.subgroups * tile.row_frags * shape.m);
    let groups = [sizes.rows().ceil_div(group_rows), sizes.heads.clone(), Dim::known(i64::from(kv_split))];
    let flops = sizes.rows().mul(&sizes.heads).mul(&sizes.t).scale(2 * (sizes.d + sizes.e));
    let threads = tile.subgroups * problem.target.subgroup.preferred;
    let grid = Grid { groups, workgroup: [threads, 1, 1] };
    let mut launches =
        coop::with_matrix_requirements(shader.finish("attention_coop", KERNEL.wgsl, grid, flops), problem);
    if let Some(partials) = partials {
        launches.push(attention_merge::launch(problem, &sizes, &partials)?);
    }
    Ok(launches)
}
