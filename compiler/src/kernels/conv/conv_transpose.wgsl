// Transposed convolution over one to three spatial axes. Each invocation computes BLOCK_X output pixels of SLICES
// slices of four output channels. The pixels of an invocation are one stride apart, so that equal taps contribute to
// all of them. Adjacent invocations have equal phases (position modulo the stride) where possible. The kernel is for
// constant filters, without groups or with groups of whole slices.
//
// Preludes: `window.wgsl`, `image_sizes.wgsl`, `image_hooks_3d.wgsl` and `slice_filters.wgsl`.
//
// The compiler replaces the knobs, the window geometry, the sizes and the hooks. The hook `src` is called only inside
// the image along axes with a guard.

const GROUP_X = 8u;
const GROUP_Y = 8u;
const BLOCK_X = 2u;
const SLICES = 2u;

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
    // unroll
    for (var i = 0u; i < BLOCK_X * SLICES; i++) { acc[i] = vec4<f32>(0.0); }
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
                // unroll
                for (var p = 0u; p < BLOCK_X; p++) {
                    x[p] = u32(left + i32(p));
                    inside[p] = !GUARD_X || x[p] < in_w();
                    x[p] = select(0u, x[p], inside[p]);
                }
                let tap = (kz * KERNEL_Y + ky) * KERNEL_X + kx;
                var at = (block_s * TAPS + tap) * (IN_SLICES * SLICES * 4u);
                for (var s = 0u; s < IN_SLICES; s++) {
                    var v: array<vec4<f32>, BLOCK_X>;
                    // unroll
                    for (var p = 0u; p < BLOCK_X; p++) {
                        v[p] = select(vec4<f32>(0.0), src(b, plane, line, x[p], first_in + s), inside[p]);
                    }
                    // unroll
                    for (var o = 0u; o < SLICES; o++) {
                        let w = weights(at + o * 4u, first_slice + o, tap * IN_SLICES + s);
                        // unroll
                        for (var p = 0u; p < BLOCK_X; p++) {
                            acc[p * SLICES + o] = fma(vec4<f32>(v[p].x), w[0], acc[p * SLICES + o]);
                            acc[p * SLICES + o] = fma(vec4<f32>(v[p].y), w[1], acc[p * SLICES + o]);
                            acc[p * SLICES + o] = fma(vec4<f32>(v[p].z), w[2], acc[p * SLICES + o]);
                            acc[p * SLICES + o] = fma(vec4<f32>(v[p].w), w[3], acc[p * SLICES + o]);
                        }
                    }
                    at += SLICES * 4u;
                }
            }
        }
    }
    // unroll or loop
    for (var p = 0u; p < BLOCK_X; p++) {
        let x = first_x + p * u32(STRIDE_X);
        if (x < out_w()) {
            // unroll or shift acc
            for (var o = 0u; o < SLICES; o++) {
                if (first_slice + o < OUT_SLICES * GROUPS) { store(b, z, y, x, first_slice + o, acc[p * SLICES + o]); }
            }
        }
    }
}
