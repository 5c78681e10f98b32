//! Scaled dot-product attention.

#[expect(clippy::module_inception, reason = "the kernel that the family is named after")]
pub(super) mod attention;
pub(super) mod attention_coop;
mod attention_merge;
pub(super) mod attention_parts;
