//! The graph: nodes with one result each, on petgraph's `StableDiGraph`.
//!
//! An edge runs from operand to user and carries the operand's index, because petgraph lists edges in reverse
//! order of insertion. A node's id is its value. petgraph reuses freed indices, so every node carries a serial
//! number that only grows; it breaks ties wherever an order is needed, which keeps compiling deterministic.

use std::collections::{BTreeMap, BTreeSet};

use petgraph::Direction;
use petgraph::stable_graph::{NodeIndex, StableDiGraph};
use petgraph::visit::EdgeRef;

use super::dim::{Bindings, Bounds};
use super::element::{Arg, EpilogueStep};
use super::op::{Constant, Input, Op, State};
use super::tensor::{DType, Layout, TensorDesc};
use crate::error::{Error, OpError, Result};

/// A node, which is also the value it computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(NodeIndex);

/// A node of the graph.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// What it computes.
    pub op: Op,
    /// How many of its operands belong to `op`; the others feed the epilogue.
    pub arity: usize,
    /// Element functions applied to the result of `op`, fused behind it.
    pub epilogue: Vec<EpilogueStep>,
    /// The one result, after the epilogue.
    pub tensor: TensorDesc,
    /// Name from the model, for diagnostics.
    pub name: String,
    serial: u64,
}

/// A named result of the graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Name in the model.
    pub name: String,
    /// The value.
    pub node: NodeId,
    /// Element type that callers see, in whatever type the value is stored.
    pub dtype: DType,
}

/// What a state holds after a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Store {
    /// Name of the state.
    pub name: String,
    /// The value.
    pub node: NodeId,
}

/// What a node becomes in [`Graph::set_op`].
#[derive(Debug, Clone)]
pub struct Replacement {
    /// The operator.
    pub op: Op,
    /// Its operands, then those of the epilogue.
    pub operands: Vec<NodeId>,
    /// How many of the operands belong to the operator.
    pub arity: usize,
    /// The fused epilogue.
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
    /// Adds a node; its result's type and shape follow from its operands.
    ///
    /// # Errors
    /// When the operator does not fit its operands.
    pub fn add(&mut self, op: impl Into<Op>, operands: &[NodeId], name: &str) -> Result<NodeId> {
        let arity = operands.len();
        self.add_fused(
            Replacement { op: op.into(), operands: operands.to_vec(), arity, epilogue: Vec::new() },
            name,
        )
    }

    /// Adds a node with an epilogue behind it.
    ///
    /// # Errors
    /// When the operator or the epilogue does not fit its operands.
    pub fn add_fused(&mut self, what: Replacement, name: &str) -> Result<NodeId> {
        let tensor = self.infer(&what).map_err(|e| Error::Node {
            node: name.to_string(),
            operator: what.op.name().to_string(),
            reason: e.0,
        })?;
        let is_input = matches!(what.op, Op::Input(_));
        let serial = self.next_serial;
        self.next_serial += 1;
        let node = Node {
            op: what.op,
            arity: what.arity,
            epilogue: what.epilogue,
            tensor,
            name: name.to_string(),
            serial,
        };
        let id = NodeId(self.graph.add_node(node));
        self.connect(id, &what.operands);
        if is_input {
            self.inputs.push(id);
        }
        Ok(id)
    }

    /// Adds a constant.
    pub fn add_constant(&mut self, constant: Constant, name: &str) -> Result<NodeId> {
        self.add(constant, &[], name)
    }

    /// Names a value as a result of the graph, of the type in which it is stored now.
    pub fn add_output(&mut self, name: &str, node: NodeId) {
        self.add_output_as(name, node, self.tensor(node).dtype);
    }

    /// Names a value as a result of the graph that callers see in a type.
    pub fn add_output_as(&mut self, name: &str, node: NodeId, dtype: DType) {
        self.outputs.push(Output { name: name.to_string(), node, dtype });
    }

    /// Makes a value what a state holds after a run.
    pub fn add_store(&mut self, name: &str, node: NodeId) {
        self.stores.push(Store { name: name.to_string(), node });
    }

    /// Forgets all results, so that others can be named.
    pub fn clear_outputs(&mut self) {
        self.outputs.clear();
        self.stores.clear();
    }

    /// Whether there is such a node.
    pub fn contains(&self, id: NodeId) -> bool {
        self.graph.contains_node(id.0)
    }

