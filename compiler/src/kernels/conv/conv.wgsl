// Convolution over one to three spatial axes. Each invocation computes BLOCK_Y x BLOCK_X pixels of SLICES slices of
// four output channels. It reads four input channels at a time, and every filter once per block. If SPLIT is above 1,
// SPLIT invocations split the input channels of a block, which occupies the device for small images. The kernel is for
// constant filters, without groups or with groups of whole slices.
//
// Preludes: `window.wgsl`, `image_sizes.wgsl`, `image_hooks_3d.wgsl` and `slice_filters.wgsl`.
//
// The compiler replaces the knobs, the window geometry, the sizes and the hooks. The hook `src` is called only inside
// the image along axes with a guard. Slices past the last output slice are computed with zero filters and never stored.

const GROUP_X = 8u;
const GROUP_Y = 8u;
const BLOCK_X = 2u;
const BLOCK_Y = 1u;
const SLICES = 2u;
const SPLIT = 4u;
const PIXELS = BLOCK_X * BLOCK_Y;

var<workgroup> partial: array<vec4<f32>, GROUP_X * GROUP_Y * SPLIT>;

/// Adds `v` over the SPLIT invocations of a block, and returns the sum to the first of them. If SPLIT is 1, the
/// compiler replaces this function by one that returns `v`.
fn combine(v: vec4<f32>, block: u32, split_index: u32) -> vec4<f32> {
    workgroupBarrier();
    partial[split_index * (GROUP_X * GROUP_Y) + block] = v;
    workgroupBarrier();
    var sum = v;
    for (var i = 1u; i < select(1u, SPLIT, split_index == 0u); i++) { sum += partial[i * (GROUP_X * GROUP_Y) + block]; }
    return sum;
}

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
    // Invocations with pixels outside the image have no taps, but they must not return before the barriers of
    // `combine`.
    let taps_y = select(0u, KERNEL_Y, first_x < out_w() && first_y < out_h());
    let first_slice = block_s * SLICES;
    let first_in = first_slice / OUT_SLICES * IN_SLICES;

    // Pixels past the end of the image repeat the last pixel and are not stored.
    var base_x: array<i32, BLOCK_X>;
    var base_y: array<i32, BLOCK_Y>;
    // unroll
    for (var p = 0u; p < BLOCK_X; p++) { base_x[p] = i32(min(first_x + p, out_w() - 1u)) * STRIDE_X - PAD_X; }
    // unroll
    for (var p = 0u; p < BLOCK_Y; p++) { base_y[p] = i32(min(first_y + p, out_h() - 1u)) * STRIDE_Y - PAD_Y; }

    var acc: array<vec4<f32>, PIXELS * SLICES>;
    // unroll
    for (var i = 0u; i < PIXELS * SLICES; i++) { acc[i] = vec4<f32>(0.0); }
    for (var kz = 0u; kz < KERNEL_Z; kz++) {
        let iz = u32(i32(z) * STRIDE_Z - PAD_Z + i32(kz) * DILATION_Z);
        if (GUARD_Z && iz >= in_d()) { continue; }
        for (var ky = 0u; ky < taps_y; ky++) {
            for (var kx = 0u; kx < KERNEL_X; kx++) {
                var x: array<u32, PIXELS>;
                var y: array<u32, PIXELS>;
                var inside: array<bool, PIXELS>;
                // unroll
                for (var p = 0u; p < PIXELS; p++) {
                    x[p] = u32(base_x[p % BLOCK_X] + i32(kx) * DILATION_X);
                    y[p] = u32(base_y[p / BLOCK_X] + i32(ky) * DILATION_Y);
                    inside[p] = (!GUARD_X || x[p] < in_w()) && (!GUARD_Y || y[p] < in_h());
                    x[p] = select(0u, x[p], inside[p]);
                    y[p] = select(0u, y[p], inside[p]);
                }
                let tap = (kz * KERNEL_Y + ky) * KERNEL_X + kx;
                for (var s = split_index; s < IN_SLICES; s += SPLIT) {
                    let at = ((block_s * TAPS + tap) * IN_SLICES + s) * (SLICES * 4u);
                    var v: array<vec4<f32>, PIXELS>;
                    // unroll
                    for (var p = 0u; p < PIXELS; p++) {
                        v[p] = select(vec4<f32>(0.0), src(b, iz, y[p], x[p], first_in + s), inside[p]);
                    }
                    // unroll
                    for (var o = 0u; o < SLICES; o++) {
                        let w = weights(at + o * 4u, first_slice + o, tap * IN_SLICES + s);
                        // unroll
                        for (var p = 0u; p < PIXELS; p++) {
                            acc[p * SLICES + o] = fma(vec4<f32>(v[p].x), w[0], acc[p * SLICES + o]);
                            acc[p * SLICES + o] = fma(vec4<f32>(v[p].y), w[1], acc[p * SLICES + o]);
                            acc[p * SLICES + o] = fma(vec4<f32>(v[p].z), w[2], acc[p * SLICES + o]);
                            acc[p * SLICES + o] = fma(vec4<f32>(v[p].w), w[3], acc[p * SLICES + o]);
                        }
                    }
                }
            }
        }
    }
    // unroll or loop
    for (var p = 0u; p < PIXELS; p++) {
        let x = first_x + p % BLOCK_X;
        let y = first_y + p / BLOCK_X;
        let inside = split_index == 0u && x < out_w() && y < out_h();
        // unroll or shift acc
        for (var o = 0u; o < SLICES; o++) {
            let sum = combine(acc[p * SLICES + o], local.y * GROUP_X + local.x, split_index);
            if (inside && first_slice + o < OUT_SLICES * GROUPS) { store(b, z, y, x, first_slice + o, sum); }
        }
    }
}
