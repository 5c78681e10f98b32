//! `concat.wgsl`: concatenation along an axis. One dispatch per operand copies it into the result.

use serde::Deserialize;

use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::ir::op::Op;
use crate::kernels::cost::{Estimate, Parameters};
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel, ThreadsConfig};
use crate::shader::access::Coordinates;
use crate::shader::element_walk::{memory_order, split_index};
use crate::shader::problem::{Placement, Problem};
use crate::shader::{Grid, LaunchDraft, Shader, ValueType};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "concat",
    wgsl: include_str!("concat.wgsl"),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::from_parameters::<Params>()],
    in_place: InPlace::Nothing,
};

/// Cost parameters of the kernel `concat`. All are between 0 and 1.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Fraction of the memory bandwidth that the kernel reaches.
    bandwidth_fraction: f64,
    /// Fraction of the f32 peak that the kernel reaches.
    peak_fraction: f64,
}

impl Parameters for Params {
    const GROUP: &str = "concat";
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Op::Concat(_) = problem.op else { return Vec::new() };
    let Some(p) = Params::from_problem(problem) else { return Vec::new() };
    let elements = problem.max(&problem.result.elements()) as f64;
    let bytes = problem.traffic() as f64 / p.bandwidth_fraction;
    let estimate = Estimate {
        launch: Estimate::for_dispatches(problem, problem.arity.max(1) as f64).launch,
        ..Estimate::roofline(problem, elements, bytes, p.peak_fraction)
    };
    let reason =
        format!("{elements} elements in {} copies (one per operand), bound by memory traffic", problem.arity);
    vec![Candidate::new(&ThreadsConfig { threads: problem.threads() }, estimate, reason)]
}

fn launches(problem: &Problem<'_>, config: ThreadsConfig) -> Result<Vec<LaunchDraft>, OpError> {
    let Op::Concat(op) = problem.op else { return Err(OpError::new("the operator is not a concatenation")) };
    let extent = |index: usize| problem.operands[index].shape[op.axis].clone();
    let non_empty: Vec<usize> = (0..problem.arity).filter(|i| !extent(*i).is(0)).collect();
    let mut first = Dim::known(0);
    let mut out = Vec::new();
    for &index in &non_empty {
        let slice = OperandSlice {
            axis: op.axis,
            index,
            first: first.clone(),
            last: non_empty.last() == Some(&index),
        };
        out.push(copy(problem, config.threads, &slice)?);
        first = first.add(&extent(index));
    }
    Ok(out)
}

/// Slice of a concatenation's result that holds one operand.
struct OperandSlice {
    axis: usize,
    /// Index of the operand that this slice of the result holds.
    index: usize,
    /// Start of the slice along the axis of the concatenation.
    first: Dim,
    /// True if the slice holds the last operand of the concatenation.
    last: bool,
}

/// Returns the axis along which an operand can be copied in vec4s, or `None` if it must be copied by single elements.
fn lane_axis(problem: &Problem<'_>, slice: &OperandSlice) -> Option<usize> {
    let shape = &problem.operands[slice.index].shape;
    let result = &problem.result;
    match result.placement {
        Placement::Slices4 => {
            // A channel slice of the result with channels of two operands is written one channel at a time.
            let whole_slices = slice.first.is_multiple_of(4) && (shape[1].is_multiple_of(4) || slice.last);
            (slice.axis != 1 || whole_slices).then_some(1)
        }
        Placement::Strided { .. } => {
            let last = result.rank().checked_sub(1)?;
            let aligned = slice.axis != last || slice.first.is_multiple_of(4);
            (aligned && shape[last].is_multiple_of(4)).then_some(last)
        }
    }
}

fn copy(problem: &Problem<'_>, threads: u32, slice: &OperandSlice) -> Result<LaunchDraft, OpError> {
    let OperandSlice { axis, index, first, .. } = slice;
    let (axis, index) = (*axis, *index);
    let mut shader = Shader::new(problem);
    shader.knob("THREADS", threads);
    let result = problem.result.clone();
    let mut sizes = problem.operands[index].shape.clone();
    let lanes = lane_axis(problem, slice);
    if let Some(lane) = lanes {
        sizes[lane] = sizes[lane].ceil_div(4);
    }
    let (prelude, axes) = split_index(&mut shader, &sizes, &memory_order(&result), "unit");
    let at = Coordinates { axes: axes.clone(), lanes, pixel: None, vec4_index: None };
    let class = ValueType::from_dtype(problem.computed);
    shader.alias("value", &class.wgsl(if lanes.is_some() { 4 } else { 1 }));
    shader.read("load", "unit: u32", &prelude, index, &at);

    let shift = if lanes == Some(axis) { first.floor_div(4) } else { first.clone() };
    let mut to = axes;
    if !shift.is(0) {
        let shift = shader.dim(&shift);
        to[axis] = format!("({} + {shift})", to[axis]);
    }
    let at = Coordinates { axes: to, lanes, pixel: None, vec4_index: None };
    shader.write("store", "unit: u32", &prelude, &at)?;
    let units = product(&sizes);
    shader.size("units", &units);
    let grid = Grid::linear(&units, threads, problem.bounds);
    Ok(shader.finish("concat", KERNEL.wgsl, grid, Dim::known(0)))
}
