// Geometry of windows that slide over images along x, y and z. The kernels that use this file are `conv`,
// `conv_broadcast`, `conv_constants`, `conv_direct`, `conv_separable`, `conv_separable_direct`, `conv_transpose`,
// `depthwise` and `pool`.
//
// The compiler replaces all constants that a kernel uses, except TAPS. Kernels for images with one or two spatial axes
// do not use z.

/// Number of taps of a window along x, y and z.
const KERNEL_X = 3u;
const KERNEL_Y = 3u;
const KERNEL_Z = 1u;
/// Number of taps of a window.
const TAPS = KERNEL_X * KERNEL_Y * KERNEL_Z;
const STRIDE_X = 1i;
const STRIDE_Y = 1i;
const STRIDE_Z = 1i;
const DILATION_X = 1i;
const DILATION_Y = 1i;
const DILATION_Z = 1i;
/// Padding before the image along x, y and z, in pixels.
const PAD_X = 1i;
const PAD_Y = 1i;
const PAD_Z = 0i;
/// True if taps may be outside the image along an axis and must be masked or skipped (the axis has a guard). Transposed
/// convolutions with `conv_direct` always have guards.
const GUARD_X = true;
const GUARD_Y = true;
const GUARD_Z = true;
/// Number of input pixels of a line that the windows of an invocation's neighboring pixels cover. `depthwise` and the
/// kernels of separable convolutions use this constant.
const SPAN = 4u;
/// Distance between neighboring windows along x, in input pixels.
const STEP_X = 1u;
/// Distance between neighboring taps along x, in input pixels.
const TAP_X = 1u;
