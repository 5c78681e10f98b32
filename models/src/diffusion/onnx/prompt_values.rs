//! Values of a UNet that depend on the prompts alone. They are the same in every step, so they are computed once.
//!
//! ```text
//! %3 = matmul %text %w                       encode:  %3 = matmul %text %w, stored in a state
//! %4 = reshape %3                      ->    denoise: %3 = state
//! %9 = attention %q %4 %v                             %4 = reshape %3
//! ```
//!
//! A reshape, a transpose or a scale of such a value stays in the function that reads it, so that later passes find the
//! patterns that they know.

use std::collections::{BTreeMap, BTreeSet};

use driftc::ir::element::Element;
use driftc::ir::graph::{Graph, NodeId};
use driftc::ir::op::Op;
use driftc::ir::tensor::DType;

/// Source of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    Constant,
    /// The prompts, and constants.
    Prompts,
    /// Another input.
    Other,
}

/// Returns the values that depend on the inputs `prompts` alone and that other values read, oldest first. They are f32 and have
/// at least two axes; otherwise the result is `prompts`.
pub(super) fn prompt_values(graph: &Graph, prompts: &[NodeId]) -> Vec<NodeId> {
    let sources = sources(graph, prompts);
    let source = |id: &NodeId| sources.get(id).copied().unwrap_or(Source::Other);
    let mut values = BTreeSet::new();
    for id in graph.ids().into_iter().filter(|id| source(id) == Source::Prompts) {
        if graph.users(id).iter().any(|user| source(user) == Source::Other) {
            values.insert(origin(graph, id, &sources));
        }
    }
    let can_be_stored = |id: &NodeId| graph.tensor(*id).dtype == DType::F32 && graph.tensor(*id).rank() > 1;
    match values.iter().all(can_be_stored) {
        true => graph.ids().into_iter().filter(|id| values.contains(id)).collect(),
        false => prompts.to_vec(),
    }
}

fn sources(graph: &Graph, prompts: &[NodeId]) -> BTreeMap<NodeId, Source> {
    let mut sources = BTreeMap::new();
    for id in graph.topological() {
        let operands = graph.operands(id);
        let operands = operands.iter().filter_map(|operand| sources.get(operand).copied());
        let source = match graph.op(id) {
            Op::Input(_) if prompts.contains(&id) => Source::Prompts,
            Op::Input(_) | Op::State(_) => Source::Other,
            _ => operands.max().unwrap_or(Source::Constant),
        };
        sources.insert(id, source);
    }
    sources
}

/// Follows a value through reshapes, transposes and scales back to the value that they start from.
fn origin(graph: &Graph, mut id: NodeId, sources: &BTreeMap<NodeId, Source>) -> NodeId {
    loop {
        let is_view = match graph.op(id) {
            Op::Reshape(_) | Op::Transpose(_) => true,
            Op::Elementwise(function) => matches!(function.element, Element::Binary(_)),
            _ => false,
        };
        let is_scalar = |operand: &NodeId| {
            sources.get(operand) == Some(&Source::Constant)
                && graph.tensor(*operand).shape.iter().all(|size| size.as_known() == Some(1))
        };
        let operands: Vec<NodeId> = graph.operands(id).into_iter().filter(|o| !is_scalar(o)).collect();
        match operands.as_slice() {
            [operand] if is_view => id = *operand,
            _ => return id,
        }
    }
}
