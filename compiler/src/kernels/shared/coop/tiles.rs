//! Tiles of the kernels on matrix units, with their costs.

use serde::Deserialize;

use super::matrix_shapes::{matrix_shape, vec8_bytes};
use crate::kernels::cost::Parameters;
use crate::kernels::kernel::{Candidate, Configuration, config};
use crate::shader::problem::Problem;
use crate::target::quirks::Fault;
use crate::target::{MatrixShape, MatrixType};

config! {
    /// Configuration of `coop.wgsl`.
    pub(crate) struct Config {
        /// Subgroups along M.
        SUBGROUPS_M => subgroups_m: u32,
        /// Subgroups along N.
        SUBGROUPS_N => subgroups_n: u32,
        /// Groups of subgroups that split K.
        K_SPLIT => k_split: u32,
        /// Fragments of a subgroup along M.
        FRAGS_M => frags_m: u32,
        /// Fragments of a subgroup along N.
        FRAGS_N => frags_n: u32,
        /// K of a K-tile.
        TILE_K => tile_k: u32,
        /// K-tiles in workgroup memory at once.
        STAGES => stages: u32,
        /// Fragments of a row whose sums pass through workgroup memory to the epilogue at once.
        EPILOGUE_FRAGS => epilogue_frags: u32,
        /// True if the second operand is staged in workgroup memory.
        STAGED_B => staged_b: bool,
    }
}

/// Workgroup tile, in subgroups and fragments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tile {
    /// Subgroups along M and N.
    subgroups: [u32; 2],
    /// Groups of subgroups that split K.
    k_split: u32,
    /// Fragments of a subgroup along M and N.
    frags: [u32; 2],
    /// Fragments along K in a K-tile.
    frags_k: u32,
    /// K-tiles in workgroup memory at once.
    stages: u32,
}

const fn tile(subgroups: [u32; 2], k_split: u32, frags: [u32; 2], frags_k: u32, stages: u32) -> Tile {
    Tile { subgroups, k_split, frags, frags_k, stages }
}

/// Tiles tried: subgroups along M and N, K split, fragments per subgroup along M and N, fragments along K, stages.
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

/// Maximum elements of a workgroup's tile on devices where larger tiles are slow.
const SMALL_TILE: u32 = 64 * 64;

