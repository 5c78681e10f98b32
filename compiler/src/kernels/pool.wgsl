// Pooling over one to three spatial axes: maximum, index of the maximum, average or p-norm. Each invocation computes
// four channels of one window.
//
// Replaced by the compiler: geometry, sizes, types and hooks. `src` is called only inside the image along guarded axes.

const THREADS = 64u;

const KERNEL_X = 2u;
const KERNEL_Y = 2u;
const KERNEL_Z = 1u;
const STRIDE_X = 2i;
const STRIDE_Y = 2i;
const STRIDE_Z = 1i;
const DILATION_X = 1i;
const DILATION_Y = 1i;
const DILATION_Z = 1i;
const PAD_X = 0i;
const PAD_Y = 0i;
const PAD_Z = 0i;
/// Padding after the image, which some averages count.
const PAD_END_X = 0i;
const PAD_END_Y = 0i;
const PAD_END_Z = 0i;
/// True if the divisor of an average counts padding.
const COUNT_PADDING = false;
/// True if the result is the index of the maximum.
const TRACKS_INDEX = false;
/// True if taps may be outside the image along an axis and must be skipped.
const GUARD_X = true;
const GUARD_Y = true;
const GUARD_Z = true;
/// True if the batch is the fastest index of the grid, false if it is the slowest.
const BATCH_INNER = true;

/// Type of the accumulator and of the result.
alias value = vec4<f32>;
alias output = vec4<f32>;

@group(0) @binding(0) var<storage, read> source: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> result: array<vec4<f32>>;

fn batches() -> u32 { return 1u; }
fn slices() -> u32 { return 1u; }
fn in_w() -> u32 { return 8u; }
fn in_h() -> u32 { return 8u; }
fn in_d() -> u32 { return 1u; }
fn out_w() -> u32 { return 4u; }
fn out_h() -> u32 { return 4u; }
fn out_d() -> u32 { return 1u; }

/// Channels `4s..4s+4` of a pixel.
fn src(b: u32, z: u32, y: u32, x: u32, s: u32) -> vec4<f32> { return source[((s * 8u + y) * 8u + x) + b + z]; }
/// Returns the flat index of channel 4s of a pixel, and the stride of channels.
fn flat(b: u32, z: u32, y: u32, x: u32, s: u32) -> vec2<u32> { return vec2<u32>(0u); }
/// Initial accumulator, accumulator with one more tap, and result. `best_index` is the index of the maximum.
fn start() -> value { return value(0.0); }
fn combine(acc: value, v: value) -> value { return acc + v; }
fn finish(acc: value, best_index: vec4<i32>, taps: f32) -> output { return acc / taps; }
/// Applies the epilogue to channels `4s..4s+4` of a pixel and stores them.
fn store(b: u32, z: u32, y: u32, x: u32, s: u32, v: output) { result[((s * 4u + y) * 4u + x) + b + z] = v; }

/// Returns the number of taps in the image or its padding, for a window that starts at `first`.
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
