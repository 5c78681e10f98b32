//! The graph: nodes with one result each, on petgraph's `StableDiGraph`.
//!
//! An edge runs from operand to user and carries the operand's index, because petgraph lists edges in reverse order of
//! insertion. A node's id also identifies its value. petgraph reuses freed indices, so every node has a serial number
//! that only grows. Serial numbers break ties in every order, which keeps compilation deterministic.

use std::collections::{BTreeMap, BTreeSet};

use petgraph::Direction;
use petgraph::stable_graph::{NodeIndex, StableDiGraph};
use petgraph::visit::EdgeRef;

use super::dim::{Bindings, Bounds};
use super::element::{Arg, EpilogueStep};
use super::op::{Constant, Facts, Input, Op, State};
use super::tensor::{DType, Layout, TensorDesc};
use crate::error::{Error, OpError, Result};

/// Identifier of a node, and of the value that the node computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(NodeIndex);

/// A node of the graph.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Operator.
    pub op: Op,
    /// Number of operands of `op`. The operands after them belong to the epilogue.
    pub arity: usize,
    /// Fused element functions, applied to the result of `op`.
    pub epilogue: Vec<EpilogueStep>,
    /// Type of the result, after the epilogue.
    pub tensor: TensorDesc,
    /// Name from the model, for diagnostics.
    pub name: String,
    serial: u64,
}

/// A named output of the graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Name of the output in the model.
    pub name: String,
    /// Value.
    pub node: NodeId,
    /// Element type in which callers see the output. The value may be stored in another float type.
    pub dtype: DType,
}

/// A value that is stored in a state at the end of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Store {
    /// Name of the state.
    pub name: String,
    /// Value.
    pub node: NodeId,
}

/// New contents of a node, for [`Graph::set_op`].
#[derive(Debug, Clone)]
pub struct Replacement {
    /// Operator.
    pub op: Op,
    /// Operands of the operator, then operands of the epilogue.
    pub operands: Vec<NodeId>,
    /// Number of operands of the operator.
    pub arity: usize,
    /// Fused epilogue.
    pub epilogue: Vec<EpilogueStep>,
}

/// A dataflow graph with named inputs and outputs.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    graph: StableDiGraph<Node, u16>,
    inputs: Vec<NodeId>,
    outputs: Vec<Output>,
    stores: Vec<Store>,
    /// Bounds of the symbols.
    pub bounds: Bounds,
    next_serial: u64,
}

impl Graph {
    /// Adds a node to the graph and infers the type of its result.
    ///
    /// # Errors
    /// If the operator does not accept the operands.
    pub fn add(&mut self, op: impl Into<Op>, operands: &[NodeId], name: &str) -> Result<NodeId> {
        let arity = operands.len();
        self.add_fused(
            Replacement { op: op.into(), operands: operands.to_vec(), arity, epilogue: Vec::new() },
            name,
        )
    }

    /// Adds a node with an epilogue to the graph and infers the type of its result.
    ///
    /// # Errors
    /// If the operator or the epilogue does not accept the operands.
    pub fn add_fused(&mut self, replacement: Replacement, name: &str) -> Result<NodeId> {
        let tensor = self.infer(&replacement).map_err(|e| Error::Node {
            node: name.to_string(),
            operator: replacement.op.name().to_string(),
            reason: e.0,
        })?;
        let is_input = matches!(replacement.op, Op::Input(_));
        let serial = self.next_serial;
        self.next_serial += 1;
        let node = Node {
            op: replacement.op,
            arity: replacement.arity,
            epilogue: replacement.epilogue,
            tensor,
            name: name.to_string(),
            serial,
        };
        let id = NodeId(self.graph.add_node(node));
        self.connect(id, &replacement.operands);
        if is_input {
            self.inputs.push(id);
        }
        Ok(id)
    }

    /// Adds a constant.
    pub fn add_constant(&mut self, constant: Constant, name: &str) -> Result<NodeId> {
        self.add(constant, &[], name)
    }

    /// Adds an output. Callers see it in the element type in which the value is stored now.
    pub fn add_output(&mut self, name: &str, node: NodeId) {
        self.add_output_as(name, node, self.tensor(node).dtype);
    }

