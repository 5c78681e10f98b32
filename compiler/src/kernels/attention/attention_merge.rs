//! `attention_merge.wgsl`: the launch that joins what `attention_parts` or `attention_coop` has found in parts of the keys.

use super::attention::{Preludes, Sizes, axes, declare};
use crate::error::OpError;
use crate::ir::dim::Dim;
use crate::ir::op::Attention;
use crate::shader::access::Coordinates;
use crate::shader::problem::Problem;
use crate::shader::{Bound, Grid, Launch, Shader};

const WGSL: &str = include_str!("attention_merge.wgsl");
/// Most queries of a key head for which keys are worth splitting: more of them occupy a device as they are.
pub(super) const MOST_ROWS: i64 = 128;
/// Invocations of a workgroup unless parts or columns need more, and how many share a column at most.
const THREADS: u32 = 128;
const SHARED: u32 = 8;

/// What the parts left behind.
pub(super) struct Joined {
    /// Parts, and keys of a step, which the parts take in turn.
    pub(super) parts: u32,
    pub(super) tile: u32,
    /// Weighted values of each part, and their maxima and sums.
    pub(super) partial: Bound,
    pub(super) stats: Bound,
}

/// Scratch buffers for what is found in `parts` of the keys, `tile` of them a step, and the hooks that fill them.
pub(super) fn keep(shader: &mut Shader<'_>, sizes: &Sizes, parts: u32, tile: u32) -> Joined {
    let e4 = i64::from(sizes.e.unsigned_abs().div_ceil(4) as u32);
    let found = sizes.rows().mul(&sizes.heads).scale(i64::from(parts));
    let partial = shader.scratch(found.scale(e4 * 16));
    let stats = shader.scratch(found.scale(8));
    let buffer = shader.bind(partial, "vec4<f32>", true);
    shader.replace(
        "keep",
        format!("fn keep(at: u32, e4: u32, v: vec4<f32>) {{ {buffer}[at * E4 + e4] = v; }}"),
    );
    let buffer = shader.bind(stats, "vec2<f32>", true);
    shader.replace("keep_stats", format!("fn keep_stats(at: u32, v: vec2<f32>) {{ {buffer}[at] = v; }}"));
    Joined { parts, tile, partial, stats }
}

/// The launch; `problem` is the attention of the given sizes.
///
/// # Errors
/// When the epilogue does not fit (a defect of the graph).
pub(super) fn launch(problem: &Problem<'_>, sizes: &Sizes, joined: &Joined) -> Result<Launch, OpError> {
    let Joined { parts, tile, partial, stats } = *joined;
    let e4 = sizes.e.unsigned_abs().div_ceil(4) as u32;
    let least = parts.max(e4);
    let threads = (e4 * SHARED).clamp(least, THREADS.max(least));
    let mut shader = Shader::new(problem);
    for (name, value) in [("THREADS", threads), ("PARTS", parts), ("E4", e4), ("TILE", tile)] {
        shader.knob(name, value);
    }
    let Preludes { query, .. } = declare(&mut shader, sizes, &Attention::plain(1.0));
    let buffer = shader.bind(partial, "vec4<f32>", false);
    shader.replace(
        "kept",
        format!("fn kept(at: u32, e4: u32) -> vec4<f32> {{ return {buffer}[at * E4 + e4]; }}"),
    );
    let buffer = shader.bind(stats, "vec2<f32>", false);
    shader.replace("kept_stats", format!("fn kept_stats(at: u32) -> vec2<f32> {{ return {buffer}[at]; }}"));
    let at = Coordinates::four(axes(["b", "h", "s", "e4"]), 3);
    shader.write("store", "head: u32, row: u32, e4: u32", &query, &at)?;
    shader.workgroup_memory(parts * 8 + threads * 20);
    let groups = [sizes.rows(), sizes.heads.clone(), Dim::known(1)];
    let found = sizes.rows().mul(&sizes.heads).scale(i64::from(parts));
    shader.finish("attention_merge", WGSL, Grid { groups, workgroup: [threads, 1, 1] }, found)
}
