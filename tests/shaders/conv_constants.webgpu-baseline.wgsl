// @generated for conv/0 f32: conv_constants GROUP_X=8 GROUP_Y=8 BLOCK_X=1
const KERNEL_X = 3u;
const KERNEL_Y = 3u;
const STRIDE_X = 2i;
const STRIDE_Y = 2i;
const DILATION_X = 1i;
const DILATION_Y = 1i;
const PAD_X = 1i;
const PAD_Y = 1i;
const GUARD_X = true;
const GUARD_Y = true;
const BATCH_INNER = false;
fn batches() -> u32 { return 1u; }
fn in_w() -> u32 { return 11u; }
fn in_h() -> u32 { return 13u; }
fn out_w() -> u32 { return 6u; }
fn out_h() -> u32 { return 7u; }
fn src(b: u32, y: u32, x: u32, s: u32) -> vec4<f32> {
    var r: vec4<f32> = vec4<f32>(0.0);
    r.x = f32(buffer_0[(y) * 11u + (x) + (((0u) * 4u)) * 143u]);
    if ((0u) * 4u + 1u < 3u) { r.y = f32(buffer_0[(y) * 11u + (x) + (((0u) * 4u)) * 143u + 143u]); }
    if ((0u) * 4u + 2u < 3u) { r.z = f32(buffer_0[(y) * 11u + (x) + (((0u) * 4u)) * 143u + 286u]); }
    if ((0u) * 4u + 3u < 3u) { r.w = f32(buffer_0[(y) * 11u + (x) + (((0u) * 4u)) * 143u + 429u]); }
    return r;
}
fn store(b: u32, y: u32, x: u32, s: u32, v: vec4<f32>) {
    var l2: vec4<f32> = vec4<f32>(0.0);
    l2.x = f32(buffer_2[(((s) * 4u))]);
    if ((s) * 4u + 1u < 10u) { l2.y = f32(buffer_2[(((s) * 4u)) + 1u]); }
    if ((s) * 4u + 2u < 10u) { l2.z = f32(buffer_2[(((s) * 4u)) + 2u]); }
    if ((s) * 4u + 3u < 10u) { l2.w = f32(buffer_2[(((s) * 4u)) + 3u]); }
    let x2 = l2;
    let s1 = (v + x2);
    let s2 = max(s1, vec4<f32>(0.0));
    let w = vec4<f32>(s2);
    buffer_3[(y) * 6u + (x) + (((s) * 4u)) * 42u] = w.x;
    if ((s) * 4u + 1u < 10u) { buffer_3[(y) * 6u + (x) + (((s) * 4u)) * 42u + 42u] = w.y; }
    if ((s) * 4u + 2u < 10u) { buffer_3[(y) * 6u + (x) + (((s) * 4u)) * 42u + 84u] = w.z; }
    if ((s) * 4u + 3u < 10u) { buffer_3[(y) * 6u + (x) + (((s) * 4u)) * 42u + 126u] = w.w; }
}
const GROUP_X = 8u;
const GROUP_Y = 8u;
const BLOCK_X = 1u;
const INPUTS = 3u;
const SLICES = 3u;
fn weight(i: u32) -> vec4<f32> { return buffer_1[i]; }
@compute @workgroup_size(GROUP_X, GROUP_Y, 1)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    var block_x = group.x * GROUP_X + local.x;
    let y = group.y * GROUP_Y + local.y;
    var b = group.z;
    if (BATCH_INNER) {
        b = block_x % batches();
        block_x = block_x / batches();
    }
    let first_x = block_x * BLOCK_X;
    if (first_x >= out_w() || y >= out_h()) { return; }
    var base_x: array<i32, BLOCK_X>;
    { base_x[0u] = i32(min(first_x + 0u, out_w() - 1u)) * STRIDE_X - PAD_X; }
    let base_y = i32(y) * STRIDE_Y - PAD_Y;
    var acc: array<vec4<f32>, BLOCK_X * SLICES>;
    { acc[0u] = vec4<f32>(0.0); }
{ acc[1u] = vec4<f32>(0.0); }
{ acc[2u] = vec4<f32>(0.0); }
    for (var ky = 0u; ky < KERNEL_Y; ky++) {
        let row = u32(base_y + i32(ky) * DILATION_Y);
        let inside_y = !GUARD_Y || row < in_h();
        for (var kx = 0u; kx < KERNEL_X; kx++) {
            var x: array<u32, BLOCK_X>;
            var inside: array<bool, BLOCK_X>;
            {
                x[0u] = u32(base_x[0u] + i32(kx) * DILATION_X);
                inside[0u] = inside_y && (!GUARD_X || x[0u] < in_w());
                x[0u] = select(0u, x[0u], inside[0u]);
            }
            let first = (ky * KERNEL_X + kx) * INPUTS;
            for (var s = 0u; s < (INPUTS + 3u) / 4u; s++) {
                var v: array<vec4<f32>, BLOCK_X>;
                {
                    v[0u] = select(vec4<f32>(0.0), src(b, select(0u, row, inside_y), x[0u], s), inside[0u]);
                }
                {
                    let i = s * 4u + 0u;
                    if (INPUTS % 4u == 0u || i < INPUTS) {
                        {
                            let w = weight((first + i) * SLICES + 0u);
                            {
                                acc[0u * SLICES + 0u] = fma(vec4<f32>(v[0u][0u]), w, acc[0u * SLICES + 0u]);
                            }
                        }
{
                            let w = weight((first + i) * SLICES + 1u);
                            {
                                acc[0u * SLICES + 1u] = fma(vec4<f32>(v[0u][0u]), w, acc[0u * SLICES + 1u]);
                            }
                        }
{
                            let w = weight((first + i) * SLICES + 2u);
                            {
                                acc[0u * SLICES + 2u] = fma(vec4<f32>(v[0u][0u]), w, acc[0u * SLICES + 2u]);
                            }
                        }
                    }
                }
{
                    let i = s * 4u + 1u;
                    if (INPUTS % 4u == 0u || i < INPUTS) {
                        {
                            let w = weight((first + i) * SLICES + 0u);
                            {
                                acc[0u * SLICES + 0u] = fma(vec4<f32>(v[0u][1u]), w, acc[0u * SLICES + 0u]);
                            }
                        }
{
                            let w = weight((first + i) * SLICES + 1u);
                            {
                                acc[0u * SLICES + 1u] = fma(vec4<f32>(v[0u][1u]), w, acc[0u * SLICES + 1u]);
                            }
                        }
{
                            let w = weight((first + i) * SLICES + 2u);
                            {
                                acc[0u * SLICES + 2u] = fma(vec4<f32>(v[0u][1u]), w, acc[0u * SLICES + 2u]);
                            }
                        }
                    }
                }
{
                    let i = s * 4u + 2u;
                    if (INPUTS % 4u == 0u || i < INPUTS) {
                        {
                            let w = weight((first + i) * SLICES + 0u);
                            {
                                acc[0u * SLICES + 0u] = fma(vec4<f32>(v[0u][2u]), w, acc[0u * SLICES + 0u]);
                            }
                        }
{
                            let w = weight((first + i) * SLICES + 1u);
                            {
                                acc[0u * SLICES + 1u] = fma(vec4<f32>(v[0u][2u]), w, acc[0u * SLICES + 1u]);
                            }
                        }
{
                            let w = weight((first + i) * SLICES + 2u);
                            {
                                acc[0u * SLICES + 2u] = fma(vec4<f32>(v[0u][2u]), w, acc[0u * SLICES + 2u]);
                            }
                        }
                    }
                }
{
                    let i = s * 4u + 3u;
                    if (INPUTS % 4u == 0u || i < INPUTS) {
                        {
                            let w = weight((first + i) * SLICES + 0u);
                            {
                                acc[0u * SLICES + 0u] = fma(vec4<f32>(v[0u][3u]), w, acc[0u * SLICES + 0u]);
                            }
                        }
{
                            let w = weight((first + i) * SLICES + 1u);
                            {
                                acc[0u * SLICES + 1u] = fma(vec4<f32>(v[0u][3u]), w, acc[0u * SLICES + 1u]);
                            }
                        }
{
                            let w = weight((first + i) * SLICES + 2u);
                            {
                                acc[0u * SLICES + 2u] = fma(vec4<f32>(v[0u][3u]), w, acc[0u * SLICES + 2u]);
                            }
                        }
                    }
                }
            }
        }
    }
    for (var p = 0u; p < BLOCK_X; p++) {
        if (first_x + p < out_w()) {
            for (var o = 0u; o < SLICES; o++) { store(b, y, first_x + p, o, acc[0]); acc[0] = acc[1];
acc[1] = acc[2];
}
        }
    }
}
@group(0) @binding(0) var<storage, read> buffer_0: array<f32>;
@group(0) @binding(1) var<uniform> buffer_1: array<vec4<f32>, 81>;
@group(0) @binding(2) var<storage, read> buffer_2: array<f32>;
@group(0) @binding(3) var<storage, read_write> buffer_3: array<f32>;
