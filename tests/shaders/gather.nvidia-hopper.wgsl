// @generated for gather/0 f32: gather THREADS=256
const THREADS = 256u;
const_assert THREADS >= 1u && THREADS <= 1024u;
alias Index = i32;
fn units() -> u32 { return 36u; }
fn load_index(unit: u32, part: u32) -> i32 {
    let unit_3 = unit % 2u;
    let unit_3_rest = unit / 2u;
    let unit_2 = unit_3_rest % 3u;
    let unit_2_rest = unit_3_rest / 3u;
    let unit_1 = unit_2_rest % 2u;
    let unit_1_rest = unit_2_rest / 2u;
    let unit_0 = unit_1_rest;
    return i32(buffer_0[(unit_1) * 3u + (unit_2)]);
}
fn load(unit: u32) -> vec4<f32> {
    let unit_3 = unit % 2u;
    let unit_3_rest = unit / 2u;
    let unit_2 = unit_3_rest % 3u;
    let unit_2_rest = unit_3_rest / 3u;
    let unit_1 = unit_2_rest % 2u;
    let unit_1_rest = unit_2_rest / 2u;
    let unit_0 = unit_1_rest;
    let part0 = wrap(load_index(unit, 0u), 11u);
    return vec4<f32>(buffer_1[(unit_0) * 22u + (part0) * 2u + (unit_3)]);
}
fn store(unit: u32, v: vec4<f32>) {
    let unit_3 = unit % 2u;
    let unit_3_rest = unit / 2u;
    let unit_2 = unit_3_rest % 3u;
    let unit_2_rest = unit_3_rest / 3u;
    let unit_1 = unit_2_rest % 2u;
    let unit_1_rest = unit_2_rest / 2u;
    let unit_0 = unit_1_rest;
    let s1 = max(v, vec4<f32>(0.0));
    var w = vec4<f32>(s1);
    buffer_2[(unit_0) * 12u + (unit_1) * 6u + (unit_2) * 2u + (unit_3)] = w;
}
fn wrap(index: Index, size: u32) -> u32 {
    let i = i32(index);
    let last = i32(size) - 1;
    return u32(clamp(select(i, i + i32(size), i < 0), 0, max(last, 0)));
}
@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let unit = id.x + id.y * (groups.x * THREADS);
    if (unit < units()) { store(unit, load(unit)); }
}
@group(0) @binding(0) var<storage, read> buffer_0: array<i32>;
@group(0) @binding(1) var<storage, read> buffer_1: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> buffer_2: array<vec4<f32>>;
