//! `scatter.wgsl`: scatter of single elements or of slices at index tuples. Each element of the result searches all
//! indices for its own position.

use serde::Deserialize;

use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::ir::op::{Combine, Op};
use crate::kernels::cost::{Estimate, Parameters};
use crate::kernels::kernel::{Candidate, Configuration, Group, InPlace, Kernel, ThreadsConfig};
use crate::shader::access::Coordinates;
use crate::shader::element_walk::split_index;
use crate::shader::problem::Problem;
use crate::shader::row_view::RowView;
use crate::shader::{Grid, LaunchDraft, Shader, ValueType};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "scatter",
    wgsl: include_str!("scatter.wgsl"),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::from_parameters::<Params>()],
    in_place: InPlace::Nothing,
};

/// Cost parameters of the kernel `scatter`. All are positive.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Operations per comparison of a position with an index.
    index_operations: f64,
    /// Fraction of the f32 peak that the kernel reaches. 0 to 1.
    peak_fraction: f64,
}

impl Parameters for Params {
    const GROUP: &str = "scatter";
}

/// Loops of a scatter: the rows of the result, and the entries (indices with updates) with which each row is compared.
struct Walk {
    rows: RowView,
    /// Sizes of the axes of the entries (indices with updates) that may select a given element.
    entries: Vec<Dim>,
    /// Number of components of an index tuple. `None` if single elements are scattered (ScatterElements).
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

/// Returns the result of a scatter as rows of vec4s if one index tuple selects all four elements of a vec4, otherwise
/// as rows of single elements.
pub(super) fn rows(problem: &Problem<'_>) -> Option<RowView> {
    let rows = RowView::new(&problem.result, &[]);
    match problem.op {
        Op::ScatterElements(_) => Some(rows.with_scalar_lanes()),
        Op::ScatterNd(_) => {
            let tuple = problem.operands.get(1)?.shape.last()?.as_known()?;
            // One index tuple selects four elements if they differ only along an axis after the tuple.
            Some(match rows.lanes.axis() {
                Some(axis) if i64::try_from(axis).is_ok_and(|axis| axis < tuple) => rows.with_scalar_lanes(),
                _ => rows,
            })
        }
        _ => None,
    }
}

/// Returns the WGSL of the hook `combine`, which combines an update with the current value of an element.
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
    let Some(p) = Params::from_problem(problem) else { return Vec::new() };
    let units = problem.max(&walk.rows.rows()) as f64;
    let entries = problem.max(&product(&walk.entries)) as f64;
    let operations = units * entries * p.index_operations;
    vec![Candidate::new(
        &ThreadsConfig { threads: problem.threads() },
        Estimate::roofline(problem, operations, problem.traffic() as f64, p.peak_fraction),
        format!("each of {units} result elements or vec4s is compared with {entries} indices"),
    )]
}

/// Returns the function that combines an update of a scatter with the current element, such as addition.
fn combination(op: &Op) -> Combine {
    match op {
        Op::ScatterElements(op) => op.combine,
        Op::ScatterNd(op) => op.combine,
        _ => Combine::Replace,
    }
}

fn launches(problem: &Problem<'_>, config: ThreadsConfig) -> Result<Vec<LaunchDraft>, OpError> {
    let Some(Walk { rows, entries, tuple }) = walk(problem) else {
        return Err(OpError::new("the operator is not a scatter"));
    };
    let mut shader = Shader::new(problem);
    let ThreadsConfig { threads } = config;
    config.declare(&mut shader);
    let lanes = rows.lanes.count();
    let class = ValueType::from_dtype(problem.computed);
    shader.alias("V", &class.wgsl(lanes));
    shader.alias("Index", ValueType::from_dtype(problem.operands[1].dtype).scalar());
    let (prelude, at) = rows.unit(&mut shader);
    shader.read("load", "unit: u32", &prelude, 0, &at);
    shader.write("store", "unit: u32", &prelude, &at)?;
    shader.size("units", &rows.rows());
    shader.size("entries", &product(&entries));
    shader.iterations(product(&entries));

    let shape = &problem.result.shape;
    let order: Vec<usize> = (0..entries.len()).rev().collect();
    let (split, entry) = split_index(&mut shader, &entries, &order, "entry");
    let mut index_axes: Vec<String>;
    let update;
    let mut tests = Vec::new();
    match (tuple, problem.op) {
        (Some(tuple), _) => {
            for (part, (size, coordinate)) in shape.iter().zip(&at.axes).take(tuple).enumerate() {
                let size = shader.dim(size);
                tests.push(format!("wrap(load_index(unit, entry, {part}u), {size}) == {coordinate}"));
            }
            index_axes = entry.clone();
            index_axes.push("part".into());
            let axes: Vec<String> = entry.iter().chain(&at.axes[tuple..]).cloned().collect();
            let lanes = at.lanes.map(|l| l + entry.len() - tuple);
            update = Coordinates { axes, lanes, pixel: None, vec4_index: None };
        }
        (None, Op::ScatterElements(op)) => {
            let size = shader.dim(&shape[op.axis]);
            tests.push(format!("wrap(load_index(unit, entry, 0u), {size}) == {}", at.axes[op.axis]));
            index_axes = at.axes.clone();
            index_axes[op.axis].clone_from(&entry[0]);
            update = Coordinates::element(index_axes.clone());
            let indices = &problem.operands[1].shape;
            let inside: Vec<String> = (0..shape.len())
                .filter(|i| *i != op.axis && indices[*i] != shape[*i])
                .map(|i| format!("{} < {}", at.axes[i], shader.dim(&indices[i])))
                .collect();
            if !inside.is_empty() {
                let text = inside.join(" && ");
                shader.replace(
                    "is_reachable",
                    format!("fn is_reachable(unit: u32) -> bool {{\n{prelude}    return {text};\n}}"),
                );
            }
        }
        _ => return Err(OpError::new("the operator is not a scatter")),
    }
    let both = format!("{prelude}{split}");
    shader.read(
        "load_index",
        "unit: u32, entry: u32, part: u32",
        &both,
        1,
        &Coordinates::element(index_axes),
    );
    shader.read("update", "unit: u32, entry: u32", &both, 2, &update);
    let test = tests.join(" && ");
    shader.replace(
        "is_target",
        format!("fn is_target(unit: u32, entry: u32) -> bool {{\n{prelude}    return {test};\n}}"),
    );
    shader.replace("combine", combine(combination(problem.op)));
    let grid = Grid::linear(&rows.rows(), threads, problem.bounds);
    let flops = rows.rows().mul(&product(&entries));
    Ok(vec![shader.finish("scatter", KERNEL.wgsl, grid, flops)])
}
