// Attention on matrix units with f16 inputs and f32 scores and sums. A workgroup computes the query rows of SUBGROUPS
// subgroups. A query row is one position of a query head, as in `attention.wgsl`. The subgroups loop over the keys in
// tiles of KEY_TILE keys. Keys and values are staged in workgroup memory while the next tile is loaded into registers.
// A subgroup multiplies its ROW_FRAGS fragments of queries by the keys and stores the scores in its own region of
// workgroup memory. There, lanes turn scores into weights, ROW_LANES lanes per row. Then the subgroup multiplies the
// weights by the values.
//
// Fragments cannot be scaled in registers. Softmax weights are therefore relative to a running maximum that is raised
// only if a score exceeds it by more than MAX_EXCESS. Weights then stay in the range of f16. A raise
// rescales the sums of weighted values in workgroup memory; raises are rare. Each row has its own maximum, so a row's
// result does not depend on the other rows.
//
// If KV_SPLIT is above 1, KV_SPLIT workgroups split the keys: tile t belongs to workgroup t % KV_SPLIT. They store sums
// of weighted values, maxima and sums of weights, which attention_merge.wgsl merges.
//
// The compiler replaces the knobs, the matrix types, the sizes and the hooks. The hooks that load queries, keys and
// values return zero past the head size. They return 8 f16 as the bits of a vec4<f32>; `coop.wgsl` explains why.

enable wgpu_cooperative_matrix;

const LANES = 32u;
const SIDE_M = 16u;
const SIDE_N = 16u;
const SIDE_K = 16u;
alias MatrixA = coop_mat16x16<f32, A>;
alias MatrixB = coop_mat16x16<f32, B>;
alias MatrixC = coop_mat16x16<f32, C>;
const SUBGROUPS = 4u;
/// Number of matrix fragments of query rows per subgroup.
const ROW_FRAGS = 1u;
/// Number of matrix fragments of keys per tile.
const KEY_FRAGS = 4u;
/// Head size of queries and keys, in groups of eight elements.
const D8 = 2u;
/// Head size of values, in groups of eight elements.
const E8 = 2u;
/// Head size of values, in vec4s.
const E4 = 4u;
/// Head size of queries and keys, in matrix fragments.
const DEPTH_FRAGS = 1u;
/// Head size of values, in matrix fragments.
const VALUE_FRAGS = 1u;
/// Number of matrix fragments with sums of weighted values that pass through workgroup memory at once.
const STAGED_FRAGS = 1u;
/// Number of workgroups that split the keys of a query.
const KV_SPLIT = 1u;
fn scale() -> f32 { return 0.5; }
/// Factor that turns a natural-exponent score into an argument of `exp2`: log2(e), or 1 if `scale` includes it.
const EXP2_SCALE = 1.4426950408889634;
/// True if a query row may be unable to see some keys of a tile.
const CHECK_VISIBLE = true;
/// True if there is an additive mask.
const MASKED = false;
const MAX_EXCESS = 8.0 / EXP2_SCALE;
const LOWEST = -3.4028234e38;
const LN_2 = 0.6931471805599453;
const THREADS = SUBGROUPS * LANES;
const KEY_TILE = KEY_FRAGS * SIDE_N;
const ROW_LANES = LANES / SIDE_M;
/// Number of groups of eight keys whose scores a lane turns into weights, per row and tile.
const LANE_VEC8S = KEY_TILE / 8u / ROW_LANES;
const STEPS = KEY_TILE / SIDE_K;
const S8 = SIDE_N / 8u;
const S4 = SIDE_N / 4u;
const K8 = SIDE_K / 8u;
const DEPTH_VEC8S = DEPTH_FRAGS * K8;
/// Distance between adjacent keys in workgroup memory, in vec4s. It includes 16 bytes of padding, which spread keys
/// over the memory's banks.
const PITCH_K = DEPTH_VEC8S + 1u;
/// Distance between adjacent values in workgroup memory, in vec4s. It includes 16 bytes of padding, which spread values
/// over the memory's banks.
const PITCH_V = VALUE_FRAGS * S8 + 1u;
/// Distance between adjacent rows of scores in workgroup memory, in vec4s. It includes 16 bytes of padding, which
/// spread rows over the memory's banks.
const PITCH_S = KEY_TILE / 4u + 1u;
const SIZE_K = KEY_TILE * PITCH_K;
const SIZE_V = KEY_TILE * PITCH_V;
/// Workgroup memory of a subgroup in vec4s, for its scores or its queries, whichever is larger.
const SIZE_S = SIDE_M * PITCH_S;
const VEC8S_Q = SIDE_M * DEPTH_VEC8S;
const VEC8S_K = KEY_TILE * D8;
const VEC8S_V = KEY_TILE * E8;
const LOADS_Q = (VEC8S_Q + LANES - 1u) / LANES;
const LOADS_K = (VEC8S_K + THREADS - 1u) / THREADS;
const LOADS_V = (VEC8S_V + THREADS - 1u) / THREADS;
const_assert LANES % SIDE_M == 0u && KEY_TILE % (8u * ROW_LANES) == 0u && KEY_TILE % SIDE_K == 0u && VALUE_FRAGS % STAGED_FRAGS == 0u;
const_assert STAGED_FRAGS <= KEY_FRAGS && SIZE_S >= SIDE_M * PITCH_S && SIZE_S >= SIDE_M * PITCH_K;

