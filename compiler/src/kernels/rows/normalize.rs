//! `normalize.wgsl`: LayerNorm, RMSNorm, GroupNorm and InstanceNorm.
//!
//! All of these norms normalize rows by their moments (mean and variance). A row of LayerNorm is along the trailing
//! axes. A row of GroupNorm is along the channels of a group and all spatial axes, so the channel axis is split in two.
//! A norm of sums reads several terms where other norms read one operand (`normalize_sums`).

use super::normalize_sums;
use super::row_tiling::{Params, RowTiling, SplitRowTiling};
use super::subgroup_moments;
use crate::error::OpError;
use crate::ir::dim::Dim;
use crate::ir::op::{GroupNorm, LayerNorm, NormOfSums, Op};
use crate::kernels::cost::{Estimate, named};
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::shader::access::Coordinates;
use crate::shader::problem::{Placement, Problem};
use crate::shader::row_view::{Lanes, RowView, merge_axes};
use crate::shader::{LaunchDraft, Shader, ValueType};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "normalize",
    wgsl: concat!(include_str!("../shared/preludes/rows.wgsl"), include_str!("normalize.wgsl")),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::named::<Params>("normalize")],
    in_place: InPlace::FirstAndEpilogue,
};

/// Maximum loads that an invocation has in flight. It is also the maximum number of elements (or vec4s) of a row that
/// an invocation keeps in registers.
const LOADS: u32 = 8;

/// Operand of a norm as rows, and the attributes of the norm.
pub(super) struct NormRows<'a> {
    /// Problem of the norm, with adjacent axes merged.
    pub(super) problem: Problem<'a>,
    pub(super) rows: RowView,
    /// True if operand 2 is a bias.
    pub(super) bias: bool,
    /// Attributes of a norm of sums; `None` for other norms.
    pub(super) sums: Option<&'a NormOfSums>,
    /// True if the norm subtracts the mean, false for RMSNorm.
    subtract_mean: bool,
    epsilon: f32,
    /// For GroupNorm: the channel axis, and the number of channels per group. In `rows` the channel axis is split in
    /// two: groups, and channels of a group.
    groups: Option<(usize, Dim)>,
}

fn norm_rows<'a>(problem: &Problem<'a>) -> Option<NormRows<'a>> {
    match problem.op {
        Op::LayerNorm(op) => Some(layer_norm_rows(op, problem)),
        Op::GroupNorm(op) => group_norm_rows(op, problem),
        Op::NormOfSums(op) => normalize_sums::rows(op, problem),
        _ => None,
    }
}

pub(super) fn layer_norm_rows<'a>(op: &LayerNorm, problem: &Problem<'a>) -> NormRows<'a> {
    let x = &problem.operands[0];
    let first = op.axis;
    let (problem, rows) = match merge_axes(problem, &x.shape, |a| usize::from(a >= first)) {
        Some((merged, groups)) => {
            let along: Vec<usize> = (0..groups.len()).filter(|g| groups[*g][0] >= first).collect();
            let rows = RowView::new(&merged.operands[0], &along);
            (merged, rows)
        }
        None => {
            let along: Vec<usize> = (first..x.rank()).collect();
            (problem.clone(), RowView::new(x, &along))
        }
    };
    NormRows {
        bias: problem.arity > 2,
        sums: None,
        problem,
        rows,
        subtract_mean: !op.rms,
        epsilon: op.epsilon,
        groups: None,
    }
}

fn group_norm_rows<'a>(op: &GroupNorm, problem: &Problem<'a>) -> Option<NormRows<'a>> {
    let groups = i64::try_from(op.groups).ok()?;
    let mut problem = problem.clone();
    // Scale and bias are along the channels.
    let spatial_axes = problem.result.rank() - 2;
    for operand in problem.operands.iter_mut().take(problem.arity).skip(1) {
        let Placement::Strided { strides, .. } = &mut operand.placement else { return None };
        operand.shape.extend(vec![Dim::known(1); spatial_axes]);
        strides.extend(vec![Dim::known(0); spatial_axes]);
    }
    let shape = problem.result.shape.clone();
    let mut channel = 1;
    if !shape[1].is(1)
        && let Some((merged, axes)) = merge_axes(&problem, &shape, |a| a.min(2))
    {
        channel = axes.iter().position(|a| a.contains(&1))?;
        problem = merged;
    }
    let x = &problem.operands[0];
    let per_group = x.shape[channel].floor_div(groups);
    let rows = RowView::grouped(x, channel, groups);
    Some(NormRows {
        bias: problem.arity > 2,
        sums: None,
        problem,
        rows,
        subtract_mean: true,
        epsilon: op.epsilon,
        groups: Some((channel, per_group)),
    })
}

