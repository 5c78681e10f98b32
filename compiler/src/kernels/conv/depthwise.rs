//! `depthwise.wgsl`: convolutions with one filter per channel.

use serde::Deserialize;

use crate::error::OpError;
use crate::ir::dim::Dim;
use crate::ir::op::{Constant, Conv, Op};
use crate::ir::tensor::DeviceType;
use crate::kernels::cost::{Parameters, roofline, waiting};
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::kernels::shared::window::{
    Windows, constant, declare_guards, fits, grid, group_shape, known, with_bias,
};
use crate::shader::pack::Packed;
use crate::shader::pack::presets::CHW_C4;
use crate::shader::problem::Problem;
use crate::shader::{Launch, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "depthwise",
    wgsl: include_str!("depthwise.wgsl"),
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
    /// Part of the arithmetic peak that is reached.
    reached: f64,
    /// A read.
    read: f64,
}

impl Parameters for Params {
    const GROUP: &str = "depthwise";
}

/// Pixels per invocation.
const BLOCKS: &[u32] = &[1, 2, 4];

/// Most vectors of a line kept at once.
pub(super) const MOST_SPAN: usize = 24;

fn windows(op: &Conv, problem: &Problem<'_>) -> Option<Windows> {
    let filters = constant(problem, 1)?;
    let channels = known(&problem.result.shape[1])?;
    let one_each = op.group == channels && filters.shape[..2] == [channels, 1];
    let fitting = (3..=5).contains(&problem.result.rank()) && problem.computed.is_float();
    if one_each && fitting { Windows::of_conv(op, problem) } else { None }
}

/// Pixels of a line under the windows of neighbouring pixels.
pub(super) fn span(windows: &Windows, block: u32) -> usize {
    (block as usize - 1) * windows.stride[2] + (windows.kernel[2] - 1) * windows.dilation[2] + 1
}

/// Pixels of all lines under them.
fn lines(windows: &Windows, span: usize) -> f64 {
    (windows.kernel[0] * windows.kernel[1] * span) as f64
}

/// Filters as a vector of four channels per slice and tap.
pub(super) fn pack(filters: &Constant, device: DeviceType) -> Packed {
    let taps = filters.shape.iter().skip(2).product();
    CHW_C4.of(filters, &[('C', filters.shape[0]), ('S', taps)], &[], device)
}

/// Blocks of pixels along x (times images, when they are fastest), lines, and slices of all planes (times images).
fn blocks(problem: &Problem<'_>, windows: &Windows, block: u32) -> [Dim; 3] {
    let [depth, height, width] = windows.sizes(&problem.result.shape);
    let batch = &problem.result.shape[0];
    let width = width.ceil_div(i64::from(block));
    let slices = problem.result.shape[1].ceil_div(4).mul(&depth);
    if problem.result.is_slices4() {
        [width.mul(batch), height, slices]
    } else {
        [width, height, slices.mul(batch)]
    }
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Op::Conv(op) = problem.op else { return Vec::new() };
    let Some(windows) = windows(op, problem) else { return Vec::new() };
    let Some(p) = Params::of(problem) else { return Vec::new() };
    let filters = constant(problem, 1).map(|w| pack(w, problem.operands[1].dtype.on_device()));
    if filters.is_none_or(|p| !fits(problem, &p)) {
        return Vec::new();
    }
    let limits = &problem.target.limits;
    let machine = &problem.target.machine;
    let mut out = Vec::new();
    for &block in BLOCKS {
        let span = span(&windows, block);
        if block > 1 && span > MOST_SPAN || span > 4 * MOST_SPAN {
            continue;
        }
        let [across, down, deep] = blocks(problem, &windows, block).map(|d| problem.max(&d));
        let [gx, gy] = group_shape(
            problem.target.prefer.workgroup_invocations,
            limits.max_workgroup_invocations,
            across,
            down,
        );
        let most = limits.max_workgroup_count;
        if across / i64::from(gx) >= i64::from(most[0])
            || down / i64::from(gy) >= i64::from(most[1])
            || deep > i64::from(most[2])
        {
            continue;
        }
        let lanes = (across * down * deep) as f64;
        let taps = windows.taps() as f64;
        let work = f64::from(block) * taps;
        // Against each multiply-add of vectors: a read per pixel of the lines (four where channels are not
        // neighbours) and one per tap.
        let apart = if problem.operands[0].is_slices4() { 1.0 } else { 4.0 };
        let reads = lines(&windows, span) * apart + taps;
        let flops = lanes * work * 8.0;
        let wanted = machine.invocations();
        let occupancy = (lanes * f64::from(block) / wanted).clamp(0.02, 1.0);
        let efficiency = p.reached * occupancy * work / (work + reads);
        let waiting = waiting(problem, lanes, p.read * (lines(&windows, span) + taps));
        let cost = roofline(problem, flops, problem.traffic() as f64, efficiency)
            .max(waiting + machine.launch_us * 1e3);
        out.push(Candidate {
            knobs: vec![("GROUP_X", gx), ("GROUP_Y", gy), ("BLOCK_X", block)],
            cost,
            reason: format!(
                "{block} pixels of four channels each for {lanes} invocations of {gx}x{gy}, {span} reads a line"
            ),
        });
    }
    out
}

