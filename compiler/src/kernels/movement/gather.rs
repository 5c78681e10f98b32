//! `gather.wgsl`: gathers slices along an axis (ONNX Gather), single elements (GatherElements), or slices at index
//! tuples (GatherND).

use serde::Deserialize;

use crate::error::OpError;
use crate::ir::op::Op;
use crate::kernels::cost::{Estimate, Parameters};
use crate::kernels::kernel::{Candidate, Configuration, Group, InPlace, Kernel, ThreadsConfig};
use crate::shader::access::Coordinates;
use crate::shader::problem::Problem;
use crate::shader::row_view::RowView;
use crate::shader::{Grid, LaunchDraft, Shader, ValueType};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "gather",
    wgsl: include_str!("gather.wgsl"),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::from_parameters::<Params>()],
    in_place: InPlace::Nothing,
};

/// Cost parameters of the kernel `gather`. All are between 0 and 1.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Fraction of the memory bandwidth that the kernel reaches.
    bandwidth_fraction: f64,
}

impl Parameters for Params {
    const GROUP: &str = "gather";
}

/// Source of one coordinate of an element that a gather reads.
enum Source {
    /// The coordinate is the component with this index of the index tuple (0 for a single index).
    Index(usize),
    /// The coordinate is the coordinate of the result along the axis with this number.
    Result(usize),
}

/// Returns the axes of the result that come from the axes of the indices (without the axis of index tuples), and the
/// source of each coordinate of the element that is read.
fn index_and_sources(problem: &Problem<'_>) -> Option<(Vec<usize>, Vec<Source>)> {
    let (x, indices) = (problem.operands.first()?.rank(), problem.operands.get(1)?);
    let rank = problem.result.rank();
    Some(match problem.op {
        Op::Gather(op) => {
            let index_rank = indices.rank();
            let before = (0..op.axis).map(Source::Result);
            let after = (op.axis + index_rank..rank).map(Source::Result);
            (
                (op.axis..op.axis + index_rank).collect(),
                before.chain([Source::Index(0)]).chain(after).collect(),
            )
        }
        Op::GatherElements(op) => {
            let at_x = |i| if i == op.axis { Source::Index(0) } else { Source::Result(i) };
            ((0..rank).collect(), (0..x).map(at_x).collect())
        }
        Op::GatherNd(op) => {
            let index_rank = indices.rank().checked_sub(1)?;
            let tuple = usize::try_from(indices.shape[index_rank].as_known()?).ok()?;
            let batch = (0..op.batch_dims).map(Source::Result);
            let components = (0..tuple).map(Source::Index);
            (
                (0..index_rank).collect(),
                batch.chain(components).chain((index_rank..rank).map(Source::Result)).collect(),
            )
        }
        _ => return None,
    })
}

/// Returns the result of a gather as rows of vec4s if one index selects all four elements of a vec4, otherwise as rows
/// of single elements.
fn result_rows(problem: &Problem<'_>, index: &[usize], source: &[Source]) -> RowView {
    let rows = RowView::new(&problem.result, &[]);
    let copied = |axis| source.iter().any(|s| matches!(s, Source::Result(r) if *r == axis));
    match rows.lanes.axis() {
        Some(axis) if index.contains(&axis) || !copied(axis) => rows.with_scalar_lanes(),
        _ => rows,
    }
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    if index_and_sources(problem).is_none() {
        return Vec::new();
    }
    let Some(p) = Params::from_problem(problem) else { return Vec::new() };
    let moved = problem.result.bytes(problem.bounds) as f64 * 2.0;
    let indices = problem.operands[1].bytes(problem.bounds) as f64;
    let estimate = Estimate::roofline(problem, 0.0, (moved + indices) / p.bandwidth_fraction, 1.0);
    let config = ThreadsConfig { threads: problem.threads() };
    let reason = "one invocation per element or vec4 of the result; bound by memory traffic";
    vec![Candidate::new(&config, estimate, reason)]
}

fn launches(problem: &Problem<'_>, config: ThreadsConfig) -> Result<Vec<LaunchDraft>, OpError> {
    let (index, source) =
        index_and_sources(problem).ok_or_else(|| OpError::new("the operator is not a gather"))?;
    let rows = result_rows(problem, &index, &source);
    let mut shader = Shader::new(problem);
    let ThreadsConfig { threads } = config;
    config.declare(&mut shader);
    let (prelude, at) = rows.unit(&mut shader);
    shader.alias("V", &ValueType::from_dtype(problem.computed).wgsl(rows.lanes.count()));
    shader.alias("Index", ValueType::from_dtype(problem.operands[1].dtype).scalar());

    let mut index_axes: Vec<String> = index.iter().map(|i| at.axes[*i].clone()).collect();
    if matches!(problem.op, Op::GatherNd(_)) {
        index_axes.push("part".into());
    }
    shader.read("load_index", "unit: u32, part: u32", &prelude, 1, &Coordinates::element(index_axes));

    let mut statements = prelude.clone();
    let mut axes = Vec::with_capacity(source.len());
    let mut lanes = None;
    for (i, from) in source.iter().enumerate() {
        axes.push(match from {
            Source::Result(r) => {
                if at.lanes == Some(*r) {
                    lanes = Some(i);
                }
                at.axes[*r].clone()
            }
            Source::Index(j) => {
                let size = shader.dim(&problem.operands[0].shape[i]);
                statements += &format!("    let part{j} = wrap(load_index(unit, {j}u), {size});\n");
                format!("part{j}")
            }
        });
    }
    let at_x = Coordinates { axes, lanes, pixel: None, vec4_index: None };
    shader.read("load", "unit: u32", &statements, 0, &at_x);
    shader.write("store", "unit: u32", &prelude, &at)?;
    shader.size("units", &rows.rows());
    let grid = Grid::linear(&rows.rows(), threads, problem.bounds);
    Ok(vec![shader.finish("gather", KERNEL.wgsl, grid, problem.result.elements())])
}
