// Attention of few queries over many keys, with the keys split among workgroups (flash decoding). Tile t of the keys
// belongs to workgroup t % KV_SPLIT. Like attention.wgsl, each workgroup keeps the maximum score, the sum of weights
// and the sum of weighted values of QUERIES queries of one key head. attention_merge.wgsl merges the results of all
// workgroups. LANES neighboring invocations compute the dot product of a query and a key, so that they read contiguous
// vec4s. The kernel is for queries that are too few to occupy the device.
//
// The workgroup that a key belongs to depends only on the key's position. The order of additions in a query's sums is
// therefore independent of the number of queries and keys.
//
// The compiler replaces the knobs, the sizes and the hooks. The hooks that load queries, keys and values return zero
// past the head size.

const THREADS = 64u;
const QUERIES = 2u;
const KV_SPLIT = 4u;
/// Number of invocations that compute the dot product of a query and a key together.
const LANES = 8u;
/// Number of keys per step of the loop over keys.
const TILE = THREADS / LANES;
/// Head size of queries and keys, in vec4s.
const D4 = 2u;
/// Head size of values, in vec4s.
const E4 = 2u;
const VALUE_SPLIT = THREADS / E4;
/// Number of queries whose partial sums of weighted values are added at once, after the loop over keys.
const SUMMED_QUERIES = 1u;
const PLANE = SUMMED_QUERIES * THREADS;
/// Number of invocations that compute the maximum score of one query together.
const MAX_LANES = 4u;
fn scale() -> f32 { return 0.5; }
const_assert THREADS % LANES == 0u && TILE % MAX_LANES == 0u && QUERIES * MAX_LANES <= THREADS && E4 <= THREADS;
const LOWEST = -3.4028234e38;

@group(0) @binding(0) var<storage, read> queries: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> keys: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> values: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> partial: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> stats: array<vec2<f32>>;

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
/// Stores four elements of a query's sum of weighted values over the keys of one KV split.
fn store_partial(at: u32, e4: u32, v: vec4<f32>) { partial[at * E4 + e4] = v; }
/// Stores a query's maximum score and its sum of softmax weights over the keys of one KV split.
fn store_partial_stats(at: u32, v: vec2<f32>) { stats[at] = v; }

