//! `conv_broadcast.wgsl`: convolution whose subgroups load each filter once and broadcast it to their invocations.

use super::blocks::{Params, Work};
use crate::error::OpError;
use crate::ir::dim::Dim;
use crate::ir::op::{Conv, Op};
use crate::kernels::cost::named;
use crate::kernels::kernel::{Candidate, Configuration, Group, InPlace, Kernel, config};
use crate::kernels::shared::window::{
    Windows, constant, declare_guards, fits, grid, group_shape, known, pack_filters, read_packed, with_bias,
    workgroups,
};
use crate::shader::problem::Problem;
use crate::shader::{Grid, LaunchDraft, Need, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "conv_broadcast",
    wgsl: concat!(
        include_str!("../shared/preludes/window.wgsl"),
        include_str!("../shared/preludes/image_sizes.wgsl"),
        include_str!("../shared/preludes/image_hooks_3d.wgsl"),
        include_str!("../shared/preludes/slice_filters.wgsl"),
        include_str!("conv_broadcast.wgsl")
    ),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::named::<Params>("conv_broadcast")],
    in_place: InPlace::Epilogue,
};

config! {
    /// Configuration of the kernel `conv_broadcast`.
    struct Config {
        /// Invocations per workgroup.
        THREADS => threads: u32,
        /// Number of invocations of a workgroup along x.
        TILE_X => tile_x: u32,
        /// Number of output pixels along x that an invocation computes.
        BLOCK_X => block_x: u32,
        /// Number of output slices (of four channels) that an invocation computes.
        SLICES => slices: u32,
    }
}

/// Blocks that are tried: pixels along x and output slices per invocation.
const BLOCKS: &[[u32; 2]] = &[[1, 1], [2, 1], [4, 1], [1, 2], [2, 2], [4, 2], [2, 4], [4, 4]];

/// Geometry of a convolution that the kernel `conv_broadcast` can compute.
struct Shape {
    windows: Windows,
    /// Number of input slices (of four channels).
    inputs: usize,
    /// Number of output slices (of four channels).
    outputs: usize,
}

fn shape(op: &Conv, problem: &Problem<'_>) -> Option<Shape> {
    constant(problem, 1)?;
    let (inputs, outputs) = (known(&problem.operands.first()?.shape[1])?, known(&problem.result.shape[1])?);
    let images = (3..=5).contains(&problem.result.rank()) && problem.computed.is_float();
    if problem.target.shuffling_subgroup().is_none() || !images || op.group != 1 {
        return None;
    }
    let windows = Windows::from_conv(op, problem)?;
    Some(Shape { windows, inputs: inputs.div_ceil(4), outputs: outputs.div_ceil(4) })
}

/// Returns the dispatch grid: blocks along x, lines (y), and planes (z) times blocks of output slices. If the batch is
/// the fastest index of the grid, the number of images multiplies the first entry, else the last.
fn blocks(problem: &Problem<'_>, shape: &Shape, [x, slices]: [u32; 2]) -> [Dim; 3] {
    let [depth, height, width] = shape.windows.sizes(&problem.result.shape);
    let (batch, width) = (&problem.result.shape[0], width.ceil_div(i64::from(x)));
    let slices = depth.scale(shape.outputs.div_ceil(slices as usize) as i64);
    match problem.result.is_slices4() {
        true => [width.mul(batch), height, slices],
        false => [width, height, slices.mul(batch)],
    }
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Op::Conv(op) = problem.op else { return Vec::new() };
    let (Some(shape), Some(filters)) = (shape(op, problem), constant(problem, 1)) else { return Vec::new() };
    let Some(p) = named::<Params>(problem, KERNEL.name) else { return Vec::new() };
    let lanes = problem.target.subgroup.preferred;
    let device = problem.operands[1].dtype.on_device();
    let able = |[_, slices]: &&[u32; 2]| {
        let packed = pack_filters(filters, device, 1, *slices as usize, false);
        let divides = lanes.is_multiple_of(slices * 4) && (*slices as usize) < 2 * shape.outputs;
        divides && packed.is_ok_and(|p| fits(problem, &p))
    };
    BLOCKS.iter().filter(able).filter_map(|block| candidate(&p, problem, &shape, *block)).collect()
}

