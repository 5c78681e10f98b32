//! Convolutions of f16 or 8-bit integers on matrix units with `coop.wgsl`, as implicit GEMM. M are the pixels, K the
//! taps and input channels, N the output channels. The load hook computes im2col addresses; no im2col matrix is stored.

use serde::Deserialize;

use super::filters::UnpackedFilters;
use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::ir::op::{Constant, Conv, Op};
use crate::kernels::cost::Parameters;
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::kernels::shared::coop::{self, Panels, SecondOperand};
use crate::kernels::shared::pixels::{Image, PixelRows, load_image, pixel_rows, row_coordinates};
use crate::kernels::shared::sum_correction::declare_sum_correction;
use crate::kernels::shared::window::{Windows, constant, fits, known, with_bias};
use crate::shader::access::Coordinates;
use crate::shader::problem::Problem;
use crate::shader::{LaunchDraft, Shader};
use crate::target::MatrixScope;

pub(crate) const KERNEL: Kernel = Kernel {
    name: "conv_coop",
    wgsl: coop::WGSL,
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: Some(MatrixScope::Subgroup),
    params: &[Group::from_parameters::<coop::Params>(), Group::from_parameters::<Params>()],
    in_place: InPlace::Epilogue,
};

/// Geometry of a convolution that is computed as an implicit GEMM.
pub(super) struct Shape {
    pub(super) windows: Windows,
    /// Input channels.
    pub(super) channels: usize,
    /// Number of input channels divided by eight, rounded up.
    vec8s: usize,
    pub(super) rows: PixelRows,
    /// Form of the filters; `None` if the kernel packs them.
    pub(super) unpacked: Option<UnpackedFilters>,
}

/// Returns the geometry of a convolution, or `None` if it cannot be computed as an implicit GEMM on matrix units.
pub(super) fn gemm_shape(op: &Conv, problem: &Problem<'_>) -> Option<Shape> {
    let rank = problem.result.rank();
    let unpacked = UnpackedFilters::from_problem(op, problem);
    if constant(problem, 1).is_none() && unpacked.is_none() {
        return None;
    }
    let taps: Vec<usize> =
        problem.operands.get(1)?.shape.get(2..)?.iter().map(known).collect::<Option<_>>()?;
    if op.group != 1 || !(3..=5).contains(&rank) {
        return None;
    }
    let channels = known(&problem.operands.first()?.shape[1])?;
    known(&problem.result.shape[1])?;
    let windows = Windows::new(&taps, &op.strides, &op.dilations, &op.pads_begin, &op.pads_end);
    Some(Shape { windows, channels, vec8s: channels.div_ceil(8), rows: pixel_rows(problem), unpacked })
}

/// Packs convolution filters `[O, I, taps]` into panels. A panel has the output channels of one matrix fragment as
/// columns, and all pairs of a tap and an input channel as rows. With one tap, input channels are padded to whole
/// fragments. With several taps, the input channels of each tap are padded to a multiple of 8.
fn pack(filters: &Constant, shape: &Shape, problem: &Problem<'_>) -> Option<Panels> {
    let matrix = coop::matrix_shape(problem)?;
    let [o, i, ..] = filters.shape.as_slice() else { return None };
    let taps = shape.windows.taps();
    let whole_fragments = taps == 1 || i.is_multiple_of(matrix.k as usize);
    let k_multiple = if whole_fragments { matrix.k as usize } else { 8 };
    let panels = coop::pack_panels(filters, &[('N', *o), ('K', *i), ('S', taps)], k_multiple, matrix.n);
    fits(problem, &panels.packed).then_some(panels)
}

/// Returns K of the implicit GEMM, counted in groups of eight: the number of taps times the number of groups of eight
/// input channels.
pub(super) fn depth8(shape: &Shape) -> Dim {
    Dim::from(shape.windows.taps() * shape.vec8s)
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Op::Conv(op) = problem.op else { return Vec::new() };
    let Some(shape) = gemm_shape(op, problem) else { return Vec::new() };
    let Some(p) = Params::from_problem(problem) else { return Vec::new() };
    let panels = constant(problem, 1).and_then(|filters| pack(filters, &shape, problem));
    if panels.is_none() && shape.unpacked.is_none() {
        return Vec::new();
    }
    let sizes = [&shape.rows.m, &problem.result.shape[1], &depth8(&shape).scale(8)].map(|d| problem.max(d));
    let direct = panels.is_some_and(|panels| panels.has_whole_fragments(problem));
    let candidates = coop::tile_candidates(
        problem,
        problem.max(&shape.rows.batch),
        sizes,
        direct,
        p.pixel_load_time_ratio,
    );
    if problem.operands[0].is_slices4() {
        return candidates;
    }
    let strided = |candidate: Candidate| {
        let estimate = candidate.estimate.scaled(p.strided_channels_time_ratio);
        candidate.with_estimate(estimate)
    };
    candidates.into_iter().map(strided).collect()
}

