// Attention without a matrix of scores in memory: a workgroup takes BLOCK queries that share their keys, walks over
// the keys TILE at a time, and keeps each query's running maximum, sum and weighted values (flash attention).
// Query heads that share a key head are queries of one block, so that keys and values are read once for all of them:
// query `row` is position `row / heads per key head` of one of them. Keys are split among invocations for the scores;
// value columns, four at a time, and every SPLIT-th key for the weighted sums. Picked for every attention.
//
// Replaced: the knobs, the sizes and the hooks. The loads return zero past the head sizes.

const THREADS = 64u;
const BLOCK = 4u;
/// Keys that an invocation scores in one tile.
const EACH = 1u;
const TILE = THREADS * EACH;
/// Queries whose sums are joined at once.
const ROUND = 1u;
const PLANE = ROUND * THREADS;
/// Head sizes of queries and values in groups of four.
const D4 = 2u;
const E4 = 2u;
const SPLIT = THREADS / E4;
/// Invocations that share the softmax of one query.
const LANES = THREADS / BLOCK;
fn scale() -> f32 { return 0.5; }
const_assert THREADS % BLOCK == 0u && (LANES & (LANES - 1u)) == 0u && E4 <= THREADS;
const LOWEST = -3.4028234e38;

@group(0) @binding(0) var<storage, read> queries: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> keys: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> values: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> result: array<vec4<f32>>;

/// Queries of one key head, and keys.
fn rows() -> u32 { return 10u; }
fn size_t() -> u32 { return 100u; }
/// The keys that a query sees: those from the earliest on, of as many from the first on.
fn visible(row: u32) -> u32 { return size_t(); }
fn earliest(row: u32) -> u32 { return 0u; }
/// Four elements of a query, a key or a value; `head` counts the key heads of all batches.
fn load_q(head: u32, row: u32, d4: u32) -> vec4<f32> { return queries[(head * 10u + row) * D4 + d4]; }
fn load_k(head: u32, key: u32, d4: u32) -> vec4<f32> { return keys[(head * 100u + key) * D4 + d4]; }
fn load_v(head: u32, key: u32, e4: u32) -> vec4<f32> { return values[(head * 100u + key) * E4 + e4]; }
/// The score of a product.
fn capped(score: f32) -> f32 { return score; }
/// Added to the score.
fn mask(head: u32, row: u32, key: u32) -> f32 { return 0.0; }
fn store(head: u32, row: u32, e4: u32, v: vec4<f32>) { result[(head * 10u + row) * E4 + e4] = v; }

var<workgroup> query: array<vec4<f32>, BLOCK * D4>;
/// The scores of a tile, and in the end the sums of ROUND queries, lane by lane.
var<workgroup> scores: array<f32, max(BLOCK * TILE, PLANE * 4u)>;
var<workgroup> parts: array<f32, THREADS>;
var<workgroup> factors: array<f32, BLOCK>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let head = group.y;
    let first = group.x * BLOCK;
    let last = min(first + BLOCK, rows()) - 1u;
    for (var i = local; i < BLOCK * D4; i += THREADS) {
        let row = first + i / D4;
        var v = vec4<f32>(0.0);
        if (row <= last) { v = load_q(head, row, i % D4) * scale(); }
        query[i] = v;
    }
    workgroupBarrier();
    let hidden = bitcast<f32>(0xff800000u);
    let own = local / LANES;
    let lane = local % LANES;
    let column = local % E4;
    let part = local / E4;
    var top = LOWEST;
    var sum = 0.0;
    var acc: array<vec4<f32>, BLOCK>;
    // unroll
    for (var r = 0u; r < BLOCK; r++) { acc[r] = vec4<f32>(0.0); }
    // The last query of the block sees the latest keys, the first one the earliest.
    let end = visible(last);
    for (var base = earliest(first) / TILE * TILE; base < end; base += TILE) {
        for (var at = local; at < TILE; at += THREADS) {
            let key = base + at;
            var dots: array<f32, BLOCK>;
            // unroll
            for (var r = 0u; r < BLOCK; r++) { dots[r] = 0.0; }
            if (key < end) {
                for (var d4 = 0u; d4 < D4; d4++) {
                    let k = load_k(head, key, d4);
                    // unroll
                    for (var r = 0u; r < BLOCK; r++) { dots[r] += dot(query[r * D4 + d4], k); }
                }
            }
            // unroll
            for (var r = 0u; r < BLOCK; r++) {
                var score = hidden;
                if (first + r <= last) {
                    if (key >= earliest(first + r) && key < visible(first + r)) {
                        score = capped(dots[r]) + mask(head, first + r, key);
                    }
                }
                scores[r * TILE + at] = score;
            }
        }
        workgroupBarrier();
        var higher = top;
        for (var i = lane; i < TILE; i += LANES) { higher = max(higher, scores[own * TILE + i]); }
        parts[local] = higher;
        workgroupBarrier();
        for (var step = LANES / 2u; step > 0u; step /= 2u) {
            if (lane < step) { parts[local] = max(parts[local], parts[local + step]); }
            workgroupBarrier();
        }
        higher = parts[own * LANES];
        let factor = exp(top - higher);
        top = higher;
        sum *= factor;
        for (var i = lane; i < TILE; i += LANES) {
            let weight = exp(scores[own * TILE + i] - top);
            scores[own * TILE + i] = weight;
            sum += weight;
        }
        if (lane == 0u) { factors[own] = factor; }
        workgroupBarrier();
        if (part < SPLIT) {
            // unroll
            for (var r = 0u; r < BLOCK; r++) { acc[r] *= factors[r]; }
            for (var at = part; at < min(TILE, end - base); at += SPLIT) {
                let v = load_v(head, base + at, column);
                // unroll
                for (var r = 0u; r < BLOCK; r++) { acc[r] += scores[r * TILE + at] * v; }
            }
        }
        workgroupBarrier();
    }
    parts[local] = sum;
    workgroupBarrier();
    for (var step = LANES / 2u; step > 0u; step /= 2u) {
        if (lane < step) { parts[local] += parts[local + step]; }
        workgroupBarrier();
    }
    // unroll
    for (var start = 0u; start < BLOCK; start += ROUND) {
        // unroll
        for (var i = 0u; i < ROUND; i++) {
            let at = i * THREADS + local;
            scores[at] = acc[start + i].x;
            scores[PLANE + at] = acc[start + i].y;
            scores[2u * PLANE + at] = acc[start + i].z;
            scores[3u * PLANE + at] = acc[start + i].w;
        }
        workgroupBarrier();
        for (var i = local; i < ROUND * E4; i += THREADS) {
            let r = start + i / E4;
            if (first + r <= last) {
                var total = vec4<f32>(0.0);
                for (var p = 0u; p < SPLIT; p++) {
                    let at = i / E4 * THREADS + p * E4 + i % E4;
                    total += vec4<f32>(scores[at], scores[PLANE + at], scores[2u * PLANE + at], scores[3u * PLANE + at]);
                }
                // A query that sees no key gives zero.
                let weight = parts[r * LANES];
                store(head, first + r, i % E4, select(vec4<f32>(0.0), total / weight, weight > 0.0));
            }
        }
        workgroupBarrier();
    }
}
