//! Ends of links: outputs and inputs of entry points.

use crate::ir::graph::{Graph, NodeId};

/// Output or input of an entry point.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// Index of the entry point.
    pub entry: usize,
    /// Name of the output or input.
    pub name: String,
}

/// Link: an output whose value is an input of later runs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Link {
    /// The output.
    pub from: Endpoint,
    /// The input.
    pub to: Endpoint,
}

/// Returns the input node with a name.
pub(super) fn input_node(graph: &Graph, name: &str) -> Option<NodeId> {
    graph.inputs().iter().copied().find(|id| graph.input(*id).is_some_and(|input| input.name == name))
}
