// @generated for attention/0 f32: attention_kv_split THREADS=64 QUERIES=2 KV_SPLIT=32
const THREADS = 64u;
const QUERIES = 2u;
const KV_SPLIT = 32u;
const LANES = 8u;
const TILE = THREADS / LANES;
const D4 = 16u;
const E4 = 16u;
const VALUE_SPLIT = THREADS / E4;
const SUMMED_QUERIES = 1u;
const PLANE = SUMMED_QUERIES * THREADS;
const MAX_LANES = 8u;
fn scale() -> f32 { return f32(0.125); }
const_assert THREADS % LANES == 0u && TILE % MAX_LANES == 0u && QUERIES * MAX_LANES <= THREADS && E4 <= THREADS;
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
fn store_partial(at: u32, e4: u32, v: vec4<f32>) { buffer_3[at * E4 + e4] = v; }
fn store_partial_stats(at: u32, v: vec2<f32>) { buffer_4[at] = v; }
var<workgroup> query: array<vec4<f32>, QUERIES * D4>;
var<workgroup> cells: array<f32, max(QUERIES * THREADS, PLANE * 5u)>;
var<workgroup> scores: array<f32, QUERIES * TILE>;
var<workgroup> lane_max: array<f32, QUERIES * MAX_LANES>;
@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let head = group.y;
    let first = group.z * QUERIES;
    let last = min(first + QUERIES, rows()) - 1u;
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
        {
            row_max[0u] = LOWEST;
            sum[0u] = 0.0;
            acc[0u] = vec4<f32>(0.0);
        }
{
            row_max[1u] = LOWEST;
            sum[1u] = 0.0;
            acc[1u] = vec4<f32>(0.0);
        }
        let end = visible_end(last);
        let skipped_tiles = (visible_start(first) / TILE + KV_SPLIT - 1u - group.x) / KV_SPLIT;
        for (var base = (skipped_tiles * KV_SPLIT + group.x) * TILE; base < end; base += KV_SPLIT * TILE) {
            var dots: array<f32, QUERIES>;
            { dots[0u] = 0.0; }
{ dots[1u] = 0.0; }
            if (base + tile_key < end) {
                {
                    let d4 = lane + 0u * LANES;
                    if (d4 < D4) {
                        let k = load_k(head, base + tile_key, d4);
                        { dots[0u] += dot(query[0u * D4 + d4], k); }
{ dots[1u] += dot(query[1u * D4 + d4], k); }
                    }
                }
{
                    let d4 = lane + 1u * LANES;
                    if (d4 < D4) {
                        let k = load_k(head, base + tile_key, d4);
                        { dots[0u] += dot(query[0u * D4 + d4], k); }
{ dots[1u] += dot(query[1u * D4 + d4], k); }
                    }
                }
            }
            { cells[0u * THREADS + local] = dots[0u]; }
{ cells[1u * THREADS + local] = dots[1u]; }
            workgroupBarrier();
            for (var i = local; i < QUERIES * TILE; i += THREADS) {
                let row = first + i / TILE;
                let key = base + i % TILE;
                var score = minus_infinity;
                if (row <= last && key < end) {
                    if (key >= visible_start(row) && key < visible_end(row)) {
                        score = 0.0;
                        {
                            score += cells[i / TILE * THREADS + i % TILE * LANES + 0u];
                        }
{
                            score += cells[i / TILE * THREADS + i % TILE * LANES + 1u];
                        }
{
                            score += cells[i / TILE * THREADS + i % TILE * LANES + 2u];
                        }
{
                            score += cells[i / TILE * THREADS + i % TILE * LANES + 3u];
                        }
{
                            score += cells[i / TILE * THREADS + i % TILE * LANES + 4u];
                        }
{
                            score += cells[i / TILE * THREADS + i % TILE * LANES + 5u];
                        }
{
                            score += cells[i / TILE * THREADS + i % TILE * LANES + 6u];
                        }
{
                            score += cells[i / TILE * THREADS + i % TILE * LANES + 7u];
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
            {
                var new_max = row_max[0u];
                { new_max = max(new_max, lane_max[0u * MAX_LANES + 0u]); }
{ new_max = max(new_max, lane_max[0u * MAX_LANES + 1u]); }
{ new_max = max(new_max, lane_max[0u * MAX_LANES + 2u]); }
{ new_max = max(new_max, lane_max[0u * MAX_LANES + 3u]); }
{ new_max = max(new_max, lane_max[0u * MAX_LANES + 4u]); }
{ new_max = max(new_max, lane_max[0u * MAX_LANES + 5u]); }
{ new_max = max(new_max, lane_max[0u * MAX_LANES + 6u]); }
{ new_max = max(new_max, lane_max[0u * MAX_LANES + 7u]); }
                let factor = exp(row_max[0u] - new_max);
                row_max[0u] = new_max;
                acc[0u] *= factor;
                sum[0u] *= factor;
            }
{
                var new_max = row_max[1u];
                { new_max = max(new_max, lane_max[1u * MAX_LANES + 0u]); }
{ new_max = max(new_max, lane_max[1u * MAX_LANES + 1u]); }
{ new_max = max(new_max, lane_max[1u * MAX_LANES + 2u]); }
{ new_max = max(new_max, lane_max[1u * MAX_LANES + 3u]); }
{ new_max = max(new_max, lane_max[1u * MAX_LANES + 4u]); }
{ new_max = max(new_max, lane_max[1u * MAX_LANES + 5u]); }
{ new_max = max(new_max, lane_max[1u * MAX_LANES + 6u]); }
{ new_max = max(new_max, lane_max[1u * MAX_LANES + 7u]); }
                let factor = exp(row_max[1u] - new_max);
                row_max[1u] = new_max;
                acc[1u] *= factor;
                sum[1u] *= factor;
            }
            if (value_part < VALUE_SPLIT) {
                for (var at = value_part; at < min(TILE, end - base); at += VALUE_SPLIT) {
                    let v = load_v(head, base + at, column);
                    {
                        let weight = exp(scores[0u * TILE + at] - row_max[0u]);
                        acc[0u] += weight * v;
                        sum[0u] += weight;
                    }
{
                        let weight = exp(scores[1u * TILE + at] - row_max[1u]);
                        acc[1u] += weight * v;
                        sum[1u] += weight;
                    }
                }
            }
        }
        {
            workgroupBarrier();
            {
                let at = 0u * THREADS + local;
                cells[at] = acc[0u + 0u].x;
                cells[PLANE + at] = acc[0u + 0u].y;
                cells[2u * PLANE + at] = acc[0u + 0u].z;
                cells[3u * PLANE + at] = acc[0u + 0u].w;
                cells[4u * PLANE + at] = sum[0u + 0u];
                if (local == 0u) { lane_max[0u] = row_max[0u + 0u]; }
            }
            workgroupBarrier();
            for (var i = local; i < SUMMED_QUERIES * E4; i += THREADS) {
                let r = 0u + i / E4;
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
{
            workgroupBarrier();
            {
                let at = 0u * THREADS + local;
                cells[at] = acc[1u + 0u].x;
                cells[PLANE + at] = acc[1u + 0u].y;
                cells[2u * PLANE + at] = acc[1u + 0u].z;
                cells[3u * PLANE + at] = acc[1u + 0u].w;
                cells[4u * PLANE + at] = sum[1u + 0u];
                if (local == 0u) { lane_max[0u] = row_max[1u + 0u]; }
            }
            workgroupBarrier();
            for (var i = local; i < SUMMED_QUERIES * E4; i += THREADS) {
                let r = 1u + i / E4;
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
@group(0) @binding(0) var<storage, read> buffer_0: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> buffer_1: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> buffer_2: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> buffer_3: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> buffer_4: array<vec2<f32>>;

const THREADS = 128u;
const KV_SPLIT = 32u;
const TILE = 8u;
const E4 = 16u;
const COLUMN_SPLIT = THREADS / E4;
const_assert KV_SPLIT <= THREADS && E4 <= THREADS;
const LOWEST = -3.4028234e38;
fn rows() -> u32 { return 37u; }
fn size_t() -> u32 { return 150u; }
fn load_partial(at: u32, e4: u32) -> vec4<f32> { return buffer_0[at * E4 + e4]; }
fn load_partial_stats(at: u32) -> vec2<f32> { return buffer_1[at]; }
fn store(head: u32, row: u32, e4: u32, v: vec4<f32>) {
    let b = head / 3u;
    let hk = head % 3u;
    let h = hk * 1u + row % 1u;
    let s = row / 1u;
    var w = vec4<f32>(v);
    buffer_2[(b) * 1776u + (h) * 592u + (s) * 16u + (e4)] = w;
}
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
        var stat = vec2<f32>(LOWEST, 0.0);
        if (local < count) { stat = load_partial_stats(query * KV_SPLIT + local); }
        split_stats[local] = stat;
    }
    var loaded: array<vec4<f32>, (KV_SPLIT + COLUMN_SPLIT - 1u) / COLUMN_SPLIT>;
    {
        let p = column_part + 0u * COLUMN_SPLIT;
        loaded[0u] = vec4<f32>(0.0);
        if (p < count && column_part < COLUMN_SPLIT) { loaded[0u] = load_partial(query * KV_SPLIT + p, column); }
    }
{
        let p = column_part + 1u * COLUMN_SPLIT;
        loaded[1u] = vec4<f32>(0.0);
        if (p < count && column_part < COLUMN_SPLIT) { loaded[1u] = load_partial(query * KV_SPLIT + p, column); }
    }
{
        let p = column_part + 2u * COLUMN_SPLIT;
        loaded[2u] = vec4<f32>(0.0);
        if (p < count && column_part < COLUMN_SPLIT) { loaded[2u] = load_partial(query * KV_SPLIT + p, column); }
    }
{
        let p = column_part + 3u * COLUMN_SPLIT;
        loaded[3u] = vec4<f32>(0.0);
        if (p < count && column_part < COLUMN_SPLIT) { loaded[3u] = load_partial(query * KV_SPLIT + p, column); }
    }
    workgroupBarrier();
    var row_max = LOWEST;
    { row_max = max(row_max, split_stats[0u].x); }
{ row_max = max(row_max, split_stats[1u].x); }
{ row_max = max(row_max, split_stats[2u].x); }
{ row_max = max(row_max, split_stats[3u].x); }
{ row_max = max(row_max, split_stats[4u].x); }
{ row_max = max(row_max, split_stats[5u].x); }
{ row_max = max(row_max, split_stats[6u].x); }
{ row_max = max(row_max, split_stats[7u].x); }
{ row_max = max(row_max, split_stats[8u].x); }
{ row_max = max(row_max, split_stats[9u].x); }
{ row_max = max(row_max, split_stats[10u].x); }
{ row_max = max(row_max, split_stats[11u].x); }
{ row_max = max(row_max, split_stats[12u].x); }
{ row_max = max(row_max, split_stats[13u].x); }
{ row_max = max(row_max, split_stats[14u].x); }
{ row_max = max(row_max, split_stats[15u].x); }
{ row_max = max(row_max, split_stats[16u].x); }
{ row_max = max(row_max, split_stats[17u].x); }
{ row_max = max(row_max, split_stats[18u].x); }
{ row_max = max(row_max, split_stats[19u].x); }
{ row_max = max(row_max, split_stats[20u].x); }
{ row_max = max(row_max, split_stats[21u].x); }
{ row_max = max(row_max, split_stats[22u].x); }
{ row_max = max(row_max, split_stats[23u].x); }
{ row_max = max(row_max, split_stats[24u].x); }
{ row_max = max(row_max, split_stats[25u].x); }
{ row_max = max(row_max, split_stats[26u].x); }
{ row_max = max(row_max, split_stats[27u].x); }
{ row_max = max(row_max, split_stats[28u].x); }
{ row_max = max(row_max, split_stats[29u].x); }
{ row_max = max(row_max, split_stats[30u].x); }
{ row_max = max(row_max, split_stats[31u].x); }
    var total = vec4<f32>(0.0);
    var weight = 0.0;
    {
        let p = column_part + 0u * COLUMN_SPLIT;
        if (p < KV_SPLIT && column_part < COLUMN_SPLIT) {
            let factor = exp(split_stats[p].x - row_max);
            total += factor * loaded[0u];
            weight += factor * split_stats[p].y;
        }
    }
{
        let p = column_part + 1u * COLUMN_SPLIT;
        if (p < KV_SPLIT && column_part < COLUMN_SPLIT) {
            let factor = exp(split_stats[p].x - row_max);
            total += factor * loaded[1u];
            weight += factor * split_stats[p].y;
        }
    }
{
        let p = column_part + 2u * COLUMN_SPLIT;
        if (p < KV_SPLIT && column_part < COLUMN_SPLIT) {
            let factor = exp(split_stats[p].x - row_max);
            total += factor * loaded[2u];
            weight += factor * split_stats[p].y;
        }
    }
{
        let p = column_part + 3u * COLUMN_SPLIT;
        if (p < KV_SPLIT && column_part < COLUMN_SPLIT) {
            let factor = exp(split_stats[p].x - row_max);
            total += factor * loaded[3u];
            weight += factor * split_stats[p].y;
        }
    }
    sums[local] = total;
    weights[local] = weight;
    workgroupBarrier();
    if (column_part == 0u) {
        {
            total += sums[1u * E4 + column];
            weight += weights[1u * E4 + column];
        }
{
            total += sums[2u * E4 + column];
            weight += weights[2u * E4 + column];
        }
{
            total += sums[3u * E4 + column];
            weight += weights[3u * E4 + column];
        }
{
            total += sums[4u * E4 + column];
            weight += weights[4u * E4 + column];
        }
{
            total += sums[5u * E4 + column];
            weight += weights[5u * E4 + column];
        }
{
            total += sums[6u * E4 + column];
            weight += weights[6u * E4 + column];
        }
{
            total += sums[7u * E4 + column];
            weight += weights[7u * E4 + column];
        }
        let v = select(vec4<f32>(0.0), total / weight, weight > 0.0);
        store(group.y, group.x, column, v);
    }
}
@group(0) @binding(0) var<storage, read> buffer_0: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> buffer_1: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read_write> buffer_2: array<vec4<f32>>;
