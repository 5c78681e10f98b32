// @generated for resize/0 f32: resize THREADS=128
const THREADS = 128u;
const TAPS = 1u;
const CHUNK = 1u;
const_assert TAPS % CHUNK == 0u;
alias value = f32;
alias output = f32;
fn units() -> u32 { return 600u; }
fn element(unit: u32, t: u32) -> f32 {
    let unit_3 = unit % 10u;
    let unit_3_rest = unit / 10u;
    let unit_2 = unit_3_rest % 10u;
    let unit_2_rest = unit_3_rest / 10u;
    let unit_1 = unit_2_rest % 3u;
    let unit_1_rest = unit_2_rest / 3u;
    let unit_0 = unit_1_rest;
    let e3 = buffer_0[10u + (unit_3) * 1u + 0u];
    let i3 = e3.x;
    let w3 = bitcast<f32>(e3.y);
    let e2 = buffer_0[0u + (unit_2) * 1u + 0u];
    let i2 = e2.x;
    let w2 = bitcast<f32>(e2.y);
    return f32(buffer_1[(unit_0) * 60u + (unit_1) * 20u + (i2) * 4u + (i3)]);
}
fn tap(unit: u32, t: u32) -> value {
    return value(element(unit, t));
}
fn finish(unit: u32, sum: value) -> output { return sum; }
fn store(unit: u32, v: f32) {
    let unit_3 = unit % 10u;
    let unit_3_rest = unit / 10u;
    let unit_2 = unit_3_rest % 10u;
    let unit_2_rest = unit_3_rest / 10u;
    let unit_1 = unit_2_rest % 3u;
    let unit_1_rest = unit_2_rest / 3u;
    let unit_0 = unit_1_rest;
    let s1 = -(v);
    buffer_2[(unit_0) * 300u + (unit_1) * 100u + (unit_2) * 10u + (unit_3)] = f32(s1);
}
@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let unit = id.x + id.y * (groups.x * THREADS);
    if (unit >= units()) { return; }
    var sum = value(0);
    for (var t = 0u; t < TAPS; t += CHUNK) {
        { sum += tap(unit, t + 0u); }
    }
    store(unit, finish(unit, sum));
}
@group(0) @binding(0) var<storage, read> buffer_0: array<vec2<u32>>;
@group(0) @binding(1) var<storage, read> buffer_1: array<f32>;
@group(0) @binding(2) var<storage, read_write> buffer_2: array<f32>;
