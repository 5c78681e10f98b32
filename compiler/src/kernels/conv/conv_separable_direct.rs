//! `conv_separable_direct.wgsl`: a depthwise convolution and the pointwise convolution behind it, pixel by pixel.

use serde::Deserialize;

use super::conv_separable::{self, Blocks, Shape, packed, shape, tiles};
use super::depthwise;
use crate::error::OpError;
use crate::ir::op::Op;
use crate::kernels::cost::{Parameters, waiting};
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::kernels::shared::window::{fits, grid, group_shape, spatial, workgroups};
use crate::shader::Launch;
use crate::shader::problem::Problem;

pub(crate) const KERNEL: Kernel = Kernel {
    name: "conv_separable_direct",
    wgsl: include_str!("conv_separable_direct.wgsl"),
    candidates,
    launches,
    matrices: None,
    params: &[Group::of::<Params>()],
    in_place: InPlace::Epilogue,
};

/// Parameters of the estimate; waits in latencies of memory.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Part of the arithmetic peak that the depthwise part reaches.
    reached_first: f64,
    /// The same of the products.
    reached_second: f64,
    /// Reads of a slice's filters in a step.
    filter_reads: f64,
    /// Vectors that an invocation holds before fewer of them fit.
    vectors: f64,
    /// A read of the depthwise part.
    read: f64,
    /// A slice of inputs.
    slice: f64,
    /// Before the first step and after the last.
    ends: f64,
}

impl Parameters for Params {
    const GROUP: &str = "conv_separable_direct";
}

/// Pixels and, at most, output slices per invocation.
const BLOCKS: &[[u32; 2]] = &[[1, 4], [1, 8], [1, 16], [2, 4], [2, 8], [4, 2], [4, 4], [4, 8]];

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Op::SeparableConv(op) = problem.op else { return Vec::new() };
    let Some(shape) = shape(op, problem) else { return Vec::new() };
    let Some(p) = Params::of(problem) else { return Vec::new() };
    let mut out: Vec<Candidate> = Vec::new();
    for block in BLOCKS {
        let candidate = candidate(&p, problem, &shape, *block);
        // Blocks of few slices come to the same.
        out.extend(candidate.filter(|c| out.iter().all(|known| known.knobs != c.knobs)));
    }
    out
}

/// One candidate; `None` where it exceeds a limit.
fn candidate(p: &Params, problem: &Problem<'_>, shape: &Shape, [run, most]: [u32; 2]) -> Option<Candidate> {
    let (machine, limits) = (&problem.target.machine, &problem.target.limits);
    let windows = &shape.windows;
    // As few blocks as there can be, and as even as they can be: each computes the depthwise results anew.
    let blocks = shape.outputs.div_ceil(most);
    let cols = shape.outputs.div_ceil(blocks);
    let [across, down, _] = tiles(problem, shape, [run, 1, cols]).map(|d| problem.max(&d));
    let wanted = problem.target.prefer.workgroup_invocations;
    let [gx, gy] = group_shape(wanted, limits.max_workgroup_invocations, across, down);
    let groups = workgroups(problem, [across, down, i64::from(blocks)], [gx, gy])?;
    let span = depthwise::span(windows, run);
    let fitting = packed(problem, cols).ok()?.iter().all(|p| fits(problem, p));
    if !fitting || span > depthwise::MOST_SPAN {
        return None;
    }
    let [run_f, cols_f, slices_in] = [run, cols, shape.inputs].map(f64::from);
    let lanes = f64::from(gx * gy) * groups.iter().map(|g| *g as f64).product::<f64>();
    let room = machine.invocations();
    // Sums of several vectors hide latency like more invocations do.
    let occupancy = (lanes * (run_f * cols_f).min(4.0) / room).clamp(0.001, 1.0);
    // The depthwise part as `depthwise` counts it, the products as `conv` does, with pixels in registers.
    let taps = windows.taps() as f64;
    let apart = if problem.operands[0].is_slices4() { 1.0 } else { 4.0 };
    let lines = (windows.kernel[1] * span) as f64;
    let work = run_f * taps;
    let first = lanes * slices_in * work * 8.0 / (p.reached_first * work / (work + lines * apart + taps));
    let reuse = 4.0 * run_f / (4.0 * run_f + p.filter_reads);
    let second = lanes * slices_in * run_f * cols_f * 32.0 / (p.reached_second * reuse);
    let vectors = run_f * cols_f + (span as f64 + run_f).max(run_f + 4.0) + 2.0;
    let pressure = if vectors > p.vectors { p.vectors / vectors } else { 1.0 };
    let compute = (first + second) / (machine.peak.f32 * occupancy * pressure);
    let traffic = problem.traffic() as f64 / machine.bandwidth_gb_s.max(1e-3);
    // Workgroups read the image with a border of their own, once for each block.
    let border = |size: u32, i: usize| {
        let seen =
            (size as usize - 1) * windows.stride[i] + (windows.kernel[i] - 1) * windows.dilation[i] + 1;
        seen as f64
    };
    let element = problem.operands[0].dtype.on_device().bytes() as f64;
    let count = groups.iter().map(|g| *g as f64).product::<f64>();
    let seen = border(gx * run, 2) * border(gy, 1) + taps + cols_f * 4.0;
    let cached = count * seen * slices_in * 4.0 * element / machine.cache_bandwidth_gb_s.max(1e-3);
    let waiting = waiting(problem, lanes, slices_in * (p.read * (lines + taps) + p.slice) + p.ends);
    let cost = compute.max(traffic).max(cached).max(waiting) + machine.launch_us * 1e3;
    let [_, height, width] = spatial(&problem.result.shape).map(|d| problem.max(&d));
    Some(Candidate {
        knobs: vec![("GROUP_X", gx), ("GROUP_Y", gy), ("RUN", run), ("COLS", cols)],
        cost,
        reason: format!(
            "{run} of {width}x{height} pixels and {cols} slices each for {lanes} invocations of {gx}x{gy}; the depthwise part {blocks} times, {:.0} % of the work; occupancy {:.0} %",
            first / (first + second) * 100.0,
            occupancy * 100.0
        ),
    })
}

fn launches(problem: &Problem<'_>, candidate: &Candidate) -> Result<Vec<Launch>, OpError> {
    let Op::SeparableConv(op) = problem.op else { return Err(OpError::new("not a pair of convolutions")) };
    let shape = shape(op, problem).ok_or_else(|| OpError::new("constant filters are needed"))?;
    let [gx, gy, run, slices] = ["GROUP_X", "GROUP_Y", "RUN", "COLS"].map(|n| candidate.knob(n));
    let grid = grid(tiles(problem, &shape, [run, 1, slices]), [gx, gy], 1);
    conv_separable::launch(problem, candidate, &KERNEL, Blocks { run, slices, memory: 0, grid })
}
