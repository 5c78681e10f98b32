//! `conv_separable.wgsl`: depthwise separable convolution (depthwise, then pointwise). The depthwise result passes
//! through workgroup memory in tiles.

use serde::Deserialize;

use super::depthwise;
use super::separable::{self, Blocks, Shape, launch, packed, shape, tiles};
use crate::error::OpError;
use crate::ir::op::Op;
use crate::kernels::cost::{Estimate, Parameters, waiting};
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel, config};
use crate::kernels::shared::window::{fits, groups_for, spatial};
use crate::shader::problem::Problem;
use crate::shader::{Grid, LaunchDraft};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "conv_separable",
    wgsl: concat!(
        include_str!("../shared/preludes/window.wgsl"),
        include_str!("../shared/preludes/image_sizes.wgsl"),
        include_str!("../shared/preludes/image_hooks_2d.wgsl"),
        include_str!("../shared/preludes/separable_filters.wgsl"),
        include_str!("conv_separable.wgsl")
    ),
    candidates: |problem| separable::candidates(problem, BLOCKS, candidate),
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::from_parameters::<Params>()],
    in_place: InPlace::Epilogue,
};

config! {
    /// Configuration of the kernel `conv_separable`.
    struct Config {
        /// Number of output pixels along x of the tile that a workgroup computes.
        TILE_X => tile_x: u32,
        /// Number of output pixels along y of the tile that a workgroup computes.
        TILE_Y => tile_y: u32,
        /// Number of pixels that an invocation computes in the pointwise convolution.
        ROWS => rows: u32,
        /// Number of output slices (of four channels) that an invocation computes.
        COLS => cols: u32,
        /// Number of invocations of a workgroup along output slices.
        LANES => lanes: u32,
        /// Number of input slices (of four channels) per step of a workgroup.
        DEPTH => depth: u32,
        /// Number of neighboring pixels that an invocation computes in the depthwise convolution.
        RUN => run: u32,
    }
}

/// Cost parameters of the kernel `conv_separable`. All are positive.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Number of loads that an invocation has in flight. With more loads in flight, fewer invocations occupy the device.
    concurrent_loads: f64,
    /// Time of a step, which processes DEPTH input slices (of four channels), without the depthwise reads, in memory latencies.
    chunk_latencies: f64,
    /// Fixed time before the first step and after the last step, in memory latencies. A step processes DEPTH input slices.
    fixed_latencies: f64,
    /// Fraction of the f32 peak that the depthwise convolution reaches, before the factors for reuse, register pressure
    /// and occupancy. 0 to 1.
    depthwise_peak_fraction: f64,
    /// Fraction of the f32 peak that the pointwise convolution reaches, before the factors for reuse, register pressure
    /// and occupancy. 0 to 1.
    pointwise_peak_fraction: f64,
    /// Time of one read of a pixel or filter in the depthwise convolution, in memory latencies.
    depthwise_read_latencies: f64,
    /// Time to store a vec4 of the result, in memory latencies.
    store_latencies: f64,
    /// Number of vec4 registers per invocation up to which occupancy is full.
    full_occupancy_vec4s: f64,
}

impl Parameters for Params {
    const GROUP: &str = "conv_separable";
}

/// Blocks that are tried: pixels per tile, pixels and output slices per invocation, maximum invocations along output
/// slices, and neighboring pixels per invocation in the depthwise convolution.
const BLOCKS: &[[u32; 5]] = &[
    [16, 4, 1, 16, 2],
    [16, 2, 1, 8, 2],
    [32, 4, 1, 8, 2],
    [32, 4, 1, 16, 2],
    [32, 2, 2, 8, 2],
    [32, 4, 2, 8, 4],
    [32, 4, 4, 8, 4],
    [64, 4, 1, 4, 2],
    [64, 4, 1, 8, 2],
    [64, 4, 2, 8, 2],
    [64, 4, 2, 8, 4],
    [64, 8, 2, 8, 4],
    [64, 4, 4, 16, 4],
    [128, 8, 2, 4, 4],
];

/// Shapes of a tile that are tried: pixels along x and y.
const SIDES: &[[u32; 2]] = &[
    [4, 4],
    [8, 2],
    [16, 1],
    [8, 4],
    [4, 8],
    [16, 2],
    [32, 1],
    [8, 8],
    [16, 4],
    [64, 1],
    [16, 8],
    [8, 16],
    [128, 1],
];

