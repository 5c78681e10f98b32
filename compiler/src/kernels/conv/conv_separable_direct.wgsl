// Depthwise separable convolution (depthwise, then pointwise) over one or two spatial axes, without workgroup memory.
// For each slice of four channels, an invocation computes the depthwise result of RUN neighboring pixels and adds its
// products with the pointwise filters to COLS output slices. All invocations of a workgroup read the same filters. For
// constant filters and few output channels.
//
// Replaced by the compiler: knobs, geometry, sizes and hooks. `src` is called only inside the image along guarded axes,
// `middle` and `store` only inside the result.

const GROUP_X = 8u;
const GROUP_Y = 8u;
const RUN = 2u;
const COLS = 4u;

const KERNEL_X = 3u;
const KERNEL_Y = 3u;
const STRIDE_X = 1i;
const STRIDE_Y = 1i;
const DILATION_X = 1i;
const DILATION_Y = 1i;
const PAD_X = 1i;
const PAD_Y = 1i;
/// Pixels of a line under the windows of a run.
const SPAN = 4u;
const STEP_X = 1u;
const TAP_X = 1u;
/// True if taps may be outside the image along x or y and must be masked.
const GUARD_X = true;
const GUARD_Y = true;
/// Slices (of four channels) between the two convolutions, and of the result.
const IN_SLICES = 4u;
const OUT_SLICES = 8u;

@group(0) @binding(0) var<storage, read> source: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> filters: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> matrix: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> result: array<vec4<f32>>;

fn batches() -> u32 { return 1u; }
fn in_w() -> u32 { return 8u; }
fn in_h() -> u32 { return 8u; }
fn out_w() -> u32 { return 8u; }
fn out_h() -> u32 { return 8u; }

/// Channels `4s..4s+4` of a pixel.
fn src(b: u32, y: u32, x: u32, s: u32) -> vec4<f32> { return source[((s * 8u + y) * 8u + x) + b]; }
/// Vec4 i of the depthwise filters: per slice, per tap, four channels.
fn tap(i: u32) -> vec4<f32> { return filters[i]; }
/// Applies the epilogue of the depthwise convolution. Channels past the last become zero.
fn middle(b: u32, y: u32, x: u32, s: u32, v: vec4<f32>) -> vec4<f32> { return v; }
/// Vec4 i of the pointwise filters, four output channels each: per block of slices, per input slice, per slice, per
/// input channel.
fn weight(i: u32) -> vec4<f32> { return matrix[i]; }
/// Applies the epilogue to channels `4s..4s+4` of a pixel and stores them.
fn store(b: u32, y: u32, x: u32, s: u32, v: vec4<f32>) { result[((s * 8u + y) * 8u + x) + b] = v; }

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
