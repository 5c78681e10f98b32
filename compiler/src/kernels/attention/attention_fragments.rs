//! `attention_fragments.wgsl`: scaled dot-product attention on matrix units whose fragments have a known layout in
//! registers. For few queries, several workgroups split the keys (flash decoding), and a second dispatch,
//! `attention_merge.wgsl`, merges their results.

use serde::Deserialize;

use super::attention::Sizes;
use super::attention_merge::{self, KV_SPLITS, MAX_SPLIT_ROWS};
use super::f16_hooks::{declare_loads, declare_visibility, has_readable_operands, is_plain};
use crate::error::OpError;
use crate::ir::dim::Dim;
use crate::ir::op::{Attention, Op};
use crate::kernels::cost::{Estimate, Parameters};
use crate::kernels::kernel::{Candidate, Configuration, Group, InPlace, Kernel, config};
use crate::kernels::shared::emulated_fragments;
use crate::kernels::shared::fragment_matmul::{LANES, known_fragments, with_fragment_requirements};
use crate::shader::problem::Problem;
use crate::shader::{Grid, LaunchDraft, Need, Shader};
use crate::target::{Fragments, MatrixScope, SubgroupOp};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "attention_fragments",
    wgsl: include_str!("attention_fragments.wgsl"),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: Some(MatrixScope::Subgroup),
    params: &[Group::from_parameters::<Params>()],
    in_place: InPlace::Epilogue,
};

config! {
    /// Configuration of the kernel `attention_fragments`.
    struct Config {
        /// Subgroups per workgroup.
        SUBGROUPS => subgroups: u32,
        /// Number of matrix fragments of query rows per subgroup.
        ROW_FRAGS => row_frags: u32,
        /// Number of keys that a subgroup multiplies in one step of the loop over keys.
        KEY_TILE => key_tile: u32,
        /// Number of sets of subgroups that split the keys of a step; absent if all subgroups multiply the same keys.
        KEY_GROUPS => key_groups: Option<u32>,
        /// Number of workgroups that split the keys of a query. With 1, the keys are not split.
        KV_SPLIT => kv_split: u32,
    }
}

/// Tiles that are tried: subgroups per set, fragments of query rows per subgroup, keys per subgroup and step, and sets of
/// subgroups that split the keys of a step.
const TILES: &[[u32; 4]] = &[
    [4, 2, 64, 1],
    [4, 2, 32, 1],
    [4, 1, 64, 1],
    [4, 1, 32, 1],
    [4, 1, 128, 1],
    [8, 1, 64, 1],
    [8, 1, 32, 1],
    [8, 2, 64, 1],
    [8, 2, 32, 1],
    [2, 2, 64, 1],
    [2, 2, 32, 1],
    [2, 1, 64, 1],
    [2, 1, 32, 1],
    [1, 1, 64, 1],
    [1, 1, 32, 1],
    [4, 2, 80, 1],
    [4, 1, 80, 1],
    [4, 1, 64, 2],
    [4, 1, 32, 2],
    [4, 1, 32, 4],
    [4, 2, 32, 2],
    [2, 1, 64, 2],
    [2, 1, 32, 2],
    [2, 1, 32, 4],
    [2, 2, 64, 2],
    [2, 2, 32, 4],
    [1, 1, 64, 2],
    [1, 1, 32, 4],
    [1, 2, 32, 4],
    [3, 1, 32, 4],
    [5, 1, 32, 4],
    [6, 1, 32, 4],
    [6, 1, 64, 2],
];

/// Tiles that are tried if fragments are emulated. Drivers compile the emulated multiplications of larger tiles slowly.
const EMULATED_TILES: &[[u32; 4]] = &[[2, 1, 32, 1], [1, 2, 16, 1], [1, 1, 16, 2]];

/// Query rows of a matrix fragment.
const FRAG_ROWS: u32 = 16;

/// Sizes of the tile of query rows and keys that a workgroup of `attention_fragments` processes in a step.
struct Tile {
    config: Config,
    /// Head size of queries and keys, in groups of eight elements.
    d8: u32,
    /// Head size of values, in groups of eight elements.
    e8: u32,
    /// Head size of queries and keys, in groups of 32 elements.
    d32: u32,
    /// 1 if 16 more elements follow the groups of 32, else 0.
    d16: u32,
}

