//! Reductions within a subgroup: WGSL that replaces the first step of a workgroup reduction where subgroup shuffles are
//! usable.
//!
//! The entry point `main` of a kernel with such a reduction only calls the function `multiply`, with the index of the
//! invocation in the workgroup. This module replaces `main`: it computes this index from the index of the subgroup,
//! because Vulkan does not have to order subgroups by `local_invocation_index`.

use crate::shader::problem::Problem;
use crate::shader::{Need, Shader};

/// Returns the target's subgroup size if the size is known, all invocations of a subgroup are active, and subgroup
/// shuffles are usable. Otherwise returns `None`.
pub(crate) fn subgroup_lanes(problem: &Problem<'_>) -> Option<u32> {
    problem.target.shuffling_subgroup().filter(|lanes| lanes.is_power_of_two() && *lanes >= 8)
}

/// Replaces the WGSL functions `main`, `reduce_sums(local, low, high)` and `reduce_squares(local, r, square)`. `main`
/// calls `multiply(group, local)`. `reduce_sums` and `reduce_squares` add values of the invocations of a subgroup and
/// write one partial sum per subgroup. Invocations whose distance is a multiple of `stride` hold partial sums of the
/// same four columns in `low`, and, if `two_vec4s` is true, of four more columns in `high`.
pub(crate) fn declare_subgroup_sums(shader: &mut Shader<'_>, lanes: u32, stride: u32, two_vec4s: bool) {
    shader.needs(&[Need::Subgroups, Need::SubgroupShuffle]);
    shader.replace(
        "main",
        format!(
            "@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(subgroup_id) subgroup: u32, @builtin(subgroup_invocation_id) lane: u32) {{
    multiply(group, subgroup * {lanes}u + lane);
}}"
        ),
    );
    // Two neighbors exchange halves: one continues with the low columns of both, the other with the high columns.
    let (first_step, sums, slot) = if two_vec4s {
        let exchange = format!(
            "    let upper = (local & {stride}u) != 0u;
    var sum = select(low, high, upper) + subgroupShuffleXor(select(high, low, upper), {stride}u);
"
        );
        (exchange, stride * 2, format!("local % {stride}u * 2u + local / {stride}u % 2u"))
    } else {
        ("    var sum = low;\n".to_string(), stride, format!("local % {stride}u"))
    };
    shader.replace(
        "reduce_sums",
        format!(
            "fn reduce_sums(local: u32, low: vec4<f32>, high: vec4<f32>) {{
{first_step}{}    if (local % {lanes}u < {sums}u) {{ partial_sums[local / {lanes}u * {sums}u + {slot}] = sum; }}
}}",
            butterfly(sums, lanes)
        ),
    );
    shader.replace(
        "reduce_squares",
        format!(
            "fn reduce_squares(local: u32, r: u32, square: f32) {{
    var sum = square;
{}    if (local % {lanes}u == 0u) {{ partial_squares[r * WORKGROUP_PARTIALS + local / {lanes}u] = sum; }}
}}",
            butterfly(1, lanes)
        ),
    );
}

/// Returns WGSL statements that add the variable `sum` over the invocations of a subgroup whose distance is a multiple
/// of `stride`.
fn butterfly(stride: u32, lanes: u32) -> String {
    shuffle_distances(lanes, stride)
        .map(|distance| format!("    sum += subgroupShuffleXor(sum, {distance}u);\n"))
        .collect()
}

/// Iterates over the distances, largest first, at which `lanes` invocations exchange values until each has the values of all
/// invocations whose distance is a multiple of `stride`. Both numbers are powers of two.
pub(crate) fn shuffle_distances(lanes: u32, stride: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(lanes / 2), |distance| Some(distance / 2))
        .take_while(move |distance| *distance >= stride)
}