    /// The node.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.graph[id.0]
    }

    /// The operator.
    pub fn op(&self, id: NodeId) -> &Op {
        &self.node(id).op
    }

    /// Type, shape and layout of the value.
    pub fn tensor(&self, id: NodeId) -> &TensorDesc {
        &self.node(id).tensor
    }

    /// The constant, when the node is one (a constant never has an epilogue).
    pub fn constant(&self, id: NodeId) -> Option<&Constant> {
        match self.op(id) {
            Op::Constant(c) => Some(c),
            _ => None,
        }
    }

    /// The operands in order, those of the epilogue last.
    pub fn operands(&self, id: NodeId) -> Vec<NodeId> {
        let mut edges: Vec<(u16, NodeId)> = self
            .graph
            .edges_directed(id.0, Direction::Incoming)
            .map(|e| (*e.weight(), NodeId(e.source())))
            .collect();
        edges.sort_unstable();
        edges.into_iter().map(|(_, n)| n).collect()
    }

    /// The distinct nodes that use the value, oldest first.
    pub fn users(&self, id: NodeId) -> Vec<NodeId> {
        let set: BTreeSet<(u64, NodeId)> = self
            .graph
            .neighbors_directed(id.0, Direction::Outgoing)
            .map(|n| (self.graph[n].serial, NodeId(n)))
            .collect();
        set.into_iter().map(|(_, n)| n).collect()
    }

    /// How often the value is used, as an operand, as a result of the graph or as what a state holds afterwards.
    pub fn use_count(&self, id: NodeId) -> usize {
        self.graph.edges_directed(id.0, Direction::Outgoing).count()
            + self.ends().filter(|end| *end == id).count()
    }

    /// Whether the value is a result of the graph, or what a state holds afterwards.
    pub fn is_output(&self, id: NodeId) -> bool {
        self.ends().any(|end| end == id)
    }

    /// The values that outlive a run.
    fn ends(&self) -> impl Iterator<Item = NodeId> {
        self.outputs.iter().map(|o| o.node).chain(self.stores.iter().map(|s| s.node))
    }

    /// The input nodes in the model's order.
    pub fn inputs(&self) -> &[NodeId] {
        &self.inputs
    }

    /// The payload of an input node.
    pub fn input(&self, id: NodeId) -> Option<&Input> {
        match self.op(id) {
            Op::Input(input) => Some(input),
            _ => None,
        }
    }

    /// The named results.
    pub fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    /// What states hold after a run.
    pub fn stores(&self) -> &[Store] {
        &self.stores
    }

    /// The payload of a node that is a state.
    pub fn state(&self, id: NodeId) -> Option<&State> {
        match self.op(id) {
            Op::State(state) => Some(state),
            _ => None,
        }
    }

    /// Every node id, oldest first.
    pub fn ids(&self) -> Vec<NodeId> {
        let mut ids: Vec<NodeId> = self.graph.node_indices().map(NodeId).collect();
        ids.sort_by_key(|id| self.node(*id).serial);
        ids
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.graph.node_count()
    }

    /// Whether there is no node.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every node after its operands; among ready nodes the oldest first.
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

    /// Makes every use of `old`, as an operand or a result, a use of `new`; uses by `new` itself stay.
    pub fn replace_uses(&mut self, old: NodeId, new: NodeId) {
        for user in self.users(old) {
            if user == new {
                continue;
            }
            self.replace_operand(user, old, new);
        }
        self.replace_output(old, new);
    }

    /// Makes one node use `new` wherever it used `old`, which has the same type and shape; nothing is inferred anew.
    pub fn replace_operand(&mut self, user: NodeId, old: NodeId, new: NodeId) {
        let operands: Vec<NodeId> =
            self.operands(user).into_iter().map(|o| if o == old { new } else { o }).collect();
        self.disconnect(user);
        self.connect(user, &operands);
    }

    /// Makes every result that is `old` the value `new`, which has the same type and shape.
    pub fn replace_output(&mut self, old: NodeId, new: NodeId) {
        for output in self.outputs.iter_mut().filter(|o| o.node == old) {
            output.node = new;
        }
        for store in self.stores.iter_mut().filter(|s| s.node == old) {
            store.node = new;
        }
    }

    /// Makes a node compute something else, keeping its name, users and layout.
    ///
    /// # Errors
    /// When the operator does not fit the operands.
    pub fn set_op(&mut self, id: NodeId, what: Replacement) -> Result<()> {
        let mut tensor = self.infer(&what).map_err(|e| self.error(id, e))?;
        let operands = what.operands;
        self.disconnect(id);
        self.connect(id, &operands);
        let node = &mut self.graph[id.0];
        if tensor.layout == Layout::RowMajor && tensor.shape.len() == node.tensor.shape.len() {
            tensor.layout = node.tensor.layout;
        }
        node.op = what.op;
        node.arity = what.arity;
        node.epilogue = what.epilogue;
        node.tensor = tensor;
        Ok(())
    }

    /// Makes an input a constant; it is no input any more.
    ///
    /// # Errors
    /// When the constant is malformed.
    pub fn make_constant(&mut self, id: NodeId, constant: Constant) -> Result<()> {
        let op = Op::Constant(constant);
        self.set_op(id, Replacement { op, operands: Vec::new(), arity: 0, epilogue: Vec::new() })?;
        self.inputs.retain(|input| *input != id);
        Ok(())
    }

    /// Makes an input one no more; the sweep takes the node away where nothing uses it.
    pub fn remove_input(&mut self, id: NodeId) {
        self.inputs.retain(|input| *input != id);
    }

    /// Sets the layout of a value.
    pub fn set_layout(&mut self, id: NodeId, layout: Layout) {
        self.graph[id.0].tensor.layout = layout;
    }

    /// Sets the element type in which a float value is stored.
    pub fn set_storage_type(&mut self, id: NodeId, dtype: DType) {
        self.graph[id.0].tensor.dtype = dtype;
    }

    /// Renames a node.
    pub fn set_name(&mut self, id: NodeId, name: &str) {
        self.graph[id.0].name = name.to_string();
    }

    /// Gives symbols known values: in the shapes of all values and in the attributes of operators. The symbols stay
    /// declared, with that one value as both bounds.
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

    /// Removes nodes that no result depends on; inputs stay. Returns how many went.
    pub fn sweep(&mut self) -> usize {
        let mut live: BTreeSet<NodeId> = self.inputs.iter().copied().collect();
        let mut stack: Vec<NodeId> = self.ends().collect();
        while let Some(id) = stack.pop() {
            if live.insert(id) {
                stack.extend(self.operands(id));
            }
        }
        let before = self.graph.node_count();
        self.graph.retain_nodes(|_, n| live.contains(&NodeId(n)));
        before - self.graph.node_count()
    }

    /// Computes the shape and type of a replacement from its operands.
    pub fn infer(&self, what: &Replacement) -> Result<TensorDesc, OpError> {
        let tensors: Vec<&TensorDesc> = what.operands.iter().map(|o| self.tensor(*o)).collect();
        infer(&self.bounds, &what.op, what.arity, &what.epilogue, &tensors)
    }

    /// An error at a node.
    pub fn error(&self, id: NodeId, error: OpError) -> Error {
        let node = self.node(id);
        Error::Node { node: node.name.clone(), operator: node.op.name().to_string(), reason: error.0 }
    }

    fn connect(&mut self, id: NodeId, operands: &[NodeId]) {
        for (i, operand) in operands.iter().enumerate() {
            // At most 65535 operands: `infer` of every operator with a variable number of them checks it.
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

/// Computes the shape and type of a node from its operands' and the symbols' bounds.
pub fn infer(
    bounds: &Bounds,
    op: &Op,
    arity: usize,
    epilogue: &[EpilogueStep],
    tensors: &[&TensorDesc],
) -> Result<TensorDesc, OpError> {
    let Some(operands) = tensors.get(..arity) else {
        return Err(OpError::new("the operator claims more operands than there are"));
    };
    let mut tensor = op.operation().infer(operands)?;
    tensor.check(bounds)?;
    tensor.dtype = epilogue_type(tensor.dtype, epilogue, tensors)?;
    Ok(tensor)
}

/// The element type that an epilogue makes of `first`, with operands of the given types.
///
/// # Errors
/// When a step does not fit its operands.
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
            operand_types.push(dtype.ok_or_else(|| OpError::new("a epilogue step names a missing operand"))?);
        }
        let checked = step.element.check(&operand_types);
        last = checked.map_err(|e| OpError::new(format!("chain step {}: {e}", i + 1)))?;
        types.push(last);
    }
    Ok(last)
}