impl Tile {
    fn new(config: Config, sizes: &Sizes) -> Self {
        let [d8, e8] = [sizes.d, sizes.e].map(|size| (size.unsigned_abs() as u32).div_ceil(8));
        let (d32, d16) = match d8 % 4 {
            0 => (d8 / 4, 0),
            1 | 2 => (d8 / 4, 1),
            _ => (d8 / 4 + 1, 0),
        };
        Self { config, d8, e8, d32, d16 }
    }

    /// Number of sets of subgroups that split the keys of a step.
    fn key_groups(&self) -> u32 {
        self.config.key_groups.unwrap_or(1)
    }

    /// Number of keys of a step.
    fn step_keys(&self) -> u32 {
        self.config.key_tile * self.key_groups()
    }

    /// Number of subgroups of a workgroup.
    fn subgroups(&self) -> u32 {
        self.config.subgroups * self.key_groups()
    }

    /// True if the sums of a set of subgroups fit into the memory of the keys, through which they pass to the first set.
    fn merges(&self) -> bool {
        let sums = self.config.subgroups * LANES * self.config.row_frags * (self.e8 + 1);
        self.key_groups() == 1 || self.config.kv_split == 1 && sums <= self.step_keys() * self.pitch_k()
    }

    /// Distance between adjacent keys in workgroup memory, in vec4s.
    fn pitch_k(&self) -> u32 {
        (self.d32 * 4 + self.d16 * 2 + 3) / 8 * 8 + 4
    }

    /// Number of query rows of a workgroup.
    fn rows(&self) -> u32 {
        self.config.subgroups * self.config.row_frags * FRAG_ROWS
    }

    /// Number of invocations of a workgroup.
    fn threads(&self) -> u32 {
        self.subgroups() * LANES
    }

    /// Returns the workgroup memory of a workgroup, in bytes, without the memory that emulated fragments need.
    fn memory(&self) -> u32 {
        let values = self.step_keys() / 16 * self.e8 * 36;
        self.step_keys() * self.pitch_k() * 16 + values * 8
    }

    /// Returns an estimate of the 32-bit registers per invocation: sums, queries, scores and weights, the loads of the
    /// next tile, and an allowance for addresses.
    fn registers(&self) -> u32 {
        let Config { row_frags, key_tile, .. } = self.config;
        let fragments = row_frags * 4 * (self.e8 + self.d32 * 2 + self.d16 + key_tile / 8);
        let loads_k = (self.step_keys() * self.d8).div_ceil(self.threads());
        let loads_v = (self.step_keys() / 4 * self.e8).div_ceil(self.threads());
        fragments + 4 * loads_k + 16 * loads_v + 40
    }
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Op::Attention(op) = problem.op else { return Vec::new() };
    let (Some(sizes), Some((_, fragments))) = (Sizes::from_problem(problem, op), known_fragments(problem))
    else {
        return Vec::new();
    };
    let Some(p) = Params::from_problem(problem) else { return Vec::new() };
    let able = [SubgroupOp::Basic, SubgroupOp::Vote, SubgroupOp::Shuffle]
        .iter()
        .all(|op| problem.target.has_subgroup_op(*op));
    if !able || !has_readable_operands(problem, &sizes) {
        return Vec::new();
    }
    let tiles = match fragments {
        Fragments::MmaM16N8K16 => TILES,
        Fragments::Emulated => EMULATED_TILES,
    };
    let configs = tiles.iter().flat_map(|[subgroups, row_frags, key_tile, key_groups]| {
        KV_SPLITS.iter().map(|kv_split| Config {
            subgroups: *subgroups,
            row_frags: *row_frags,
            key_tile: *key_tile,
            key_groups: (*key_groups > 1).then_some(*key_groups),
            kv_split: *kv_split,
        })
    });
    configs.filter_map(|config| candidate(&p, problem, (op, &sizes), config)).collect()
}

