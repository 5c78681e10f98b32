//! `map.wgsl`: elementwise functions and copies between layouts and views.

use serde::Deserialize;

use super::decode;
use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::ir::element::{Arg, Element, EpilogueStep, UnaryFn};
use crate::ir::op::Op;
use crate::kernels::cost::{Parameters, roofline};
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::shader::problem::{Operand, Placement, Problem, dense_strides};
use crate::shader::walk::{Walk, walk, walk_along};
use crate::shader::{Class, Grid, Launch, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "map",
    wgsl: include_str!("map.wgsl"),
    candidates,
    launches,
    matrices: None,
    params: &[Group::of::<Params>()],
    in_place: InPlace::All,
};

/// Parameters of the estimate.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Part of the arithmetic peak that is reached.
    reached: f64,
    /// Part of the memory's bandwidth that is reached.
    bandwidth: f64,
    /// Operations that an element takes that is made of a code by itself.
    coded: f64,
    /// The same where eight are made of whole words.
    coded_eights: f64,
}

impl Parameters for Params {
    const GROUP: &str = "map";
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    if !matches!(problem.op, Op::Elementwise(_) | Op::Relayout(_)) {
        return Vec::new();
    }
    let Some(p) = Params::of(problem) else { return Vec::new() };
    let threads = problem.threads();
    let steps = (problem.epilogue.len() + 1) as f64;
    let coded = problem.operands.iter().filter(|o| o.codes.is_some()).count() as f64;
    let eights = decode::suits(problem).is_some();
    let steps = steps + coded * if eights { p.coded_eights } else { p.coded };
    let elements = problem.max(&problem.result.elements()) as f64;
    let cost = roofline(problem, elements * steps, problem.traffic() as f64 / p.bandwidth, p.reached);
    vec![Candidate {
        knobs: vec![("THREADS", threads)],
        cost,
        reason: if eights {
            decode::REASON
        } else {
            "one invocation per unit of the result; bound by memory traffic"
        }
        .into(),
    }]
}

fn launches(problem: &Problem<'_>, candidate: &Candidate) -> Result<Vec<Launch>, OpError> {
    let first = match problem.op {
        Op::Elementwise(op) => op.element,
        // A copy is the identity, which costs nothing in the shader.
        _ => Element::Unary(UnaryFn::Affine { scale: 1.0, shift: 0.0 }),
    };
    if let Some(form) = decode::suits(problem) {
        return decode::launches(&KERNEL, problem, candidate, &form);
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
        // A copy has no step of its own: its value is operand 0.
        steps.push(match copy {
            true => step.replaced(|arg| Ok(if arg == Arg::Step(0) { Arg::Input(0) } else { arg }))?,
            false => step.behind(1),
        });
    }
    // One axis that is left of all is walked in vectors past its end.
    let whole = collapsed.is_some() && problem.result.rank() == 1;
    let walk = match whole {
        true => walk_along(&mut shader, &problem.result, Some(0)),
        false => walk(&mut shader, &problem.result, |_| true),
    };
    let lanes = walk.lanes();
    let Walk { units, prelude, at, .. } = walk;
    let class = Class::of(problem.computed);
    let (statements, value, class) = if steps.is_empty() {
        let read = shader.read_fn("load", "unit: u32", &prelude, 0, &at, whole);
        shader.replace("source", read);
        (String::new(), "load(unit)".to_string(), class)
    } else {
        shader.epilogue_text(&steps, None, &at, lanes, whole)?
    };
    let result = problem.result.clone();
    let store = shader.store_to(&result, crate::shader::Bound::Result, &value, class, &at, whole);
    shader.replace("run", format!("fn run(unit: u32) {{\n{prelude}{statements}{store}}}\n"));
    shader.size("units", &units);
    let threads = candidate.knob("THREADS");
    shader.knob("THREADS", threads);
    let grid = Grid::linear(&units, threads, problem.bounds);
    let flops = problem.result.elements().scale(steps.len() as i64);
    Ok(vec![shader.finish("map", KERNEL.wgsl, grid, flops)?])
}

/// The same problem with as few axes as possible, when every tensor is strided: neighbouring axes that every
/// tensor walks with one stride become one.
fn collapse<'a>(problem: &Problem<'a>) -> Option<Problem<'a>> {
    let rank = problem.result.rank();
    let mut strides: Vec<Vec<Dim>> = Vec::with_capacity(problem.operands.len() + 1);
    for operand in problem.operands.iter().chain([&problem.result]) {
        let Placement::Strided { strides: own, .. } = &operand.placement else { return None };
        let skip = rank.checked_sub(operand.rank())?;
        let mut full = vec![Dim::known(0); skip];
        full.extend(own.iter().zip(&operand.shape).enumerate().map(|(i, (s, d))| {
            if d.is(1) && !problem.result.shape[skip + i].is(1) { Dim::known(0) } else { s.clone() }
        }));
        strides.push(full);
    }
    let shape = &problem.result.shape;
    let axes: Vec<usize> = (0..rank).filter(|i| !shape[*i].is(1)).collect();
    // Groups of axes, each walked as one; the last axis of a group gives its strides.
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
        let Placement::Strided { strides: own, .. } = &mut operand.placement else { return };
        *own = groups.iter().filter_map(|g| g.last()).map(|a| strides[*a].clone()).collect();
        operand.shape = sizes.clone();
    };
    for (operand, s) in out.operands.iter_mut().zip(&strides) {
        collapse_one(operand, s);
    }
    collapse_one(&mut out.result, strides.last()?);
    if sizes.is_empty() {
        return None;
    }
    // One axis may be walked in vectors past its end only when every tensor is dense or constant along it.
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
