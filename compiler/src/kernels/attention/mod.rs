//! Scaled dot-product attention.

#[expect(clippy::module_inception, reason = "the kernel that the family is named after")]
pub(super) mod attention;
pub(super) mod attention_coop;
pub(super) mod attention_kv_split;
mod attention_merge;
