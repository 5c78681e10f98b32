// Sizes of source and result images, for all kernels that use `window.wgsl`, and for `grid_sample`.
//
// The compiler replaces all declarations that a kernel uses. Kernels for images with one or two spatial axes do not use
// z.

/// True if neighboring invocations compute neighboring images of the batch, false if the batch varies slowest over the
/// invocations.
const BATCH_INNER = true;
/// True if images have a third spatial axis, z.
const DEEP = false;

/// Number of images.
fn batches() -> u32 { return 1u; }
/// Width of the source image, in pixels.
fn in_w() -> u32 { return 8u; }
/// Height of the source image, in pixels.
fn in_h() -> u32 { return 8u; }
/// Depth of the source image, in pixels.
fn in_d() -> u32 { return 1u; }
/// Width of the result image, in pixels.
fn out_w() -> u32 { return 8u; }
/// Height of the result image, in pixels.
fn out_h() -> u32 { return 8u; }
/// Depth of the result image, in pixels.
fn out_d() -> u32 { return 1u; }
