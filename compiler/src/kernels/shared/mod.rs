//! Code that kernels of several families (folders of kernels) use.

pub(crate) mod coop;
pub(crate) mod dot;
pub(crate) mod emulated_fragments;
pub(crate) mod float_panels;
pub(crate) mod fragment_matmul;
pub(crate) mod matmul_node;
pub(crate) mod matmul_sizes;
pub(crate) mod panel_tile;
pub(crate) mod pixels;
#[cfg(test)]
pub(crate) mod preludes;
pub(crate) mod quantized;
pub(crate) mod quantized_rows;
pub(crate) mod residual_rows;
pub(crate) mod subgroup_sums;
pub(crate) mod sum_correction;
pub(crate) mod tiled;
pub(crate) mod tiled_dot;
pub(crate) mod window;
pub(crate) mod words;