fn candidate(
    p: &Params,
    problem: &Problem<'_>,
    (op, sizes): (&Attention, &Sizes),
    config: Config,
) -> Option<Candidate> {
    let (machine, limits) = (&problem.target.machine, &problem.target.limits);
    let kv_split = config.kv_split;
    let tile = Tile::new(config, sizes);
    let key_tile = tile.step_keys();
    let rows = problem.max(&sizes.rows()).max(1);
    let heads = problem.max(&sizes.heads);
    let t = sizes.visible_keys(problem, op, i64::from(tile.rows()));
    let emulated = emulated_fragments::BYTES_PER_INVOCATION * tile.threads();
    let fits = tile.threads() <= limits.max_workgroup_invocations.min(limits.max_workgroup_size[0])
        && tile.subgroups() <= limits.max_workgroup_subgroups
        && tile.merges()
        && tile.memory() + emulated <= limits.max_workgroup_memory
        && heads <= i64::from(limits.max_workgroup_count[1]);
    // Every subgroup must have rows, and at least half of a tile must be keys.
    let wasted = config.subgroups > 1 && i64::from(tile.rows()) >= 2 * rows
        || key_tile > 32 && f64::from(key_tile) >= 2.0 * t;
    let units = f64::from(machine.compute_units);
    let blocks = (rows as f64 / f64::from(tile.rows())).ceil() * heads as f64;
    // Split keys only if there are few queries and more than half of the device would be idle.
    let is_busy = rows > MAX_SPLIT_ROWS || 2.0 * blocks > units;
    let needless = kv_split > 1 && (is_busy || f64::from(kv_split * key_tile) >= 2.0 * t);
    if !fits || wasted || needless {
        return None;
    }
    let groups = blocks * f64::from(kv_split);
    let steps = (t / f64::from(kv_split * key_tile)).ceil();
    let estimate = estimate(p, problem, &tile, sizes, (groups, steps));
    let reason = format!(
        "matrix units, scores in registers: {groups} workgroups of {} queries by {} subgroups loop over {t} keys in \
         tiles of {key_tile}, {kv_split} KV splits",
        tile.rows(),
        tile.subgroups()
    );
    Some(Candidate::new(&config, estimate, reason).with_registers(tile.registers()))
}

/// Returns the estimated time of `groups` workgroups, each with `steps` steps of the loop over keys.
fn estimate(
    p: &Params,
    problem: &Problem<'_>,
    tile: &Tile,
    sizes: &Sizes,
    (groups, steps): (f64, f64),
) -> Estimate {
    let (machine, limits) = (&problem.target.machine, &problem.target.limits);
    let units = f64::from(machine.compute_units);
    let max_registers = f64::from(machine.max_registers);
    let registers = f64::from(tile.registers());
    let registers_per_unit = f64::from(machine.invocations_per_unit) * f64::from(machine.registers);
    let resident = (registers_per_unit / (f64::from(tile.threads()) * registers.min(max_registers)))
        .min(4.0 * f64::from(limits.max_workgroup_memory) / f64::from(tile.memory()))
        .floor()
        .clamp(1.0, 4.0);
    // Workgroups on one compute unit hide each other's latency until they compete for it.
    let active = resident.min((groups / units).ceil());
    let rounds = (groups / (units * resident)).ceil();
    let spilled = 1.0 + (registers - max_registers).max(0.0) / (0.5 * max_registers);
    // Partial results are stored and loaded again.
    let kv_split = tile.config.kv_split;
    let rows = problem.max(&sizes.rows()).max(1);
    let heads = problem.max(&sizes.heads);
    let partial_bytes = heads as f64 * rows as f64 * f64::from(kv_split) * (sizes.e + 2) as f64 * 4.0;
    let (launches, moved_bytes) = if kv_split > 1 { (2.0, 2.0 * partial_bytes) } else { (1.0, 0.0) };
    let bytes = problem.traffic() as f64 * sizes.read_fraction(problem) + moved_bytes;
    Estimate {
        memory: bytes / machine.bandwidth_gb_s.max(1e-3),
        compute: rounds * steps * spilled * step_ns(p, problem, tile, active),
        fixed: launches * p.fixed_ns,
        ..Estimate::for_dispatches(problem, launches)
    }
}

/// Returns the nanoseconds of a step of the loop over keys, for `active` workgroups on a compute unit, without spills
/// of registers.
fn step_ns(p: &Params, problem: &Problem<'_>, tile: &Tile, active: f64) -> f64 {
    let machine = &problem.target.machine;
    let Config { row_frags, key_tile, .. } = tile.config;
    let units = f64::from(machine.compute_units);
    let engines = f64::from(machine.matrix_engines);
    // Work of a subgroup per step: matmuls, scores, and loads of fragments of keys and values from workgroup memory.
    let scores = f64::from(row_frags * FRAG_ROWS * key_tile);
    let depth = f64::from(tile.d32 * 32 + tile.d16 * 16 + tile.e8 * 8);
    let engine_peak = machine.peak.matrix_f16.unwrap_or(machine.peak.f16) / (units * engines);
    let own = p.matmul_time_ratio * 2.0 * scores * depth / engine_peak
        + p.score_operations * scores * units * engines / machine.peak.f32
        + p.key_operations * f64::from(key_tile) * depth * units * engines / machine.peak.f32;
    let turns = |count: f64| (count * f64::from(tile.subgroups()) / engines).max(p.lone_subgroup_time_ratio);
    // Keys and values pass from memory to workgroup memory once for each workgroup.
    let staged = f64::from(tile.step_keys()) * depth * 2.0 * units
        / (machine.cache_bandwidth_gb_s.max(1e-3) * p.cache_bandwidth_fraction);
    // The loads of a step are one step ahead of its arithmetic.
    let alone = p.step_latencies * machine.memory_latency_ns + (own * turns(1.0)).max(staged);
    alone.max((own * turns(active)).max(staged * active))
}

