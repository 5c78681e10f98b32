// Attention on matrix units, f16 inputs, f32 scores and sums: a workgroup takes the rows (queries of one key head, as in
// `attention.wgsl`) of SUBS subgroups, which walk over the keys SPAN at a time. Keys and values pass through workgroup
// memory, the next ones waiting in registers meanwhile. A subgroup multiplies its ROWS fragments of queries by the keys,
// passes the scores through a piece of memory of its own, where lanes turn them into weights, and multiplies those by
// the values; PER lanes share a row.
//
// Fragments cannot be scaled in registers. The maximum that weights are relative to is therefore raised only when it is
// exceeded by more than ROOM, which f16 leaves, so that the sums so far rarely have to be scaled in memory. Each row
// raises its own, so that no row's result depends on its neighbours.
//
// With PARTS above one that many workgroups take steps of keys in turn, and leave sums, their maxima and the sums of
// weights for attention_merge.wgsl.
//
// Replaced: the knobs, the matrix types, the sizes and the hooks. The loads return zero past the head sizes, eight f16
// as the bits of a vec4<f32>; see `coop.wgsl`.

enable wgpu_cooperative_matrix;

const LANES = 32u;
const SIDE_M = 16u;
const SIDE_N = 16u;
const SIDE_K = 16u;
alias MatrixA = coop_mat16x16<f32, A>;
alias MatrixB = coop_mat16x16<f32, B>;
alias MatrixC = coop_mat16x16<f32, C>;
const SUBS = 4u;
/// Fragments of rows that a subgroup owns, and of keys that it takes at a time.
const ROWS = 1u;
const KEYS = 4u;
/// Head sizes of queries in groups of eight, and of values in groups of eight and of four.
const D8 = 2u;
const E8 = 2u;
const E4 = 4u;
/// Fragments of head sizes.
const DEPTH = 1u;
const WIDE = 1u;
/// Fragments of values that pass through workgroup memory at once.
const HELD = 1u;
/// Parts of the keys.
const PARTS = 1u;
fn scale() -> f32 { return 0.5; }
/// What scores are multiplied by for powers of two.
const UNIT = 1.4426950408889634;
/// Whether a row may see fewer keys than a step has, and whether there is a mask.
const GUARDED = true;
const MASKED = false;
const ROOM = 8.0 / UNIT;
const LOWEST = -3.4028234e38;
const LN_2 = 0.6931471805599453;
const THREADS = SUBS * LANES;
const SPAN = KEYS * SIDE_N;
const PER = LANES / SIDE_M;
/// Groups of eight keys per lane.
const OWN = SPAN / 8u / PER;
const STEPS = SPAN / SIDE_K;
const S8 = SIDE_N / 8u;
const S4 = SIDE_N / 4u;
const K8 = SIDE_K / 8u;
const DEPTH8 = DEPTH * K8;
/// Rows in workgroup memory are padded by 16 bytes, which spreads them over its banks.
const ROW_K = DEPTH8 + 1u;
const ROW_V = WIDE * S8 + 1u;
const ROW_S = SPAN / 4u + 1u;
const SIZE_K = SPAN * ROW_K;
const SIZE_V = SPAN * ROW_V;
/// Vectors of a subgroup for scores, or for queries where those take more.
const SIZE_S = SIDE_M * ROW_S;
const UNITS_Q = SIDE_M * DEPTH8;
const UNITS_K = SPAN * D8;
const UNITS_V = SPAN * E8;
const LOADS_Q = (UNITS_Q + LANES - 1u) / LANES;
const LOADS_K = (UNITS_K + THREADS - 1u) / THREADS;
const LOADS_V = (UNITS_V + THREADS - 1u) / THREADS;
const_assert LANES % SIDE_M == 0u && SPAN % (8u * PER) == 0u && SPAN % SIDE_K == 0u && WIDE % HELD == 0u;
const_assert HELD <= KEYS && SIZE_S >= SIDE_M * ROW_S && SIZE_S >= SIDE_M * ROW_K;

@group(0) @binding(0) var<storage, read> queries: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> keys: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> values: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> result: array<vec4<f32>>;

