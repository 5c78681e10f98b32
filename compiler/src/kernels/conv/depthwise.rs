//! `depthwise.wgsl`: depthwise convolution, with one constant filter per channel. The sums of 8-bit integers are
//! computed as floats, which hold them exactly.

use serde::Deserialize;

use crate::error::OpError;
use crate::ir::dim::Dim;
use crate::ir::op::{Constant, Conv, Op};
use crate::ir::tensor::{DType, DeviceType};
use crate::kernels::cost::{Estimate, Parameters, waiting};
use crate::kernels::kernel::{Candidate, Configuration, Group, InPlace, Kernel, config};
use crate::kernels::shared::window::{
    Windows, constant, declare_guards, fits, grid, group_shape, known, with_bias,
};
use crate::shader::access::Coordinates;
use crate::shader::pack::Packed;
use crate::shader::pack::presets::CHW_C4;
use crate::shader::problem::Problem;
use crate::shader::{LaunchDraft, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "depthwise",
    wgsl: concat!(
        include_str!("../shared/preludes/window.wgsl"),
        include_str!("../shared/preludes/image_sizes.wgsl"),
        include_str!("../shared/preludes/image_hooks_3d.wgsl"),
        include_str!("depthwise.wgsl")
    ),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::from_parameters::<Params>()],
    in_place: InPlace::Epilogue,
};

config! {
    /// Configuration of the kernel `depthwise`.
    struct Config {
        /// Number of invocations of a workgroup along x.
        GROUP_X => group_x: u32,
        /// Number of invocations of a workgroup along y.
        GROUP_Y => group_y: u32,
        /// Number of output pixels along x that an invocation computes.
        BLOCK_X => block_x: u32,
    }
}

/// Cost parameters of the kernel `depthwise`. All are positive.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Arithmetic throughput relative to the f32 peak, before it is multiplied by the factors for reuse and occupancy.
    /// May exceed 1.
    peak_ratio: f64,
    /// Time of a read of pixels or filters, in memory latencies.
    read_latencies: f64,
}

impl Parameters for Params {
    const GROUP: &str = "depthwise";
}

/// Numbers of pixels per invocation that are tried.
const BLOCKS: &[u32] = &[1, 2, 4];

/// Largest magnitude of an 8-bit integer minus its zero point, times an 8-bit integer.
const MAX_PRODUCT: i64 = 255 * 255;

/// Maximum number of vec4s of an image line that an invocation holds in registers.
pub(super) const MAX_SPAN: usize = 24;

fn windows(op: &Conv, problem: &Problem<'_>) -> Option<Windows> {
    let filters = constant(problem, 1)?;
    let channels = known(&problem.result.shape[1])?;
    let one_each = op.group == channels && filters.shape[..2] == [channels, 1];
    let windows = Windows::from_conv(op, problem).filter(|_| one_each)?;
    let exact = problem.computed == DType::I32 && windows.taps() as i64 * MAX_PRODUCT < 1 << 24;
    let fitting = (3..=5).contains(&problem.result.rank()) && (problem.computed.is_float() || exact);
    fitting.then_some(windows)
}

/// Returns the number of input pixels of a line that the windows of `block` neighboring output pixels cover.
pub(super) fn span(windows: &Windows, block: u32) -> usize {
    (block as usize - 1) * windows.stride[2] + (windows.kernel[2] - 1) * windows.dilation[2] + 1
}

/// Returns the number of input pixels that a window covers in all its lines and planes, if it covers `span` pixels per line.
fn window_pixels(windows: &Windows, span: usize) -> f64 {
    (windows.kernel[0] * windows.kernel[1] * span) as f64
}

/// Packs depthwise filters as vec4s: one vec4 of four channels for each pair of a channel slice and a tap.
pub(super) fn pack(filters: &Constant, device: DeviceType) -> Packed {
    let taps = filters.shape.iter().skip(2).product();
    CHW_C4.packed(filters, &[('C', filters.shape[0]), ('S', taps)], &[], device)
}

