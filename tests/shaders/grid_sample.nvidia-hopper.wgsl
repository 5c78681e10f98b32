// @generated for grid_sample/0 f32: grid_sample THREADS=256
const BATCH_INNER = false;
fn batches() -> u32 { return 2u; }
fn in_w() -> u32 { return 4u; }
fn in_h() -> u32 { return 5u; }
fn in_d() -> u32 { return 1u; }
fn out_w() -> u32 { return 7u; }
fn out_h() -> u32 { return 3u; }
fn out_d() -> u32 { return 1u; }
fn src(b: u32, z: u32, y: u32, x: u32, s: u32) -> vec4<f32> {
    var r: vec4<f32> = vec4<f32>(0.0);
    r.x = f32(buffer_1[(b) * 60u + (y) * 4u + (x) + (((s) * 4u)) * 20u]);
    if ((s) * 4u + 1u < 3u) { r.y = f32(buffer_1[(b) * 60u + (y) * 4u + (x) + (((s) * 4u)) * 20u + 20u]); }
    if ((s) * 4u + 2u < 3u) { r.z = f32(buffer_1[(b) * 60u + (y) * 4u + (x) + (((s) * 4u)) * 20u + 40u]); }
    if ((s) * 4u + 3u < 3u) { r.w = f32(buffer_1[(b) * 60u + (y) * 4u + (x) + (((s) * 4u)) * 20u + 60u]); }
    return r;
}
fn store(b: u32, z: u32, y: u32, x: u32, s: u32, v: vec4<f32>) {
    let s1 = -(v);
    let w = vec4<f32>(s1);
    buffer_2[(b) * 63u + (y) * 7u + (x) + (((s) * 4u)) * 21u] = w.x;
    if ((s) * 4u + 1u < 3u) { buffer_2[(b) * 63u + (y) * 7u + (x) + (((s) * 4u)) * 21u + 21u] = w.y; }
    if ((s) * 4u + 2u < 3u) { buffer_2[(b) * 63u + (y) * 7u + (x) + (((s) * 4u)) * 21u + 42u] = w.z; }
    if ((s) * 4u + 3u < 3u) { buffer_2[(b) * 63u + (y) * 7u + (x) + (((s) * 4u)) * 21u + 63u] = w.w; }
}
const THREADS = 256u;
const_assert THREADS >= 1u && THREADS <= 1024u;
const TAPS_X = 2u;
const TAPS_Y = 2u;
const TAPS_Z = 1u;
const_assert TAPS_X == 1u || TAPS_X == 2u || TAPS_X == 4u;
const ZEROS = 0u;
const BORDER = 1u;
const REFLECTION = 2u;
const PADDING = ZEROS;
const ALIGN_CORNERS = false;
const CUBIC = -0.75;
const AXES = 2u;
fn slices() -> u32 { return 1u; }
fn load_position(b: u32, z: u32, y: u32, x: u32, i: u32) -> f32 {
    return f32(buffer_0[(b) * 42u + (y) * 14u + (x) * 2u + (i)]);
}
fn low() -> f32 { return select(-0.5, 0.0, ALIGN_CORNERS); }
fn high(size: u32) -> f32 { return f32(size) - 1.0 - low(); }
fn reflect_position(x: f32, size: u32) -> f32 {
    let range = high(size) - low();
    if (range <= 0.0) { return low(); }
    let excess = select(x - high(size), low() - x, x < low());
    let times = floor(excess / range);
    let rest = clamp(excess - times * range, 0.0, range);
    let is_even = times - 2.0 * floor(times * 0.5) == 0.0;
    return select(high(size) - rest, low() + rest, (x < low()) == is_even);
}
fn source_position(position: f32, size: u32, taps: u32) -> f32 {
    var x = ((position + 1.0) * f32(size) - 1.0) / 2.0;
    if (ALIGN_CORNERS) { x = (position + 1.0) / 2.0 * (f32(size) - 1.0); }
    if (taps == 1u) { x = round(x); }
    if (x < low() || x > high(size)) {
        if (PADDING == BORDER) { x = clamp(x, 0.0, f32(size) - 1.0); }
        if (PADDING == REFLECTION) { x = reflect_position(x, size); }
    }
    return x;
}
fn element(x: f32, k: u32, size: u32, taps: u32) -> i32 {
    var e = floor(x) + f32(k);
    if (taps == 4u) { e = e - 1.0; }
    let last = f32(size) - 1.0;
    if (PADDING == ZEROS && !(e >= 0.0 && e <= last)) { return -1; }
    if (PADDING == REFLECTION && (e < low() || e > high(size))) { e = reflect_position(e, size); }
    return clamp(i32(clamp(e, 0.0, last)), 0, i32(size) - 1);
}
fn weight(x: f32, k: u32, taps: u32) -> f32 {
    if (taps == 1u) { return 1.0; }
    let e = floor(x) + f32(k);
    if (taps == 2u) { return 1.0 - abs(x - e); }
    let d = abs(x - (e - 1.0));
    if (d <= 1.0) { return ((CUBIC + 2.0) * d - (CUBIC + 3.0)) * d * d + 1.0; }
    return ((CUBIC * d - 5.0 * CUBIC) * d + 8.0 * CUBIC) * d - 4.0 * CUBIC;
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
    let at_x = source_position(load_position(b, z, y, x, 0u), in_w(), TAPS_X);
    var at_y = 0.0;
    var at_z = 0.0;
    if (AXES > 1u) { at_y = source_position(load_position(b, z, y, x, 1u), in_h(), TAPS_Y); }
    if (AXES > 2u) { at_z = source_position(load_position(b, z, y, x, 2u), in_d(), TAPS_Z); }
    var sum = vec4<f32>(0.0);
    for (var kz = 0u; kz < TAPS_Z; kz++) {
        let ez = element(at_z, kz, in_d(), TAPS_Z);
        if (ez < 0) { continue; }
        let wz = weight(at_z, kz, TAPS_Z);
        for (var ky = 0u; ky < TAPS_Y; ky++) {
            let ey = element(at_y, ky, in_h(), TAPS_Y);
            if (ey < 0) { continue; }
            let wy = wz * weight(at_y, ky, TAPS_Y);
            for (var kx = 0u; kx < TAPS_X; kx++) {
                let ex = element(at_x, kx, in_w(), TAPS_X);
                if (ex < 0) { continue; }
                sum += src(b, u32(ez), u32(ey), u32(ex), s) * (wy * weight(at_x, kx, TAPS_X));
            }
        }
    }
    store(b, z, y, x, s, sum);
}
@group(0) @binding(0) var<storage, read> buffer_0: array<f32>;
@group(0) @binding(1) var<storage, read> buffer_1: array<f32>;
@group(0) @binding(2) var<storage, read_write> buffer_2: array<f32>;
