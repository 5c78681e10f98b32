// @generated for fill/0 f32: fill THREADS=64
const THREADS = 64u;
const_assert THREADS >= 1u && THREADS <= 1024u;
alias E = i32;
fn units() -> u32 { return params[0].y; }
fn value(unit: u32) -> E {
    return E(params[0].x) + E(unit) * E(4294967294u);
}
fn store(unit: u32, v: i32) {
    let unit_0 = unit;
    buffer_0[(unit_0)] = i32(v);
}
@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let unit = id.x + id.y * (groups.x * THREADS);
    if (unit < units()) { store(unit, value(unit)); }
}
@group(0) @binding(0) var<storage, read_write> buffer_0: array<i32>;
@group(0) @binding(1) var<uniform> params: array<vec4<u32>, 1>;
