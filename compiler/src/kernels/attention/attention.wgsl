// Scaled dot-product attention without a matrix of scores in memory (flash attention). A workgroup computes QUERIES
// queries of one key head. It loops over the keys in tiles of TILE keys and keeps each query's running maximum, sum and
// weighted values. Query heads that share a key head (GQA) are rows of one tile, so keys and values are read once for
// all of them. A query row is one position of one of these query heads: rows count the query heads first, then the
// positions. For the scores, the invocations of a workgroup split the keys. For the weighted sums, an invocation
// computes a vec4 of value columns over every VALUE_SPLIT-th key.
//
// The compiler replaces the knobs, the sizes and the hooks. The hooks that load queries, keys and values return zero
// past the head size.

const THREADS = 64u;
const QUERIES = 4u;
/// Number of keys of a tile for which one invocation computes scores.
const KEYS = 1u;
const TILE = THREADS * KEYS;
/// Number of queries whose partial sums of weighted values are added at once, after the loop over keys.
const SUMMED_QUERIES = 1u;
const PLANE = SUMMED_QUERIES * THREADS;
/// Head size of queries and keys, in vec4s.
const D4 = 2u;
/// Head size of values, in vec4s.
const E4 = 2u;
const VALUE_SPLIT = THREADS / E4;
/// Number of invocations that compute the softmax of one query.
const LANES = THREADS / QUERIES;
fn scale() -> f32 { return 0.5; }
const_assert THREADS % QUERIES == 0u && (LANES & (LANES - 1u)) == 0u && E4 <= THREADS;
const LOWEST = -3.4028234e38;

@group(0) @binding(0) var<storage, read> queries: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> keys: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> values: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> result: array<vec4<f32>>;

/// Number of query rows per key head.
fn rows() -> u32 { return 10u; }
/// Number of keys.
fn size_t() -> u32 { return 100u; }
/// End (exclusive) of the range of keys that a query row may see.
fn visible_end(row: u32) -> u32 { return size_t(); }
/// Start of the range of keys that a query row may see.
fn visible_start(row: u32) -> u32 { return 0u; }
/// Loads a vec4 of a query row. `head` is the index of the key head among all batches.
fn load_q(head: u32, row: u32, d4: u32) -> vec4<f32> { return queries[(head * 10u + row) * D4 + d4]; }
/// Loads a vec4 of a key. `head` is the index of the key head among all batches.
fn load_k(head: u32, key: u32, d4: u32) -> vec4<f32> { return keys[(head * 100u + key) * D4 + d4]; }
/// Loads a vec4 of a value. `head` is the index of the key head among all batches.
fn load_v(head: u32, key: u32, e4: u32) -> vec4<f32> { return values[(head * 100u + key) * E4 + e4]; }
/// Applies the soft cap of the attention (`cap * tanh(score / cap)`) to a score.
fn capped(score: f32) -> f32 { return score; }
/// Additive mask of a query row and a key.
fn mask(head: u32, row: u32, key: u32) -> f32 { return 0.0; }
fn store(head: u32, row: u32, e4: u32, v: vec4<f32>) { result[(head * 10u + row) * E4 + e4] = v; }

