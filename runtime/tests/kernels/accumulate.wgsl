// Test kernel for four elements: state += src, then dst = state.
@group(0) @binding(0) var<storage, read> src: array<f32>;
@group(0) @binding(1) var<storage, read_write> state: array<f32>;
@group(0) @binding(2) var<storage, read_write> dst: array<f32>;

@compute @workgroup_size(4)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let sum = state[id.x] + src[id.x];
    state[id.x] = sum;
    dst[id.x] = sum;
}
