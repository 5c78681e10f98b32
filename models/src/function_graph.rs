//! Parts of functions that an architecture builds itself: graphs, states and shapes.

use driftc::error::Result;
use driftc::ir::builder::Builder;
use driftc::ir::dim::Dim;
use driftc::ir::graph::{Graph, NodeId};
use driftc::ir::op::{State, Update};
use driftc::ir::tensor::DType;

/// Builds a graph with a function. `name` is the name of its first nodes.
///
/// # Errors
/// If the function fails.
pub(crate) fn graph(name: &str, build: impl FnOnce(&mut Builder<'_>) -> Result<()>) -> Result<Graph> {
    let mut graph = Graph::default();
    build(&mut Builder::new(&mut graph, name))?;
    Ok(graph)
}

/// Converts a shape of known sizes.
pub(crate) fn dims(shape: &[usize]) -> Vec<Dim> {
    shape.iter().copied().map(Dim::from).collect()
}

/// Adds the contents of an f32 state.
///
/// # Errors
/// If the graph has too many nodes.
pub(crate) fn state(g: &mut Builder<'_>, name: &str, shape: &[usize]) -> Result<NodeId> {
    g.name = name.to_string();
    g.add(State { name: name.to_string(), dtype: DType::F32, shape: shape.to_vec() }, &[])
}

/// Stores a value in a state that attention reads. It is an update of all rows, so that the state has the type in which the
/// model computes.
///
/// # Errors
/// If the value has one axis.
pub(crate) fn store_rows(g: &mut Builder<'_>, name: &str, value: NodeId) -> Result<()> {
    let shape = &g.tensor(value).shape;
    let shape: Vec<usize> = shape.iter().filter_map(|d| usize::try_from(d.as_known()?).ok()).collect();
    let old = state(g, name, &shape)?;
    let new = g.add(Update { axis: 1, start: Dim::known(0) }, &[old, value])?;
    g.graph.add_store(name, new);
    Ok(())
}
