//! `concat.wgsl`: concatenation along an axis, one copy per operand.

use serde::Deserialize;

use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::ir::op::Op;
use crate::kernels::cost::{Parameters, roofline};
use crate::kernels::kernel::{Candidate, Configuration, Group, InPlace, Kernel, ThreadsConfig};
use crate::shader::access::Coordinates;
use crate::shader::element_walk::{memory_order, split_index};
use crate::shader::problem::{Placement, Problem};
use crate::shader::{Grid, Launch, Shader, ValueType};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "concat",
    wgsl: include_str!("concat.wgsl"),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::of::<Params>()],
    in_place: InPlace::Nothing,
};

/// Cost parameters, 0 to 1.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Reached fraction of the memory bandwidth.
    bandwidth_fraction: f64,
    /// Reached fraction of the f32 peak.
    peak_fraction: f64,
}

impl Parameters for Params {
    const GROUP: &str = "concat";
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Op::Concat(_) = problem.op else { return Vec::new() };
    let Some(p) = Params::of(problem) else { return Vec::new() };
    let elements = problem.max(&problem.result.elements()) as f64;
    let threads = problem.threads();
    let extra_launches_ns = problem.arity.saturating_sub(1) as f64 * problem.target.machine.launch_us * 1e3;
    vec![Candidate {
        knobs: ThreadsConfig { threads }.knobs(),
        cost: roofline(problem, elements, problem.traffic() as f64 / p.bandwidth_fraction, p.peak_fraction)
            + extra_launches_ns,
        reason: format!("{elements} elements in {} copies, bound by memory traffic", problem.arity),
    }]
}

fn launches(problem: &Problem<'_>, config: ThreadsConfig) -> Result<Vec<Launch>, OpError> {
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

/// Slice of the result that holds one operand.
struct OperandSlice {
    axis: usize,
    /// Index of the operand.
    index: usize,
    /// Start along the axis.
    first: Dim,
    /// True for the last operand.
    last: bool,
}

/// Returns the axis along which an operand can be copied in vec4s.
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

fn copy(problem: &Problem<'_>, threads: u32, slice: &OperandSlice) -> Result<Launch, OpError> {
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
    shader.finish("concat", KERNEL.wgsl, grid, Dim::known(0))
}
