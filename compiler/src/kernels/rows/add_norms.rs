//! `add_norms.wgsl`: sum of two RMSNorms of rows along the last axis.

use super::row_tiling::{Params, RowTiling};
use crate::error::OpError;
use crate::ir::op::Op;
use crate::kernels::cost::named;
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::shader::problem::Problem;
use crate::shader::row_view::{Lanes, RowView, rows_along_axis};
use crate::shader::{Launch, Shader, ValueType};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "add_norms",
    wgsl: include_str!("add_norms.wgsl"),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::named::<Params>(PARAMETERS)],
    in_place: InPlace::FirstAndEpilogue,
};

/// Group of cost parameters. Rows are read as in `normalize`.
const PARAMETERS: &str = "normalize";
/// Maximum loads in flight per invocation and operand, and elements in registers.
const LOADS: u32 = 4;

/// Returns the problem with merged axes, its rows, and the epsilons.
fn rows<'a>(problem: &Problem<'a>) -> Option<(Problem<'a>, RowView, [f32; 2])> {
    let Op::AddNorms(op) = problem.op else { return None };
    let axis = problem.operands.first()?.rank().checked_sub(1)?;
    let (problem, rows) = rows_along_axis(problem, axis);
    Some((problem, rows, op.epsilons))
}

/// Bytes of workgroup memory per invocation.
fn memory(rows: &RowView) -> u32 {
    rows.lanes.count() * 8
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Some((problem, rows, _)) = rows(problem) else { return Vec::new() };
    let Some(p) = named::<Params>(&problem, PARAMETERS) else { return Vec::new() };
    let tilings = RowTiling::configurations(&problem, &rows, memory(&rows)).into_iter();
    tilings.map(|tiling| tiling.candidate(&p, &problem, &rows, 2.0, LOADS)).collect()
}

fn launches(problem: &Problem<'_>, tiling: RowTiling) -> Result<Vec<Launch>, OpError> {
    let (problem, rows, [first, second]) =
        rows(problem).ok_or_else(|| OpError::new("the operator is not a sum of normalizations"))?;
    let mut shader = Shader::new(&problem);
    tiling.declare_cached_rows(&mut shader, &problem, &rows, LOADS);
    shader.size("elements", &problem.result.size_from_end(1));
    shader.number("first_epsilon", first);
    shader.number("second_epsilon", second);
    shader.alias("V", &ValueType::Float.wgsl(rows.lanes.count()));
    shader.workgroup_memory(tiling.threads() * memory(&rows));
    let (prelude, at) = rows.at(&mut shader);
    for (name, operand) in [("load_a", 0), ("load_b", 2)] {
        shader.read(name, PARAMS, &prelude, operand, &at);
    }
    for (name, operand) in [("scale_a", 1), ("scale_b", 3)] {
        shader.read_broadcast(name, PARAMS, &prelude, operand, &at)?;
    }
    shader.write("store", PARAMS, &prelude, &at)?;
    if matches!(rows.lanes, Lanes::Along(_)) {
        shader.replace("sum_lanes", SUM_LANES.into());
    }
    let flops = problem.result.elements().scale(12);
    let grid = tiling.grid(&problem, &rows.rows());
    Ok(vec![shader.finish("add_norms", KERNEL.wgsl, grid, flops)?])
}

/// Parameters of the load and store hooks.
const PARAMS: &str = "row: u32, i: u32";

/// Hook `sum_lanes` if the four lanes belong to one row.
const SUM_LANES: &str = "fn sum_lanes(sum: V) -> V { return V(dot(sum, V(1.0))); }";
