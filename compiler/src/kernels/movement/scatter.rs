//! `scatter.wgsl`: updates combined into a copy of a tensor, by element or by index tuple.

use serde::Deserialize;

use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::ir::op::{Combine, Op};
use crate::kernels::cost::{Parameters, roofline};
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::shader::access::Coordinates;
use crate::shader::problem::Problem;
use crate::shader::rows::Rows;
use crate::shader::walk::decompose;
use crate::shader::{Class, Grid, Launch, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "scatter",
    wgsl: include_str!("scatter.wgsl"),
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
    /// Operations of a look at an index.
    index: f64,
}

impl Parameters for Params {
    const GROUP: &str = "scatter";
}

/// What an entry is: the walk over the result, the axes of the entry number, and how many index parts there are.
struct Walk {
    rows: Rows,
    entries: Vec<Dim>,
    /// For index tuples: their length. For elements: nothing.
    tuple: Option<usize>,
}

fn walk(problem: &Problem<'_>) -> Option<Walk> {
    let (rows, indices) = (rows(problem)?, problem.operands.get(1)?);
    match problem.op {
        Op::ScatterElements(op) => {
            Some(Walk { rows, entries: vec![indices.shape[op.axis].clone()], tuple: None })
        }
        _ => {
            let (last, entries) = indices.shape.split_last()?;
            let tuple = usize::try_from(last.as_known()?).ok()?;
            Some(Walk { rows, entries: entries.to_vec(), tuple: Some(tuple) })
        }
    }
}

/// The walk over the result of a scatter.
pub(super) fn rows(problem: &Problem<'_>) -> Option<Rows> {
    let rows = Rows::new(&problem.result, &[]);
    match problem.op {
        Op::ScatterElements(_) => Some(rows.scalar()),
        Op::ScatterNd(_) => {
            let tuple = problem.operands.get(1)?.shape.last()?.as_known()?;
            // Four elements are named together when they differ only in an axis past the tuple.
            Some(match rows.lanes.axis() {
                Some(axis) if i64::try_from(axis).is_ok_and(|axis| axis < tuple) => rows.scalar(),
                _ => rows,
            })
        }
        _ => None,
    }
}

/// The hook that combines an update with what is there.
pub(super) fn combine(combine: Combine) -> String {
    let text = match combine {
        Combine::Replace => "next",
        Combine::Add => "old + next",
        Combine::Mul => "old * next",
        Combine::Max => "max(old, next)",
        Combine::Min => "min(old, next)",
    };
    format!("fn combine(old: V, next: V) -> V {{ return {text}; }}")
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Some(walk) = walk(problem) else { return Vec::new() };
    let Some(p) = Params::of(problem) else { return Vec::new() };
    let units = problem.max(&walk.rows.rows()) as f64;
    let entries = problem.max(&product(&walk.entries)) as f64;
    vec![Candidate {
        knobs: vec![("THREADS", problem.threads())],
        cost: roofline(problem, units * entries * p.index, problem.traffic() as f64, p.reached),
        reason: format!("each of {units} units looks at {entries} indices"),
    }]
}

fn launches(problem: &Problem<'_>, candidate: &Candidate) -> Result<Vec<Launch>, OpError> {
    let Some(Walk { rows, entries, tuple }) = walk(problem) else {
        return Err(OpError::new("not a scatter"));
    };
    let mut shader = Shader::new(problem);
    let threads = candidate.knob("THREADS");
    shader.knob("THREADS", threads);
    let lanes = rows.lanes.count();
    let class = Class::of(problem.computed);
    shader.alias("V", &class.wgsl(lanes));
    shader.alias("Index", Class::of(problem.operands[1].dtype).scalar());
    let (prelude, at) = rows.unit(&mut shader);
    shader.read("load", "unit: u32", &prelude, 0, &at);
    shader.write("store", "unit: u32", &prelude, &at)?;
    shader.size("units", &rows.rows());
    shader.size("entries", &product(&entries));
    shader.iterations(product(&entries));

    let shape = &problem.result.shape;
    let order: Vec<usize> = (0..entries.len()).rev().collect();
    let (split, entry) = decompose(&mut shader, &entries, &order, "entry");
    let mut places: Vec<String>;
    let update;
    let mut tests = Vec::new();
    match (tuple, problem.op) {
        (Some(tuple), _) => {
            for (part, (size, place)) in shape.iter().zip(&at.axes).take(tuple).enumerate() {
                let size = shader.dim(size);
                tests.push(format!("wrap(pick(unit, entry, {part}u), {size}) == {place}"));
            }
            places = entry.clone();
            places.push("part".into());
            let axes: Vec<String> = entry.iter().chain(&at.axes[tuple..]).cloned().collect();
            let lanes = at.lanes.map(|l| l + entry.len() - tuple);
            update = Coordinates { axes, lanes, pixel: None, unit: None };
        }
        (None, Op::ScatterElements(op)) => {
            let size = shader.dim(&shape[op.axis]);
            tests.push(format!("wrap(pick(unit, entry, 0u), {size}) == {}", at.axes[op.axis]));
            places = at.axes.clone();
            places[op.axis].clone_from(&entry[0]);
            update = Coordinates::element(places.clone());
            let indices = &problem.operands[1].shape;
            let inside: Vec<String> = (0..shape.len())
                .filter(|i| *i != op.axis && indices[*i] != shape[*i])
                .map(|i| format!("{} < {}", at.axes[i], shader.dim(&indices[i])))
                .collect();
            if !inside.is_empty() {
                let text = inside.join(" && ");
                shader.replace(
                    "reached",
                    format!("fn reached(unit: u32) -> bool {{\n{prelude}    return {text};\n}}"),
                );
            }
        }
        _ => return Err(OpError::new("not a scatter")),
    }
    let both = format!("{prelude}{split}");
    shader.read("pick", "unit: u32, entry: u32, part: u32", &both, 1, &Coordinates::element(places));
    shader.read("update", "unit: u32, entry: u32", &both, 2, &update);
    let test = tests.join(" && ");
    shader.replace(
        "names",
        format!("fn names(unit: u32, entry: u32) -> bool {{\n{prelude}    return {test};\n}}"),
    );
    let combine = match problem.op {
        Op::ScatterElements(op) => op.combine,
        Op::ScatterNd(op) => op.combine,
        _ => Combine::Replace,
    };
    shader.replace("combine", self::combine(combine));
    let grid = Grid::linear(&rows.rows(), threads, problem.bounds);
    let flops = rows.rows().mul(&product(&entries));
    Ok(vec![shader.finish("scatter", KERNEL.wgsl, grid, flops)?])
}
