// Test kernel that adds the texels of three images. Out-of-bounds reads give zero.
@group(0) @binding(0) var flat: texture_2d<f32>;
@group(0) @binding(1) var layered: texture_2d_array<f32>;
@group(0) @binding(2) var solid: texture_3d<i32>;
@group(0) @binding(3) var<storage, read_write> dst: array<vec4<f32>>;

@compute @workgroup_size(8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.x;
    let outside = textureLoad(flat, vec2<i32>(-1, i32(i)), 0) + textureLoad(flat, vec2<i32>(i32(i), 2), 0);
    dst[i] = textureLoad(flat, vec2<u32>(i % 4u, i / 4u), 0)
        + textureLoad(layered, vec2<u32>(i % 2u, i / 4u), i / 2u % 2u, 0)
        + vec4<f32>(textureLoad(solid, vec3<u32>(i % 2u, i / 2u % 2u, i / 4u), 0))
        + outside * 100.0;
}
