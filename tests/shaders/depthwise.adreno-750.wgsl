// @generated for conv/15 f32: depthwise GROUP_X=4 GROUP_Y=2 BLOCK_X=4
const KERNEL_X = 3u;
const KERNEL_Y = 3u;
const KERNEL_Z = 1u;
const STRIDE_X = 1i;
const STRIDE_Y = 1i;
const STRIDE_Z = 1i;
const DILATION_Y = 1i;
const DILATION_Z = 1i;
const PAD_X = 1i;
const PAD_Y = 1i;
const PAD_Z = 0i;
const GUARD_X = true;
const GUARD_Y = true;
const GUARD_Z = false;
const SPAN = 6u;
const STEP_X = 1u;
const TAP_X = 1u;
const BATCH_INNER = false;
const DEEP = false;
fn batches() -> u32 { return 2u; }
fn in_w() -> u32 { return 11u; }
fn in_h() -> u32 { return 9u; }
fn in_d() -> u32 { return 1u; }
fn out_w() -> u32 { return 11u; }
fn out_h() -> u32 { return 9u; }
fn out_d() -> u32 { return 1u; }
fn src(b: u32, z: u32, y: u32, x: u32, s: u32) -> vec4<f32> {
    var r: vec4<f32> = vec4<f32>(0.0);
    r.x = f32(buffer_0[(b) * 990u + (y) * 11u + (x) + (((s) * 4u)) * 99u]);
    if ((s) * 4u + 1u < 10u) { r.y = f32(buffer_0[(b) * 990u + (y) * 11u + (x) + (((s) * 4u)) * 99u + 99u]); }
    if ((s) * 4u + 2u < 10u) { r.z = f32(buffer_0[(b) * 990u + (y) * 11u + (x) + (((s) * 4u)) * 99u + 198u]); }
    if ((s) * 4u + 3u < 10u) { r.w = f32(buffer_0[(b) * 990u + (y) * 11u + (x) + (((s) * 4u)) * 99u + 297u]); }
    return r;
}
fn store(b: u32, z: u32, y: u32, x: u32, s: u32, v: vec4<f32>) {
    var l2: vec4<f32> = vec4<f32>(0.0);
    l2.x = f32(buffer_1[(((s) * 4u))]);
    if ((s) * 4u + 1u < 10u) { l2.y = f32(buffer_1[(((s) * 4u)) + 1u]); }
    if ((s) * 4u + 2u < 10u) { l2.z = f32(buffer_1[(((s) * 4u)) + 2u]); }
    if ((s) * 4u + 3u < 10u) { l2.w = f32(buffer_1[(((s) * 4u)) + 3u]); }
    let x2 = l2;
    let s1 = (v + x2);
    let s2 = max(s1, vec4<f32>(0.0));
    let w = vec4<f32>(s2);
    buffer_2[(b) * 990u + (y) * 11u + (x) + (((s) * 4u)) * 99u] = w.x;
    if ((s) * 4u + 1u < 10u) { buffer_2[(b) * 990u + (y) * 11u + (x) + (((s) * 4u)) * 99u + 99u] = w.y; }
    if ((s) * 4u + 2u < 10u) { buffer_2[(b) * 990u + (y) * 11u + (x) + (((s) * 4u)) * 99u + 198u] = w.z; }
    if ((s) * 4u + 3u < 10u) { buffer_2[(b) * 990u + (y) * 11u + (x) + (((s) * 4u)) * 99u + 297u] = w.w; }
}
const GROUP_X = 4u;
const GROUP_Y = 2u;
const BLOCK_X = 4u;
fn weight(s: u32, tap: u32) -> vec4<f32> { return vec4<f32>(textureLoad(buffer_3, vec2<u32>(tap, s), 0)); }
@compute @workgroup_size(GROUP_X, GROUP_Y)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    var block_x = group.x * GROUP_X + local.x;
    let y = group.y * GROUP_Y + local.y;
    var s = group.z;
    var b = 0u;
    if (BATCH_INNER) {
        b = block_x % batches();
        block_x = block_x / batches();
    } else {
        b = s % batches();
        s = s / batches();
    }
    var z = 0u;
    if (DEEP) {
        z = s % out_d();
        s = s / out_d();
    }
    let first_x = block_x * BLOCK_X;
    if (first_x >= out_w() || y >= out_h()) { return; }
    let left = i32(first_x) * STRIDE_X - PAD_X;
    let top = i32(y) * STRIDE_Y - PAD_Y;
    var acc: array<vec4<f32>, BLOCK_X>;
    { acc[0u] = vec4<f32>(0.0); }
{ acc[1u] = vec4<f32>(0.0); }
{ acc[2u] = vec4<f32>(0.0); }
{ acc[3u] = vec4<f32>(0.0); }
    for (var kz = 0u; kz < KERNEL_Z; kz++) {
        let plane = u32(i32(z) * STRIDE_Z - PAD_Z + i32(kz) * DILATION_Z);
        if (GUARD_Z && plane >= in_d()) { continue; }
        for (var ky = 0u; ky < KERNEL_Y; ky++) {
            let line = u32(top + i32(ky) * DILATION_Y);
            if (GUARD_Y && line >= in_h()) { continue; }
            var v: array<vec4<f32>, SPAN>;
            {
                let x = u32(left + i32(0u));
                let inside = !GUARD_X || x < in_w();
                v[0u] = select(vec4<f32>(0.0), src(b, plane, line, select(0u, x, inside), s), inside);
            }
{
                let x = u32(left + i32(1u));
                let inside = !GUARD_X || x < in_w();
                v[1u] = select(vec4<f32>(0.0), src(b, plane, line, select(0u, x, inside), s), inside);
            }
{
                let x = u32(left + i32(2u));
                let inside = !GUARD_X || x < in_w();
                v[2u] = select(vec4<f32>(0.0), src(b, plane, line, select(0u, x, inside), s), inside);
            }
{
                let x = u32(left + i32(3u));
                let inside = !GUARD_X || x < in_w();
                v[3u] = select(vec4<f32>(0.0), src(b, plane, line, select(0u, x, inside), s), inside);
            }
{
                let x = u32(left + i32(4u));
                let inside = !GUARD_X || x < in_w();
                v[4u] = select(vec4<f32>(0.0), src(b, plane, line, select(0u, x, inside), s), inside);
            }
{
                let x = u32(left + i32(5u));
                let inside = !GUARD_X || x < in_w();
                v[5u] = select(vec4<f32>(0.0), src(b, plane, line, select(0u, x, inside), s), inside);
            }
            {
                let w = weight(s, (kz * KERNEL_Y + ky) * KERNEL_X + 0u);
                { acc[0u] = fma(v[0u * STEP_X + 0u * TAP_X], w, acc[0u]); }
{ acc[1u] = fma(v[1u * STEP_X + 0u * TAP_X], w, acc[1u]); }
{ acc[2u] = fma(v[2u * STEP_X + 0u * TAP_X], w, acc[2u]); }
{ acc[3u] = fma(v[3u * STEP_X + 0u * TAP_X], w, acc[3u]); }
            }
{
                let w = weight(s, (kz * KERNEL_Y + ky) * KERNEL_X + 1u);
                { acc[0u] = fma(v[0u * STEP_X + 1u * TAP_X], w, acc[0u]); }
{ acc[1u] = fma(v[1u * STEP_X + 1u * TAP_X], w, acc[1u]); }
{ acc[2u] = fma(v[2u * STEP_X + 1u * TAP_X], w, acc[2u]); }
{ acc[3u] = fma(v[3u * STEP_X + 1u * TAP_X], w, acc[3u]); }
            }
{
                let w = weight(s, (kz * KERNEL_Y + ky) * KERNEL_X + 2u);
                { acc[0u] = fma(v[0u * STEP_X + 2u * TAP_X], w, acc[0u]); }
{ acc[1u] = fma(v[1u * STEP_X + 2u * TAP_X], w, acc[1u]); }
{ acc[2u] = fma(v[2u * STEP_X + 2u * TAP_X], w, acc[2u]); }
{ acc[3u] = fma(v[3u * STEP_X + 2u * TAP_X], w, acc[3u]); }
            }
        }
    }
    {
        if (first_x + 0u < out_w()) { store(b, z, y, first_x + 0u, s, acc[0u]); }
    }
{
        if (first_x + 1u < out_w()) { store(b, z, y, first_x + 1u, s, acc[1u]); }
    }
{
        if (first_x + 2u < out_w()) { store(b, z, y, first_x + 2u, s, acc[2u]); }
    }
{
        if (first_x + 3u < out_w()) { store(b, z, y, first_x + 3u, s, acc[3u]); }
    }
}
@group(0) @binding(0) var<storage, read> buffer_0: array<f32>;
@group(0) @binding(1) var<storage, read> buffer_1: array<f32>;
@group(0) @binding(2) var<storage, read_write> buffer_2: array<f32>;
@group(0) @binding(3) var buffer_3: texture_2d<f32>;
