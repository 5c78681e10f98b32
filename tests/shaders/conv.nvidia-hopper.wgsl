// @generated for conv/0 f32: conv GROUP_X=8 GROUP_Y=8 BLOCK_X=1 BLOCK_Y=1 SLICES=1 SPLIT=1
const KERNEL_X = 3u;
const KERNEL_Y = 3u;
const KERNEL_Z = 1u;
const TAPS = KERNEL_X * KERNEL_Y * KERNEL_Z;
const STRIDE_X = 2i;
const STRIDE_Y = 2i;
const STRIDE_Z = 1i;
const DILATION_X = 1i;
const DILATION_Y = 1i;
const DILATION_Z = 1i;
const PAD_X = 1i;
const PAD_Y = 1i;
const PAD_Z = 0i;
const GUARD_X = true;
const GUARD_Y = true;
const GUARD_Z = false;
const BATCH_INNER = false;
const DEEP = false;
fn batches() -> u32 { return 1u; }
fn in_w() -> u32 { return 11u; }
fn in_h() -> u32 { return 13u; }
fn in_d() -> u32 { return 1u; }
fn out_w() -> u32 { return 6u; }
fn out_h() -> u32 { return 7u; }
fn out_d() -> u32 { return 1u; }
fn src(b: u32, z: u32, y: u32, x: u32, s: u32) -> vec4<f32> {
    var r: vec4<f32> = vec4<f32>(0.0);
    r.x = f32(buffer_0[(y) * 11u + (x) + (((0u) * 4u)) * 143u]);
    if ((0u) * 4u + 1u < 3u) { r.y = f32(buffer_0[(y) * 11u + (x) + (((0u) * 4u)) * 143u + 143u]); }
    if ((0u) * 4u + 2u < 3u) { r.z = f32(buffer_0[(y) * 11u + (x) + (((0u) * 4u)) * 143u + 286u]); }
    if ((0u) * 4u + 3u < 3u) { r.w = f32(buffer_0[(y) * 11u + (x) + (((0u) * 4u)) * 143u + 429u]); }
    return r;
}
fn store(b: u32, z: u32, y: u32, x: u32, s: u32, v: vec4<f32>) {
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
const IN_SLICES = 1u;
const OUT_SLICES = 3u;
const GROUPS = 1u;
fn weight(i: u32) -> vec4<f32> { return vec4<f32>(buffer_1[i]); }
fn weights(i: u32, column: u32, row: u32) -> mat4x4<f32> {
    return mat4x4<f32>(weight(i), weight(i + 1u), weight(i + 2u), weight(i + 3u));
}
const GROUP_X = 8u;
const GROUP_Y = 8u;
const BLOCK_X = 1u;
const BLOCK_Y = 1u;
const SLICES = 1u;
const SPLIT = 1u;
const PIXELS = BLOCK_X * BLOCK_Y;
fn combine(v: vec4<f32>, block: u32, split_index: u32) -> vec4<f32> { return v; }
@compute @workgroup_size(GROUP_X, GROUP_Y, SPLIT)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    var block_x = group.x * GROUP_X + local.x;
    let block_y = group.y * GROUP_Y + local.y;
    var block_s = group.z;
    let split_index = local.z % SPLIT;
    var b = 0u;
    if (BATCH_INNER) {
        b = block_x % batches();
        block_x = block_x / batches();
    } else {
        b = block_s % batches();
        block_s = block_s / batches();
    }
    var z = 0u;
    if (DEEP) {
        z = block_s % out_d();
        block_s = block_s / out_d();
    }
    let first_x = block_x * BLOCK_X;
    let first_y = block_y * BLOCK_Y;
    let taps_y = select(0u, KERNEL_Y, first_x < out_w() && first_y < out_h());
    let first_slice = block_s * SLICES;
    let first_in = first_slice / OUT_SLICES * IN_SLICES;
    var base_x: array<i32, BLOCK_X>;
    var base_y: array<i32, BLOCK_Y>;
    { base_x[0u] = i32(min(first_x + 0u, out_w() - 1u)) * STRIDE_X - PAD_X; }
    { base_y[0u] = i32(min(first_y + 0u, out_h() - 1u)) * STRIDE_Y - PAD_Y; }
    var acc: array<vec4<f32>, PIXELS * SLICES>;
    { acc[0u] = vec4<f32>(0.0); }
    for (var kz = 0u; kz < KERNEL_Z; kz++) {
        let iz = u32(i32(z) * STRIDE_Z - PAD_Z + i32(kz) * DILATION_Z);
        if (GUARD_Z && iz >= in_d()) { continue; }
        for (var ky = 0u; ky < taps_y; ky++) {
            for (var kx = 0u; kx < KERNEL_X; kx++) {
                var x: array<u32, PIXELS>;
                var y: array<u32, PIXELS>;
                var inside: array<bool, PIXELS>;
                {
                    x[0u] = u32(base_x[0u % BLOCK_X] + i32(kx) * DILATION_X);
                    y[0u] = u32(base_y[0u / BLOCK_X] + i32(ky) * DILATION_Y);
                    inside[0u] = (!GUARD_X || x[0u] < in_w()) && (!GUARD_Y || y[0u] < in_h());
                    x[0u] = select(0u, x[0u], inside[0u]);
                    y[0u] = select(0u, y[0u], inside[0u]);
                }
                let tap = (kz * KERNEL_Y + ky) * KERNEL_X + kx;
                for (var s = split_index; s < IN_SLICES; s += SPLIT) {
                    let at = ((block_s * TAPS + tap) * IN_SLICES + s) * (SLICES * 4u);
                    var v: array<vec4<f32>, PIXELS>;
                    {
                        v[0u] = select(vec4<f32>(0.0), src(b, iz, y[0u], x[0u], first_in + s), inside[0u]);
                    }
                    {
                        let w = weights(at + 0u * 4u, first_slice + 0u, tap * IN_SLICES + s);
                        {
                            acc[0u * SLICES + 0u] = fma(vec4<f32>(v[0u].x), w[0], acc[0u * SLICES + 0u]);
                            acc[0u * SLICES + 0u] = fma(vec4<f32>(v[0u].y), w[1], acc[0u * SLICES + 0u]);
                            acc[0u * SLICES + 0u] = fma(vec4<f32>(v[0u].z), w[2], acc[0u * SLICES + 0u]);
                            acc[0u * SLICES + 0u] = fma(vec4<f32>(v[0u].w), w[3], acc[0u * SLICES + 0u]);
                        }
                    }
                }
            }
        }
    }
    {
        let x = first_x + 0u % BLOCK_X;
        let y = first_y + 0u / BLOCK_X;
        let inside = split_index == 0u && x < out_w() && y < out_h();
        {
            let sum = combine(acc[0u * SLICES + 0u], local.y * GROUP_X + local.x, split_index);
            if (inside && first_slice + 0u < OUT_SLICES * GROUPS) { store(b, z, y, x, first_slice + 0u, sum); }
        }
    }
}
@group(0) @binding(0) var<storage, read> buffer_0: array<f32>;
@group(0) @binding(1) var<storage, read> buffer_1: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> buffer_2: array<f32>;
@group(0) @binding(3) var<storage, read_write> buffer_3: array<f32>;
