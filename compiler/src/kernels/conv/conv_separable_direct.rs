//! `conv_separable_direct.wgsl`: depthwise separable convolution (depthwise, then pointwise). The depthwise result
//! stays in registers.

use serde::Deserialize;

use super::depthwise;
use super::separable::{self, Blocks, Shape, launch, packed, shape, tiles};
use crate::error::OpError;
use crate::ir::op::Op;
use crate::kernels::cost::{Estimate, Parameters, waiting};
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel, config};
use crate::kernels::shared::window::{fits, grid, group_shape, spatial, workgroups};
use crate::shader::LaunchDraft;
use crate::shader::problem::Problem;

pub(crate) const KERNEL: Kernel = Kernel {
    name: "conv_separable_direct",
    wgsl: concat!(
        include_str!("../shared/preludes/window.wgsl"),
        include_str!("../shared/preludes/image_sizes.wgsl"),
        include_str!("../shared/preludes/image_hooks_2d.wgsl"),
        include_str!("../shared/preludes/separable_filters.wgsl"),
        include_str!("conv_separable_direct.wgsl")
    ),
    candidates: |problem| separable::candidates(problem, BLOCKS, candidate),
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::from_parameters::<Params>()],
    in_place: InPlace::Epilogue,
};

config! {
    /// Configuration of the kernel `conv_separable_direct`.
    struct Config {
        /// Number of invocations of a workgroup along x.
        GROUP_X => group_x: u32,
        /// Number of invocations of a workgroup along y.
        GROUP_Y => group_y: u32,
        /// Number of neighboring output pixels that an invocation computes.
        RUN => run: u32,
        /// Number of output slices (of four channels) that an invocation computes.
        COLS => cols: u32,
    }
}

/// Cost parameters of the kernel `conv_separable_direct`. All are positive.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Fixed time before the first and after the last input slice (of four channels) is processed, in memory latencies.
    fixed_latencies: f64,
    /// Number of reads of pointwise filters per input slice and output slice (of four channels). A read that hits in
    /// the cache counts as a fraction of a read.
    slice_filter_reads: f64,
    /// Fraction of the f32 peak that the depthwise convolution reaches, before the factors for reuse, register pressure
    /// and occupancy. 0 to 1.
    depthwise_peak_fraction: f64,
    /// Fraction of the f32 peak that the pointwise convolution reaches, before the factors for reuse, register pressure
    /// and occupancy. 0 to 1.
    pointwise_peak_fraction: f64,
    /// Time of one read of a pixel or filter in the depthwise convolution, in memory latencies.
    depthwise_read_latencies: f64,
    /// Time to process an input slice (of four channels), without the depthwise reads, in memory latencies.
    slice_latencies: f64,
    /// Number of vec4 registers per invocation up to which occupancy is full.
    full_occupancy_vec4s: f64,
}

impl Parameters for Params {
    const GROUP: &str = "conv_separable_direct";
}

/// Blocks that are tried: number of pixels per invocation, and maximum number of output slices per invocation.
const BLOCKS: &[[u32; 2]] = &[[1, 4], [1, 8], [1, 16], [2, 4], [2, 8], [4, 2], [4, 4], [4, 8]];