fn candidate(p: &Params, problem: &Problem<'_>, shape: &Shape, block: [u32; 2]) -> Option<Candidate> {
    let (machine, limits) = (&problem.target.machine, &problem.target.limits);
    let subgroup = problem.target.subgroup.preferred;
    let [across, down, deep] = blocks(problem, shape, block).map(|d| problem.max(&d));
    let wanted = problem.target.prefer.workgroup_invocations.max(subgroup);
    let [gx, gy] = group_shape(wanted, limits.max_workgroup_invocations, across, down);
    let groups = workgroups(problem, [across, down, deep], [gx, gy])?;
    let threads = gx * gy;
    let divides = threads.is_multiple_of(subgroup)
        && threads / subgroup <= limits.max_workgroup_subgroups
        && threads <= limits.max_workgroup_size[0];
    if !divides {
        return None;
    }
    let [pixels, slices] = block.map(f64::from);
    let lanes = f64::from(threads) * groups.iter().map(|g| *g as f64).product::<f64>();
    let steps = (shape.windows.taps() * shape.inputs) as f64;
    let flops = lanes * pixels * slices * steps * 32.0;
    // Per step: 4 vec4 multiply-adds per pixel and slice, one read per pixel (4 if channels are not contiguous), 4
    // broadcasts per slice, and 1 / subgroup size of the reads of filters.
    let reads = pixels * if problem.operands[0].is_slices4() { 1.0 } else { 4.0 }
        + 4.0 * slices * (machine.shuffle_fmas + 1.0 / f64::from(subgroup));
    let reuse = 4.0 * pixels * slices / (4.0 * pixels * slices + reads);
    let work =
        Work { lanes, sums: pixels * slices, vectors: pixels * slices + pixels + 5.0, steps, flops, reuse };
    let (estimate, occupancy, arithmetic) = work.estimate(p, problem);
    let config = Config { threads, tile_x: gx, block_x: block[0], slices: block[1] };
    let reason = format!(
        "{pixels} pixels and {slices} output slices per invocation, {lanes} invocations; subgroups of {subgroup} broadcast filters; occupancy {:.0} %, {:.0} % arithmetic instructions",
        occupancy * 100.0,
        arithmetic * 100.0
    );
    Some(Candidate::new(&config, estimate, reason))
}

fn launches(problem: &Problem<'_>, config: Config) -> Result<Vec<LaunchDraft>, OpError> {
    let Op::Conv(op) = problem.op else { return Err(OpError::new("the operator is not a convolution")) };
    let shape = shape(op, problem).ok_or_else(|| OpError::new("the filters must be constant"))?;
    let filters = constant(problem, 1).ok_or_else(|| OpError::new("the filters must be constant"))?;
    let Config { threads, tile_x: tile, block_x: block, slices } = config;
    let subgroup = problem.target.subgroup.preferred;
    let mut steps = Vec::new();
    let problem = &with_bias(problem, &mut steps);
    let mut shader = Shader::new(problem);
    shader.needs(&[Need::Subgroups, Need::SubgroupShuffle]);
    shader.knob("LANES", subgroup);
    config.declare(&mut shader);
    // Loops are unrolled only if their bounds are literals.
    shader.knob("STEPS", subgroup / (slices * 4).max(1));
    shape.windows.declare(&mut shader, &[0, 1, 2]);
    declare_guards(&mut shader, 0, &[0, 1, 2], shape.windows.padded());
    shader.constant("IN_SLICES", format_args!("{}u", shape.inputs));
    shader.constant("OUT_SLICES", format_args!("{}u", shape.outputs));
    shape.windows.declare_image(&mut shader, &[0, 1, 2]);
    shader.constant("DEEP", shape.windows.deep(problem.result.rank()));
    let rank = problem.result.rank();
    // With one input slice, the guards of its lanes become constants.
    let slice = if shape.inputs == 1 { "0u" } else { "s" };
    let at = shape.windows.vec4_channels(rank, "b", slice, ["z", "y", "x"]);
    shader.read("src", "b: u32, z: u32, y: u32, x: u32, s: u32", "", 0, &at);
    let device = problem.operands[1].dtype.on_device();
    read_packed(&mut shader, "weight", pack_filters(filters, device, 1, slices as usize, false)?);
    let at = shape.windows.vec4_channels(rank, "b", "s", ["z", "y", "x"]);
    shader.write("store", "b: u32, z: u32, y: u32, x: u32, s: u32", "", &at)?;
    let high = (threads / tile.max(1)).max(1);
    let grid = grid(blocks(problem, &shape, [block, slices]), [tile, high], 1);
    let grid = Grid { workgroup: [threads, 1, 1], ..grid };
    let taps = Dim::from(shape.windows.taps() * filters.shape[1]);
    let flops = problem.result.elements().mul(&taps).scale(2);
    let mut launch = shader.finish("conv_broadcast", KERNEL.wgsl, grid, flops);
    launch.subgroup_size = Some(subgroup);
    Ok(vec![launch])
}