/// Cost parameters of the kernel `attention_fragments`. All are positive.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Fixed nanoseconds before the first keys are loaded and after the last result is computed.
    fixed_ns: f64,
    /// Ratio of the time of a step of the only subgroup on a matrix engine to the subgroup's share of the time if several
    /// subgroups keep the engine busy. 1 or more.
    lone_subgroup_time_ratio: f64,
    /// Time that a workgroup waits in each step of the loop over keys, in memory latencies.
    step_latencies: f64,
    /// Ratio of the matmul time of a subgroup to the time at the peak FLOP/s of a matrix engine. 1 or more.
    matmul_time_ratio: f64,
    /// Floating-point operations per score, for its softmax weight.
    score_operations: f64,
    /// Floating-point operations for each element of keys and values that a subgroup reads from workgroup memory.
    key_operations: f64,
    /// Fraction of the cache bandwidth at which workgroups load keys and values. 0 to 1.
    cache_bandwidth_fraction: f64,
}

impl Parameters for Params {
    const GROUP: &str = "attention_fragments";
}

fn launches(problem: &Problem<'_>, config: Config) -> Result<Vec<LaunchDraft>, OpError> {
    let Op::Attention(op) = problem.op else { return Err(OpError::new("the operator is not attention")) };
    let sizes = Sizes::from_problem(problem, op)
        .ok_or_else(|| OpError::new("a head size is symbolic; it must be known"))?;
    let (shape, fragments) = known_fragments(problem)
        .ok_or_else(|| OpError::new("the device has no matrix units with a known fragment layout"))?;
    let tile = Tile::new(config, &sizes);
    let kv_split = config.kv_split;
    let mut shader = Shader::new(problem);
    config.declare(&mut shader);
    let e4 = (sizes.e.unsigned_abs() as u32).div_ceil(4);
    let knobs = [("D8", tile.d8), ("E8", tile.e8), ("E4", e4), ("D32", tile.d32), ("D16", tile.d16)];
    for (name, value) in knobs {
        shader.knob(name, value);
    }
    declare_visibility(&mut shader, &sizes, op, tile.step_keys());
    declare_scale(&mut shader, op);
    shader.needs(&[Need::SubgroupVote, Need::SubgroupShuffle]);
    let query = declare_loads(&mut shader, &sizes, op)?;
    let partials = attention_merge::declare_results(&mut shader, &sizes, &query, kv_split, config.key_tile)?;
    let emulated =
        emulated_fragments::declare(&mut shader, fragments, "attend(group, LOCAL)", tile.threads());
    shader.workgroup_memory(tile.memory() + emulated);
    let groups =
        [sizes.rows().ceil_div(i64::from(tile.rows())), sizes.heads.clone(), Dim::known(kv_split.into())];
    let flops = sizes.rows().mul(&sizes.heads).mul(&sizes.t).scale(2 * (sizes.d + sizes.e));
    let grid = Grid { groups, workgroup: [tile.threads(), 1, 1] };
    let launch = shader.finish(KERNEL.name, KERNEL.wgsl, grid, flops);
    let mut launches = vec![with_fragment_requirements(launch, shape, fragments)];
    if let Some(partials) = partials {
        launches.push(attention_merge::launch(problem, &sizes, &partials)?);
    }
    Ok(launches)
}

/// Declares the factor of the scores. A positive factor of scores without mask and soft cap becomes a part of the
/// factor of the exponents.
fn declare_scale(shader: &mut Shader<'_>, op: &Attention) {
    let exponent = op.scale * std::f32::consts::LOG2_E;
    if is_plain(shader.problem, op) && (1e-4..1e4).contains(&exponent) {
        shader.number("scale", 1.0);
        shader.constant("EXP2_SCALE", format_args!("{exponent:?}"));
    } else {
        shader.number("scale", op.scale);
    }
}
