//! `conv.wgsl`: convolution with constant filters. Each invocation computes a block of pixels and output slices.

use serde::Deserialize;

use super::filters::UnpackedFilters;
use crate::error::OpError;
use crate::ir::dim::Dim;
use crate::ir::op::{Conv, Op};
use crate::kernels::cost::{Estimate, Parameters, waiting};
use crate::kernels::kernel::{Candidate, Configuration, Group, InPlace, Kernel, config};
use crate::kernels::shared::window::{
    Windows, constant, declare_guards, fits, grid, group_shape, known, pack_filters, read_filters, with_bias,
    workgroups,
};
use crate::shader::problem::Problem;
use crate::shader::{LaunchDraft, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "conv",
    wgsl: concat!(
        include_str!("../shared/preludes/window.wgsl"),
        include_str!("../shared/preludes/image_sizes.wgsl"),
        include_str!("../shared/preludes/image_hooks_3d.wgsl"),
        include_str!("../shared/preludes/slice_filters.wgsl"),
        include_str!("conv.wgsl")
    ),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::from_parameters::<Params>()],
    in_place: InPlace::Epilogue,
};

config! {
    /// Configuration of the kernel `conv`.
    struct Config {
        /// Number of invocations of a workgroup along x.
        GROUP_X => group_x: u32,
        /// Number of invocations of a workgroup along y.
        GROUP_Y => group_y: u32,
        /// Number of output pixels along x that an invocation computes.
        BLOCK_X => block_x: u32,
        /// Number of output pixels along y that an invocation computes.
        BLOCK_Y => block_y: u32,
        /// Number of output slices (of four channels) that an invocation computes.
        SLICES => slices: u32,
        /// Number of invocations that split the input channels of a block of pixels.
        SPLIT => split: u32,
    }
}

/// Cost parameters of the kernel `conv`. All are positive.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Fixed time before the first step and after the last step of an invocation, in memory latencies.
    fixed_latencies: f64,
    /// Number of filter reads per step and output slice (of four channels). A read that hits in the cache counts as a
    /// fraction of a read.
    slice_filter_reads: f64,
    /// Fraction of the f32 peak that the kernel reaches, before the factors for reuse, register pressure and occupancy. 0 to 1.
    peak_fraction: f64,
    /// Time of a step (one tap and four input channels) of an invocation, in memory latencies.
    step_latencies: f64,
    /// Number of vec4 registers per invocation up to which occupancy is full.
    full_occupancy_vec4s: f64,
}

impl Parameters for Params {
    const GROUP: &str = "conv";
}

/// Blocks that are tried: pixels along x, pixels along y, and output slices per invocation.
const BLOCKS: &[[u32; 3]] = &[
    [1, 1, 1],
    [1, 1, 2],
    [1, 1, 4],
    [2, 1, 1],
    [2, 1, 2],
    [2, 1, 4],
    [4, 1, 1],
    [4, 1, 2],
    [2, 2, 1],
    [2, 2, 2],
    [2, 2, 4],
    [4, 2, 2],
    [4, 1, 4],
];

/// Geometry of a convolution that the kernel `conv` can compute.
struct Shape {
    windows: Windows,
    /// Number of input slices (of four channels) per group of the convolution.
    inputs: usize,
    /// Number of output slices (of four channels) per group of the convolution.
    outputs: usize,
    groups: usize,
    /// Form of the filters; `None` if the kernel packs them.
    unpacked: Option<UnpackedFilters>,
}

fn shape(op: &Conv, problem: &Problem<'_>) -> Option<Shape> {
    let rank = problem.result.rank();
    let unpacked = UnpackedFilters::from_problem(op, problem);
    if constant(problem, 1).is_none() && unpacked.is_none() {
        return None;
    }
    if !(3..=5).contains(&rank) || !problem.computed.is_float() {
        return None;
    }
    let (c, o) = (known(&problem.operands.first()?.shape[1])?, known(&problem.result.shape[1])?);
    let whole_slices = (c / op.group).is_multiple_of(4) && (o / op.group).is_multiple_of(4);
    if op.group > 1 && !whole_slices {
        return None;
    }
    let windows = Windows::from_conv(op, problem)?;
    let (inputs, outputs) = ((c / op.group).div_ceil(4), (o / op.group).div_ceil(4));
    Some(Shape { windows, inputs, outputs, groups: op.group, unpacked })
}

