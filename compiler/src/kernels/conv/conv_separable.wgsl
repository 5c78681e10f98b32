// Depthwise separable convolution (depthwise, then pointwise) over one or two spatial axes. In each step, a workgroup
// computes the depthwise result of a tile of pixels for DEPTH slices of four channels, stores it in workgroup memory,
// and multiplies it by the pointwise filters. Each invocation accumulates ROWS pixels of COLS output slices. The kernel
// is for constant filters.
//
// Preludes: `window.wgsl`, `image_sizes.wgsl`, `image_hooks_2d.wgsl` and `separable_filters.wgsl`.
//
// The compiler replaces the knobs, the window geometry, the sizes and the hooks. The hook `src` is called only inside
// the image along axes with a guard, `middle` and `store` only inside the result.

const TILE_X = 8u;
const TILE_Y = 4u;
const ROWS = 4u;
const COLS = 2u;
/// Number of invocations of a workgroup along output slices.
const LANES = 4u;
/// Number of input slices (of four channels) per step.
const DEPTH = 4u;
/// Number of neighboring pixels of a line (a run) whose depthwise result one invocation computes.
const RUN = 2u;
const PIXELS = TILE_X * TILE_Y;
const LANES_P = PIXELS / ROWS;
const THREADS = LANES_P * LANES;
const RUNS_X = TILE_X / RUN;
const RUNS = PIXELS / RUN;
const_assert PIXELS % ROWS == 0u && TILE_X % RUN == 0u;

var<workgroup> tile: array<vec4<f32>, DEPTH * PIXELS>;

/// Computes the depthwise result of channel slice s for RUN neighboring pixels: the run with index `run` of the tile.
/// Stores the result in workgroup memory as the slice with index k.
fn fill(b: u32, first_x: u32, first_y: u32, s: u32, k: u32, run: u32) {
    let tile_x = run % RUNS_X * RUN;
    let tile_y = run / RUNS_X;
    let x = first_x + tile_x;
    let y = first_y + tile_y;
    if (x >= out_w() || y >= out_h()) { return; }
    let left = i32(x) * STRIDE_X - PAD_X;
    let top = i32(y) * STRIDE_Y - PAD_Y;
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
    let at = k * PIXELS + tile_y * TILE_X + tile_x;
    // unroll or shift sums
    for (var p = 0u; p < RUN; p++) {
        if (x + p < out_w()) { tile[at + p] = middle(b, y, x + p, s, sums[p]); }
    }
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let b = group.x % batches();
    let first_x = group.x / batches() * TILE_X;
    let first_y = group.y * TILE_Y;
    let pixel = local % LANES_P;
    let lane = local / LANES_P;
    var acc: array<vec4<f32>, ROWS * COLS>;
    // unroll
    for (var i = 0u; i < ROWS * COLS; i++) { acc[i] = vec4<f32>(0.0); }
    for (var s = 0u; s < IN_SLICES; s += DEPTH) {
        let depth = min(DEPTH, IN_SLICES - s);
        for (var i = local; i < depth * RUNS; i += THREADS) {
            fill(b, first_x, first_y, s + i / RUNS, i / RUNS, i % RUNS);
        }
        workgroupBarrier();
        for (var k = 0u; k < depth; k++) {
            // unroll
            for (var c = 0u; c < COLS; c++) {
                let first = (((group.z * IN_SLICES + s + k) * COLS + c) * LANES + lane) * 4u;
                let w0 = weight(first);
                let w1 = weight(first + 1u);
                let w2 = weight(first + 2u);
                let w3 = weight(first + 3u);
                // unroll
                for (var r = 0u; r < ROWS; r++) {
                    let a = tile[k * PIXELS + r * LANES_P + pixel];
                    acc[r * COLS + c] += a.x * w0 + a.y * w1 + a.z * w2 + a.w * w3;
                }
            }
        }
        workgroupBarrier();
    }
    // unroll or loop
    for (var r = 0u; r < ROWS; r++) {
        let at = r * LANES_P + pixel;
        let x = first_x + at % TILE_X;
        let y = first_y + at / TILE_X;
        // unroll or shift acc
        for (var c = 0u; c < COLS; c++) {
            let slice = (group.z * COLS + c) * LANES + lane;
            if (x < out_w() && y < out_h() && slice < OUT_SLICES) { store(b, y, x, slice, acc[r * COLS + c]); }
        }
    }
}
