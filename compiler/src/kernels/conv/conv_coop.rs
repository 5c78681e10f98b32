//! `coop.wgsl` for convolutions in f16 or of 8-bit integers, as implicit matrix products: a row per pixel, K runs over
//! taps and input channels, N over output channels. Nothing is unfolded in memory; the hook that loads the image does it.

use serde::Deserialize;

use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::ir::op::{Constant, Conv, Op};
use crate::kernels::cost::Parameters;
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::kernels::shared::coop::{self, Panels, Second, sums};
use crate::kernels::shared::pixels::{Image, Rows, load_image, positions, rows};
use crate::kernels::shared::window::{Windows, constant, fits, known, with_bias};
use crate::shader::access::Coordinates;
use crate::shader::problem::Problem;
use crate::shader::{Launch, Shader};
use crate::target::MatrixScope;

pub(crate) const KERNEL: Kernel = Kernel {
    name: "conv_coop",
    wgsl: coop::WGSL,
    candidates,
    launches,
    matrices: Some(MatrixScope::Subgroup),
    params: &[Group::of::<coop::Params>(), Group::of::<Params>()],
    in_place: InPlace::Epilogue,
};

/// A convolution that this kernel computes.
struct Shape {
    windows: Windows,
    /// Input channels, and the same in groups of eight.
    channels: usize,
    eights: usize,
    rows: Rows,
}

fn shape(op: &Conv, problem: &Problem<'_>) -> Option<Shape> {
    let rank = problem.result.rank();
    let filters = constant(problem, 1)?;
    if op.group != 1 || !(3..=5).contains(&rank) {
        return None;
    }
    coop::matrices(problem)?;
    let channels = known(&problem.operands.first()?.shape[1])?;
    known(&problem.result.shape[1])?;
    let windows =
        Windows::new(filters.shape.get(2..)?, &op.strides, &op.dilations, &op.pads_begin, &op.pads_end);
    Some(Shape { windows, channels, eights: channels.div_ceil(8), rows: rows(problem) })
}

/// Filters `[O, I, taps]` in panels of outputs, whose rows run over taps and input channels, which are padded to eights,
/// or to whole fragments with a single tap or where they are that anyway.
fn pack(filters: &Constant, shape: &Shape, problem: &Problem<'_>) -> Option<Panels> {
    let matrix = coop::matrices(problem)?;
    let [o, i, ..] = filters.shape.as_slice() else { return None };
    let taps = shape.windows.taps();
    let whole = taps == 1 || i.is_multiple_of(matrix.k as usize);
    let round = if whole { matrix.k as usize } else { 8 };
    let panels = coop::pack_panels(filters, &[('N', *o), ('K', *i), ('S', taps)], round, matrix.n);
    fits(problem, &panels.packed).then_some(panels)
}

/// K in groups of eight.
fn depth8(shape: &Shape) -> Dim {
    Dim::from(shape.windows.taps() * shape.eights)
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Op::Conv(op) = problem.op else { return Vec::new() };
    let Some(shape) = shape(op, problem) else { return Vec::new() };
    let Some(p) = Params::of(problem) else { return Vec::new() };
    let Some(filters) = constant(problem, 1) else { return Vec::new() };
    let Some(panels) = pack(filters, &shape, problem) else { return Vec::new() };
    let sizes = [&shape.rows.m, &problem.result.shape[1], &depth8(&shape).scale(8)].map(|d| problem.max(d));
    let direct = panels.in_fragments(problem);
    let mut candidates = coop::tiles(problem, problem.max(&shape.rows.batch), sizes, direct, p.gathered);
    if !problem.operands[0].is_slices4() {
        for candidate in &mut candidates {
            candidate.cost *= p.scattered;
        }
    }
    candidates
}

/// Parameters of the estimate, beside that of `coop.wgsl`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// How much longer a load of eight channels of a pixel takes than one of eight neighbours.
    gathered: f64,
    /// How much longer all takes where the eight channels of a pixel lie apart.
    scattered: f64,
}

impl Parameters for Params {
    const GROUP: &str = "conv_coop";
}

fn launches(problem: &Problem<'_>, candidate: &Candidate) -> Result<Vec<Launch>, OpError> {
    let Op::Conv(op) = problem.op else { return Err(OpError::new("not a convolution")) };
    let shape = shape(op, problem).ok_or_else(|| OpError::new("constant filters are needed"))?;
    let filters = constant(problem, 1).ok_or_else(|| OpError::new("constant filters are needed"))?;
    let panels = pack(filters, &shape, problem).ok_or_else(|| OpError::new("filters do not fit"))?;
    let mut steps = Vec::new();
    let problem = &with_bias(problem, &mut steps);
    let mut shader = Shader::new(problem);
    let (prelude, places) = positions(&mut shader, &shape.rows);
    let image = Image { op, windows: &shape.windows, rows: &shape.rows, groups: shape.eights, group: "Unit" };
    let text = load_image(
        &mut shader,
        &image,
        "load_a",
        (&prelude, &places),
        |shader, name, params, before, at| coop::eight(shader, name, params, before, 0, at),
    )?;
    shader.replace("load_a", text);
    let n = problem.result.shape[1].clone();
    let weights = Dim::from(shape.windows.taps() * shape.channels);
    // Taps outside of the image count as zero, so that the sums are those of whole filters everywhere.
    sums::correct(&mut shader, [&n, &weights], true)?;
    shader.constant("ROWS_FIRST", problem.result.is_slices4());
    let mut places = places;
    places[1] = "n4".into();
    let pixel = shape.rows.all.then(|| "row".to_string());
    let at = Coordinates { axes: places, lanes: Some(1), pixel, unit: None };
    shader.write("store", "batch: u32, row: u32, n4: u32", &prelude, &at)?;
    let flops = product(&problem.result.shape).mul(&weights).scale(2);
    let k8 = depth8(&shape);
    let sizes = [&shape.rows.m, &n, &k8];
    let grid = coop::declare(&mut shader, candidate, sizes, &shape.rows.batch, Second::Panels(panels))?;
    Ok(coop::launch(shader.finish("conv_coop", KERNEL.wgsl, grid, flops)?, problem))
}
