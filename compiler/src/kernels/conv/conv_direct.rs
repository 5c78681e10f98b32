//! `conv_direct.wgsl`: all convolutions and transposed convolutions. An invocation computes four output channels of one pixel.

use serde::Deserialize;

use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::ir::op::{Conv, Op};
use crate::ir::tensor::DType;
use crate::kernels::cost::{Estimate, Parameters, waiting};
use crate::kernels::kernel::{Candidate, Configuration, Group, InPlace, Kernel, ThreadsConfig};
use crate::kernels::shared::window::{Windows, axes, declare_guards, vec4_channels, with_bias};
use crate::shader::access::Coordinates;
use crate::shader::problem::Problem;
use crate::shader::{Grid, LaunchDraft, Shader, ValueType};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "conv_direct",
    wgsl: concat!(
        include_str!("../shared/preludes/window.wgsl"),
        include_str!("../shared/preludes/image_sizes.wgsl"),
        include_str!("conv_direct.wgsl")
    ),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::from_parameters::<Params>()],
    in_place: InPlace::Epilogue,
};

/// Cost parameters of the kernel `conv_direct`. All are positive.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Fixed time before the first multiply-add and after the last one of an invocation, in memory latencies.
    fixed_latencies: f64,
    /// Fraction of the f32 peak that the kernel reaches. 0 to 1.
    peak_fraction: f64,
    /// Time of one multiply-add and of the two reads for it, in memory latencies.
    step_latencies: f64,
}

impl Parameters for Params {
    const GROUP: &str = "conv_direct";
}

/// Operations to dequantize one element: its position in the packed form, the unpacking, the conversion and the scale.
const DEQUANTIZE_OPERATIONS: f64 = 16.0;

/// True if the kernel can compute sums of the given type: a float type, or i32 for products of 8-bit integers.
fn is_summable(computed: DType) -> bool {
    computed.is_float() || computed == DType::I32
}

/// Returns three facts about a convolution: its window geometry, its number of groups, and true if it is transposed.
/// Returns `None` if the kernel `conv_direct` cannot compute the convolution.
fn geometry(problem: &Problem<'_>) -> Option<(Windows, usize, bool)> {
    let filters = problem.operands.get(1)?;
    let taps: Vec<usize> =
        filters.shape.get(2..)?.iter().map(|d| usize::try_from(d.as_known()?).ok()).collect::<Option<_>>()?;
    if !(3..=5).contains(&problem.result.rank()) || !is_summable(problem.computed) {
        return None;
    }
    match problem.op {
        Op::Conv(op) => Some((
            Windows::new(&taps, &op.strides, &op.dilations, &op.pads_begin, &op.pads_end),
            op.group,
            false,
        )),
        Op::ConvTranspose(op) => Some((
            Windows::new(&taps, &op.strides, &op.dilations, &op.pads_begin, &op.pads_end),
            op.group,
            true,
        )),
        _ => None,
    }
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Some((windows, group, transposed)) = geometry(problem) else { return Vec::new() };
    let Some(p) = Params::from_problem(problem) else { return Vec::new() };
    let inputs = problem.max(&problem.operands[0].shape[1]) / group.max(1) as i64;
    let results = problem.max(&problem.result.elements());
    let flops = 2.0 * results as f64 * (inputs * windows.taps() as i64) as f64;
    let spread: f64 = if transposed { windows.stride.iter().product::<usize>() as f64 } else { 1.0 };
    let steps = inputs as f64 * windows.taps() as f64;
    let quantized = problem.operands[1].quantized.is_some();
    // A quantized element takes two reads, of a packed word and of a scale, besides the read of the image.
    let steps = if quantized { 1.5 * steps } else { steps };
    let flops = if quantized { flops * (2.0 + DEQUANTIZE_OPERATIONS) / 2.0 } else { flops };
    let estimate = Estimate {
        latency: waiting(problem, results as f64 / 4.0, p.step_latencies * steps + p.fixed_latencies),
        ..Estimate::roofline(problem, flops / spread, problem.traffic() as f64, p.peak_fraction)
    };
    let reason = format!(
        "{} taps of {inputs} input channels for each of {results} result elements, two reads per multiply-add",
        windows.taps()
    );
    vec![Candidate::new(&ThreadsConfig { threads: problem.threads() }, estimate, reason)]
}

fn launches(problem: &Problem<'_>, config: ThreadsConfig) -> Result<Vec<LaunchDraft>, OpError> {
    let (windows, group, transposed) = geometry(problem)
        .ok_or_else(|| OpError::new("the operator is not a convolution over one to three axes"))?;
    let group = i64::try_from(group).map_err(|e| OpError::new(e.to_string()))?;
    let mut steps = Vec::new();
    let problem = &with_bias(problem, &mut steps);
    let mut shader = Shader::new(problem);
    let ThreadsConfig { threads } = config;
    config.declare(&mut shader);
    shader.alias("E", ValueType::from_dtype(problem.computed).scalar());
    windows.declare(&mut shader, &[0, 1, 2]);
    shader.constant("TRANSPOSED", transposed);
    if !transposed {
        declare_guards(&mut shader, 0, &[0, 1, 2], windows.padded());
    }
    shader.constant("BATCH_INNER", problem.result.is_slices4());
    let (source, result) = (problem.operands[0].shape.clone(), problem.result.shape.clone());
    let inputs = source[1].floor_div(group);
    let outputs = result[1].clone();
    shader.size("batches", &result[0]);
    shader.size("group_inputs", &inputs);
    shader.size("group_outputs", &outputs.floor_div(group));
    shader.size("outputs", &outputs);
    windows.declare_sizes(&mut shader, &[0, 1, 2], [&source, &result]);
    let rank = problem.result.rank();
    let at = Coordinates::element(axes(rank, "b", "c", ["z", "y", "x"]));
    let params = "b: u32, c: u32, z: u32, y: u32, x: u32";
    match problem.op {
        Op::Conv(Conv { zero_point, .. }) if *zero_point != 0 => {
            let stored = shader.read_fn("src_stored", params, "", 0, &at, false);
            let value = format!("i32(src_stored(b, c, z, y, x)) - ({zero_point})");
            shader.replace("src", format!("{stored}fn src({params}) -> i32 {{ return {value}; }}\n"));
        }
        _ => shader.read("src", params, "", 0, &at),
    }
    let at = if transposed {
        let first = shader.dim(&outputs.floor_div(group));
        Coordinates::element(axes(rank, "(first + i)", &format!("(o % {first})"), ["z", "y", "x"]))
    } else {
        Coordinates::element(axes(rank, "o", "i", ["z", "y", "x"]))
    };
    shader.read("weight", "o: u32, first: u32, i: u32, z: u32, y: u32, x: u32", "", 1, &at);
    let at = vec4_channels(rank, "b", "s", ["z", "y", "x"]);
    shader.write("store", "b: u32, z: u32, y: u32, x: u32, s: u32", "", &at)?;
    let mut units = result;
    units[1] = units[1].ceil_div(4);
    let grid = Grid::linear(&product(&units), threads, problem.bounds);
    let taps = Dim::from(windows.taps()).mul(&inputs);
    shader.iterations(taps.clone());
    let flops = problem.result.elements().mul(&taps).scale(2);
    Ok(vec![shader.finish("conv_direct", KERNEL.wgsl, grid, flops)])
}