@group(0) @binding(0) var<storage, read> queries: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> keys: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> values: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> result: array<vec4<f32>>;

/// Number of query rows per key head.
fn rows() -> u32 { return 64u; }
/// Number of keys.
fn size_t() -> u32 { return 100u; }
/// End (exclusive) of the range of keys that a query row may see.
fn visible_end(row: u32) -> u32 { return size_t(); }
/// Start of the range of keys that a query row may see.
fn visible_start(row: u32) -> u32 { return 0u; }
/// Loads eight elements of a query row. `head` is the index of the key head among all batches.
fn load_q(head: u32, row: u32, d8: u32) -> vec4<f32> { return queries[(head * 64u + row) * D8 + d8]; }
/// Loads eight elements of a key. `head` is the index of the key head among all batches.
fn load_k(head: u32, key: u32, d8: u32) -> vec4<f32> { return keys[(head * 100u + key) * D8 + d8]; }
/// Loads eight elements of a value. `head` is the index of the key head among all batches.
fn load_v(head: u32, key: u32, e8: u32) -> vec4<f32> { return values[(head * 100u + key) * E8 + e8]; }
/// Applies the soft cap of the attention (`cap * tanh(score / cap)`) to four scores.
fn capped(score: vec4<f32>) -> vec4<f32> { return score; }
/// Additive mask of a query row and four keys.
fn mask(head: u32, row: u32, key4: u32) -> vec4<f32> { return vec4<f32>(); }
fn store(head: u32, row: u32, e4: u32, v: vec4<f32>) { result[(head * 64u + row) * E4 + e4] = v; }
/// Stores four elements of a query's sum of weighted values over the keys of one KV split.
fn store_partial(at: u32, e4: u32, v: vec4<f32>) {}
/// Stores a query's maximum score and its sum of softmax weights over the keys of one KV split.
fn store_partial_stats(at: u32, v: vec2<f32>) {}

var<workgroup> tile_k: array<vec4<f32>, SIZE_K>;
var<workgroup> tile_v: array<vec4<f32>, SIZE_V>;
var<workgroup> scores: array<vec4<f32>, SUBGROUPS * SIZE_S>;

