//! `tiled_dot.wgsl` for convolutions of 8-bit integers with constant filters, as implicit matrix products: a row per
//! pixel, K runs over taps and input channels in words of four, N over output channels. Nothing is unfolded in memory;
//! the hook that loads the image does it.

use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::ir::op::{Constant, Conv, Op};
use crate::ir::tensor::DeviceType;
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::kernels::shared::dot::{Signs, varies};
use crate::kernels::shared::pixels::{Image, load_image};
use crate::kernels::shared::pixels::{Rows, positions, rows};
use crate::kernels::shared::tiled_dot;
use crate::kernels::shared::window::{Windows, constant, fits, known, with_bias};
use crate::shader::access::Coordinates;
use crate::shader::pack::Packed;
use crate::shader::pack::presets::N4K4;
use crate::shader::problem::Problem;
use crate::shader::{Launch, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "conv_dot",
    wgsl: tiled_dot::WGSL,
    candidates,
    launches,
    matrices: None,
    params: &[Group::of::<tiled_dot::Params>()],
    in_place: InPlace::Epilogue,
};

/// A convolution that this kernel computes.
struct Shape {
    windows: Windows,
    /// Input channels, and the same in groups of four.
    channels: usize,
    fours: usize,
    rows: Rows,
    signs: Signs,
}

fn shape(op: &Conv, problem: &Problem<'_>) -> Option<Shape> {
    let (filters, signs) = (constant(problem, 1)?, Signs::of(problem)?);
    // A single channel is read into all four places, of which three must be zero where the filters' bits are flipped.
    let placed = !signs.flips(1) || varies(&problem.operands[0], 1);
    if op.group != 1 || !(3..=5).contains(&problem.result.rank()) || !placed {
        return None;
    }
    let channels = known(&problem.operands.first()?.shape[1])?;
    known(&problem.result.shape[1])?;
    let windows =
        Windows::new(filters.shape.get(2..)?, &op.strides, &op.dilations, &op.pads_begin, &op.pads_end);
    Some(Shape { windows, channels, fours: channels.div_ceil(4), rows: rows(problem), signs })
}

/// Filters `[O, I, taps]` as words: one matrix of inputs by outputs for each tap.
fn pack(filters: &Constant, problem: &Problem<'_>) -> Option<Packed> {
    let [o, i, taps @ ..] = filters.shape.as_slice() else { return None };
    let axes = [('N', *o), ('K', *i), ('B', taps.iter().product())];
    let packed = N4K4.of(filters, &axes, &[], DeviceType::Byte);
    fits(problem, &packed).then_some(packed)
}

/// K, with the channels of each tap in whole groups of four.
fn depth(shape: &Shape) -> Dim {
    Dim::from(shape.windows.taps() * shape.fours * 4)
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Op::Conv(op) = problem.op else { return Vec::new() };
    let Some(shape) = shape(op, problem) else { return Vec::new() };
    let Some(packed) = constant(problem, 1).and_then(|filters| pack(filters, problem)) else {
        return Vec::new();
    };
    let sizes = [&shape.rows.m, &problem.result.shape[1], &depth(&shape)].map(|d| problem.max(d));
    tiled_dot::tiles(problem, shape.signs, problem.max(&shape.rows.batch), sizes, Some(&packed))
}

fn launches(problem: &Problem<'_>, candidate: &Candidate) -> Result<Vec<Launch>, OpError> {
    let Op::Conv(op) = problem.op else { return Err(OpError::new("not a convolution")) };
    let shape = shape(op, problem).ok_or_else(|| OpError::new("constant filters are needed"))?;
    let packed = constant(problem, 1).and_then(|filters| pack(filters, problem));
    let packed = packed.ok_or_else(|| OpError::new("filters do not fit"))?;
    let mut steps = Vec::new();
    let problem = &with_bias(problem, &mut steps);
    let mut shader = Shader::new(problem);
    let (prelude, places) = positions(&mut shader, &shape.rows);
    let image = Image { op, windows: &shape.windows, rows: &shape.rows, groups: shape.fours, group: "u32" };
    let text = load_image(
        &mut shader,
        &image,
        "word_a",
        (&prelude, &places),
        |shader, name, params, before, at| {
            let values = shader.read_fn("values_a", params, before, 0, at, false);
            let names = params.replace(": u32", "");
            Ok(format!(
                "{values}fn {name}({params}) -> u32 {{ return word(vec4<u32>(values_a({names}))); }}\n"
            ))
        },
    )?;
    let word = shape.signs.flipped(0, "word_a(batch, row, k4)");
    shader.replace(
        "load_a",
        format!("{text}fn load_a(batch: u32, row: u32, k4: u32) -> u32 {{ return {word}; }}\n"),
    );

    let n = problem.result.shape[1].clone();
    let bound = shader.packed(packed);
    let buffer = shader.bind(bound, "vec4<u32>", false);
    let wide = shader.dim(&n.ceil_div(4));
    let words = shape.signs.four_flipped(&format!("{buffer}[k4 * {wide} + n4]"));
    shader.replace(
        "load_b",
        format!("fn load_b(batch: u32, k4: u32, n4: u32) -> vec4<u32> {{ return {words}; }}\n"),
    );

    let mut places = places;
    places[1] = "n4".into();
    let pixel = shape.rows.all.then(|| "row".to_string());
    let at = Coordinates { axes: places, lanes: Some(1), pixel, unit: None };
    shader.write("store", "batch: u32, row: u32, n4: u32", &prelude, &at)?;
    let taps = Dim::from(shape.windows.taps() * shape.channels);
    let flops = product(&problem.result.shape).mul(&taps).scale(2);
    let sizes = [&shape.rows.m, &n, &depth(&shape)];
    let grid = tiled_dot::declare(&mut shader, candidate, shape.signs, &shape.rows.batch, sizes);
    Ok(vec![shader.finish("conv_dot", KERNEL.wgsl, grid, flops)?])
}
