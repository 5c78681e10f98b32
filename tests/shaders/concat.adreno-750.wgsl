// @generated for concat/0 f32: concat THREADS=128
const THREADS = 128u;
fn units() -> u32 { return 120u; }
fn load(unit: u32) -> f32 {
    let unit_3 = unit % 5u;
    let unit_3_rest = unit / 5u;
    let unit_2 = unit_3_rest % 3u;
    let unit_2_rest = unit_3_rest / 3u;
    let unit_1 = unit_2_rest % 4u;
    let unit_1_rest = unit_2_rest / 4u;
    let unit_0 = unit_1_rest;
    return f32(buffer_0[(unit_0) * 60u + (unit_1) * 15u + (unit_2) * 5u + (unit_3)]);
}
fn store(unit: u32, v: f32) {
    let unit_3 = unit % 5u;
    let unit_3_rest = unit / 5u;
    let unit_2 = unit_3_rest % 3u;
    let unit_2_rest = unit_3_rest / 3u;
    let unit_1 = unit_2_rest % 4u;
    let unit_1_rest = unit_2_rest / 4u;
    let unit_0 = unit_1_rest;
    let s1 = -(v);
    buffer_1[(unit_0) * 225u + (unit_1) * 15u + (unit_2) * 5u + (unit_3)] = f32(s1);
}
@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let unit = id.x + id.y * (groups.x * THREADS);
    if (unit < units()) { store(unit, load(unit)); }
}
@group(0) @binding(0) var<storage, read> buffer_0: array<f32>;
@group(0) @binding(1) var<storage, read_write> buffer_1: array<f32>;

const THREADS = 128u;
fn units() -> u32 { return 240u; }
fn load(unit: u32) -> f32 {
    let unit_3 = unit % 5u;
    let unit_3_rest = unit / 5u;
    let unit_2 = unit_3_rest % 3u;
    let unit_2_rest = unit_3_rest / 3u;
    let unit_1 = unit_2_rest % 8u;
    let unit_1_rest = unit_2_rest / 8u;
    let unit_0 = unit_1_rest;
    return f32(buffer_0[(unit_0) * 120u + (unit_1) * 15u + (unit_2) * 5u + (unit_3)]);
}
fn store(unit: u32, v: f32) {
    let unit_3 = unit % 5u;
    let unit_3_rest = unit / 5u;
    let unit_2 = unit_3_rest % 3u;
    let unit_2_rest = unit_3_rest / 3u;
    let unit_1 = unit_2_rest % 8u;
    let unit_1_rest = unit_2_rest / 8u;
    let unit_0 = unit_1_rest;
    let s1 = -(v);
    buffer_1[(unit_0) * 225u + ((unit_1 + 4u)) * 15u + (unit_2) * 5u + (unit_3)] = f32(s1);
}
@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let unit = id.x + id.y * (groups.x * THREADS);
    if (unit < units()) { store(unit, load(unit)); }
}
@group(0) @binding(0) var<storage, read> buffer_0: array<f32>;
@group(0) @binding(1) var<storage, read_write> buffer_1: array<f32>;

const THREADS = 128u;
fn units() -> u32 { return 90u; }
fn load(unit: u32) -> f32 {
    let unit_3 = unit % 5u;
    let unit_3_rest = unit / 5u;
    let unit_2 = unit_3_rest % 3u;
    let unit_2_rest = unit_3_rest / 3u;
    let unit_1 = unit_2_rest % 3u;
    let unit_1_rest = unit_2_rest / 3u;
    let unit_0 = unit_1_rest;
    return f32(buffer_0[(unit_0) * 45u + (unit_1) * 15u + (unit_2) * 5u + (unit_3)]);
}
fn store(unit: u32, v: f32) {
    let unit_3 = unit % 5u;
    let unit_3_rest = unit / 5u;
    let unit_2 = unit_3_rest % 3u;
    let unit_2_rest = unit_3_rest / 3u;
    let unit_1 = unit_2_rest % 3u;
    let unit_1_rest = unit_2_rest / 3u;
    let unit_0 = unit_1_rest;
    let s1 = -(v);
    buffer_1[(unit_0) * 225u + ((unit_1 + 12u)) * 15u + (unit_2) * 5u + (unit_3)] = f32(s1);
}
@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let unit = id.x + id.y * (groups.x * THREADS);
    if (unit < units()) { store(unit, load(unit)); }
}
@group(0) @binding(0) var<storage, read> buffer_0: array<f32>;
@group(0) @binding(1) var<storage, read_write> buffer_1: array<f32>;
