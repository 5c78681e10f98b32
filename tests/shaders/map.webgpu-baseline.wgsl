// @generated for add_norms/1 f32: map THREADS=64
const THREADS = 64u;
const_assert THREADS >= 1u && THREADS <= 1024u;
fn units() -> u32 { return params[0].x; }
fn run(unit: u32) {
    let unit_0 = unit;
    let x0 = vec4<f32>(buffer_0[(unit_0)]);
    let s0 = -(x0);
    var w = vec4<f32>(s0);
    buffer_1[(unit_0)] = w;
}
@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let unit = id.x + id.y * (groups.x * THREADS);
    if (unit < units()) { run(unit); }
}
@group(0) @binding(0) var<storage, read> buffer_0: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> buffer_1: array<vec4<f32>>;
@group(0) @binding(2) var<uniform> params: array<vec4<u32>, 1>;