/// Returns the candidate for a block size, or `None` if it exceeds a limit of the device.
fn candidate(p: &Params, problem: &Problem<'_>, shape: &Shape, block: [u32; 5]) -> Option<Candidate> {
    let (config, groups) = configuration(problem, shape, block)?;
    let machine = &problem.target.machine;
    let Config { tile_x: x, tile_y: y, rows, cols, lanes, depth, .. } = config;
    let [rows_f, cols_f] = [rows, cols].map(f64::from);
    let subgroup = problem.target.subgroup.preferred.max(1);
    let invocations = groups * f64::from(config.threads().next_multiple_of(subgroup));
    let resident = machine.invocations();
    // Several independent sums per invocation hide latency like more invocations.
    let occupancy =
        (p.concurrent_loads * invocations * (rows_f * cols_f).min(4.0) / resident).clamp(0.001, 1.0);
    let [depthwise, pointwise] = peak_operations(p, problem, shape, config, invocations);
    let (span, run) = (depthwise::span(&shape.windows, config.run) as f64, f64::from(config.run));
    let vectors = rows_f * cols_f + (span + run).max(rows_f + 6.0);
    let pressure = if vectors > p.full_occupancy_vec4s { p.full_occupancy_vec4s / vectors } else { 1.0 };
    let cached_bytes = cached_bytes(problem, shape, config, groups);
    let estimate = Estimate {
        memory: problem.traffic() as f64 / machine.bandwidth_gb_s.max(1e-3),
        cache: cached_bytes / machine.cache_bandwidth_gb_s.max(1e-3),
        compute: (depthwise + pointwise) / (machine.peak.f32 * occupancy * pressure),
        latency: waiting(problem, invocations, latencies(p, shape, config)),
        ..Estimate::for_dispatches(problem, 1.0)
    };
    let blocks = shape.outputs.div_ceil(lanes * cols);
    let reason = format!(
        "tiles of {x}x{y} pixels and {} output slices per workgroup of {} invocations, {depth} input slices per step; the depthwise convolution is computed {blocks} times and is {:.0} % of the work; occupancy {:.0} %",
        lanes * cols,
        config.threads(),
        depthwise / (depthwise + pointwise) * 100.0,
        occupancy * 100.0
    );
    Some(Candidate::new(&config, estimate, reason))
}

/// Returns the configuration of a block size and its number of workgroups, or `None` if it exceeds a limit of the device.
fn configuration(
    problem: &Problem<'_>,
    shape: &Shape,
    [pixels, rows, cols, max_lanes, run]: [u32; 5],
) -> Option<(Config, f64)> {
    let limits = &problem.target.limits;
    // Minimum number of blocks, of equal size: each block computes the depthwise results again.
    let blocks = shape.outputs.div_ceil(cols * max_lanes);
    let lanes = shape.outputs.div_ceil(blocks * cols);
    let [_, height, width] = spatial(&problem.result.shape).map(|d| problem.max(&d));
    let [x, y] = *SIDES
        .iter()
        .filter(|[x, y]| x * y == pixels && x.is_multiple_of(run))
        .min_by_key(|[x, y]| groups_for(width, *x) * groups_for(height, *y))?;
    // The depth follows from the number of invocations, which does not depend on it.
    let mut config = Config { tile_x: x, tile_y: y, rows, cols, lanes, depth: 1, run };
    let threads = config.threads();
    config.depth = (threads * run / pixels).next_power_of_two().clamp(2, 8).min(shape.inputs);
    let memory = config.depth * pixels * 16;
    let groups = tiles(problem, shape, [x, y, lanes * cols]).map(|d| problem.max(&d));
    let too_many = groups.iter().zip(limits.max_workgroup_count).any(|(g, limit)| *g > i64::from(limit));
    let max_threads = limits.max_workgroup_invocations.min(limits.max_workgroup_size[0]);
    let packed = packed(problem, lanes * cols).ok()?;
    if too_many
        || threads > max_threads
        || memory > limits.max_workgroup_memory
        || depthwise::span(&shape.windows, run) > depthwise::MAX_SPAN
        || !packed.iter().all(|p| fits(problem, p))
    {
        return None;
    }
    Some((config, groups.iter().map(|g| *g as f64).product()))
}