impl NormRows<'_> {
    /// Returns WGSL statements that locate an element of a row, and the element's coordinates along the axes of the
    /// norm's operand. The coordinates use variables that the statements declare.
    pub(super) fn at(&self, shader: &mut Shader<'_>) -> (String, Coordinates) {
        let (prelude, mut at) = self.rows.at(shader);
        let Some((channel, per_group)) = &self.groups else { return (prelude, at) };
        let inner = at.axes.remove(channel + 1);
        let group = &mut at.axes[*channel];
        let lane_inside = at.lanes == Some(channel + 1);
        if inner != "0u" {
            let size = shader.dim(&if lane_inside { per_group.ceil_div(4) } else { per_group.clone() });
            *group = if group == "0u" { inner } else { format!("({group} * {size} + {inner})") };
        }
        at.lanes = at.lanes.map(|l| if l > *channel { l - 1 } else { l });
        (prelude, at)
    }
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Some(norm_rows) = norm_rows(problem) else { return Vec::new() };
    let Some(p) = named::<Params>(problem, KERNEL.name) else { return Vec::new() };
    let (problem, rows) = (&norm_rows.problem, &norm_rows.rows);
    let machine = &problem.target.machine;
    let resident = machine.invocations() as i64;
    let (count, length) = (problem.max(&rows.rows()), problem.max(&rows.length()));
    let mut out = Vec::new();
    for tiling in RowTiling::configurations(problem, rows, moments_bytes(rows)) {
        let tiling = subgroup_moments::spread(problem, rows, tiling);
        let candidate = tiling.candidate(&p, problem, rows, 2.0, LOADS);
        let saved = subgroup_moments::saved_latency(problem, rows, tiling);
        let latency = candidate.estimate.latency - saved;
        let estimate = Estimate { latency, ..candidate.estimate };
        out.push(candidate.with_estimate(estimate));
        // Parts must be long enough to justify a second launch, and few, because every workgroup merges their moments.
        let lanes = i64::from(tiling.lanes);
        let max_split =
            (resident / (count * lanes).max(1)).min(length / (lanes * i64::from(LOADS))).min(MAX_SPLIT);
        if tiling.lanes >= 64 && max_split >= 4 && norm_rows.sums.is_none() {
            let split = tiling.split_candidate(&p, problem, rows, max_split as u32, LOADS);
            // The second launch reads the rows again.
            let second_reads = problem.traffic() as f64 / machine.bandwidth_gb_s.max(1e-3);
            let estimate = Estimate { serial: second_reads, ..split.estimate };
            out.push(split.with_estimate(estimate));
        }
    }
    out
}

/// Maximum number of parts into which a row is split. Every workgroup of a row merges the moments of all parts in sequence.
const MAX_SPLIT: i64 = 32;

/// Returns the bytes of the moments of a row: 12 (three floats), or 48 (a float and two vec4s, aligned) for four rows.
fn moments_bytes(rows: &RowView) -> u32 {
    if matches!(rows.lanes, Lanes::Across(_)) { 48 } else { 12 }
}

