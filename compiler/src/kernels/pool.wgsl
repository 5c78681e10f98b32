// Maximum, its index, average or p-norm over windows along up to three spatial axes: four channels of one window per
// invocation. Picked for every pool.
//
// Replaced: the geometry, the sizes, the types and the hooks. `src` is only called inside the
// tensor along the axes that are guarded.

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
/// Padding after, which counts in some averages.
const END_X = 0i;
const END_Y = 0i;
const END_Z = 0i;
/// Whether the divisor of an average counts padding.
const COUNT_PADDING = false;
/// Whether the index of the greatest tap is wanted.
const TRACK = false;
/// Whether taps outside the tensor along an axis, if there are any, must be left out.
const GUARD_X = true;
const GUARD_Y = true;
const GUARD_Z = true;
/// Whether the image is the fastest index of the grid rather than the slowest.
const BATCH_INNER = true;

/// What is read and what is stored.
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

/// Channels `4s..4s+4` at a position.
fn src(b: u32, z: u32, y: u32, x: u32, s: u32) -> vec4<f32> { return source[((s * 8u + y) * 8u + x) + b + z]; }
/// The flat index of channel 4s at a position, and the distance of channels.
fn flat(b: u32, z: u32, y: u32, x: u32, s: u32) -> vec2<u32> { return vec2<u32>(0u); }
/// The state before the first tap, after one more, and the result; `best` is the index of the greatest tap.
fn start() -> value { return value(0.0); }
fn combine(acc: value, v: value) -> value { return acc + v; }
fn finish(acc: value, best: vec4<i32>, taps: f32) -> output { return acc / taps; }
/// Applies the chain to channels `4s..4s+4` of a position and stores them.
fn store(b: u32, z: u32, y: u32, x: u32, s: u32, v: output) { result[((s * 4u + y) * 4u + x) + b + z] = v; }

/// How many taps of a window that starts at `first` lie on the tensor or its padding.
fn padded(first: i32, kernel: u32, dilation: i32, size: u32, end: i32) -> u32 {
    let room = i32(size) + end - first;
    return clamp(u32(max((room + dilation - 1) / dilation, 0)), 0u, kernel);
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
    var best = vec4<i32>(-1);
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
                if (TRACK) {
                    let place = flat(b, iz, iy, ix, s);
                    let here = vec4<i32>(vec4<u32>(place.x) + vec4<u32>(0u, 1u, 2u, 3u) * place.y);
                    let better = (v > best_value) | (best < vec4<i32>(0));
                    best_value = select(best_value, v, better);
                    best = select(best, here, better);
                }
            }
        }
    }
    if (COUNT_PADDING) {
        taps = padded(first_x, KERNEL_X, DILATION_X, in_w(), END_X)
            * padded(first_y, KERNEL_Y, DILATION_Y, in_h(), END_Y)
            * padded(first_z, KERNEL_Z, DILATION_Z, in_d(), END_Z);
    }
    store(b, z, y, x, s, finish(acc, best, f32(taps)));
}
