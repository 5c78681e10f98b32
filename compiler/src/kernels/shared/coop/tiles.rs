//! Tiles of the kernels on matrix units, with their costs.

use serde::Deserialize;

use super::matrix_shapes::{matrix_shape, vec8_bytes};
use crate::kernels::cost::{Estimate, Parameters};
use crate::kernels::kernel::{Candidate, config};
use crate::shader::problem::Problem;
use crate::target::quirks::Fault;
use crate::target::{MatrixShape, MatrixType};

config! {
    /// Configuration of matmuls and convolutions on matrix units with `coop.wgsl`.
    pub(crate) struct Config {
        /// Subgroups of a workgroup along M.
        SUBGROUPS_M => subgroups_m: u32,
        /// Subgroups of a workgroup along N.
        SUBGROUPS_N => subgroups_n: u32,
        /// Number of groups of subgroups among which K is split.
        K_SPLIT => k_split: u32,
        /// Matrix fragments of a subgroup along M.
        FRAGS_M => frags_m: u32,
        /// Matrix fragments of a subgroup along N.
        FRAGS_N => frags_n: u32,
        /// Size of a K-tile, the range of K that one step multiplies, in elements.
        TILE_K => tile_k: u32,
        /// Number of K-tiles in workgroup memory at once.
        STAGES => stages: u32,
        /// Number of matrix fragments along N whose sums pass through workgroup memory to the epilogue at once.
        EPILOGUE_FRAGS => epilogue_frags: u32,
        /// True if the second operand is copied to workgroup memory, false if fragments are loaded from global memory.
        STAGED_B => staged_b: bool,
    }
}

/// Tile of the result that a workgroup computes, in subgroups and matrix fragments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tile {
    /// Subgroups of a workgroup along M and N.
    subgroups: [u32; 2],
    /// Number of groups of subgroups among which K is split.
    k_split: u32,
    /// Matrix fragments of a subgroup along M and N.
    frags: [u32; 2],
    /// Matrix fragments along K in a K-tile.
    frags_k: u32,
    /// Number of K-tiles in workgroup memory at once.
    stages: u32,
}

const fn tile(subgroups: [u32; 2], k_split: u32, frags: [u32; 2], frags_k: u32, stages: u32) -> Tile {
    Tile { subgroups, k_split, frags, frags_k, stages }
}

