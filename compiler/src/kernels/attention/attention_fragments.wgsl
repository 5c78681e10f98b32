// Attention on matrix units with a known fragment layout, with f16 inputs and f32 scores and sums. A workgroup computes
// the query rows of SUBGROUPS subgroups. A query row is one position of a query head, as in `attention.wgsl`. The
// subgroups loop over the keys in tiles of KEY_TILE keys. Keys and values are staged in workgroup memory while the next
// tile is loaded into registers. Scores, softmax weights and sums of weighted values stay in registers.
//
// KEY_GROUPS sets of SUBGROUPS subgroups compute the same query rows: a step stages KEY_GROUPS tiles, one for each set.
// After the last step, the first set merges the sums of the others, which pass through workgroup memory.
//
// Fragments have the layout of `mma.m16n8k16`. Invocation 4 * g + t of a subgroup holds rows g and g + 8 of a fragment
// with 16 query rows, and the columns 2 * t and 2 * t + 1 of eight scores or sums. Matrix multiplication does not depend
// on the order of the summed positions, so each invocation takes adjacent positions and loads them at once. In
// 32 elements of the head size, invocation t takes elements 8 * t to 8 * t + 7. In 16 keys it takes keys 4 * t to
// 4 * t + 3. The fragments of scores are thereby the fragments of weights that multiply the values.
//
// Softmax weights are relative to a running maximum that is raised only if a score exceeds it by more than MAX_EXCESS.
// Weights then stay in the range of f16. Each row has its own maximum, so a row's result does not depend on the other
// rows.
//
// If KV_SPLIT is above 1, KV_SPLIT workgroups split the keys: tile t belongs to workgroup t % KV_SPLIT. They store sums
// of weighted values, maxima and sums of weights, which attention_merge.wgsl merges.
//
// The compiler replaces the knobs, the sizes and the hooks. The hooks that load queries, keys and values return zero
// past the head size. They return 8 f16 as the bits of a vec4<f32>; `coop.wgsl` explains why.

enable wgpu_cooperative_matrix;

const LANES = 32u;
const SUBGROUPS = 4u;
/// Number of matrix fragments, of 16 query rows each, per subgroup.
const ROW_FRAGS = 2u;
/// Number of keys of a tile, which a subgroup multiplies in one step of the loop over keys.
const KEY_TILE = 64u;
/// Number of sets of subgroups that split the tiles of a step.
const KEY_GROUPS = 1u;
/// Head size of queries and keys, in groups of eight elements.
const D8 = 2u;
/// Head size of values, in groups of eight elements.
const E8 = 2u;
/// Head size of values, in vec4s.
const E4 = 4u;
/// Number of workgroups that split the keys of a query.
const KV_SPLIT = 1u;
fn scale() -> f32 { return 0.5; }
/// Factor that turns a score into an argument of `exp2`.
const EXP2_SCALE = 1.4426950408889634;
/// True if a query row may be unable to see some keys of a tile.
const CHECK_VISIBLE = true;
/// True if there is an additive mask.
const MASKED = false;
const MAX_EXCESS = 8.0 / EXP2_SCALE;
/// Running maximum of a row before its first key. Without a mask, it stays finite when EXP2_SCALE multiplies it.
const FIRST_MAX = -1e30;
const LOWEST = -3.4028234e38;
const LN_2 = 0.6931471805599453;
const THREADS = SUBGROUPS * KEY_GROUPS * LANES;
/// Number of keys per step of the loop over keys.
const STEP_KEYS = KEY_TILE * KEY_GROUPS;
const FRAG_ROWS = 16u;
/// Number of fragments of eight keys per tile.
const KEY_FRAGS = KEY_TILE / 8u;
/// Number of matrix multiplications along the keys of a tile.
const KEY_STEPS = KEY_TILE / 16u;
/// Number of groups of 32 elements of the head size of queries and keys.
const D32 = 0u;
/// 1 if 16 more elements follow the groups of 32, else 0.
const D16 = 1u;
/// Number of matrix multiplications along the head size of queries and keys.
const DEPTH_STEPS = D32 * 2u + D16;
/// Distance between adjacent keys in workgroup memory, in vec4s: a multiple of four that is not a multiple of eight,
/// so that two adjacent keys are in different banks.
const PITCH_K = (D32 * 4u + D16 * 2u + 3u) / 8u * 8u + 4u;
/// Number of vec2s of eight values of the same four key groups, and four vec2s of padding, which spread the groups of
/// eight over the memory's banks.
const PITCH_V = 36u;
/// Number of vec2s of the values of 16 keys.
const STEP_V = E8 * PITCH_V;
const SIZE_K = STEP_KEYS * PITCH_K;
const SIZE_V = KEY_GROUPS * KEY_STEPS * STEP_V;
const VEC8S_K = STEP_KEYS * D8;
/// Number of blocks of four keys and eight elements of the values of a step.
const BLOCKS_V = STEP_KEYS / 4u * E8;
const LOADS_K = (VEC8S_K + THREADS - 1u) / THREADS;
const LOADS_V = (BLOCKS_V + THREADS - 1u) / THREADS;
/// Number of vec4s of the sums, maxima and sums of weights of a set of subgroups.
const SIZE_SUMS = SUBGROUPS * LANES * ROW_FRAGS * (E8 + 1u);
const_assert KEY_GROUPS == 1u || (KV_SPLIT == 1u && SIZE_SUMS <= SIZE_K);
const_assert LANES == 32u && KEY_TILE % 16u == 0u && D32 * 4u + D16 * 2u >= D8 && D16 <= 1u;

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

