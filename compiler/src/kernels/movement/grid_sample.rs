//! `grid_sample.wgsl`: an image sampled at positions that another operand gives.

use serde::Deserialize;

use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::ir::op::{GridSample, Op};
use crate::ir::ops::grid_sample::{CUBIC, SamplePadding};
use crate::kernels::cost::{Parameters, roofline};
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::kernels::shared::window::{AXES, Windows, axes, four_channels};
use crate::shader::access::Coordinates;
use crate::shader::problem::Problem;
use crate::shader::{Grid, Launch, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "grid_sample",
    wgsl: include_str!("grid_sample.wgsl"),
    candidates,
    launches,
    matrices: None,
    params: &[Group::of::<Params>()],
    in_place: InPlace::Epilogue,
};

/// Parameters of the estimate.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Part of the arithmetic peak that is reached.
    reached: f64,
    /// Part of the memory's bandwidth that is reached, since neighbours are sampled anywhere.
    bandwidth: f64,
    /// Operations of a tap on four channels.
    tap: f64,
}

impl Parameters for Params {
    const GROUP: &str = "grid_sample";
}

/// Taps of a position.
fn taps(op: &GridSample, problem: &Problem<'_>) -> usize {
    op.count().pow(u32::try_from(problem.result.rank().saturating_sub(2)).unwrap_or(0))
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Op::GridSample(op) = problem.op else { return Vec::new() };
    let Some(p) = Params::of(problem) else { return Vec::new() };
    if !(3..=5).contains(&problem.result.rank()) || !problem.computed.is_float() {
        return Vec::new();
    }
    let elements = problem.max(&problem.result.elements()) as f64;
    let taps = taps(op, problem);
    let operations = elements / 4.0 * taps as f64 * p.tap;
    vec![Candidate {
        knobs: vec![("THREADS", problem.threads())],
        cost: roofline(problem, operations, problem.traffic() as f64 / p.bandwidth, p.reached),
        reason: format!("{taps} taps for {elements} elements, four channels at a time"),
    }]
}

fn launches(problem: &Problem<'_>, candidate: &Candidate) -> Result<Vec<Launch>, OpError> {
    let Op::GridSample(op) = problem.op else { return Err(OpError::new("not a grid sample")) };
    let rank = problem.result.rank();
    let spatial = rank.saturating_sub(2);
    let mut shader = Shader::new(problem);
    let threads = candidate.knob("THREADS");
    shader.knob("THREADS", threads);
    // The last axes are there.
    for (i, name) in AXES.iter().enumerate() {
        let there = i + spatial >= AXES.len();
        shader.constant(&format!("TAPS_{name}"), format_args!("{}u", if there { op.count() } else { 1 }));
    }
    shader.constant("AXES", format_args!("{spatial}u"));
    let padding = match op.padding {
        SamplePadding::Zeros => "ZEROS",
        SamplePadding::Border => "BORDER",
        SamplePadding::Reflection => "REFLECTION",
    };
    shader.constant("PADDING", padding);
    shader.constant("ALIGN_CORNERS", op.align_corners);
    shader.constant("CUBIC", format_args!("{CUBIC:?}"));
    let windows = Windows::new(&[], &[], &[], &[], &[]);
    windows.declare_image(&mut shader, &[0, 1, 2]);
    let slices = problem.result.shape[1].ceil_div(4);
    shader.size("slices", &slices);

    // A grid has its positions where the result has pixels, and in place of channels nothing.
    let mut at = axes(rank, "b", "c", ["z", "y", "x"]);
    at.remove(1);
    at.push("i".into());
    shader.read("place", "b: u32, z: u32, y: u32, x: u32, i: u32", "", 1, &Coordinates::element(at));
    let at = four_channels(rank, "b", "s", ["z", "y", "x"]);
    shader.read("src", "b: u32, z: u32, y: u32, x: u32, s: u32", "", 0, &at);
    shader.write("store", "b: u32, z: u32, y: u32, x: u32, s: u32", "", &at)?;
    let mut units = problem.result.shape.clone();
    units[1] = slices;
    let grid = Grid::linear(&product(&units), threads, problem.bounds);
    let flops = problem.result.elements().mul(&Dim::from(taps(op, problem))).scale(2);
    Ok(vec![shader.finish("grid_sample", KERNEL.wgsl, grid, flops)?])
}