var<workgroup> query: array<vec4<f32>, QUERIES * D4>;
/// Scores of the keys of a tile. After the loop over keys: partial sums of weighted values of SUMMED_QUERIES queries,
/// with one range of the array per vec4 component.
var<workgroup> scores: array<f32, max(QUERIES * TILE, PLANE * 4u)>;
var<workgroup> lane_values: array<f32, THREADS>;
var<workgroup> rescale: array<f32, QUERIES>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let head = group.y;
    let first = group.x * QUERIES;
    let last = min(first + QUERIES, rows()) - 1u;
    for (var i = local; i < QUERIES * D4; i += THREADS) {
        let row = first + i / D4;
        var v = vec4<f32>(0.0);
        if (row <= last) { v = load_q(head, row, i % D4) * scale(); }
        query[i] = v;
    }
    workgroupBarrier();
    let minus_infinity = bitcast<f32>(0xff800000u);
    let softmax_query = local / LANES;
    let lane = local % LANES;
    let column = local % E4;
    let value_part = local / E4;
    var row_max = LOWEST;
    var sum = 0.0;
    var acc: array<vec4<f32>, QUERIES>;
    // unroll
    for (var r = 0u; r < QUERIES; r++) { acc[r] = vec4<f32>(0.0); }
    // The last query of the workgroup sees the latest keys, and the first query sees the earliest keys.
    let end = visible_end(last);
    for (var base = visible_start(first) / TILE * TILE; base < end; base += TILE) {
        for (var at = local; at < TILE; at += THREADS) {
            let key = base + at;
            var dots: array<f32, QUERIES>;
            // unroll
            for (var r = 0u; r < QUERIES; r++) { dots[r] = 0.0; }
            if (key < end) {
                for (var d4 = 0u; d4 < D4; d4++) {
                    let k = load_k(head, key, d4);
                    // unroll
                    for (var r = 0u; r < QUERIES; r++) { dots[r] += dot(query[r * D4 + d4], k); }
                }
            }
            // unroll
            for (var r = 0u; r < QUERIES; r++) {
                var score = minus_infinity;
                if (first + r <= last) {
                    if (key >= visible_start(first + r) && key < visible_end(first + r)) {
                        score = capped(dots[r]) + mask(head, first + r, key);
                    }
                }
                scores[r * TILE + at] = score;
            }
        }
        workgroupBarrier();
        var new_max = row_max;
        for (var i = lane; i < TILE; i += LANES) { new_max = max(new_max, scores[softmax_query * TILE + i]); }
        lane_values[local] = new_max;
        workgroupBarrier();
        for (var step = LANES / 2u; step > 0u; step /= 2u) {
            if (lane < step) { lane_values[local] = max(lane_values[local], lane_values[local + step]); }
            workgroupBarrier();
        }
        new_max = lane_values[softmax_query * LANES];
        let factor = exp(row_max - new_max);
        row_max = new_max;
        sum *= factor;
        for (var i = lane; i < TILE; i += LANES) {
            let weight = exp(scores[softmax_query * TILE + i] - row_max);
            scores[softmax_query * TILE + i] = weight;
            sum += weight;
        }
        if (lane == 0u) { rescale[softmax_query] = factor; }
        workgroupBarrier();
        if (value_part < VALUE_SPLIT) {
            // unroll
            for (var r = 0u; r < QUERIES; r++) { acc[r] *= rescale[r]; }
            for (var at = value_part; at < min(TILE, end - base); at += VALUE_SPLIT) {
                let v = load_v(head, base + at, column);
                // unroll
                for (var r = 0u; r < QUERIES; r++) { acc[r] += scores[r * TILE + at] * v; }
            }
        }
        workgroupBarrier();
    }
    lane_values[local] = sum;
    workgroupBarrier();
    for (var step = LANES / 2u; step > 0u; step /= 2u) {
        if (lane < step) { lane_values[local] += lane_values[local + step]; }
        workgroupBarrier();
    }
    // unroll
    for (var start = 0u; start < QUERIES; start += SUMMED_QUERIES) {
        // unroll
        for (var i = 0u; i < SUMMED_QUERIES; i++) {
            let at = i * THREADS + local;
            scores[at] = acc[start + i].x;
            scores[PLANE + at] = acc[start + i].y;
            scores[2u * PLANE + at] = acc[start + i].z;
            scores[3u * PLANE + at] = acc[start + i].w;
        }
        workgroupBarrier();
        for (var i = local; i < SUMMED_QUERIES * E4; i += THREADS) {
            let r = start + i / E4;
            if (first + r <= last) {
                var total = vec4<f32>(0.0);
                for (var p = 0u; p < VALUE_SPLIT; p++) {
                    let at = i / E4 * THREADS + p * E4 + i % E4;
                    total += vec4<f32>(scores[at], scores[PLANE + at], scores[2u * PLANE + at], scores[3u * PLANE + at]);
                }
                // The result of a query that may see no keys is zero.
                let weight = lane_values[r * LANES];
                store(head, first + r, i % E4, select(vec4<f32>(0.0), total / weight, weight > 0.0));
            }
        }
        workgroupBarrier();
    }
}
