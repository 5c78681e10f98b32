// Attention of few queries over many keys: PARTS workgroups take tiles of keys in turn, and each keeps the maxima, sums and
// weighted values of BLOCK queries that share their keys (as attention.wgsl does for all keys); attention_merge.wgsl joins
// them ("flash decoding"). LANES invocations share the product of a query and a key, so that they read a key side by side.
// Picked where queries are too few to occupy the device.
//
// Which part a key belongs to follows from its position alone, so that a query's sums are added in the same order however
// many queries and keys there are.
//
// Replaced: the knobs, the sizes and the hooks. The loads return zero past the head sizes.

const THREADS = 64u;
const BLOCK = 2u;
const PARTS = 4u;
/// Invocations of a product; keys of a step.
const LANES = 8u;
const TILE = THREADS / LANES;
/// Head sizes of queries and values in groups of four.
const D4 = 2u;
const E4 = 2u;
const SPLIT = THREADS / E4;
/// Queries whose sums are joined at once.
const ROUND = 1u;
const PLANE = ROUND * THREADS;
/// Invocations that look for the maximum of a query.
const LOOKS = 4u;
fn scale() -> f32 { return 0.5; }
const_assert THREADS % LANES == 0u && TILE % LOOKS == 0u && BLOCK * LOOKS <= THREADS && E4 <= THREADS;
const LOWEST = -3.4028234e38;

@group(0) @binding(0) var<storage, read> queries: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> keys: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> values: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> partial: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> stats: array<vec2<f32>>;

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
/// What a part of the keys gives query `at`: weighted values, and their maximum and sum.
fn keep(at: u32, e4: u32, v: vec4<f32>) { partial[at * E4 + e4] = v; }
fn keep_stats(at: u32, v: vec2<f32>) { stats[at] = v; }

var<workgroup> query: array<vec4<f32>, BLOCK * D4>;
/// Sums of the lanes of a product, and in the end the weighted values of ROUND queries, lane by lane, and their weights.
var<workgroup> cells: array<f32, max(BLOCK * THREADS, PLANE * 5u)>;
var<workgroup> scores: array<f32, BLOCK * TILE>;
var<workgroup> tops: array<f32, BLOCK * LOOKS>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let head = group.y;
    let first = group.z * BLOCK;
    let last = min(first + BLOCK, rows()) - 1u;
    // Short texts are few parts.
    if (group.x * TILE < size_t()) {
        for (var i = local; i < BLOCK * D4; i += THREADS) {
            let row = first + i / D4;
            var v = vec4<f32>(0.0);
            if (row <= last) { v = load_q(head, row, i % D4) * scale(); }
            query[i] = v;
        }
        workgroupBarrier();
        let hidden = bitcast<f32>(0xff800000u);
        let lane = local % LANES;
        let own = local / LANES;
        let column = local % E4;
        let part = local / E4;
        var top: array<f32, BLOCK>;
        var sum: array<f32, BLOCK>;
        var acc: array<vec4<f32>, BLOCK>;
        // unroll
        for (var r = 0u; r < BLOCK; r++) {
            top[r] = LOWEST;
            sum[r] = 0.0;
            acc[r] = vec4<f32>(0.0);
        }
        // The last query of the block sees the latest keys, the first one the earliest.
        let end = visible(last);
        let skipped = (earliest(first) / TILE + PARTS - 1u - group.x) / PARTS;
        for (var base = (skipped * PARTS + group.x) * TILE; base < end; base += PARTS * TILE) {
            var dots: array<f32, BLOCK>;
            // unroll
            for (var r = 0u; r < BLOCK; r++) { dots[r] = 0.0; }
            if (base + own < end) {
                // unroll
                for (var i = 0u; i < (D4 + LANES - 1u) / LANES; i++) {
                    let d4 = lane + i * LANES;
                    if (d4 < D4) {
                        let k = load_k(head, base + own, d4);
                        // unroll
                        for (var r = 0u; r < BLOCK; r++) { dots[r] += dot(query[r * D4 + d4], k); }
                    }
                }
            }
            // unroll
            for (var r = 0u; r < BLOCK; r++) { cells[r * THREADS + local] = dots[r]; }
            workgroupBarrier();
            for (var i = local; i < BLOCK * TILE; i += THREADS) {
                let row = first + i / TILE;
                let key = base + i % TILE;
                var score = hidden;
                if (row <= last && key < end) {
                    if (key >= earliest(row) && key < visible(row)) {
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
            if (local < BLOCK * LOOKS) {
                var higher = LOWEST;
                let at = local / LOOKS * TILE + local % LOOKS;
                for (var i = 0u; i < TILE; i += LOOKS) { higher = max(higher, scores[at + i]); }
                tops[local] = higher;
            }
            workgroupBarrier();
            // unroll
            for (var r = 0u; r < BLOCK; r++) {
                var higher = top[r];
                // unroll
                for (var i = 0u; i < LOOKS; i++) { higher = max(higher, tops[r * LOOKS + i]); }
                let factor = exp(top[r] - higher);
                top[r] = higher;
                acc[r] *= factor;
                sum[r] *= factor;
            }
            if (part < SPLIT) {
                for (var at = part; at < min(TILE, end - base); at += SPLIT) {
                    let v = load_v(head, base + at, column);
                    // unroll
                    for (var r = 0u; r < BLOCK; r++) {
                        let weight = exp(scores[r * TILE + at] - top[r]);
                        acc[r] += weight * v;
                        sum[r] += weight;
                    }
                }
            }
        }
        // unroll
        for (var start = 0u; start < BLOCK; start += ROUND) {
            workgroupBarrier();
            // unroll
            for (var i = 0u; i < ROUND; i++) {
                let at = i * THREADS + local;
                cells[at] = acc[start + i].x;
                cells[PLANE + at] = acc[start + i].y;
                cells[2u * PLANE + at] = acc[start + i].z;
                cells[3u * PLANE + at] = acc[start + i].w;
                cells[4u * PLANE + at] = sum[start + i];
                if (local == i) { tops[i] = top[start + i]; }
            }
            workgroupBarrier();
            for (var i = local; i < ROUND * E4; i += THREADS) {
                let r = start + i / E4;
                if (first + r <= last) {
                    var total = vec4<f32>(0.0);
                    var weight = 0.0;
                    for (var p = 0u; p < SPLIT; p++) {
                        let at = i / E4 * THREADS + p * E4 + i % E4;
                        total += vec4<f32>(cells[at], cells[PLANE + at], cells[2u * PLANE + at], cells[3u * PLANE + at]);
                        weight += cells[4u * PLANE + at];
                    }
                    let at = (head * rows() + first + r) * PARTS + group.x;
                    keep(at, i % E4, total);
                    if (i % E4 == 0u) { keep_stats(at, vec2<f32>(tops[i / E4], weight)); }
                }
            }
        }
    }
}
