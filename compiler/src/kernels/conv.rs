//! `conv.wgsl`: convolutions of images with constant filters, a block of pixels and output slices per invocation.

use super::problem::Problem;
use super::shader::{Grid, Launch, Shader};
use super::window::{
    Windows, constant, fits, four_channels, group_shape, known, pack_filters, read_packed, spatial, with_bias,
};
use super::{Candidate, Kernel, roofline};
use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::ir::op::{Conv, Op};

pub(super) const KERNEL: Kernel =
    Kernel { name: "conv", wgsl: include_str!("conv.wgsl"), candidates, launches, cases: CASES };

const CASES: &[&str] = &[
    r#"
%0 = input {"name":"x","dtype":"f32","shape":[1,3,13,11]}
%1 = constant {"dtype":"f32","shape":[10,3,3,3],"random":1}
%2 = constant {"dtype":"f32","shape":[10],"random":2}
%3 = conv %0 %1 %2 {"strides":[2,2],"dilations":[1,1],"pads_begin":[1,1],"pads_end":[1,1],"group":1}
%4 = relu %3
output "y" %4
"#,
    r#"
%0 = input {"name":"x","dtype":"f32","shape":[2,9,7,10]}
%1 = relayout %0 {"layout":"slices4"}
%2 = constant {"dtype":"f32","shape":[13,9,3,2],"random":3}
%3 = conv %1 %2 {"strides":[1,1],"dilations":[2,1],"pads_begin":[2,0],"pads_end":[1,1],"group":1} : f32[2, 13, 6, 10]@slices4
%4 = add %3 %3 : f32[2, 13, 6, 10]
output "y" %4
"#,
    r#"
%0 = input {"name":"x","dtype":"f32","shape":[1,16,6,5]}
%1 = constant {"dtype":"f32","shape":[24,8,3,3],"random":4}
%2 = constant {"dtype":"f32","shape":[24],"random":5}
%3 = conv %0 %1 %2 {"strides":[1,1],"dilations":[1,1],"pads_begin":[1,1],"pads_end":[1,1],"group":2}
output "y" %3
"#,
    r#"
%0 = input {"name":"x","dtype":"f32","shape":[2,6,19]}
%1 = constant {"dtype":"f32","shape":[5,6,4],"random":6}
%2 = conv %0 %1 {"strides":[3],"dilations":[1],"pads_begin":[2],"pads_end":[3],"group":1}
output "y" %2
"#,
];

/// Pixels along x and y and output slices per invocation.
const BLOCKS: &[[u32; 3]] = &[
    [1, 1, 1],
    [1, 1, 2],
    [1, 1, 4],
    [2, 1, 1],
    [2, 1, 2],
    [2, 1, 4],
    [4, 1, 1],
    [4, 1, 2],
    [2, 2, 1],
    [2, 2, 2],
    [2, 2, 4],
    [4, 2, 2],
    [4, 1, 4],
];

/// A convolution that this kernel computes.
struct Shape {
    windows: Windows,
    /// Slices of four input and output channels per group, and groups.
    inputs: usize,
    outputs: usize,
    groups: usize,
}

fn shape(op: &Conv, problem: &Problem<'_>) -> Option<Shape> {
    let rank = problem.result.rank();
    let filters = constant(problem, 1)?;
    if !(3..=4).contains(&rank) || !problem.computed.is_float() {
        return None;
    }
    let (c, o) = (known(&problem.operands.first()?.shape[1])?, known(&problem.result.shape[1])?);
    let whole = (c / op.group).is_multiple_of(4) && (o / op.group).is_multiple_of(4);
    if op.group > 1 && !whole {
        return None;
    }
    let windows =
        Windows::new(filters.shape.get(2..)?, &op.strides, &op.dilations, &op.pads_begin, &op.pads_end);
    let (inputs, outputs) = ((c / op.group).div_ceil(4), (o / op.group).div_ceil(4));
    Some(Shape { windows, inputs, outputs, groups: op.group })
}

/// Whether the image index is the fastest of the grid: it is in slices of four.
fn batch_inner(problem: &Problem<'_>) -> bool {
    problem.result.is_slices4()
}