/// True if the batch is the fastest index of the dispatch grid, as for results in channel slices.
fn batch_inner(problem: &Problem<'_>) -> bool {
    problem.result.is_slices4()
}

/// Returns the dispatch grid in blocks: along x, along y, and along planes (z) times output slices. If the batch is the
/// fastest index of the grid, the number of images multiplies the first entry, else the last.
fn blocks(problem: &Problem<'_>, shape: &Shape, [x, y, slices]: [u32; 3]) -> [Dim; 3] {
    let [depth, height, width] = shape.windows.sizes(&problem.result.shape);
    let batch = &problem.result.shape[0];
    let width = width.ceil_div(i64::from(x));
    let height = height.ceil_div(i64::from(y));
    let slices = depth.scale((shape.outputs * shape.groups).div_ceil(slices as usize) as i64);
    if batch_inner(problem) { [width.mul(batch), height, slices] } else { [width, height, slices.mul(batch)] }
}

/// Splits that are tried: numbers of invocations that split the input channels of a block of pixels.
const SPLITS: &[u32] = &[1, 4, 8, 16];

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Op::Conv(op) = problem.op else { return Vec::new() };
    let Some(shape) = shape(op, problem) else { return Vec::new() };
    let Some(p) = Params::from_problem(problem) else { return Vec::new() };
    let device = problem.operands[1].dtype.on_device();
    let mut out = Vec::new();
    for &block in BLOCKS {
        let slices = block[2] as usize;
        // A block of slices must lie in one group, and less than half of it may be padding.
        let divides = shape.groups == 1 || shape.outputs.is_multiple_of(slices);
        let readable = || match constant(problem, 1) {
            Some(filters) => {
                pack_filters(filters, device, op.group, slices, false).is_ok_and(|p| fits(problem, &p))
            }
            None => shape.unpacked.is_some(),
        };
        if divides && slices < 2 * shape.outputs && readable() {
            out.extend(SPLITS.iter().filter_map(|split| candidate(&p, problem, &shape, block, *split)));
        }
    }
    out
}

/// Returns the candidate for a block size and a split of the input channels. Returns `None` if it exceeds a limit of
/// the device, or if it splits the input channels although the device is occupied without a split.
fn candidate(
    p: &Params,
    problem: &Problem<'_>,
    shape: &Shape,
    block: [u32; 3],
    split: u32,
) -> Option<Candidate> {
    let machine = &problem.target.machine;
    let limits = &problem.target.limits;
    let [across, down, deep] = blocks(problem, shape, block).map(|d| problem.max(&d));
    let wanted = problem.target.prefer.workgroup_invocations;
    let [gx, gy] = group_shape(
        if split == 1 { wanted } else { (wanted * 2 / split).max(8) },
        limits.max_workgroup_invocations / split,
        across,
        down,
    );
    let groups = workgroups(problem, [across, down, deep], [gx, gy])?;
    if gx * gy * split > limits.max_workgroup_invocations || split > limits.max_workgroup_size[2] {
        return None;
    }
    let [x, y, slices] = block.map(f64::from);
    let pixels = x * y;
    let lanes = f64::from(gx * gy) * groups.iter().map(|g| *g as f64).product::<f64>();
    let needed = machine.invocations();
    // Several independent sums per invocation hide latency like more invocations.
    let concurrent = lanes * (pixels * slices).min(4.0);
    let split_f = f64::from(split);
    if split > 1 && (concurrent * split_f > needed * 2.0 || shape.inputs < 2 * split as usize) {
        return None;
    }
    let occupancy = (concurrent * split_f / needed).clamp(0.001, 1.0);
    let steps = (shape.windows.taps() * shape.inputs) as f64;
    let flops = lanes * pixels * slices * (steps * 32.0 + if split > 1 { 32.0 * split_f } else { 0.0 });
    // Per step: 4 vec4 multiply-adds per pixel and slice, and one read per pixel (4 if channels are not contiguous)
    // plus the reads of filters.
    let reads =
        pixels * if problem.operands[0].is_slices4() { 1.0 } else { 4.0 } + p.slice_filter_reads * slices;
    let reads = reads + slices * UnpackedFilters::dequantize_instructions(shape.unpacked);
    let reuse = 4.0 * pixels * slices / (4.0 * pixels * slices + reads);
    let vectors = pixels * slices + pixels + 6.0;
    let pressure = if vectors > p.full_occupancy_vec4s { p.full_occupancy_vec4s / vectors } else { 1.0 };
    let latencies = p.step_latencies * (steps / split_f).ceil() + p.fixed_latencies;
    let efficiency = p.peak_fraction * reuse * pressure * occupancy;
    let estimate = Estimate {
        latency: waiting(problem, lanes * split_f, latencies),
        ..Estimate::roofline(problem, flops, problem.traffic() as f64, efficiency)
    };
    let [block_x, block_y, slice_count] = block;
    let config = Config { group_x: gx, group_y: gy, block_x, block_y, slices: slice_count, split };
    let reason = format!(
        "{x}x{y} pixels and {slices} output slices per invocation, {} invocations in workgroups of {gx}x{gy}x{split}; occupancy {:.0} %, {:.0} % arithmetic instructions",
        lanes * split_f,
        occupancy * 100.0,
        reuse * pressure * 100.0
    );
    // Sums, inputs and a vec4 of filter weights; coordinates of each pixel.
    let vec4s = block_x * block_y * (slice_count + 1) + 1;
    Some(Candidate::new(&config, estimate, reason).with_live_values(vec4s, 2 * block_x * block_y))
}