/// Queries of one key head, and keys.
fn rows() -> u32 { return 64u; }
fn size_t() -> u32 { return 100u; }
/// The keys that a query sees: those from the earliest on, of as many from the first on.
fn visible(row: u32) -> u32 { return size_t(); }
fn earliest(row: u32) -> u32 { return 0u; }
/// Eight elements of a query, a key or a value; `head` counts the key heads of all batches.
fn load_q(head: u32, row: u32, d8: u32) -> vec4<f32> { return queries[(head * 64u + row) * D8 + d8]; }
fn load_k(head: u32, key: u32, d8: u32) -> vec4<f32> { return keys[(head * 100u + key) * D8 + d8]; }
fn load_v(head: u32, key: u32, e8: u32) -> vec4<f32> { return values[(head * 100u + key) * E8 + e8]; }
/// The scores of four products.
fn capped(score: vec4<f32>) -> vec4<f32> { return score; }
/// Added to the scores of four keys.
fn mask(head: u32, row: u32, key4: u32) -> vec4<f32> { return vec4<f32>(); }
fn store(head: u32, row: u32, e4: u32, v: vec4<f32>) { result[(head * 64u + row) * E4 + e4] = v; }
/// What a query found in a part of the keys; its maximum, as a natural logarithm, and its sum of weights.
fn keep(at: u32, e4: u32, v: vec4<f32>) {}
fn keep_stats(at: u32, v: vec2<f32>) {}

var<workgroup> tile_k: array<vec4<f32>, SIZE_K>;
var<workgroup> tile_v: array<vec4<f32>, SIZE_V>;
var<workgroup> scores: array<vec4<f32>, SUBS * SIZE_S>;