/// Tiles of the candidates. Each lists subgroups along M and N, K split, fragments per subgroup along M and N,
/// fragments along K, and K-tiles in workgroup memory.
const TILES: &[Tile] = &[
    // Large matmuls: 64 x 64 per subgroup.
    tile([4, 2], 1, [4, 4], 2, 1),
    tile([2, 4], 1, [4, 4], 2, 1),
    tile([2, 2], 1, [4, 4], 2, 1),
    tile([2, 2], 1, [4, 4], 4, 1),
    tile([2, 2], 1, [4, 4], 2, 2),
    tile([2, 2], 1, [2, 4], 2, 2),
    tile([2, 2], 1, [4, 2], 2, 2),
    tile([2, 2], 1, [2, 2], 4, 1),
    tile([2, 2], 2, [2, 2], 2, 1),
    // Small M or N, large K: groups of subgroups split K.
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

/// Maximum number of result elements in a workgroup's tile on devices where larger tiles are slow.
const SMALL_TILE: u32 = 64 * 64;

/// Returns the candidates of `coop.wgsl` for `batch` matmuls of M x K by K x N within the target's limits. `direct_b`
/// is true if fragments of the second operand can be loaded from global memory. `load_a_ratio` is the ratio of the load
/// time of eight elements of the first operand to the load time of eight adjacent elements.
pub(crate) fn tile_candidates(
    problem: &Problem<'_>,
    batch: i64,
    sizes: [i64; 3],
    direct_b: bool,
    load_a_ratio: f64,
) -> Vec<Candidate> {
    let (Some(shape), Some(p)) = (matrix_shape(problem), Params::from_problem(problem)) else {
        return Vec::new();
    };
    let stagings: &[bool] = if direct_b { &[true, false] } else { &[true] };
    let mut out = Vec::new();
    for tile in TILES {
        for staged in stagings {
            out.extend(candidate(&p, problem, (shape, *tile, *staged), (batch, sizes, load_a_ratio)));
        }
    }
    out
}

fn candidate(
    p: &Params,
    problem: &Problem<'_>,
    (shape, tile, staged): (&MatrixShape, Tile, bool),
    (batch, [m, n, k], load_a_ratio): (i64, [i64; 3], f64),
) -> Option<Candidate> {
    let config = configuration(problem, shape, tile, staged)?;
    let max_groups = &problem.target.limits.max_workgroup_count;
    let [tile_m, tile_n] = config.tile(shape);
    let Config { tile_k, k_split, .. } = config;
    let rows = (m as f64 / f64::from(tile_m)).ceil();
    let columns = (n as f64 / f64::from(tile_n)).ceil();
    let steps = (k as f64 / f64::from(tile_k * k_split)).ceil();
    let groups = rows * columns * batch as f64;
    // The last split would have an empty range of K.
    let idle_split = k_split > 1 && i64::from(tile_k * (k_split - 1)) >= k;
    if idle_split || rows * columns > f64::from(max_groups[0]) || batch > i64::from(max_groups[2]) {
        return None;
    }
    let estimate = Work { p, problem, shape, config, groups, steps, load_a_ratio }.estimate();
    let b_source = if staged { "workgroup memory" } else { "global memory" };
    let reason = format!(
        "matrix units, {groups} tiles of {tile_m}x{tile_n} for M x N x K = {m}x{n}x{k}, {steps} steps of {} along K by {} subgroups, second operand from {b_source}",
        tile_k * k_split,
        config.subgroups()
    );
    Some(Candidate::new(&config, estimate, reason))
}

/// Returns the configuration of a tile, or `None` if the tile exceeds a limit of the device. `staged` is true if the
/// second operand is copied to workgroup memory.
fn configuration(problem: &Problem<'_>, shape: &MatrixShape, tile: Tile, staged: bool) -> Option<Config> {
    let limits = &problem.target.limits;
    let config = |epilogue_frags: u32| Config {
        subgroups_m: tile.subgroups[0],
        subgroups_n: tile.subgroups[1],
        k_split: tile.k_split,
        frags_m: tile.frags[0],
        frags_n: tile.frags[1],
        tile_k: tile.frags_k * shape.k,
        stages: tile.stages,
        epilogue_frags,
        staged_b: staged,
    };
    let epilogue_frags = (1..=tile.frags[1]).rev().find(|frags| {
        tile.frags[1].is_multiple_of(*frags)
            && workgroup_bytes(shape, config(*frags)) <= limits.max_workgroup_memory
    })?;
    let config = config(epilogue_frags);
    let [tile_m, tile_n] = config.tile(shape);
    let too_large = tile_m * tile_n > SMALL_TILE && problem.target.has_quirk(Fault::LargeMatrixTilesSlow);
    let threads = config.subgroups() * problem.target.subgroup.preferred;
    let fits = threads <= limits.max_workgroup_invocations
        && threads <= limits.max_workgroup_size[0]
        && config.subgroups() <= limits.max_workgroup_subgroups
        && !spills(problem, shape, config);
    (fits && !too_large && (staged || tile.stages == 1)).then_some(config)
}

impl Config {
    /// Returns the numbers of rows and columns of a workgroup's tile.
    fn tile(&self, shape: &MatrixShape) -> [u32; 2] {
        [self.subgroups_m * self.frags_m * shape.m, self.subgroups_n * self.frags_n * shape.n]
    }

    /// Returns the number of subgroups of a workgroup that share a K-tile.
    fn tile_subgroups(&self) -> u32 {
        self.subgroups_m * self.subgroups_n
    }

    /// Subgroups per workgroup.
    fn subgroups(&self) -> u32 {
        self.tile_subgroups() * self.k_split
    }
}

/// Work of all workgroups of a configuration, as input of the estimate.
struct Work<'a> {
    p: &'a Params,
    problem: &'a Problem<'a>,
    shape: &'a MatrixShape,
    config: Config,
    /// Number of workgroups.
    groups: f64,
    /// Number of steps along K per workgroup.
    steps: f64,
    /// Ratio of the load time of eight elements of the first operand to the load time of eight adjacent elements.
    load_a_ratio: f64,
}