fn launches(problem: &Problem<'_>, config: Config) -> Result<Vec<LaunchDraft>, OpError> {
    let Op::Conv(op) = problem.op else { return Err(OpError::new("the operator is not a convolution")) };
    let shape = shape(op, problem).ok_or_else(|| OpError::new("the filters must be constant"))?;
    let Config { group_x: gx, group_y: gy, block_x: x, block_y: y, slices, split } = config;
    let mut steps = Vec::new();
    let problem = &with_bias(problem, &mut steps);
    let mut shader = Shader::new(problem);
    config.declare(&mut shader);
    if split == 1 {
        let unsplit = "fn combine(v: vec4<f32>, block: u32, split_index: u32) -> vec4<f32> { return v; }";
        shader.replace("combine", unsplit.to_string());
    } else {
        shader.workgroup_memory(gx * gy * split * 16);
    }
    shape.windows.declare(&mut shader, &[0, 1, 2]);
    declare_guards(&mut shader, 0, &[0, 1, 2], shape.windows.padded());
    shader.constant("IN_SLICES", format_args!("{}u", shape.inputs));
    shader.constant("OUT_SLICES", format_args!("{}u", shape.outputs));
    shader.constant("GROUPS", format_args!("{}u", shape.groups));
    let rank = problem.result.rank();
    shape.windows.declare_image(&mut shader, &[0, 1, 2]);
    shader.constant("BATCH_INNER", batch_inner(problem));
    shader.constant("DEEP", shape.windows.deep(rank));
    // With one input slice, the guards of its lanes become constants.
    let slice = if shape.inputs * shape.groups == 1 { "0u" } else { "s" };
    let at = shape.windows.vec4_channels(rank, "b", slice, ["z", "y", "x"]);
    shader.read("src", "b: u32, z: u32, y: u32, x: u32, s: u32", "", 0, &at);
    let device = problem.operands[1].dtype.on_device();
    match (constant(problem, 1), shape.unpacked) {
        (Some(filters), _) => {
            read_filters(&mut shader, filters, device, op.group, slices as usize, false)?;
        }
        (None, Some(filters)) => filters.declare_slices(&mut shader)?,
        (None, None) => return Err(OpError::new("the filters must be constant")),
    }
    let at = shape.windows.vec4_channels(rank, "b", "s", ["z", "y", "x"]);
    shader.write("store", "b: u32, z: u32, y: u32, x: u32, s: u32", "", &at)?;
    let grid = grid(blocks(problem, &shape, [x, y, slices]), [gx, gy], split);
    let taps = problem.operands[1].shape[1].scale(shape.windows.taps() as i64);
    let flops = problem.result.elements().mul(&taps).scale(2);
    Ok(vec![shader.finish("conv", KERNEL.wgsl, grid, flops)])
}
