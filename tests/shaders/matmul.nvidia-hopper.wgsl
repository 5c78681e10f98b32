// @generated for matmul/0 f32: matmul THREADS_M=8 THREADS_N=8 ROWS=4 COLS=1 TILE_K=16
const THREADS_M = 8u;
const THREADS_N = 8u;
const ROWS = 4u;
const COLS = 1u;
const TILE_K = 16u;
const TILE_M = THREADS_M * ROWS;
const TILE_N4 = THREADS_N * COLS;
const THREADS = THREADS_M * THREADS_N;
const_assert TILE_K % 4u == 0u;
fn size_m() -> u32 { return 37u; }
fn size_n() -> u32 { return 41u; }
fn size_k() -> u32 { return 29u; }
fn load_a(batch: u32, row: u32, k4: u32) -> vec4<f32> {
    let batch_1 = batch % 3u;
    let batch_1_rest = batch / 3u;
    let batch_0 = batch_1_rest;
    var r: vec4<f32> = vec4<f32>(0.0);
    r.x = f32(buffer_0[(batch_0) * 3219u + (batch_1) * 1073u + (row) * 29u + (((k4) * 4u))]);
    if ((k4) * 4u + 1u < 29u) { r.y = f32(buffer_0[(batch_0) * 3219u + (batch_1) * 1073u + (row) * 29u + (((k4) * 4u)) + 1u]); }
    if ((k4) * 4u + 2u < 29u) { r.z = f32(buffer_0[(batch_0) * 3219u + (batch_1) * 1073u + (row) * 29u + (((k4) * 4u)) + 2u]); }
    if ((k4) * 4u + 3u < 29u) { r.w = f32(buffer_0[(batch_0) * 3219u + (batch_1) * 1073u + (row) * 29u + (((k4) * 4u)) + 3u]); }
    return r;
}
fn load_b(batch: u32, k: u32, n4: u32) -> vec4<f32> {
    let batch_1 = batch % 3u;
    let batch_1_rest = batch / 3u;
    let batch_0 = batch_1_rest;
    var r: vec4<f32> = vec4<f32>(0.0);
    r.x = f32(buffer_1[(batch_1) * 1189u + (k) * 41u + (((n4) * 4u))]);
    if ((n4) * 4u + 1u < 41u) { r.y = f32(buffer_1[(batch_1) * 1189u + (k) * 41u + (((n4) * 4u)) + 1u]); }
    if ((n4) * 4u + 2u < 41u) { r.z = f32(buffer_1[(batch_1) * 1189u + (k) * 41u + (((n4) * 4u)) + 2u]); }
    if ((n4) * 4u + 3u < 41u) { r.w = f32(buffer_1[(batch_1) * 1189u + (k) * 41u + (((n4) * 4u)) + 3u]); }
    return r;
}
fn store(batch: u32, row: u32, n4: u32, v: vec4<f32>) {
    let batch_1 = batch % 3u;
    let batch_1_rest = batch / 3u;
    let batch_0 = batch_1_rest;
    let w = vec4<f32>(v);
    buffer_2[(batch_0) * 4551u + (batch_1) * 1517u + (row) * 41u + (((n4) * 4u))] = w.x;
    if ((n4) * 4u + 1u < 41u) { buffer_2[(batch_0) * 4551u + (batch_1) * 1517u + (row) * 41u + (((n4) * 4u)) + 1u] = w.y; }
    if ((n4) * 4u + 2u < 41u) { buffer_2[(batch_0) * 4551u + (batch_1) * 1517u + (row) * 41u + (((n4) * 4u)) + 2u] = w.z; }
    if ((n4) * 4u + 3u < 41u) { buffer_2[(batch_0) * 4551u + (batch_1) * 1517u + (row) * 41u + (((n4) * 4u)) + 3u] = w.w; }
}
var<workgroup> tile_a: array<vec4<f32>, TILE_M * TILE_K / 4u>;
var<workgroup> tile_b: array<vec4<f32>, TILE_K * TILE_N4>;
@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let batch = group.z;
    let first_row = group.y * TILE_M;
    let first_n4 = group.x * TILE_N4;
    let lane_m = local / THREADS_N;
    let lane_n = local % THREADS_N;
    let n4_end = (size_n() + 3u) / 4u;
    let k4_end = (size_k() + 3u) / 4u;
    var acc: array<vec4<f32>, ROWS * COLS>;
    { acc[0u] = vec4<f32>(0.0); }
{ acc[1u] = vec4<f32>(0.0); }
{ acc[2u] = vec4<f32>(0.0); }
{ acc[3u] = vec4<f32>(0.0); }
    for (var k4 = 0u; k4 < k4_end; k4 += TILE_K / 4u) {
        for (var i = local; i < TILE_M * TILE_K / 4u; i += THREADS) {
            let row = first_row + i / (TILE_K / 4u);
            let k = k4 + i % (TILE_K / 4u);
            var v = vec4<f32>(0.0);
            if (row < size_m() && k < k4_end) { v = load_a(batch, row, k); }
            tile_a[i] = v;
        }
        for (var i = local; i < TILE_K * TILE_N4; i += THREADS) {
            let k = k4 * 4u + i / TILE_N4;
            let n4 = first_n4 + i % TILE_N4;
            var v = vec4<f32>(0.0);
            if (k < size_k() && n4 < n4_end) { v = load_b(batch, k, n4); }
            tile_b[i] = v;
        }
        workgroupBarrier();
        for (var k = 0u; k < TILE_K / 4u; k++) {
            {
                let b0 = tile_b[(k * 4u) * TILE_N4 + lane_n + 0u * THREADS_N];
                let b1 = tile_b[(k * 4u + 1u) * TILE_N4 + lane_n + 0u * THREADS_N];
                let b2 = tile_b[(k * 4u + 2u) * TILE_N4 + lane_n + 0u * THREADS_N];
                let b3 = tile_b[(k * 4u + 3u) * TILE_N4 + lane_n + 0u * THREADS_N];
                {
                    let a = tile_a[(lane_m * ROWS + 0u) * (TILE_K / 4u) + k];
                    acc[0u * COLS + 0u] += a.x * b0 + a.y * b1 + a.z * b2 + a.w * b3;
                }
{
                    let a = tile_a[(lane_m * ROWS + 1u) * (TILE_K / 4u) + k];
                    acc[1u * COLS + 0u] += a.x * b0 + a.y * b1 + a.z * b2 + a.w * b3;
                }
{
                    let a = tile_a[(lane_m * ROWS + 2u) * (TILE_K / 4u) + k];
                    acc[2u * COLS + 0u] += a.x * b0 + a.y * b1 + a.z * b2 + a.w * b3;
                }
{
                    let a = tile_a[(lane_m * ROWS + 3u) * (TILE_K / 4u) + k];
                    acc[3u * COLS + 0u] += a.x * b0 + a.y * b1 + a.z * b2 + a.w * b3;
                }
            }
        }
        workgroupBarrier();
    }
    {
        {
            let row = first_row + lane_m * ROWS + 0u;
            let n4 = first_n4 + lane_n + 0u * THREADS_N;
            if (row < size_m() && n4 < n4_end) { store(batch, row, n4, acc[0u * COLS + 0u]); }
        }
    }
{
        {
            let row = first_row + lane_m * ROWS + 1u;
            let n4 = first_n4 + lane_n + 0u * THREADS_N;
            if (row < size_m() && n4 < n4_end) { store(batch, row, n4, acc[1u * COLS + 0u]); }
        }
    }
{
        {
            let row = first_row + lane_m * ROWS + 2u;
            let n4 = first_n4 + lane_n + 0u * THREADS_N;
            if (row < size_m() && n4 < n4_end) { store(batch, row, n4, acc[2u * COLS + 0u]); }
        }
    }
{
        {
            let row = first_row + lane_m * ROWS + 3u;
            let n4 = first_n4 + lane_n + 0u * THREADS_N;
            if (row < size_m() && n4 < n4_end) { store(batch, row, n4, acc[3u * COLS + 0u]); }
        }
    }
}
@group(0) @binding(0) var<storage, read> buffer_0: array<f32>;
@group(0) @binding(1) var<storage, read> buffer_1: array<f32>;
@group(0) @binding(2) var<storage, read_write> buffer_2: array<f32>;