/// Computes `a * b + c` for matrix fragments. Each invocation holds a part of each fragment. The emitter replaces the matrices
/// in the body by the arguments.
fn multiply_fragments(local: u32, a: vec4<u32>, b: vec2<u32>, c: vec4<f32>) -> vec4<f32> {
    let d = coopMultiplyAdd(coop_mat16x16<f32, A>(), coop_mat16x16<f32, B>(), coop_mat16x16<f32, C>());
    return c;
}

/// Keys of a step. After the last step: sums of a set of subgroups.
var<workgroup> tile_k: array<vec4<f32>, SIZE_K>;
/// Values of a step. A vec2 holds one element of four adjacent values.
var<workgroup> tile_v: array<vec2<u32>, SIZE_V>;

/// Loads eight elements of a key of a step. Positions past the last key repeat the last key; their softmax weights are zero.
fn tile_load_k(head: u32, base: u32, i: u32) -> vec4<f32> {
    return load_k(head, min(base + i / D8, size_t() - 1u), i % D8);
}
/// Index, in a step, of the first key of block `i` of four values.
fn block_key(i: u32) -> u32 { return i / (4u * E8) * 16u + i % 4u * 4u; }
/// Index of block `i` of values along the head size, in groups of eight elements.
fn block_e8(i: u32) -> u32 { return i / 4u % E8; }
/// Loads eight elements of value `k` of block `i`. Positions past the last value repeat the last value; their softmax
/// weights are zero.
fn tile_load_v(head: u32, base: u32, i: u32, k: u32) -> vec4<u32> {
    return bitcast<vec4<u32>>(load_v(head, min(base + block_key(i) + k, size_t() - 1u), block_e8(i)));
}
/// Stores a block of values in workgroup memory. An argument holds eight elements of one of four adjacent values.
fn tile_store_v(i: u32, a: vec4<u32>, b: vec4<u32>, c: vec4<u32>, d: vec4<u32>) {
    let start = i / (4u * E8) * STEP_V + block_e8(i) * PITCH_V + i % 4u;
    let even_ab = (a & vec4<u32>(0xffffu)) | (b << vec4<u32>(16u));
    let even_cd = (c & vec4<u32>(0xffffu)) | (d << vec4<u32>(16u));
    let odd_ab = (a >> vec4<u32>(16u)) | (b & vec4<u32>(0xffff0000u));
    let odd_cd = (c >> vec4<u32>(16u)) | (d & vec4<u32>(0xffff0000u));
    // unroll
    for (var e = 0u; e < 4u; e++) {
        tile_v[start + e * 8u] = vec2<u32>(even_ab[e], even_cd[e]);
        tile_v[start + e * 8u + 4u] = vec2<u32>(odd_ab[e], odd_cd[e]);
    }
}
/// Returns the maximum of a value over the four invocations that share query rows.
fn quad_max(v: vec2<f32>) -> vec2<f32> {
    let w = max(v, subgroupShuffleXor(v, 1u));
    return max(w, subgroupShuffleXor(w, 2u));
}
/// Returns the sum of a value over the four invocations that share query rows.
fn quad_sum(v: vec2<f32>) -> vec2<f32> {
    let w = v + subgroupShuffleXor(v, 1u);
    return w + subgroupShuffleXor(w, 2u);
}
fn pack_f16(v: vec2<f32>) -> f32 { return bitcast<f32>(pack2x16float(v)); }
/// Returns the softmax weights of scores that are relative to the maximum `row_max`.
fn softmax_weights(v: vec2<f32>, row_max: f32) -> vec2<f32> {
    // Masked scores and maxima may be so low that a factor makes them infinite.
    if (MASKED) { return exp2((v - vec2<f32>(row_max)) * EXP2_SCALE); }
    return exp2(fma(v, vec2<f32>(EXP2_SCALE), vec2<f32>(-row_max * EXP2_SCALE)));
}

