//! Kernels: WGSL files, each with Rust code that lists its candidates for a problem, estimates their cost, and builds
//! their launches.
//!
//! A kernel depends only on its [`Problem`](crate::shader::problem::Problem): one operator, its operands, and the
//! target. All kernels read and write through generated hooks, so every kernel works with every layout. Each folder is
//! a family of kernels. A family may use [`shader`](crate::shader), `cost` and `shared`, but no other family.

mod attention;
pub mod cases;
mod conv;
pub(crate) mod cost;
pub mod kernel;
mod matmul;
mod movement;
mod pool;
mod recurrent;
mod rows;
mod shared;

#[cfg(test)]
mod matrix_tests;
#[cfg(test)]
mod order_tests;
#[cfg(test)]
mod tests;

pub use cost::{Estimate, Overlap};
pub use kernel::{Candidate, Group, InPlace, Kernel, Knobs};
#[cfg(test)]
pub(crate) use shared::preludes::PRELUDES;
pub use shared::quantized::MAX_SMALL_M;

/// Table of all kernels. Among candidates of equal cost, the compiler selects the kernel that comes first in this table.
pub const KERNELS: &[Kernel] = &[
    matmul::matmul_coop::KERNEL,
    matmul::matmul_workgroup::KERNEL,
    conv::conv_coop::KERNEL,
    conv::conv_fragments::KERNEL,
    matmul::matmul_broadcast::KERNEL,
    matmul::matmul::KERNEL,
    matmul::matmul_dot::KERNEL,
    matmul::quantized_rows_coop::KERNEL,
    matmul::quantized_rows_dot::KERNEL,
    conv::conv::KERNEL,
    conv::conv_dot::KERNEL,
    conv::conv_1x1::KERNEL,
    conv::conv_constants::KERNEL,
    conv::conv_broadcast::KERNEL,
    conv::depthwise::KERNEL,
    conv::conv_separable_direct::KERNEL,
    conv::conv_separable::KERNEL,
    conv::conv_transpose::KERNEL,
    conv::conv_direct::KERNEL,
    pool::KERNEL,
    movement::resize::KERNEL,
    movement::grid_sample::KERNEL,
    movement::pad::KERNEL,
    movement::concat::KERNEL,
    movement::map::KERNEL,
    matmul::matvec::KERNEL,
    matmul::matvec_panels::KERNEL,
    matmul::matvec_quantized::KERNEL,
    matmul::matvec_coop::KERNEL,
    matmul::matvec_fragments::KERNEL,
    matmul::matvec_dot::KERNEL,
    matmul::matmul_direct::KERNEL,
    rows::normalize::KERNEL,
    rows::add_norms::KERNEL,
    rows::reduce::KERNEL,
    rows::softmax::KERNEL,
    rows::quantize_rows::KERNEL,
    attention::attention_coop::KERNEL,
    attention::attention_fragments::KERNEL,
    attention::attention::KERNEL,
    attention::attention_kv_split::KERNEL,
    rows::arg_reduce::KERNEL,
    rows::cum_sum::KERNEL,
    rows::top_k::KERNEL,
    rows::top_k_rank::KERNEL,
    recurrent::KERNEL,
    movement::gather::KERNEL,
    movement::scatter::KERNEL,
    movement::scatter_list::KERNEL,
    movement::fill::KERNEL,
    conv::winograd::KERNEL,
];
