// @generated for attention/2 f16: attention_coop SUBGROUPS=4 ROW_FRAGS=1 KEY_FRAGS=5 KV_SPLIT=1
enable wgpu_cooperative_matrix;
const LANES = 32u;
const SIDE_M = 16u;
const SIDE_N = 16u;
const SIDE_K = 16u;
alias MatrixA = coop_mat16x16<f32, A>;
alias MatrixB = coop_mat16x16<f32, B>;
alias MatrixC = coop_mat16x16<f32, C>;
const SUBGROUPS = 4u;
const ROW_FRAGS = 1u;
const KEY_FRAGS = 5u;
const D8 = 3u;
const E8 = 3u;
const E4 = 5u;
const DEPTH_FRAGS = 2u;
const VALUE_FRAGS = 2u;
const STAGED_FRAGS = 2u;
const KV_SPLIT = 1u;
fn scale() -> f32 { return f32(0.43280852); }
const EXP2_SCALE = 1.0;
const CHECK_VISIBLE = true;
const MASKED = false;
const MAX_EXCESS = 8.0 / EXP2_SCALE;
const LOWEST = -3.4028234e38;
const LN_2 = 0.6931471805599453;
const THREADS = SUBGROUPS * LANES;
const KEY_TILE = KEY_FRAGS * SIDE_N;
const ROW_LANES = LANES / SIDE_M;
const LANE_VEC8S = KEY_TILE / 8u / ROW_LANES;
const STEPS = KEY_TILE / SIDE_K;
const S8 = SIDE_N / 8u;
const S4 = SIDE_N / 4u;
const K8 = SIDE_K / 8u;
const DEPTH_VEC8S = DEPTH_FRAGS * K8;
const PITCH_K = DEPTH_VEC8S + 1u;
const PITCH_V = VALUE_FRAGS * S8 + 1u;
const PITCH_S = KEY_TILE / 4u + 1u;
const SIZE_K = KEY_TILE * PITCH_K;
const SIZE_V = KEY_TILE * PITCH_V;
const SIZE_S = 336u;
const VEC8S_Q = SIDE_M * DEPTH_VEC8S;
const VEC8S_K = KEY_TILE * D8;
const VEC8S_V = KEY_TILE * E8;
const LOADS_Q = (VEC8S_Q + LANES - 1u) / LANES;
const LOADS_K = (VEC8S_K + THREADS - 1u) / THREADS;
const LOADS_V = (VEC8S_V + THREADS - 1u) / THREADS;
const_assert LANES % SIDE_M == 0u && KEY_TILE % (8u * ROW_LANES) == 0u && KEY_TILE % SIDE_K == 0u && VALUE_FRAGS % STAGED_FRAGS == 0u;
const_assert STAGED_FRAGS <= KEY_FRAGS && SIZE_S >= SIDE_M * PITCH_S && SIZE_S >= SIDE_M * PITCH_K;
fn rows() -> u32 { return 70u; }
fn size_t() -> u32 { return 77u; }
fn visible_end(row: u32) -> u32 { return size_t(); }
fn visible_start(row: u32) -> u32 { return 0u; }
fn load_q_vec4(head: u32, row: u32, d8: u32) -> vec2<f32> {
    let b = head / 2u;
    let hk = head % 2u;
    let h = hk * 1u + row % 1u;
    let s = row / 1u;
    return buffer_0[(h) * 350u + (s) * 5u + (d8)];
}
fn load_q(head: u32, row: u32, d8: u32) -> vec4<f32> {
    return vec4<f32>(load_q_vec4(head, row, d8 * 2u), select(vec2<f32>(), load_q_vec4(head, row, min(d8 * 2u + 1u, 5u - 1u)), d8 * 2u + 1u < 5u));
}
fn load_k_vec4(head: u32, key: u32, d8: u32) -> vec2<f32> {
    let b = head / 2u;
    let hk = head % 2u;
    return buffer_1[(hk) * 385u + (key) * 5u + (d8)];
}
fn load_k(head: u32, key: u32, d8: u32) -> vec4<f32> {
    return vec4<f32>(load_k_vec4(head, key, d8 * 2u), select(vec2<f32>(), load_k_vec4(head, key, min(d8 * 2u + 1u, 5u - 1u)), d8 * 2u + 1u < 5u));
}
fn load_v_vec4(head: u32, key: u32, e8: u32) -> vec2<f32> {
    let b = head / 2u;
    let hk = head % 2u;
    return buffer_2[(hk) * 385u + (key) * 5u + (e8)];
}
fn load_v(head: u32, key: u32, e8: u32) -> vec4<f32> {
    return vec4<f32>(load_v_vec4(head, key, e8 * 2u), select(vec2<f32>(), load_v_vec4(head, key, min(e8 * 2u + 1u, 5u - 1u)), e8 * 2u + 1u < 5u));
}
fn capped(score: vec4<f32>) -> vec4<f32> { return score; }
fn mask(head: u32, row: u32, key4: u32) -> vec4<f32> { return vec4<f32>(); }
fn store(head: u32, row: u32, e4: u32, v: vec4<f32>) {
    let b = head / 2u;
    let hk = head % 2u;
    let h = hk * 1u + row % 1u;
    let s = row / 1u;
    var w = vec4<f32>(v);
    buffer_3[(h) * 350u + (s) * 5u + (e4)] = w;
}
fn store_partial(at: u32, e4: u32, v: vec4<f32>) {}
fn store_partial_stats(at: u32, v: vec2<f32>) {}
var<workgroup> tile_k: array<vec4<f32>, SIZE_K>;
var<workgroup> tile_v: array<vec4<f32>, SIZE_V>;
var<workgroup> scores: array<vec4<f32>, SUBGROUPS * SIZE_S>;
fn tile_load_k(head: u32, base: u32, i: u32) -> vec4<f32> {
    return load_k(head, min(base + i / D8, size_t() - 1u), i % D8);
}
fn tile_load_v(head: u32, base: u32, i: u32) -> vec4<f32> {
    return load_v(head, min(base + i / E8, size_t() - 1u), i % E8);
}
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
    let row = lane % SIDE_M;
    let row_part = lane / SIDE_M;
    let row_start = subgroup_start + row * PITCH_S;
    let minus_infinity = bitcast<f32>(0xff800000u);
    var q: array<MatrixA, ROW_FRAGS * DEPTH_FRAGS>;
    {
        var next_q: array<vec4<f32>, LOADS_Q>;
        {
            let unit = min(lane + 0u * LANES, VEC8S_Q - 1u);
            let at = min(first + 0u * SIDE_M + unit / DEPTH_VEC8S, last);
            let v = load_q(head, at, min(unit % DEPTH_VEC8S, D8 - 1u));
            next_q[0u] = select(v, vec4<f32>(), unit % DEPTH_VEC8S >= D8);
        }
{
            let unit = min(lane + 1u * LANES, VEC8S_Q - 1u);
            let at = min(first + 0u * SIDE_M + unit / DEPTH_VEC8S, last);
            let v = load_q(head, at, min(unit % DEPTH_VEC8S, D8 - 1u));
            next_q[1u] = select(v, vec4<f32>(), unit % DEPTH_VEC8S >= D8);
        }
        {
            let unit = lane + 0u * LANES;
            if (VEC8S_Q % LANES == 0u || unit < VEC8S_Q) { scores[subgroup_start + unit / DEPTH_VEC8S * PITCH_K + unit % DEPTH_VEC8S] = next_q[0u]; }
        }
{
            let unit = lane + 1u * LANES;
            if (VEC8S_Q % LANES == 0u || unit < VEC8S_Q) { scores[subgroup_start + unit / DEPTH_VEC8S * PITCH_K + unit % DEPTH_VEC8S] = next_q[1u]; }
        }
        subgroupBarrier();
        {
            let at = subgroup_start + 0u * K8;
            q[0u * DEPTH_FRAGS + 0u] = coopLoadT<MatrixA>(&scores[at], PITCH_K);
        }
{
            let at = subgroup_start + 1u * K8;
            q[0u * DEPTH_FRAGS + 1u] = coopLoadT<MatrixA>(&scores[at], PITCH_K);
        }
        subgroupBarrier();
    }
    for (var i = local; i < SIZE_K; i += THREADS) { tile_k[i] = vec4<f32>(); }
    var acc: array<MatrixC, ROW_FRAGS * VALUE_FRAGS>;
    { acc[0u] = MatrixC(); }
{ acc[1u] = MatrixC(); }
    var row_max: array<f32, ROW_FRAGS>;
    var sum: array<f32, ROW_FRAGS>;
    {
        row_max[0u] = LOWEST;
        sum[0u] = 0.0;
    }
    let group_first = group.x * (SUBGROUPS * ROW_FRAGS * SIDE_M);
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
    { next_k[0u] = tile_load_k(head, start, min(local + 0u * THREADS, VEC8S_K - 1u)); }
{ next_k[1u] = tile_load_k(head, start, min(local + 1u * THREADS, VEC8S_K - 1u)); }
    { next_v[0u] = tile_load_v(head, start, min(local + 0u * THREADS, VEC8S_V - 1u)); }
{ next_v[1u] = tile_load_v(head, start, min(local + 1u * THREADS, VEC8S_V - 1u)); }
    for (var base = start; base < end; base += KV_SPLIT * KEY_TILE) {
        workgroupBarrier();
        {
            let unit = local + 0u * THREADS;
            if (VEC8S_K % THREADS == 0u || unit < VEC8S_K) { tile_k[unit / D8 * PITCH_K + unit % D8] = next_k[0u]; }
        }
{
            let unit = local + 1u * THREADS;
            if (VEC8S_K % THREADS == 0u || unit < VEC8S_K) { tile_k[unit / D8 * PITCH_K + unit % D8] = next_k[1u]; }
        }
        {
            let unit = local + 0u * THREADS;
            if (VEC8S_V % THREADS == 0u || unit < VEC8S_V) { tile_v[unit / E8 * PITCH_V + unit % E8] = next_v[0u]; }
        }
{
            let unit = local + 1u * THREADS;
            if (VEC8S_V % THREADS == 0u || unit < VEC8S_V) { tile_v[unit / E8 * PITCH_V + unit % E8] = next_v[1u]; }
        }
        workgroupBarrier();
        let next_base = select(base, base + KV_SPLIT * KEY_TILE, base + KV_SPLIT * KEY_TILE < end);
        { next_k[0u] = tile_load_k(head, next_base, min(local + 0u * THREADS, VEC8S_K - 1u)); }
{ next_k[1u] = tile_load_k(head, next_base, min(local + 1u * THREADS, VEC8S_K - 1u)); }
        { next_v[0u] = tile_load_v(head, next_base, min(local + 0u * THREADS, VEC8S_V - 1u)); }
{ next_v[1u] = tile_load_v(head, next_base, min(local + 1u * THREADS, VEC8S_V - 1u)); }
        var s: array<MatrixC, ROW_FRAGS * KEY_FRAGS>;
        {
            { s[0u * KEY_FRAGS + 0u] = MatrixC(); }
            {
                let at = 0u * (SIDE_N * PITCH_K) + 0u * K8;
                let b = coopLoad<MatrixB>(&tile_k[at], PITCH_K);
                { s[0u * KEY_FRAGS + 0u] = coopMultiplyAdd(q[0u * DEPTH_FRAGS + 0u], b, s[0u * KEY_FRAGS + 0u]); }
            }
{
                let at = 0u * (SIDE_N * PITCH_K) + 1u * K8;
                let b = coopLoad<MatrixB>(&tile_k[at], PITCH_K);
                { s[0u * KEY_FRAGS + 0u] = coopMultiplyAdd(q[0u * DEPTH_FRAGS + 1u], b, s[0u * KEY_FRAGS + 0u]); }
            }
        }
{
            { s[0u * KEY_FRAGS + 1u] = MatrixC(); }
            {
                let at = 1u * (SIDE_N * PITCH_K) + 0u * K8;
                let b = coopLoad<MatrixB>(&tile_k[at], PITCH_K);
                { s[0u * KEY_FRAGS + 1u] = coopMultiplyAdd(q[0u * DEPTH_FRAGS + 0u], b, s[0u * KEY_FRAGS + 1u]); }
            }
{
                let at = 1u * (SIDE_N * PITCH_K) + 1u * K8;
                let b = coopLoad<MatrixB>(&tile_k[at], PITCH_K);
                { s[0u * KEY_FRAGS + 1u] = coopMultiplyAdd(q[0u * DEPTH_FRAGS + 1u], b, s[0u * KEY_FRAGS + 1u]); }
            }
        }
{
            { s[0u * KEY_FRAGS + 2u] = MatrixC(); }
            {
                let at = 2u * (SIDE_N * PITCH_K) + 0u * K8;
                let b = coopLoad<MatrixB>(&tile_k[at], PITCH_K);
                { s[0u * KEY_FRAGS + 2u] = coopMultiplyAdd(q[0u * DEPTH_FRAGS + 0u], b, s[0u * KEY_FRAGS + 2u]); }
            }
{
                let at = 2u * (SIDE_N * PITCH_K) + 1u * K8;
                let b = coopLoad<MatrixB>(&tile_k[at], PITCH_K);
                { s[0u * KEY_FRAGS + 2u] = coopMultiplyAdd(q[0u * DEPTH_FRAGS + 1u], b, s[0u * KEY_FRAGS + 2u]); }
            }
        }
{
            { s[0u * KEY_FRAGS + 3u] = MatrixC(); }
            {
                let at = 3u * (SIDE_N * PITCH_K) + 0u * K8;
                let b = coopLoad<MatrixB>(&tile_k[at], PITCH_K);
                { s[0u * KEY_FRAGS + 3u] = coopMultiplyAdd(q[0u * DEPTH_FRAGS + 0u], b, s[0u * KEY_FRAGS + 3u]); }
            }
{
                let at = 3u * (SIDE_N * PITCH_K) + 1u * K8;
                let b = coopLoad<MatrixB>(&tile_k[at], PITCH_K);
                { s[0u * KEY_FRAGS + 3u] = coopMultiplyAdd(q[0u * DEPTH_FRAGS + 1u], b, s[0u * KEY_FRAGS + 3u]); }
            }
        }
{
            { s[0u * KEY_FRAGS + 4u] = MatrixC(); }
            {
                let at = 4u * (SIDE_N * PITCH_K) + 0u * K8;
                let b = coopLoad<MatrixB>(&tile_k[at], PITCH_K);
                { s[0u * KEY_FRAGS + 4u] = coopMultiplyAdd(q[0u * DEPTH_FRAGS + 0u], b, s[0u * KEY_FRAGS + 4u]); }
            }
{
                let at = 4u * (SIDE_N * PITCH_K) + 1u * K8;
                let b = coopLoad<MatrixB>(&tile_k[at], PITCH_K);
                { s[0u * KEY_FRAGS + 4u] = coopMultiplyAdd(q[0u * DEPTH_FRAGS + 1u], b, s[0u * KEY_FRAGS + 4u]); }
            }
        }
        var weights: array<MatrixA, ROW_FRAGS * STEPS>;
        {
            let at = min(first + 0u * SIDE_M + row, last);
            {
                let to = subgroup_start + 0u * S4;
                let score_fragment = s[0u * KEY_FRAGS + 0u];
                coopStoreT(score_fragment, &scores[to], PITCH_S);
            }
{
                let to = subgroup_start + 1u * S4;
                let score_fragment = s[0u * KEY_FRAGS + 1u];
                coopStoreT(score_fragment, &scores[to], PITCH_S);
            }
{
                let to = subgroup_start + 2u * S4;
                let score_fragment = s[0u * KEY_FRAGS + 2u];
                coopStoreT(score_fragment, &scores[to], PITCH_S);
            }
{
                let to = subgroup_start + 3u * S4;
                let score_fragment = s[0u * KEY_FRAGS + 3u];
                coopStoreT(score_fragment, &scores[to], PITCH_S);
            }
{
                let to = subgroup_start + 4u * S4;
                let score_fragment = s[0u * KEY_FRAGS + 4u];
                coopStoreT(score_fragment, &scores[to], PITCH_S);
            }
            subgroupBarrier();
            var v: array<vec4<f32>, 2u * LANE_VEC8S>;
            {
                v[0u] = capped(scores[row_start + (0u / 2u * ROW_LANES + row_part) * 2u + 0u % 2u] * scale());
            }
{
                v[1u] = capped(scores[row_start + (1u / 2u * ROW_LANES + row_part) * 2u + 1u % 2u] * scale());
            }
{
                v[2u] = capped(scores[row_start + (2u / 2u * ROW_LANES + row_part) * 2u + 2u % 2u] * scale());
            }
{
                v[3u] = capped(scores[row_start + (3u / 2u * ROW_LANES + row_part) * 2u + 3u % 2u] * scale());
            }
{
                v[4u] = capped(scores[row_start + (4u / 2u * ROW_LANES + row_part) * 2u + 4u % 2u] * scale());
            }
{
                v[5u] = capped(scores[row_start + (5u / 2u * ROW_LANES + row_part) * 2u + 5u % 2u] * scale());
            }
{
                v[6u] = capped(scores[row_start + (6u / 2u * ROW_LANES + row_part) * 2u + 6u % 2u] * scale());
            }
{
                v[7u] = capped(scores[row_start + (7u / 2u * ROW_LANES + row_part) * 2u + 7u % 2u] * scale());
            }
{
                v[8u] = capped(scores[row_start + (8u / 2u * ROW_LANES + row_part) * 2u + 8u % 2u] * scale());
            }
{
                v[9u] = capped(scores[row_start + (9u / 2u * ROW_LANES + row_part) * 2u + 9u % 2u] * scale());
            }
            subgroupBarrier();
            if (MASKED) {
                {
                    let key4 = base / 4u + (0u / 2u * ROW_LANES + row_part) * 2u + 0u % 2u;
                    v[0u] += mask(head, at, min(key4, (size_t() - 1u) / 4u));
                }
{
                    let key4 = base / 4u + (1u / 2u * ROW_LANES + row_part) * 2u + 1u % 2u;
                    v[1u] += mask(head, at, min(key4, (size_t() - 1u) / 4u));
                }
{
                    let key4 = base / 4u + (2u / 2u * ROW_LANES + row_part) * 2u + 2u % 2u;
                    v[2u] += mask(head, at, min(key4, (size_t() - 1u) / 4u));
                }
{
                    let key4 = base / 4u + (3u / 2u * ROW_LANES + row_part) * 2u + 3u % 2u;
                    v[3u] += mask(head, at, min(key4, (size_t() - 1u) / 4u));
                }
{
                    let key4 = base / 4u + (4u / 2u * ROW_LANES + row_part) * 2u + 4u % 2u;
                    v[4u] += mask(head, at, min(key4, (size_t() - 1u) / 4u));
                }
{
                    let key4 = base / 4u + (5u / 2u * ROW_LANES + row_part) * 2u + 5u % 2u;
                    v[5u] += mask(head, at, min(key4, (size_t() - 1u) / 4u));
                }
{
                    let key4 = base / 4u + (6u / 2u * ROW_LANES + row_part) * 2u + 6u % 2u;
                    v[6u] += mask(head, at, min(key4, (size_t() - 1u) / 4u));
                }
{
                    let key4 = base / 4u + (7u / 2u * ROW_LANES + row_part) * 2u + 7u % 2u;
                    v[7u] += mask(head, at, min(key4, (size_t() - 1u) / 4u));
                }
{
                    let key4 = base / 4u + (8u / 2u * ROW_LANES + row_part) * 2u + 8u % 2u;
                    v[8u] += mask(head, at, min(key4, (size_t() - 1u) / 4u));
                }
{
                    let key4 = base / 4u + (9u / 2u * ROW_LANES + row_part) * 2u + 9u % 2u;
                    v[9u] += mask(head, at, min(key4, (size_t() - 1u) / 4u));
                }
            }
            if (CHECK_VISIBLE) {
                if (base + KEY_TILE > fully_visible_end || base < fully_visible_start) {
                    let row_end = visible_end(at);
                    let row_first = visible_start(at);
                    {
                        let key = base + (0u / 2u * ROW_LANES + row_part) * 8u + 0u % 2u * 4u;
                        let key_vec4 = vec4<u32>(key, key + 1u, key + 2u, key + 3u);
                        v[0u] = select(vec4<f32>(minus_infinity), v[0u], (key_vec4 >= vec4<u32>(row_first)) & (key_vec4 < vec4<u32>(row_end)));
                    }
{
                        let key = base + (1u / 2u * ROW_LANES + row_part) * 8u + 1u % 2u * 4u;
                        let key_vec4 = vec4<u32>(key, key + 1u, key + 2u, key + 3u);
                        v[1u] = select(vec4<f32>(minus_infinity), v[1u], (key_vec4 >= vec4<u32>(row_first)) & (key_vec4 < vec4<u32>(row_end)));
                    }
{
                        let key = base + (2u / 2u * ROW_LANES + row_part) * 8u + 2u % 2u * 4u;
                        let key_vec4 = vec4<u32>(key, key + 1u, key + 2u, key + 3u);
                        v[2u] = select(vec4<f32>(minus_infinity), v[2u], (key_vec4 >= vec4<u32>(row_first)) & (key_vec4 < vec4<u32>(row_end)));
                    }
{
                        let key = base + (3u / 2u * ROW_LANES + row_part) * 8u + 3u % 2u * 4u;
                        let key_vec4 = vec4<u32>(key, key + 1u, key + 2u, key + 3u);
                        v[3u] = select(vec4<f32>(minus_infinity), v[3u], (key_vec4 >= vec4<u32>(row_first)) & (key_vec4 < vec4<u32>(row_end)));
                    }
{
                        let key = base + (4u / 2u * ROW_LANES + row_part) * 8u + 4u % 2u * 4u;
                        let key_vec4 = vec4<u32>(key, key + 1u, key + 2u, key + 3u);
                        v[4u] = select(vec4<f32>(minus_infinity), v[4u], (key_vec4 >= vec4<u32>(row_first)) & (key_vec4 < vec4<u32>(row_end)));
                    }
{
                        let key = base + (5u / 2u * ROW_LANES + row_part) * 8u + 5u % 2u * 4u;
                        let key_vec4 = vec4<u32>(key, key + 1u, key + 2u, key + 3u);
                        v[5u] = select(vec4<f32>(minus_infinity), v[5u], (key_vec4 >= vec4<u32>(row_first)) & (key_vec4 < vec4<u32>(row_end)));
                    }
{
                        let key = base + (6u / 2u * ROW_LANES + row_part) * 8u + 6u % 2u * 4u;
                        let key_vec4 = vec4<u32>(key, key + 1u, key + 2u, key + 3u);
                        v[6u] = select(vec4<f32>(minus_infinity), v[6u], (key_vec4 >= vec4<u32>(row_first)) & (key_vec4 < vec4<u32>(row_end)));
                    }
{
                        let key = base + (7u / 2u * ROW_LANES + row_part) * 8u + 7u % 2u * 4u;
                        let key_vec4 = vec4<u32>(key, key + 1u, key + 2u, key + 3u);
                        v[7u] = select(vec4<f32>(minus_infinity), v[7u], (key_vec4 >= vec4<u32>(row_first)) & (key_vec4 < vec4<u32>(row_end)));
                    }
{
                        let key = base + (8u / 2u * ROW_LANES + row_part) * 8u + 8u % 2u * 4u;
                        let key_vec4 = vec4<u32>(key, key + 1u, key + 2u, key + 3u);
                        v[8u] = select(vec4<f32>(minus_infinity), v[8u], (key_vec4 >= vec4<u32>(row_first)) & (key_vec4 < vec4<u32>(row_end)));
                    }
{
                        let key = base + (9u / 2u * ROW_LANES + row_part) * 8u + 9u % 2u * 4u;
                        let key_vec4 = vec4<u32>(key, key + 1u, key + 2u, key + 3u);
                        v[9u] = select(vec4<f32>(minus_infinity), v[9u], (key_vec4 >= vec4<u32>(row_first)) & (key_vec4 < vec4<u32>(row_end)));
                    }
                }
            }
            var new_max = row_max[0u];
            { new_max = max(new_max, max_component(v[0u])); }
{ new_max = max(new_max, max_component(v[1u])); }
{ new_max = max(new_max, max_component(v[2u])); }
{ new_max = max(new_max, max_component(v[3u])); }
{ new_max = max(new_max, max_component(v[4u])); }
{ new_max = max(new_max, max_component(v[5u])); }
{ new_max = max(new_max, max_component(v[6u])); }
{ new_max = max(new_max, max_component(v[7u])); }
{ new_max = max(new_max, max_component(v[8u])); }
{ new_max = max(new_max, max_component(v[9u])); }
            for (var distance = SIDE_M; distance < LANES; distance *= 2u) { new_max = max(new_max, subgroupShuffleXor(new_max, distance)); }
            loop {
                let raise_max = new_max > row_max[0u] + MAX_EXCESS;
                if (!any_lane(raise_max)) { break; }
                let factor = select(1.0, exp2((row_max[0u] - new_max) * EXP2_SCALE), raise_max);
                sum[0u] *= factor;
                row_max[0u] = select(row_max[0u], new_max, raise_max);
                if (base == start) { break; }
                {
                    {
                        let to = subgroup_start + 0u * S4;
                        let sum_fragment = acc[0u * VALUE_FRAGS + 0u + 0u];
                        coopStoreT(sum_fragment, &scores[to], PITCH_S);
                    }
{
                        let to = subgroup_start + 1u * S4;
                        let sum_fragment = acc[0u * VALUE_FRAGS + 0u + 1u];
                        coopStoreT(sum_fragment, &scores[to], PITCH_S);
                    }
                    subgroupBarrier();
                    for (var i = row_part; i < STAGED_FRAGS * S4; i += ROW_LANES) { scores[row_start + i] *= factor; }
                    subgroupBarrier();
                    {
                        let start = subgroup_start + 0u * S4;
                        acc[0u * VALUE_FRAGS + 0u + 0u] = coopLoadT<MatrixC>(&scores[start], PITCH_S);
                    }
{
                        let start = subgroup_start + 1u * S4;
                        acc[0u * VALUE_FRAGS + 0u + 1u] = coopLoadT<MatrixC>(&scores[start], PITCH_S);
                    }
                    subgroupBarrier();
                }
                break;
            }
            {
                let low = exp2((v[0u * 2u] - row_max[0u]) * EXP2_SCALE);
                let high = exp2((v[0u * 2u + 1u] - row_max[0u]) * EXP2_SCALE);
                sum[0u] += dot(low + high, vec4<f32>(1.0));
                scores[row_start + 0u * ROW_LANES + row_part] = vec4<f32>(pack_f16(low.xy), pack_f16(low.zw), pack_f16(high.xy), pack_f16(high.zw));
            }
{
                let low = exp2((v[1u * 2u] - row_max[0u]) * EXP2_SCALE);
                let high = exp2((v[1u * 2u + 1u] - row_max[0u]) * EXP2_SCALE);
                sum[0u] += dot(low + high, vec4<f32>(1.0));
                scores[row_start + 1u * ROW_LANES + row_part] = vec4<f32>(pack_f16(low.xy), pack_f16(low.zw), pack_f16(high.xy), pack_f16(high.zw));
            }
{
                let low = exp2((v[2u * 2u] - row_max[0u]) * EXP2_SCALE);
                let high = exp2((v[2u * 2u + 1u] - row_max[0u]) * EXP2_SCALE);
                sum[0u] += dot(low + high, vec4<f32>(1.0));
                scores[row_start + 2u * ROW_LANES + row_part] = vec4<f32>(pack_f16(low.xy), pack_f16(low.zw), pack_f16(high.xy), pack_f16(high.zw));
            }
{
                let low = exp2((v[3u * 2u] - row_max[0u]) * EXP2_SCALE);
                let high = exp2((v[3u * 2u + 1u] - row_max[0u]) * EXP2_SCALE);
                sum[0u] += dot(low + high, vec4<f32>(1.0));
                scores[row_start + 3u * ROW_LANES + row_part] = vec4<f32>(pack_f16(low.xy), pack_f16(low.zw), pack_f16(high.xy), pack_f16(high.zw));
            }
{
                let low = exp2((v[4u * 2u] - row_max[0u]) * EXP2_SCALE);
                let high = exp2((v[4u * 2u + 1u] - row_max[0u]) * EXP2_SCALE);
                sum[0u] += dot(low + high, vec4<f32>(1.0));
                scores[row_start + 4u * ROW_LANES + row_part] = vec4<f32>(pack_f16(low.xy), pack_f16(low.zw), pack_f16(high.xy), pack_f16(high.zw));
            }
            subgroupBarrier();
            {
                let start = subgroup_start + 0u * K8;
                weights[0u * STEPS + 0u] = coopLoadT<MatrixA>(&scores[start], PITCH_S);
            }
{
                let start = subgroup_start + 1u * K8;
                weights[0u * STEPS + 1u] = coopLoadT<MatrixA>(&scores[start], PITCH_S);
            }
{
                let start = subgroup_start + 2u * K8;
                weights[0u * STEPS + 2u] = coopLoadT<MatrixA>(&scores[start], PITCH_S);
            }
{
                let start = subgroup_start + 3u * K8;
                weights[0u * STEPS + 3u] = coopLoadT<MatrixA>(&scores[start], PITCH_S);
            }
{
                let start = subgroup_start + 4u * K8;
                weights[0u * STEPS + 4u] = coopLoadT<MatrixA>(&scores[start], PITCH_S);
            }
            subgroupBarrier();
        }
        {
            {
                let at = 0u * (SIDE_K * PITCH_V) + 0u * S8;
                let b = coopLoadT<MatrixB>(&tile_v[at], PITCH_V);
                {
                    acc[0u * VALUE_FRAGS + 0u] = coopMultiplyAdd(weights[0u * STEPS + 0u], b, acc[0u * VALUE_FRAGS + 0u]);
                }
            }
{
                let at = 0u * (SIDE_K * PITCH_V) + 1u * S8;
                let b = coopLoadT<MatrixB>(&tile_v[at], PITCH_V);
                {
                    acc[0u * VALUE_FRAGS + 1u] = coopMultiplyAdd(weights[0u * STEPS + 0u], b, acc[0u * VALUE_FRAGS + 1u]);
                }
            }
        }
{
            {
                let at = 1u * (SIDE_K * PITCH_V) + 0u * S8;
                let b = coopLoadT<MatrixB>(&tile_v[at], PITCH_V);
                {
                    acc[0u * VALUE_FRAGS + 0u] = coopMultiplyAdd(weights[0u * STEPS + 1u], b, acc[0u * VALUE_FRAGS + 0u]);
                }
            }
{
                let at = 1u * (SIDE_K * PITCH_V) + 1u * S8;
                let b = coopLoadT<MatrixB>(&tile_v[at], PITCH_V);
                {
                    acc[0u * VALUE_FRAGS + 1u] = coopMultiplyAdd(weights[0u * STEPS + 1u], b, acc[0u * VALUE_FRAGS + 1u]);
                }
            }
        }
{
            {
                let at = 2u * (SIDE_K * PITCH_V) + 0u * S8;
                let b = coopLoadT<MatrixB>(&tile_v[at], PITCH_V);
                {
                    acc[0u * VALUE_FRAGS + 0u] = coopMultiplyAdd(weights[0u * STEPS + 2u], b, acc[0u * VALUE_FRAGS + 0u]);
                }
            }
{
                let at = 2u * (SIDE_K * PITCH_V) + 1u * S8;
                let b = coopLoadT<MatrixB>(&tile_v[at], PITCH_V);
                {
                    acc[0u * VALUE_FRAGS + 1u] = coopMultiplyAdd(weights[0u * STEPS + 2u], b, acc[0u * VALUE_FRAGS + 1u]);
                }
            }
        }
{
            {
                let at = 3u * (SIDE_K * PITCH_V) + 0u * S8;
                let b = coopLoadT<MatrixB>(&tile_v[at], PITCH_V);
                {
                    acc[0u * VALUE_FRAGS + 0u] = coopMultiplyAdd(weights[0u * STEPS + 3u], b, acc[0u * VALUE_FRAGS + 0u]);
                }
            }
{
                let at = 3u * (SIDE_K * PITCH_V) + 1u * S8;
                let b = coopLoadT<MatrixB>(&tile_v[at], PITCH_V);
                {
                    acc[0u * VALUE_FRAGS + 1u] = coopMultiplyAdd(weights[0u * STEPS + 3u], b, acc[0u * VALUE_FRAGS + 1u]);
                }
            }
        }
{
            {
                let at = 4u * (SIDE_K * PITCH_V) + 0u * S8;
                let b = coopLoadT<MatrixB>(&tile_v[at], PITCH_V);
                {
                    acc[0u * VALUE_FRAGS + 0u] = coopMultiplyAdd(weights[0u * STEPS + 4u], b, acc[0u * VALUE_FRAGS + 0u]);
                }
            }
{
                let at = 4u * (SIDE_K * PITCH_V) + 1u * S8;
                let b = coopLoadT<MatrixB>(&tile_v[at], PITCH_V);
                {
                    acc[0u * VALUE_FRAGS + 1u] = coopMultiplyAdd(weights[0u * STEPS + 4u], b, acc[0u * VALUE_FRAGS + 1u]);
                }
            }
        }
    }
    {
        var total = sum[0u];
        for (var distance = SIDE_M; distance < LANES; distance *= 2u) { total += subgroupShuffleXor(total, distance); }
        if (row_part == 0u) {
            var factor = select(1.0 / total, 0.0, total == 0.0);
            if (KV_SPLIT > 1u) {
                factor = 1.0;
                let at = first + 0u * SIDE_M + row;
                let natural_max = max(row_max[0u] * (EXP2_SCALE * LN_2), LOWEST);
                if (at <= last) { store_partial_stats((head * rows() + at) * KV_SPLIT + group.z, vec2<f32>(natural_max, total)); }
            }
            scores[row_start + PITCH_S - 1u] = vec4<f32>(factor);
        }
        {
            {
                let to = subgroup_start + 0u * S4;
                let result_fragment = acc[0u * VALUE_FRAGS + 0u + 0u];
                coopStoreT(result_fragment, &scores[to], PITCH_S);
            }
{
                let to = subgroup_start + 1u * S4;
                let result_fragment = acc[0u * VALUE_FRAGS + 0u + 1u];
                coopStoreT(result_fragment, &scores[to], PITCH_S);
            }
            subgroupBarrier();
            for (var u = lane; u < SIDE_M * STAGED_FRAGS * S4; u += LANES) {
                let start = subgroup_start + u / (STAGED_FRAGS * S4) * PITCH_S;
                let at = first + 0u * SIDE_M + u / (STAGED_FRAGS * S4);
                let e4 = 0u * S4 + u % (STAGED_FRAGS * S4);
                if (at <= last && e4 < E4) {
                    let v = scores[start + u % (STAGED_FRAGS * S4)] * scores[start + PITCH_S - 1u].x;
                    if (KV_SPLIT > 1u) { store_partial((head * rows() + at) * KV_SPLIT + group.z, e4, v); } else { store(head, at, e4, v); }
                }
            }
            subgroupBarrier();
        }
    }
}
@group(0) @binding(0) var<storage, read> buffer_0: array<vec2<f32>>;
@group(0) @binding(1) var<storage, read> buffer_1: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read> buffer_2: array<vec2<f32>>;
@group(0) @binding(3) var<storage, read_write> buffer_3: array<vec4<f32>>;
