//! Shorthand for building graphs, used by importers, architectures and tests.
//!
//! Every method that adds a node infers the type of its result immediately, so errors name the node that caused them.

use std::collections::{BTreeMap, BTreeSet};

use super::array::Array;
use super::dim::Dim;
use super::element::{BinaryFn, Element, UnaryFn};
use super::graph::{Graph, NodeId, Replacement};
use super::op::{
    Constant, Elementwise, Expand, Input, MatMul, Op, Reduce, Reshape, Slice, Softmax, Transpose,
};
use super::ops::reduce::ReduceKind;
use super::tensor::{DType, TensorDesc};
use crate::error::Result;

/// Adds nodes to a graph. All added nodes have one name, which is normally the name of the model's node that is being
/// lowered.
#[derive(Debug)]
pub struct Builder<'g> {
    /// The graph.
    pub graph: &'g mut Graph,
    /// Name of every added node.
    pub name: String,
}

impl<'g> Builder<'g> {
    /// Creates a builder for nodes of the given name.
    pub fn new(graph: &'g mut Graph, name: &str) -> Self {
        Self { graph, name: name.to_string() }
    }

    /// Adds an operator.
    pub fn add(&mut self, op: impl Into<Op>, operands: &[NodeId]) -> Result<NodeId> {
        self.graph.add(op, operands, &self.name)
    }

    /// Returns the type of a value.
    pub fn tensor(&self, x: NodeId) -> &TensorDesc {
        self.graph.tensor(x)
    }

    /// Adds a graph input. Its node has the name of the input.
    pub fn input(&mut self, name: &str, dtype: DType, shape: Vec<Dim>) -> Result<NodeId> {
        self.graph.add(Input { name: name.to_string(), dtype, shape }, &[], name)
    }

    /// Adds a constant node with an array's elements.
    pub fn constant(&mut self, array: &Array) -> Result<NodeId> {
        self.add(Constant::from_array(array), &[])
    }

    /// Adds a node with a scalar constant. Integer types truncate the value.
    pub fn scalar(&mut self, dtype: DType, value: f32) -> Result<NodeId> {
        let array = if dtype.is_float() {
            Array::float(dtype, &[], vec![value])
        } else {
            Array::int(dtype, &[], vec![value as i64])
        };
        self.constant(&array)
    }

    /// Adds a node that applies an element function to one operand.
    pub fn unary(&mut self, f: UnaryFn, x: NodeId) -> Result<NodeId> {
        self.add(Elementwise { element: Element::Unary(f) }, &[x])
    }

    /// Adds a node that applies an element function to two operands, which broadcast.
    pub fn binary(&mut self, f: BinaryFn, a: NodeId, b: NodeId) -> Result<NodeId> {
        self.add(Elementwise { element: Element::Binary(f) }, &[a, b])
    }

    /// Adds a node that computes `condition ? a : b`. The operands broadcast.
    pub fn select(&mut self, condition: NodeId, a: NodeId, b: NodeId) -> Result<NodeId> {
        self.add(Elementwise { element: Element::Select }, &[condition, a, b])
    }

    /// Adds a node that casts a value, unless the value already has the type.
    pub fn cast(&mut self, x: NodeId, to: DType) -> Result<NodeId> {
        if self.tensor(x).dtype == to {
            return Ok(x);
        }
        self.add(Elementwise { element: Element::Cast(to) }, &[x])
    }

    /// Adds a node that reshapes a value, unless the value already has the shape.
    pub fn reshape(&mut self, x: NodeId, shape: Vec<Dim>) -> Result<NodeId> {
        if self.tensor(x).shape == shape {
            return Ok(x);
        }
        self.add(Reshape { shape }, &[x])
    }

    /// Adds a node that transposes a value, unless `perm` is the identity.
    pub fn transpose(&mut self, x: NodeId, perm: Vec<usize>) -> Result<NodeId> {
        if perm.iter().enumerate().all(|(i, p)| i == *p) && perm.len() == self.tensor(x).rank() {
            return Ok(x);
        }
        self.add(Transpose { perm }, &[x])
    }

    /// Adds a node that broadcasts a value to a shape, unless the value already has the shape.
    pub fn expand(&mut self, x: NodeId, shape: Vec<Dim>) -> Result<NodeId> {
        if self.tensor(x).shape == shape {
            return Ok(x);
        }
        self.add(Expand { shape }, &[x])
    }

    /// Adds a node that slices one axis: `x[.., start .. start + size, ..]`.
    pub fn slice(&mut self, x: NodeId, axis: usize, start: Dim, size: Dim) -> Result<NodeId> {
        let shape = self.tensor(x).shape.clone();
        let mut starts = vec![Dim::known(0); shape.len()];
        let steps = vec![1; shape.len()];
        let mut sizes = shape;
        if let (Some(s), Some(n)) = (starts.get_mut(axis), sizes.get_mut(axis)) {
            *s = start;
            *n = size;
        }
        self.add(Slice { starts, steps, sizes }, &[x])
    }

    /// Adds a node that multiplies matrices, which are the last two axes of `a` and `b`.
    pub fn matmul(&mut self, a: NodeId, b: NodeId) -> Result<NodeId> {
        self.add(MatMul { trans_a: false, trans_b: false }, &[a, b])
    }

    /// Adds a node that computes the softmax along an axis.
    pub fn softmax(&mut self, x: NodeId, axis: usize) -> Result<NodeId> {
        self.add(Softmax { axis, log: false }, &[x])
    }

    /// Adds a node that reduces axes, which must be sorted and distinct.
    pub fn reduce(
        &mut self,
        kind: ReduceKind,
        x: NodeId,
        axes: Vec<usize>,
        keepdims: bool,
    ) -> Result<NodeId> {
        self.add(Reduce { kind, axes, keepdims }, &[x])
    }

    /// Adds the nodes of another graph that its values `wanted` depend on. Returns the new values, in the order of `wanted`.
    ///
    /// `known` maps values of the other graph to values of this graph that replace them. The types of all added nodes are
    /// inferred again, so a replacement may have another type. Inputs and states that are not in `known` are added as inputs
    /// and states. The added nodes keep their names.
    ///
    /// # Errors
    /// If an operator does not accept a replacement.
    pub fn inline(
        &mut self,
        other: &Graph,
        known: &BTreeMap<NodeId, NodeId>,
        wanted: &[NodeId],
    ) -> Result<Vec<NodeId>> {
        let mut needed: BTreeSet<NodeId> = BTreeSet::new();
        let mut stack = wanted.to_vec();
        while let Some(id) = stack.pop() {
            if !known.contains_key(&id) && needed.insert(id) {
                stack.extend(other.operands(id));
            }
        }
        let mut values = known.clone();
        for id in other.topological().into_iter().filter(|id| needed.contains(id)) {
            let node = other.node(id);
            // Operands precede their users in a topological order.
            let operands = other.operands(id).iter().filter_map(|o| values.get(o).copied()).collect();
            let (op, epilogue) = (node.op.clone(), node.epilogue.clone());
            let copy = Replacement { op, operands, arity: node.arity, epilogue };
            values.insert(id, self.graph.add_fused(copy, &node.name)?);
        }
        Ok(wanted.iter().filter_map(|id| values.get(id).copied()).collect())
    }
}
