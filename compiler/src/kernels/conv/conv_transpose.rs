//! `conv_transpose.wgsl`: transposed convolution with constant filters.

use serde::Deserialize;

use crate::error::OpError;
use crate::ir::dim::Dim;
use crate::ir::op::{ConvTranspose, Op};
use crate::kernels::cost::{Estimate, Parameters, waiting};
use crate::kernels::kernel::{Candidate, Configuration, Group, InPlace, Kernel, config};
use crate::kernels::shared::window::{
    Windows, constant, declare_guards, fits, grid, group_shape, known, pack_filters, read_filters, with_bias,
};
use crate::shader::problem::Problem;
use crate::shader::{LaunchDraft, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "conv_transpose",
    wgsl: concat!(
        include_str!("../shared/preludes/window.wgsl"),
        include_str!("../shared/preludes/image_sizes.wgsl"),
        include_str!("../shared/preludes/image_hooks_3d.wgsl"),
        include_str!("../shared/preludes/slice_filters.wgsl"),
        include_str!("conv_transpose.wgsl")
    ),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::from_parameters::<Params>()],
    in_place: InPlace::Epilogue,
};

config! {
    /// Configuration of the kernel `conv_transpose`.
    struct Config {
        /// Number of invocations of a workgroup along x.
        GROUP_X => group_x: u32,
        /// Number of invocations of a workgroup along y.
        GROUP_Y => group_y: u32,
        /// Number of output pixels along x that an invocation computes.
        BLOCK_X => block_x: u32,
        /// Number of output slices (of four channels) that an invocation computes.
        SLICES => slices: u32,
    }
}

/// Cost parameters of the kernel `conv_transpose`. All are positive.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Number of filter reads per output slice (of four channels) and step; a step is one tap and one input slice. A
    /// read that hits in the cache counts as a fraction of a read.
    slice_filter_reads: f64,
    /// Time to process one tap of one input slice (of four channels), in memory latencies. Taps that contribute nothing
    /// to the pixel take this time too.
    tap_latencies: f64,
    /// Fraction of the f32 peak that the kernel reaches, before the factors for reuse and occupancy. 0 to 1.
    peak_fraction: f64,
    /// An invocation accumulates several vec4 sums. Each sum after the first adds this fraction of `tap_latencies` to
    /// the time of a tap. 0 to 1.
    extra_sum_fraction: f64,
}

impl Parameters for Params {
    const GROUP: &str = "conv_transpose";
}

/// Blocks that are tried: pixels along x and output slices per invocation.
const BLOCKS: &[[u32; 2]] = &[[1, 1], [2, 1], [1, 2], [2, 2], [1, 4], [4, 1], [4, 2], [2, 4]];

/// Geometry of a transposed convolution that the kernel `conv_transpose` can compute.
struct Shape {
    windows: Windows,
    /// Number of input slices (of four channels) per group of the convolution.
    inputs: usize,
    /// Number of output slices (of four channels) per group of the convolution.
    outputs: usize,
}

fn shape(op: &ConvTranspose, problem: &Problem<'_>) -> Option<Shape> {
    let filters = constant(problem, 1)?;
    if !(3..=5).contains(&problem.result.rank()) || !problem.computed.is_float() {
        return None;
    }
    let (c, o) = (known(&problem.operands.first()?.shape[1])?, known(&problem.result.shape[1])?);
    let (c, o) = (c / op.group, o / op.group);
    if op.group > 1 && !(c.is_multiple_of(4) && o.is_multiple_of(4)) {
        return None;
    }
    let taps = filters.shape.get(2..)?;
    let windows = Windows::new(taps, &op.strides, &op.dilations, &op.pads_begin, &op.pads_end);
    Some(Shape { windows, inputs: c.div_ceil(4), outputs: o.div_ceil(4) })
}

