//! `conv_separable.wgsl`: depthwise separable convolution (depthwise, then pointwise) through tiles in workgroup
//! memory.

use serde::Deserialize;

use super::depthwise;
use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::ir::op::{Op, SeparableConv};
use crate::ir::storage::Storage;
use crate::ir::tensor::DType;
use crate::kernels::cost::{Parameters, waiting};
use crate::kernels::kernel::{Candidate, Configuration, Group, InPlace, Kernel, config};
use crate::kernels::shared::window::{
    Windows, constant, declare_guards, fits, groups_for, known, pack_filters, read_packed, spatial,
    vec4_channels, with_bias_at,
};
use crate::shader::pack::Packed;
use crate::shader::problem::{Operand, Placement, Problem};
use crate::shader::{Grid, Launch, Shader, ValueType};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "conv_separable",
    wgsl: include_str!("conv_separable.wgsl"),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::of::<Params>()],
    in_place: InPlace::Epilogue,
};

config! {
    /// Configuration of the kernel.
    struct Config {
        /// Pixels of a tile along x.
        TILE_X => tile_x: u32,
        /// Pixels of a tile along y.
        TILE_Y => tile_y: u32,
        /// Pixels per invocation in the pointwise convolution.
        ROWS => rows: u32,
        /// Output slices (of four channels) per invocation.
        COLS => cols: u32,
        /// Invocations along output slices.
        LANES => lanes: u32,
        /// Input slices per step.
        DEPTH => depth: u32,
        /// Neighboring pixels per invocation in the depthwise convolution.
        RUN => run: u32,
    }
}

/// Cost parameters. All are positive.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Loads in flight per invocation, for the occupancy.
    concurrent_loads: f64,
    /// Memory latencies per chunk of input slices.
    chunk_latencies: f64,
    /// Memory latencies before the first chunk and after the last.
    fixed_latencies: f64,
    /// Reached fraction of the f32 peak in the depthwise convolution, before the other factors. 0 to 1.
    depthwise_peak_fraction: f64,
    /// Reached fraction of the f32 peak in the pointwise convolution, before the other factors. 0 to 1.
    pointwise_peak_fraction: f64,
    /// Memory latencies per read of the depthwise convolution.
    depthwise_read_latencies: f64,
    /// Memory latencies per vec4 of the result.
    store_latencies: f64,
    /// Maximum vec4 registers per invocation at full occupancy.
    full_occupancy_vec4s: f64,
}

impl Parameters for Params {
    const GROUP: &str = "conv_separable";
}

/// Pixels per tile, pixels and output slices per invocation, maximum invocations along output slices, and pixels per
/// run.
const BLOCKS: &[[u32; 5]] = &[
    [16, 4, 1, 16, 2],
    [16, 2, 1, 8, 2],
    [32, 4, 1, 8, 2],
    [32, 4, 1, 16, 2],
    [32, 2, 2, 8, 2],
    [32, 4, 2, 8, 4],
    [32, 4, 4, 8, 4],
    [64, 4, 1, 4, 2],
    [64, 4, 1, 8, 2],
    [64, 4, 2, 8, 2],
    [64, 4, 2, 8, 4],
    [64, 8, 2, 8, 4],
    [64, 4, 4, 16, 4],
    [128, 8, 2, 4, 4],
];

/// Tile shapes.
const SIDES: &[[u32; 2]] = &[
    [4, 4],
    [8, 2],
    [16, 1],
    [8, 4],
    [4, 8],
    [16, 2],
    [32, 1],
    [8, 8],
    [16, 4],
    [64, 1],
    [16, 8],
    [8, 16],
    [128, 1],
];

