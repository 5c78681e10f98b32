//! Registry of the operators that can be lowered: the tables of all operator families.

use super::lowering::{Lowered, OpEntry};
use super::refused::Refused;

const FAMILIES: &[&[OpEntry]] = &[
    super::elementwise::OPS,
    super::activation::OPS,
    super::matmul::OPS,
    super::conv::OPS,
    super::quantize::OPS,
    super::block_quantized::OPS,
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
    super::mel::OPS,
    super::fourier::OPS,
    super::resize::OPS,
    super::einsum::OPS,
    super::recurrent::OPS,
    super::loss::OPS,
    super::microsoft::OPS,
    super::grouped_query::OPS,
];

/// Returns the table entry of every ONNX operator that can be lowered, family by family.
pub(super) fn entries() -> impl Iterator<Item = &'static OpEntry> {
    FAMILIES.iter().flat_map(|family| family.iter())
}

/// Returns the table entry of an ONNX operator at a version of its domain's operator set.
pub(super) fn find_operator(domain: &str, name: &str, opset: i64) -> Lowered<&'static OpEntry> {
    let mut known = entries().filter(|e| e.domain == domain && e.name == name).peekable();
    if known.peek().is_none() {
        return Err(Refused::unknown_operator("the operator is not supported"));
    }
    let covers = |e: &&OpEntry| e.since <= opset && e.until.is_none_or(|u| opset <= u);
    known.find(covers).ok_or_else(|| {
        let versions: Vec<String> = entries()
            .filter(|e| e.domain == domain && e.name == name)
            .map(|e| match e.until {
                Some(until) => format!("{} to {until}", e.since),
                None => format!("{} on", e.since),
            })
            .collect();
        Refused::unknown_operator(format!(
            "the operator is not part of opset {opset}, or has another meaning there; it is supported from opset {}; \
             convert the model with `onnx.version_converter`",
            versions.join(", ")
        ))
    })
}
