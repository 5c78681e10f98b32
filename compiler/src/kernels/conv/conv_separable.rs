//! `conv_separable.wgsl`: a depthwise convolution and the pointwise convolution behind it, tile by tile.

use serde::Deserialize;

use super::depthwise;
use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::ir::op::{Op, SeparableConv};
use crate::ir::storage::Storage;
use crate::ir::tensor::DType;
use crate::kernels::cost::{Parameters, waiting};
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::kernels::shared::window::{
    Windows, constant, declare_guards, fits, four_channels, groups_for, known, pack_filters, read_packed,
    spatial, with_bias_at,
};
use crate::shader::pack::Packed;
use crate::shader::problem::{Operand, Placement, Problem};
use crate::shader::{Class, Grid, Launch, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "conv_separable",
    wgsl: include_str!("conv_separable.wgsl"),
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
    /// Loads that an invocation has in flight.
    abreast: f64,
    /// Vectors that an invocation holds before fewer of them fit.
    vectors: f64,
    /// A chunk of slices of inputs.
    chunk: f64,
    /// A read of the depthwise part.
    read: f64,
    /// A vector of the result.
    store: f64,
    /// Before the first chunk and after the last.
    ends: f64,
}

impl Parameters for Params {
    const GROUP: &str = "conv_separable";
}

/// Pixels of a tile, pixels and output slices per invocation, most invocations along output slices, and pixels of a run.
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

/// Sides of tiles.
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

/// A pair of convolutions that these kernels compute.
pub(super) struct Shape {
    pub(super) windows: Windows,
    /// Channels between the two, and slices of four of them and of the result.
    channels: usize,
    pub(super) inputs: u32,
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

/// The filters of both convolutions; pointwise ones in blocks of so many output slices.
pub(super) fn packed(problem: &Problem<'_>, slices: u32) -> Result<[Packed; 2], OpError> {
    let device = |i: usize| problem.operands.get(i).map(|o| o.dtype.on_device());
    let parts = (constant(problem, 1), constant(problem, 2), device(1), device(2));
    let (Some(filters), Some(matrix), Some(first), Some(second)) = parts else {
        return Err(OpError::new("constant filters are needed"));
    };
    Ok([depthwise::pack(filters, first), pack_filters(matrix, second, 1, slices as usize, false)?])
}

/// Tiles along x times images, along y, and blocks of output slices.
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
        // Blocks of few slices come to the same.
        out.extend(candidate.filter(|c| out.iter().all(|known| known.knobs != c.knobs)));
    }
    out
}

/// One candidate; `None` where it exceeds a limit.
fn candidate(
    p: &Params,
    problem: &Problem<'_>,
    shape: &Shape,
    [pixels, rows, cols, most, run]: [u32; 5],
) -> Option<Candidate> {
    let (machine, limits) = (&problem.target.machine, &problem.target.limits);
    let windows = &shape.windows;
    // As few blocks as there can be, and as even as they can be: each computes the depthwise results anew.
    let blocks = shape.outputs.div_ceil(cols * most);
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
    let too_many = groups.iter().zip(limits.max_workgroup_count).any(|(g, most)| *g > i64::from(most));
    let most_threads = limits.max_workgroup_invocations.min(limits.max_workgroup_size[0]);
    let span = depthwise::span(windows, run);
    let packed = packed(problem, lanes * cols).ok()?;
    if too_many
        || threads > most_threads
        || memory > limits.max_workgroup_memory
        || span > depthwise::MOST_SPAN
        || !packed.iter().all(|p| fits(problem, p))
    {
        return None;
    }
    let groups = groups.iter().map(|g| *g as f64).product::<f64>();
    let [slices_in, pixels_f, rows_f, cols_f, run_f, depth_f] =
        [shape.inputs, pixels, rows, cols, run, depth].map(f64::from);
    let subgroup = problem.target.subgroup.preferred.max(1);
    let invocations = groups * f64::from(threads.next_multiple_of(subgroup));
    let room = machine.invocations();
    // Sums of several vectors hide latency like more invocations do.
    let occupancy = (p.abreast * invocations * (rows_f * cols_f).min(4.0) / room).clamp(0.001, 1.0);
    // The depthwise part, in rounds of the whole workgroup for each chunk of slices, as `depthwise` counts it.
    let rounds = (depth_f * pixels_f / run_f / f64::from(threads)).ceil();
    let chunks = (slices_in / depth_f).ceil();
    let taps = windows.taps() as f64;
    let apart = if problem.operands[0].is_slices4() { 1.0 } else { 4.0 };
    let reads = (windows.kernel[1] * span) as f64 * apart + taps;
    let work = run_f * taps;
    let first = invocations * chunks * rounds * work * 8.0;
    let first_efficiency = p.reached_first * work / (work + reads);
    // The products, as `matmul` counts them: pixels come from workgroup memory, and filters from a place of each lane's.
    let second = invocations * rows_f * cols_f * slices_in * 32.0;
    let reuse = 1.0 / (1.0 / rows_f + 0.25 / cols_f);
    let second_efficiency = p.reached_second * reuse / (reuse + 1.0);
    let vectors = rows_f * cols_f + (span as f64 + run_f).max(rows_f + 6.0);
    let pressure = if vectors > p.vectors { p.vectors / vectors } else { 1.0 };
    let compute =
        (first / first_efficiency + second / second_efficiency) / (machine.peak.f32 * occupancy * pressure);
    // Every tile reads its pixels with their border, and every block all of its filters.
    let border = |tile: u32, i: usize| {
        ((tile as usize - 1) * windows.stride[i] + (windows.kernel[i] - 1) * windows.dilation[i] + 1) as f64
    };
    let element = problem.operands[0].dtype.on_device().bytes() as f64;
    let seen = border(x, 2) * border(y, 1) + taps + f64::from(lanes * cols) * 4.0;
    let cached = groups * seen * slices_in * 4.0 * element / machine.cache_bandwidth_gb_s.max(1e-3);
    let traffic = problem.traffic() as f64 / machine.bandwidth_gb_s.max(1e-3);
    let reading = rounds * ((windows.kernel[1] * span) as f64 + taps);
    let steps = p.ends + chunks * (p.chunk + p.read * reading) + p.store * rows_f * cols_f;
    let waiting = waiting(problem, invocations, steps);
    let cost = compute.max(traffic).max(cached).max(waiting) + machine.launch_us * 1e3;
    Some(Candidate {
        knobs: vec![
            ("TILE_X", x),
            ("TILE_Y", y),
            ("ROWS", rows),
            ("COLS", cols),
            ("LANES", lanes),
            ("DEPTH", depth),
            ("RUN", run),
        ],
        cost,
        reason: format!(
            "tiles of {x}x{y} pixels and {} slices by {threads} invocations, {depth} input slices at a time; the depthwise part {blocks} times, {:.0} % of the work; occupancy {:.0} %",
            lanes * cols,
            first / first_efficiency / (first / first_efficiency + second / second_efficiency) * 100.0,
            occupancy * 100.0
        ),
    })
}