/// Returns the dispatch grid: blocks along x, lines (y), and planes (z) times blocks of output slices. The pixels of a
/// block are one stride apart along x (they have the same phase). If the batch is the fastest index of the grid, the
/// number of images multiplies the first entry, else the last.
fn blocks(problem: &Problem<'_>, op: &ConvTranspose, shape: &Shape, [x, slices]: [u32; 2]) -> [Dim; 3] {
    let [depth, height, width] = shape.windows.sizes(&problem.result.shape);
    let batch = &problem.result.shape[0];
    let stride = shape.windows.stride[2] as i64;
    let width = width.ceil_div(stride.saturating_mul(i64::from(x))).scale(stride);
    let slices = depth.scale((shape.outputs * op.group).div_ceil(slices as usize) as i64);
    if problem.result.is_slices4() {
        [width.mul(batch), height, slices]
    } else {
        [width, height, slices.mul(batch)]
    }
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Op::ConvTranspose(op) = problem.op else { return Vec::new() };
    let (Some(shape), Some(filters)) = (shape(op, problem), constant(problem, 1)) else { return Vec::new() };
    let Some(p) = Params::from_problem(problem) else { return Vec::new() };
    let machine = &problem.target.machine;
    let limits = &problem.target.limits;
    let device = problem.operands[1].dtype.on_device();
    let phases = shape.windows.stride.iter().product::<usize>() as f64;
    let mut out = Vec::new();
    for &block in BLOCKS {
        let [x, slices] = block;
        let divides = op.group == 1 || shape.outputs.is_multiple_of(slices as usize);
        let packed = pack_filters(filters, device, op.group, slices as usize, true);
        if !divides || slices as usize >= 2 * shape.outputs || packed.is_ok_and(|p| !fits(problem, &p)) {
            continue;
        }
        let [across, down, deep] = blocks(problem, op, &shape, block).map(|d| problem.max(&d));
        let [gx, gy] = group_shape(
            problem.target.prefer.workgroup_invocations,
            limits.max_workgroup_invocations,
            across,
            down,
        );
        let groups = [across / i64::from(gx) + 1, down / i64::from(gy) + 1, deep];
        if groups.iter().zip(limits.max_workgroup_count).any(|(g, limit)| *g > i64::from(limit)) {
            continue;
        }
        let lanes = (across * down * deep) as f64;
        let (pixels, slices) = (f64::from(x), f64::from(slices));
        let steps = (shape.windows.taps() * shape.inputs) as f64 / phases;
        let flops = lanes * pixels * slices * steps * 32.0;
        let reads =
            pixels * if problem.operands[0].is_slices4() { 1.0 } else { 4.0 } + p.slice_filter_reads * slices;
        let reuse = 4.0 * pixels * slices / (4.0 * pixels * slices + reads);
        let wanted = machine.invocations();
        let occupancy = (lanes * (pixels * slices).min(4.0) / wanted).clamp(0.01, 1.0);
        // Each tap of each input slice is a step, also if it contributes nothing. Several sums per invocation make it
        // longer.
        let tap_steps = (shape.windows.taps() * shape.inputs) as f64;
        let latencies = p.tap_latencies * tap_steps * (1.0 + p.extra_sum_fraction * (pixels * slices - 1.0));
        let efficiency = p.peak_fraction * reuse * occupancy;
        let estimate = Estimate {
            latency: waiting(problem, lanes, latencies),
            ..Estimate::roofline(problem, flops, problem.traffic() as f64, efficiency)
        };
        let reason = format!(
            "{x} pixels and {slices} output slices per invocation, {lanes} invocations in workgroups of {gx}x{gy}; occupancy {:.0} %, {:.0} % arithmetic instructions",
            occupancy * 100.0,
            reuse * 100.0
        );
        let config = Config { group_x: gx, group_y: gy, block_x: x, slices: block[1] };
        out.push(Candidate::new(&config, estimate, reason));
    }
    out
}

fn launches(problem: &Problem<'_>, config: Config) -> Result<Vec<LaunchDraft>, OpError> {
    let Op::ConvTranspose(op) = problem.op else {
        return Err(OpError::new("the operator is not a transposed convolution"));
    };
    let shape = shape(op, problem).ok_or_else(|| OpError::new("the filters must be constant"))?;
    let filters = constant(problem, 1).ok_or_else(|| OpError::new("the filters must be constant"))?;
    let Config { group_x: gx, group_y: gy, block_x: x, slices } = config;
    let mut steps = Vec::new();
    let problem = &with_bias(problem, &mut steps);
    let mut shader = Shader::new(problem);
    config.declare(&mut shader);
    shape.windows.declare(&mut shader, &[0, 1, 2]);
    declare_guards(&mut shader, 0, &[0, 1, 2], [problem.result.rank() == 5, true, true]);
    shader.constant("IN_SLICES", format_args!("{}u", shape.inputs));
    shader.constant("OUT_SLICES", format_args!("{}u", shape.outputs));
    shader.constant("GROUPS", format_args!("{}u", op.group));
    shape.windows.declare_image(&mut shader, &[0, 1, 2]);
    shader.constant("DEEP", shape.windows.deep(problem.result.rank()));
    let at = shape.windows.vec4_channels(problem.result.rank(), "b", "s", ["z", "y", "x"]);
    shader.read("src", "b: u32, z: u32, y: u32, x: u32, s: u32", "", 0, &at);
    let device = problem.operands[1].dtype.on_device();
    read_filters(&mut shader, filters, device, op.group, slices as usize, true)?;
    shader.write("store", "b: u32, z: u32, y: u32, x: u32, s: u32", "", &at)?;
    let grid = grid(blocks(problem, op, &shape, [x, slices]), [gx, gy], 1);
    // Every input pixel is multiplied by every tap once.
    let flops =
        problem.operands[0].elements().mul(&Dim::from(shape.windows.taps() * filters.shape[1])).scale(2);
    Ok(vec![shader.finish("conv_transpose", KERNEL.wgsl, grid, flops)])
}
