//! Matmul kernels.

mod eligibility;
#[expect(clippy::module_inception, reason = "the family of kernels is named after its kernel `matmul`")]
pub(super) mod matmul;
pub(super) mod matmul_broadcast;
pub(super) mod matmul_coop;
pub(super) mod matmul_direct;
pub(super) mod matmul_dot;
pub(super) mod matmul_workgroup;
pub(super) mod matvec;
pub(super) mod matvec_coop;
pub(super) mod matvec_dot;
pub(super) mod matvec_fragments;
pub(super) mod matvec_panels;
pub(super) mod matvec_quantized;
mod quantized_matmul;
pub(super) mod quantized_rows_coop;
pub(super) mod quantized_rows_dot;