/// Loads eight elements of a key of a tile. Positions past the last key repeat the last key; their softmax weights are zero.
fn tile_load_k(head: u32, base: u32, i: u32) -> vec4<f32> {
    return load_k(head, min(base + i / D8, size_t() - 1u), i % D8);
}
/// Loads eight elements of a value of a tile. Positions past the last value repeat the last value; their softmax
/// weights are zero.
fn tile_load_v(head: u32, base: u32, i: u32) -> vec4<f32> {
    return load_v(head, min(base + i / E8, size_t() - 1u), i % E8);
}
/// True if `wanted` is true in any lane of the subgroup.
fn any_lane(wanted: bool) -> bool { return subgroupAny(wanted); }
fn max_component(v: vec4<f32>) -> f32 { return max(max(v.x, v.y), max(v.z, v.w)); }
fn pack_f16(v: vec2<f32>) -> f32 { return bitcast<f32>(pack2x16float(v)); }

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let head = group.y;
    let lane = local % LANES;
    let subgroup_start = local / LANES * SIZE_S;
    let last = rows() - 1u;
    let first = (group.x * SUBGROUPS + local / LANES) * (ROW_FRAGS * SIDE_M);
    // Index, in a matrix fragment, of the row whose scores this lane turns into weights.
    let row = lane % SIDE_M;
    // Index of this lane among the ROW_LANES lanes that share a row.
    let row_part = lane / SIDE_M;
    // Start of the row's scores in workgroup memory, in vec4s.
    let row_start = subgroup_start + row * PITCH_S;
    let minus_infinity = bitcast<f32>(0xff800000u);
    var q: array<MatrixA, ROW_FRAGS * DEPTH_FRAGS>;
    // unroll
    for (var f = 0u; f < ROW_FRAGS; f++) {
        var next_q: array<vec4<f32>, LOADS_Q>;
        // unroll
        for (var i = 0u; i < LOADS_Q; i++) {
            let unit = min(lane + i * LANES, VEC8S_Q - 1u);
            let at = min(first + f * SIDE_M + unit / DEPTH_VEC8S, last);
            let v = load_q(head, at, min(unit % DEPTH_VEC8S, D8 - 1u));
            next_q[i] = select(v, vec4<f32>(), unit % DEPTH_VEC8S >= D8);
        }
        // unroll
        for (var i = 0u; i < LOADS_Q; i++) {
            let unit = lane + i * LANES;
            if (VEC8S_Q % LANES == 0u || unit < VEC8S_Q) { scores[subgroup_start + unit / DEPTH_VEC8S * PITCH_K + unit % DEPTH_VEC8S] = next_q[i]; }
        }
        subgroupBarrier();
        // unroll
        for (var k = 0u; k < DEPTH_FRAGS; k++) {
            let at = subgroup_start + k * K8;
            q[f * DEPTH_FRAGS + k] = coopLoadT<MatrixA>(&scores[at], PITCH_K);
        }
        subgroupBarrier();
    }
    // The padding of keys up to whole fragments must be finite, because it is multiplied by zeros.
    for (var i = local; i < SIZE_K; i += THREADS) { tile_k[i] = vec4<f32>(); }
    var acc: array<MatrixC, ROW_FRAGS * VALUE_FRAGS>;
    // unroll
    for (var i = 0u; i < ROW_FRAGS * VALUE_FRAGS; i++) { acc[i] = MatrixC(); }
    var row_max: array<f32, ROW_FRAGS>;
    var sum: array<f32, ROW_FRAGS>;
    // unroll
    for (var f = 0u; f < ROW_FRAGS; f++) {
        row_max[f] = LOWEST;
        sum[f] = 0.0;
    }
    let group_first = group.x * (SUBGROUPS * ROW_FRAGS * SIDE_M);
    // The last query row of the workgroup sees the latest keys, and the first row sees the earliest keys. All rows see
    // the keys from the first key of the last row to the last key of the first row.
    let last_row = min(group_first + SUBGROUPS * ROW_FRAGS * SIDE_M - 1u, last);
    let end = visible_end(last_row);
    let fully_visible_end = visible_end(min(group_first, last));
    var start = visible_start(min(group_first, last)) / KEY_TILE * KEY_TILE;
    if (KV_SPLIT > 1u) {
        let skipped = (start / KEY_TILE + KV_SPLIT - 1u - group.z) / KV_SPLIT;
        start = (skipped * KV_SPLIT + group.z) * KEY_TILE;
    }
    let fully_visible_start = visible_start(last_row);
    var next_k: array<vec4<f32>, LOADS_K>;
    var next_v: array<vec4<f32>, LOADS_V>;
    // unroll
    for (var i = 0u; i < LOADS_K; i++) { next_k[i] = tile_load_k(head, start, min(local + i * THREADS, VEC8S_K - 1u)); }
    // unroll
    for (var i = 0u; i < LOADS_V; i++) { next_v[i] = tile_load_v(head, start, min(local + i * THREADS, VEC8S_V - 1u)); }
    for (var base = start; base < end; base += KV_SPLIT * KEY_TILE) {
        workgroupBarrier();
        // unroll
        for (var i = 0u; i < LOADS_K; i++) {
            let unit = local + i * THREADS;
            if (VEC8S_K % THREADS == 0u || unit < VEC8S_K) { tile_k[unit / D8 * PITCH_K + unit % D8] = next_k[i]; }
        }
        // unroll
        for (var i = 0u; i < LOADS_V; i++) {
            let unit = local + i * THREADS;
            if (VEC8S_V % THREADS == 0u || unit < VEC8S_V) { tile_v[unit / E8 * PITCH_V + unit % E8] = next_v[i]; }
        }
        workgroupBarrier();
        // The last step of the loop has no next tile, so it loads its own tile again.
        let next_base = select(base, base + KV_SPLIT * KEY_TILE, base + KV_SPLIT * KEY_TILE < end);
        // unroll
        for (var i = 0u; i < LOADS_K; i++) { next_k[i] = tile_load_k(head, next_base, min(local + i * THREADS, VEC8S_K - 1u)); }
        // unroll
        for (var i = 0u; i < LOADS_V; i++) { next_v[i] = tile_load_v(head, next_base, min(local + i * THREADS, VEC8S_V - 1u)); }
        var s: array<MatrixC, ROW_FRAGS * KEY_FRAGS>;
        // unroll
        for (var j = 0u; j < KEY_FRAGS; j++) {
            // unroll
            for (var f = 0u; f < ROW_FRAGS; f++) { s[f * KEY_FRAGS + j] = MatrixC(); }
            // unroll
            for (var k = 0u; k < DEPTH_FRAGS; k++) {
                let at = j * (SIDE_N * PITCH_K) + k * K8;
                let b = coopLoad<MatrixB>(&tile_k[at], PITCH_K);
                // unroll
                for (var f = 0u; f < ROW_FRAGS; f++) { s[f * KEY_FRAGS + j] = coopMultiplyAdd(q[f * DEPTH_FRAGS + k], b, s[f * KEY_FRAGS + j]); }
            }
        }
        var weights: array<MatrixA, ROW_FRAGS * STEPS>;
        // unroll
        for (var f = 0u; f < ROW_FRAGS; f++) {
            let at = min(first + f * SIDE_M + row, last);
            // unroll
            for (var j = 0u; j < KEY_FRAGS; j++) {
                let to = subgroup_start + j * S4;
                let score_fragment = s[f * KEY_FRAGS + j];
                coopStoreT(score_fragment, &scores[to], PITCH_S);
            }
            subgroupBarrier();
            var v: array<vec4<f32>, 2u * LANE_VEC8S>;
            // unroll
            for (var i = 0u; i < 2u * LANE_VEC8S; i++) {
                v[i] = capped(scores[row_start + (i / 2u * ROW_LANES + row_part) * 2u + i % 2u] * scale());
            }
            subgroupBarrier();
            if (MASKED) {
                // unroll
                for (var i = 0u; i < 2u * LANE_VEC8S; i++) {
                    let key4 = base / 4u + (i / 2u * ROW_LANES + row_part) * 2u + i % 2u;
                    v[i] += mask(head, at, min(key4, (size_t() - 1u) / 4u));
                }
            }
            if (CHECK_VISIBLE) {
                if (base + KEY_TILE > fully_visible_end || base < fully_visible_start) {
                    let row_end = visible_end(at);
                    let row_first = visible_start(at);
                    // unroll
                    for (var i = 0u; i < 2u * LANE_VEC8S; i++) {
                        let key = base + (i / 2u * ROW_LANES + row_part) * 8u + i % 2u * 4u;
                        let key_vec4 = vec4<u32>(key, key + 1u, key + 2u, key + 3u);
                        v[i] = select(vec4<f32>(minus_infinity), v[i], (key_vec4 >= vec4<u32>(row_first)) & (key_vec4 < vec4<u32>(row_end)));
                    }
                }
            }
            var new_max = row_max[f];
            // unroll
            for (var i = 0u; i < 2u * LANE_VEC8S; i++) { new_max = max(new_max, max_component(v[i])); }
            for (var distance = SIDE_M; distance < LANES; distance *= 2u) { new_max = max(new_max, subgroupShuffleXor(new_max, distance)); }
            // The loop runs at most once and replaces a branch. The validator forbids matrix loads in a branch whose
            // condition it cannot prove uniform within the subgroup.
            loop {
                let raise_max = new_max > row_max[f] + MAX_EXCESS;
                if (!any_lane(raise_max)) { break; }
                let factor = select(1.0, exp2((row_max[f] - new_max) * EXP2_SCALE), raise_max);
                sum[f] *= factor;
                row_max[f] = select(row_max[f], new_max, raise_max);
                if (base == start) { break; }
                // unroll
                for (var e = 0u; e < VALUE_FRAGS; e += STAGED_FRAGS) {
                    // unroll
                    for (var h = 0u; h < STAGED_FRAGS; h++) {
                        let to = subgroup_start + h * S4;
                        let sum_fragment = acc[f * VALUE_FRAGS + e + h];
                        coopStoreT(sum_fragment, &scores[to], PITCH_S);
                    }
                    subgroupBarrier();
                    for (var i = row_part; i < STAGED_FRAGS * S4; i += ROW_LANES) { scores[row_start + i] *= factor; }
                    subgroupBarrier();
                    // unroll
                    for (var h = 0u; h < STAGED_FRAGS; h++) {
                        let start = subgroup_start + h * S4;
                        acc[f * VALUE_FRAGS + e + h] = coopLoadT<MatrixC>(&scores[start], PITCH_S);
                    }
                    subgroupBarrier();
                }
                break;
            }
            // unroll
            for (var i = 0u; i < LANE_VEC8S; i++) {
                let low = exp2((v[i * 2u] - row_max[f]) * EXP2_SCALE);
                let high = exp2((v[i * 2u + 1u] - row_max[f]) * EXP2_SCALE);
                sum[f] += dot(low + high, vec4<f32>(1.0));
                scores[row_start + i * ROW_LANES + row_part] = vec4<f32>(pack_f16(low.xy), pack_f16(low.zw), pack_f16(high.xy), pack_f16(high.zw));
            }
            subgroupBarrier();
            // unroll
            for (var k = 0u; k < STEPS; k++) {
                let start = subgroup_start + k * K8;
                weights[f * STEPS + k] = coopLoadT<MatrixA>(&scores[start], PITCH_S);
            }
            subgroupBarrier();
        }
        // unroll
        for (var k = 0u; k < STEPS; k++) {
            // unroll
            for (var e = 0u; e < VALUE_FRAGS; e++) {
                let at = k * (SIDE_K * PITCH_V) + e * S8;
                let b = coopLoadT<MatrixB>(&tile_v[at], PITCH_V);
                // unroll
                for (var f = 0u; f < ROW_FRAGS; f++) {
                    acc[f * VALUE_FRAGS + e] = coopMultiplyAdd(weights[f * STEPS + k], b, acc[f * VALUE_FRAGS + e]);
                }
            }
        }
    }
    // unroll
    for (var f = 0u; f < ROW_FRAGS; f++) {
        var total = sum[f];
        for (var distance = SIDE_M; distance < LANES; distance *= 2u) { total += subgroupShuffleXor(total, distance); }
        if (row_part == 0u) {
            // The result of a query that may see no keys is zero.
            var factor = select(1.0 / total, 0.0, total == 0.0);
            if (KV_SPLIT > 1u) {
                factor = 1.0;
                let at = first + f * SIDE_M + row;
                let natural_max = max(row_max[f] * (EXP2_SCALE * LN_2), LOWEST);
                if (at <= last) { store_partial_stats((head * rows() + at) * KV_SPLIT + group.z, vec2<f32>(natural_max, total)); }
            }
            scores[row_start + PITCH_S - 1u] = vec4<f32>(factor);
        }
        // unroll
        for (var e = 0u; e < VALUE_FRAGS; e += STAGED_FRAGS) {
            // unroll
            for (var h = 0u; h < STAGED_FRAGS; h++) {
                let to = subgroup_start + h * S4;
                let result_fragment = acc[f * VALUE_FRAGS + e + h];
                coopStoreT(result_fragment, &scores[to], PITCH_S);
            }
            subgroupBarrier();
            for (var u = lane; u < SIDE_M * STAGED_FRAGS * S4; u += LANES) {
                let start = subgroup_start + u / (STAGED_FRAGS * S4) * PITCH_S;
                let at = first + f * SIDE_M + u / (STAGED_FRAGS * S4);
                let e4 = e * S4 + u % (STAGED_FRAGS * S4);
                if (at <= last && e4 < E4) {
                    let v = scores[start + u % (STAGED_FRAGS * S4)] * scores[start + PITCH_S - 1u].x;
                    if (KV_SPLIT > 1u) { store_partial((head * rows() + at) * KV_SPLIT + group.z, e4, v); } else { store(head, at, e4, v); }
                }
            }
            subgroupBarrier();
        }
    }
}
