//! Merging of the moments of a row by shuffles within subgroups, for the kernel `normalize`.
//!
//! Without shuffles, the invocations of a row merge their moments in workgroup memory, with a barrier for each level of the
//! reduction tree. With them, rows within a subgroup need no barrier, and longer rows need one.

use std::fmt::Write as _;

use super::row_tiling::RowTiling;
use crate::kernels::cost::barriers;
use crate::kernels::shared::subgroup_sums::{shuffle_distances, subgroup_lanes};
use crate::shader::problem::Problem;
use crate::shader::row_view::RowView;
use crate::shader::{Need, Shader};

/// Returns the size of the subgroups that merge the moments of a row. Returns `None` if a row's invocations are not
/// adjacent, if they are more than a subgroup of subgroups, or if the target has no usable shuffles.
pub(super) fn merging_subgroup(problem: &Problem<'_>, rows: &RowView, tiling: RowTiling) -> Option<u32> {
    let subgroup = subgroup_lanes(problem)?;
    let adjacent = rows.contiguous() || tiling.rows == 1;
    let fits = tiling.lanes > 1
        && tiling.lanes / subgroup <= subgroup
        && tiling.threads().is_multiple_of(subgroup)
        && tiling.threads() / subgroup <= problem.target.limits.max_workgroup_subgroups;
    (adjacent && fits).then_some(subgroup)
}

/// Returns the tiling with fewer rows per workgroup if there are few rows, so that every compute unit has a workgroup.
/// A workgroup keeps at least one subgroup.
pub(super) fn spread(problem: &Problem<'_>, rows: &RowView, tiling: RowTiling) -> RowTiling {
    let Some(subgroup) = merging_subgroup(problem, rows, tiling) else { return tiling };
    let units = i64::from(problem.target.machine.compute_units).max(1);
    let rows_per_unit = problem.max(&rows.rows()) / units;
    let mut spread = tiling;
    while i64::from(spread.rows) > rows_per_unit
        && spread.rows.is_multiple_of(2)
        && spread.threads() > subgroup
    {
        spread.rows /= 2;
    }
    spread
}

/// Returns the nanoseconds that shuffles save, compared with a barrier for each level of the reduction tree. A merge within
/// a subgroup counts as one barrier, and so does each further step.
pub(super) fn saved_latency(problem: &Problem<'_>, rows: &RowView, tiling: RowTiling) -> f64 {
    let Some(subgroup) = merging_subgroup(problem, rows, tiling) else { return 0.0 };
    let steps = if tiling.lanes > subgroup { 3.0 } else { 1.0 };
    let saved = (libm::log2(f64::from(tiling.lanes)) - steps).max(0.0);
    barriers(problem, problem.max(&rows.rows()) as f64 * f64::from(tiling.lanes), saved)
}

/// Declares how the invocations of a row merge their moments, and the workgroup memory that this needs. `moments_bytes` are
/// the bytes of one row's moments.
pub(super) fn declare(shader: &mut Shader<'_>, rows: &RowView, tiling: RowTiling, moments_bytes: u32) {
    let Some(subgroup) = merging_subgroup(shader.problem, rows, tiling) else {
        shader.workgroup_memory(tiling.threads() * moments_bytes);
        return;
    };
    shader.needs(&[Need::Subgroups, Need::SubgroupShuffle]);
    shader.replace(
        "main",
        format!(
            "@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {{
    normalize(group, groups, subgroup * {subgroup}u + lane);
}}"
        ),
    );
    let partials = tiling.lanes.div_ceil(subgroup);
    let mut statements = shuffles(tiling.lanes.min(subgroup));
    if partials > 1 {
        let _ = write!(
            statements,
            "    if (lane % {subgroup}u == 0u) {{ partial_moments[group_row * {partials}u + lane / {subgroup}u] = merged; }}
    workgroupBarrier();
    merged = partial_moments[group_row * {partials}u + lane % {partials}u];
{}",
            shuffles(partials)
        );
    }
    // Drivers count memory that is declared, so the array shrinks if nothing uses it.
    let size = if partials > 1 { partials * tiling.rows } else { 1 };
    shader.workgroup_memory(size * moments_bytes);
    shader.replace("partial_moments", format!("var<workgroup> partial_moments: array<Moments, {size}>;"));
    shader.replace(
        "merge_invocations",
        format!(
            "fn merge_invocations(moments: Moments, lane: u32, group_row: u32) -> Moments {{
    var merged = moments;
{statements}    return merged;
}}"
        ),
    );
}

/// Returns WGSL statements that merge the variable `merged` over groups of `count` adjacent invocations of a subgroup.
fn shuffles(count: u32) -> String {
    let merge = |distance| {
        let [count, mean, deviation] = ["count", "mean", "squared_deviation"]
            .map(|moment| format!("subgroupShuffleXor(merged.{moment}, {distance}u)"));
        format!("    merged = merge(merged, Moments({count}, {mean}, {deviation}));\n")
    };
    shuffle_distances(count, 1).map(merge).collect()
}
