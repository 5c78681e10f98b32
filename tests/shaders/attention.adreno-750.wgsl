// @generated for attention/0 f32: attention THREADS=256 QUERIES=8 KEYS=1
const THREADS = 256u;
const QUERIES = 8u;
const KEYS = 1u;
const TILE = THREADS * KEYS;
const SUMMED_QUERIES = 2u;
const PLANE = SUMMED_QUERIES * THREADS;
const D4 = 16u;
const E4 = 16u;
const VALUE_SPLIT = THREADS / E4;
const LANES = THREADS / QUERIES;
fn scale() -> f32 { return f32(0.125); }
const_assert THREADS % QUERIES == 0u && (LANES & (LANES - 1u)) == 0u && E4 <= THREADS;
const LOWEST = -3.4028234e38;
fn rows() -> u32 { return 37u; }
fn size_t() -> u32 { return 150u; }
fn visible_end(row: u32) -> u32 { return size_t(); }
fn visible_start(row: u32) -> u32 { return 0u; }
fn load_q(head: u32, row: u32, d4: u32) -> vec4<f32> {
    let b = head / 3u;
    let hk = head % 3u;
    let h = hk * 1u + row % 1u;
    let s = row / 1u;
    return vec4<f32>(buffer_0[(b) * 1776u + (h) * 592u + (s) * 16u + (d4)]);
}
fn load_k(head: u32, key: u32, d4: u32) -> vec4<f32> {
    let b = head / 3u;
    let hk = head % 3u;
    return vec4<f32>(buffer_1[(b) * 7200u + (hk) * 2400u + (key) * 16u + (d4)]);
}
fn load_v(head: u32, key: u32, e4: u32) -> vec4<f32> {
    let b = head / 3u;
    let hk = head % 3u;
    return vec4<f32>(buffer_2[(b) * 7200u + (hk) * 2400u + (key) * 16u + (e4)]);
}
fn capped(score: f32) -> f32 { return score; }
fn mask(head: u32, row: u32, key: u32) -> f32 { return 0.0; }
fn store(head: u32, row: u32, e4: u32, v: vec4<f32>) {
    let b = head / 3u;
    let hk = head % 3u;
    let h = hk * 1u + row % 1u;
    let s = row / 1u;
    var w = vec4<f32>(v);
    buffer_3[(b) * 1776u + (h) * 592u + (s) * 16u + (e4)] = w;
}
var<workgroup> query: array<vec4<f32>, QUERIES * D4>;
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
    { acc[0u] = vec4<f32>(0.0); }
{ acc[1u] = vec4<f32>(0.0); }
{ acc[2u] = vec4<f32>(0.0); }
{ acc[3u] = vec4<f32>(0.0); }
{ acc[4u] = vec4<f32>(0.0); }
{ acc[5u] = vec4<f32>(0.0); }
{ acc[6u] = vec4<f32>(0.0); }
{ acc[7u] = vec4<f32>(0.0); }
    let end = visible_end(last);
    for (var base = visible_start(first) / TILE * TILE; base < end; base += TILE) {
        for (var at = local; at < TILE; at += THREADS) {
            let key = base + at;
            var dots: array<f32, QUERIES>;
            { dots[0u] = 0.0; }
{ dots[1u] = 0.0; }
{ dots[2u] = 0.0; }
{ dots[3u] = 0.0; }
{ dots[4u] = 0.0; }
{ dots[5u] = 0.0; }
{ dots[6u] = 0.0; }
{ dots[7u] = 0.0; }
            if (key < end) {
                for (var d4 = 0u; d4 < D4; d4++) {
                    let k = load_k(head, key, d4);
                    { dots[0u] += dot(query[0u * D4 + d4], k); }
{ dots[1u] += dot(query[1u * D4 + d4], k); }
{ dots[2u] += dot(query[2u * D4 + d4], k); }
{ dots[3u] += dot(query[3u * D4 + d4], k); }
{ dots[4u] += dot(query[4u * D4 + d4], k); }
{ dots[5u] += dot(query[5u * D4 + d4], k); }
{ dots[6u] += dot(query[6u * D4 + d4], k); }
{ dots[7u] += dot(query[7u * D4 + d4], k); }
                }
            }
            {
                var score = minus_infinity;
                if (first + 0u <= last) {
                    if (key >= visible_start(first + 0u) && key < visible_end(first + 0u)) {
                        score = capped(dots[0u]) + mask(head, first + 0u, key);
                    }
                }
                scores[0u * TILE + at] = score;
            }
{
                var score = minus_infinity;
                if (first + 1u <= last) {
                    if (key >= visible_start(first + 1u) && key < visible_end(first + 1u)) {
                        score = capped(dots[1u]) + mask(head, first + 1u, key);
                    }
                }
                scores[1u * TILE + at] = score;
            }
{
                var score = minus_infinity;
                if (first + 2u <= last) {
                    if (key >= visible_start(first + 2u) && key < visible_end(first + 2u)) {
                        score = capped(dots[2u]) + mask(head, first + 2u, key);
                    }
                }
                scores[2u * TILE + at] = score;
            }
{
                var score = minus_infinity;
                if (first + 3u <= last) {
                    if (key >= visible_start(first + 3u) && key < visible_end(first + 3u)) {
                        score = capped(dots[3u]) + mask(head, first + 3u, key);
                    }
                }
                scores[3u * TILE + at] = score;
            }
{
                var score = minus_infinity;
                if (first + 4u <= last) {
                    if (key >= visible_start(first + 4u) && key < visible_end(first + 4u)) {
                        score = capped(dots[4u]) + mask(head, first + 4u, key);
                    }
                }
                scores[4u * TILE + at] = score;
            }
{
                var score = minus_infinity;
                if (first + 5u <= last) {
                    if (key >= visible_start(first + 5u) && key < visible_end(first + 5u)) {
                        score = capped(dots[5u]) + mask(head, first + 5u, key);
                    }
                }
                scores[5u * TILE + at] = score;
            }
{
                var score = minus_infinity;
                if (first + 6u <= last) {
                    if (key >= visible_start(first + 6u) && key < visible_end(first + 6u)) {
                        score = capped(dots[6u]) + mask(head, first + 6u, key);
                    }
                }
                scores[6u * TILE + at] = score;
            }
{
                var score = minus_infinity;
                if (first + 7u <= last) {
                    if (key >= visible_start(first + 7u) && key < visible_end(first + 7u)) {
                        score = capped(dots[7u]) + mask(head, first + 7u, key);
                    }
                }
                scores[7u * TILE + at] = score;
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
            { acc[0u] *= rescale[0u]; }
{ acc[1u] *= rescale[1u]; }
{ acc[2u] *= rescale[2u]; }
{ acc[3u] *= rescale[3u]; }
{ acc[4u] *= rescale[4u]; }
{ acc[5u] *= rescale[5u]; }
{ acc[6u] *= rescale[6u]; }
{ acc[7u] *= rescale[7u]; }
            for (var at = value_part; at < min(TILE, end - base); at += VALUE_SPLIT) {
                let v = load_v(head, base + at, column);
                { acc[0u] += scores[0u * TILE + at] * v; }
{ acc[1u] += scores[1u * TILE + at] * v; }
{ acc[2u] += scores[2u * TILE + at] * v; }
{ acc[3u] += scores[3u * TILE + at] * v; }
{ acc[4u] += scores[4u * TILE + at] * v; }
{ acc[5u] += scores[5u * TILE + at] * v; }
{ acc[6u] += scores[6u * TILE + at] * v; }
{ acc[7u] += scores[7u * TILE + at] * v; }
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
    {
        {
            let at = 0u * THREADS + local;
            scores[at] = acc[0u + 0u].x;
            scores[PLANE + at] = acc[0u + 0u].y;
            scores[2u * PLANE + at] = acc[0u + 0u].z;
            scores[3u * PLANE + at] = acc[0u + 0u].w;
        }
{
            let at = 1u * THREADS + local;
            scores[at] = acc[0u + 1u].x;
            scores[PLANE + at] = acc[0u + 1u].y;
            scores[2u * PLANE + at] = acc[0u + 1u].z;
            scores[3u * PLANE + at] = acc[0u + 1u].w;
        }
        workgroupBarrier();
        for (var i = local; i < SUMMED_QUERIES * E4; i += THREADS) {
            let r = 0u + i / E4;
            if (first + r <= last) {
                var total = vec4<f32>(0.0);
                for (var p = 0u; p < VALUE_SPLIT; p++) {
                    let at = i / E4 * THREADS + p * E4 + i % E4;
                    total += vec4<f32>(scores[at], scores[PLANE + at], scores[2u * PLANE + at], scores[3u * PLANE + at]);
                }
                let weight = lane_values[r * LANES];
                store(head, first + r, i % E4, select(vec4<f32>(0.0), total / weight, weight > 0.0));
            }
        }
        workgroupBarrier();
    }
{
        {
            let at = 0u * THREADS + local;
            scores[at] = acc[2u + 0u].x;
            scores[PLANE + at] = acc[2u + 0u].y;
            scores[2u * PLANE + at] = acc[2u + 0u].z;
            scores[3u * PLANE + at] = acc[2u + 0u].w;
        }
{
            let at = 1u * THREADS + local;
            scores[at] = acc[2u + 1u].x;
            scores[PLANE + at] = acc[2u + 1u].y;
            scores[2u * PLANE + at] = acc[2u + 1u].z;
            scores[3u * PLANE + at] = acc[2u + 1u].w;
        }
        workgroupBarrier();
        for (var i = local; i < SUMMED_QUERIES * E4; i += THREADS) {
            let r = 2u + i / E4;
            if (first + r <= last) {
                var total = vec4<f32>(0.0);
                for (var p = 0u; p < VALUE_SPLIT; p++) {
                    let at = i / E4 * THREADS + p * E4 + i % E4;
                    total += vec4<f32>(scores[at], scores[PLANE + at], scores[2u * PLANE + at], scores[3u * PLANE + at]);
                }
                let weight = lane_values[r * LANES];
                store(head, first + r, i % E4, select(vec4<f32>(0.0), total / weight, weight > 0.0));
            }
        }
        workgroupBarrier();
    }
{
        {
            let at = 0u * THREADS + local;
            scores[at] = acc[4u + 0u].x;
            scores[PLANE + at] = acc[4u + 0u].y;
            scores[2u * PLANE + at] = acc[4u + 0u].z;
            scores[3u * PLANE + at] = acc[4u + 0u].w;
        }
{
            let at = 1u * THREADS + local;
            scores[at] = acc[4u + 1u].x;
            scores[PLANE + at] = acc[4u + 1u].y;
            scores[2u * PLANE + at] = acc[4u + 1u].z;
            scores[3u * PLANE + at] = acc[4u + 1u].w;
        }
        workgroupBarrier();
        for (var i = local; i < SUMMED_QUERIES * E4; i += THREADS) {
            let r = 4u + i / E4;
            if (first + r <= last) {
                var total = vec4<f32>(0.0);
                for (var p = 0u; p < VALUE_SPLIT; p++) {
                    let at = i / E4 * THREADS + p * E4 + i % E4;
                    total += vec4<f32>(scores[at], scores[PLANE + at], scores[2u * PLANE + at], scores[3u * PLANE + at]);
                }
                let weight = lane_values[r * LANES];
                store(head, first + r, i % E4, select(vec4<f32>(0.0), total / weight, weight > 0.0));
            }
        }
        workgroupBarrier();
    }
{
        {
            let at = 0u * THREADS + local;
            scores[at] = acc[6u + 0u].x;
            scores[PLANE + at] = acc[6u + 0u].y;
            scores[2u * PLANE + at] = acc[6u + 0u].z;
            scores[3u * PLANE + at] = acc[6u + 0u].w;
        }
{
            let at = 1u * THREADS + local;
            scores[at] = acc[6u + 1u].x;
            scores[PLANE + at] = acc[6u + 1u].y;
            scores[2u * PLANE + at] = acc[6u + 1u].z;
            scores[3u * PLANE + at] = acc[6u + 1u].w;
        }
        workgroupBarrier();
        for (var i = local; i < SUMMED_QUERIES * E4; i += THREADS) {
            let r = 6u + i / E4;
            if (first + r <= last) {
                var total = vec4<f32>(0.0);
                for (var p = 0u; p < VALUE_SPLIT; p++) {
                    let at = i / E4 * THREADS + p * E4 + i % E4;
                    total += vec4<f32>(scores[at], scores[PLANE + at], scores[2u * PLANE + at], scores[3u * PLANE + at]);
                }
                let weight = lane_values[r * LANES];
                store(head, first + r, i % E4, select(vec4<f32>(0.0), total / weight, weight > 0.0));
            }
        }
        workgroupBarrier();
    }
}
@group(0) @binding(0) var<storage, read> buffer_0: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> buffer_1: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> buffer_2: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> buffer_3: array<vec4<f32>>;
