// @generated for gather_matmul/0 f32: matmul_direct THREADS=64
const THREADS = 64u;
const_assert THREADS >= 1u && THREADS <= 1024u;
alias E = f32;
fn units() -> u32 { return 144u; }
fn size_k() -> u32 { return 40u; }
fn load_a(unit: u32, k: u32) -> f32 {
    let unit_3 = unit % 24u;
    let unit_3_rest = unit / 24u;
    let unit_1 = unit_3_rest % 2u;
    let unit_1_rest = unit_3_rest / 2u;
    let unit_0 = unit_1_rest;
    return f32(buffer_0[(unit_0) * 40u + (k)]);
}
fn load_index(unit: u32) -> i32 {
    let unit_3 = unit % 24u;
    let unit_3_rest = unit / 24u;
    let unit_1 = unit_3_rest % 2u;
    let unit_1_rest = unit_3_rest / 2u;
    let unit_0 = unit_1_rest;
    return i32(buffer_2[(unit_0) * 2u + (unit_1)]);
}
fn matrix_index(unit: u32) -> u32 {
    let index = i32(load_index(unit));
    let count = i32(5u);
    return u32(clamp(select(index, index + count, index < 0), 0, count - 1));
}
fn load_b(unit: u32, k: u32) -> f32 {
    let unit_3 = unit % 24u;
    let unit_3_rest = unit / 24u;
    let unit_1 = unit_3_rest % 2u;
    let unit_1_rest = unit_3_rest / 2u;
    let unit_0 = unit_1_rest;
    return f32(buffer_1[(matrix_index(unit)) * 960u + (unit_3) * 40u + (k)]);
}
fn store(unit: u32, v: f32) {
    let unit_3 = unit % 24u;
    let unit_3_rest = unit / 24u;
    let unit_1 = unit_3_rest % 2u;
    let unit_1_rest = unit_3_rest / 2u;
    let unit_0 = unit_1_rest;
    buffer_3[(unit_0) * 48u + (unit_1) * 24u + (unit_3)] = f32(v);
}
@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let unit = id.x + id.y * (groups.x * THREADS);
    if (unit >= units()) { return; }
    var sum = E();
    for (var k = 0u; k < size_k(); k++) { sum += E(load_a(unit, k)) * E(load_b(unit, k)); }
    store(unit, sum);
}
@group(0) @binding(0) var<storage, read> buffer_0: array<f32>;
@group(0) @binding(1) var<storage, read> buffer_1: array<f32>;
@group(0) @binding(2) var<storage, read> buffer_2: array<i32>;
@group(0) @binding(3) var<storage, read_write> buffer_3: array<f32>;