/// Separable convolution that the kernels can compute.
pub(super) struct Shape {
    pub(super) windows: Windows,
    /// Channels between the two convolutions.
    channels: usize,
    /// Slices (of four channels) between the two convolutions.
    pub(super) inputs: u32,
    /// Slices (of four channels) of the result.
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

/// Packs the filters of both convolutions, pointwise filters in blocks of `slices` output slices.
pub(super) fn packed(problem: &Problem<'_>, slices: u32) -> Result<[Packed; 2], OpError> {
    let device = |i: usize| problem.operands.get(i).map(|o| o.dtype.on_device());
    let operands = (constant(problem, 1), constant(problem, 2), device(1), device(2));
    let (Some(filters), Some(matrix), Some(filter_type), Some(matrix_type)) = operands else {
        return Err(OpError::new("the filters must be constant"));
    };
    Ok([depthwise::pack(filters, filter_type), pack_filters(matrix, matrix_type, 1, slices as usize, false)?])
}

/// Returns the number of tiles along x (times images) and along y, and of blocks of output slices.
pub(super) fn tiles(problem: &Problem<'_>, shape: &Shape, [x, y, slices]: [u32; 3]) -> [Dim; 3] {
    let [_, height, width] = spatial(&problem.result.shape);
    let across = width.ceil_div(i64::from(x)).mul(&problem.result.shape[0]);
    [across, height.ceil_div(i64::from(y)), Dim::from(shape.outputs.div_ceil(slices) as usize)]
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Op::SeparableConv(op) = problem.op else { return Vec::new() };
    let Some(shape) = shape(op, problem) else { return Vec::new() };
    let Some(p) = Params::of(problem) else { return Vec::new() };
    let mut out: Vec<Candidate> = Vec::new();
    for block in BLOCKS {
        let candidate = candidate(&p, problem, &shape, *block);
        // Several blocks may give the same configuration.
        out.extend(candidate.filter(|c| out.iter().all(|known| known.knobs != c.knobs)));
    }
    out
}

/// Returns one candidate, or `None` if it exceeds a limit.
fn candidate(
    p: &Params,
    problem: &Problem<'_>,
    shape: &Shape,
    [pixels, rows, cols, max_lanes, run]: [u32; 5],
) -> Option<Candidate> {
    let (machine, limits) = (&problem.target.machine, &problem.target.limits);
    let windows = &shape.windows;
    // Minimum number of blocks, of equal size: each block computes the depthwise results again.
    let blocks = shape.outputs.div_ceil(cols * max_lanes);
    let lanes = shape.outputs.div_ceil(blocks * cols);
    let [_, height, width] = spatial(&problem.result.shape).map(|d| problem.max(&d));
    let [x, y] = *SIDES
        .iter()
        .filter(|[x, y]| x * y == pixels && x.is_multiple_of(run))
        .min_by_key(|[x, y]| groups_for(width, *x) * groups_for(height, *y))?;
    let threads = pixels / rows * lanes;
    let depth = (threads * run / pixels).next_power_of_two().clamp(2, 8).min(shape.inputs);
    let memory = depth * pixels * 16;
    let groups = tiles(problem, shape, [x, y, lanes * cols]).map(|d| problem.max(&d));
    let too_many = groups.iter().zip(limits.max_workgroup_count).any(|(g, limit)| *g > i64::from(limit));
    let max_threads = limits.max_workgroup_invocations.min(limits.max_workgroup_size[0]);
    let span = depthwise::span(windows, run);
    let packed = packed(problem, lanes * cols).ok()?;
    if too_many
        || threads > max_threads
        || memory > limits.max_workgroup_memory
        || span > depthwise::MAX_SPAN
        || !packed.iter().all(|p| fits(problem, p))
    {
        return None;
    }
    let groups = groups.iter().map(|g| *g as f64).product::<f64>();
    let [slices_in, pixels_f, rows_f, cols_f, run_f, depth_f] =
        [shape.inputs, pixels, rows, cols, run, depth].map(f64::from);
    let subgroup = problem.target.subgroup.preferred.max(1);
    let invocations = groups * f64::from(threads.next_multiple_of(subgroup));
    let resident = machine.invocations();
    // Several independent sums per invocation hide latency like more invocations.
    let occupancy =
        (p.concurrent_loads * invocations * (rows_f * cols_f).min(4.0) / resident).clamp(0.001, 1.0);
    // Depthwise convolution, estimated as in `depthwise`: rounds of the whole workgroup for each chunk of slices.
    let rounds = (depth_f * pixels_f / run_f / f64::from(threads)).ceil();
    let chunks = (slices_in / depth_f).ceil();
    let taps = windows.taps() as f64;
    let reads_per_vec4 = if problem.operands[0].is_slices4() { 1.0 } else { 4.0 };
    let reads = (windows.kernel[1] * span) as f64 * reads_per_vec4 + taps;
    let work = run_f * taps;
    let depthwise_flops = invocations * chunks * rounds * work * 8.0;
    let depthwise_efficiency = p.depthwise_peak_fraction * work / (work + reads);
    // Pointwise convolution, estimated as in `matmul`: pixels from workgroup memory, filters from memory for each lane.
    let pointwise_flops = invocations * rows_f * cols_f * slices_in * 32.0;
    let reuse = 1.0 / (1.0 / rows_f + 0.25 / cols_f);
    let pointwise_efficiency = p.pointwise_peak_fraction * reuse / (reuse + 1.0);
    let vectors = rows_f * cols_f + (span as f64 + run_f).max(rows_f + 6.0);
    let pressure = if vectors > p.full_occupancy_vec4s { p.full_occupancy_vec4s / vectors } else { 1.0 };
    let compute = (depthwise_flops / depthwise_efficiency + pointwise_flops / pointwise_efficiency)
        / (machine.peak.f32 * occupancy * pressure);
    // Every tile reads its pixels with a border, and every block reads all of its filters.
    let border = |tile: u32, i: usize| {
        ((tile as usize - 1) * windows.stride[i] + (windows.kernel[i] - 1) * windows.dilation[i] + 1) as f64
    };
    let element = problem.operands[0].dtype.on_device().bytes() as f64;
    let read = border(x, 2) * border(y, 1) + taps + f64::from(lanes * cols) * 4.0;
    let cached = groups * read * slices_in * 4.0 * element / machine.cache_bandwidth_gb_s.max(1e-3);
    let traffic = problem.traffic() as f64 / machine.bandwidth_gb_s.max(1e-3);
    let reading = rounds * ((windows.kernel[1] * span) as f64 + taps);
    let steps = p.fixed_latencies
        + chunks * (p.chunk_latencies + p.depthwise_read_latencies * reading)
        + p.store_latencies * rows_f * cols_f;
    let waiting = waiting(problem, invocations, steps);
    let cost = compute.max(traffic).max(cached).max(waiting) + machine.launch_us * 1e3;
    Some(Candidate {
        knobs: Config { tile_x: x, tile_y: y, rows, cols, lanes, depth, run }.knobs(),
        cost,
        reason: format!(
            "tiles of {x}x{y} pixels and {} slices per workgroup of {threads}, {depth} input slices per step; depthwise convolution computed {blocks} times, {:.0} % of the work; occupancy {:.0} %",
            lanes * cols,
            depthwise_flops
                / depthwise_efficiency
                / (depthwise_flops / depthwise_efficiency + pointwise_flops / pointwise_efficiency)
                * 100.0,
            occupancy * 100.0
        ),
    })
}

fn launches(problem: &Problem<'_>, config: Config) -> Result<Vec<Launch>, OpError> {
    let Op::SeparableConv(op) = problem.op else {
        return Err(OpError::new("the operator is not a separable convolution"));
    };
    let shape = shape(op, problem).ok_or_else(|| OpError::new("the filters must be constant"))?;
    let Config { tile_x: x, tile_y: y, rows, cols, lanes, depth, run } = config;
    let groups = tiles(problem, &shape, [x, y, cols * lanes]);
    let grid = Grid { groups, workgroup: [x * y / rows.max(1) * lanes, 1, 1] };
    let memory = depth * x * y * 16;
    launch(problem, &config, &KERNEL, Blocks { run, slices: cols * lanes, memory, grid })
}

/// Block sizes and grid of a launch.
pub(super) struct Blocks {
    /// Neighboring pixels per invocation in the depthwise convolution.
    pub(super) run: u32,
    /// Output slices per block.
    pub(super) slices: u32,
    /// Bytes of workgroup memory.
    pub(super) memory: u32,
    pub(super) grid: Grid,
}

/// Returns the launch of a kernel that has the hooks of `conv_separable.wgsl`.
pub(super) fn launch(
    problem: &Problem<'_>,
    config: &impl Configuration,
    kernel: &Kernel,
    blocks: Blocks,
) -> Result<Vec<Launch>, OpError> {
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
    Ok(vec![shader.finish(kernel.name, kernel.wgsl, grid, pixels.mul(&each).scale(2))?])
}

/// Returns the problem of the epilogue between the convolutions. Its result is the depthwise result, which is not
/// stored.
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
