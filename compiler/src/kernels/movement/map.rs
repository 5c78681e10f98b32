//! `map.wgsl`: elementwise functions and copies between layouts and views.

use serde::Deserialize;

use super::dequantize;
use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::ir::element::{Arg, Element, EpilogueStep, UnaryFn};
use crate::ir::op::Op;
use crate::kernels::cost::{Estimate, Parameters};
use crate::kernels::kernel::{Candidate, Configuration, Group, InPlace, Kernel, ThreadsConfig};
use crate::shader::element_walk::{ElementWalk, walk_along_axis, walk_elements};
use crate::shader::problem::{Operand, Placement, Problem, dense_strides};
use crate::shader::{Grid, LaunchDraft, Shader, ValueType};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "map",
    wgsl: include_str!("map.wgsl"),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::from_parameters::<Params>()],
    in_place: InPlace::All,
};

/// Cost parameters of the kernel `map`. All are positive.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Fraction of the memory bandwidth that the kernel reaches. 0 to 1.
    bandwidth_fraction: f64,
    /// Floating-point operations to dequantize one element on its own.
    dequantize_operations: f64,
    /// Floating-point operations per element, where 8 elements are dequantized together from whole packed words.
    vec8_dequantize_operations: f64,
    /// Fraction of the f32 peak that the kernel reaches. 0 to 1.
    peak_fraction: f64,
}

impl Parameters for Params {
    const GROUP: &str = "map";
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    if !matches!(problem.op, Op::Elementwise(_) | Op::Relayout(_)) {
        return Vec::new();
    }
    let Some(p) = Params::from_problem(problem) else { return Vec::new() };
    let steps = (problem.epilogue.len() + 1) as f64;
    let quantized = problem.operands.iter().filter(|o| o.quantized.is_some()).count() as f64;
    let whole_words = dequantize::panels(problem).is_some();
    let steps =
        steps + quantized * if whole_words { p.vec8_dequantize_operations } else { p.dequantize_operations };
    let elements = problem.max(&problem.result.elements()) as f64;
    let bytes = problem.traffic() as f64 / p.bandwidth_fraction;
    let estimate = Estimate::roofline(problem, elements * steps, bytes, p.peak_fraction);
    let reason = match whole_words {
        true => dequantize::REASON,
        false => "one invocation per element or vec4 of the result; bound by memory traffic",
    };
    vec![Candidate::new(&ThreadsConfig { threads: problem.threads() }, estimate, reason)]
}

fn launches(problem: &Problem<'_>, config: ThreadsConfig) -> Result<Vec<LaunchDraft>, OpError> {
    let first = match problem.op {
        Op::Elementwise(op) => op.element,
        // A copy is the identity, which adds no instruction.
        _ => Element::Unary(UnaryFn::Affine { scale: 1.0, shift: 0.0 }),
    };
    if let Some(panels) = dequantize::panels(problem) {
        return dequantize::launches(&KERNEL, problem, config, &panels);
    }
    let copy = matches!(problem.op, Op::Relayout(_));
    let collapsed = collapse(problem);
    let problem = collapsed.as_ref().unwrap_or(problem);
    let mut shader = Shader::new(problem);
    let mut steps = Vec::with_capacity(problem.epilogue.len() + 1);
    if !copy {
        let args = (0..problem.arity).map(|k| Arg::Input(k as u32)).collect();
        steps.push(EpilogueStep { element: first, args });
    }
    for step in problem.epilogue {
        // A copy adds no step: its value is operand 0.
        steps.push(match copy {
            true => step.map_args(|arg| Ok(if arg == Arg::Step(0) { Arg::Input(0) } else { arg }))?,
            false => step.shifted(1),
        });
    }
    // A single remaining axis is processed in vec4s past its end.
    let past_end = collapsed.is_some() && problem.result.rank() == 1;
    let walk = match past_end {
        true => walk_along_axis(&mut shader, &problem.result, Some(0)),
        false => walk_elements(&mut shader, &problem.result, |_| true),
    };
    let lanes = walk.lanes();
    let ElementWalk { units, prelude, at, .. } = walk;
    let class = ValueType::from_dtype(problem.computed);
    let (statements, value, class) = if steps.is_empty() {
        let read = shader.read_fn("load", "unit: u32", &prelude, 0, &at, past_end);
        shader.replace("source", read);
        (String::new(), "load(unit)".to_string(), class)
    } else {
        shader.epilogue_statements(&steps, None, &at, lanes, past_end)?
    };
    let result = problem.result.clone();
    let store = shader.store_to(&result, crate::shader::Bound::Result, &value, class, &at, past_end);
    shader.replace("run", format!("fn run(unit: u32) {{\n{prelude}{statements}{store}}}\n"));
    shader.size("units", &units);
    let ThreadsConfig { threads } = config;
    config.declare(&mut shader);
    let grid = Grid::linear(&units, threads, problem.bounds);
    let flops = problem.result.elements().scale(steps.len() as i64);
    Ok(vec![shader.finish("map", KERNEL.wgsl, grid, flops)])
}