    /// Adds an output. Callers see it in the given element type.
    pub fn add_output_as(&mut self, name: &str, node: NodeId, dtype: DType) {
        self.outputs.push(Output { name: name.to_string(), node, dtype });
    }

    /// Adds a store: the state `name` gets a value at the end of each run.
    pub fn add_store(&mut self, name: &str, node: NodeId) {
        self.stores.push(Store { name: name.to_string(), node });
    }

    /// Removes the output with this name. The value remains until the graph is swept.
    pub fn remove_output(&mut self, name: &str) {
        self.outputs.retain(|output| output.name != name);
    }

    /// Removes all outputs and stores.
    pub fn clear_outputs(&mut self) {
        self.outputs.clear();
        self.stores.clear();
    }

    /// True if the graph contains the node.
    pub fn contains(&self, id: NodeId) -> bool {
        self.graph.contains_node(id.0)
    }

    /// Returns a node.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.graph[id.0]
    }

    /// Returns the operator of a node.
    pub fn op(&self, id: NodeId) -> &Op {
        &self.node(id).op
    }

    /// Returns the facts about a node's operator that passes depend on.
    pub fn facts(&self, id: NodeId) -> Facts {
        let node = self.node(id);
        let operands = self.operands(id);
        let inputs: Vec<&TensorDesc> = operands.iter().take(node.arity).map(|o| self.tensor(*o)).collect();
        node.op.operation().facts(&inputs)
    }

    /// Returns the type of a value.
    pub fn tensor(&self, id: NodeId) -> &TensorDesc {
        &self.node(id).tensor
    }

    /// Returns the constant of a constant node; `None` for other nodes. Constant nodes have no epilogue.
    pub fn constant(&self, id: NodeId) -> Option<&Constant> {
        match self.op(id) {
            Op::Constant(c) => Some(c),
            _ => None,
        }
    }

    /// Returns the operands of a node in order; operands of the epilogue come last.
    pub fn operands(&self, id: NodeId) -> Vec<NodeId> {
        let mut edges: Vec<(u16, NodeId)> = self
            .graph
            .edges_directed(id.0, Direction::Incoming)
            .map(|e| (*e.weight(), NodeId(e.source())))
            .collect();
        edges.sort_unstable();
        edges.into_iter().map(|(_, n)| n).collect()
    }

    /// Returns the distinct nodes that use a value, oldest first.
    pub fn users(&self, id: NodeId) -> Vec<NodeId> {
        let set: BTreeSet<(u64, NodeId)> = self
            .graph
            .neighbors_directed(id.0, Direction::Outgoing)
            .map(|n| (self.graph[n].serial, NodeId(n)))
            .collect();
        set.into_iter().map(|(_, n)| n).collect()
    }

    /// Returns the number of uses of a value: as an operand, as an output, and by a store.
    pub fn use_count(&self, id: NodeId) -> usize {
        self.graph.edges_directed(id.0, Direction::Outgoing).count()
            + self.result_values().filter(|value| *value == id).count()
    }

    /// True if the value is an output of the graph or stored in a state.
    pub fn is_output(&self, id: NodeId) -> bool {
        self.result_values().any(|value| value == id)
    }

    /// Returns the values that outlive a run: outputs of the graph, and values that are stored in states.
    fn result_values(&self) -> impl Iterator<Item = NodeId> {
        self.outputs.iter().map(|o| o.node).chain(self.stores.iter().map(|s| s.node))
    }

    /// Input nodes in the order of the model.
    pub fn inputs(&self) -> &[NodeId] {
        &self.inputs
    }

    /// Returns the description of a graph input; `None` if the node is no input.
    pub fn input(&self, id: NodeId) -> Option<&Input> {
        match self.op(id) {
            Op::Input(input) => Some(input),
            _ => None,
        }
    }

    /// Named outputs.
    pub fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    /// Values stored in states at the end of a run.
    pub fn stores(&self) -> &[Store] {
        &self.stores
    }

    /// Returns the description of a state; `None` if the node is no state.
    pub fn state(&self, id: NodeId) -> Option<&State> {
        match self.op(id) {
            Op::State(state) => Some(state),
            _ => None,
        }
    }

    /// Returns all node ids, oldest first.
    pub fn ids(&self) -> Vec<NodeId> {
        let mut ids: Vec<NodeId> = self.graph.node_indices().map(NodeId).collect();
        ids.sort_by_key(|id| self.node(*id).serial);
        ids
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.graph.node_count()
    }

    /// True if the graph has no nodes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the nodes in topological order; of several ready nodes the oldest comes first.
    pub fn topological(&self) -> Vec<NodeId> {
        let mut missing: BTreeMap<NodeId, usize> = BTreeMap::new();
        let mut ready: BTreeSet<(u64, NodeId)> = BTreeSet::new();
        for index in self.graph.node_indices() {
            let count = self.graph.edges_directed(index, Direction::Incoming).count();
            missing.insert(NodeId(index), count);
            if count == 0 {
                ready.insert((self.graph[index].serial, NodeId(index)));
            }
        }
        let mut order = Vec::with_capacity(missing.len());
        while let Some((_, id)) = ready.pop_first() {
            order.push(id);
            for edge in self.graph.edges_directed(id.0, Direction::Outgoing) {
                let user = NodeId(edge.target());
                if let Some(count) = missing.get_mut(&user) {
                    *count -= 1;
                    if *count == 0 {
                        ready.insert((self.node(user).serial, user));
                    }
                }
            }
        }
        order
    }

    /// Replaces all uses of `old` by `new`, in operands, outputs and stores. Uses by `new` itself stay.
    pub fn replace_uses(&mut self, old: NodeId, new: NodeId) {
        for user in self.users(old) {
            if user == new {
                continue;
            }
            self.replace_operand(user, old, new);
        }
        self.replace_output(old, new);
    }

    /// Replaces `old` by `new` in the operands of one node. `old` and `new` must have the same type, because no type is
    /// inferred again.
    pub fn replace_operand(&mut self, user: NodeId, old: NodeId, new: NodeId) {
        let operands: Vec<NodeId> =
            self.operands(user).into_iter().map(|o| if o == old { new } else { o }).collect();
        self.disconnect(user);
        self.connect(user, &operands);
    }

    /// Replaces `old` by `new` in the graph's outputs and stores. `old` and `new` must have the same type.
    pub fn replace_output(&mut self, old: NodeId, new: NodeId) {
        for output in self.outputs.iter_mut().filter(|o| o.node == old) {
            output.node = new;
        }
        for store in self.stores.iter_mut().filter(|s| s.node == old) {
            store.node = new;
        }
    }

    /// Replaces the operator of a node. The node keeps its name, its users and its layout.
    ///
    /// # Errors
    /// If the operator does not accept the operands.
    pub fn set_op(&mut self, id: NodeId, replacement: Replacement) -> Result<()> {
        let mut tensor = self.infer(&replacement).map_err(|e| self.error(id, e))?;
        let operands = replacement.operands;
        self.disconnect(id);
        self.connect(id, &operands);
        let node = &mut self.graph[id.0];
        if tensor.layout == Layout::RowMajor && tensor.shape.len() == node.tensor.shape.len() {
            tensor.layout = node.tensor.layout;
        }
        node.op = replacement.op;
        node.arity = replacement.arity;
        node.epilogue = replacement.epilogue;
        node.tensor = tensor;
        Ok(())
    }

    /// Turns an input of the graph into a constant.
    ///
    /// # Errors
    /// If the constant is malformed.
    pub fn make_constant(&mut self, id: NodeId, constant: Constant) -> Result<()> {
        let op = Op::Constant(constant);
        self.set_op(id, Replacement { op, operands: Vec::new(), arity: 0, epilogue: Vec::new() })?;
        self.inputs.retain(|input| *input != id);
        Ok(())
    }

    /// Removes a node from the list of inputs. The next [`Self::sweep`] removes the node itself if it has no users.
    pub fn remove_input(&mut self, id: NodeId) {
        self.inputs.retain(|input| *input != id);
    }

    /// Sets the layout of a value.
    pub fn set_layout(&mut self, id: NodeId, layout: Layout) {
        self.graph[id.0].tensor.layout = layout;
    }

    /// Sets the element type that a float value is stored in.
    pub fn set_storage_type(&mut self, id: NodeId, dtype: DType) {
        self.graph[id.0].tensor.dtype = dtype;
    }

    /// Renames a node.
    pub fn set_name(&mut self, id: NodeId, name: &str) {
        self.graph[id.0].name = name.to_string();
    }

    /// Replaces symbols by values, in the shapes of all tensors and in the attributes of operators. A replaced symbol
    /// stays declared; its value becomes its lower and upper bound.
    pub fn substitute(&mut self, values: &Bindings) {
        for node in self.graph.node_weights_mut() {
            let sizes = node.op.operation_mut().sizes_mut();
            for size in sizes.into_iter().chain(&mut node.tensor.shape) {
                *size = size.substitute(values);
            }
        }
        for (name, value) in values {
            if let Some(bounds) = self.bounds.get_mut(name) {
                *bounds = (*value, *value);
            }
        }
    }

    /// Removes nodes that no output or store depends on; inputs stay. Returns the number of removed nodes.
    pub fn sweep(&mut self) -> usize {
        let mut live: BTreeSet<NodeId> = self.inputs.iter().copied().collect();
        let mut stack: Vec<NodeId> = self.result_values().collect();
        while let Some(id) = stack.pop() {
            if live.insert(id) {
                stack.extend(self.operands(id));
            }
        }
        let before = self.graph.node_count();
        self.graph.retain_nodes(|_, n| live.contains(&NodeId(n)));
        before - self.graph.node_count()
    }

    /// Infers the type that a node's result would have with the operator, operands and epilogue of `replacement`.
    pub fn infer(&self, replacement: &Replacement) -> Result<TensorDesc, OpError> {
        let tensors: Vec<&TensorDesc> = replacement.operands.iter().map(|o| self.tensor(*o)).collect();
        infer(&self.bounds, &replacement.op, replacement.arity, &replacement.epilogue, &tensors)
    }

    /// Creates an error that names a node and its operator.
    pub fn error(&self, id: NodeId, error: OpError) -> Error {
        let node = self.node(id);
        Error::Node { node: node.name.clone(), operator: node.op.name().to_string(), reason: error.0 }
    }

    fn connect(&mut self, id: NodeId, operands: &[NodeId]) {
        for (i, operand) in operands.iter().enumerate() {
            // At most 65535 operands: `infer` of operators with a variable number of operands checks it.
            self.graph.add_edge(operand.0, id.0, u16::try_from(i).unwrap_or(u16::MAX));
        }
    }

    fn disconnect(&mut self, id: NodeId) {
        let edges: Vec<_> = self.graph.edges_directed(id.0, Direction::Incoming).map(|e| e.id()).collect();
        for edge in edges {
            self.graph.remove_edge(edge);
        }
    }
}

