//! Kernels that compute along the rows of a tensor: reductions, norms, cumulative sums and top-k. A row consists of the
//! elements along the axes that the operator combines.

mod row_tiling;
mod sort_key;
mod subgroup_moments;

pub(super) mod add_norms;
pub(super) mod arg_reduce;
pub(super) mod cum_sum;
pub(super) mod normalize;
mod normalize_sums;
pub(super) mod quantize_rows;
pub(super) mod reduce;
pub(super) mod softmax;
pub(super) mod top_k;
pub(super) mod top_k_rank;