/// Returns the candidates for `batch` matmuls of M x K by K x N within the target's limits. `direct_b` is true if
/// fragments of the second operand can be loaded from global memory. `load_a_ratio` is the time of a load of eight
/// elements of the first operand, relative to a load of adjacent elements.
pub(crate) fn tile_candidates(
    problem: &Problem<'_>,
    batch: i64,
    sizes: [i64; 3],
    direct_b: bool,
    load_a_ratio: f64,
) -> Vec<Candidate> {
    let (Some(shape), Some(p)) = (matrix_shape(problem), Params::of(problem)) else { return Vec::new() };
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
    let (machine, limits) = (&problem.target.machine, &problem.target.limits);
    let lanes = problem.target.subgroup.preferred;
    let subgroups = tile.subgroups[0] * tile.subgroups[1];
    let threads = subgroups * tile.k_split * lanes;
    let side = [shape.m, shape.n];
    let [tile_m, tile_n] = [0, 1].map(|i| tile.subgroups[i] * tile.frags[i] * side[i]);
    let tile_k = tile.frags_k * shape.k;
    let too_large = tile_m * tile_n > SMALL_TILE && problem.target.has_quirk(Fault::LargeMatrixTilesSlow);
    if (!staged && tile.stages > 1) || too_large {
        return None;
    }
    let config = |epilogue_frags: u32| Config {
        subgroups_m: tile.subgroups[0],
        subgroups_n: tile.subgroups[1],
        k_split: tile.k_split,
        frags_m: tile.frags[0],
        frags_n: tile.frags[1],
        tile_k,
        stages: tile.stages,
        epilogue_frags,
        staged_b: staged,
    };
    let epilogue_frags = (1..=tile.frags[1]).rev().find(|frags| {
        tile.frags[1].is_multiple_of(*frags)
            && workgroup_bytes(shape, config(*frags)) <= limits.max_workgroup_memory
    })?;
    let config = config(epilogue_frags);
    let fits = threads <= limits.max_workgroup_invocations
        && threads <= limits.max_workgroup_size[0]
        && subgroups * tile.k_split <= limits.max_workgroup_subgroups;
    let rows = (m as f64 / f64::from(tile_m)).ceil();
    let columns = (n as f64 / f64::from(tile_n)).ceil();
    let steps = (k as f64 / f64::from(tile_k * tile.k_split)).ceil();
    let groups = rows * columns * batch as f64;
    // The last split would have an empty range of K.
    let idle_split = tile.k_split > 1 && i64::from(tile_k * (tile.k_split - 1)) >= k;
    if !fits
        || idle_split
        || rows * columns > f64::from(limits.max_workgroup_count[0])
        || batch > i64::from(limits.max_workgroup_count[2])
    {
        return None;
    }
    let units = f64::from(machine.compute_units);
    let engines = f64::from(machine.matrix_engines);
    // FLOPs per nanosecond of one compute unit.
    let peak = match shape.a {
        MatrixType::F16 => machine.peak.matrix_f16.unwrap_or(machine.peak.f16),
        _ => machine.peak.matrix_int8.unwrap_or(machine.peak.int8),
    } / units;
    let resident = (f64::from(machine.invocations_per_unit) / f64::from(threads))
        .min(f64::from(limits.max_workgroup_memory) / f64::from(workgroup_bytes(shape, config)))
        .floor()
        .clamp(1.0, 4.0);
    let [frags_m, frags_n] = tile.frags.map(f64::from);
    let [height, width] = [tile_m, tile_n].map(f64::from);
    let depth = f64::from(tile_k);
    // Larger tiles load less per multiply-add, so the matrix units come closer to their peak.
    let [frags_side, tile_side] =
        [frags_m * frags_n / (frags_m + frags_n), height * width / (height + width)];
    let reached = p.peak_ratio * frags_side / (frags_side + p.half_peak_frags_side) * tile_side
        / (tile_side + p.half_peak_tile_side);
    let busy = (groups * f64::from(subgroups * tile.k_split) / (engines * units)).clamp(1e-3, 1.0);
    let padded_k = steps * depth * f64::from(tile.k_split);
    let computing = groups * 2.0 * height * width * padded_k / (peak * units * reached * busy);
    let b_reads = if staged { 1.0 } else { f64::from(tile.subgroups[0]) };
    let cache = machine.cache_bandwidth_gb_s.max(1e-3);
    // Bytes of an element of each operand. If matrices are 8-bit, elements of the first operand are still 32-bit.
    let [bytes_a, bytes_b] = if shape.a == MatrixType::F16 { [2.0, 2.0] } else { [4.0, 1.0] };
    let reading = groups * padded_k * (bytes_a * height + bytes_b * width * b_reads)
        / (cache * p.cache_bandwidth_ratio * (groups / units).clamp(0.05, 1.0));
    // A step waits for memory, for its own loads and for its matrix instructions. Workgroups on the same compute unit
    // hide this time from each other until their loads queue up.
    let rounds = (groups / (units * resident)).ceil();
    let concurrent = resident.min((groups / units).ceil());
    let group_loads = (bytes_a * height + if staged { bytes_b * width } else { 0.0 }) * depth / 16.0;
    let loads = group_loads / f64::from(subgroups * lanes) * load_a_ratio;
    // Vectors of eight quantized values are loaded and dequantized one after the other.
    let quantized = problem.operands.get(1).is_some_and(|b| b.quantized.is_some());
    let dequantized =
        if quantized { bytes_b * width * depth / 16.0 / f64::from(subgroups * lanes) } else { 0.0 };
    let global_frags = if staged { 0.0 } else { frags_n * depth / f64::from(shape.k) };
    let overlap = if tile.stages > 1 { p.double_buffered_step_fraction } else { 1.0 };
    let multiplying = frags_m * frags_n * 2.0 * f64::from(shape.m * shape.n) * depth / peak;
    let latency = machine.memory_latency_ns;
    let alone = latency
        * (p.step_latencies * overlap
            + p.load_latencies * loads
            + p.dequantize_latencies * dequantized
            + p.global_fragment_latencies * global_frags)
        + p.lone_subgroup_time_ratio * multiplying;
    let queued = group_loads * load_a_ratio * f64::from(tile.k_split) * concurrent * 16.0 * units
        / (cache * p.unit_cache_bandwidth_fraction);
    let waiting = rounds * steps * alone.max(queued);
    let epilogue = rounds * frags_m * frags_n / f64::from(epilogue_frags)
        * p.epilogue_ns
        * (1.0 + p.extra_split_epilogue_fraction * f64::from(tile.k_split - 1));
    let traffic = problem.traffic() as f64 / machine.bandwidth_gb_s.max(1e-3);
    let time = computing.max(reading).max(waiting).max(traffic) + epilogue;
    let b_source = if staged { "workgroup memory" } else { "global memory" };
    Some(Candidate {
        knobs: config.knobs(),
        cost: time + p.fixed_ns + machine.launch_us * 1e3,
        reason: format!(
            "matrix units, {groups} tiles of {tile_m}x{tile_n} for {m}x{n}x{k}, {steps} steps of {} along K by {} subgroups, b from {b_source}",
            tile_k * tile.k_split,
            subgroups * tile.k_split
        ),
    })
}