fn launches(problem: &Problem<'_>, config: SplitRowTiling) -> Result<Vec<LaunchDraft>, OpError> {
    let norm_rows = norm_rows(problem).ok_or_else(|| OpError::new("the operator is not a normalization"))?;
    let tiling = config.tiling();
    let split = config.split.unwrap_or(1);
    let parts = norm_rows.rows.rows().scale(i64::from(split));
    let grid = || tiling.grid(&norm_rows.problem, &parts);
    let elements = norm_rows.problem.result.elements();
    let subgroup_size = subgroup_moments::merging_subgroup(&norm_rows.problem, &norm_rows.rows, tiling);
    let finish = |shader: Shader<'_>, flops: i64| {
        let mut launch = shader.finish("normalize", KERNEL.wgsl, grid(), elements.scale(flops));
        launch.subgroup_size = subgroup_size;
        launch
    };
    if split == 1 {
        let mut shader = shader(&norm_rows, tiling)?;
        declare_result(&mut shader, &norm_rows)?;
        return Ok(vec![finish(shader, 8)]);
    }
    let [mut first, mut second] = [shader(&norm_rows, tiling)?, shader(&norm_rows, tiling)?];
    for shader in [&mut first, &mut second] {
        shader.knob("SPLIT", split);
        shader.constant("ROW_IN_REGISTERS", false);
    }
    let scratch = first.scratch(parts.scale(i64::from(moments_bytes(&norm_rows.rows))));
    let buffer = first.bind(scratch, "StoredMoments", true);
    first.constant("STORES_RESULT", false);
    first.replace("scale", "fn scale(row: u32, i: u32) -> V { return V(1.0); }".into());
    first.replace("store", "fn store(row: u32, i: u32, v: V) {}".into());
    first.replace(
        "store_moments",
        format!(
            "fn store_moments(row_part: u32, m: Moments) {{\n    {buffer}[row_part] = StoredMoments(m.count, m.mean, m.squared_deviation);\n}}"
        ),
    );
    let buffer = second.bind(scratch, "StoredMoments", false);
    second.constant("COMPUTES_MOMENTS", false);
    second.replace(
        "load_moments",
        format!(
            "fn load_moments(row_part: u32) -> Moments {{\n    let m = {buffer}[row_part];\n    return Moments(m.count, m.mean, m.squared_deviation);\n}}"
        ),
    );
    declare_result(&mut second, &norm_rows)?;
    Ok(vec![finish(first, 4), finish(second, 4)])
}

/// Returns the shader of a norm, with its knobs and the hook `load` declared.
fn shader<'p>(norm_rows: &'p NormRows<'p>, tiling: RowTiling) -> Result<Shader<'p>, OpError> {
    let rows = &norm_rows.rows;
    let mut shader = Shader::new(&norm_rows.problem);
    tiling.declare_cached_rows(&mut shader, &norm_rows.problem, rows, LOADS);
    shader.constant("SUBTRACTS_MEAN", norm_rows.subtract_mean);
    shader.number("epsilon", norm_rows.epsilon);
    let lanes = rows.lanes.count();
    shader.alias("V", &ValueType::Float.wgsl(lanes));
    let is_one_row = !matches!(rows.lanes, Lanes::Across(_));
    shader.alias("M", &ValueType::Float.wgsl(if is_one_row { 1 } else { lanes }));
    subgroup_moments::declare(&mut shader, rows, tiling, moments_bytes(rows));
    match norm_rows.sums {
        Some(op) => normalize_sums::declare_load(&mut shader, norm_rows, op)?,
        None => {
            let (prelude, at) = norm_rows.at(&mut shader);
            shader.read("load", PARAMS, &prelude, 0, &at);
        }
    }
    if matches!(rows.lanes, Lanes::Along(_)) {
        shader.replace("merge_lanes", MERGE_LANES.into());
    }
    Ok(shader)
}

/// Declares the hooks that read the scale and the bias of a norm, and that store the result.
fn declare_result(shader: &mut Shader<'_>, norm_rows: &NormRows<'_>) -> Result<(), OpError> {
    let (prelude, at) = norm_rows.at(shader);
    shader.read_broadcast("scale", PARAMS, &prelude, 1, &at)?;
    if norm_rows.bias {
        shader.read_broadcast("bias", PARAMS, &prelude, 2, &at)?;
    }
    shader.write("store", PARAMS, &prelude, &at)
}

/// WGSL parameters of the hooks that load and store elements: the row, and the position in the row.
pub(super) const PARAMS: &str = "row: u32, i: u32";

/// WGSL of the hook `merge_lanes` for vec4s of four elements of one row. Each component has the moments of equally many
/// elements.
const MERGE_LANES: &str = "fn merge_lanes(count: f32, mean: V, squared_deviation: V) -> Moments {
    let row_mean = dot(mean, V(0.25));
    let difference = mean - row_mean;
    return Moments(count * 4.0, row_mean, dot(squared_deviation, V(1.0)) + dot(difference, difference) * count);
}";
