// Depthwise convolution over one to three spatial axes, with one constant filter per channel. Each invocation computes
// BLOCK_X neighboring pixels of four channels and reads each pixel of a line once for all of them.
//
// Replaced by the compiler: knobs, geometry, sizes and hooks. `src` is called only inside the image along guarded axes.

const GROUP_X = 8u;
const GROUP_Y = 8u;
const BLOCK_X = 2u;

const KERNEL_X = 3u;
const KERNEL_Y = 3u;
const KERNEL_Z = 1u;
const STRIDE_X = 1i;
const STRIDE_Y = 1i;
const STRIDE_Z = 1i;
const DILATION_X = 1i;
const DILATION_Y = 1i;
const DILATION_Z = 1i;
const PAD_X = 1i;
const PAD_Y = 1i;
const PAD_Z = 0i;
/// Pixels of a line under the windows of a block.
const SPAN = 4u;
const STEP_X = 1u;
const TAP_X = 1u;
/// True if taps may be outside the image along an axis and must be masked.
const GUARD_X = true;
const GUARD_Y = true;
const GUARD_Z = true;
/// True if there is more than one position along z.
const DEEP = false;
/// True if the batch is the fastest index of the grid, false if it is the slowest.
const BATCH_INNER = true;

@group(0) @binding(0) var<storage, read> source: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> filters: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> result: array<vec4<f32>>;

fn batches() -> u32 { return 1u; }
fn in_w() -> u32 { return 8u; }
fn in_h() -> u32 { return 8u; }
fn in_d() -> u32 { return 1u; }
fn out_w() -> u32 { return 8u; }
fn out_h() -> u32 { return 8u; }
fn out_d() -> u32 { return 1u; }

/// Channels `4s..4s+4` of a pixel.
fn src(b: u32, z: u32, y: u32, x: u32, s: u32) -> vec4<f32> { return source[((s * 8u + y) * 8u + x) + b + z]; }
/// The filters of channels `4s..4s+4` at a tap.
fn weight(s: u32, tap: u32) -> vec4<f32> { return filters[s * (KERNEL_X * KERNEL_Y * KERNEL_Z) + tap]; }
/// Applies the epilogue to channels `4s..4s+4` of a pixel and stores them.
fn store(b: u32, z: u32, y: u32, x: u32, s: u32, v: vec4<f32>) { result[((s * 8u + y) * 8u + x) + b + z] = v; }

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
    // unroll
    for (var p = 0u; p < BLOCK_X; p++) { acc[p] = vec4<f32>(0.0); }
    for (var kz = 0u; kz < KERNEL_Z; kz++) {
        let plane = u32(i32(z) * STRIDE_Z - PAD_Z + i32(kz) * DILATION_Z);
        if (GUARD_Z && plane >= in_d()) { continue; }
        for (var ky = 0u; ky < KERNEL_Y; ky++) {
            let line = u32(top + i32(ky) * DILATION_Y);
            if (GUARD_Y && line >= in_h()) { continue; }
            var v: array<vec4<f32>, SPAN>;
            // unroll
            for (var i = 0u; i < SPAN; i++) {
                let x = u32(left + i32(i));
                let inside = !GUARD_X || x < in_w();
                v[i] = select(vec4<f32>(0.0), src(b, plane, line, select(0u, x, inside), s), inside);
            }
            // unroll
            for (var kx = 0u; kx < KERNEL_X; kx++) {
                let w = weight(s, (kz * KERNEL_Y + ky) * KERNEL_X + kx);
                // unroll
                for (var p = 0u; p < BLOCK_X; p++) { acc[p] = fma(v[p * STEP_X + kx * TAP_X], w, acc[p]); }
            }
        }
    }
    // unroll or shift acc
    for (var p = 0u; p < BLOCK_X; p++) {
        if (first_x + p < out_w()) { store(b, z, y, first_x + p, s, acc[p]); }
    }
}