impl Work<'_> {
    fn estimate(&self) -> Estimate {
        let (machine, limits) = (&self.problem.target.machine, &self.problem.target.limits);
        let threads = self.config.subgroups() * self.problem.target.subgroup.preferred;
        let resident = (f64::from(machine.invocations_per_unit) / f64::from(threads))
            .min(f64::from(limits.max_workgroup_memory) / f64::from(workgroup_bytes(self.shape, self.config)))
            .floor()
            .clamp(1.0, 4.0);
        let units = f64::from(machine.compute_units);
        let rounds = (self.groups / (units * resident)).ceil();
        let concurrent = resident.min((self.groups / units).ceil());
        Estimate {
            memory: self.problem.traffic() as f64 / machine.bandwidth_gb_s.max(1e-3),
            cache: self.cache_ns(),
            compute: self.compute_ns(),
            latency: rounds * self.steps * self.step_ns(concurrent),
            serial: self.epilogue_ns(rounds),
            fixed: self.p.fixed_ns,
            ..Estimate::for_dispatches(self.problem, 1.0)
        }
    }

    /// Returns the peak operations per nanosecond of one compute unit.
    fn unit_peak(&self) -> f64 {
        let machine = &self.problem.target.machine;
        let peak = match self.shape.a {
            MatrixType::F16 => machine.peak.matrix_f16.unwrap_or(machine.peak.f16),
            _ => machine.peak.matrix_int8.unwrap_or(machine.peak.int8),
        };
        peak / f64::from(machine.compute_units)
    }

    /// Returns K, rounded up to whole steps of a workgroup.
    fn padded_k(&self) -> f64 {
        self.steps * f64::from(self.config.tile_k) * f64::from(self.config.k_split)
    }

    /// Returns the bytes of an element of both operands.
    fn element_bytes(&self) -> f64 {
        if self.shape.a == MatrixType::F16 { 2.0 } else { 1.0 }
    }

    fn compute_ns(&self) -> f64 {
        let (p, machine) = (self.p, &self.problem.target.machine);
        let [frags_m, frags_n] = [self.config.frags_m, self.config.frags_n].map(f64::from);
        let [height, width] = self.config.tile(self.shape).map(f64::from);
        // Larger tiles load less per multiply-add, so the matrix units come closer to their peak.
        let [frags_side, tile_side] =
            [frags_m * frags_n / (frags_m + frags_n), height * width / (height + width)];
        let reached = p.peak_ratio * frags_side / (frags_side + p.half_peak_frags_side) * tile_side
            / (tile_side + p.half_peak_tile_side);
        let (units, engines) = (f64::from(machine.compute_units), f64::from(machine.matrix_engines));
        let busy = (self.groups * f64::from(self.config.subgroups()) / (engines * units)).clamp(1e-3, 1.0);
        self.groups * 2.0 * height * width * self.padded_k() / (self.unit_peak() * units * reached * busy)
    }

    fn cache_ns(&self) -> f64 {
        let machine = &self.problem.target.machine;
        let [height, width] = self.config.tile(self.shape).map(f64::from);
        let bytes = self.element_bytes();
        let b_reads = if self.config.staged_b { 1.0 } else { f64::from(self.config.subgroups_m) };
        let busy = (self.groups / f64::from(machine.compute_units)).clamp(0.05, 1.0);
        self.groups * self.padded_k() * (bytes * (height + width * b_reads))
            / (machine.cache_bandwidth_gb_s.max(1e-3) * self.p.cache_bandwidth_ratio * busy)
    }

    /// Returns the nanoseconds in which `concurrent` workgroups on a compute unit make one step along K each. A workgroup
    /// waits for memory, for its loads and for its matrix instructions. The workgroups wait at the same time, so the
    /// result is the time of one workgroup, or the time of all their loads if that is longer.
    fn step_ns(&self, concurrent: f64) -> f64 {
        let Self { p, problem, shape, config, load_a_ratio, .. } = self;
        let machine = &problem.target.machine;
        let [frags_m, frags_n] = [config.frags_m, config.frags_n].map(f64::from);
        let [height, width] = config.tile(shape).map(f64::from);
        let bytes = self.element_bytes();
        let depth = f64::from(config.tile_k);
        let invocations = f64::from(config.tile_subgroups() * problem.target.subgroup.preferred);
        let group_loads = bytes * (height + if config.staged_b { width } else { 0.0 }) * depth / 16.0;
        let loads = group_loads / invocations * load_a_ratio;
        // Vectors of eight quantized values are loaded and dequantized one after the other.
        let quantized = problem.operands.get(1).is_some_and(|b| b.quantized.is_some());
        let dequantized = if quantized { bytes * width * depth / 16.0 / invocations } else { 0.0 };
        let global_frags = if config.staged_b { 0.0 } else { frags_n * depth / f64::from(shape.k) };
        let overlap = if config.stages > 1 { p.double_buffered_step_fraction } else { 1.0 };
        let multiplying = frags_m * frags_n * 2.0 * f64::from(shape.m * shape.n) * depth / self.unit_peak();
        let alone = machine.memory_latency_ns
            * (p.step_latencies * overlap
                + p.load_latencies * loads
                + p.dequantize_latencies * dequantized
                + p.global_fragment_latencies * global_frags)
            + p.lone_subgroup_time_ratio * multiplying;
        let units = f64::from(machine.compute_units);
        let queued = group_loads * load_a_ratio * f64::from(config.k_split) * concurrent * 16.0 * units
            / (machine.cache_bandwidth_gb_s.max(1e-3) * p.unit_cache_bandwidth_fraction);
        alone.max(queued)
    }

    /// Returns the nanoseconds of the epilogues of `rounds` workgroups that run one after the other.
    fn epilogue_ns(&self, rounds: f64) -> f64 {
        let (p, config) = (self.p, self.config);
        let [frags_m, frags_n] = [config.frags_m, config.frags_n].map(f64::from);
        rounds * frags_m * frags_n / f64::from(config.epilogue_frags)
            * p.epilogue_ns
            * (1.0 + p.extra_split_epilogue_fraction * f64::from(config.k_split - 1))
    }
}

