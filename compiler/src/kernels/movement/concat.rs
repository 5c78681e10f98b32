//! `concat.wgsl`: operands joined along an axis, each copied into its part of the result.

use serde::Deserialize;

use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::ir::op::Op;
use crate::kernels::cost::{Parameters, roofline};
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::shader::access::Coordinates;
use crate::shader::problem::{Placement, Problem};
use crate::shader::walk::{decompose, order};
use crate::shader::{Class, Grid, Launch, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "concat",
    wgsl: include_str!("concat.wgsl"),
    candidates,
    launches,
    matrices: None,
    params: &[Group::of::<Params>()],
    in_place: InPlace::Nothing,
};

/// Parameters of the estimate.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Part of the arithmetic peak that is reached.
    reached: f64,
    /// Part of the memory's bandwidth that is reached.
    bandwidth: f64,
}

impl Parameters for Params {
    const GROUP: &str = "concat";
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Op::Concat(_) = problem.op else { return Vec::new() };
    let Some(p) = Params::of(problem) else { return Vec::new() };
    let elements = problem.max(&problem.result.elements()) as f64;
    let threads = problem.threads();
    let more = problem.arity.saturating_sub(1) as f64 * problem.target.machine.launch_us * 1e3;
    vec![Candidate {
        knobs: vec![("THREADS", threads)],
        cost: roofline(problem, elements, problem.traffic() as f64 / p.bandwidth, p.reached) + more,
        reason: format!("{elements} elements in {} copies, bound by memory traffic", problem.arity),
    }]
}

fn launches(problem: &Problem<'_>, candidate: &Candidate) -> Result<Vec<Launch>, OpError> {
    let Op::Concat(op) = problem.op else { return Err(OpError::new("not a concatenation")) };
    let extent = |index: usize| problem.operands[index].shape[op.axis].clone();
    let filled: Vec<usize> = (0..problem.arity).filter(|i| !extent(*i).is(0)).collect();
    let mut first = Dim::known(0);
    let mut out = Vec::new();
    for &index in &filled {
        let part = Part { axis: op.axis, index, first: first.clone(), last: filled.last() == Some(&index) };
        out.push(copy(problem, candidate.knob("THREADS"), &part)?);
        first = first.add(&extent(index));
    }
    Ok(out)
}

/// One operand's part of the result.
struct Part {
    axis: usize,
    /// Which operand.
    index: usize,
    /// Where it starts along the axis.
    first: Dim,
    /// Whether no operand follows.
    last: bool,
}

/// The axis along which four elements of an operand can be copied at once.
fn lane_axis(problem: &Problem<'_>, part: &Part) -> Option<usize> {
    let shape = &problem.operands[part.index].shape;
    let result = &problem.result;
    match result.placement {
        Placement::Slices4 => {
            // Slices of the result that two operands share must be written one channel at a time.
            let alone = part.first.is_multiple_of(4) && (shape[1].is_multiple_of(4) || part.last);
            (part.axis != 1 || alone).then_some(1)
        }
        Placement::Strided { .. } => {
            let last = result.rank().checked_sub(1)?;
            let whole = part.axis != last || part.first.is_multiple_of(4);
            (whole && shape[last].is_multiple_of(4)).then_some(last)
        }
    }
}

fn copy(problem: &Problem<'_>, threads: u32, part: &Part) -> Result<Launch, OpError> {
    let Part { axis, index, first, .. } = part;
    let (axis, index) = (*axis, *index);
    let mut shader = Shader::new(problem);
    shader.knob("THREADS", threads);
    let result = problem.result.clone();
    let mut sizes = problem.operands[index].shape.clone();
    let lanes = lane_axis(problem, part);
    if let Some(lane) = lanes {
        sizes[lane] = sizes[lane].ceil_div(4);
    }
    let (prelude, axes) = decompose(&mut shader, &sizes, &order(&result), "unit");
    let at = Coordinates { axes: axes.clone(), lanes, pixel: None, unit: None };
    let class = Class::of(problem.computed);
    shader.alias("value", &class.wgsl(if lanes.is_some() { 4 } else { 1 }));
    shader.read("load", "unit: u32", &prelude, index, &at);

    let shift = if lanes == Some(axis) { first.floor_div(4) } else { first.clone() };
    let mut to = axes;
    if !shift.is(0) {
        let shift = shader.dim(&shift);
        to[axis] = format!("({} + {shift})", to[axis]);
    }
    let at = Coordinates { axes: to, lanes, pixel: None, unit: None };
    shader.write("store", "unit: u32", &prelude, &at)?;
    let units = product(&sizes);
    shader.size("units", &units);
    let grid = Grid::linear(&units, threads, problem.bounds);
    shader.finish("concat", KERNEL.wgsl, grid, Dim::known(0))
}
