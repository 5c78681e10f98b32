//! Checks the invariants of a graph that passes and kernels rely on. The check runs after every pass, so that a
//! violation is reported with the name of the pass that caused it.
//!
//! Invariants of every graph:
//! - No node depends on itself, directly or through other nodes.
//! - Every operator accepts its operands. Shape rules are applied to the types before storage types were chosen, so
//!   that a rewrite cannot hide a mismatch behind an implicit conversion.
//! - An epilogue step has the number of operands of its function. Each operand is the result of the node's operator, of
//!   an earlier step, or an operand of the node that broadcasts to the node's shape.
//! - Every operand of the epilogue is used by a step. Inputs and constants have no epilogue.
//! - The stored shape is the inferred shape. The stored type is the inferred type, except that a float may be stored in
//!   any float type.
//! - The layout `slices4` applies to tensors with 2 to 5 axes. Inputs, constants, states, updates and outputs are
//!   row-major. The result of a `relayout` has the layout that the operator names.
//! - A constant has the number of bytes that its shape and encoding need.
//! - Every symbol in use has bounds `0 <= low <= high` and a name that the text form can represent.
//! - States have distinct names. A value that is stored in a state has the state's type, a known shape and row-major
//!   layout.
//! - Inputs have distinct names, outputs have distinct names, and both are nodes of the graph.

use std::collections::{BTreeMap, BTreeSet};

use super::dim::Dim;
use super::element::Arg;
use super::graph::{Graph, Node, NodeId, infer};
use super::op::Op;
use super::ops::check::broadcasts_to;
use super::tensor::{DType, Layout, TensorDesc};
use crate::error::{Error, OpError, Result};

/// Checks the invariants of a graph that the documentation of module `verify` lists.
///
/// # Errors
/// An internal error of `stage` that names the node and the violated invariant.
pub fn verify(graph: &Graph, stage: &str) -> Result<()> {
    check_inputs_and_outputs(graph)
        .and_then(|()| check_states(graph))
        .and_then(|()| check_symbols(graph))
        .map_err(|why| Error::internal(stage, why.0))?;
    let order = graph.topological();
    if order.len() != graph.len() {
        return Err(Error::internal(stage, "some nodes of the graph depend on themselves"));
    }
    let mut inferred: BTreeMap<NodeId, TensorDesc> = BTreeMap::new();
    for id in order {
        let tensor = check_node(graph, id, &inferred).map_err(|why| {
            let (node, number) = (graph.node(id), inferred.len());
            let place = format!("node %{number} `{}` ({})", node.name, node.op.name());
            Error::internal(stage, format!("{place}: {why}"))
        })?;
        inferred.insert(id, tensor);
    }
    Ok(())
}

/// Checks one node against the inferred types of its operands; returns the node's inferred type.
fn check_node(
    graph: &Graph,
    id: NodeId,
    inferred: &BTreeMap<NodeId, TensorDesc>,
) -> Result<TensorDesc, OpError> {
    let node = graph.node(id);
    let operands = graph.operands(id);
    let tensors: Vec<&TensorDesc> = operands.iter().filter_map(|o| inferred.get(o)).collect();
    let tensor = infer(&graph.bounds, &node.op, node.arity, &node.epilogue, &tensors)?;

    let mut used = BTreeSet::new();
    for (i, step) in node.epilogue.iter().enumerate() {
        for arg in &step.args {
            if let Arg::Input(k) = arg {
                let operand = tensors.get(*k as usize).ok_or_else(|| {
                    OpError::new("an epilogue step reads an operand that the node does not have")
                })?;
                broadcasts_to(operand, &tensor.shape, &format!("operand {k} of epilogue step {}", i + 1))?;
                used.insert(*k as usize);
            }
        }
    }
    if let Some(unused) = (node.arity..operands.len()).find(|k| !used.contains(k)) {
        return Err(OpError::new(format!("operand {unused} belongs to the epilogue, but no step uses it")));
    }

    let stored = &node.tensor;
    if stored.shape != tensor.shape || !may_store(tensor.dtype, stored.dtype) {
        return Err(OpError::new(format!(
            "the result is stored as {stored}, but the inferred type is {tensor}"
        )));
    }
    if !stored.layout.holds(&stored.shape) {
        return Err(OpError::new(format!("the layout of {stored} needs 2 to 5 axes")));
    }
    check_storage(node)?;
    Ok(tensor)
}

