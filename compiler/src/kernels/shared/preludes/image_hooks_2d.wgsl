// Hooks that read and store four channels of a pixel, for images with one or two spatial axes. The kernels that use
// them are `conv_constants`, `conv_separable` and `conv_separable_direct`.
//
// The compiler replaces both hooks.

@group(0) @binding(0) var<storage, read> source: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> result: array<vec4<f32>>;

/// Loads channels `4s..4s+4` of a pixel.
fn src(b: u32, y: u32, x: u32, s: u32) -> vec4<f32> { return source[((s * 8u + y) * 8u + x) + b]; }
/// Applies the epilogue to channels `4s..4s+4` of a pixel and stores them.
fn store(b: u32, y: u32, x: u32, s: u32, v: vec4<f32>) { result[((s * 8u + y) * 8u + x) + b] = v; }
