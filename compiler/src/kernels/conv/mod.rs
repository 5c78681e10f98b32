//! Convolutions, transposed convolutions and Winograd transforms.

mod blocks;
#[expect(clippy::module_inception, reason = "the family of kernels is named after its kernel `conv`")]
pub(super) mod conv;
pub(super) mod conv_1x1;
pub(super) mod conv_broadcast;
pub(super) mod conv_constants;
pub(super) mod conv_coop;
pub(super) mod conv_direct;
pub(super) mod conv_dot;
pub(super) mod conv_fragments;
mod conv_merge;
pub(super) mod conv_separable;
pub(super) mod conv_separable_direct;
pub(super) mod conv_transpose;
pub(super) mod depthwise;
mod filters;
mod fragment_tiles;
mod separable;
pub(super) mod winograd;
