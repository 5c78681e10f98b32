// @generated for matmul/5 f32: matvec LANES_K=4 LANES_N=8 ROWS=5
const LANES_K = 4u;
const LANES_N = 8u;
const THREADS = LANES_K * LANES_N;
const ROWS = 5u;
const K_FIRST = false;
const_assert LANES_K > 0u && (LANES_K & (LANES_K - 1u)) == 0u;
fn size_m() -> u32 { return 5u; }
fn size_n() -> u32 { return 6u; }
fn size_k() -> u32 { return 11u; }
fn load_a(batch: u32, row: u32, k4: u32) -> vec4<f32> {
    var r: vec4<f32> = vec4<f32>(0.0);
    r.x = f32(buffer_0[(row) + (((k4) * 4u)) * 5u]);
    if ((k4) * 4u + 1u < 11u) { r.y = f32(buffer_0[(row) + (((k4) * 4u)) * 5u + 5u]); }
    if ((k4) * 4u + 2u < 11u) { r.z = f32(buffer_0[(row) + (((k4) * 4u)) * 5u + 10u]); }
    if ((k4) * 4u + 3u < 11u) { r.w = f32(buffer_0[(row) + (((k4) * 4u)) * 5u + 15u]); }
    return r;
}
fn b_line(batch: u32, line: u32, at: u32) -> vec4<f32> {
    let batch_0 = batch;
    var r: vec4<f32> = vec4<f32>(0.0);
    r.x = f32(buffer_1[(batch_0) * 66u + (at) * 6u + (((line) * 4u))]);
    if ((line) * 4u + 1u < 6u) { r.y = f32(buffer_1[(batch_0) * 66u + (at) * 6u + (((line) * 4u)) + 1u]); }
    if ((line) * 4u + 2u < 6u) { r.z = f32(buffer_1[(batch_0) * 66u + (at) * 6u + (((line) * 4u)) + 2u]); }
    if ((line) * 4u + 3u < 6u) { r.w = f32(buffer_1[(batch_0) * 66u + (at) * 6u + (((line) * 4u)) + 3u]); }
    return r;
}
fn load_b(batch: u32, k4: u32, n4: u32) -> mat4x4<f32> {
    return mat4x4<f32>(
        b_line(batch, n4, k4 * 4u + 0u),
        select(vec4<f32>(0.0), b_line(batch, n4, min(k4 * 4u + 1u, 11u - 1u)), k4 * 4u + 1u < 11u),
        select(vec4<f32>(0.0), b_line(batch, n4, min(k4 * 4u + 2u, 11u - 1u)), k4 * 4u + 2u < 11u),
        select(vec4<f32>(0.0), b_line(batch, n4, min(k4 * 4u + 3u, 11u - 1u)), k4 * 4u + 3u < 11u),
    );
}
fn multiply_block(a: vec4<f32>, b: mat4x4<f32>) -> vec4<f32> { return b * a; }
fn store(batch: u32, row: u32, n4: u32, v: vec4<f32>) {
    let batch_0 = batch;
    let s1 = max(v, vec4<f32>(0.0));
    let w = vec4<f32>(s1);
    buffer_2[(batch_0) * 30u + (row) * 6u + (((n4) * 4u))] = w.x;
    if ((n4) * 4u + 1u < 6u) { buffer_2[(batch_0) * 30u + (row) * 6u + (((n4) * 4u)) + 1u] = w.y; }
    if ((n4) * 4u + 2u < 6u) { buffer_2[(batch_0) * 30u + (row) * 6u + (((n4) * 4u)) + 2u] = w.z; }
    if ((n4) * 4u + 3u < 6u) { buffer_2[(batch_0) * 30u + (row) * 6u + (((n4) * 4u)) + 3u] = w.w; }
}
var<workgroup> partial_sums: array<vec4<f32>, THREADS * ROWS>;
@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let lane_k = select(local / LANES_N, local % LANES_K, K_FIRST);
    let lane_n = select(local % LANES_N, local / LANES_K, K_FIRST);
    let batch = group.z;
    let first = group.y * ROWS;
    let n4 = group.x * LANES_N + lane_n;
    let inside = n4 < (size_n() + 3u) / 4u;
    let end = select(0u, (size_k() + 3u) / 4u, inside);
    let last = size_m() - 1u;
    var acc: array<vec4<f32>, ROWS>;
    { acc[0u] = vec4<f32>(0.0); }
{ acc[1u] = vec4<f32>(0.0); }
{ acc[2u] = vec4<f32>(0.0); }
{ acc[3u] = vec4<f32>(0.0); }
{ acc[4u] = vec4<f32>(0.0); }
    for (var k4 = lane_k; k4 < end; k4 += LANES_K) {
        let b = load_b(batch, k4, n4);
        { acc[0u] += multiply_block(load_a(batch, min(first + 0u, last), k4), b); }
{ acc[1u] += multiply_block(load_a(batch, min(first + 1u, last), k4), b); }
{ acc[2u] += multiply_block(load_a(batch, min(first + 2u, last), k4), b); }
{ acc[3u] += multiply_block(load_a(batch, min(first + 3u, last), k4), b); }
{ acc[4u] += multiply_block(load_a(batch, min(first + 4u, last), k4), b); }
    }
    if (LANES_K > 1u) {
        let here = lane_k * LANES_N + lane_n;
        { partial_sums[here + 0u * THREADS] = acc[0u]; }
{ partial_sums[here + 1u * THREADS] = acc[1u]; }
{ partial_sums[here + 2u * THREADS] = acc[2u]; }
{ partial_sums[here + 3u * THREADS] = acc[3u]; }
{ partial_sums[here + 4u * THREADS] = acc[4u]; }
        workgroupBarrier();
        for (var distance = LANES_K / 2u; distance > 0u; distance /= 2u) {
            if (lane_k < distance) {
                {
                    partial_sums[here + 0u * THREADS] += partial_sums[here + distance * LANES_N + 0u * THREADS];
                }
{
                    partial_sums[here + 1u * THREADS] += partial_sums[here + distance * LANES_N + 1u * THREADS];
                }
{
                    partial_sums[here + 2u * THREADS] += partial_sums[here + distance * LANES_N + 2u * THREADS];
                }
{
                    partial_sums[here + 3u * THREADS] += partial_sums[here + distance * LANES_N + 3u * THREADS];
                }
{
                    partial_sums[here + 4u * THREADS] += partial_sums[here + distance * LANES_N + 4u * THREADS];
                }
            }
            workgroupBarrier();
        }
        { acc[0u] = partial_sums[here + 0u * THREADS]; }
{ acc[1u] = partial_sums[here + 1u * THREADS]; }
{ acc[2u] = partial_sums[here + 2u * THREADS]; }
{ acc[3u] = partial_sums[here + 3u * THREADS]; }
{ acc[4u] = partial_sums[here + 4u * THREADS]; }
    }
    if (lane_k == 0u && inside) {
        {
            if (first + 0u <= last) { store(batch, first + 0u, n4, acc[0u]); }
        }
{
            if (first + 1u <= last) { store(batch, first + 1u, n4, acc[1u]); }
        }
{
            if (first + 2u <= last) { store(batch, first + 2u, n4, acc[2u]); }
        }
{
            if (first + 3u <= last) { store(batch, first + 3u, n4, acc[3u]); }
        }
{
            if (first + 4u <= last) { store(batch, first + 4u, n4, acc[4u]); }
        }
    }
}
@group(0) @binding(0) var<storage, read> buffer_0: array<f32>;
@group(0) @binding(1) var<storage, read> buffer_1: array<f32>;
@group(0) @binding(2) var<storage, read_write> buffer_2: array<f32>;
