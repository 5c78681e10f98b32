// Convolution filters in blocks of SLICES slices of four output channels; SLICES is a constant of the kernel. The kernels
// `conv`, `conv_broadcast` and `conv_transpose` use this file. `conv_broadcast` has no grouped convolution.
//
// The compiler replaces the constants, and the hook `weight` (one vec4) or `weights` (a 4 x 4 matrix, from four textures).

/// Number of input slices (of four channels) per group of the convolution.
const IN_SLICES = 2u;
/// Number of output slices (of four channels) per group of the convolution.
const OUT_SLICES = 2u;
/// Number of groups of the convolution.
const GROUPS = 1u;

@group(0) @binding(2) var<storage, read> filters: array<vec4<f32>>;

/// Loads vec4 number i of the filters: four output channels of one input channel. The vec4s are in the order block of
/// SLICES output slices, tap, input slice, output slice of the block, input channel, slowest first.
fn weight(i: u32) -> vec4<f32> { return filters[i]; }
/// Loads 4 x 4 filter weights from vec4 number i: four input channels by the four output channels of slice `column`.
/// `row` is the tap times the number of input slices, plus the input slice.
fn weights(i: u32, column: u32, row: u32) -> mat4x4<f32> {
    return mat4x4<f32>(weight(i), weight(i + 1u), weight(i + 2u), weight(i + 3u));
}
