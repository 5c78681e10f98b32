//! What kernels of several families share.

pub(crate) mod codes;
pub(crate) mod coop;
pub(crate) mod cut;
pub(crate) mod dot;
pub(crate) mod emulated_fragments;
pub(crate) mod fold;
pub(crate) mod fused;
pub(crate) mod pixels;
pub(crate) mod product;
pub(crate) mod residual;
pub(crate) mod row_panels;
pub(crate) mod tiled;
pub(crate) mod tiled_dot;
pub(crate) mod window;