/// Cost parameters. All are positive.
///
/// A tile of height `h` and width `w` reaches the share `peak_ratio * s / (s + half_peak_tile_side)` of the peak, where
/// `s = h w / (h + w)`. Fragments per subgroup enter in the same way. `latencies` are multiples of the memory latency.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Params {
    /// Value of `s` of a subgroup's fragments, in fragments, at which half of `peak_ratio` is reached.
    half_peak_frags_side: f64,
    /// Value of `s` of a tile, in elements, at which half of `peak_ratio` is reached.
    half_peak_tile_side: f64,
    /// Memory latencies per vector of eight dequantized elements.
    dequantize_latencies: f64,
    /// Memory latencies per fragment that is loaded from global memory.
    global_fragment_latencies: f64,
    /// Fixed nanoseconds: loading the first K-tile and finishing the last store.
    fixed_ns: f64,
    /// Nanoseconds for passing one row of fragments through workgroup memory to the epilogue.
    epilogue_ns: f64,
    /// Memory latencies per load of 16 bytes.
    load_latencies: f64,
    /// Fraction of `step_latencies` that remains with two K-tiles in workgroup memory; 0 to 1.
    double_buffered_step_fraction: f64,
    /// Fraction of `epilogue_ns` that every further K split adds.
    extra_split_epilogue_fraction: f64,
    /// Ratio of the time that one subgroup's matrix instructions take to their time at the compute unit's peak.
    lone_subgroup_time_ratio: f64,
    /// Ratio to the peak FLOP/s that an infinite tile would reach. It may exceed 1,
    /// because it is extrapolated.
    peak_ratio: f64,
    /// Ratio of the bandwidth of all tiles together to the machine's cache bandwidth.
    cache_bandwidth_ratio: f64,
    /// Memory latencies of a step without its loads.
    step_latencies: f64,
    /// Fraction of the cache bandwidth that the loads of the workgroups on one compute unit reach; 0 to 1.
    unit_cache_bandwidth_fraction: f64,
}

impl Parameters for Params {
    const GROUP: &str = "coop";
}

/// Bytes of workgroup memory of a configuration.
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
