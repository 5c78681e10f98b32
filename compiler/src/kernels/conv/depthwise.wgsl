// Depthwise convolution over one to three spatial axes, with one constant filter per channel. Each invocation computes
// BLOCK_X neighboring pixels of four channels, and reads each input pixel of a line once for all these pixels.
//
// Preludes: `window.wgsl`, `image_sizes.wgsl` and `image_hooks_3d.wgsl`.
//
// The compiler replaces the knobs, the window geometry, the sizes and the hooks. The hook `src` is called only inside
// the image along axes with a guard.

const GROUP_X = 8u;
const GROUP_Y = 8u;
const BLOCK_X = 2u;

@group(0) @binding(2) var<storage, read> filters: array<vec4<f32>>;

/// Loads the depthwise filters of channels `4s..4s+4` at a tap.
fn weight(s: u32, tap: u32) -> vec4<f32> { return filters[s * (KERNEL_X * KERNEL_Y * KERNEL_Z) + tap]; }

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
