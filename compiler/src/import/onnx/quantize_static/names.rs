//! Names of a graph's values: which nodes read a value, and names that are free.

use std::collections::{BTreeMap, BTreeSet};

use crate::import::onnx::schema::{GraphProto, NodeProto};

/// Readers of a graph's values.
#[derive(Debug, Default)]
pub(super) struct Readers {
    /// Indices of the nodes that read a value, once for each input.
    nodes: BTreeMap<String, Vec<usize>>,
    /// Values that are outputs of the graph, or that subgraphs read.
    pinned: BTreeSet<String>,
}

impl Readers {
    /// Collects the readers of a graph's values.
    pub(super) fn collect(graph: &GraphProto) -> Self {
        let mut readers = Self::default();
        for (i, node) in graph.node.iter().enumerate() {
            for input in node.input.iter().filter(|input| !input.is_empty()) {
                readers.nodes.entry(input.clone()).or_default().push(i);
            }
            for inner in subgraphs(node) {
                collect_names(inner, &mut readers.pinned);
            }
        }
        readers.pinned.extend(graph.output.iter().map(|o| o.name().to_string()));
        readers
    }

    /// Returns the only reader of a value. Returns `None` if the value has several readers, or if it is an output of the
    /// graph or read by a subgraph.
    pub(super) fn sole(&self, name: &str) -> Option<usize> {
        match self.nodes.get(name).map(Vec::as_slice) {
            Some([node]) if !self.pinned.contains(name) => Some(*node),
            _ => None,
        }
    }

    /// True if only nodes of a set read the value, and at least one.
    pub(super) fn are_within(&self, name: &str, nodes: &BTreeSet<usize>) -> bool {
        let readers = self.nodes.get(name);
        !self.pinned.contains(name)
            && readers.is_some_and(|readers| readers.iter().all(|i| nodes.contains(i)))
    }

    /// True if a node or a subgraph reads the value, or if it is an output of the graph.
    pub(super) fn is_read(&self, name: &str) -> bool {
        self.nodes.contains_key(name) || self.pinned.contains(name)
    }
}

/// Returns the graphs in a node's attributes.
pub(super) fn subgraphs(node: &NodeProto) -> impl Iterator<Item = &GraphProto> {
    node.attribute.iter().flat_map(|a| a.g.iter().chain(&a.graphs))
}

/// Adds all names of values in a graph and its subgraphs.
pub(super) fn collect_names(graph: &GraphProto, names: &mut BTreeSet<String>) {
    names.extend(graph.input.iter().chain(&graph.output).map(|info| info.name().to_string()));
    names.extend(graph.initializer.iter().map(|tensor| tensor.name().to_string()));
    let sparse = graph.sparse_initializer.iter().filter_map(|tensor| tensor.values.as_ref());
    names.extend(sparse.map(|values| values.name().to_string()));
    for node in &graph.node {
        names.extend(node.input.iter().chain(&node.output).cloned());
        for inner in subgraphs(node) {
            collect_names(inner, names);
        }
    }
}

/// Returns the name `base`, or `base` with a number if the name is taken. The returned name counts as taken.
pub(super) fn free_name(taken: &mut BTreeSet<String>, base: &str) -> String {
    let mut name = base.to_string();
    let mut number = 1;
    while !taken.insert(name.clone()) {
        number += 1;
        name = format!("{base}_{number}");
    }
    name
}
