//! Convolutions of 8-bit integers with constant filters, computed by `tiled_dot.wgsl` as implicit GEMM. M are the
//! pixels, K the taps and input channels in packed words of four, N the output channels. The load hook computes im2col
//! addresses; no im2col matrix is stored.

use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::ir::op::{Constant, Conv, Op};
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::kernels::shared::dot::Signs;
use crate::kernels::shared::pixels::{Image, load_image};
use crate::kernels::shared::pixels::{PixelRows, pixel_rows, row_coordinates};
use crate::kernels::shared::sum_correction::Correction;
use crate::kernels::shared::tiled_dot;
use crate::kernels::shared::window::{Windows, constant, fits, known, with_bias};
use crate::kernels::shared::words::word_read;
use crate::shader::access::Coordinates;
use crate::shader::pack::Packed;
use crate::shader::pack::presets::N4K4;
use crate::shader::problem::Problem;
use crate::shader::{LaunchDraft, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "conv_dot",
    wgsl: tiled_dot::WGSL,
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::from_parameters::<tiled_dot::Params>()],
    in_place: InPlace::Epilogue,
};

/// Geometry of a convolution that the kernel `conv_dot` can compute.
struct Shape {
    windows: Windows,
    /// Input channels.
    channels: usize,
    /// Number of packed words, of four channels each, that hold the input channels of a pixel.
    words: usize,
    rows: PixelRows,
    signs: Signs,
}

fn shape(op: &Conv, problem: &Problem<'_>) -> Option<Shape> {
    let (filters, signs) = (constant(problem, 1)?, Signs::from_problem(problem)?);
    if op.group != 1 || !(3..=5).contains(&problem.result.rank()) {
        return None;
    }
    let channels = known(&problem.operands.first()?.shape[1])?;
    known(&problem.result.shape[1])?;
    let windows =
        Windows::new(filters.shape.get(2..)?, &op.strides, &op.dilations, &op.pads_begin, &op.pads_end);
    Some(Shape { windows, channels, words: channels.div_ceil(4), rows: pixel_rows(problem), signs })
}

/// Packs convolution filters `[O, I, taps]` as words of four 8-bit values: one matrix of input by output channels per tap.
fn pack(filters: &Constant, problem: &Problem<'_>) -> Option<Packed> {
    let [o, i, taps @ ..] = filters.shape.as_slice() else { return None };
    let axes = [('N', *o), ('K', *i), ('B', taps.iter().product())];
    let packed = N4K4.packed(filters, &axes, &[], filters.dtype.on_device());
    fits(problem, &packed).then_some(packed)
}

/// Returns K of the implicit GEMM: taps times input channels, padded to a multiple of 4.
fn depth(shape: &Shape) -> Dim {
    Dim::from(shape.windows.taps() * shape.words * 4)
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Op::Conv(op) = problem.op else { return Vec::new() };
    let Some(shape) = shape(op, problem) else { return Vec::new() };
    if constant(problem, 1).and_then(|filters| pack(filters, problem)).is_none() {
        return Vec::new();
    }
    let sizes = [&shape.rows.m, &problem.result.shape[1], &depth(&shape)].map(|d| problem.max(d));
    tiled_dot::tile_candidates(problem, shape.signs, problem.max(&shape.rows.batch), sizes, true)
}

fn launches(problem: &Problem<'_>, config: tiled_dot::Config) -> Result<Vec<LaunchDraft>, OpError> {
    let Op::Conv(op) = problem.op else { return Err(OpError::new("the operator is not a convolution")) };
    let shape = shape(op, problem).ok_or_else(|| OpError::new("the filters must be constant"))?;
    let packed = constant(problem, 1).and_then(|filters| pack(filters, problem));
    let packed =
        packed.ok_or_else(|| OpError::new("the filters exceed the maximum size of a storage buffer"))?;
    let mut steps = Vec::new();
    let problem = &with_bias(problem, &mut steps);
    let mut shader = Shader::new(problem);
    let (prelude, coordinates) = row_coordinates(&mut shader, &shape.rows);
    let image =
        Image { op, windows: &shape.windows, rows: &shape.rows, groups: shape.words, group_type: "u32" };
    let word_a = load_image(
        &mut shader,
        &image,
        "word_a",
        (&prelude, &coordinates),
        |shader, name, params, before, at| Ok(word_read(shader, name, params, before, 0, at)),
    )?;
    let word = shape.signs.flipped_word(0, "word_a(batch, row, k4)");
    shader.replace(
        "load_a",
        format!("{word_a}fn load_a(batch: u32, row: u32, k4: u32) -> u32 {{ return {word}; }}\n"),
    );

    let n = problem.result.shape[1].clone();
    let bound = shader.packed(packed);
    let buffer = shader.bind(bound, "vec4<u32>", false);
    let wide = shader.dim(&n.ceil_div(4));
    let words = shape.signs.flipped_vec4(&format!("{buffer}[k4 * {wide} + n4]"));
    shader.replace(
        "load_b",
        format!("fn load_b(batch: u32, k4: u32, n4: u32) -> vec4<u32> {{ return {words}; }}\n"),
    );

    let mut coordinates = coordinates;
    coordinates[1] = "n4".into();
    let pixel = shape.rows.all_images.then(|| "row".to_string());
    let at = Coordinates { axes: coordinates, lanes: Some(1), pixel, vec4_index: None };
    let weights = Dim::from(shape.windows.taps() * shape.channels);
    let params = "batch: u32, row: u32, n4: u32";
    match Correction::bind(&mut shader, [&n, &weights], true, false)? {
        Some(correction) => {
            let store = shader.write_fn("store_corrected", params, &prelude, &at, false)?;
            let call = format!("store_corrected(batch, row, n4, v + {})", correction.vec4());
            shader.replace("store", format!("{store}fn store({params}, v: vec4<i32>) {{ {call}; }}\n"));
        }
        None => shader.write("store", params, &prelude, &at)?,
    }
    let flops = product(&problem.result.shape).mul(&weights).scale(2);
    let sizes = [&shape.rows.m, &n, &depth(&shape)];
    let grid = tiled_dot::declare_matmul(&mut shader, config, shape.signs, &shape.rows.batch, sizes);
    Ok(vec![shader.finish("conv_dot", KERNEL.wgsl, grid, flops)])
}