fn launches(problem: &Problem<'_>, candidate: &Candidate) -> Result<Vec<Launch>, OpError> {
    let Op::SeparableConv(op) = problem.op else { return Err(OpError::new("not a pair of convolutions")) };
    let shape = shape(op, problem).ok_or_else(|| OpError::new("constant filters are needed"))?;
    let [x, y, cols, lanes, depth, run] =
        ["TILE_X", "TILE_Y", "COLS", "LANES", "DEPTH", "RUN"].map(|n| candidate.knob(n));
    let groups = tiles(problem, &shape, [x, y, cols * lanes]);
    let grid = Grid { groups, workgroup: [x * y / candidate.knob("ROWS").max(1) * lanes, 1, 1] };
    let memory = depth * x * y * 16;
    launch(problem, candidate, &KERNEL, Blocks { run, slices: cols * lanes, memory, grid })
}

/// What a launch needs to know of how the work is cut.
pub(super) struct Blocks {
    /// Neighbouring pixels whose depthwise result one invocation computes.
    pub(super) run: u32,
    /// Output slices of a block.
    pub(super) slices: u32,
    /// Bytes of workgroup memory.
    pub(super) memory: u32,
    pub(super) grid: Grid,
}

/// The launch of a kernel whose hooks are those of `conv_separable.wgsl`.
pub(super) fn launch(
    problem: &Problem<'_>,
    candidate: &Candidate,
    kernel: &Kernel,
    blocks: Blocks,
) -> Result<Vec<Launch>, OpError> {
    let Op::SeparableConv(op) = problem.op else { return Err(OpError::new("not a pair of convolutions")) };
    let shape = shape(op, problem).ok_or_else(|| OpError::new("constant filters are needed"))?;
    let Blocks { run, slices, memory, grid } = blocks;
    let [filters, matrix] = packed(problem, slices)?;
    let between = between(op, &shape, problem);
    let mut steps = Vec::new();
    let last = u32::try_from(problem.arity.saturating_sub(1)).unwrap_or(u32::MAX);
    let problem = &if op.bias { with_bias_at(last, problem, &mut steps) } else { problem.clone() };
    let mut shader = Shader::new(problem);
    for (name, value) in &candidate.knobs {
        shader.knob(name, *value);
    }
    shader.workgroup_memory(memory);
    let windows = &shape.windows;
    windows.declare(&mut shader, &[1, 2]);
    // Runs that are cut off at the end of a line read on past it.
    let [_, padded_y, padded_x] = windows.padded();
    let [_, _, width] = spatial(&problem.result.shape);
    let cut = !width.is_multiple_of(i64::from(run));
    declare_guards(&mut shader, 0, &[1, 2], [false, padded_y, padded_x || cut]);
    shader.constant("SPAN", format_args!("{}u", depthwise::span(windows, run)));
    shader.constant("STEP_X", format_args!("{}u", windows.stride[2]));
    shader.constant("TAP_X", format_args!("{}u", windows.dilation[2]));
    shader.knob("IN_SLICES", shape.inputs);
    shader.knob("OUT_SLICES", shape.outputs);
    let (source, result) = (problem.operands[0].shape.clone(), problem.result.shape.clone());
    shader.size("batches", &result[0]);
    windows.declare_sizes(&mut shader, &[1, 2], [&source, &result]);
    let at = four_channels(result.len(), "b", "s", ["0u", "y", "x"]);
    let params = "b: u32, y: u32, x: u32, s: u32";
    shader.read("src", params, "", 0, &at);
    read_packed(&mut shader, "tap", filters);
    read_packed(&mut shader, "weight", matrix);
    shader.problem = &between;
    let start = Some(("v".to_string(), Class::Float));
    let (statements, value, _) = shader.epilogue_text(&op.epilogue, start, &at, 4, false)?;
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

/// The problem as the epilogue between the convolutions sees it: its result is the depthwise one, which lies nowhere.
fn between<'a>(op: &'a SeparableConv, shape: &Shape, problem: &Problem<'a>) -> Problem<'a> {
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
        codes: None,
    };
    Problem { epilogue: &op.epilogue, result, ..problem.clone() }
}
