//! Separable convolutions (depthwise, then pointwise), as far as `conv_separable` and `conv_separable_direct` have them
//! in common: the geometry, the packed filters, and the launch.

use super::depthwise;
use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::ir::op::{Op, SeparableConv};
use crate::ir::storage::Storage;
use crate::ir::tensor::DType;
use crate::kernels::cost::Parameters;
use crate::kernels::kernel::{Candidate, Configuration, Kernel};
use crate::kernels::shared::window::{
    Windows, constant, declare_guards, known, pack_filters, read_packed, spatial, vec4_channels, with_bias_at,
};
use crate::shader::pack::Packed;
use crate::shader::problem::{Operand, Placement, Problem};
use crate::shader::{Grid, LaunchDraft, Shader, ValueType};

/// Geometry of a separable convolution that the kernels `conv_separable` and `conv_separable_direct` can compute.
pub(super) struct Shape {
    pub(super) windows: Windows,
    /// Number of channels of the depthwise result, which the pointwise convolution reads.
    channels: usize,
    /// Number of slices (of four channels) of the depthwise result.
    pub(super) inputs: u32,
    /// Number of slices (of four channels) of the pointwise result.
    pub(super) outputs: u32,
}

pub(super) fn shape(op: &SeparableConv, problem: &Problem<'_>) -> Option<Shape> {
    let [filters, matrix] = [constant(problem, 1)?, constant(problem, 2)?];
    let conv = &op.depthwise;
    let [channels, 1, taps @ ..] = filters.shape.as_slice() else { return None };
    let outputs = known(problem.result.shape.get(1)?)?;
    let fitting = (3..=4).contains(&problem.result.rank()) && problem.computed.is_float();
    if !fitting || conv.group != *channels || matrix.shape.get(..2) != Some(&[outputs, *channels]) {
        return None;
    }
    let slices = |channels: usize| u32::try_from(channels.div_ceil(4)).ok();
    Some(Shape {
        windows: Windows::new(taps, &conv.strides, &conv.dilations, &conv.pads_begin, &conv.pads_end),
        channels: *channels,
        inputs: slices(*channels)?,
        outputs: slices(outputs)?,
    })
}