/// Infers the type of a node from the types of its operands and the bounds of the symbols.
pub fn infer(
    bounds: &Bounds,
    op: &Op,
    arity: usize,
    epilogue: &[EpilogueStep],
    tensors: &[&TensorDesc],
) -> Result<TensorDesc, OpError> {
    let Some(operands) = tensors.get(..arity) else {
        return Err(OpError::new(format!(
            "the operator has {arity} operands, but {} are given",
            tensors.len()
        )));
    };
    let mut tensor = op.operation().infer(operands)?;
    tensor.check(bounds)?;
    tensor.dtype = epilogue_type(tensor.dtype, epilogue, tensors)?;
    Ok(tensor)
}

/// Infers the element type of an epilogue's result. `first` is the type of the operator's result, `tensors` the types
/// of the node's operands.
///
/// # Errors
/// If a step does not accept its operands.
pub fn epilogue_type(
    first: DType,
    epilogue: &[EpilogueStep],
    tensors: &[&TensorDesc],
) -> Result<DType, OpError> {
    let mut types = vec![first];
    let mut last = first;
    for (i, step) in epilogue.iter().enumerate() {
        let mut operand_types = Vec::with_capacity(step.args.len());
        for arg in &step.args {
            let dtype = match *arg {
                Arg::Step(s) => types.get(s as usize).copied(),
                Arg::Input(k) => tensors.get(k as usize).map(|t| t.dtype),
            };
            operand_types
                .push(dtype.ok_or_else(|| OpError::new("an epilogue step names a missing operand"))?);
        }
        let checked = step.element.check(&operand_types);
        last = checked.map_err(|e| OpError::new(format!("epilogue step {}: {e}", i + 1)))?;
        types.push(last);
    }
    Ok(last)
}
