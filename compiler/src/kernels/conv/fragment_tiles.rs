//! Tiles of the kernel `conv_fragments`, with their costs.

use serde::Deserialize;

use crate::kernels::cost::{Estimate, Parameters};
use crate::kernels::kernel::{Candidate, config};
use crate::kernels::shared::emulated_fragments;
use crate::kernels::shared::fragment_matmul::{LANES, known_fragments};
use crate::shader::problem::{Operand, Problem};
use crate::target::Fragments;

config! {
    /// Configuration of the kernel `conv_fragments`.
    pub(super) struct Config {
        /// Subgroups of a workgroup along M.
        SUBGROUPS_M => subgroups_m: u32,
        /// Subgroups of a workgroup along N.
        SUBGROUPS_N => subgroups_n: u32,
        /// Number of groups of subgroups of a workgroup among which K is split.
        K_SPLIT => k_split: u32,
        /// Number of workgroups among which K is split. With more than one, a second dispatch adds their sums.
        GROUP_SPLIT => group_split: u32,
        /// Matrix fragments of a subgroup along M, of 16 rows each.
        FRAGS_M => frags_m: u32,
        /// Matrix fragments of a subgroup along N, of eight columns each.
        FRAGS_N => frags_n: u32,
        /// Size of a K-tile, the range of K that one step multiplies, in elements.
        TILE_K => tile_k: u32,
        /// 1 if K-tiles of the second operand pass through workgroup memory. 0 if each subgroup loads its fragments.
        STAGED_B => staged_b: u32,
    }
}

/// Tiles that are tried: subgroups along M and N, K split, fragments along M and N, and size of a K-tile.
const TILES: &[[u32; 6]] = &[
    // 128 rows.
    [2, 2, 1, 4, 8, 32],
    [2, 4, 1, 4, 4, 32],
    [4, 2, 1, 2, 8, 32],
    [2, 2, 1, 4, 4, 32],
    [2, 2, 1, 4, 4, 64],
    [2, 2, 1, 4, 5, 64],
    // 64 rows.
    [2, 2, 1, 2, 8, 32],
    [2, 4, 1, 2, 4, 64],
    [1, 4, 1, 4, 4, 32],
    [2, 2, 1, 2, 4, 64],
    [2, 2, 2, 2, 4, 32],
    [2, 2, 2, 2, 4, 64],
    [1, 2, 4, 4, 4, 32],
    [2, 2, 1, 2, 5, 64],
    // 32 rows.
    [1, 4, 1, 2, 4, 64],
    [1, 2, 2, 2, 4, 64],
    [1, 2, 4, 2, 4, 64],
    [1, 1, 4, 2, 4, 64],
    [1, 1, 8, 2, 4, 64],
    [2, 2, 1, 1, 4, 64],
    [2, 2, 2, 1, 4, 64],
    [1, 1, 8, 2, 2, 64],
    // 16 rows.
    [1, 2, 4, 1, 4, 64],
    [1, 1, 8, 1, 4, 64],
];

/// Tiles that are tried for quantized filters. They pass through workgroup memory, so that a workgroup dequantizes each only
/// once. f16 filters are not faster that way.
const QUANTIZED_TILES: &[[u32; 6]] = &[[4, 2, 1, 2, 4, 32], [2, 4, 1, 2, 4, 32], [4, 2, 1, 2, 8, 32]];

/// Tiles that are tried if fragments are emulated. Drivers compile the emulated multiplications of larger tiles slowly.
const EMULATED_TILES: &[[u32; 6]] = &[[2, 1, 1, 1, 2, 32], [1, 2, 2, 2, 1, 32]];

/// Numbers of workgroups that split K which are tried.
const GROUP_SPLITS: &[u32] = &[1, 2, 3, 4, 6, 8, 12, 16];

/// Numbers of workgroups that split K which are tried if fragments are emulated.
const EMULATED_GROUP_SPLITS: &[u32] = &[1, 3];

/// Minimum number of steps along K of a workgroup, if several workgroups split K.
const MIN_SPLIT_STEPS: f64 = 4.0;

impl Config {
    fn from_tile(
        [subgroups_m, subgroups_n, k_split, frags_m, frags_n, tile_k]: [u32; 6],
        group_split: u32,
        staged_b: u32,
    ) -> Self {
        Self { subgroups_m, subgroups_n, k_split, group_split, frags_m, frags_n, tile_k, staged_b }
    }

    /// Returns the numbers of rows and columns of a workgroup's tile.
    pub(super) fn tile(&self) -> [u32; 2] {
        [self.subgroups_m * self.frags_m * 16, self.subgroups_n * self.frags_n * 8]
    }

    fn split_subgroups(&self) -> u32 {
        self.subgroups_m * self.subgroups_n
    }

    pub(super) fn threads(&self) -> u32 {
        self.split_subgroups() * self.k_split * LANES
    }

