//! Reshapes with constant target shapes, in models whose declared batch size is replaced.
//!
//! Exporters for fixed sizes write target shapes as constants, such as `[10, 512]` for a batch of 10.

use super::super::lowering::Value;
use super::super::schema::NodeProto;
use super::super::symbolic_ints::SymbolicInts;
use super::Lowerer;
use super::scope::domain;
use crate::ir::dim::{Dim, product};

impl Lowerer<'_> {
    /// Replaces the declared batch size in the constant target shape of a Reshape, if the operand has the new batch size
    /// as its first axis. Returns true if the target shape changes.
    ///
    /// A target shape whose other sizes are known is changed only if the number of elements is right afterwards.
    pub(super) fn replace_batch(&self, node: &NodeProto, operands: &mut [Value]) -> bool {
        let Some((old, new)) = &self.batch else { return false };
        let Some(target) = self.constant_shape(node, operands) else { return false };
        let Some(Value::Node(x)) = operands.first() else { return false };
        let shape = &self.graph.tensor(*x).shape;
        if target.first() != Some(old) || shape.first() != Some(new) {
            return false;
        }
        let mut changed: Vec<Dim> = target.iter().map(|size| Dim::known(*size)).collect();
        if let Some(first) = changed.first_mut() {
            *first = new.clone();
        }
        let known = target.iter().all(|size| *size > 0);
        if known && product(&changed) != product(shape) {
            return false;
        }
        if let Some(operand) = operands.get_mut(1) {
            *operand = Value::Ints(SymbolicInts::vector(changed));
        }
        true
    }

    /// True if a node is a Reshape whose target shape is a constant of the file.
    pub(super) fn has_constant_shape(&self, node: &NodeProto, operands: &[Value]) -> bool {
        self.constant_shape(node, operands).is_some()
    }

    fn constant_shape(&self, node: &NodeProto, operands: &[Value]) -> Option<Vec<i64>> {
        if node.op_type() != "Reshape" || !domain(node).is_empty() {
            return None;
        }
        match operands.get(1)? {
            Value::Node(id) => Some(self.graph.constant(*id)?.to_array().ok()?.ints().ok()?.to_vec()),
            Value::Ints(ints) => ints.known(),
            Value::Absent | Value::Unsupported(_) | Value::Int4(_) | Value::Unknown => None,
        }
    }
}
