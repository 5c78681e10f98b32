//! Sums of values that the invocations of a subgroup hold: what kernels whose invocations share a sum replace their first step
//! by, where subgroups can pass values around.
//!
//! Such a kernel calls its body from `main` with the number of an invocation in the workgroup. Here that number counts the
//! places of subgroups, which Vulkan need not give out in the order of `local_invocation_index`.

use std::fmt::Write as _;

use crate::shader::problem::Problem;
use crate::shader::{Need, Shader};

/// Invocations of a subgroup where its size is known, all of them take part, and values can be passed around.
pub(crate) fn lanes(problem: &Problem<'_>) -> Option<u32> {
    problem.target.shuffling_subgroup().filter(|lanes| lanes.is_power_of_two() && *lanes >= 8)
}

/// Replaces `main`, which calls `multiply(group, local)`, `share_sums(local, low, high)` and `share_squares(local, r, square)`:
/// the latter two write one sum for each subgroup. Invocations `stride` apart hold sums of the same four columns in `low`,
/// and with `pairs` sums of four more in `high`.
pub(crate) fn declare(shader: &mut Shader<'_>, lanes: u32, stride: u32, pairs: bool) {
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
    // Of two neighbours one goes on with the low columns of both, and the other with the high ones.
    let (first, held, place) = if pairs {
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
        "share_sums",
        format!(
            "fn share_sums(local: u32, low: vec4<f32>, high: vec4<f32>) {{
{first}{}    if (local % {lanes}u < {held}u) {{ shares[local / {lanes}u * {held}u + {place}] = sum; }}
}}",
            butterfly(held, lanes)
        ),
    );
    shader.replace(
        "share_squares",
        format!(
            "fn share_squares(local: u32, r: u32, square: f32) {{
    var sum = square;
{}    if (local % {lanes}u == 0u) {{ square_shares[r * SQUARES + local / {lanes}u] = sum; }}
}}",
            butterfly(1, lanes)
        ),
    );
}

/// Statements that add up what invocations a multiple of `stride` apart hold.
fn butterfly(stride: u32, lanes: u32) -> String {
    let mut text = String::new();
    let mut apart = lanes / 2;
    while apart >= stride {
        let _ = writeln!(text, "    sum += subgroupShuffleXor(sum, {apart}u);");
        apart /= 2;
    }
    text
}
