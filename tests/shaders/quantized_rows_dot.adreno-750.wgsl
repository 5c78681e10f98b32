// @generated for quantized_rows_matmul/0 f32: quantized_rows_dot THREADS_M=4 THREADS_N=16 ROWS=4 COLS=1 TILE_K=4
const THREADS_M = 4u;
const THREADS_N = 16u;
const ROWS = 4u;
const COLS = 1u;
const TILE_K = 4u;
const TILE_M = THREADS_M * ROWS;
const TILE_N4 = THREADS_N * COLS;
const THREADS = THREADS_M * THREADS_N;
const FLIP_A = true;
const FLIP_B = true;
const ONES = 0x01010101u;
const FLIPPED = -128i;
fn size_m() -> u32 { return 150u; }
fn size_n() -> u32 { return 77u; }
fn size_k() -> u32 { return 320u; }
fn row_word(batch: u32, row: u32, k4: u32) -> u32 {
    return u32(buffer_0[(row) * 84u + (k4)]);
}
fn load_a(batch: u32, row: u32, k4: u32) -> u32 { return (row_word(batch, row, k4) ^ 0x80808080u); }
fn load_b(batch: u32, k4: u32, n4: u32) -> vec4<u32> { return ((buffer_1[n4 / 4u * 322u + k4 * 4u + n4 % 4u] ^ vec4<u32>(0x80808080u)) ^ vec4<u32>(0x80808080u)); }
fn store_floats(batch: u32, row: u32, n4: u32, v: vec4<f32>) {
    let w = vec4<f32>(v);
    buffer_2[(row) * 77u + (((n4) * 4u))] = w.x;
    if ((n4) * 4u + 1u < 77u) { buffer_2[(row) * 77u + (((n4) * 4u)) + 1u] = w.y; }
    if ((n4) * 4u + 2u < 77u) { buffer_2[(row) * 77u + (((n4) * 4u)) + 2u] = w.z; }
    if ((n4) * 4u + 3u < 77u) { buffer_2[(row) * 77u + (((n4) * 4u)) + 3u] = w.w; }
}
fn store(batch: u32, row: u32, n4: u32, v: vec4<i32>) {
    let column_scales = weights_scale(n4 / 4u * 322u, 0u, n4 % 4u);
    store_floats(batch, row, n4, vec4<f32>(v) * (bitcast<f32>(row_word(batch, row, 80u)) * column_scales));
}
fn dot4(a: u32, b: u32) -> i32 { return i32(dot4U8Packed(a, b)); }
fn dot4_columns(a: u32, b: vec4<u32>) -> vec4<i32> {
    return vec4<i32>(dot4(a, b.x), dot4(a, b.y), dot4(a, b.z), dot4(a, b.w));
}
var<workgroup> tile_a: array<vec4<u32>, TILE_M * TILE_K>;
var<workgroup> tile_b: array<vec4<u32>, TILE_K * 4u * TILE_N4>;
@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let batch = group.z;
    let first_row = group.y * TILE_M;
    let first_n4 = group.x * TILE_N4;
    let lane_m = local / THREADS_N;
    let lane_n = local % THREADS_N;
    let n4_end = (size_n() + 3u) / 4u;
    let k4_end = (size_k() + 3u) / 4u;
    var acc: array<vec4<i32>, ROWS * COLS>;
    { acc[0u] = vec4<i32>(); }
{ acc[1u] = vec4<i32>(); }
{ acc[2u] = vec4<i32>(); }
{ acc[3u] = vec4<i32>(); }
    var sums_a: array<i32, ROWS>;
    { sums_a[0u] = 0i; }
{ sums_a[1u] = 0i; }
{ sums_a[2u] = 0i; }
{ sums_a[3u] = 0i; }
    var sums_b: array<vec4<i32>, COLS>;
    { sums_b[0u] = vec4<i32>(); }
    for (var k4 = 0u; k4 < k4_end; k4 += TILE_K * 4u) {
        for (var i = local; i < TILE_M * TILE_K * 4u; i += THREADS) {
            let row = first_row + i / (TILE_K * 4u);
            let k = k4 + i % (TILE_K * 4u);
            var v = 0u;
            if (row < size_m() && k < k4_end) { v = load_a(batch, row, k); }
            tile_a[i / 4u][i % 4u] = v;
        }
        for (var i = local; i < TILE_K * 4u * TILE_N4; i += THREADS) {
            let k = k4 + i / TILE_N4;
            let n4 = first_n4 + i % TILE_N4;
            var v = vec4<u32>();
            if (k < k4_end && n4 < n4_end) { v = load_b(batch, k, n4); }
            tile_b[i] = v;
        }
        workgroupBarrier();
        for (var k = 0u; k < TILE_K; k++) {
            {
                let b0 = tile_b[(k * 4u) * TILE_N4 + lane_n + 0u * THREADS_N];
                let b1 = tile_b[(k * 4u + 1u) * TILE_N4 + lane_n + 0u * THREADS_N];
                let b2 = tile_b[(k * 4u + 2u) * TILE_N4 + lane_n + 0u * THREADS_N];
                let b3 = tile_b[(k * 4u + 3u) * TILE_N4 + lane_n + 0u * THREADS_N];
                {
                    let a = tile_a[(lane_m + 0u * THREADS_M) * TILE_K + k];
                    acc[0u * COLS + 0u] += dot4_columns(a.x, b0) + dot4_columns(a.y, b1) + dot4_columns(a.z, b2) + dot4_columns(a.w, b3);
                    if (FLIP_B && 0u == 0u) {
                        sums_a[0u] += dot4(a.x, ONES) + dot4(a.y, ONES) + dot4(a.z, ONES) + dot4(a.w, ONES);
                    }
                }
{
                    let a = tile_a[(lane_m + 1u * THREADS_M) * TILE_K + k];
                    acc[1u * COLS + 0u] += dot4_columns(a.x, b0) + dot4_columns(a.y, b1) + dot4_columns(a.z, b2) + dot4_columns(a.w, b3);
                    if (FLIP_B && 0u == 0u) {
                        sums_a[1u] += dot4(a.x, ONES) + dot4(a.y, ONES) + dot4(a.z, ONES) + dot4(a.w, ONES);
                    }
                }
{
                    let a = tile_a[(lane_m + 2u * THREADS_M) * TILE_K + k];
                    acc[2u * COLS + 0u] += dot4_columns(a.x, b0) + dot4_columns(a.y, b1) + dot4_columns(a.z, b2) + dot4_columns(a.w, b3);
                    if (FLIP_B && 0u == 0u) {
                        sums_a[2u] += dot4(a.x, ONES) + dot4(a.y, ONES) + dot4(a.z, ONES) + dot4(a.w, ONES);
                    }
                }
{
                    let a = tile_a[(lane_m + 3u * THREADS_M) * TILE_K + k];
                    acc[3u * COLS + 0u] += dot4_columns(a.x, b0) + dot4_columns(a.y, b1) + dot4_columns(a.z, b2) + dot4_columns(a.w, b3);
                    if (FLIP_B && 0u == 0u) {
                        sums_a[3u] += dot4(a.x, ONES) + dot4(a.y, ONES) + dot4(a.z, ONES) + dot4(a.w, ONES);
                    }
                }
                if (FLIP_A) {
                    sums_b[0u] += dot4_columns(ONES, b0) + dot4_columns(ONES, b1) + dot4_columns(ONES, b2) + dot4_columns(ONES, b3);
                }
            }
        }
        workgroupBarrier();
    }
    {
        {
            let row = first_row + lane_m + 0u * THREADS_M;
            let n4 = first_n4 + lane_n + 0u * THREADS_N;
            var correction = (vec4<i32>(sums_a[0u]) + sums_b[0u]) * FLIPPED;
            if (FLIP_A && FLIP_B) { correction += vec4<i32>(i32(k4_end * 4u) * FLIPPED * FLIPPED); }
            if (row < size_m() && n4 < n4_end) { store(batch, row, n4, acc[0u * COLS + 0u] + correction); }
        }
    }
{
        {
            let row = first_row + lane_m + 1u * THREADS_M;
            let n4 = first_n4 + lane_n + 0u * THREADS_N;
            var correction = (vec4<i32>(sums_a[1u]) + sums_b[0u]) * FLIPPED;
            if (FLIP_A && FLIP_B) { correction += vec4<i32>(i32(k4_end * 4u) * FLIPPED * FLIPPED); }
            if (row < size_m() && n4 < n4_end) { store(batch, row, n4, acc[1u * COLS + 0u] + correction); }
        }
    }
{
        {
            let row = first_row + lane_m + 2u * THREADS_M;
            let n4 = first_n4 + lane_n + 0u * THREADS_N;
            var correction = (vec4<i32>(sums_a[2u]) + sums_b[0u]) * FLIPPED;
            if (FLIP_A && FLIP_B) { correction += vec4<i32>(i32(k4_end * 4u) * FLIPPED * FLIPPED); }
            if (row < size_m() && n4 < n4_end) { store(batch, row, n4, acc[2u * COLS + 0u] + correction); }
        }
    }
{
        {
            let row = first_row + lane_m + 3u * THREADS_M;
            let n4 = first_n4 + lane_n + 0u * THREADS_N;
            var correction = (vec4<i32>(sums_a[3u]) + sums_b[0u]) * FLIPPED;
            if (FLIP_A && FLIP_B) { correction += vec4<i32>(i32(k4_end * 4u) * FLIPPED * FLIPPED); }
            if (row < size_m() && n4 < n4_end) { store(batch, row, n4, acc[3u * COLS + 0u] + correction); }
        }
    }
}
@group(0) @binding(0) var<storage, read> buffer_0: array<u32>;
@group(0) @binding(1) var<storage, read> buffer_1: array<vec4<u32>>;
fn weights_scale(base: u32, g: u32, q: u32) -> vec4<f32> {
    let halves = buffer_1[base + 320u + g * 2u + q / 2u];
    let pair = select(halves.xy, halves.zw, q % 2u == 1u);
    return vec4<f32>(unpack2x16float(pair.x), unpack2x16float(pair.y));
}
@group(0) @binding(2) var<storage, read_write> buffer_2: array<f32>;
