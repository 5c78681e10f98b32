// Pooling over one to three spatial axes: maximum, index of the maximum, average or p-norm. Each invocation computes
// four channels of one window.
//
// Preludes: `window.wgsl` and `image_sizes.wgsl`.
//
// The compiler replaces the window geometry, the sizes, the types and the hooks. Along axes with a bounds check
// (GUARD), the hook `src` is called only for positions inside the image.

const THREADS = 64u;

/// Padding after the image along x, y and z, in pixels.
const PAD_END_X = 0i;
const PAD_END_Y = 0i;
const PAD_END_Z = 0i;
/// True if an average pool counts padding in its divisor.
const COUNT_PADDING = false;
/// True if the result is the index of the maximum, false if it is a pooled value.
const TRACKS_INDEX = false;

/// Type of the accumulator of a pool, for four channels.
alias value = vec4<f32>;
/// Type of the result of a pool, for four channels.
alias output = vec4<f32>;

@group(0) @binding(0) var<storage, read> source: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> result: array<vec4<f32>>;

fn slices() -> u32 { return 1u; }

/// Loads channels `4s..4s+4` of a pixel of the image.
fn src(b: u32, z: u32, y: u32, x: u32, s: u32) -> vec4<f32> { return source[((s * 8u + y) * 8u + x) + b + z]; }
/// Returns the flat index of channel `4s` of a pixel in the image, and the distance between channels in this index.
fn flat(b: u32, z: u32, y: u32, x: u32, s: u32) -> vec2<u32> { return vec2<u32>(0u); }
/// Returns the initial accumulator of a pooling window.
fn start() -> value { return value(0.0); }
/// Combines the accumulator of a pooling window with the value `v` of one more tap.
fn combine(acc: value, v: value) -> value { return acc + v; }
/// Returns the result of a pooling window from the accumulator of all its taps. `best_index` holds, for each of four
/// channels, the flat index of the window's maximum in the image. `taps` is the number of taps.
fn finish(acc: value, best_index: vec4<i32>, taps: f32) -> output { return acc / taps; }
/// Applies the epilogue to channels `4s..4s+4` of a pixel and stores them.
fn store(b: u32, z: u32, y: u32, x: u32, s: u32, v: output) { result[((s * 4u + y) * 4u + x) + b + z] = v; }

/// Returns the number of taps along an axis that are in the image or in its padding, for a window that starts at `first`.
fn window_taps(first: i32, kernel: u32, dilation: i32, size: u32, end: i32) -> u32 {
    let remaining = i32(size) + end - first;
    return clamp(u32(max((remaining + dilation - 1) / dilation, 0)), 0u, kernel);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    var rest = id.x + id.y * (groups.x * THREADS);
    if (rest >= batches() * slices() * out_d() * out_h() * out_w()) { return; }
    var b = 0u;
    if (BATCH_INNER) {
        b = rest % batches();
        rest = rest / batches();
    }
    let x = rest % out_w();
    rest = rest / out_w();
    let y = rest % out_h();
    rest = rest / out_h();
    let z = rest % out_d();
    rest = rest / out_d();
    let s = rest % slices();
    if (!BATCH_INNER) { b = rest / slices(); }

    let first_x = i32(x) * STRIDE_X - PAD_X;
    let first_y = i32(y) * STRIDE_Y - PAD_Y;
    let first_z = i32(z) * STRIDE_Z - PAD_Z;
    var acc = start();
    var best_value = value(0);
    var best_index = vec4<i32>(-1);
    var taps = 0u;
    for (var kz = 0u; kz < KERNEL_Z; kz++) {
        let iz = u32(first_z + i32(kz) * DILATION_Z);
        if (GUARD_Z && iz >= in_d()) { continue; }
        for (var ky = 0u; ky < KERNEL_Y; ky++) {
            let iy = u32(first_y + i32(ky) * DILATION_Y);
            if (GUARD_Y && iy >= in_h()) { continue; }
            for (var kx = 0u; kx < KERNEL_X; kx++) {
                let ix = u32(first_x + i32(kx) * DILATION_X);
                if (GUARD_X && ix >= in_w()) { continue; }
                let v = src(b, iz, iy, ix, s);
                acc = combine(acc, v);
                taps++;
                if (TRACKS_INDEX) {
                    let index_and_stride = flat(b, iz, iy, ix, s);
                    let indices = vec4<i32>(vec4<u32>(index_and_stride.x) + vec4<u32>(0u, 1u, 2u, 3u) * index_and_stride.y);
                    let better = (v > best_value) | (best_index < vec4<i32>(0));
                    best_value = select(best_value, v, better);
                    best_index = select(best_index, indices, better);
                }
            }
        }
    }
    if (COUNT_PADDING) {
        taps = window_taps(first_x, KERNEL_X, DILATION_X, in_w(), PAD_END_X)
            * window_taps(first_y, KERNEL_Y, DILATION_Y, in_h(), PAD_END_Y)
            * window_taps(first_z, KERNEL_Z, DILATION_Z, in_d(), PAD_END_Z);
    }
    store(b, z, y, x, s, finish(acc, best_index, f32(taps)));
}
