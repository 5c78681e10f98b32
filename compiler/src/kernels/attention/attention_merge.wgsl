// Merges the partial results of attention_kv_split.wgsl, attention_coop.wgsl or attention_fragments.wgsl. A workgroup
// computes the result of one query. Each invocation merges four value columns over some of the KV splits.
//
// The compiler replaces the knobs, the sizes and the hooks.

const THREADS = 64u;
const KV_SPLIT = 4u;
const TILE = 8u;
const E4 = 2u;
const COLUMN_SPLIT = THREADS / E4;
const_assert KV_SPLIT <= THREADS && E4 <= THREADS;
const LOWEST = -3.4028234e38;

@group(0) @binding(0) var<storage, read> partial: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> stats: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read_write> result: array<vec4<f32>>;

fn rows() -> u32 { return 10u; }
fn size_t() -> u32 { return 100u; }
fn load_partial(at: u32, e4: u32) -> vec4<f32> { return partial[at * E4 + e4]; }
fn load_partial_stats(at: u32) -> vec2<f32> { return stats[at]; }
fn store(head: u32, row: u32, e4: u32, v: vec4<f32>) { result[(head * 10u + row) * E4 + e4] = v; }

var<workgroup> split_stats: array<vec2<f32>, KV_SPLIT>;
var<workgroup> sums: array<vec4<f32>, THREADS>;
var<workgroup> weights: array<f32, THREADS>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let query = group.y * rows() + group.x;
    let count = min((size_t() + TILE - 1u) / TILE, KV_SPLIT);
    let column = local % E4;
    let column_part = local / E4;
    if (local < KV_SPLIT) {
        // A KV split without keys has weight 0.
        var stat = vec2<f32>(LOWEST, 0.0);
        if (local < count) { stat = load_partial_stats(query * KV_SPLIT + local); }
        split_stats[local] = stat;
    }
    // Partial results are loaded before the barrier, so that these loads overlap with the loads of the maxima.
    var loaded: array<vec4<f32>, (KV_SPLIT + COLUMN_SPLIT - 1u) / COLUMN_SPLIT>;
    // unroll
    for (var i = 0u; i < (KV_SPLIT + COLUMN_SPLIT - 1u) / COLUMN_SPLIT; i++) {
        let p = column_part + i * COLUMN_SPLIT;
        loaded[i] = vec4<f32>(0.0);
        if (p < count && column_part < COLUMN_SPLIT) { loaded[i] = load_partial(query * KV_SPLIT + p, column); }
    }
    workgroupBarrier();
    var row_max = LOWEST;
    // unroll
    for (var p = 0u; p < KV_SPLIT; p++) { row_max = max(row_max, split_stats[p].x); }
    var total = vec4<f32>(0.0);
    var weight = 0.0;
    // unroll
    for (var i = 0u; i < (KV_SPLIT + COLUMN_SPLIT - 1u) / COLUMN_SPLIT; i++) {
        let p = column_part + i * COLUMN_SPLIT;
        if (p < KV_SPLIT && column_part < COLUMN_SPLIT) {
            let factor = exp(split_stats[p].x - row_max);
            total += factor * loaded[i];
            weight += factor * split_stats[p].y;
        }
    }
    sums[local] = total;
    weights[local] = weight;
    workgroupBarrier();
    if (column_part == 0u) {
        // unroll
        for (var i = 1u; i < COLUMN_SPLIT; i++) {
            total += sums[i * E4 + column];
            weight += weights[i * E4 + column];
        }
        // The result of a query that may see no keys is zero.
        let v = select(vec4<f32>(0.0), total / weight, weight > 0.0);
        store(group.y, group.x, column, v);
    }
}
