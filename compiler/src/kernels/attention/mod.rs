//! Scaled dot-product attention.

#[expect(clippy::module_inception, reason = "the family of kernels is named after its kernel `attention`")]
pub(super) mod attention;
pub(super) mod attention_coop;
pub(super) mod attention_fragments;
pub(super) mod attention_kv_split;
mod attention_merge;
mod f16_hooks;
