//! `attention_merge.wgsl`: the launch that merges the partial results of `attention_kv_split`, `attention_coop` or
//! `attention_fragments`.

use super::attention::{HeadCoordinates, Sizes, axes, declare_sizes};
use crate::error::OpError;
use crate::ir::dim::Dim;
use crate::ir::op::Attention;
use crate::shader::access::Coordinates;
use crate::shader::problem::Problem;
use crate::shader::{Bound, Grid, LaunchDraft, Shader};

const WGSL: &str = include_str!("attention_merge.wgsl");
/// Maximum query rows per key head for which the keys are split among workgroups. More rows occupy the device without a split.
pub(super) const MAX_SPLIT_ROWS: i64 = 128;
/// Numbers of KV splits that kernels on matrix units try. A KV split is one of the workgroups that split the keys of a query;
/// with 1, the keys are not split.
pub(super) const KV_SPLITS: &[u32] = &[1, 2, 4, 8, 16, 32, 64];
/// Maximum invocations per workgroup of the kernel `attention_merge`, unless the KV splits or the value columns need more.
const THREADS: u32 = 128;
/// Maximum number of invocations that merge the KV splits of four value columns together.
const MAX_COLUMN_SPLIT: u32 = 8;

/// Scratch buffers with the partial attention results of the KV splits.
pub(super) struct Partials {
    /// Number of KV splits: workgroups that split the keys of a query.
    pub(super) kv_split: u32,
    /// Number of keys per tile. The tile with index t belongs to KV split t % `kv_split`.
    pub(super) tile: u32,
    /// Buffer with the sum of weighted values of each query and KV split.
    pub(super) partial: Bound,
    /// Buffer with the maximum score and the sum of softmax weights of each query and KV split.
    pub(super) stats: Bound,
}

/// Declares where a kernel stores its results: in the result, or in scratch buffers if `kv_split` workgroups split the keys
/// into tiles of `tile` keys. `query` are the WGSL statements that compute the coordinates of a query.
///
/// # Errors
/// If the epilogue does not fit the result (a defect of the graph).
pub(super) fn declare_results(
    shader: &mut Shader<'_>,
    sizes: &Sizes,
    query: &str,
    kv_split: u32,
    tile: u32,
) -> Result<Option<Partials>, OpError> {
    if kv_split > 1 {
        shader.replace("store", "fn store(head: u32, row: u32, e4: u32, v: vec4<f32>) {}".into());
        return Ok(Some(declare_partials(shader, sizes, kv_split, tile)));
    }
    declare_store(shader, query)?;
    Ok(None)
}

/// Replaces the hook `store`, which stores four elements of a query's result.
fn declare_store(shader: &mut Shader<'_>, query: &str) -> Result<(), OpError> {
    let at = Coordinates::vec4(axes(["b", "h", "s", "e4"]), 3);
    shader.write("store", "head: u32, row: u32, e4: u32", query, &at)?;
    Ok(())
}

/// Declares the scratch buffers for the partial results of the KV splits, and the hooks that store them.
pub(super) fn declare_partials(shader: &mut Shader<'_>, sizes: &Sizes, kv_split: u32, tile: u32) -> Partials {
    let e4 = i64::from(sizes.e.unsigned_abs().div_ceil(4) as u32);
    let rows = sizes.rows().mul(&sizes.heads).scale(i64::from(kv_split));
    let partial = shader.scratch(rows.scale(e4 * 16));
    let stats = shader.scratch(rows.scale(8));
    let buffer = shader.bind(partial, "vec4<f32>", true);
    shader.replace(
        "store_partial",
        format!("fn store_partial(at: u32, e4: u32, v: vec4<f32>) {{ {buffer}[at * E4 + e4] = v; }}"),
    );
    let buffer = shader.bind(stats, "vec2<f32>", true);
    shader.replace(
        "store_partial_stats",
        format!("fn store_partial_stats(at: u32, v: vec2<f32>) {{ {buffer}[at] = v; }}"),
    );
    Partials { kv_split, tile, partial, stats }
}

/// Returns the launch that merges the partial attention results of the KV splits.
///
/// # Errors
/// If the epilogue does not fit the result (a defect of the graph).
pub(super) fn launch(
    problem: &Problem<'_>,
    sizes: &Sizes,
    partials: &Partials,
) -> Result<LaunchDraft, OpError> {
    let Partials { kv_split, tile, partial, stats } = *partials;
    let e4 = sizes.e.unsigned_abs().div_ceil(4) as u32;
    let min_threads = kv_split.max(e4);
    let threads = (e4 * MAX_COLUMN_SPLIT).clamp(min_threads, THREADS.max(min_threads));
    let mut shader = Shader::new(problem);
    for (name, value) in [("THREADS", threads), ("KV_SPLIT", kv_split), ("E4", e4), ("TILE", tile)] {
        shader.knob(name, value);
    }
    let HeadCoordinates { query, .. } = declare_sizes(&mut shader, sizes, &Attention::plain(1.0));
    let buffer = shader.bind(partial, "vec4<f32>", false);
    shader.replace(
        "load_partial",
        format!("fn load_partial(at: u32, e4: u32) -> vec4<f32> {{ return {buffer}[at * E4 + e4]; }}"),
    );
    let buffer = shader.bind(stats, "vec2<f32>", false);
    shader.replace(
        "load_partial_stats",
        format!("fn load_partial_stats(at: u32) -> vec2<f32> {{ return {buffer}[at]; }}"),
    );
    declare_store(&mut shader, &query)?;
    shader.workgroup_memory(kv_split * 8 + threads * 20);
    let groups = [sizes.rows(), sizes.heads.clone(), Dim::known(1)];
    let rows = sizes.rows().mul(&sizes.heads).scale(i64::from(kv_split));
    Ok(shader.finish("attention_merge", WGSL, Grid { groups, workgroup: [threads, 1, 1] }, rows))
}
