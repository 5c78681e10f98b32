//! Kernels of elementwise functions and copies, and kernels that move elements, such as gather and pad.

pub(super) mod concat;
mod dequantize;
pub(super) mod fill;
pub(super) mod gather;
pub(super) mod grid_sample;
pub(super) mod map;
pub(super) mod pad;
pub(super) mod resize;
pub(super) mod scatter;
pub(super) mod scatter_list;
