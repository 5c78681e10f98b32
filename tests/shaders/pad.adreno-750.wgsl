// @generated for pad/0 f32: pad THREADS=128
const THREADS = 128u;
const MODE = 0u;
fn units() -> u32 { return 960u; }
fn load(unit: u32) -> f32 {
    let unit_3 = unit % 8u;
    let unit_3_rest = unit / 8u;
    let unit_2 = unit_3_rest % 10u;
    let unit_2_rest = unit_3_rest / 10u;
    let unit_1 = unit_2_rest % 4u;
    let unit_1_rest = unit_2_rest / 4u;
    let unit_0 = unit_1_rest;
    let p0 = source_position(unit_0, 0u, 2u);
    if (p0 < 0i) { return f32(1.5); }
    let p1 = source_position(unit_1, 1u, 3u);
    if (p1 < 0i) { return f32(1.5); }
    let p2 = source_position(unit_2, 2u, 5u);
    if (p2 < 0i) { return f32(1.5); }
    let p3 = source_position(unit_3, 0u, 4u);
    if (p3 < 0i) { return f32(1.5); }
    return f32(buffer_0[(u32(p0)) * 60u + (u32(p1)) * 20u + (u32(p2)) * 4u + (u32(p3))]);
}
fn store(unit: u32, v: f32) {
    let unit_3 = unit % 8u;
    let unit_3_rest = unit / 8u;
    let unit_2 = unit_3_rest % 10u;
    let unit_2_rest = unit_3_rest / 10u;
    let unit_1 = unit_2_rest % 4u;
    let unit_1_rest = unit_2_rest / 4u;
    let unit_0 = unit_1_rest;
    let s1 = -(v);
    buffer_1[(unit_0) * 320u + (unit_1) * 80u + (unit_2) * 8u + (unit_3)] = f32(s1);
}
fn source_position(at: u32, before: u32, size: u32) -> i32 {
    let n = i32(size);
    let i = i32(at) - i32(before);
    if (i >= 0 && i < n) { return i; }
    if (MODE == 1u) {
        let period = max(2 * (n - 1), 1);
        let phase = (i % period + period) % period;
        return min(phase, period - phase) * i32(n > 1);
    }
    if (MODE == 2u) { return clamp(i, 0, n - 1); }
    if (MODE == 3u) { return (i % n + n) % n; }
    return -1;
}
@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let unit = id.x + id.y * (groups.x * THREADS);
    if (unit < units()) { store(unit, load(unit)); }
}
@group(0) @binding(0) var<storage, read> buffer_0: array<f32>;
@group(0) @binding(1) var<storage, read_write> buffer_1: array<f32>;
