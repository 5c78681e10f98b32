// @generated for separable_conv/0 f32: conv_separable_direct GROUP_X=8 GROUP_Y=1 RUN=1 COLS=3
const KERNEL_X = 3u;
const KERNEL_Y = 3u;
const STRIDE_X = 1i;
const STRIDE_Y = 1i;
const DILATION_Y = 1i;
const PAD_X = 1i;
const PAD_Y = 1i;
const GUARD_X = true;
const GUARD_Y = true;
const SPAN = 3u;
const STEP_X = 1u;
const TAP_X = 1u;
fn batches() -> u32 { return 2u; }
fn in_w() -> u32 { return 11u; }
fn in_h() -> u32 { return 9u; }
fn out_w() -> u32 { return 11u; }
fn out_h() -> u32 { return 9u; }
fn src(b: u32, y: u32, x: u32, s: u32) -> vec4<f32> {
    var r: vec4<f32> = vec4<f32>(0.0);
    r.x = f32(buffer_0[(b) * 990u + (y) * 11u + (x) + (((s) * 4u)) * 99u]);
    if ((s) * 4u + 1u < 10u) { r.y = f32(buffer_0[(b) * 990u + (y) * 11u + (x) + (((s) * 4u)) * 99u + 99u]); }
    if ((s) * 4u + 2u < 10u) { r.z = f32(buffer_0[(b) * 990u + (y) * 11u + (x) + (((s) * 4u)) * 99u + 198u]); }
    if ((s) * 4u + 3u < 10u) { r.w = f32(buffer_0[(b) * 990u + (y) * 11u + (x) + (((s) * 4u)) * 99u + 297u]); }
    return r;
}
fn store(b: u32, y: u32, x: u32, s: u32, v: vec4<f32>) {
    var l4: vec4<f32> = vec4<f32>(0.0);
    l4.x = f32(buffer_4[(((s) * 4u))]);
    if ((s) * 4u + 1u < 22u) { l4.y = f32(buffer_4[(((s) * 4u)) + 1u]); }
    if ((s) * 4u + 2u < 22u) { l4.z = f32(buffer_4[(((s) * 4u)) + 2u]); }
    if ((s) * 4u + 3u < 22u) { l4.w = f32(buffer_4[(((s) * 4u)) + 3u]); }
    let x4 = l4;
    let s1 = (v + x4);
    var l5: vec4<f32> = vec4<f32>(0.0);
    l5.x = f32(buffer_5[(b) * 2178u + (y) * 11u + (x) + (((s) * 4u)) * 99u]);
    if ((s) * 4u + 1u < 22u) { l5.y = f32(buffer_5[(b) * 2178u + (y) * 11u + (x) + (((s) * 4u)) * 99u + 99u]); }
    if ((s) * 4u + 2u < 22u) { l5.z = f32(buffer_5[(b) * 2178u + (y) * 11u + (x) + (((s) * 4u)) * 99u + 198u]); }
    if ((s) * 4u + 3u < 22u) { l5.w = f32(buffer_5[(b) * 2178u + (y) * 11u + (x) + (((s) * 4u)) * 99u + 297u]); }
    let x5 = l5;
    let s2 = (s1 + x5);
    let w = vec4<f32>(s2);
    buffer_6[(b) * 2178u + (y) * 11u + (x) + (((s) * 4u)) * 99u] = w.x;
    if ((s) * 4u + 1u < 22u) { buffer_6[(b) * 2178u + (y) * 11u + (x) + (((s) * 4u)) * 99u + 99u] = w.y; }
    if ((s) * 4u + 2u < 22u) { buffer_6[(b) * 2178u + (y) * 11u + (x) + (((s) * 4u)) * 99u + 198u] = w.z; }
    if ((s) * 4u + 3u < 22u) { buffer_6[(b) * 2178u + (y) * 11u + (x) + (((s) * 4u)) * 99u + 297u] = w.w; }
}
const IN_SLICES = 3u;
const OUT_SLICES = 6u;
fn tap(i: u32) -> vec4<f32> { return vec4<f32>(textureLoad(buffer_1, vec2<u32>(i % 9u, i / 9u), 0)); }
fn middle(b: u32, y: u32, x: u32, s: u32, v: vec4<f32>) -> vec4<f32> {
    var l3: vec4<f32> = vec4<f32>(0.0);
    l3.x = f32(buffer_3[(((s) * 4u))]);
    if ((s) * 4u + 1u < 10u) { l3.y = f32(buffer_3[(((s) * 4u)) + 1u]); }
    if ((s) * 4u + 2u < 10u) { l3.z = f32(buffer_3[(((s) * 4u)) + 2u]); }
    if ((s) * 4u + 3u < 10u) { l3.w = f32(buffer_3[(((s) * 4u)) + 3u]); }
    let x3 = l3;
    let s1 = (v + x3);
    let s2 = sigmoid(s1);
    return select(s2, vec4<f32>(0.0), vec4<u32>(s * 4u) + vec4<u32>(0u, 1u, 2u, 3u) >= vec4<u32>(10u));
}
fn weight(i: u32) -> vec4<f32> { return vec4<f32>(textureLoad(buffer_2, vec2<u32>(i % 16u, i / 16u), 0)); }
const GROUP_X = 8u;
const GROUP_Y = 1u;
const RUN = 1u;
const COLS = 3u;
@compute @workgroup_size(GROUP_X, GROUP_Y)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let across = group.x * GROUP_X + local.x;
    let b = across % batches();
    let x = across / batches() * RUN;
    let y = group.y * GROUP_Y + local.y;
    if (x >= out_w() || y >= out_h()) { return; }
    let left = i32(x) * STRIDE_X - PAD_X;
    let top = i32(y) * STRIDE_Y - PAD_Y;
    var acc: array<vec4<f32>, RUN * COLS>;
    { acc[0u] = vec4<f32>(0.0); }
{ acc[1u] = vec4<f32>(0.0); }
{ acc[2u] = vec4<f32>(0.0); }
    for (var s = 0u; s < IN_SLICES; s++) {
        var sums: array<vec4<f32>, RUN>;
        { sums[0u] = vec4<f32>(0.0); }
        for (var ky = 0u; ky < KERNEL_Y; ky++) {
            let line = u32(top + i32(ky) * DILATION_Y);
            if (GUARD_Y && line >= in_h()) { continue; }
            var v: array<vec4<f32>, SPAN>;
            {
                let at = u32(left + i32(0u));
                let inside = !GUARD_X || at < in_w();
                v[0u] = select(vec4<f32>(0.0), src(b, line, select(0u, at, inside), s), inside);
            }
{
                let at = u32(left + i32(1u));
                let inside = !GUARD_X || at < in_w();
                v[1u] = select(vec4<f32>(0.0), src(b, line, select(0u, at, inside), s), inside);
            }
{
                let at = u32(left + i32(2u));
                let inside = !GUARD_X || at < in_w();
                v[2u] = select(vec4<f32>(0.0), src(b, line, select(0u, at, inside), s), inside);
            }
            let first = (s * KERNEL_Y + ky) * KERNEL_X;
            {
                let w = tap(first + 0u);
                { sums[0u] = fma(v[0u * STEP_X + 0u * TAP_X], w, sums[0u]); }
            }
{
                let w = tap(first + 1u);
                { sums[0u] = fma(v[0u * STEP_X + 1u * TAP_X], w, sums[0u]); }
            }
{
                let w = tap(first + 2u);
                { sums[0u] = fma(v[0u * STEP_X + 2u * TAP_X], w, sums[0u]); }
            }
        }
        { sums[0u] = middle(b, y, min(x + 0u, out_w() - 1u), s, sums[0u]); }
        {
            let first = ((group.z * IN_SLICES + s) * COLS + 0u) * 4u;
            let w0 = weight(first);
            let w1 = weight(first + 1u);
            let w2 = weight(first + 2u);
            let w3 = weight(first + 3u);
            {
                acc[0u * COLS + 0u] += sums[0u].x * w0 + sums[0u].y * w1 + sums[0u].z * w2 + sums[0u].w * w3;
            }
        }
{
            let first = ((group.z * IN_SLICES + s) * COLS + 1u) * 4u;
            let w0 = weight(first);
            let w1 = weight(first + 1u);
            let w2 = weight(first + 2u);
            let w3 = weight(first + 3u);
            {
                acc[0u * COLS + 1u] += sums[0u].x * w0 + sums[0u].y * w1 + sums[0u].z * w2 + sums[0u].w * w3;
            }
        }
{
            let first = ((group.z * IN_SLICES + s) * COLS + 2u) * 4u;
            let w0 = weight(first);
            let w1 = weight(first + 1u);
            let w2 = weight(first + 2u);
            let w3 = weight(first + 3u);
            {
                acc[0u * COLS + 2u] += sums[0u].x * w0 + sums[0u].y * w1 + sums[0u].z * w2 + sums[0u].w * w3;
            }
        }
    }
    {
        {
            let slice = group.z * COLS + 0u;
            if (x + 0u < out_w() && slice < OUT_SLICES) { store(b, y, x + 0u, slice, acc[0u * COLS + 0u]); }
        }
{
            let slice = group.z * COLS + 1u;
            if (x + 0u < out_w() && slice < OUT_SLICES) { store(b, y, x + 0u, slice, acc[0u * COLS + 1u]); }
        }
{
            let slice = group.z * COLS + 2u;
            if (x + 0u < out_w() && slice < OUT_SLICES) { store(b, y, x + 0u, slice, acc[0u * COLS + 2u]); }
        }
    }
}
@group(0) @binding(0) var<storage, read> buffer_0: array<f32>;
@group(0) @binding(1) var buffer_1: texture_2d<f32>;
@group(0) @binding(2) var buffer_2: texture_2d<f32>;
@group(0) @binding(3) var<storage, read> buffer_3: array<f32>;
@group(0) @binding(4) var<storage, read> buffer_4: array<f32>;
@group(0) @binding(5) var<storage, read> buffer_5: array<f32>;
@group(0) @binding(6) var<storage, read_write> buffer_6: array<f32>;
alias Elem = vec4<f32>;
fn sigmoid(x: Elem) -> Elem {
    return Elem(1.0) / (Elem(1.0) + exp(-clamp(x, Elem(-87.0), Elem(87.0))));
}