/// Checks rules of single operators: inputs, constants and states have no epilogue; results of inputs, constants, states and
/// updates are row-major; a constant has the bytes of its shape; and a relayout's result has the operator's layout.
fn check_storage(node: &Node) -> Result<(), OpError> {
    let stored = &node.tensor;
    match &node.op {
        Op::Input(_) | Op::Constant(_) | Op::State(_) if !node.epilogue.is_empty() => {
            return Err(OpError::new("inputs, constants and states cannot have an epilogue"));
        }
        Op::Input(_) | Op::Constant(_) | Op::State(_) | Op::Update(_)
            if stored.layout != Layout::RowMajor =>
        {
            return Err(OpError::new(format!(
                "{stored} is not row-major, as inputs, constants, states and updates must be"
            )));
        }
        Op::Constant(c) if c.encoding.check(&c.encoded_shape(), c.bytes.len()).is_err() => {
            return Err(OpError::new(format!(
                "the constant has {} bytes, which is not the size of {stored}",
                c.bytes.len()
            )));
        }
        Op::Relayout(r) if r.layout != stored.layout => {
            return Err(OpError::new(format!(
                "the result of a relayout is stored as {stored}, not as {:?}",
                r.layout
            )));
        }
        _ => {}
    }
    Ok(())
}

/// True if a value computed in one element type may be stored in another.
fn may_store(computed: DType, stored: DType) -> bool {
    computed == stored || (computed.is_float() && stored.is_float())
}

fn check_inputs_and_outputs(graph: &Graph) -> Result<(), OpError> {
    let ids: BTreeSet<NodeId> = graph.ids().into_iter().collect();
    let mut names = BTreeSet::new();
    for id in graph.inputs() {
        if !ids.contains(id) {
            return Err(OpError::new("the graph lists an input that is not one of its nodes"));
        }
        let Some(input) = graph.input(*id) else {
            return Err(OpError::new(format!(
                "the graph lists the node `{}` as an input, but its operator is not an input",
                graph.node(*id).name
            )));
        };
        if !names.insert(input.name.as_str()) {
            return Err(OpError::new(format!("two inputs are named `{}`", input.name)));
        }
    }
    let listed = ids.iter().filter(|id| graph.input(**id).is_some()).count();
    if listed != graph.inputs().len() {
        return Err(OpError::new(format!(
            "the graph has {listed} nodes that are inputs, but lists {} inputs",
            graph.inputs().len()
        )));
    }
    let mut names = BTreeSet::new();
    for output in graph.outputs() {
        if !ids.contains(&output.node) {
            return Err(OpError::new(format!("output `{}` is not a node of the graph", output.name)));
        }
        if graph.tensor(output.node).layout != Layout::RowMajor {
            return Err(OpError::new(format!("output `{}` is not row-major", output.name)));
        }
        if !names.insert(output.name.as_str()) {
            return Err(OpError::new(format!("two outputs are named `{}`", output.name)));
        }
    }
    Ok(())
}

fn check_states(graph: &Graph) -> Result<(), OpError> {
    let mut states = BTreeMap::new();
    for id in graph.ids() {
        if let Some(state) = graph.state(id)
            && states.insert(state.name.as_str(), id).is_some()
        {
            return Err(OpError::new(format!("two nodes are the state `{}`", state.name)));
        }
    }
    let mut names = BTreeSet::new();
    for store in graph.stores() {
        let name = &store.name;
        if !graph.contains(store.node) {
            return Err(OpError::new(format!(
                "the value stored in state `{name}` is not a node of the graph"
            )));
        }
        if !names.insert(name.as_str()) {
            return Err(OpError::new(format!("two values are stored in state `{name}`")));
        }
        let value = graph.tensor(store.node);
        if value.known_shape().is_none() || value.layout != Layout::RowMajor {
            return Err(OpError::new(format!(
                "{value} cannot be stored in state `{name}`: it must be row-major with a known shape"
            )));
        }
        if let Some(state) = states.get(name.as_str()).map(|id| graph.tensor(*id))
            && state != value
        {
            return Err(OpError::new(format!("state `{name}` holds {state}, not {value}")));
        }
    }
    Ok(())
}