/// Cost parameters of matmuls and convolutions with `coop.wgsl`. All are positive.
///
/// A tile of height `h` and width `w` reaches the fraction `peak_ratio * s / (s + half_peak_tile_side)` of the peak,
/// where `s = h w / (h + w)`. The fragments per subgroup give a second factor of this form, with
/// `half_peak_frags_side`. Parameters named `_latencies` are multiples of the memory latency.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Params {
    /// Value of `s = h w / (h + w)` at which half of `peak_ratio` is reached, for a subgroup with `h` x `w` matrix
    /// fragments.
    half_peak_frags_side: f64,
    /// Value of `s = h w / (h + w)` at which half of `peak_ratio` is reached, for a tile of `h` x `w` elements.
    half_peak_tile_side: f64,
    /// Time to dequantize a vector of eight elements, in memory latencies.
    dequantize_latencies: f64,
    /// Time to load a matrix fragment from global memory, in memory latencies.
    global_fragment_latencies: f64,
    /// Fixed nanoseconds to load the first K-tile and to finish the last store.
    fixed_ns: f64,
    /// Nanoseconds to pass the sums of one row of matrix fragments through workgroup memory to the epilogue.
    epilogue_ns: f64,
    /// Time of a 16-byte load, in memory latencies.
    load_latencies: f64,
    /// Time of a step along K if two K-tiles are in workgroup memory at once, as a fraction of `step_latencies`; 0 to
    /// 1.
    double_buffered_step_fraction: f64,
    /// Epilogue time that every K split after the first adds, as a fraction of `epilogue_ns`.
    extra_split_epilogue_fraction: f64,
    /// Ratio of the time of the matrix instructions of a subgroup that runs alone to their time at the peak of a
    /// compute unit.
    lone_subgroup_time_ratio: f64,
    /// Ratio of the FLOP/s that an infinitely large tile would reach to the peak. It may exceed 1, because it is
    /// extrapolated.
    peak_ratio: f64,
    /// Ratio of the bandwidth that all tiles together reach to the machine's cache bandwidth.
    cache_bandwidth_ratio: f64,
    /// Time of a step along K without its loads, in memory latencies.
    step_latencies: f64,
    /// Fraction of the cache bandwidth that the loads of the workgroups on one compute unit reach; 0 to 1.
    unit_cache_bandwidth_fraction: f64,
}