fn launches(problem: &Problem<'_>, candidate: &Candidate) -> Result<Vec<Launch>, OpError> {
    let Op::Conv(op) = problem.op else { return Err(OpError::new("not a convolution")) };
    let windows =
        windows(op, problem).ok_or_else(|| OpError::new("one constant filter per channel is needed"))?;
    let filters = constant(problem, 1).ok_or_else(|| OpError::new("constant filters are needed"))?;
    let [gx, gy, block] = ["GROUP_X", "GROUP_Y", "BLOCK_X"].map(|n| candidate.knob(n));
    let mut steps = Vec::new();
    let problem = &with_bias(problem, &mut steps);
    let mut shader = Shader::new(problem);
    for (name, value) in &candidate.knobs {
        shader.knob(name, *value);
    }
    windows.declare(&mut shader, &[0, 1, 2]);
    shader.constant("SPAN", format_args!("{}u", span(&windows, block)));
    shader.constant("STEP_X", format_args!("{}u", windows.stride[2]));
    shader.constant("TAP_X", format_args!("{}u", windows.dilation[2]));
    // Blocks that are cut off at the end of a line read on past it.
    let [padded_z, padded_y, padded_x] = windows.padded();
    let [_, _, width] = windows.sizes(&problem.result.shape);
    let cut = !width.is_multiple_of(i64::from(block));
    declare_guards(&mut shader, 0, &[0, 1, 2], [padded_z, padded_y, padded_x || cut]);
    windows.declare_image(&mut shader, &[0, 1, 2]);
    shader.constant("DEEP", windows.deep(problem.result.rank()));
    let at = windows.four_channels(problem.result.rank(), "b", "s", ["z", "y", "x"]);
    shader.read("src", "b: u32, z: u32, y: u32, x: u32, s: u32", "", 0, &at);
    let vector = shader.packed_grid(pack(filters, problem.operands[1].dtype.on_device()), "s", "tap");
    shader.replace(
        "weight",
        format!("fn weight(s: u32, tap: u32) -> vec4<f32> {{ return vec4<f32>({vector}); }}\n"),
    );
    shader.write("store", "b: u32, z: u32, y: u32, x: u32, s: u32", "", &at)?;
    let grid = grid(blocks(problem, &windows, block), [gx, gy], 1);
    let flops = problem.result.elements().mul(&Dim::from(windows.taps())).scale(2);
    Ok(vec![shader.finish("depthwise", KERNEL.wgsl, grid, flops)?])
}