/// Returns the candidates that `candidate` returns for a list of block sizes. Several block sizes may give equal knobs; the
/// first one counts.
pub(super) fn candidates<P: Parameters, B: Copy>(
    problem: &Problem<'_>,
    blocks: &[B],
    candidate: fn(&P, &Problem<'_>, &Shape, B) -> Option<Candidate>,
) -> Vec<Candidate> {
    let Op::SeparableConv(op) = problem.op else { return Vec::new() };
    let (Some(shape), Some(p)) = (shape(op, problem), P::from_problem(problem)) else { return Vec::new() };
    let mut out: Vec<Candidate> = Vec::new();
    for block in blocks {
        let candidate = candidate(&p, problem, &shape, *block);
        out.extend(candidate.filter(|c| out.iter().all(|known| known.knobs != c.knobs)));
    }
    out
}

/// Packs the filters of a separable convolution: depthwise filters, and pointwise filters in blocks of `slices` output
/// slices.
pub(super) fn packed(problem: &Problem<'_>, slices: u32) -> Result<[Packed; 2], OpError> {
    let device = |i: usize| problem.operands.get(i).map(|o| o.dtype.on_device());
    let operands = (constant(problem, 1), constant(problem, 2), device(1), device(2));
    let (Some(filters), Some(matrix), Some(filter_type), Some(matrix_type)) = operands else {
        return Err(OpError::new("the filters must be constant"));
    };
    Ok([depthwise::pack(filters, filter_type), pack_filters(matrix, matrix_type, 1, slices as usize, false)?])
}

/// Returns the dispatch grid: tiles along x times images, tiles along y, and blocks of output slices.
pub(super) fn tiles(problem: &Problem<'_>, shape: &Shape, [x, y, slices]: [u32; 3]) -> [Dim; 3] {
    let [_, height, width] = spatial(&problem.result.shape);
    let across = width.ceil_div(i64::from(x)).mul(&problem.result.shape[0]);
    [across, height.ceil_div(i64::from(y)), Dim::from(shape.outputs.div_ceil(slices) as usize)]
}

/// Block sizes and dispatch grid of a separable convolution.
pub(super) struct Blocks {
    /// Number of neighboring pixels that an invocation computes in the depthwise convolution.
    pub(super) run: u32,
    /// Number of output slices (of four channels) per block of pointwise filters.
    pub(super) slices: u32,
    /// Workgroup memory of the launch, in bytes.
    pub(super) memory: u32,
    pub(super) grid: Grid,
}

/// Returns the launch of `conv_separable` or `conv_separable_direct`, whose WGSL has the same hooks.
pub(super) fn launch(
    problem: &Problem<'_>,
    config: &impl Configuration,
    kernel: &Kernel,
    blocks: Blocks,
) -> Result<Vec<LaunchDraft>, OpError> {
    let Op::SeparableConv(op) = problem.op else {
        return Err(OpError::new("the operator is not a separable convolution"));
    };
    let shape = shape(op, problem).ok_or_else(|| OpError::new("the filters must be constant"))?;
    let Blocks { run, slices, memory, grid } = blocks;
    let [filters, matrix] = packed(problem, slices)?;
    let depthwise_problem = depthwise_problem(op, &shape, problem);
    let mut steps = Vec::new();
    let last = u32::try_from(problem.arity.saturating_sub(1)).unwrap_or(u32::MAX);
    let problem = &if op.bias { with_bias_at(last, problem, &mut steps) } else { problem.clone() };
    let mut shader = Shader::new(problem);
    config.declare(&mut shader);
    shader.workgroup_memory(memory);
    let windows = &shape.windows;
    windows.declare(&mut shader, &[1, 2]);
    // A partial run at the end of a line reads past the end.
    let [_, padded_y, padded_x] = windows.padded();
    let [_, _, width] = spatial(&problem.result.shape);
    let has_partial_run = !width.is_multiple_of(i64::from(run));
    declare_guards(&mut shader, 0, &[1, 2], [false, padded_y, padded_x || has_partial_run]);
    shader.constant("SPAN", format_args!("{}u", depthwise::span(windows, run)));
    shader.constant("STEP_X", format_args!("{}u", windows.stride[2]));
    shader.constant("TAP_X", format_args!("{}u", windows.dilation[2]));
    shader.knob("IN_SLICES", shape.inputs);
    shader.knob("OUT_SLICES", shape.outputs);
    let (source, result) = (problem.operands[0].shape.clone(), problem.result.shape.clone());
    shader.size("batches", &result[0]);
    windows.declare_sizes(&mut shader, &[1, 2], [&source, &result]);
    let at = vec4_channels(result.len(), "b", "s", ["0u", "y", "x"]);
    let params = "b: u32, y: u32, x: u32, s: u32";
    shader.read("src", params, "", 0, &at);
    read_packed(&mut shader, "tap", filters);
    read_packed(&mut shader, "weight", matrix);
    shader.problem = &depthwise_problem;
    let start = Some(("v".to_string(), ValueType::Float));
    let (statements, value, _) = shader.epilogue_statements(&op.epilogue, start, &at, 4, false)?;
    shader.problem = problem;
    let value = if shape.channels.is_multiple_of(4) {
        value
    } else {
        let past = format!("vec4<u32>(s * 4u) + vec4<u32>(0u, 1u, 2u, 3u) >= vec4<u32>({}u)", shape.channels);
        format!("select({value}, vec4<f32>(0.0), {past})")
    };
    shader.replace(
        "middle",
        format!("fn middle({params}, v: vec4<f32>) -> vec4<f32> {{\n{statements}    return {value};\n}}\n"),
    );
    shader.write("store", params, "", &at)?;
    let pixels = product(&result[2..]).mul(&result[0]).mul(&Dim::from(shape.channels));
    let each = Dim::from(windows.taps()).add(&result[1]);
    Ok(vec![shader.finish(kernel.name, kernel.wgsl, grid, pixels.mul(&each).scale(2))])
}

/// Returns a problem with the epilogue that is applied to the depthwise result, before the pointwise convolution reads
/// it. The result of this problem is never stored in memory.
fn depthwise_problem<'a>(op: &'a SeparableConv, shape: &Shape, problem: &Problem<'a>) -> Problem<'a> {
    let mut sizes = problem.result.shape.clone();
    if let Some(channels) = sizes.get_mut(1) {
        *channels = Dim::from(shape.channels);
    }
    let result = Operand {
        dtype: DType::F32,
        placement: Placement::dense(&sizes),
        shape: sizes,
        storage: Storage::Buffer,
        constant: None,
        quantized: None,
    };
    Problem { epilogue: &op.epilogue, result, ..problem.clone() }
}
