// @generated for pool/0 f32: pool THREADS=64
const KERNEL_X = 2u;
const KERNEL_Y = 3u;
const KERNEL_Z = 1u;
const STRIDE_X = 2i;
const STRIDE_Y = 2i;
const STRIDE_Z = 1i;
const DILATION_X = 2i;
const DILATION_Y = 1i;
const DILATION_Z = 1i;
const PAD_X = 0i;
const PAD_Y = 1i;
const PAD_Z = 0i;
const GUARD_X = true;
const GUARD_Y = true;
const GUARD_Z = true;
const BATCH_INNER = false;
fn batches() -> u32 { return 2u; }
fn in_w() -> u32 { return 7u; }
fn in_h() -> u32 { return 9u; }
fn in_d() -> u32 { return 1u; }
fn out_w() -> u32 { return 4u; }
fn out_h() -> u32 { return 5u; }
fn out_d() -> u32 { return 1u; }
const THREADS = 64u;
const PAD_END_X = 1i;
const PAD_END_Y = 1i;
const PAD_END_Z = 0i;
const COUNT_PADDING = false;
const TRACKS_INDEX = false;
alias value = vec4<f32>;
alias output = vec4<f32>;
fn slices() -> u32 { return 2u; }
fn src(b: u32, z: u32, y: u32, x: u32, s: u32) -> vec4<f32> {
    var r: vec4<f32> = vec4<f32>(0.0);
    r.x = f32(buffer_0[(b) * 378u + (y) * 7u + (x) + (((s) * 4u)) * 63u]);
    if ((s) * 4u + 1u < 6u) { r.y = f32(buffer_0[(b) * 378u + (y) * 7u + (x) + (((s) * 4u)) * 63u + 63u]); }
    if ((s) * 4u + 2u < 6u) { r.z = f32(buffer_0[(b) * 378u + (y) * 7u + (x) + (((s) * 4u)) * 63u + 126u]); }
    if ((s) * 4u + 3u < 6u) { r.w = f32(buffer_0[(b) * 378u + (y) * 7u + (x) + (((s) * 4u)) * 63u + 189u]); }
    return r;
}
fn flat(b: u32, z: u32, y: u32, x: u32, s: u32) -> vec2<u32> { return vec2<u32>(0u); }
fn start() -> value { return bitcast<vec4<f32>>(vec4<u32>(0xff800000u)); }
fn combine(acc: value, v: value) -> value { return max(acc, v); }
fn finish(acc: value, best_index: vec4<i32>, taps: f32) -> output { return acc; }
fn store(b: u32, z: u32, y: u32, x: u32, s: u32, v: vec4<f32>) {
    let s1 = -(v);
    let w = vec4<f32>(s1);
    buffer_1[(b) * 120u + (y) * 4u + (x) + (((s) * 4u)) * 20u] = w.x;
    if ((s) * 4u + 1u < 6u) { buffer_1[(b) * 120u + (y) * 4u + (x) + (((s) * 4u)) * 20u + 20u] = w.y; }
    if ((s) * 4u + 2u < 6u) { buffer_1[(b) * 120u + (y) * 4u + (x) + (((s) * 4u)) * 20u + 40u] = w.z; }
    if ((s) * 4u + 3u < 6u) { buffer_1[(b) * 120u + (y) * 4u + (x) + (((s) * 4u)) * 20u + 60u] = w.w; }
}
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
@group(0) @binding(0) var<storage, read> buffer_0: array<f32>;
@group(0) @binding(1) var<storage, read_write> buffer_1: array<f32>;
