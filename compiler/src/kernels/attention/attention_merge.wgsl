// Joins what attention_parts.wgsl has found in the parts of the keys: a workgroup takes a query, and its invocations four
// columns each of some of the parts.
//
// Replaced: the knobs, the sizes and the hooks.

const THREADS = 64u;
const PARTS = 4u;
const TILE = 8u;
const E4 = 2u;
const SPLIT = THREADS / E4;
const_assert PARTS <= THREADS && E4 <= THREADS;
const LOWEST = -3.4028234e38;

@group(0) @binding(0) var<storage, read> partial: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> stats: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read_write> result: array<vec4<f32>>;

fn rows() -> u32 { return 10u; }
fn size_t() -> u32 { return 100u; }
fn kept(at: u32, e4: u32) -> vec4<f32> { return partial[at * E4 + e4]; }
fn kept_stats(at: u32) -> vec2<f32> { return stats[at]; }
fn store(head: u32, row: u32, e4: u32, v: vec4<f32>) { result[(head * 10u + row) * E4 + e4] = v; }

var<workgroup> found: array<vec2<f32>, PARTS>;
var<workgroup> sums: array<vec4<f32>, THREADS>;
var<workgroup> weights: array<f32, THREADS>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let query = group.y * rows() + group.x;
    let count = min((size_t() + TILE - 1u) / TILE, PARTS);
    let column = local % E4;
    let split = local / E4;
    if (local < PARTS) {
        // A part that nobody computed has no weight.
        var stat = vec2<f32>(LOWEST, 0.0);
        if (local < count) { stat = kept_stats(query * PARTS + local); }
        found[local] = stat;
    }
    // What is loaded does not wait for the maxima.
    var loaded: array<vec4<f32>, (PARTS + SPLIT - 1u) / SPLIT>;
    // unroll
    for (var i = 0u; i < (PARTS + SPLIT - 1u) / SPLIT; i++) {
        let p = split + i * SPLIT;
        loaded[i] = vec4<f32>(0.0);
        if (p < count && split < SPLIT) { loaded[i] = kept(query * PARTS + p, column); }
    }
    workgroupBarrier();
    var top = LOWEST;
    // unroll
    for (var p = 0u; p < PARTS; p++) { top = max(top, found[p].x); }
    var total = vec4<f32>(0.0);
    var weight = 0.0;
    // unroll
    for (var i = 0u; i < (PARTS + SPLIT - 1u) / SPLIT; i++) {
        let p = split + i * SPLIT;
        if (p < PARTS && split < SPLIT) {
            let factor = exp(found[p].x - top);
            total += factor * loaded[i];
            weight += factor * found[p].y;
        }
    }
    sums[local] = total;
    weights[local] = weight;
    workgroupBarrier();
    if (split == 0u) {
        // unroll
        for (var i = 1u; i < SPLIT; i++) {
            total += sums[i * E4 + column];
            weight += weights[i * E4 + column];
        }
        // A query that sees no key gives zero.
        let v = select(vec4<f32>(0.0), total / weight, weight > 0.0);
        store(group.y, group.x, column, v);
    }
}
