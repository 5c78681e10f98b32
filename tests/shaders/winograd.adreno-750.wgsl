// @generated for winograd/0 f32: winograd GROUP_S=8 GROUP_T=8 ROWS=1
const GROUP_S = 8u;
const GROUP_T = 8u;
const ROWS = 1u;
const SIDE = 6u;
const N = 6u;
const_assert SIDE % ROWS == 0u && SIDE <= N && N <= 6u;
fn slices() -> u32 { return 2u; }
fn tiles() -> u32 { return 12u; }
fn pixel(b: u32, y: u32, x: u32, s: u32) -> vec4<f32> {
    var r: vec4<f32> = vec4<f32>(0.0);
    r.x = f32(buffer_0[(b) * 378u + (y) * 7u + (x) + (((s) * 4u)) * 63u]);
    if ((s) * 4u + 1u < 6u) { r.y = f32(buffer_0[(b) * 378u + (y) * 7u + (x) + (((s) * 4u)) * 63u + 63u]); }
    if ((s) * 4u + 2u < 6u) { r.z = f32(buffer_0[(b) * 378u + (y) * 7u + (x) + (((s) * 4u)) * 63u + 126u]); }
    if ((s) * 4u + 3u < 6u) { r.w = f32(buffer_0[(b) * 378u + (y) * 7u + (x) + (((s) * 4u)) * 63u + 189u]); }
    return r;
}
fn src(t: u32, s: u32, row: u32, column: u32) -> vec4<f32> {
    let t_2 = t % 2u;
    let t_2_rest = t / 2u;
    let t_1 = t_2_rest % 3u;
    let t_1_rest = t_2_rest / 3u;
    let t_0 = t_1_rest;
    let y = t_1 * 4u + row - 1u;
    let x = t_2 * 4u + column - 0u;
    let inside = y < 9u && x < 7u;
    return select(vec4<f32>(), pixel(t_0, select(0u, y, inside), select(0u, x, inside), s), inside);
}
fn transform_row(i: u32, a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32>, e: vec4<f32>, f: vec4<f32>) -> vec4<f32> {
    switch i {
        case 0u: { return a * 0.25 + c * -0.625 + e * 0.25; }
        case 1u: { return b * -0.70710677 + c * -1.0 + d * 0.35355338 + e * 0.5; }
        case 2u: { return b * 0.70710677 + c * -1.0 + d * -0.35355338 + e * 0.5; }
        case 3u: { return b * -0.35355338 + c * -0.25 + d * 0.70710677 + e * 0.5; }
        case 4u: { return b * 0.35355338 + c * -0.25 + d * -0.70710677 + e * 0.5; }
        default: { return b * 0.25 + d * -0.625 + f * 0.25; }
    }
}
fn store(t: u32, s: u32, i: u32, k: u32, v: vec4<f32>) {
    let w = vec4<f32>(v);
    buffer_1[((i * 6u + k)) * 72u + (t) * 6u + (((s) * 4u))] = w.x;
    if ((s) * 4u + 1u < 6u) { buffer_1[((i * 6u + k)) * 72u + (t) * 6u + (((s) * 4u)) + 1u] = w.y; }
    if ((s) * 4u + 2u < 6u) { buffer_1[((i * 6u + k)) * 72u + (t) * 6u + (((s) * 4u)) + 2u] = w.z; }
    if ((s) * 4u + 3u < 6u) { buffer_1[((i * 6u + k)) * 72u + (t) * 6u + (((s) * 4u)) + 3u] = w.w; }
}
@compute @workgroup_size(GROUP_S, GROUP_T)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let s = group.x * GROUP_S + local.x;
    let t = group.y * GROUP_T + local.y;
    if (s >= slices() || t >= tiles()) { return; }
    let first = select(group.z * ROWS, 0u, ROWS == SIDE);
    var row_transformed: array<vec4<f32>, ROWS * 6u>;
    var v: array<vec4<f32>, 6>;
    {
        { v[0u] = src(t, s, 0u, 0u); }
{ v[1u] = src(t, s, 1u, 0u); }
{ v[2u] = src(t, s, 2u, 0u); }
{ v[3u] = src(t, s, 3u, 0u); }
{ v[4u] = src(t, s, 4u, 0u); }
{ v[5u] = src(t, s, 5u, 0u); }
        { row_transformed[0u * 6u + 0u] = transform_row(first + 0u, v[0], v[1], v[2], v[3], v[4], v[5]); }
    }
{
        { v[0u] = src(t, s, 0u, 1u); }
{ v[1u] = src(t, s, 1u, 1u); }
{ v[2u] = src(t, s, 2u, 1u); }
{ v[3u] = src(t, s, 3u, 1u); }
{ v[4u] = src(t, s, 4u, 1u); }
{ v[5u] = src(t, s, 5u, 1u); }
        { row_transformed[0u * 6u + 1u] = transform_row(first + 0u, v[0], v[1], v[2], v[3], v[4], v[5]); }
    }
{
        { v[0u] = src(t, s, 0u, 2u); }
{ v[1u] = src(t, s, 1u, 2u); }
{ v[2u] = src(t, s, 2u, 2u); }
{ v[3u] = src(t, s, 3u, 2u); }
{ v[4u] = src(t, s, 4u, 2u); }
{ v[5u] = src(t, s, 5u, 2u); }
        { row_transformed[0u * 6u + 2u] = transform_row(first + 0u, v[0], v[1], v[2], v[3], v[4], v[5]); }
    }
{
        { v[0u] = src(t, s, 0u, 3u); }
{ v[1u] = src(t, s, 1u, 3u); }
{ v[2u] = src(t, s, 2u, 3u); }
{ v[3u] = src(t, s, 3u, 3u); }
{ v[4u] = src(t, s, 4u, 3u); }
{ v[5u] = src(t, s, 5u, 3u); }
        { row_transformed[0u * 6u + 3u] = transform_row(first + 0u, v[0], v[1], v[2], v[3], v[4], v[5]); }
    }
{
        { v[0u] = src(t, s, 0u, 4u); }
{ v[1u] = src(t, s, 1u, 4u); }
{ v[2u] = src(t, s, 2u, 4u); }
{ v[3u] = src(t, s, 3u, 4u); }
{ v[4u] = src(t, s, 4u, 4u); }
{ v[5u] = src(t, s, 5u, 4u); }
        { row_transformed[0u * 6u + 4u] = transform_row(first + 0u, v[0], v[1], v[2], v[3], v[4], v[5]); }
    }
{
        { v[0u] = src(t, s, 0u, 5u); }
{ v[1u] = src(t, s, 1u, 5u); }
{ v[2u] = src(t, s, 2u, 5u); }
{ v[3u] = src(t, s, 3u, 5u); }
{ v[4u] = src(t, s, 4u, 5u); }
{ v[5u] = src(t, s, 5u, 5u); }
        { row_transformed[0u * 6u + 5u] = transform_row(first + 0u, v[0], v[1], v[2], v[3], v[4], v[5]); }
    }
    {
        { v[0u] = row_transformed[0u * 6u + 0u]; }
{ v[1u] = row_transformed[0u * 6u + 1u]; }
{ v[2u] = row_transformed[0u * 6u + 2u]; }
{ v[3u] = row_transformed[0u * 6u + 3u]; }
{ v[4u] = row_transformed[0u * 6u + 4u]; }
{ v[5u] = row_transformed[0u * 6u + 5u]; }
        { store(t, s, first + 0u, 0u, transform_row(0u, v[0], v[1], v[2], v[3], v[4], v[5])); }
{ store(t, s, first + 0u, 1u, transform_row(1u, v[0], v[1], v[2], v[3], v[4], v[5])); }
{ store(t, s, first + 0u, 2u, transform_row(2u, v[0], v[1], v[2], v[3], v[4], v[5])); }
{ store(t, s, first + 0u, 3u, transform_row(3u, v[0], v[1], v[2], v[3], v[4], v[5])); }
{ store(t, s, first + 0u, 4u, transform_row(4u, v[0], v[1], v[2], v[3], v[4], v[5])); }
{ store(t, s, first + 0u, 5u, transform_row(5u, v[0], v[1], v[2], v[3], v[4], v[5])); }
    }
}
@group(0) @binding(0) var<storage, read> buffer_0: array<f32>;
@group(0) @binding(1) var<storage, read_write> buffer_1: array<f32>;