fn check_symbols(graph: &Graph) -> Result<(), OpError> {
    for (name, (low, high)) in &graph.bounds {
        if *low < 0 || low > high {
            return Err(OpError::new(format!("symbol `{name}` has invalid bounds {low}..{high}")));
        }
        let readable = name.trim() == name && !name.contains([',', '[', ']', '@', '\n', '"']);
        if !readable || Dim::parse(name).as_ref().and_then(Dim::as_symbol) != Some(name.as_str()) {
            return Err(OpError::new(format!("the text form cannot represent the name of symbol `{name}`")));
        }
    }
    let mut used = BTreeSet::new();
    for id in graph.ids() {
        let node = graph.node(id);
        node.tensor.shape.iter().for_each(|d| d.symbols(&mut used));
        // Only `sizes_mut` lists the symbolic dimensions of attributes, and a clone copies no constant's bytes.
        node.op.clone().operation_mut().sizes_mut().iter().for_each(|d| d.symbols(&mut used));
    }
    match used.into_iter().find(|name| !graph.bounds.contains_key(name)) {
        Some(name) => Err(OpError::new(format!("symbol `{name}` has no bounds"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::verify;
    use crate::error::Error;
    use crate::ir::dim::Bounds;
    use crate::ir::element::{Arg, BinaryFn, Element, EpilogueStep};
    use crate::ir::graph::{Graph, Replacement};
    use crate::ir::graph_text::parse;
    use crate::ir::tensor::{DType, Layout};

    const TEXT: &str = r#"
        symbol n 1..8
        %0 = input {"name":"x","dtype":"f32","shape":["n",4,1,1]}
        %1 = constant {"dtype":"f32","shape":[4],"random":1}
        %2 = reshape %1 {"shape":[4,1,1]}
        %3 = relu %0 | %2 then (add #0 @1)
        %4 = shape-values {"dtype":"i64","shape":[1],"values":["n"]}
        output "y" %3
    "#;

    fn refused(change: impl FnOnce(&mut Graph), fragment: &str) {
        let mut graph = parse(TEXT).unwrap();
        verify(&graph, "start").unwrap();
        change(&mut graph);
        match verify(&graph, "stage") {
            Err(Error::Internal { stage, reason }) => {
                assert_eq!(stage, "stage");
                assert!(reason.contains(fragment), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn floats_may_be_stored_in_another_float_type() {
        let mut graph = parse(TEXT).unwrap();
        let y = graph.outputs()[0].node;
        graph.set_storage_type(y, DType::F16);
        verify(&graph, "test").unwrap();
    }

    #[test]
    fn violations_are_named() {
        refused(|g| g.set_storage_type(g.outputs()[0].node, DType::I32), "stored as i32");
        refused(|g| g.set_layout(g.ids()[4], Layout::SLICES4), "axes");
        refused(|g| g.set_layout(g.ids()[3], Layout::SLICES4), "output `y` is not row-major");
        refused(|g| g.set_layout(g.ids()[0], Layout::SLICES4), "not row-major");
        refused(|g| g.add_output("y", g.ids()[0]), "two outputs");
        refused(|g| g.bounds.clear(), "`n` has no bounds");
        refused(|g| g.bounds = Bounds::from([("n".into(), (3, 2))]), "bounds 3..2");
        refused(|g| g.bounds = Bounds::from([("a,b".into(), (1, 2))]), "cannot represent");
        // The input's use of itself becomes a use of its user: a cycle.
        refused(|g| g.replace_uses(g.ids()[1], g.ids()[3]), "depend on themselves");
        // The users keep the shapes inferred before.
        refused(|g| g.replace_uses(g.ids()[0], g.ids()[2]), "is stored as");
    }

    #[test]
    fn epilogue_operands_broadcast_into_the_node_and_are_used() {
        let with = |args: Vec<Arg>, graph: &mut Graph| {
            let (small, large) = (graph.ids()[2], graph.ids()[0]);
            let step = EpilogueStep { element: Element::Binary(BinaryFn::Add), args };
            let op = graph.op(graph.ids()[3]).clone();
            let what = Replacement { op, operands: vec![small, large], arity: 1, epilogue: vec![step] };
            graph.set_op(graph.ids()[3], what).unwrap();
        };
        refused(|g| with(vec![Arg::Step(0), Arg::Input(1)], g), "does not broadcast");
        refused(|g| with(vec![Arg::Step(0), Arg::Step(0)], g), "no step uses it");
    }
}
