//! `add_norms.wgsl`: sum of the RMSNorms of two tensors. Rows are along the last axis.

use super::row_tiling::{Params, RowTiling};
use crate::error::OpError;
use crate::ir::op::Op;
use crate::kernels::cost::named;
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::shader::problem::Problem;
use crate::shader::row_view::{Lanes, RowView, rows_along_axis};
use crate::shader::{LaunchDraft, Shader, ValueType};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "add_norms",
    wgsl: concat!(include_str!("../shared/preludes/rows.wgsl"), include_str!("add_norms.wgsl")),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::named::<Params>(PARAMETERS)],
    in_place: InPlace::FirstAndEpilogue,
};

/// Name of the group of cost parameters that the estimate of `add_norms` uses: the parameters of `normalize`, which
/// reads rows in the same way.
const PARAMETERS: &str = "normalize";
/// Maximum loads that an invocation has in flight per operand. It is also the maximum number of elements (or vec4s) of
/// a row that an invocation keeps in registers.
const LOADS: u32 = 4;

/// Returns the problem of a sum of two norms with merged axes, its rows, and the epsilons of the two norms.
fn rows<'a>(problem: &Problem<'a>) -> Option<(Problem<'a>, RowView, [f32; 2])> {
    let Op::AddNorms(op) = problem.op else { return None };
    let axis = problem.operands.first()?.rank().checked_sub(1)?;
    let (problem, rows) = rows_along_axis(problem, axis);
    Some((problem, rows, op.epsilons))
}

/// Returns the workgroup memory of the kernel `add_norms` per invocation, in bytes.
fn memory(rows: &RowView) -> u32 {
    rows.lanes.count() * 8
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Some((problem, rows, _)) = rows(problem) else { return Vec::new() };
    let Some(p) = named::<Params>(&problem, PARAMETERS) else { return Vec::new() };
    let tilings = RowTiling::configurations(&problem, &rows, memory(&rows)).into_iter();
    tilings.map(|tiling| tiling.candidate(&p, &problem, &rows, 2.0, LOADS)).collect()
}

fn launches(problem: &Problem<'_>, tiling: RowTiling) -> Result<Vec<LaunchDraft>, OpError> {
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
    Ok(vec![shader.finish("add_norms", KERNEL.wgsl, grid, flops)])
}

/// WGSL parameters of the hooks that load and store elements: the row, and the position in the row.
const PARAMS: &str = "row: u32, i: u32";

/// WGSL of the hook `sum_lanes` for vec4s of four elements of one row: the sum of the four elements.
const SUM_LANES: &str = "fn sum_lanes(sum: V) -> V { return V(dot(sum, V(1.0))); }";
