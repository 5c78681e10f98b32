//! `conv_constants.wgsl`: convolution with filters that are few enough for a uniform buffer.

use super::blocks::{Params, Work};
use crate::error::OpError;
use crate::ir::dim::Dim;
use crate::ir::op::{Constant, Conv, Op};
use crate::ir::tensor::DeviceType;
use crate::kernels::cost::named;
use crate::kernels::kernel::{Candidate, Configuration, Group, InPlace, Kernel, config};
use crate::kernels::shared::window::{
    Windows, constant, declare_guards, grid, group_shape, known, with_bias, workgroups,
};
use crate::shader::pack::Packed;
use crate::shader::pack::presets::HWI_O4;
use crate::shader::problem::Problem;
use crate::shader::{LaunchDraft, Shader};
use crate::target::quirks::Fault;

pub(crate) const KERNEL: Kernel = Kernel {
    name: "conv_constants",
    wgsl: concat!(
        include_str!("../shared/preludes/window.wgsl"),
        include_str!("../shared/preludes/image_sizes.wgsl"),
        include_str!("../shared/preludes/image_hooks_2d.wgsl"),
        include_str!("conv_constants.wgsl")
    ),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::named::<Params>("conv_constants")],
    in_place: InPlace::Epilogue,
};

config! {
    /// Configuration of the kernel `conv_constants`.
    struct Config {
        /// Number of invocations of a workgroup along x.
        GROUP_X => group_x: u32,
        /// Number of invocations of a workgroup along y.
        GROUP_Y => group_y: u32,
        /// Number of output pixels along x that an invocation computes.
        BLOCK_X => block_x: u32,
    }
}

/// Blocks that are tried: pixels along x per invocation, and the maximum number of output slices for which the block is tried.
const BLOCKS: &[(u32, usize)] = &[(1, 8), (2, 8), (4, 4)];

/// Geometry and packed filters of a convolution that the kernel `conv_constants` can compute.
struct Shape<'a> {
    windows: Windows,
    inputs: usize,
    /// Number of output slices (of four channels).
    slices: usize,
    filters: Packed,
    constant: &'a Constant,
}

fn shape<'a>(op: &Conv, problem: &Problem<'a>) -> Option<Shape<'a>> {
    let filters = constant(problem, 1)?;
    let (inputs, outputs) = (known(&problem.operands.first()?.shape[1])?, known(&problem.result.shape[1])?);
    let slices = outputs.div_ceil(4);
    let max_slices = BLOCKS.iter().map(|(_, slices)| *slices).max()?;
    let images = problem.computed.is_float() && (3..=4).contains(&problem.result.rank());
    if !images || op.group != 1 || slices > max_slices {
        return None;
    }
    let packed = pack(filters, problem.operands[1].dtype.on_device());
    let limits = &problem.target.limits;
    // A second uniform buffer holds the sizes.
    if packed.bytes() > limits.max_uniform_range || limits.max_uniform_buffers < 2 {
        return None;
    }
    let windows = Windows::from_conv(op, problem)?;
    Some(Shape { windows, inputs, slices, filters: packed, constant: filters })
}

/// Packs convolution filters as vec4s of output channels, one for each tap (outermost), input channel and output slice (innermost).
fn pack(filters: &Constant, device: DeviceType) -> Packed {
    let [o, i, taps @ ..] = filters.shape.as_slice() else { return Packed::dense(filters) };
    let axes = [('O', *o), ('I', *i), ('S', taps.iter().product())];
    HWI_O4.packed(filters, &axes, &[], device)
}

/// Returns the dispatch grid: blocks along x, lines (y), and images. If the batch is the fastest index of the grid, the
/// number of images multiplies the first entry instead, and the last entry is 1.
fn blocks(problem: &Problem<'_>, shape: &Shape<'_>, block: u32) -> [Dim; 3] {
    let [_, height, width] = shape.windows.sizes(&problem.result.shape);
    let (batch, width) = (problem.result.shape[0].clone(), width.ceil_div(i64::from(block)));
    match problem.result.is_slices4() {
        true => [width.mul(&batch), height, Dim::known(1)],
        false => [width, height, batch],
    }
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Op::Conv(op) = problem.op else { return Vec::new() };
    if problem.target.has_quirk(Fault::ConstantBufferSync) {
        return Vec::new();
    }
    let Some(shape) = shape(op, problem) else { return Vec::new() };
    let Some(p) = named::<Params>(problem, KERNEL.name) else { return Vec::new() };
    let blocks = BLOCKS.iter().filter(|(_, max_slices)| shape.slices <= *max_slices);
    blocks.filter_map(|(block, _)| candidate(&p, problem, &shape, *block)).collect()
}

