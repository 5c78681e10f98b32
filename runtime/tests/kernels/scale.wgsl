// Test kernel: dst = src * factor, for `n` elements.
struct Params {
    n: u32,
    factor: i32,
}

@group(0) @binding(0) var<storage, read> src: array<i32>;
@group(0) @binding(1) var<storage, read_write> dst: array<i32>;
@group(0) @binding(2) var<uniform> params: Params;

@compute @workgroup_size(8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < params.n {
        dst[id.x] = src[id.x] * params.factor;
    }
}