impl Config {
    /// Invocations per workgroup.
    fn threads(self) -> u32 {
        self.tile_x * self.tile_y / self.rows.max(1) * self.lanes
    }

    /// Returns the number of rounds in which a workgroup computes the depthwise convolution of DEPTH input slices. In a
    /// round, each invocation computes RUN pixels of one slice.
    fn rounds(self) -> f64 {
        let [depth, pixels, run] = [self.depth, self.tile_x * self.tile_y, self.run].map(f64::from);
        (depth * pixels / run / f64::from(self.threads())).ceil()
    }
}

/// Returns the floating-point operations of the depthwise and of the pointwise convolution, each divided by the
/// fraction of the f32 peak that it reaches.
fn peak_operations(
    p: &Params,
    problem: &Problem<'_>,
    shape: &Shape,
    config: Config,
    invocations: f64,
) -> [f64; 2] {
    let windows = &shape.windows;
    let [slices_in, rows, cols, run, depth] =
        [shape.inputs, config.rows, config.cols, config.run, config.depth].map(f64::from);
    // The depthwise convolution is estimated as in `depthwise`.
    let chunks = (slices_in / depth).ceil();
    let taps = windows.taps() as f64;
    let reads_per_vec4 = if problem.operands[0].is_slices4() { 1.0 } else { 4.0 };
    let reads = (windows.kernel[1] * depthwise::span(windows, config.run)) as f64 * reads_per_vec4 + taps;
    let work = run * taps;
    let depthwise_flops = invocations * chunks * config.rounds() * work * 8.0;
    let depthwise_efficiency = p.depthwise_peak_fraction * work / (work + reads);
    // The pointwise convolution is estimated as in `matmul`: pixels from workgroup memory, filters from memory for each lane.
    let pointwise_flops = invocations * rows * cols * slices_in * 32.0;
    let reuse = 1.0 / (1.0 / rows + 0.25 / cols);
    let pointwise_efficiency = p.pointwise_peak_fraction * reuse / (reuse + 1.0);
    [depthwise_flops / depthwise_efficiency, pointwise_flops / pointwise_efficiency]
}

/// Returns the bytes that `groups` workgroups read from the cache. Each workgroup reads the input pixels of its tile
/// with a border, and the filters for its output slices.
fn cached_bytes(problem: &Problem<'_>, shape: &Shape, config: Config, groups: f64) -> f64 {
    let windows = &shape.windows;
    let border = |tile: u32, i: usize| {
        ((tile as usize - 1) * windows.stride[i] + (windows.kernel[i] - 1) * windows.dilation[i] + 1) as f64
    };
    let element = problem.operands[0].dtype.on_device().bytes() as f64;
    let filters = f64::from(config.lanes * config.cols) * 4.0;
    let read = border(config.tile_x, 2) * border(config.tile_y, 1) + windows.taps() as f64 + filters;
    groups * read * f64::from(shape.inputs) * 4.0 * element
}

/// Returns the time that an invocation waits for loads and stores, in memory latencies.
fn latencies(p: &Params, shape: &Shape, config: Config) -> f64 {
    let windows = &shape.windows;
    let chunks = (f64::from(shape.inputs) / f64::from(config.depth)).ceil();
    let lines = (windows.kernel[1] * depthwise::span(windows, config.run)) as f64;
    let reading = config.rounds() * (lines + windows.taps() as f64);
    p.fixed_latencies
        + chunks * (p.chunk_latencies + p.depthwise_read_latencies * reading)
        + p.store_latencies * f64::from(config.rows) * f64::from(config.cols)
}

fn launches(problem: &Problem<'_>, config: Config) -> Result<Vec<LaunchDraft>, OpError> {
    let Op::SeparableConv(op) = problem.op else {
        return Err(OpError::new("the operator is not a separable convolution"));
    };
    let shape = shape(op, problem).ok_or_else(|| OpError::new("the filters must be constant"))?;
    let Config { tile_x: x, tile_y: y, cols, lanes, depth, run, .. } = config;
    let groups = tiles(problem, &shape, [x, y, cols * lanes]);
    let grid = Grid { groups, workgroup: [config.threads(), 1, 1] };
    let memory = depth * x * y * 16;
    launch(problem, &config, &KERNEL, Blocks { run, slices: cols * lanes, memory, grid })
}