fn attend(group: vec3<u32>, local: u32) {
    let head = group.y;
    let lane = local % LANES;
    let g = lane / 4u;
    let t = lane % 4u;
    let last = rows() - 1u;
    let group_first = group.x * (SUBGROUPS * ROW_FRAGS * FRAG_ROWS);
    // The first query row of the invocation.
    let first = group_first + local / LANES % SUBGROUPS * (ROW_FRAGS * FRAG_ROWS) + g;
    // The set of the invocation's subgroup.
    let key_group = local / (LANES * SUBGROUPS);
    let minus_infinity = bitcast<f32>(0xff800000u);
    var q: array<vec4<u32>, ROW_FRAGS * DEPTH_STEPS>;
    // unroll
    for (var f = 0u; f < ROW_FRAGS; f++) {
        let low_row = min(first + f * FRAG_ROWS, last);
        let high_row = min(first + f * FRAG_ROWS + 8u, last);
        // unroll
        for (var c = 0u; c < D32; c++) {
            let at = c * 4u + t;
            let within = (c + 1u) * 4u <= D8 || at < D8;
            let low = select(vec4<u32>(), bitcast<vec4<u32>>(load_q(head, low_row, min(at, D8 - 1u))), within);
            let high = select(vec4<u32>(), bitcast<vec4<u32>>(load_q(head, high_row, min(at, D8 - 1u))), within);
            q[f * DEPTH_STEPS + c * 2u] = vec4<u32>(low.xy, high.xy);
            q[f * DEPTH_STEPS + c * 2u + 1u] = vec4<u32>(low.zw, high.zw);
        }
        if (D16 == 1u) {
            let at = D32 * 4u + t / 2u;
            let within = at < D8;
            let low = select(vec4<u32>(), bitcast<vec4<u32>>(load_q(head, low_row, min(at, D8 - 1u))), within);
            let high = select(vec4<u32>(), bitcast<vec4<u32>>(load_q(head, high_row, min(at, D8 - 1u))), within);
            q[f * DEPTH_STEPS + DEPTH_STEPS - 1u] = vec4<u32>(select(low.xy, low.zw, t % 2u == 1u), select(high.xy, high.zw, t % 2u == 1u));
        }
    }
    // The padding of keys up to whole fragments must be finite, because it is multiplied by zeros.
    for (var i = local; i < SIZE_K; i += THREADS) { tile_k[i] = vec4<f32>(); }
    var acc: array<vec4<f32>, ROW_FRAGS * E8>;
    // unroll
    for (var i = 0u; i < ROW_FRAGS * E8; i++) { acc[i] = vec4<f32>(); }
    // Running maximum and sum of the two rows of each fragment. A sum covers the keys of one invocation.
    var row_max: array<vec2<f32>, ROW_FRAGS>;
    var sum: array<vec2<f32>, ROW_FRAGS>;
    // unroll
    for (var f = 0u; f < ROW_FRAGS; f++) {
        row_max[f] = vec2<f32>(FIRST_MAX);
        sum[f] = vec2<f32>();
    }
    // The last query row of the workgroup sees the latest keys, and the first row sees the earliest keys. All rows see
    // the keys from the first key of the last row to the last key of the first row.
    let last_row = min(group_first + SUBGROUPS * ROW_FRAGS * FRAG_ROWS - 1u, last);
    let end = visible_end(last_row);
    let fully_visible_end = visible_end(min(group_first, last));
    var start = visible_start(min(group_first, last)) / KEY_TILE * KEY_TILE;
    if (KV_SPLIT > 1u) {
        let skipped = (start / KEY_TILE + KV_SPLIT - 1u - group.z) / KV_SPLIT;
        start = (skipped * KV_SPLIT + group.z) * KEY_TILE;
    }
    let fully_visible_start = visible_start(last_row);
    var next_k: array<vec4<f32>, LOADS_K>;
    var next_v: array<vec4<u32>, LOADS_V * 4u>;
    // unroll
    for (var i = 0u; i < LOADS_K; i++) { next_k[i] = tile_load_k(head, start, min(local + i * THREADS, VEC8S_K - 1u)); }
    // unroll
    for (var i = 0u; i < LOADS_V * 4u; i++) { next_v[i] = tile_load_v(head, start, min(local + i / 4u * THREADS, BLOCKS_V - 1u), i % 4u); }
    for (var base = start; base < end; base += KV_SPLIT * STEP_KEYS) {
        workgroupBarrier();
        // unroll
        for (var i = 0u; i < LOADS_K; i++) {
            let unit = local + i * THREADS;
            if (VEC8S_K % THREADS == 0u || unit < VEC8S_K) { tile_k[unit / D8 * PITCH_K + unit % D8] = next_k[i]; }
        }
        // unroll
        for (var i = 0u; i < LOADS_V; i++) {
            let block = local + i * THREADS;
            if (BLOCKS_V % THREADS == 0u || block < BLOCKS_V) {
                tile_store_v(block, next_v[i * 4u], next_v[i * 4u + 1u], next_v[i * 4u + 2u], next_v[i * 4u + 3u]);
            }
        }
        workgroupBarrier();
        // The last step of the loop has no next tile, so it loads its own tile again.
        let next_base = select(base, base + KV_SPLIT * STEP_KEYS, base + KV_SPLIT * STEP_KEYS < end);
        // unroll
        for (var i = 0u; i < LOADS_K; i++) { next_k[i] = tile_load_k(head, next_base, min(local + i * THREADS, VEC8S_K - 1u)); }
        // unroll
        for (var i = 0u; i < LOADS_V * 4u; i++) { next_v[i] = tile_load_v(head, next_base, min(local + i / 4u * THREADS, BLOCKS_V - 1u), i % 4u); }
        let tile_start = base + key_group * KEY_TILE;
        // Scores of the rows g (components x and y) and g + 8 (z and w).
        var s: array<vec4<f32>, ROW_FRAGS * KEY_FRAGS>;
        // unroll
        for (var j = 0u; j < KEY_FRAGS; j++) {
            // unroll
            for (var f = 0u; f < ROW_FRAGS; f++) { s[f * KEY_FRAGS + j] = vec4<f32>(); }
            let key_start = (j / 2u * 16u + j % 2u * 2u + g / 2u * 4u + g % 2u + key_group * KEY_TILE) * PITCH_K;
            // unroll
            for (var c = 0u; c < D32; c++) {
                let k = bitcast<vec4<u32>>(tile_k[key_start + c * 4u + t]);
                // unroll
                for (var f = 0u; f < ROW_FRAGS; f++) { s[f * KEY_FRAGS + j] = multiply_fragments(local, q[f * DEPTH_STEPS + c * 2u], k.xy, s[f * KEY_FRAGS + j]); }
                // unroll
                for (var f = 0u; f < ROW_FRAGS; f++) { s[f * KEY_FRAGS + j] = multiply_fragments(local, q[f * DEPTH_STEPS + c * 2u + 1u], k.zw, s[f * KEY_FRAGS + j]); }
            }
            if (D16 == 1u) {
                let k = bitcast<vec4<u32>>(tile_k[key_start + D32 * 4u + t / 2u]);
                let half = select(k.xy, k.zw, t % 2u == 1u);
                // unroll
                for (var f = 0u; f < ROW_FRAGS; f++) { s[f * KEY_FRAGS + j] = multiply_fragments(local, q[f * DEPTH_STEPS + DEPTH_STEPS - 1u], half, s[f * KEY_FRAGS + j]); }
            }
        }
        var weights: array<vec2<u32>, ROW_FRAGS * KEY_FRAGS>;
        // unroll
        for (var f = 0u; f < ROW_FRAGS; f++) {
            let low_row = min(first + f * FRAG_ROWS, last);
            let high_row = min(first + f * FRAG_ROWS + 8u, last);
            // unroll
            for (var j = 0u; j < KEY_FRAGS; j++) { s[f * KEY_FRAGS + j] = capped(s[f * KEY_FRAGS + j] * scale()); }
            if (MASKED) {
                // unroll
                for (var k = 0u; k < KEY_STEPS; k++) {
                    let key4 = min(tile_start / 4u + k * 4u + t, (size_t() - 1u) / 4u);
                    let low = mask(head, low_row, key4);
                    let high = mask(head, high_row, key4);
                    s[f * KEY_FRAGS + k * 2u] += vec4<f32>(low.xy, high.xy);
                    s[f * KEY_FRAGS + k * 2u + 1u] += vec4<f32>(low.zw, high.zw);
                }
            }
            if (CHECK_VISIBLE) {
                if (tile_start + KEY_TILE > fully_visible_end || tile_start < fully_visible_start) {
                    let row_ends = vec4<u32>(vec2<u32>(visible_end(low_row)), vec2<u32>(visible_end(high_row)));
                    let row_starts = vec4<u32>(vec2<u32>(visible_start(low_row)), vec2<u32>(visible_start(high_row)));
                    // unroll
                    for (var j = 0u; j < KEY_FRAGS; j++) {
                        let key = tile_start + j / 2u * 16u + j % 2u * 2u + t * 4u;
                        let key_vec4 = vec4<u32>(key, key + 1u, key, key + 1u);
                        s[f * KEY_FRAGS + j] = select(vec4<f32>(minus_infinity), s[f * KEY_FRAGS + j], (key_vec4 >= row_starts) & (key_vec4 < row_ends));
                    }
                }
            }
            var new_max = row_max[f];
            // unroll
            for (var j = 0u; j < KEY_FRAGS; j++) {
                let v = s[f * KEY_FRAGS + j];
                new_max = max(new_max, max(v.xz, v.yw));
            }
            if (subgroupAny(any(new_max > row_max[f] + vec2<f32>(MAX_EXCESS)))) {
                new_max = quad_max(new_max);
                let raise_max = new_max > row_max[f] + vec2<f32>(MAX_EXCESS);
                let factor = select(vec2<f32>(1.0), exp2((row_max[f] - new_max) * EXP2_SCALE), raise_max);
                sum[f] *= factor;
                row_max[f] = select(row_max[f], new_max, raise_max);
                // unroll
                for (var e = 0u; e < E8; e++) { acc[f * E8 + e] *= factor.xxyy; }
            }
            // unroll
            for (var j = 0u; j < KEY_FRAGS; j++) {
                let v = s[f * KEY_FRAGS + j];
                let low = softmax_weights(v.xy, row_max[f].x);
                let high = softmax_weights(v.zw, row_max[f].y);
                sum[f] += vec2<f32>(low.x + low.y, high.x + high.y);
                weights[f * KEY_FRAGS + j] = vec2<u32>(pack2x16float(low), pack2x16float(high));
            }
        }
        // unroll
        for (var k = 0u; k < KEY_STEPS; k++) {
            // unroll
            for (var e = 0u; e < E8; e++) {
                let v = tile_v[(key_group * KEY_STEPS + k) * STEP_V + e * PITCH_V + lane];
                // unroll
                for (var f = 0u; f < ROW_FRAGS; f++) {
                    let low = weights[f * KEY_FRAGS + k * 2u];
                    let high = weights[f * KEY_FRAGS + k * 2u + 1u];
                    acc[f * E8 + e] = multiply_fragments(local, vec4<u32>(low.x, high.x, low.y, high.y), v, acc[f * E8 + e]);
                }
            }
        }
    }
    // The first set of subgroups adds the sums of the other sets, one set after the other.
    let slot = local % (LANES * SUBGROUPS);
    for (var other = 1u; other < KEY_GROUPS; other++) {
        workgroupBarrier();
        if (key_group == other) {
            // unroll
            for (var f = 0u; f < ROW_FRAGS; f++) {
                let place = f * (E8 + 1u) * LANES * SUBGROUPS + slot;
                tile_k[place] = vec4<f32>(row_max[f], sum[f]);
                // unroll
                for (var e = 0u; e < E8; e++) { tile_k[place + (e + 1u) * LANES * SUBGROUPS] = acc[f * E8 + e]; }
            }
        }
        workgroupBarrier();
        if (key_group == 0u) {
            // unroll
            for (var f = 0u; f < ROW_FRAGS; f++) {
                let place = f * (E8 + 1u) * LANES * SUBGROUPS + slot;
                let stats = tile_k[place];
                let new_max = max(row_max[f], stats.xy);
                let own = exp2((row_max[f] - new_max) * EXP2_SCALE);
                let their = exp2((stats.xy - new_max) * EXP2_SCALE);
                row_max[f] = new_max;
                sum[f] = sum[f] * own + stats.zw * their;
                // unroll
                for (var e = 0u; e < E8; e++) { acc[f * E8 + e] = acc[f * E8 + e] * own.xxyy + tile_k[place + (e + 1u) * LANES * SUBGROUPS] * their.xxyy; }
            }
        }
    }
    if (key_group > 0u) { return; }
    // unroll
    for (var f = 0u; f < ROW_FRAGS; f++) {
        let total = quad_sum(sum[f]);
        // The result of a query that may see no keys is zero.
        var factor = select(1.0 / total, vec2<f32>(), total == vec2<f32>());
        // An invocation with an even t stores row g, its neighbor stores row g + 8.
        let odd = t % 2u == 1u;
        let at = first + f * FRAG_ROWS + select(0u, 8u, odd);
        if (KV_SPLIT > 1u) {
            factor = vec2<f32>(1.0);
            let natural_max = max(select(row_max[f].x, row_max[f].y, odd) * (EXP2_SCALE * LN_2), LOWEST);
            if (at <= last && t < 2u) { store_partial_stats((head * rows() + at) * KV_SPLIT + group.z, vec2<f32>(natural_max, select(total.x, total.y, odd))); }
        }
        // unroll
        for (var e = 0u; e < E8; e++) {
            let v = acc[f * E8 + e] * factor.xxyy;
            let received = subgroupShuffleXor(select(v.zw, v.xy, odd), 1u);
            let stored = select(vec4<f32>(v.xy, received), vec4<f32>(received, v.zw), odd);
            let e4 = e * 2u + t / 2u;
            if (at <= last && (E4 == E8 * 2u || e4 < E4)) {
                if (KV_SPLIT > 1u) { store_partial((head * rows() + at) * KV_SPLIT + group.z, e4, stored); } else { store(head, at, e4, stored); }
            }
        }
    }
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    attend(group, local);
}
