// Depthwise and pointwise filters of a separable convolution, and the epilogue between the two convolutions. The
// kernels `conv_separable` and `conv_separable_direct` use this file.
//
// The compiler replaces all declarations of this file.

/// Number of slices (of four channels) of the depthwise result.
const IN_SLICES = 4u;
/// Number of slices (of four channels) of the pointwise result.
const OUT_SLICES = 8u;

@group(0) @binding(2) var<storage, read> filters: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> matrix: array<vec4<f32>>;

/// Loads vec4 number i of the depthwise filters: four channels. The vec4s are in the order slice, tap, slowest first.
fn tap(i: u32) -> vec4<f32> { return filters[i]; }
/// Applies the epilogue of the depthwise convolution to four channels. Channels past the last one become zero.
fn middle(b: u32, y: u32, x: u32, s: u32, v: vec4<f32>) -> vec4<f32> { return v; }
/// Loads vec4 number i of the pointwise filters: four output channels of one input channel. The vec4s are in the order
/// block of output slices, input slice, output slice of the block, input channel, slowest first.
fn weight(i: u32) -> vec4<f32> { return matrix[i]; }