    /// Returns the workgroup memory in vec4s, without the memory that emulated fragments need: two K-tiles of the staged
    /// operands for each K split, or the sums of all K splits.
    pub(super) fn shared_vec4s(&self) -> u32 {
        let [tile_m, tile_n] = self.tile();
        let tiles = 2 * self.k_split * (tile_m + self.staged_b * tile_n) * self.tile_k / 8;
        let sums = if self.k_split > 1 { self.k_split * tile_m * tile_n / 4 } else { 0 };
        tiles.max(sums)
    }

    /// Returns an estimate of the 32-bit registers per invocation: sums, fragments of both operands, the loads of the
    /// next K-tile, and an allowance for addresses.
    fn registers(&self) -> u32 {
        let [tile_m, tile_n] = self.tile();
        let loads = |size: u32| (size * self.tile_k / 8).div_ceil(self.split_subgroups() * LANES);
        let loads_b =
            if self.staged_b == 1 { loads(tile_n) + 1 } else { 2 * self.frags_n * self.tile_k / 32 };
        4 * (self.frags_m * self.frags_n + 2 * self.frags_m + loads_b + loads(tile_m)) + 36
    }
}

/// Sizes of `batch` implicit GEMMs of M x K by K x N.
#[derive(Clone, Copy)]
pub(super) struct Gemm {
    pub(super) batch: i64,
    /// M, N and K.
    pub(super) sizes: [i64; 3],
    /// True if the second operand is quantized.
    pub(super) quantized: bool,
}

/// Returns the candidates for implicit GEMMs within the target's limits.
pub(super) fn candidates(problem: &Problem<'_>, gemm: Gemm) -> Vec<Candidate> {
    let (Some((_, fragments)), Some(p)) = (known_fragments(problem), Params::from_problem(problem)) else {
        return Vec::new();
    };
    let units = f64::from(problem.target.machine.compute_units);
    let (tiles, group_splits, max_split_tiles) = match fragments {
        Fragments::MmaM16N8K16 if gemm.quantized => (QUANTIZED_TILES, GROUP_SPLITS, 2.0 * units),
        Fragments::MmaM16N8K16 => (TILES, GROUP_SPLITS, 2.0 * units),
        Fragments::Emulated => (EMULATED_TILES, EMULATED_GROUP_SPLITS, f64::INFINITY),
    };
    let staged_b = u32::from(gemm.quantized);
    let configs = tiles
        .iter()
        .flat_map(|tile| group_splits.iter().map(move |split| Config::from_tile(*tile, *split, staged_b)));
    configs.filter_map(|config| candidate(&p, problem, config, (gemm, max_split_tiles))).collect()
}

/// Returns the candidate with a configuration, or `None` if it exceeds a limit or wastes work. Workgroups split K only if
/// there are fewer tiles than `max_split_tiles`.
fn candidate(
    p: &Params,
    problem: &Problem<'_>,
    config: Config,
    (gemm, max_split_tiles): (Gemm, f64),
) -> Option<Candidate> {
    let Gemm { batch, sizes: [m, n, k], .. } = gemm;
    let limits = &problem.target.limits;
    let [tile_m, tile_n] = config.tile();
    let rows = (m as f64 / f64::from(tile_m)).ceil();
    let columns = (n as f64 / f64::from(tile_n)).ceil();
    let memory = config.shared_vec4s() * 16 + emulated_fragments::BYTES_PER_INVOCATION * config.threads();
    // Every subgroup must have rows, columns and a part of K.
    let idle = config.k_split > 1 && i64::from(config.tile_k * (config.k_split - 1)) >= k
        || config.subgroups_m > 1 && i64::from(tile_m) >= 2 * m
        || config.subgroups_n > 1 && i64::from(tile_n) >= 2 * n;
    let fits = config.threads() <= limits.max_workgroup_invocations.min(limits.max_workgroup_size[0])
        && config.split_subgroups() * config.k_split <= limits.max_workgroup_subgroups
        && memory <= limits.max_workgroup_memory
        && rows * columns <= f64::from(limits.max_workgroup_count[0])
        && batch * i64::from(config.group_split) <= i64::from(limits.max_workgroup_count[2]);
    let split = f64::from(config.group_split);
    let groups = rows * columns * batch as f64 * split;
    let all_steps = (k as f64 / f64::from(config.tile_k * config.k_split)).ceil();
    let steps = (all_steps / split).ceil();
    // Every workgroup must have a part of K.
    let needless = config.group_split > 1
        && (steps < MIN_SPLIT_STEPS
            || steps * (split - 1.0) >= all_steps
            || groups >= split * max_split_tiles);
    if idle || !fits || needless {
        return None;
    }
    let partial_sums = if config.group_split > 1 { split * (batch * m * n) as f64 } else { 0.0 };
    let estimate = estimate(p, problem, &config, gemm.quantized, (groups, steps, partial_sums));
    let reason = format!(
        "matrix units, sums in registers: {groups} tiles of {tile_m}x{tile_n} for M x N x K = {m}x{n}x{k}, {steps} steps of {} along K by {} subgroups",
        config.tile_k * config.k_split,
        config.split_subgroups() * config.k_split
    );
    Some(Candidate::new(&config, estimate, reason).with_registers(config.registers()))
}

