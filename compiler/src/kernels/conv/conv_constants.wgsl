// Convolution over one or two spatial axes with few output channels. Each invocation computes BLOCK_X neighboring
// pixels with all output channels. All invocations read equal filters at the same time from a uniform buffer, which
// devices serve from a constant cache. Filters are not padded along input channels. The kernel is for small constant
// filters without groups.
//
// Preludes: `window.wgsl`, `image_sizes.wgsl` and `image_hooks_2d.wgsl`.
//
// The compiler replaces the knobs, the window geometry, the sizes and the hooks. The hook `src` is called only inside
// the image along axes with a guard.

const GROUP_X = 8u;
const GROUP_Y = 8u;
const BLOCK_X = 2u;

/// Number of input channels.
const INPUTS = 6u;
/// Number of output slices (of four channels).
const SLICES = 2u;

@group(0) @binding(2) var<uniform> filters: array<vec4<f32>, KERNEL_X * KERNEL_Y * INPUTS * SLICES>;

/// Loads the vec4 with index i of the filters: the weights of four output channels. The vec4s are ordered by tap, then
/// input channel, then output slice.
fn weight(i: u32) -> vec4<f32> { return filters[i]; }

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

    // Pixels past the end of the image repeat the last pixel and are not stored.
    var base_x: array<i32, BLOCK_X>;
    // unroll
    for (var p = 0u; p < BLOCK_X; p++) { base_x[p] = i32(min(first_x + p, out_w() - 1u)) * STRIDE_X - PAD_X; }
    let base_y = i32(y) * STRIDE_Y - PAD_Y;

    var acc: array<vec4<f32>, BLOCK_X * SLICES>;
    // unroll
    for (var i = 0u; i < BLOCK_X * SLICES; i++) { acc[i] = vec4<f32>(0.0); }
    for (var ky = 0u; ky < KERNEL_Y; ky++) {
        let row = u32(base_y + i32(ky) * DILATION_Y);
        let inside_y = !GUARD_Y || row < in_h();
        for (var kx = 0u; kx < KERNEL_X; kx++) {
            var x: array<u32, BLOCK_X>;
            var inside: array<bool, BLOCK_X>;
            // unroll
            for (var p = 0u; p < BLOCK_X; p++) {
                x[p] = u32(base_x[p] + i32(kx) * DILATION_X);
                inside[p] = inside_y && (!GUARD_X || x[p] < in_w());
                x[p] = select(0u, x[p], inside[p]);
            }
            let first = (ky * KERNEL_X + kx) * INPUTS;
            for (var s = 0u; s < (INPUTS + 3u) / 4u; s++) {
                var v: array<vec4<f32>, BLOCK_X>;
                // unroll
                for (var p = 0u; p < BLOCK_X; p++) {
                    v[p] = select(vec4<f32>(0.0), src(b, select(0u, row, inside_y), x[p], s), inside[p]);
                }
                // unroll
                for (var lane = 0u; lane < 4u; lane++) {
                    let i = s * 4u + lane;
                    if (INPUTS % 4u == 0u || i < INPUTS) {
                        // unroll
                        for (var o = 0u; o < SLICES; o++) {
                            let w = weight((first + i) * SLICES + o);
                            // unroll
                            for (var p = 0u; p < BLOCK_X; p++) {
                                acc[p * SLICES + o] = fma(vec4<f32>(v[p][lane]), w, acc[p * SLICES + o]);
                            }
                        }
                    }
                }
            }
        }
    }
    // unroll or loop
    for (var p = 0u; p < BLOCK_X; p++) {
        if (first_x + p < out_w()) {
            // unroll or shift acc
            for (var o = 0u; o < SLICES; o++) { store(b, y, first_x + p, o, acc[p * SLICES + o]); }
        }
    }
}