/// Blocks of pixels along x (times images, when they are fastest), blocks along y, and blocks of slices (times images).
fn blocks(problem: &Problem<'_>, shape: &Shape, [x, y, slices]: [u32; 3]) -> [Dim; 3] {
    let [_, height, width] = spatial(&problem.result.shape);
    let batch = &problem.result.shape[0];
    let width = width.ceil_div(i64::from(x));
    let height = height.ceil_div(i64::from(y));
    let slices = Dim::from((shape.outputs * shape.groups).div_ceil(slices as usize));
    if batch_inner(problem) { [width.mul(batch), height, slices] } else { [width, height, slices.mul(batch)] }
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Op::Conv(op) = problem.op else { return Vec::new() };
    let Some(shape) = shape(op, problem) else { return Vec::new() };
    let machine = &problem.target.machine;
    let limits = &problem.target.limits;
    let mut out = Vec::new();
    for &block in BLOCKS {
        let [x, y, slices] = block;
        // A block of slices must lie in one group, and must not be mostly padding.
        let divides = shape.groups == 1 || shape.outputs.is_multiple_of(slices as usize);
        if !divides || slices as usize >= 2 * shape.outputs {
            continue;
        }
        let [across, down, deep] = blocks(problem, &shape, block).map(|d| problem.max(&d));
        let [gx, gy] = group_shape(
            problem.target.prefer.workgroup_invocations,
            limits.max_workgroup_invocations,
            across,
            down,
        );
        let groups = [across / i64::from(gx) + 1, down / i64::from(gy) + 1, deep];
        if groups.iter().zip(limits.max_workgroup_count).any(|(g, most)| *g > i64::from(most)) {
            continue;
        }
        let lanes = f64::from(gx * gy)
            * (across as f64 / f64::from(gx)).ceil()
            * (down as f64 / f64::from(gy)).ceil()
            * deep as f64;
        let pixels = f64::from(x * y);
        let slices = f64::from(slices);
        let steps = (shape.windows.taps() * shape.inputs) as f64;
        let flops = lanes * pixels * slices * steps * 32.0;
        // Per step: 4 multiply-adds of vectors per pixel and slice, against one read per pixel (four where channels
        // are not neighbours) and four per slice, which a whole workgroup shares.
        let reads = pixels * if problem.operands[0].is_slices4() { 1.0 } else { 4.0 } + 2.0 * slices;
        let reuse = 4.0 * pixels * slices / (4.0 * pixels * slices + reads);
        let vectors = pixels * slices + pixels + 6.0;
        let crowded = if vectors > 24.0 { 24.0 / vectors } else { 1.0 };
        let wanted = f64::from(machine.compute_units) * f64::from(machine.invocations_per_unit);
        let busy = (lanes * (pixels * slices).min(4.0) / wanted).clamp(0.01, 1.0);
        let cost = roofline(problem, flops, problem.traffic() as f64, 0.7 * reuse * crowded * busy);
        out.push(Candidate {
            knobs: vec![
                ("GROUP_X", gx),
                ("GROUP_Y", gy),
                ("BLOCK_X", x),
                ("BLOCK_Y", y),
                ("SLICES", block[2]),
            ],
            cost,
            reason: format!(
                "{x}x{y} pixels and {slices} slices each for {lanes} invocations of {gx}x{gy}; {:.0} % of the device busy, {:.0} % of the time computing",
                busy * 100.0,
                reuse * 100.0
            ),
        });
    }
    let packs = |c: &Candidate| {
        constant(problem, 1)
            .and_then(|w| {
                let device = problem.operands[1].dtype.on_device();
                pack_filters(w, device, op.group, c.knob("SLICES") as usize, false).ok()
            })
            .is_some_and(|p| fits(problem, &p))
    };
    out.retain(packs);
    out
}

fn launches(problem: &Problem<'_>, candidate: &Candidate) -> Result<Vec<Launch>, OpError> {
    let Op::Conv(op) = problem.op else { return Err(OpError::new("not a convolution")) };
    let shape = shape(op, problem).ok_or_else(|| OpError::new("constant filters are needed"))?;
    let filters = constant(problem, 1).ok_or_else(|| OpError::new("constant filters are needed"))?;
    let [gx, gy, x, y, slices] =
        ["GROUP_X", "GROUP_Y", "BLOCK_X", "BLOCK_Y", "SLICES"].map(|n| candidate.knob(n));
    let mut steps = Vec::new();
    let problem = &with_bias(problem, &mut steps);
    let mut shader = Shader::new(problem);
    for (name, value) in &candidate.knobs {
        shader.knob(name, *value);
    }
    shape.windows.declare(&mut shader, &[1, 2]);
    let padded = shape.windows.begin != [0; 3] || shape.windows.end != [0; 3];
    shader.constant("GUARD", padded);
    shader.constant("BATCH_INNER", batch_inner(problem));
    shader.constant("IN_SLICES", format_args!("{}u", shape.inputs));
    shader.constant("OUT_SLICES", format_args!("{}u", shape.outputs));
    shader.constant("GROUPS", format_args!("{}u", shape.groups));
    let rank = problem.result.rank();
    let (source, result) = (problem.operands[0].shape.clone(), problem.result.shape.clone());
    shader.size("batches", &result[0]);
    let [_, in_h, in_w] = spatial(&source);
    let [_, out_h, out_w] = spatial(&result);
    shader.size("in_h", &in_h);
    shader.size("in_w", &in_w);
    shader.size("out_h", &out_h);
    shader.size("out_w", &out_w);
    // With one slice the guards of its lanes become constants.
    let slice = if shape.inputs * shape.groups == 1 { "0u" } else { "s" };
    let at = four_channels(rank, "b", slice, ["0u", "y", "x"]);
    shader.read("src", "b: u32, y: u32, x: u32, s: u32", "", 0, &at);
    let device = problem.operands[1].dtype.on_device();
    read_packed(&mut shader, "weight", pack_filters(filters, device, op.group, slices as usize, false)?);
    let at = four_channels(rank, "b", "s", ["0u", "y", "x"]);
    shader.write("store", "b: u32, y: u32, x: u32, s: u32", "", &at)?;
    let [across, down, deep] = blocks(problem, &shape, [x, y, slices]);
    let grid = Grid {
        groups: [across.ceil_div(i64::from(gx)), down.ceil_div(i64::from(gy)), deep],
        workgroup: [gx, gy, 1],
    };
    let taps = Dim::from(shape.windows.taps() * filters.shape[1]);
    let flops = product(&result).mul(&taps).scale(2);
    Ok(vec![shader.finish("conv", KERNEL.wgsl, grid, flops)?])
}