/// Returns the estimated time of `groups` workgroups, each with `steps` steps along K, and of a dispatch that adds
/// `partial_sums` sums.
fn estimate(
    p: &Params,
    problem: &Problem<'_>,
    config: &Config,
    quantized: bool,
    (groups, steps, partial_sums): (f64, f64, f64),
) -> Estimate {
    let (machine, limits) = (&problem.target.machine, &problem.target.limits);
    let (units, engines) = (f64::from(machine.compute_units), f64::from(machine.matrix_engines));
    let [tile_m, tile_n] = config.tile().map(f64::from);
    let depth = f64::from(config.tile_k);
    let max_registers = f64::from(machine.max_registers);
    let registers = f64::from(config.registers());
    let registers_per_unit = f64::from(machine.invocations_per_unit) * f64::from(machine.registers);
    let resident = (registers_per_unit / (f64::from(config.threads()) * registers.min(max_registers)))
        .min(4.0 * f64::from(limits.max_workgroup_memory) / (16.0 * f64::from(config.shared_vec4s())))
        .floor()
        .clamp(1.0, 8.0);
    // Workgroups on one compute unit hide each other's latency until they compete for it.
    let active = resident.min((groups / units).ceil());
    let rounds = (groups / (units * resident)).ceil();
    let spilled = 1.0 + (registers - max_registers).max(0.0) / (0.5 * max_registers);
    let engine_peak = machine.peak.matrix_f16.unwrap_or(machine.peak.f16) / (units * engines);
    let subgroups = f64::from(config.split_subgroups() * config.k_split);
    // Work of a subgroup per step: matmuls and loads of fragments.
    let [rows, columns] = [config.frags_m * 16, config.frags_n * 8].map(f64::from);
    let own = p.matmul_time_ratio * 2.0 * rows * columns * depth / engine_peak
        + p.fragment_operations * (rows + columns) * depth * units * engines / machine.peak.f32;
    let turns = |count: f64| (count * subgroups / engines).max(1.0);
    let loads = f64::from(config.k_split) * (tile_m * p.pixel_load_time_ratio + tile_n) * depth * 2.0;
    let cache = machine.cache_bandwidth_gb_s.max(1e-3) * p.cache_bandwidth_ratio;
    let alone = p.step_latencies * machine.memory_latency_ns + own * turns(1.0) + loads * units / cache;
    let step = alone.max((own * turns(active)).max(loads * active * units / cache));
    let split = 1.0 + p.extra_split_epilogue_fraction * f64::from(config.k_split - 1);
    let epilogue = f64::from(config.frags_m * config.frags_n) / f64::from(config.k_split) * p.epilogue_ns;
    let launches = if config.group_split > 1 { 2.0 } else { 1.0 };
    let estimate = Estimate {
        memory: problem.traffic() as f64 / machine.bandwidth_gb_s.max(1e-3),
        compute: rounds * (steps * spilled * step + epilogue * split),
        cache: groups * steps * loads / cache,
        // Partial sums are stored and loaded again.
        serial: 8.0 * partial_sums / cache,
        fixed: launches * p.fixed_ns,
        ..Estimate::for_dispatches(problem, launches)
    };
    let slices = problem.operands.first().is_some_and(Operand::is_slices4);
    let estimate = estimate.scaled(if slices { 1.0 } else { p.strided_channels_time_ratio });
    estimate.scaled(if quantized { p.quantized_time_ratio } else { 1.0 })
}

/// Cost parameters of the kernel `conv_fragments`. All are positive.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Params {
    /// Fixed nanoseconds before the first K-tile is loaded and after the last store.
    fixed_ns: f64,
    /// Time that a workgroup waits in each step along K, in memory latencies.
    step_latencies: f64,
    /// Ratio of the matmul time of a subgroup to the time at the peak FLOP/s of a matrix engine. 1 or more.
    matmul_time_ratio: f64,
    /// Floating-point operations for each element of a fragment that a subgroup loads.
    fragment_operations: f64,
    /// Ratio of the bandwidth at which all workgroups together load both operands to the machine's cache bandwidth.
    cache_bandwidth_ratio: f64,
    /// Nanoseconds to store a fragment of sums.
    epilogue_ns: f64,
    /// Epilogue time that every K split after the first adds, as a fraction of `epilogue_ns`.
    extra_split_epilogue_fraction: f64,
    /// Ratio of the time to load 8 channels of a pixel to the time to load 8 contiguous elements of a matrix.
    pixel_load_time_ratio: f64,
    /// Ratio of the total time if the channels of a pixel are not contiguous to the total time with contiguous channels.
    strided_channels_time_ratio: f64,
    /// Ratio of the total time with quantized filters to the total time with f16 filters.
    quantized_time_ratio: f64,
}

impl Parameters for Params {
    const GROUP: &str = "conv_fragments";
}