/// Cost parameters of the kernel `conv_coop`, in addition to the parameters of matmuls on matrix units
/// (`coop::Params`). All are 1 or more.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Ratio of the time to load 8 channels of a pixel to the time to load 8 contiguous elements of a matrix.
    pixel_load_time_ratio: f64,
    /// Ratio of the total time if the channels of a pixel are not contiguous to the total time with contiguous channels.
    strided_channels_time_ratio: f64,
}

impl Parameters for Params {
    const GROUP: &str = "conv_coop";
}

fn launches(problem: &Problem<'_>, config: coop::Config) -> Result<Vec<LaunchDraft>, OpError> {
    let Op::Conv(op) = problem.op else { return Err(OpError::new("the operator is not a convolution")) };
    let shape = gemm_shape(op, problem).ok_or_else(|| OpError::new("the filters must be constant"))?;
    let panels = constant(problem, 1).and_then(|filters| pack(filters, &shape, problem));
    let mut steps = Vec::new();
    let problem = &with_bias(problem, &mut steps);
    let mut shader = Shader::new(problem);
    declare_pixels(&mut shader, op, &shape, "Vec8")?;
    shader.constant("ROWS_FIRST", problem.result.is_slices4());
    let n = problem.result.shape[1].clone();
    let weights = Dim::from(shape.windows.taps() * shape.channels);
    // Taps outside the image have the value of the zero point, so the correction uses the sums of whole filters everywhere.
    declare_sum_correction(&mut shader, [&n, &weights], true)?;
    let flops = product(&problem.result.shape).mul(&weights).scale(2);
    let k8 = depth8(&shape);
    let sizes = [&shape.rows.m, &n, &k8];
    let second = match (panels, shape.unpacked) {
        (Some(panels), _) => SecondOperand::Panels(panels),
        (None, Some(filters)) => SecondOperand::Loaded { along_k: filters.declare_vec8_load(&mut shader)? },
        (None, None) => {
            return Err(OpError::new("the filters exceed the maximum size of a storage buffer"));
        }
    };
    let grid = coop::declare_matmul(&mut shader, config, sizes, &shape.rows.batch, second)?;
    let mut launch = shader.finish("conv_coop", KERNEL.wgsl, grid, flops);
    // The code that finds a pixel of a window is long.
    launch.keeps_loops = shape.windows.taps() > 1;
    Ok(coop::with_matrix_requirements(launch, problem))
}

/// Replaces the hooks `load_a` and `store` of an implicit GEMM, as [`declare_image`] and [`declare_result`] do.
///
/// # Errors
/// If the image or the result has a layout that the hooks cannot access (a defect of the candidates).
fn declare_pixels(
    shader: &mut Shader<'_>,
    op: &Conv,
    shape: &Shape,
    vec8: &'static str,
) -> Result<(), OpError> {
    let pixels = row_coordinates(shader, &shape.rows);
    declare_image(shader, op, shape, &pixels, vec8)?;
    declare_result(shader, shape, pixels)
}

/// Replaces the hook `load_a` of an implicit GEMM, which reads eight channels of a pixel in the WGSL type `vec8`.
/// `pixels` are the coordinates of rows ([`row_coordinates`]).
///
/// # Errors
/// If the image has a layout that the hook cannot access (a defect of the candidates).
pub(super) fn declare_image(
    shader: &mut Shader<'_>,
    op: &Conv,
    shape: &Shape,
    (prelude, coordinates): &(String, Vec<String>),
    vec8: &'static str,
) -> Result<(), OpError> {
    let image =
        Image { op, windows: &shape.windows, rows: &shape.rows, groups: shape.vec8s, group_type: vec8 };
    let load_a =
        load_image(shader, &image, "load_a", (prelude, coordinates), |shader, name, params, before, at| {
            coop::vec8_read(shader, name, params, before, 0, at)
        })?;
    shader.replace("load_a", load_a);
    Ok(())
}

/// Replaces the hook `store` of an implicit GEMM, which stores four channels of a pixel of the result. `pixels` are the
/// coordinates of rows ([`row_coordinates`]).
///
/// # Errors
/// If the result has a layout that the hook cannot access (a defect of the candidates).
pub(super) fn declare_result(
    shader: &mut Shader<'_>,
    shape: &Shape,
    (prelude, mut coordinates): (String, Vec<String>),
) -> Result<(), OpError> {
    coordinates[1] = "n4".into();
    let pixel = shape.rows.all_images.then(|| "row".to_string());
    let at = Coordinates { axes: coordinates, lanes: Some(1), pixel, vec4_index: None };
    shader.write("store", "batch: u32, row: u32, n4: u32", &prelude, &at)?;
    Ok(())
}
