//! `gather.wgsl`: slices along an axis, single elements, and slices at index tuples.

use serde::Deserialize;

use crate::error::OpError;
use crate::ir::op::Op;
use crate::kernels::cost::{Parameters, roofline};
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::shader::access::Coordinates;
use crate::shader::problem::Problem;
use crate::shader::rows::Rows;
use crate::shader::{Class, Grid, Launch, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "gather",
    wgsl: include_str!("gather.wgsl"),
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
    /// Part of the memory's bandwidth that is reached.
    bandwidth: f64,
}

impl Parameters for Params {
    const GROUP: &str = "gather";
}

/// Where a gather reads: `I(j)` is part j of the index, `R(i)` coordinate i of the result.
enum From {
    I(usize),
    R(usize),
}

/// Coordinates in the result of the index (before the position in a tuple), and the source of each coordinate of x.
fn places(problem: &Problem<'_>) -> Option<(Vec<usize>, Vec<From>)> {
    let (x, indices) = (problem.operands.first()?.rank(), problem.operands.get(1)?);
    let rank = problem.result.rank();
    Some(match problem.op {
        Op::Gather(op) => {
            let picks = indices.rank();
            let before = (0..op.axis).map(From::R);
            let after = (op.axis + picks..rank).map(From::R);
            ((op.axis..op.axis + picks).collect(), before.chain([From::I(0)]).chain(after).collect())
        }
        Op::GatherElements(op) => {
            let place = |i| if i == op.axis { From::I(0) } else { From::R(i) };
            ((0..rank).collect(), (0..x).map(place).collect())
        }
        Op::GatherNd(op) => {
            let picks = indices.rank().checked_sub(1)?;
            let tuple = usize::try_from(indices.shape[picks].as_known()?).ok()?;
            let batch = (0..op.batch_dims).map(From::R);
            let parts = (0..tuple).map(From::I);
            ((0..picks).collect(), batch.chain(parts).chain((picks..rank).map(From::R)).collect())
        }
        _ => return None,
    })
}

/// The walk over the result, four elements at once where they are picked by one index.
fn walk(problem: &Problem<'_>, index: &[usize], source: &[From]) -> Rows {
    let rows = Rows::new(&problem.result, &[]);
    let copied = |axis| source.iter().any(|s| matches!(s, From::R(r) if *r == axis));
    match rows.lanes.axis() {
        Some(axis) if index.contains(&axis) || !copied(axis) => rows.scalar(),
        _ => rows,
    }
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    if places(problem).is_none() {
        return Vec::new();
    }
    let Some(p) = Params::of(problem) else { return Vec::new() };
    let moved = problem.result.bytes(problem.bounds) as f64 * 2.0;
    let indices = problem.operands[1].bytes(problem.bounds) as f64;
    vec![Candidate {
        knobs: vec![("THREADS", problem.threads())],
        cost: roofline(problem, 0.0, (moved + indices) / p.bandwidth, 1.0),
        reason: "one invocation per unit of the result; bound by memory traffic".into(),
    }]
}

fn launches(problem: &Problem<'_>, candidate: &Candidate) -> Result<Vec<Launch>, OpError> {
    let (index, source) = places(problem).ok_or_else(|| OpError::new("not a gather"))?;
    let rows = walk(problem, &index, &source);
    let mut shader = Shader::new(problem);
    let threads = candidate.knob("THREADS");
    shader.knob("THREADS", threads);
    let (prelude, at) = rows.unit(&mut shader);
    shader.alias("V", &Class::of(problem.computed).wgsl(rows.lanes.count()));
    shader.alias("Index", Class::of(problem.operands[1].dtype).scalar());

    let mut parts: Vec<String> = index.iter().map(|i| at.axes[*i].clone()).collect();
    if matches!(problem.op, Op::GatherNd(_)) {
        parts.push("part".into());
    }
    shader.read("pick", "unit: u32, part: u32", &prelude, 1, &Coordinates::element(parts));

    let mut statements = prelude.clone();
    let mut axes = Vec::with_capacity(source.len());
    let mut lanes = None;
    for (i, from) in source.iter().enumerate() {
        axes.push(match from {
            From::R(r) => {
                if at.lanes == Some(*r) {
                    lanes = Some(i);
                }
                at.axes[*r].clone()
            }
            From::I(j) => {
                let size = shader.dim(&problem.operands[0].shape[i]);
                statements += &format!("    let part{j} = wrap(pick(unit, {j}u), {size});\n");
                format!("part{j}")
            }
        });
    }
    let place = Coordinates { axes, lanes, pixel: None, unit: None };
    shader.read("load", "unit: u32", &statements, 0, &place);
    shader.write("store", "unit: u32", &prelude, &at)?;
    shader.size("units", &rows.rows());
    let grid = Grid::linear(&rows.rows(), threads, problem.bounds);
    Ok(vec![shader.finish("gather", KERNEL.wgsl, grid, problem.result.elements())?])
}
