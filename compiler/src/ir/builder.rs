//! Shorthand for building graphs: what importers, architectures and tests write instead of payload structs.
//!
//! Every method infers the result at once, so a mistake is reported at the node that made it.

use super::array::Array;
use super::dim::Dim;
use super::element::{BinaryFn, Element, UnaryFn};
use super::graph::{Graph, NodeId};
use super::op::{
    Constant, Elementwise, Expand, Input, MatMul, Op, Reduce, Reshape, Slice, Softmax, Transpose,
};
use super::ops::reduce::ReduceKind;
use super::tensor::{DType, TensorDesc};
use crate::error::Result;

/// Adds nodes to a graph under the name of the model node being lowered.
#[derive(Debug)]
pub struct Builder<'g> {
    /// The graph that grows.
    pub graph: &'g mut Graph,
    /// Name given to every node added.
    pub name: String,
}

impl<'g> Builder<'g> {
    /// A builder for nodes of the given name.
    pub fn new(graph: &'g mut Graph, name: &str) -> Self {
        Self { graph, name: name.to_string() }
    }

    /// Adds any operator.
    pub fn add(&mut self, op: impl Into<Op>, operands: &[NodeId]) -> Result<NodeId> {
        self.graph.add(op, operands, &self.name)
    }

    /// The value's type and shape.
    pub fn tensor(&self, x: NodeId) -> &TensorDesc {
        self.graph.tensor(x)
    }

    /// A graph input; its node carries the input's own name.
    pub fn input(&mut self, name: &str, dtype: DType, shape: Vec<Dim>) -> Result<NodeId> {
        self.graph.add(Input { name: name.to_string(), dtype, shape }, &[], name)
    }

    /// A constant with an array's elements.
    pub fn constant(&mut self, array: &Array) -> Result<NodeId> {
        self.add(Constant::from_array(array), &[])
    }

    /// A constant scalar of a float type.
    pub fn scalar(&mut self, dtype: DType, value: f32) -> Result<NodeId> {
        let array = if dtype.is_float() {
            Array::float(dtype, &[], vec![value])
        } else {
            Array::int(dtype, &[], vec![value as i64])
        };
        self.constant(&array)
    }

    /// An element function of one operand.
    pub fn unary(&mut self, f: UnaryFn, x: NodeId) -> Result<NodeId> {
        self.add(Elementwise { element: Element::Unary(f) }, &[x])
    }

    /// An element function of two operands, broadcast.
    pub fn binary(&mut self, f: BinaryFn, a: NodeId, b: NodeId) -> Result<NodeId> {
        self.add(Elementwise { element: Element::Binary(f) }, &[a, b])
    }

    /// `condition ? a : b`, broadcast.
    pub fn select(&mut self, condition: NodeId, a: NodeId, b: NodeId) -> Result<NodeId> {
        self.add(Elementwise { element: Element::Select }, &[condition, a, b])
    }

    /// Conversion to a type; nothing is added when the value has it.
    pub fn cast(&mut self, x: NodeId, to: DType) -> Result<NodeId> {
        if self.tensor(x).dtype == to {
            return Ok(x);
        }
        self.add(Elementwise { element: Element::Cast(to) }, &[x])
    }

    /// The same elements under another shape; nothing is added when the value has it.
    pub fn reshape(&mut self, x: NodeId, shape: Vec<Dim>) -> Result<NodeId> {
        if self.tensor(x).shape == shape {
            return Ok(x);
        }
        self.add(Reshape { shape }, &[x])
    }

    /// Axes permuted; nothing is added for the identity.
    pub fn transpose(&mut self, x: NodeId, perm: Vec<usize>) -> Result<NodeId> {
        if perm.iter().enumerate().all(|(i, p)| i == *p) && perm.len() == self.tensor(x).rank() {
            return Ok(x);
        }
        self.add(Transpose { perm }, &[x])
    }

    /// Broadcast to a shape; nothing is added when the value has it.
    pub fn expand(&mut self, x: NodeId, shape: Vec<Dim>) -> Result<NodeId> {
        if self.tensor(x).shape == shape {
            return Ok(x);
        }
        self.add(Expand { shape }, &[x])
    }

    /// `x[.., start .. start + size, ..]` along one axis.
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

    /// Matrix product over the last two axes.
    pub fn matmul(&mut self, a: NodeId, b: NodeId) -> Result<NodeId> {
        self.add(MatMul { trans_a: false, trans_b: false }, &[a, b])
    }

    /// Softmax along an axis.
    pub fn softmax(&mut self, x: NodeId, axis: usize) -> Result<NodeId> {
        self.add(Softmax { axis, log: false }, &[x])
    }

    /// A reduction along sorted, distinct axes.
    pub fn reduce(
        &mut self,
        kind: ReduceKind,
        x: NodeId,
        axes: Vec<usize>,
        keepdims: bool,
    ) -> Result<NodeId> {
        self.add(Reduce { kind, axes, keepdims }, &[x])
    }
}
