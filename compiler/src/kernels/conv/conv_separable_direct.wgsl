// Depthwise separable convolution (depthwise, then pointwise) over one or two spatial axes, without workgroup memory.
// For each slice of four channels, an invocation computes the depthwise result of RUN neighboring pixels and adds its
// products with the pointwise filters to COLS output slices. All invocations of a workgroup read equal filters. The
// kernel is for constant filters and few output channels.
//
// Preludes: `window.wgsl`, `image_sizes.wgsl`, `image_hooks_2d.wgsl` and `separable_filters.wgsl`.
//
// The compiler replaces the knobs, the window geometry, the sizes and the hooks. The hook `src` is called only inside
// the image along axes with a guard, `middle` and `store` only inside the result.

const GROUP_X = 8u;
const GROUP_Y = 8u;
const RUN = 2u;
const COLS = 4u;

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
    // unroll
    for (var i = 0u; i < RUN * COLS; i++) { acc[i] = vec4<f32>(0.0); }
    for (var s = 0u; s < IN_SLICES; s++) {
        var sums: array<vec4<f32>, RUN>;
        // unroll
        for (var p = 0u; p < RUN; p++) { sums[p] = vec4<f32>(0.0); }
        for (var ky = 0u; ky < KERNEL_Y; ky++) {
            let line = u32(top + i32(ky) * DILATION_Y);
            if (GUARD_Y && line >= in_h()) { continue; }
            var v: array<vec4<f32>, SPAN>;
            // unroll
            for (var i = 0u; i < SPAN; i++) {
                let at = u32(left + i32(i));
                let inside = !GUARD_X || at < in_w();
                v[i] = select(vec4<f32>(0.0), src(b, line, select(0u, at, inside), s), inside);
            }
            let first = (s * KERNEL_Y + ky) * KERNEL_X;
            // unroll
            for (var kx = 0u; kx < KERNEL_X; kx++) {
                let w = tap(first + kx);
                // unroll
                for (var p = 0u; p < RUN; p++) { sums[p] = fma(v[p * STEP_X + kx * TAP_X], w, sums[p]); }
            }
        }
        // unroll
        for (var p = 0u; p < RUN; p++) { sums[p] = middle(b, y, min(x + p, out_w() - 1u), s, sums[p]); }
        // unroll
        for (var c = 0u; c < COLS; c++) {
            let first = ((group.z * IN_SLICES + s) * COLS + c) * 4u;
            let w0 = weight(first);
            let w1 = weight(first + 1u);
            let w2 = weight(first + 2u);
            let w3 = weight(first + 3u);
            // unroll
            for (var p = 0u; p < RUN; p++) {
                acc[p * COLS + c] += sums[p].x * w0 + sums[p].y * w1 + sums[p].z * w2 + sums[p].w * w3;
            }
        }
    }
    // unroll or loop
    for (var p = 0u; p < RUN; p++) {
        // unroll or shift acc
        for (var c = 0u; c < COLS; c++) {
            let slice = group.z * COLS + c;
            if (x + p < out_w() && slice < OUT_SLICES) { store(b, y, x + p, slice, acc[p * COLS + c]); }
        }
    }
}
