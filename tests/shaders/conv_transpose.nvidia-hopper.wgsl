// @generated for conv_transpose/0 f32: conv_transpose GROUP_X=8 GROUP_Y=2 BLOCK_X=1 SLICES=1
const KERNEL_X = 4u;
const KERNEL_Y = 4u;
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
fn batches() -> u32 { return 2u; }
fn in_w() -> u32 { return 7u; }
fn in_h() -> u32 { return 5u; }
fn in_d() -> u32 { return 1u; }
fn out_w() -> u32 { return 14u; }
fn out_h() -> u32 { return 10u; }
fn out_d() -> u32 { return 1u; }
fn src(b: u32, z: u32, y: u32, x: u32, s: u32) -> vec4<f32> {
    var r: vec4<f32> = vec4<f32>(0.0);
    r.x = f32(buffer_0[(b) * 210u + (y) * 7u + (x) + (((s) * 4u)) * 35u]);
    if ((s) * 4u + 1u < 6u) { r.y = f32(buffer_0[(b) * 210u + (y) * 7u + (x) + (((s) * 4u)) * 35u + 35u]); }
    if ((s) * 4u + 2u < 6u) { r.z = f32(buffer_0[(b) * 210u + (y) * 7u + (x) + (((s) * 4u)) * 35u + 70u]); }
    if ((s) * 4u + 3u < 6u) { r.w = f32(buffer_0[(b) * 210u + (y) * 7u + (x) + (((s) * 4u)) * 35u + 105u]); }
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
    buffer_3[(b) * 1400u + (y) * 14u + (x) + (((s) * 4u)) * 140u] = w.x;
    if ((s) * 4u + 1u < 10u) { buffer_3[(b) * 1400u + (y) * 14u + (x) + (((s) * 4u)) * 140u + 140u] = w.y; }
    if ((s) * 4u + 2u < 10u) { buffer_3[(b) * 1400u + (y) * 14u + (x) + (((s) * 4u)) * 140u + 280u] = w.z; }
    if ((s) * 4u + 3u < 10u) { buffer_3[(b) * 1400u + (y) * 14u + (x) + (((s) * 4u)) * 140u + 420u] = w.w; }
}
const IN_SLICES = 2u;
const OUT_SLICES = 3u;
const GROUPS = 1u;
fn weight(i: u32) -> vec4<f32> { return vec4<f32>(buffer_1[i]); }
fn weights(i: u32, column: u32, row: u32) -> mat4x4<f32> {
    return mat4x4<f32>(weight(i), weight(i + 1u), weight(i + 2u), weight(i + 3u));
}
const GROUP_X = 8u;
const GROUP_Y = 2u;
const BLOCK_X = 1u;
const SLICES = 1u;
@compute @workgroup_size(GROUP_X, GROUP_Y)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    var block_x = group.x * GROUP_X + local.x;
    let y = group.y * GROUP_Y + local.y;
    var block_s = group.z;
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
    let reach = BLOCK_X * u32(STRIDE_X);
    let per_phase = (out_w() + reach - 1u) / reach;
    let first_x = block_x % per_phase * reach + block_x / per_phase;
    if (block_x >= per_phase * u32(STRIDE_X) || first_x >= out_w() || y >= out_h()) { return; }
    let first_slice = block_s * SLICES;
    let first_in = first_slice / OUT_SLICES * IN_SLICES;
    var acc: array<vec4<f32>, BLOCK_X * SLICES>;
    { acc[0u] = vec4<f32>(0.0); }
    for (var kz = 0u; kz < KERNEL_Z; kz++) {
        let from_z = i32(z) + PAD_Z - i32(kz) * DILATION_Z;
        let plane = u32(from_z / STRIDE_Z);
        if (from_z % STRIDE_Z != 0 || (GUARD_Z && plane >= in_d())) { continue; }
        for (var ky = 0u; ky < KERNEL_Y; ky++) {
            let from_y = i32(y) + PAD_Y - i32(ky) * DILATION_Y;
            let line = u32(from_y / STRIDE_Y);
            if (from_y % STRIDE_Y != 0 || (GUARD_Y && line >= in_h())) { continue; }
            for (var kx = 0u; kx < KERNEL_X; kx++) {
                let from_x = i32(first_x) + PAD_X - i32(kx) * DILATION_X;
                if (from_x % STRIDE_X != 0) { continue; }
                let left = from_x / STRIDE_X;
                var x: array<u32, BLOCK_X>;
                var inside: array<bool, BLOCK_X>;
                {
                    x[0u] = u32(left + i32(0u));
                    inside[0u] = !GUARD_X || x[0u] < in_w();
                    x[0u] = select(0u, x[0u], inside[0u]);
                }
                let tap = (kz * KERNEL_Y + ky) * KERNEL_X + kx;
                var at = (block_s * TAPS + tap) * (IN_SLICES * SLICES * 4u);
                for (var s = 0u; s < IN_SLICES; s++) {
                    var v: array<vec4<f32>, BLOCK_X>;
                    {
                        v[0u] = select(vec4<f32>(0.0), src(b, plane, line, x[0u], first_in + s), inside[0u]);
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
                    at += SLICES * 4u;
                }
            }
        }
    }
    {
        let x = first_x + 0u * u32(STRIDE_X);
        if (x < out_w()) {
            {
                if (first_slice + 0u < OUT_SLICES * GROUPS) { store(b, z, y, x, first_slice + 0u, acc[0u * SLICES + 0u]); }
            }
        }
    }
}
@group(0) @binding(0) var<storage, read> buffer_0: array<f32>;
@group(0) @binding(1) var<storage, read> buffer_1: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> buffer_2: array<f32>;
@group(0) @binding(3) var<storage, read_write> buffer_3: array<f32>;
