//! `grid_sample.wgsl`: samples an image at positions that another operand holds.

use serde::Deserialize;

use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::ir::op::{GridSample, Op};
use crate::ir::ops::grid_sample::{CUBIC, SamplePadding};
use crate::kernels::cost::{Estimate, Parameters};
use crate::kernels::kernel::{Candidate, Configuration, Group, InPlace, Kernel, ThreadsConfig};
use crate::kernels::shared::window::{AXES, Windows, axes, vec4_channels};
use crate::shader::access::Coordinates;
use crate::shader::problem::Problem;
use crate::shader::{Grid, LaunchDraft, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "grid_sample",
    wgsl: concat!(
        include_str!("../shared/preludes/image_sizes.wgsl"),
        include_str!("../shared/preludes/image_hooks_3d.wgsl"),
        include_str!("grid_sample.wgsl")
    ),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::from_parameters::<Params>()],
    in_place: InPlace::Epilogue,
};

/// Cost parameters of the kernel `grid_sample`. All are positive.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Fraction of the memory bandwidth that the kernel reaches; 0 to 1. It is low because sampled pixels are not
    /// contiguous.
    bandwidth_fraction: f64,
    /// Fraction of the f32 peak that the kernel reaches. 0 to 1.
    peak_fraction: f64,
    /// Floating-point operations per tap of four channels.
    tap_operations: f64,
}

impl Parameters for Params {
    const GROUP: &str = "grid_sample";
}

/// Returns the number of taps (image pixels that are read) per sampling position.
fn taps(op: &GridSample, problem: &Problem<'_>) -> usize {
    op.count().pow(u32::try_from(problem.result.rank().saturating_sub(2)).unwrap_or(0))
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Op::GridSample(op) = problem.op else { return Vec::new() };
    let Some(p) = Params::from_problem(problem) else { return Vec::new() };
    if !(3..=5).contains(&problem.result.rank()) || !problem.computed.is_float() {
        return Vec::new();
    }
    let elements = problem.max(&problem.result.elements()) as f64;
    let taps = taps(op, problem);
    let operations = elements / 4.0 * taps as f64 * p.tap_operations;
    let bytes = problem.traffic() as f64 / p.bandwidth_fraction;
    vec![Candidate::new(
        &ThreadsConfig { threads: problem.threads() },
        Estimate::roofline(problem, operations, bytes, p.peak_fraction),
        format!("{taps} taps for each of {elements} result elements, four channels at a time"),
    )]
}

fn launches(problem: &Problem<'_>, config: ThreadsConfig) -> Result<Vec<LaunchDraft>, OpError> {
    let Op::GridSample(op) = problem.op else {
        return Err(OpError::new("the operator is not a grid sample"));
    };
    let rank = problem.result.rank();
    let spatial = rank.saturating_sub(2);
    let mut shader = Shader::new(problem);
    let ThreadsConfig { threads } = config;
    config.declare(&mut shader);
    // An image with fewer axes has the last ones.
    for (i, name) in AXES.iter().enumerate() {
        let exists = i + spatial >= AXES.len();
        shader.constant(&format!("TAPS_{name}"), format_args!("{}u", if exists { op.count() } else { 1 }));
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

    // The grid has the axes of the result without channels, and the coordinate as the last axis.
    let mut at = axes(rank, "b", "c", ["z", "y", "x"]);
    at.remove(1);
    at.push("i".into());
    shader.read("load_position", "b: u32, z: u32, y: u32, x: u32, i: u32", "", 1, &Coordinates::element(at));
    let at = vec4_channels(rank, "b", "s", ["z", "y", "x"]);
    shader.read("src", "b: u32, z: u32, y: u32, x: u32, s: u32", "", 0, &at);
    shader.write("store", "b: u32, z: u32, y: u32, x: u32, s: u32", "", &at)?;
    let mut units = problem.result.shape.clone();
    units[1] = slices;
    let grid = Grid::linear(&product(&units), threads, problem.bounds);
    let flops = problem.result.elements().mul(&Dim::from(taps(op, problem))).scale(2);
    Ok(vec![shader.finish("grid_sample", KERNEL.wgsl, grid, flops)])
}
