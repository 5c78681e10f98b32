// @generated for attention/2 f16: attention_fragments SUBGROUPS=2 ROW_FRAGS=1 KEY_TILE=32 KEY_GROUPS=4 KV_SPLIT=1
enable wgpu_cooperative_matrix;
const LANES = 32u;
const SUBGROUPS = 2u;
const ROW_FRAGS = 1u;
const KEY_TILE = 32u;
const KEY_GROUPS = 4u;
const D8 = 3u;
const E8 = 3u;
const E4 = 5u;
const KV_SPLIT = 1u;
fn scale() -> f32 { return f32(1.0); }
const EXP2_SCALE = 0.43280852;
const CHECK_VISIBLE = true;
const MASKED = false;
const MAX_EXCESS = 8.0 / EXP2_SCALE;
const FIRST_MAX = -1e30;
const LOWEST = -3.4028234e38;
const LN_2 = 0.6931471805599453;
const THREADS = SUBGROUPS * KEY_GROUPS * LANES;
const STEP_KEYS = KEY_TILE * KEY_GROUPS;
const FRAG_ROWS = 16u;
const KEY_FRAGS = KEY_TILE / 8u;
const KEY_STEPS = KEY_TILE / 16u;
const D32 = 1u;
const D16 = 0u;
const DEPTH_STEPS = D32 * 2u + D16;
const PITCH_K = (D32 * 4u + D16 * 2u + 3u) / 8u * 8u + 4u;
const PITCH_V = 36u;
const STEP_V = E8 * PITCH_V;
const SIZE_K = STEP_KEYS * PITCH_K;
const SIZE_V = KEY_GROUPS * KEY_STEPS * STEP_V;
const VEC8S_K = STEP_KEYS * D8;
const BLOCKS_V = STEP_KEYS / 4u * E8;
const LOADS_K = (VEC8S_K + THREADS - 1u) / THREADS;
const LOADS_V = (BLOCKS_V + THREADS - 1u) / THREADS;
const SIZE_SUMS = SUBGROUPS * LANES * ROW_FRAGS * (E8 + 1u);
const_assert KEY_GROUPS == 1u || (KV_SPLIT == 1u && SIZE_SUMS <= SIZE_K);
const_assert LANES == 32u && KEY_TILE % 16u == 0u && D32 * 4u + D16 * 2u >= D8 && D16 <= 1u;
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
fn multiply_fragments(local: u32, a: vec4<u32>, b: vec2<u32>, c: vec4<f32>) -> vec4<f32> {
    let d = coopMultiplyAdd(coop_mat16x16<f32, A>(), coop_mat16x16<f32, B>(), coop_mat16x16<f32, C>());
    return c;
}
var<workgroup> tile_k: array<vec4<f32>, SIZE_K>;
var<workgroup> tile_v: array<vec2<u32>, SIZE_V>;
fn tile_load_k(head: u32, base: u32, i: u32) -> vec4<f32> {
    return load_k(head, min(base + i / D8, size_t() - 1u), i % D8);
}
fn block_key(i: u32) -> u32 { return i / (4u * E8) * 16u + i % 4u * 4u; }
fn block_e8(i: u32) -> u32 { return i / 4u % E8; }
fn tile_load_v(head: u32, base: u32, i: u32, k: u32) -> vec4<u32> {
    return bitcast<vec4<u32>>(load_v(head, min(base + block_key(i) + k, size_t() - 1u), block_e8(i)));
}
fn tile_store_v(i: u32, a: vec4<u32>, b: vec4<u32>, c: vec4<u32>, d: vec4<u32>) {
    let start = i / (4u * E8) * STEP_V + block_e8(i) * PITCH_V + i % 4u;
    let even_ab = (a & vec4<u32>(0xffffu)) | (b << vec4<u32>(16u));
    let even_cd = (c & vec4<u32>(0xffffu)) | (d << vec4<u32>(16u));
    let odd_ab = (a >> vec4<u32>(16u)) | (b & vec4<u32>(0xffff0000u));
    let odd_cd = (c >> vec4<u32>(16u)) | (d & vec4<u32>(0xffff0000u));
    {
        tile_v[start + 0u * 8u] = vec2<u32>(even_ab[0u], even_cd[0u]);
        tile_v[start + 0u * 8u + 4u] = vec2<u32>(odd_ab[0u], odd_cd[0u]);
    }
{
        tile_v[start + 1u * 8u] = vec2<u32>(even_ab[1u], even_cd[1u]);
        tile_v[start + 1u * 8u + 4u] = vec2<u32>(odd_ab[1u], odd_cd[1u]);
    }
{
        tile_v[start + 2u * 8u] = vec2<u32>(even_ab[2u], even_cd[2u]);
        tile_v[start + 2u * 8u + 4u] = vec2<u32>(odd_ab[2u], odd_cd[2u]);
    }
{
        tile_v[start + 3u * 8u] = vec2<u32>(even_ab[3u], even_cd[3u]);
        tile_v[start + 3u * 8u + 4u] = vec2<u32>(odd_ab[3u], odd_cd[3u]);
    }
}
fn quad_max(v: vec2<f32>) -> vec2<f32> {
    let w = max(v, subgroupShuffleXor(v, 1u));
    return max(w, subgroupShuffleXor(w, 2u));
}
fn quad_sum(v: vec2<f32>) -> vec2<f32> {
    let w = v + subgroupShuffleXor(v, 1u);
    return w + subgroupShuffleXor(w, 2u);
}
fn softmax_weights(v: vec2<f32>, row_max: f32) -> vec2<f32> {
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
    let first = group_first + local / LANES % SUBGROUPS * (ROW_FRAGS * FRAG_ROWS) + g;
    let key_group = local / (LANES * SUBGROUPS);
    let minus_infinity = bitcast<f32>(0xff800000u);
    var q: array<vec4<u32>, ROW_FRAGS * DEPTH_STEPS>;
    {
        let low_row = min(first + 0u * FRAG_ROWS, last);
        let high_row = min(first + 0u * FRAG_ROWS + 8u, last);
        {
            let at = 0u * 4u + t;
            let within = (0u + 1u) * 4u <= D8 || at < D8;
            let low = select(vec4<u32>(), bitcast<vec4<u32>>(load_q(head, low_row, min(at, D8 - 1u))), within);
            let high = select(vec4<u32>(), bitcast<vec4<u32>>(load_q(head, high_row, min(at, D8 - 1u))), within);
            q[0u * DEPTH_STEPS + 0u * 2u] = vec4<u32>(low.xy, high.xy);
            q[0u * DEPTH_STEPS + 0u * 2u + 1u] = vec4<u32>(low.zw, high.zw);
        }
        if (D16 == 1u) {
            let at = D32 * 4u + t / 2u;
            let within = at < D8;
            let low = select(vec4<u32>(), bitcast<vec4<u32>>(load_q(head, low_row, min(at, D8 - 1u))), within);
            let high = select(vec4<u32>(), bitcast<vec4<u32>>(load_q(head, high_row, min(at, D8 - 1u))), within);
            q[0u * DEPTH_STEPS + DEPTH_STEPS - 1u] = vec4<u32>(select(low.xy, low.zw, t % 2u == 1u), select(high.xy, high.zw, t % 2u == 1u));
        }
    }
    for (var i = local; i < SIZE_K; i += THREADS) { tile_k[i] = vec4<f32>(); }
    var acc: array<vec4<f32>, ROW_FRAGS * E8>;
    { acc[0u] = vec4<f32>(); }
{ acc[1u] = vec4<f32>(); }
{ acc[2u] = vec4<f32>(); }
    var row_max: array<vec2<f32>, ROW_FRAGS>;
    var sum: array<vec2<f32>, ROW_FRAGS>;
    {
        row_max[0u] = vec2<f32>(FIRST_MAX);
        sum[0u] = vec2<f32>();
    }
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
    { next_k[0u] = tile_load_k(head, start, min(local + 0u * THREADS, VEC8S_K - 1u)); }
{ next_k[1u] = tile_load_k(head, start, min(local + 1u * THREADS, VEC8S_K - 1u)); }
    { next_v[0u] = tile_load_v(head, start, min(local + 0u / 4u * THREADS, BLOCKS_V - 1u), 0u % 4u); }
{ next_v[1u] = tile_load_v(head, start, min(local + 1u / 4u * THREADS, BLOCKS_V - 1u), 1u % 4u); }
{ next_v[2u] = tile_load_v(head, start, min(local + 2u / 4u * THREADS, BLOCKS_V - 1u), 2u % 4u); }
{ next_v[3u] = tile_load_v(head, start, min(local + 3u / 4u * THREADS, BLOCKS_V - 1u), 3u % 4u); }
    for (var base = start; base < end; base += KV_SPLIT * STEP_KEYS) {
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
            let block = local + 0u * THREADS;
            if (BLOCKS_V % THREADS == 0u || block < BLOCKS_V) {
                tile_store_v(block, next_v[0u * 4u], next_v[0u * 4u + 1u], next_v[0u * 4u + 2u], next_v[0u * 4u + 3u]);
            }
        }
        workgroupBarrier();
        let next_base = select(base, base + KV_SPLIT * STEP_KEYS, base + KV_SPLIT * STEP_KEYS < end);
        { next_k[0u] = tile_load_k(head, next_base, min(local + 0u * THREADS, VEC8S_K - 1u)); }
{ next_k[1u] = tile_load_k(head, next_base, min(local + 1u * THREADS, VEC8S_K - 1u)); }
        { next_v[0u] = tile_load_v(head, next_base, min(local + 0u / 4u * THREADS, BLOCKS_V - 1u), 0u % 4u); }
{ next_v[1u] = tile_load_v(head, next_base, min(local + 1u / 4u * THREADS, BLOCKS_V - 1u), 1u % 4u); }
{ next_v[2u] = tile_load_v(head, next_base, min(local + 2u / 4u * THREADS, BLOCKS_V - 1u), 2u % 4u); }
{ next_v[3u] = tile_load_v(head, next_base, min(local + 3u / 4u * THREADS, BLOCKS_V - 1u), 3u % 4u); }
        let tile_start = base + key_group * KEY_TILE;
        var s: array<vec4<f32>, ROW_FRAGS * KEY_FRAGS>;
        {
            { s[0u * KEY_FRAGS + 0u] = vec4<f32>(); }
            let key_start = (0u / 2u * 16u + 0u % 2u * 2u + g / 2u * 4u + g % 2u + key_group * KEY_TILE) * PITCH_K;
            {
                let k = bitcast<vec4<u32>>(tile_k[key_start + 0u * 4u + t]);
                { s[0u * KEY_FRAGS + 0u] = multiply_fragments(local, q[0u * DEPTH_STEPS + 0u * 2u], k.xy, s[0u * KEY_FRAGS + 0u]); }
                { s[0u * KEY_FRAGS + 0u] = multiply_fragments(local, q[0u * DEPTH_STEPS + 0u * 2u + 1u], k.zw, s[0u * KEY_FRAGS + 0u]); }
            }
            if (D16 == 1u) {
                let k = bitcast<vec4<u32>>(tile_k[key_start + D32 * 4u + t / 2u]);
                let half = select(k.xy, k.zw, t % 2u == 1u);
                { s[0u * KEY_FRAGS + 0u] = multiply_fragments(local, q[0u * DEPTH_STEPS + DEPTH_STEPS - 1u], half, s[0u * KEY_FRAGS + 0u]); }
            }
        }
{
            { s[0u * KEY_FRAGS + 1u] = vec4<f32>(); }
            let key_start = (1u / 2u * 16u + 1u % 2u * 2u + g / 2u * 4u + g % 2u + key_group * KEY_TILE) * PITCH_K;
            {
                let k = bitcast<vec4<u32>>(tile_k[key_start + 0u * 4u + t]);
                { s[0u * KEY_FRAGS + 1u] = multiply_fragments(local, q[0u * DEPTH_STEPS + 0u * 2u], k.xy, s[0u * KEY_FRAGS + 1u]); }
                { s[0u * KEY_FRAGS + 1u] = multiply_fragments(local, q[0u * DEPTH_STEPS + 0u * 2u + 1u], k.zw, s[0u * KEY_FRAGS + 1u]); }
            }
            if (D16 == 1u) {
                let k = bitcast<vec4<u32>>(tile_k[key_start + D32 * 4u + t / 2u]);
                let half = select(k.xy, k.zw, t % 2u == 1u);
                { s[0u * KEY_FRAGS + 1u] = multiply_fragments(local, q[0u * DEPTH_STEPS + DEPTH_STEPS - 1u], half, s[0u * KEY_FRAGS + 1u]); }
            }
        }
{
            { s[0u * KEY_FRAGS + 2u] = vec4<f32>(); }
            let key_start = (2u / 2u * 16u + 2u % 2u * 2u + g / 2u * 4u + g % 2u + key_group * KEY_TILE) * PITCH_K;
            {
                let k = bitcast<vec4<u32>>(tile_k[key_start + 0u * 4u + t]);
                { s[0u * KEY_FRAGS + 2u] = multiply_fragments(local, q[0u * DEPTH_STEPS + 0u * 2u], k.xy, s[0u * KEY_FRAGS + 2u]); }
                { s[0u * KEY_FRAGS + 2u] = multiply_fragments(local, q[0u * DEPTH_STEPS + 0u * 2u + 1u], k.zw, s[0u * KEY_FRAGS + 2u]); }
            }
            if (D16 == 1u) {
                let k = bitcast<vec4<u32>>(tile_k[key_start + D32 * 4u + t / 2u]);
                let half = select(k.xy, k.zw, t % 2u == 1u);
                { s[0u * KEY_FRAGS + 2u] = multiply_fragments(local, q[0u * DEPTH_STEPS + DEPTH_STEPS - 1u], half, s[0u * KEY_FRAGS + 2u]); }
            }
        }
{
            { s[0u * KEY_FRAGS + 3u] = vec4<f32>(); }
            let key_start = (3u / 2u * 16u + 3u % 2u * 2u + g / 2u * 4u + g % 2u + key_group * KEY_TILE) * PITCH_K;
            {
                let k = bitcast<vec4<u32>>(tile_k[key_start + 0u * 4u + t]);
                { s[0u * KEY_FRAGS + 3u] = multiply_fragments(local, q[0u * DEPTH_STEPS + 0u * 2u], k.xy, s[0u * KEY_FRAGS + 3u]); }
                { s[0u * KEY_FRAGS + 3u] = multiply_fragments(local, q[0u * DEPTH_STEPS + 0u * 2u + 1u], k.zw, s[0u * KEY_FRAGS + 3u]); }
            }
            if (D16 == 1u) {
                let k = bitcast<vec4<u32>>(tile_k[key_start + D32 * 4u + t / 2u]);
                let half = select(k.xy, k.zw, t % 2u == 1u);
                { s[0u * KEY_FRAGS + 3u] = multiply_fragments(local, q[0u * DEPTH_STEPS + DEPTH_STEPS - 1u], half, s[0u * KEY_FRAGS + 3u]); }
            }
        }
        var weights: array<vec2<u32>, ROW_FRAGS * KEY_FRAGS>;
        {
            let low_row = min(first + 0u * FRAG_ROWS, last);
            let high_row = min(first + 0u * FRAG_ROWS + 8u, last);
            { s[0u * KEY_FRAGS + 0u] = capped(s[0u * KEY_FRAGS + 0u] * scale()); }
{ s[0u * KEY_FRAGS + 1u] = capped(s[0u * KEY_FRAGS + 1u] * scale()); }
{ s[0u * KEY_FRAGS + 2u] = capped(s[0u * KEY_FRAGS + 2u] * scale()); }
{ s[0u * KEY_FRAGS + 3u] = capped(s[0u * KEY_FRAGS + 3u] * scale()); }
            if (MASKED) {
                {
                    let key4 = min(tile_start / 4u + 0u * 4u + t, (size_t() - 1u) / 4u);
                    let low = mask(head, low_row, key4);
                    let high = mask(head, high_row, key4);
                    s[0u * KEY_FRAGS + 0u * 2u] += vec4<f32>(low.xy, high.xy);
                    s[0u * KEY_FRAGS + 0u * 2u + 1u] += vec4<f32>(low.zw, high.zw);
                }
{
                    let key4 = min(tile_start / 4u + 1u * 4u + t, (size_t() - 1u) / 4u);
                    let low = mask(head, low_row, key4);
                    let high = mask(head, high_row, key4);
                    s[0u * KEY_FRAGS + 1u * 2u] += vec4<f32>(low.xy, high.xy);
                    s[0u * KEY_FRAGS + 1u * 2u + 1u] += vec4<f32>(low.zw, high.zw);
                }
            }
            if (CHECK_VISIBLE) {
                if (tile_start + KEY_TILE > fully_visible_end || tile_start < fully_visible_start) {
                    let row_ends = vec4<u32>(vec2<u32>(visible_end(low_row)), vec2<u32>(visible_end(high_row)));
                    let row_starts = vec4<u32>(vec2<u32>(visible_start(low_row)), vec2<u32>(visible_start(high_row)));
                    {
                        let key = tile_start + 0u / 2u * 16u + 0u % 2u * 2u + t * 4u;
                        let key_vec4 = vec4<u32>(key, key + 1u, key, key + 1u);
                        s[0u * KEY_FRAGS + 0u] = select(vec4<f32>(minus_infinity), s[0u * KEY_FRAGS + 0u], (key_vec4 >= row_starts) & (key_vec4 < row_ends));
                    }
{
                        let key = tile_start + 1u / 2u * 16u + 1u % 2u * 2u + t * 4u;
                        let key_vec4 = vec4<u32>(key, key + 1u, key, key + 1u);
                        s[0u * KEY_FRAGS + 1u] = select(vec4<f32>(minus_infinity), s[0u * KEY_FRAGS + 1u], (key_vec4 >= row_starts) & (key_vec4 < row_ends));
                    }
{
                        let key = tile_start + 2u / 2u * 16u + 2u % 2u * 2u + t * 4u;
                        let key_vec4 = vec4<u32>(key, key + 1u, key, key + 1u);
                        s[0u * KEY_FRAGS + 2u] = select(vec4<f32>(minus_infinity), s[0u * KEY_FRAGS + 2u], (key_vec4 >= row_starts) & (key_vec4 < row_ends));
                    }
{
                        let key = tile_start + 3u / 2u * 16u + 3u % 2u * 2u + t * 4u;
                        let key_vec4 = vec4<u32>(key, key + 1u, key, key + 1u);
                        s[0u * KEY_FRAGS + 3u] = select(vec4<f32>(minus_infinity), s[0u * KEY_FRAGS + 3u], (key_vec4 >= row_starts) & (key_vec4 < row_ends));
                    }
                }
            }
            var new_max = row_max[0u];
            {
                let v = s[0u * KEY_FRAGS + 0u];
                new_max = max(new_max, max(v.xz, v.yw));
            }
{
                let v = s[0u * KEY_FRAGS + 1u];
                new_max = max(new_max, max(v.xz, v.yw));
            }
{
                let v = s[0u * KEY_FRAGS + 2u];
                new_max = max(new_max, max(v.xz, v.yw));
            }
{
                let v = s[0u * KEY_FRAGS + 3u];
                new_max = max(new_max, max(v.xz, v.yw));
            }
            if (subgroupAny(any(new_max > row_max[0u] + vec2<f32>(MAX_EXCESS)))) {
                new_max = quad_max(new_max);
                let raise_max = new_max > row_max[0u] + vec2<f32>(MAX_EXCESS);
                let factor = select(vec2<f32>(1.0), exp2((row_max[0u] - new_max) * EXP2_SCALE), raise_max);
                sum[0u] *= factor;
                row_max[0u] = select(row_max[0u], new_max, raise_max);
                { acc[0u * E8 + 0u] *= factor.xxyy; }
{ acc[0u * E8 + 1u] *= factor.xxyy; }
{ acc[0u * E8 + 2u] *= factor.xxyy; }
            }
            {
                let v = s[0u * KEY_FRAGS + 0u];
                let low = softmax_weights(v.xy, row_max[0u].x);
                let high = softmax_weights(v.zw, row_max[0u].y);
                sum[0u] += vec2<f32>(low.x + low.y, high.x + high.y);
                weights[0u * KEY_FRAGS + 0u] = vec2<u32>(pack2x16float(low), pack2x16float(high));
            }
{
                let v = s[0u * KEY_FRAGS + 1u];
                let low = softmax_weights(v.xy, row_max[0u].x);
                let high = softmax_weights(v.zw, row_max[0u].y);
                sum[0u] += vec2<f32>(low.x + low.y, high.x + high.y);
                weights[0u * KEY_FRAGS + 1u] = vec2<u32>(pack2x16float(low), pack2x16float(high));
            }
{
                let v = s[0u * KEY_FRAGS + 2u];
                let low = softmax_weights(v.xy, row_max[0u].x);
                let high = softmax_weights(v.zw, row_max[0u].y);
                sum[0u] += vec2<f32>(low.x + low.y, high.x + high.y);
                weights[0u * KEY_FRAGS + 2u] = vec2<u32>(pack2x16float(low), pack2x16float(high));
            }
{
                let v = s[0u * KEY_FRAGS + 3u];
                let low = softmax_weights(v.xy, row_max[0u].x);
                let high = softmax_weights(v.zw, row_max[0u].y);
                sum[0u] += vec2<f32>(low.x + low.y, high.x + high.y);
                weights[0u * KEY_FRAGS + 3u] = vec2<u32>(pack2x16float(low), pack2x16float(high));
            }
        }
        {
            {
                let v = tile_v[(key_group * KEY_STEPS + 0u) * STEP_V + 0u * PITCH_V + lane];
                {
                    let low = weights[0u * KEY_FRAGS + 0u * 2u];
                    let high = weights[0u * KEY_FRAGS + 0u * 2u + 1u];
                    acc[0u * E8 + 0u] = multiply_fragments(local, vec4<u32>(low.x, high.x, low.y, high.y), v, acc[0u * E8 + 0u]);
                }
            }
{
                let v = tile_v[(key_group * KEY_STEPS + 0u) * STEP_V + 1u * PITCH_V + lane];
                {
                    let low = weights[0u * KEY_FRAGS + 0u * 2u];
                    let high = weights[0u * KEY_FRAGS + 0u * 2u + 1u];
                    acc[0u * E8 + 1u] = multiply_fragments(local, vec4<u32>(low.x, high.x, low.y, high.y), v, acc[0u * E8 + 1u]);
                }
            }
{
                let v = tile_v[(key_group * KEY_STEPS + 0u) * STEP_V + 2u * PITCH_V + lane];
                {
                    let low = weights[0u * KEY_FRAGS + 0u * 2u];
                    let high = weights[0u * KEY_FRAGS + 0u * 2u + 1u];
                    acc[0u * E8 + 2u] = multiply_fragments(local, vec4<u32>(low.x, high.x, low.y, high.y), v, acc[0u * E8 + 2u]);
                }
            }
        }
{
            {
                let v = tile_v[(key_group * KEY_STEPS + 1u) * STEP_V + 0u * PITCH_V + lane];
                {
                    let low = weights[0u * KEY_FRAGS + 1u * 2u];
                    let high = weights[0u * KEY_FRAGS + 1u * 2u + 1u];
                    acc[0u * E8 + 0u] = multiply_fragments(local, vec4<u32>(low.x, high.x, low.y, high.y), v, acc[0u * E8 + 0u]);
                }
            }
{
                let v = tile_v[(key_group * KEY_STEPS + 1u) * STEP_V + 1u * PITCH_V + lane];
                {
                    let low = weights[0u * KEY_FRAGS + 1u * 2u];
                    let high = weights[0u * KEY_FRAGS + 1u * 2u + 1u];
                    acc[0u * E8 + 1u] = multiply_fragments(local, vec4<u32>(low.x, high.x, low.y, high.y), v, acc[0u * E8 + 1u]);
                }
            }
{
                let v = tile_v[(key_group * KEY_STEPS + 1u) * STEP_V + 2u * PITCH_V + lane];
                {
                    let low = weights[0u * KEY_FRAGS + 1u * 2u];
                    let high = weights[0u * KEY_FRAGS + 1u * 2u + 1u];
                    acc[0u * E8 + 2u] = multiply_fragments(local, vec4<u32>(low.x, high.x, low.y, high.y), v, acc[0u * E8 + 2u]);
                }
            }
        }
    }
    let slot = local % (LANES * SUBGROUPS);
    for (var other = 1u; other < KEY_GROUPS; other++) {
        workgroupBarrier();
        if (key_group == other) {
            {
                let place = 0u * (E8 + 1u) * LANES * SUBGROUPS + slot;
                tile_k[place] = vec4<f32>(row_max[0u], sum[0u]);
                { tile_k[place + (0u + 1u) * LANES * SUBGROUPS] = acc[0u * E8 + 0u]; }
{ tile_k[place + (1u + 1u) * LANES * SUBGROUPS] = acc[0u * E8 + 1u]; }
{ tile_k[place + (2u + 1u) * LANES * SUBGROUPS] = acc[0u * E8 + 2u]; }
            }
        }
        workgroupBarrier();
        if (key_group == 0u) {
            {
                let place = 0u * (E8 + 1u) * LANES * SUBGROUPS + slot;
                let stats = tile_k[place];
                let new_max = max(row_max[0u], stats.xy);
                let own = exp2((row_max[0u] - new_max) * EXP2_SCALE);
                let their = exp2((stats.xy - new_max) * EXP2_SCALE);
                row_max[0u] = new_max;
                sum[0u] = sum[0u] * own + stats.zw * their;
                { acc[0u * E8 + 0u] = acc[0u * E8 + 0u] * own.xxyy + tile_k[place + (0u + 1u) * LANES * SUBGROUPS] * their.xxyy; }
{ acc[0u * E8 + 1u] = acc[0u * E8 + 1u] * own.xxyy + tile_k[place + (1u + 1u) * LANES * SUBGROUPS] * their.xxyy; }
{ acc[0u * E8 + 2u] = acc[0u * E8 + 2u] * own.xxyy + tile_k[place + (2u + 1u) * LANES * SUBGROUPS] * their.xxyy; }
            }
        }
    }
    if (key_group > 0u) { return; }
    {
        let total = quad_sum(sum[0u]);
        var factor = select(1.0 / total, vec2<f32>(), total == vec2<f32>());
        let odd = t % 2u == 1u;
        let at = first + 0u * FRAG_ROWS + select(0u, 8u, odd);
        if (KV_SPLIT > 1u) {
            factor = vec2<f32>(1.0);
            let natural_max = max(select(row_max[0u].x, row_max[0u].y, odd) * (EXP2_SCALE * LN_2), LOWEST);
            if (at <= last && t < 2u) { store_partial_stats((head * rows() + at) * KV_SPLIT + group.z, vec2<f32>(natural_max, select(total.x, total.y, odd))); }
        }
        {
            let v = acc[0u * E8 + 0u] * factor.xxyy;
            let received = subgroupShuffleXor(select(v.zw, v.xy, odd), 1u);
            let stored = select(vec4<f32>(v.xy, received), vec4<f32>(received, v.zw), odd);
            let e4 = 0u * 2u + t / 2u;
            if (at <= last && (E4 == E8 * 2u || e4 < E4)) {
                if (KV_SPLIT > 1u) { store_partial((head * rows() + at) * KV_SPLIT + group.z, e4, stored); } else { store(head, at, e4, stored); }
            }
        }
{
            let v = acc[0u * E8 + 1u] * factor.xxyy;
            let received = subgroupShuffleXor(select(v.zw, v.xy, odd), 1u);
            let stored = select(vec4<f32>(v.xy, received), vec4<f32>(received, v.zw), odd);
            let e4 = 1u * 2u + t / 2u;
            if (at <= last && (E4 == E8 * 2u || e4 < E4)) {
                if (KV_SPLIT > 1u) { store_partial((head * rows() + at) * KV_SPLIT + group.z, e4, stored); } else { store(head, at, e4, stored); }
            }
        }
{
            let v = acc[0u * E8 + 2u] * factor.xxyy;
            let received = subgroupShuffleXor(select(v.zw, v.xy, odd), 1u);
            let stored = select(vec4<f32>(v.xy, received), vec4<f32>(received, v.zw), odd);
            let e4 = 2u * 2u + t / 2u;
            if (at <= last && (E4 == E8 * 2u || e4 < E4)) {
                if (KV_SPLIT > 1u) { store_partial((head * rows() + at) * KV_SPLIT + group.z, e4, stored); } else { store(head, at, e4, stored); }
            }
        }
    }
}
@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(subgroup_id) subgroup: u32, @builtin(subgroup_invocation_id) lane: u32) {
    attend(group, subgroup * LANES + lane);
}
@group(0) @binding(0) var<storage, read> buffer_0: array<vec2<f32>>;
@group(0) @binding(1) var<storage, read> buffer_1: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read> buffer_2: array<vec2<f32>>;
@group(0) @binding(3) var<storage, read_write> buffer_3: array<vec4<f32>>;