/// Returns the dispatch grid: blocks along x, lines (y), and planes (z) times channel slices. If the batch is the
/// fastest index of the grid, the number of images multiplies the first entry, else the last.
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
    let Some(p) = Params::from_problem(problem) else { return Vec::new() };
    let filters = constant(problem, 1).map(|w| pack(w, problem.operands[1].dtype.on_device()));
    if filters.is_none_or(|p| !fits(problem, &p)) {
        return Vec::new();
    }
    let limits = &problem.target.limits;
    let machine = &problem.target.machine;
    let mut out = Vec::new();
    for &block in BLOCKS {
        let span = span(&windows, block);
        if block > 1 && span > MAX_SPAN || span > 4 * MAX_SPAN {
            continue;
        }
        let [across, down, deep] = blocks(problem, &windows, block).map(|d| problem.max(&d));
        let [gx, gy] = group_shape(
            problem.target.prefer.workgroup_invocations,
            limits.max_workgroup_invocations,
            across,
            down,
        );
        let max_groups = limits.max_workgroup_count;
        if across / i64::from(gx) >= i64::from(max_groups[0])
            || down / i64::from(gy) >= i64::from(max_groups[1])
            || deep > i64::from(max_groups[2])
        {
            continue;
        }
        let lanes = (across * down * deep) as f64;
        let taps = windows.taps() as f64;
        let work = f64::from(block) * taps;
        // One read per pixel of the lines (4 if channels are not contiguous), and one per tap.
        let reads_per_vec4 = if problem.operands[0].is_slices4() { 1.0 } else { 4.0 };
        let reads = window_pixels(&windows, span) * reads_per_vec4 + taps;
        let flops = lanes * work * 8.0;
        let wanted = machine.invocations();
        let occupancy = (lanes * f64::from(block) / wanted).clamp(0.02, 1.0);
        let efficiency = p.peak_ratio * occupancy * work / (work + reads);
        let estimate = Estimate {
            latency: waiting(problem, lanes, p.read_latencies * (window_pixels(&windows, span) + taps)),
            ..Estimate::roofline(problem, flops, problem.traffic() as f64, efficiency)
        };
        let reason = format!(
            "{block} pixels of four channels per invocation, {lanes} invocations in workgroups of {gx}x{gy}, {span} pixels read per line of the window"
        );
        out.push(Candidate::new(&Config { group_x: gx, group_y: gy, block_x: block }, estimate, reason));
    }
    out
}

/// Replaces the hooks `src` and `store`, which read and store four channels of a pixel as floats.
fn declare_pixels(shader: &mut Shader<'_>, op: &Conv, at: &Coordinates) -> Result<(), OpError> {
    let params = "b: u32, z: u32, y: u32, x: u32, s: u32";
    if shader.problem.computed.is_float() {
        shader.read("src", params, "", 0, at);
        return shader.write("store", params, "", at);
    }
    let stored = shader.read_fn("src_stored", params, "", 0, at, false);
    let value = format!("vec4<f32>(vec4<i32>(src_stored(b, z, y, x, s)) - vec4<i32>({}))", op.zero_point);
    shader.replace("src", format!("{stored}fn src({params}) -> vec4<f32> {{ return {value}; }}\n"));
    let sums = shader.write_fn("store_sums", params, "", at, false)?;
    let call = "store_sums(b, z, y, x, s, vec4<i32>(v))";
    shader.replace("store", format!("{sums}fn store({params}, v: vec4<f32>) {{ {call}; }}\n"));
    Ok(())
}

fn launches(problem: &Problem<'_>, config: Config) -> Result<Vec<LaunchDraft>, OpError> {
    let Op::Conv(op) = problem.op else { return Err(OpError::new("the operator is not a convolution")) };
    let windows = windows(op, problem)
        .ok_or_else(|| OpError::new("the operator needs one constant filter per channel"))?;
    let filters = constant(problem, 1).ok_or_else(|| OpError::new("the filters must be constant"))?;
    let Config { group_x: gx, group_y: gy, block_x: block } = config;
    let mut steps = Vec::new();
    let problem = &with_bias(problem, &mut steps);
    let mut shader = Shader::new(problem);
    config.declare(&mut shader);
    windows.declare(&mut shader, &[0, 1, 2]);
    shader.constant("SPAN", format_args!("{}u", span(&windows, block)));
    shader.constant("STEP_X", format_args!("{}u", windows.stride[2]));
    shader.constant("TAP_X", format_args!("{}u", windows.dilation[2]));
    // A partial block at the end of a line reads past the end.
    let [padded_z, padded_y, padded_x] = windows.padded();
    let [_, _, width] = windows.sizes(&problem.result.shape);
    let has_partial_block = !width.is_multiple_of(i64::from(block));
    declare_guards(&mut shader, 0, &[0, 1, 2], [padded_z, padded_y, padded_x || has_partial_block]);
    windows.declare_image(&mut shader, &[0, 1, 2]);
    shader.constant("DEEP", windows.deep(problem.result.rank()));
    let at = windows.vec4_channels(problem.result.rank(), "b", "s", ["z", "y", "x"]);
    declare_pixels(&mut shader, op, &at)?;
    let vector = shader.packed_vector_at(pack(filters, problem.operands[1].dtype.on_device()), "s", "tap");
    shader.replace(
        "weight",
        format!("fn weight(s: u32, tap: u32) -> vec4<f32> {{ return vec4<f32>({vector}); }}\n"),
    );
    let grid = grid(blocks(problem, &windows, block), [gx, gy], 1);
    let flops = problem.result.elements().mul(&Dim::from(windows.taps())).scale(2);
    Ok(vec![shader.finish("depthwise", KERNEL.wgsl, grid, flops)])
}