/// Returns the candidate for a block size, or `None` if it exceeds a limit of the device.
fn candidate(
    p: &Params,
    problem: &Problem<'_>,
    shape: &Shape,
    [run, max_cols]: [u32; 2],
) -> Option<Candidate> {
    let (machine, limits) = (&problem.target.machine, &problem.target.limits);
    let windows = &shape.windows;
    // Minimum number of blocks, of equal size: each block computes the depthwise results again.
    let blocks = shape.outputs.div_ceil(max_cols);
    let cols = shape.outputs.div_ceil(blocks);
    let [across, down, _] = tiles(problem, shape, [run, 1, cols]).map(|d| problem.max(&d));
    let wanted = problem.target.prefer.workgroup_invocations;
    let [gx, gy] = group_shape(wanted, limits.max_workgroup_invocations, across, down);
    let groups = workgroups(problem, [across, down, i64::from(blocks)], [gx, gy])?;
    let span = depthwise::span(windows, run);
    let fitting = packed(problem, cols).ok()?.iter().all(|p| fits(problem, p));
    if !fitting || span > depthwise::MAX_SPAN {
        return None;
    }
    let [run_f, cols_f, slices_in] = [run, cols, shape.inputs].map(f64::from);
    let lanes = f64::from(gx * gy) * groups.iter().map(|g| *g as f64).product::<f64>();
    let resident = machine.invocations();
    // Several independent sums per invocation hide latency like more invocations.
    let occupancy = (lanes * (run_f * cols_f).min(4.0) / resident).clamp(0.001, 1.0);
    // The depthwise convolution is estimated as in `depthwise`, the pointwise one as in `conv`, with pixels in
    // registers.
    let taps = windows.taps() as f64;
    let reads_per_vec4 = if problem.operands[0].is_slices4() { 1.0 } else { 4.0 };
    let lines = (windows.kernel[1] * span) as f64;
    let work = run_f * taps;
    let depthwise = lanes * slices_in * work * 8.0
        / (p.depthwise_peak_fraction * work / (work + lines * reads_per_vec4 + taps));
    let reuse = 4.0 * run_f / (4.0 * run_f + p.slice_filter_reads);
    let pointwise = lanes * slices_in * run_f * cols_f * 32.0 / (p.pointwise_peak_fraction * reuse);
    let vectors = run_f * cols_f + (span as f64 + run_f).max(run_f + 4.0) + 2.0;
    let pressure = if vectors > p.full_occupancy_vec4s { p.full_occupancy_vec4s / vectors } else { 1.0 };
    // Each workgroup reads its pixels with a border, once per block.
    let border = |size: u32, i: usize| {
        let pixels =
            (size as usize - 1) * windows.stride[i] + (windows.kernel[i] - 1) * windows.dilation[i] + 1;
        pixels as f64
    };
    let element = problem.operands[0].dtype.on_device().bytes() as f64;
    let count = groups.iter().map(|g| *g as f64).product::<f64>();
    let read = border(gx * run, 2) * border(gy, 1) + taps + cols_f * 4.0;
    let latencies =
        slices_in * (p.depthwise_read_latencies * (lines + taps) + p.slice_latencies) + p.fixed_latencies;
    let estimate = Estimate {
        memory: problem.traffic() as f64 / machine.bandwidth_gb_s.max(1e-3),
        cache: count * read * slices_in * 4.0 * element / machine.cache_bandwidth_gb_s.max(1e-3),
        compute: (depthwise + pointwise) / (machine.peak.f32 * occupancy * pressure),
        latency: waiting(problem, lanes, latencies),
        ..Estimate::for_dispatches(problem, 1.0)
    };
    let [_, height, width] = spatial(&problem.result.shape).map(|d| problem.max(&d));
    let reason = format!(
        "image of {width}x{height} pixels; {run} pixels and {cols} output slices per invocation, {lanes} invocations in workgroups of {gx}x{gy}; the depthwise convolution is computed {blocks} times and is {:.0} % of the work; occupancy {:.0} %",
        depthwise / (depthwise + pointwise) * 100.0,
        occupancy * 100.0
    );
    Some(Candidate::new(&Config { group_x: gx, group_y: gy, run, cols }, estimate, reason))
}

fn launches(problem: &Problem<'_>, config: Config) -> Result<Vec<LaunchDraft>, OpError> {
    let Op::SeparableConv(op) = problem.op else {
        return Err(OpError::new("the operator is not a separable convolution"));
    };
    let shape = shape(op, problem).ok_or_else(|| OpError::new("the filters must be constant"))?;
    let Config { group_x: gx, group_y: gy, run, cols: slices } = config;
    let grid = grid(tiles(problem, &shape, [run, 1, slices]), [gx, gy], 1);
    launch(problem, &config, &KERNEL, Blocks { run, slices, memory: 0, grid })
}
