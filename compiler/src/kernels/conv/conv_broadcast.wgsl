// Convolution over one to three spatial axes with filters broadcast in a subgroup. Each invocation loads one vec4 of
// filters at a time, and all invocations of the subgroup read this vec4 by shuffles. A filter is loaded once per
// subgroup, not once per invocation. Each invocation computes BLOCK_X neighboring pixels of SLICES slices of four
// output channels. The kernel is for constant filters without groups, on devices with subgroup shuffles.
//
// Preludes: `window.wgsl`, `image_sizes.wgsl`, `image_hooks_3d.wgsl` and `slice_filters.wgsl`.
//
// The compiler replaces the knobs, the window geometry, the sizes and the hooks. The hook `src` is called only inside
// the image along axes with a guard. No invocation returns before the last shuffle.

const LANES = 8u;
/// Number of invocations of a workgroup, which has one dimension.
const THREADS = 64u;
/// Number of invocations of a workgroup along x.
const TILE_X = 8u;
const BLOCK_X = 2u;
const SLICES = 2u;
/// Number of steps whose filters a subgroup loads at once. A step is one tap and one input slice (of four channels).
const STEPS = LANES / (SLICES * 4u);
const_assert STEPS * SLICES * 4u == LANES && STEPS > 0u && THREADS % LANES == 0u;

/// Number of steps of the convolution: taps times input slices (of four channels).
const ALL_STEPS = KERNEL_X * KERNEL_Y * KERNEL_Z * IN_SLICES;

@compute @workgroup_size(THREADS, 1, 1)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    var block_x = group.x * TILE_X + local % TILE_X;
    let y = group.y * (THREADS / TILE_X) + local / TILE_X;
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
    let first_x = block_x * BLOCK_X;

    // Pixels past the end of the image repeat the last pixel and are not stored.
    var base_x: array<i32, BLOCK_X>;
    // unroll
    for (var p = 0u; p < BLOCK_X; p++) { base_x[p] = i32(min(first_x + p, out_w() - 1u)) * STRIDE_X - PAD_X; }
    let base_z = i32(z) * STRIDE_Z - PAD_Z;
    let base_y = i32(min(y, out_h() - 1u)) * STRIDE_Y - PAD_Y;

    var acc: array<vec4<f32>, BLOCK_X * SLICES>;
    // unroll
    for (var i = 0u; i < BLOCK_X * SLICES; i++) { acc[i] = vec4<f32>(0.0); }
    let first = block_s * (ALL_STEPS * SLICES * 4u);
    for (var first_step = 0u; first_step < ALL_STEPS; first_step += STEPS) {
        let lane_filters = weight(first + min(first_step * (SLICES * 4u) + lane, ALL_STEPS * SLICES * 4u - 1u));
        // unroll
        for (var k = 0u; k < STEPS; k++) {
            // Steps past the last step read some pixel inside the image and add zero.
            let step = min(first_step + k, ALL_STEPS - 1u);
            let is_step = first_step + k < ALL_STEPS;
            let tap = step / IN_SLICES;
            let s = step % IN_SLICES;
            var ky = tap / KERNEL_X;
            var plane = 0u;
            if (DEEP) {
                plane = u32(base_z + i32(ky / KERNEL_Y) * DILATION_Z);
                ky = ky % KERNEL_Y;
            }
            let row = u32(base_y + i32(ky) * DILATION_Y);
            let inside_y = is_step && (!GUARD_Y || row < in_h()) && (!GUARD_Z || plane < in_d());
            var v: array<vec4<f32>, BLOCK_X>;
            // unroll
            for (var p = 0u; p < BLOCK_X; p++) {
                let x = u32(base_x[p] + i32(tap % KERNEL_X) * DILATION_X);
                let inside = inside_y && (!GUARD_X || x < in_w());
                let pixel = src(b, select(0u, plane, inside), select(0u, row, inside), select(0u, x, inside), s);
                v[p] = select(vec4<f32>(0.0), pixel, inside);
            }
            // unroll
            for (var o = 0u; o < SLICES; o++) {
                // unroll
                for (var i = 0u; i < 4u; i++) {
                    // After unrolling, the second argument is a constant, so drivers can compile the shuffle as a
                    // broadcast.
                    let w = subgroupShuffle(lane_filters, (k * SLICES + o) * 4u + i);
                    // unroll
                    for (var p = 0u; p < BLOCK_X; p++) {
                        acc[p * SLICES + o] = fma(vec4<f32>(v[p][i]), w, acc[p * SLICES + o]);
                    }
                }
            }
        }
    }
    // unroll or loop
    for (var p = 0u; p < BLOCK_X; p++) {
        if (first_x + p < out_w() && y < out_h()) {
            // unroll or shift acc
            for (var o = 0u; o < SLICES; o++) {
                if (block_s * SLICES + o < OUT_SLICES) {
                    store(b, z, y, first_x + p, block_s * SLICES + o, acc[p * SLICES + o]);
                }
            }
        }
    }
}
