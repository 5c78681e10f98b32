//! Every operator that can be lowered: the tables of the families, joined.

use super::lowering::{Lowered, OpEntry, Refused};
use crate::error::UNKNOWN;

const FAMILIES: &[&[OpEntry]] = &[
    super::elementwise::OPS,
    super::activation::OPS,
    super::matmul::OPS,
    super::conv::OPS,
    super::quantize::OPS,
    super::blocks::OPS,
    super::quantize_microsoft::OPS,
    super::pool::OPS,
    super::norm::OPS,
    super::attention::OPS,
    super::rotary::OPS,
    super::state::OPS,
    super::reduce::OPS,
    super::softmax::OPS,
    super::shape::OPS,
    super::slice::OPS,
    super::gather::OPS,
    super::generate::OPS,
    super::resize::OPS,
    super::einsum::OPS,
    super::recurrent::OPS,
    super::loss::OPS,
    super::microsoft::OPS,
    super::grouped_query::OPS,
];

/// Every entry, family by family.
pub(super) fn entries() -> impl Iterator<Item = &'static OpEntry> {
    FAMILIES.iter().flat_map(|family| family.iter())
}

/// The entry for an operator at a version of its domain's operator set.
pub(super) fn find(domain: &str, name: &str, opset: i64) -> Lowered<&'static OpEntry> {
    let mut known = entries().filter(|e| e.domain == domain && e.name == name).peekable();
    if known.peek().is_none() {
        return Err(Refused::new(format!("{UNKNOWN} supported")));
    }
    let fits = |e: &&OpEntry| e.since <= opset && e.until.is_none_or(|u| opset <= u);
    known.find(fits).ok_or_else(|| {
        let versions: Vec<String> = entries()
            .filter(|e| e.domain == domain && e.name == name)
            .map(|e| match e.until {
                Some(until) => format!("{} to {until}", e.since),
                None => format!("{} on", e.since),
            })
            .collect();
        Refused::new(format!(
            "{UNKNOWN} part of opset {opset}, or meant something else there; it is understood from opset {}; \
             convert the model with `onnx.version_converter`",
            versions.join(", ")
        ))
    })
}
