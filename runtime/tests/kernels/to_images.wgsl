// Test kernel that writes eight texels of a buffer, plus constants, to three kinds of images.
@group(0) @binding(0) var<storage, read> src: array<vec4<f32>>;
@group(0) @binding(1) var constants: texture_2d<f32>;
@group(0) @binding(2) var flat: texture_storage_2d<rgba32float, write>;
@group(0) @binding(3) var layered: texture_storage_2d_array<rgba16float, write>;
@group(0) @binding(4) var solid: texture_storage_3d<rgba32sint, write>;

@compute @workgroup_size(8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.x;
    let v = src[i] + textureLoad(constants, vec2<u32>(i % 4u, i / 4u), 0);
    textureStore(flat, vec2<u32>(i % 4u, i / 4u), v);
    textureStore(layered, vec2<u32>(i % 2u, i / 4u), i / 2u % 2u, v * 2.0);
    textureStore(solid, vec3<u32>(i % 2u, i / 2u % 2u, i / 4u), vec4<i32>(v * 4.0));
}