/// Keys and values past the end repeat the last one; their weights are zero.
fn stretch_k(head: u32, base: u32, i: u32) -> vec4<f32> {
    return load_k(head, min(base + i / D8, size_t() - 1u), i % D8);
}
fn stretch_v(head: u32, base: u32, i: u32) -> vec4<f32> {
    return load_v(head, min(base + i / E8, size_t() - 1u), i % E8);
}
/// Whether a lane of the subgroup wants to raise its maximum.
fn raises(wanted: bool) -> bool { return subgroupAny(wanted); }
fn highest(v: vec4<f32>) -> f32 { return max(max(v.x, v.y), max(v.z, v.w)); }
fn halves(v: vec2<f32>) -> f32 { return bitcast<f32>(pack2x16float(v)); }

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let head = group.y;
    let lane = local % LANES;
    let mine = local / LANES * SIZE_S;
    let last = rows() - 1u;
    let first = (group.x * SUBS + local / LANES) * (ROWS * SIDE_M);
    // The row of a fragment that the lane shares, and where it lies.
    let row = lane % SIDE_M;
    let part = lane / SIDE_M;
    let line = mine + row * ROW_S;
    let hidden = bitcast<f32>(0xff800000u);
    var q: array<MatrixA, ROWS * DEPTH>;
    // unroll
    for (var f = 0u; f < ROWS; f++) {
        var next_q: array<vec4<f32>, LOADS_Q>;
        // unroll
        for (var i = 0u; i < LOADS_Q; i++) {
            let unit = min(lane + i * LANES, UNITS_Q - 1u);
            let at = min(first + f * SIDE_M + unit / DEPTH8, last);
            let v = load_q(head, at, min(unit % DEPTH8, D8 - 1u));
            next_q[i] = select(v, vec4<f32>(), unit % DEPTH8 >= D8);
        }
        // unroll
        for (var i = 0u; i < LOADS_Q; i++) {
            let unit = lane + i * LANES;
            if (UNITS_Q % LANES == 0u || unit < UNITS_Q) { scores[mine + unit / DEPTH8 * ROW_K + unit % DEPTH8] = next_q[i]; }
        }
        subgroupBarrier();
        // unroll
        for (var k = 0u; k < DEPTH; k++) {
            let at = mine + k * K8;
            q[f * DEPTH + k] = coopLoadT<MatrixA>(&scores[at], ROW_K);
        }
        subgroupBarrier();
    }
    // What pads the head size must not be infinite.
    for (var i = local; i < SIZE_K; i += THREADS) { tile_k[i] = vec4<f32>(); }
    var acc: array<MatrixC, ROWS * WIDE>;
    // unroll
    for (var i = 0u; i < ROWS * WIDE; i++) { acc[i] = MatrixC(); }
    var top: array<f32, ROWS>;
    var sum: array<f32, ROWS>;
    // unroll
    for (var f = 0u; f < ROWS; f++) {
        top[f] = LOWEST;
        sum[f] = 0.0;
    }
    let block = group.x * (SUBS * ROWS * SIDE_M);
    // The last row of the workgroup sees the latest keys, the first the earliest; all of them see those in between.
    let lowest = min(block + SUBS * ROWS * SIDE_M - 1u, last);
    let end = visible(lowest);
    let seen = visible(min(block, last));
    var start = earliest(min(block, last)) / SPAN * SPAN;
    if (PARTS > 1u) {
        let skipped = (start / SPAN + PARTS - 1u - group.z) / PARTS;
        start = (skipped * PARTS + group.z) * SPAN;
    }
    let late = earliest(lowest);
    var next_k: array<vec4<f32>, LOADS_K>;
    var next_v: array<vec4<f32>, LOADS_V>;
    // unroll
    for (var i = 0u; i < LOADS_K; i++) { next_k[i] = stretch_k(head, start, min(local + i * THREADS, UNITS_K - 1u)); }
    // unroll
    for (var i = 0u; i < LOADS_V; i++) { next_v[i] = stretch_v(head, start, min(local + i * THREADS, UNITS_V - 1u)); }
    for (var base = start; base < end; base += PARTS * SPAN) {
        workgroupBarrier();
        // unroll
        for (var i = 0u; i < LOADS_K; i++) {
            let unit = local + i * THREADS;
            if (UNITS_K % THREADS == 0u || unit < UNITS_K) { tile_k[unit / D8 * ROW_K + unit % D8] = next_k[i]; }
        }
        // unroll
        for (var i = 0u; i < LOADS_V; i++) {
            let unit = local + i * THREADS;
            if (UNITS_V % THREADS == 0u || unit < UNITS_V) { tile_v[unit / E8 * ROW_V + unit % E8] = next_v[i]; }
        }
        workgroupBarrier();
        // The last step loads again what it has.
        let following = select(base, base + PARTS * SPAN, base + PARTS * SPAN < end);
        // unroll
        for (var i = 0u; i < LOADS_K; i++) { next_k[i] = stretch_k(head, following, min(local + i * THREADS, UNITS_K - 1u)); }
        // unroll
        for (var i = 0u; i < LOADS_V; i++) { next_v[i] = stretch_v(head, following, min(local + i * THREADS, UNITS_V - 1u)); }
        var s: array<MatrixC, ROWS * KEYS>;
        // unroll
        for (var j = 0u; j < KEYS; j++) {
            // unroll
            for (var f = 0u; f < ROWS; f++) { s[f * KEYS + j] = MatrixC(); }
            // unroll
            for (var k = 0u; k < DEPTH; k++) {
                let at = j * (SIDE_N * ROW_K) + k * K8;
                let b = coopLoad<MatrixB>(&tile_k[at], ROW_K);
                // unroll
                for (var f = 0u; f < ROWS; f++) { s[f * KEYS + j] = coopMultiplyAdd(q[f * DEPTH + k], b, s[f * KEYS + j]); }
            }
        }
        var weights: array<MatrixA, ROWS * STEPS>;
        // unroll
        for (var f = 0u; f < ROWS; f++) {
            let at = min(first + f * SIDE_M + row, last);
            // unroll
            for (var j = 0u; j < KEYS; j++) {
                let to = mine + j * S4;
                let product = s[f * KEYS + j];
                coopStoreT(product, &scores[to], ROW_S);
            }
            subgroupBarrier();
            var v: array<vec4<f32>, 2u * OWN>;
            // unroll
            for (var i = 0u; i < 2u * OWN; i++) {
                v[i] = capped(scores[line + (i / 2u * PER + part) * 2u + i % 2u] * scale());
            }
            subgroupBarrier();
            if (MASKED) {
                // unroll
                for (var i = 0u; i < 2u * OWN; i++) {
                    let key4 = base / 4u + (i / 2u * PER + part) * 2u + i % 2u;
                    v[i] += mask(head, at, min(key4, (size_t() - 1u) / 4u));
                }
            }
            if (GUARDED) {
                if (base + SPAN > seen || base < late) {
                    let most = visible(at);
                    let least = earliest(at);
                    // unroll
                    for (var i = 0u; i < 2u * OWN; i++) {
                        let key = base + (i / 2u * PER + part) * 8u + i % 2u * 4u;
                        let four = vec4<u32>(key, key + 1u, key + 2u, key + 3u);
                        v[i] = select(vec4<f32>(hidden), v[i], (four >= vec4<u32>(least)) & (four < vec4<u32>(most)));
                    }
                }
            }
            var higher = top[f];
            // unroll
            for (var i = 0u; i < 2u * OWN; i++) { higher = max(higher, highest(v[i])); }
            for (var far = SIDE_M; far < LANES; far *= 2u) { higher = max(higher, subgroupShuffleXor(higher, far)); }
            // A branch that is left at once: matrices may not be loaded under a condition, as the validator does not know
            // that this one is the same throughout a subgroup.
            loop {
                let own = higher > top[f] + ROOM;
                if (!raises(own)) { break; }
                let factor = select(1.0, exp2((top[f] - higher) * UNIT), own);
                sum[f] *= factor;
                top[f] = select(top[f], higher, own);
                if (base == start) { break; }
                // unroll
                for (var e = 0u; e < WIDE; e += HELD) {
                    // unroll
                    for (var h = 0u; h < HELD; h++) {
                        let to = mine + h * S4;
                        let before = acc[f * WIDE + e + h];
                        coopStoreT(before, &scores[to], ROW_S);
                    }
                    subgroupBarrier();
                    for (var i = part; i < HELD * S4; i += PER) { scores[line + i] *= factor; }
                    subgroupBarrier();
                    // unroll
                    for (var h = 0u; h < HELD; h++) {
                        let start = mine + h * S4;
                        acc[f * WIDE + e + h] = coopLoadT<MatrixC>(&scores[start], ROW_S);
                    }
                    subgroupBarrier();
                }
                break;
            }
            // unroll
            for (var i = 0u; i < OWN; i++) {
                let low = exp2((v[i * 2u] - top[f]) * UNIT);
                let high = exp2((v[i * 2u + 1u] - top[f]) * UNIT);
                sum[f] += dot(low + high, vec4<f32>(1.0));
                scores[line + i * PER + part] = vec4<f32>(halves(low.xy), halves(low.zw), halves(high.xy), halves(high.zw));
            }
            subgroupBarrier();
            // unroll
            for (var k = 0u; k < STEPS; k++) {
                let start = mine + k * K8;
                weights[f * STEPS + k] = coopLoadT<MatrixA>(&scores[start], ROW_S);
            }
            subgroupBarrier();
        }
        // unroll
        for (var k = 0u; k < STEPS; k++) {
            // unroll
            for (var e = 0u; e < WIDE; e++) {
                let at = k * (SIDE_K * ROW_V) + e * S8;
                let b = coopLoadT<MatrixB>(&tile_v[at], ROW_V);
                // unroll
                for (var f = 0u; f < ROWS; f++) {
                    acc[f * WIDE + e] = coopMultiplyAdd(weights[f * STEPS + k], b, acc[f * WIDE + e]);
                }
            }
        }
    }
    // unroll
    for (var f = 0u; f < ROWS; f++) {
        var total = sum[f];
        for (var far = SIDE_M; far < LANES; far *= 2u) { total += subgroupShuffleXor(total, far); }
        if (part == 0u) {
            // A query that sees no key gives zero.
            var factor = select(1.0 / total, 0.0, total == 0.0);
            if (PARTS > 1u) {
                factor = 1.0;
                let at = first + f * SIDE_M + row;
                let natural = max(top[f] * (UNIT * LN_2), LOWEST);
                if (at <= last) { keep_stats((head * rows() + at) * PARTS + group.z, vec2<f32>(natural, total)); }
            }
            scores[line + ROW_S - 1u] = vec4<f32>(factor);
        }
        // unroll
        for (var e = 0u; e < WIDE; e += HELD) {
            // unroll
            for (var h = 0u; h < HELD; h++) {
                let to = mine + h * S4;
                let done = acc[f * WIDE + e + h];
                coopStoreT(done, &scores[to], ROW_S);
            }
            subgroupBarrier();
            for (var u = lane; u < SIDE_M * HELD * S4; u += LANES) {
                let start = mine + u / (HELD * S4) * ROW_S;
                let at = first + f * SIDE_M + u / (HELD * S4);
                let e4 = e * S4 + u % (HELD * S4);
                if (at <= last && e4 < E4) {
                    let v = scores[start + u % (HELD * S4)] * scores[start + ROW_S - 1u].x;
                    if (PARTS > 1u) { keep((head * rows() + at) * PARTS + group.z, e4, v); } else { store(head, at, e4, v); }
                }
            }
            subgroupBarrier();
        }
    }
}
