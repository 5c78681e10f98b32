// Test kernel that adds a texel buffer to a buffer. WGSL has no texel buffers: a 1D texture stands for the texel buffer
// and is retyped in the SPIR-V module.
@group(0) @binding(0) var texels: texture_1d<f32>;
@group(0) @binding(1) var<storage, read> src: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> dst: array<vec4<f32>>;

@compute @workgroup_size(8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    dst[id.x] = src[id.x] + textureLoad(texels, id.x, 0);
}
