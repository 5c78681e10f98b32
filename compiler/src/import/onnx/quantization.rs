//! The dequantized tensors of a graph, and when a quantization reverses their dequantization.

use std::collections::BTreeMap;

use crate::ir::array::Array;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::tensor::DType;

/// The integers of a dequantized tensor: `real = (values - zero) * scale`.
#[derive(Debug, Clone)]
pub(super) struct Dequantized {
    /// The integers, of 8 bits or, for biases, 32 bits.
    pub(super) values: NodeId,
    /// One scale, or one per index of `axis`.
    pub(super) scale: NodeId,
    /// Zero point, of the shape of the scale.
    pub(super) zero: Option<NodeId>,
    /// Axis of the scales; `None` if the tensor has one scale.
    pub(super) axis: Option<usize>,
}

/// The dequantized tensors of a graph, by the node of the real values.
pub(super) type Table = BTreeMap<NodeId, Dequantized>;

/// Scale, zero point and type of a quantization.
pub(super) type Parameters = (NodeId, Option<NodeId>, DType);

impl Dequantized {
    /// True if this quantization has one scale, and two quantizations have equal types, scales and zero points.
    fn equals(&self, graph: &Graph, (scale, zero, dtype): Parameters) -> bool {
        let same = |a: NodeId, b: NodeId| {
            let constants = || constant(graph, a).zip(constant(graph, b));
            a == b || constants().is_some_and(|(a, b)| a.len() == 1 && a.dtype == b.dtype && a.data == b.data)
        };
        let same_zero = match (self.zero, zero) {
            (Some(a), Some(b)) => same(a, b) || is_zero(graph, Some(a)) && is_zero(graph, Some(b)),
            (a, b) => is_zero(graph, a) && is_zero(graph, b),
        };
        self.axis.is_none()
            && graph.tensor(self.values).dtype == dtype
            && same_zero
            && same(self.scale, scale)
    }

    /// Returns this quantization for other integers.
    pub(super) fn with_values(&self, values: NodeId) -> Self {
        Self { values, ..self.clone() }
    }
}

/// Returns the integers of a dequantized tensor if a quantization with the given parameters gives them back.
pub(super) fn same_quantization(
    graph: &Graph,
    table: &Table,
    x: NodeId,
    parameters: Parameters,
) -> Option<NodeId> {
    let known = table.get(&x)?;
    known.equals(graph, parameters).then_some(known.values)
}

/// Returns true if a zero point is absent or known to be zero.
pub(super) fn is_zero(graph: &Graph, zero: Option<NodeId>) -> bool {
    let Some(zero) = zero else { return true };
    let zeros = |a: Array| a.ints().is_ok_and(|v| v.iter().all(|v| *v == 0));
    constant(graph, zero).is_some_and(zeros)
}

/// Returns true if a scale is known to be positive.
pub(super) fn is_positive(graph: &Graph, scale: NodeId) -> bool {
    let positive = |a: Array| a.floats().is_ok_and(|v| v.iter().all(|v| *v > 0.0));
    constant(graph, scale).is_some_and(positive)
}

fn constant(graph: &Graph, id: NodeId) -> Option<Array> {
    graph.constant(id)?.to_array().ok()
}