fn candidate(p: &Params, problem: &Problem<'_>, shape: &Shape<'_>, block: u32) -> Option<Candidate> {
    let (machine, limits) = (&problem.target.machine, &problem.target.limits);
    let [across, down, images] = blocks(problem, shape, block).map(|d| problem.max(&d));
    let wanted = problem.target.prefer.workgroup_invocations;
    let [gx, gy] = group_shape(wanted, limits.max_workgroup_invocations, across, down);
    let groups = workgroups(problem, [across, down, images], [gx, gy])?;
    let (pixels, slices) = (f64::from(block), shape.slices as f64);
    let lanes = f64::from(gx * gy) * groups.iter().map(|g| *g as f64).product::<f64>();
    let taps = shape.windows.taps() as f64;
    let flops = lanes * pixels * slices * taps * shape.inputs as f64 * 8.0;
    // Per input channel: one vec4 multiply-add per pixel and slice, 1/4 read per pixel (1 if channels are not
    // contiguous), and one filter from the uniform buffer per slice.
    let reads = pixels * if problem.operands[0].is_slices4() { 0.25 } else { 1.0 }
        + machine.uniform_read_fmas * slices;
    let steps = taps * (shape.inputs as f64 / 4.0).ceil();
    let reuse = pixels * slices / (pixels * slices + reads);
    let work =
        Work { lanes, sums: pixels * slices, vectors: pixels * slices + pixels + 4.0, steps, flops, reuse };
    let (estimate, occupancy, arithmetic) = work.estimate(p, problem);
    let reason = format!(
        "{block} pixels and all {} output channels per invocation, {lanes} invocations, {} bytes of filters in a uniform buffer; occupancy {:.0} %, {:.0} % arithmetic instructions",
        shape.constant.shape[0],
        shape.filters.bytes(),
        occupancy * 100.0,
        arithmetic * 100.0
    );
    Some(Candidate::new(&Config { group_x: gx, group_y: gy, block_x: block }, estimate, reason))
}

fn launches(problem: &Problem<'_>, config: Config) -> Result<Vec<LaunchDraft>, OpError> {
    let Op::Conv(op) = problem.op else { return Err(OpError::new("the operator is not a convolution")) };
    let shape = shape(op, problem)
        .ok_or_else(|| OpError::new("the filters must be constant and fit in a uniform buffer"))?;
    let Config { group_x: gx, group_y: gy, block_x: block } = config;
    let blocks = blocks(problem, &shape, block);
    let mut steps = Vec::new();
    let problem = &with_bias(problem, &mut steps);
    let mut shader = Shader::new(problem);
    config.declare(&mut shader);
    shape.windows.declare(&mut shader, &[1, 2]);
    declare_guards(&mut shader, 0, &[1, 2], shape.windows.padded());
    shader.constant("INPUTS", format_args!("{}u", shape.inputs));
    shader.constant("SLICES", format_args!("{}u", shape.slices));
    shape.windows.declare_image(&mut shader, &[1, 2]);
    let rank = problem.result.rank();
    // With one input slice, the guards of its lanes become constants.
    let slice = if shape.inputs <= 4 { "0u" } else { "s" };
    let at = shape.windows.vec4_channels(rank, "b", slice, ["0u", "y", "x"]);
    shader.read("src", "b: u32, y: u32, x: u32, s: u32", "", 0, &at);
    let flops = problem.result.elements().mul(&Dim::from(shape.windows.taps() * shape.inputs)).scale(2);
    let vector = shader.uniform_vector(shape.filters, "i");
    shader.replace("weight", format!("fn weight(i: u32) -> vec4<f32> {{ return {vector}; }}\n"));
    let at = shape.windows.vec4_channels(rank, "b", "s", ["0u", "y", "x"]);
    shader.write("store", "b: u32, y: u32, x: u32, s: u32", "", &at)?;
    let grid = grid(blocks, [gx, gy], 1);
    Ok(vec![shader.finish("conv_constants", KERNEL.wgsl, grid, flops)])
}
