//! Topological order of the nodes of an ONNX graph.
//!
//! ONNX requires nodes in topological order, but some files have another order. Nodes whose operands are all computed
//! keep the file's order among each other.

use std::collections::{BTreeMap, BTreeSet};

use super::schema::{GraphProto, NodeProto};

/// Returns the indices of the nodes in topological order. Fails with the index of a node on a cycle.
pub(super) fn topological_order(nodes: &[NodeProto]) -> Result<Vec<usize>, usize> {
    let mut producer = BTreeMap::new();
    for (i, node) in nodes.iter().enumerate() {
        for output in node.output.iter().filter(|o| !o.is_empty()) {
            producer.insert(output.as_str(), i);
        }
    }
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    let mut missing = vec![0usize; nodes.len()];
    for (i, node) in nodes.iter().enumerate() {
        let mut names: BTreeSet<&str> = node.input.iter().map(String::as_str).collect();
        captures(node, &mut names);
        let sources: BTreeSet<usize> = names.iter().filter_map(|n| producer.get(n).copied()).collect();
        for source in sources {
            users[source].push(i);
            missing[i] += 1;
        }
    }
    let mut ready: BTreeSet<usize> = (0..nodes.len()).filter(|i| missing[*i] == 0).collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(i) = ready.pop_first() {
        order.push(i);
        for user in &users[i] {
            missing[*user] -= 1;
            if missing[*user] == 0 {
                ready.insert(*user);
            }
        }
    }
    match missing.iter().position(|m| *m > 0) {
        Some(stuck) => Err(stuck),
        None => Ok(order),
    }
}

/// Adds to `names` the values of enclosing graphs that the nested graphs of a node use.
fn captures<'m>(node: &'m NodeProto, names: &mut BTreeSet<&'m str>) {
    for graph in node.attribute.iter().flat_map(|a| a.g.iter().chain(&a.graphs)) {
        let mut inside = BTreeSet::new();
        for inner in &graph.node {
            inside.extend(inner.input.iter().map(String::as_str));
            captures(inner, &mut inside);
        }
        inside.extend(graph.output.iter().map(|o| o.name()));
        names.extend(inside.difference(&defined(graph)));
    }
}

fn defined(graph: &GraphProto) -> BTreeSet<&str> {
    let inputs = graph.input.iter().map(|i| i.name());
    let constants = graph.initializer.iter().map(|t| t.name());
    let results = graph.node.iter().flat_map(|n| n.output.iter().map(String::as_str));
    inputs.chain(constants).chain(results).collect()
}