impl Parameters for Params {
    const GROUP: &str = "coop";
}

/// True if the driver's compiler moves registers of a configuration to memory.
fn spills(problem: &Problem<'_>, shape: &MatrixShape, config: Config) -> bool {
    let registers = registers(shape, config, problem.target.subgroup.preferred);
    problem.target.machine.spills_above.is_some_and(|limit| registers > limit)
}

/// Returns the registers that an invocation needs in the loop over K: for all sums, for fragments of both operands, for the
/// elements of the next K-tile on their way to workgroup memory, and for addresses. Fragments that are loaded from global
/// memory are loaded for a whole K-tile, and for the next one.
fn registers(shape: &MatrixShape, config: Config, lanes: u32) -> u32 {
    let Config { frags_m, frags_n, tile_k, staged_b: staged, .. } = config;
    let [tile_m, tile_n] = config.tile(shape);
    let sums = frags_m * frags_n * shape.m * shape.n;
    let a = frags_m * shape.m * shape.k;
    let b = shape.n * if staged { shape.k } else { 2 * frags_n * tile_k };
    let next = (tile_m + if staged { tile_n } else { 0 }) * tile_k / config.tile_subgroups();
    let elements_per_word = if shape.a == MatrixType::F16 { 2 } else { 4 };
    (sums + (a + b + next) / elements_per_word) / lanes.max(1) + OTHER_REGISTERS
}

/// Registers of an invocation for addresses and loop counters.
const OTHER_REGISTERS: u32 = 30;

/// Returns the workgroup memory of a configuration, in bytes.
pub(super) fn workgroup_bytes(shape: &MatrixShape, config: Config) -> u32 {
    let Config { subgroups_m, subgroups_n, k_split, frags_m, frags_n, stages, epilogue_frags, .. } = config;
    let k8 = config.tile_k / 8;
    let [vec8, pad] = vec8_bytes(shape);
    let a = subgroups_m * frags_m * shape.m * (k8 + pad);
    let panels = subgroups_n * frags_n;
    let b = (panels * shape.n * (k8 + pad)).max(k8 * 8 * (panels * shape.n / 8 + pad));
    let sums = subgroups_m * subgroups_n * k_split * epilogue_frags * shape.m * (shape.n / 4 + 1);
    let b = if config.staged_b { stages * k_split * b } else { 1 };
    (stages * k_split * a + b) * vec8 + sums * 16
}