/// Returns the problem with adjacent axes merged where they are contiguous in every tensor. Returns `None` if a tensor
/// is not strided.
fn collapse<'a>(problem: &Problem<'a>) -> Option<Problem<'a>> {
    let rank = problem.result.rank();
    let mut strides: Vec<Vec<Dim>> = Vec::with_capacity(problem.operands.len() + 1);
    for operand in problem.operands.iter().chain([&problem.result]) {
        let Placement::Strided { strides: operand_strides, .. } = &operand.placement else { return None };
        let skip = rank.checked_sub(operand.rank())?;
        let mut full = vec![Dim::known(0); skip];
        full.extend(operand_strides.iter().zip(&operand.shape).enumerate().map(|(i, (s, d))| {
            if d.is(1) && !problem.result.shape[skip + i].is(1) { Dim::known(0) } else { s.clone() }
        }));
        strides.push(full);
    }
    let shape = &problem.result.shape;
    let axes: Vec<usize> = (0..rank).filter(|i| !shape[*i].is(1)).collect();
    // Groups of merged axes. The last axis of a group gives its stride.
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for axis in axes {
        let merges = groups
            .last()
            .and_then(|g| g.last())
            .is_some_and(|before| strides.iter().all(|s| s[*before] == s[axis].mul(&shape[axis])));
        match groups.last_mut() {
            Some(group) if merges => group.push(axis),
            _ => groups.push(vec![axis]),
        }
    }
    let mut out = problem.clone();
    let sizes: Vec<Dim> = groups.iter().map(|g| product(g.iter().map(|a| &shape[*a]))).collect();
    let collapse_one = |operand: &mut Operand<'a>, strides: &[Dim]| {
        let Placement::Strided { strides: operand_strides, .. } = &mut operand.placement else { return };
        *operand_strides = groups.iter().filter_map(|g| g.last()).map(|a| strides[*a].clone()).collect();
        operand.shape = sizes.clone();
    };
    for (operand, s) in out.operands.iter_mut().zip(&strides) {
        collapse_one(operand, s);
    }
    collapse_one(&mut out.result, strides.last()?);
    if sizes.is_empty() {
        return None;
    }
    // A single axis may be processed in vec4s past its end only if every tensor is dense or constant along it.
    if sizes.len() == 1 && !sizes[0].is_multiple_of(4) {
        let fits = |o: &Operand<'_>| match &o.placement {
            Placement::Strided { strides, offset } => strides[0].is(0) || (strides[0].is(1) && offset.is(0)),
            Placement::Slices4 => false,
        };
        let dense = matches!(&out.result.placement, Placement::Strided { strides, .. } if *strides == dense_strides(&sizes));
        if !(dense && fits(&out.result) && out.operands.iter().all(fits)) {
            return None;
        }
    }
    Some(out)
}