var<workgroup> query: array<vec4<f32>, QUERIES * D4>;
/// Partial dot products of queries and keys. After the loop over keys: partial sums of weighted values of
/// SUMMED_QUERIES queries, with one range of the array per vec4 component, and partial sums of weights.
var<workgroup> cells: array<f32, max(QUERIES * THREADS, PLANE * 5u)>;
var<workgroup> scores: array<f32, QUERIES * TILE>;
var<workgroup> lane_max: array<f32, QUERIES * MAX_LANES>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let head = group.y;
    let first = group.z * QUERIES;
    let last = min(first + QUERIES, rows()) - 1u;
    // If there are few keys, some workgroups have no keys and do nothing.
    if (group.x * TILE < size_t()) {
        for (var i = local; i < QUERIES * D4; i += THREADS) {
            let row = first + i / D4;
            var v = vec4<f32>(0.0);
            if (row <= last) { v = load_q(head, row, i % D4) * scale(); }
            query[i] = v;
        }
        workgroupBarrier();
        let minus_infinity = bitcast<f32>(0xff800000u);
        let lane = local % LANES;
        let tile_key = local / LANES;
        let column = local % E4;
        let value_part = local / E4;
        var row_max: array<f32, QUERIES>;
        var sum: array<f32, QUERIES>;
        var acc: array<vec4<f32>, QUERIES>;
        // unroll
        for (var r = 0u; r < QUERIES; r++) {
            row_max[r] = LOWEST;
            sum[r] = 0.0;
            acc[r] = vec4<f32>(0.0);
        }
        // The last query of the workgroup sees the latest keys, and the first query sees the earliest keys.
        let end = visible_end(last);
        let skipped_tiles = (visible_start(first) / TILE + KV_SPLIT - 1u - group.x) / KV_SPLIT;
        for (var base = (skipped_tiles * KV_SPLIT + group.x) * TILE; base < end; base += KV_SPLIT * TILE) {
            var dots: array<f32, QUERIES>;
            // unroll
            for (var r = 0u; r < QUERIES; r++) { dots[r] = 0.0; }
            if (base + tile_key < end) {
                // unroll
                for (var i = 0u; i < (D4 + LANES - 1u) / LANES; i++) {
                    let d4 = lane + i * LANES;
                    if (d4 < D4) {
                        let k = load_k(head, base + tile_key, d4);
                        // unroll
                        for (var r = 0u; r < QUERIES; r++) { dots[r] += dot(query[r * D4 + d4], k); }
                    }
                }
            }
            // unroll
            for (var r = 0u; r < QUERIES; r++) { cells[r * THREADS + local] = dots[r]; }
            workgroupBarrier();
            for (var i = local; i < QUERIES * TILE; i += THREADS) {
                let row = first + i / TILE;
                let key = base + i % TILE;
                var score = minus_infinity;
                if (row <= last && key < end) {
                    if (key >= visible_start(row) && key < visible_end(row)) {
                        score = 0.0;
                        // unroll
                        for (var j = 0u; j < LANES; j++) {
                            score += cells[i / TILE * THREADS + i % TILE * LANES + j];
                        }
                        score = capped(score) + mask(head, row, key);
                    }
                }
                scores[i] = score;
            }
            workgroupBarrier();
            if (local < QUERIES * MAX_LANES) {
                var new_max = LOWEST;
                let at = local / MAX_LANES * TILE + local % MAX_LANES;
                for (var i = 0u; i < TILE; i += MAX_LANES) { new_max = max(new_max, scores[at + i]); }
                lane_max[local] = new_max;
            }
            workgroupBarrier();
            // unroll
            for (var r = 0u; r < QUERIES; r++) {
                var new_max = row_max[r];
                // unroll
                for (var i = 0u; i < MAX_LANES; i++) { new_max = max(new_max, lane_max[r * MAX_LANES + i]); }
                let factor = exp(row_max[r] - new_max);
                row_max[r] = new_max;
                acc[r] *= factor;
                sum[r] *= factor;
            }
            if (value_part < VALUE_SPLIT) {
                for (var at = value_part; at < min(TILE, end - base); at += VALUE_SPLIT) {
                    let v = load_v(head, base + at, column);
                    // unroll
                    for (var r = 0u; r < QUERIES; r++) {
                        let weight = exp(scores[r * TILE + at] - row_max[r]);
                        acc[r] += weight * v;
                        sum[r] += weight;
                    }
                }
            }
        }
        // unroll
        for (var start = 0u; start < QUERIES; start += SUMMED_QUERIES) {
            workgroupBarrier();
            // unroll
            for (var i = 0u; i < SUMMED_QUERIES; i++) {
                let at = i * THREADS + local;
                cells[at] = acc[start + i].x;
                cells[PLANE + at] = acc[start + i].y;
                cells[2u * PLANE + at] = acc[start + i].z;
                cells[3u * PLANE + at] = acc[start + i].w;
                cells[4u * PLANE + at] = sum[start + i];
                if (local == i) { lane_max[i] = row_max[start + i]; }
            }
            workgroupBarrier();
            for (var i = local; i < SUMMED_QUERIES * E4; i += THREADS) {
                let r = start + i / E4;
                if (first + r <= last) {
                    var total = vec4<f32>(0.0);
                    var weight = 0.0;
                    for (var p = 0u; p < VALUE_SPLIT; p++) {
                        let at = i / E4 * THREADS + p * E4 + i % E4;
                        total += vec4<f32>(cells[at], cells[PLANE + at], cells[2u * PLANE + at], cells[3u * PLANE + at]);
                        weight += cells[4u * PLANE + at];
                    }
                    let at = (head * rows() + first + r) * KV_SPLIT + group.x;
                    store_partial(at, i % E4, total);
                    if (i % E4 == 0u) { store_partial_stats(at, vec2<f32>(lane_max[i / E4], weight)); }
                }
            }
        }
    }
}
