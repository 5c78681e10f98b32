//! The interface through which a lowering (the code that translates one ONNX operator) uses its node: operands,
//! attributes, operator set version, and a graph builder.
//!
//! Operands are tracked like attributes. If a lowering leaves an operand unread, the node is refused, so an operand
//! that would change the result is never ignored silently.

use std::cell::RefCell;
use std::collections::BTreeSet;

use super::attributes::Attributes;
use super::quantization::Table;
use super::refused::Refused;
use super::symbolic_ints::SymbolicInts;
use super::tensors::{self, Int4Tensor};
use crate::ir::array::Array;
use crate::ir::builder::Builder;
use crate::ir::dim::{Bounds, Dim};
use crate::ir::graph::NodeId;
use crate::ir::op::Op;
use crate::ir::tensor::{DType, TensorDesc, normalize_axis};

/// Maximum number of elements of a constant that is folded while importing.
pub(super) const FOLDED_ELEMENTS: usize = 4096;

/// Result of a lowering: the node's results, or the reason why the node is refused.
pub(super) type Lowered<T = Outputs> = Result<T, Refused>;

/// Value that a name in the ONNX model stands for during the import.
#[derive(Debug, Clone)]
pub(super) enum Value {
    /// An absent optional operand or result.
    Absent,
    /// A value of the graph.
    Node(NodeId),
    /// A small integer tensor whose elements are known expressions of the symbols.
    Ints(SymbolicInts),
    /// A constant that the graph cannot represent, with the reason. Only nodes that read the constant are refused.
    Unsupported(String),
    /// A 4-bit constant, which few operators support.
    Int4(Int4Tensor),
    /// A result of a refused node.
    Unknown,
}

/// The results of an ONNX node in order. Trailing results may be missing if they are unused.
#[derive(Debug, Clone)]
pub(super) struct Outputs(pub(super) Vec<Value>);

impl From<NodeId> for Outputs {
    fn from(node: NodeId) -> Self {
        Self(vec![Value::Node(node)])
    }
}

impl From<SymbolicInts> for Outputs {
    fn from(ints: SymbolicInts) -> Self {
        Self(vec![Value::Ints(ints)])
    }
}

impl From<Vec<NodeId>> for Outputs {
    fn from(nodes: Vec<NodeId>) -> Self {
        Self(nodes.into_iter().map(Value::Node).collect())
    }
}

/// Table entry of an ONNX operator and its lowering.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpEntry {
    /// Operator name.
    pub(super) name: &'static str,
    /// Domain of the ONNX operator; empty for ai.onnx.
    pub(super) domain: &'static str,
    /// First version of the domain's operator set for which the lowering is valid.
    pub(super) since: i64,
    /// Last version of the domain's operator set for which the lowering is valid; `None` unless a later version removed
    /// the operator or changed its meaning.
    pub(super) until: Option<i64>,
    /// Lowering function.
    pub(super) lower: fn(&mut Call<'_>) -> Lowered,
}

/// Table entry of an ai.onnx operator that keeps its meaning from version `since` on. If later versions turn attributes
/// into operands or change defaults, the lowering checks the version.
pub(super) const fn op(name: &'static str, since: i64, lower: fn(&mut Call<'_>) -> Lowered) -> OpEntry {
    OpEntry { name, domain: "", since, until: None, lower }
}

/// Table entry of an ai.onnx operator that was removed or changed its meaning after version `until`.
pub(super) const fn op_until(
    name: &'static str,
    since: i64,
    until: i64,
    lower: fn(&mut Call<'_>) -> Lowered,
) -> OpEntry {
    OpEntry { name, domain: "", since, until: Some(until), lower }
}

/// Table entry of a com.microsoft operator.
pub(super) const fn microsoft(name: &'static str, lower: fn(&mut Call<'_>) -> Lowered) -> OpEntry {
    OpEntry { name, domain: "com.microsoft", since: 1, until: None, lower }
}

/// A node of the ONNX model that is being lowered.
#[derive(Debug)]
pub(super) struct Call<'a> {
    /// Builder that adds nodes to the graph under the name of the ONNX node.
    pub(super) b: Builder<'a>,
    /// Attributes of the node.
    pub(super) attributes: &'a Attributes<'a>,
    /// Version of the operator set of the node's domain.
    pub(super) opset: i64,
    /// Operands of the node.
    inputs: &'a [Value],
    /// For each result of the node: true if the model uses the result.
    pub(super) wanted: &'a [bool],
    /// The dequantized tensors of the graph.
    pub(super) dequantized: &'a Table,
    /// Indices of the operands that the lowering has read.
    seen: RefCell<BTreeSet<usize>>,
}

/// The dequantized tensors of a call that needs none.
static NO_TABLE: Table = Table::new();

impl<'a> Call<'a> {
    pub(super) fn new(
        b: Builder<'a>,
        attributes: &'a Attributes<'a>,
        opset: i64,
        inputs: &'a [Value],
        wanted: &'a [bool],
    ) -> Self {
        Self { b, attributes, opset, inputs, wanted, dequantized: &NO_TABLE, seen: RefCell::default() }
    }

    /// Returns the call with the dequantized tensors of the graph.
    pub(super) fn with_dequantized(self, dequantized: &'a Table) -> Self {
        Self { dequantized, ..self }
    }
}

impl Call<'_> {
    /// Returns an operand and marks it as read.
    pub(super) fn operand(&self, index: usize) -> Option<&Value> {
        self.seen.borrow_mut().insert(index);
        self.inputs.get(index)
    }

    /// Returns the number of operands, including absent ones.
    pub(super) fn operand_count(&self) -> usize {
        self.inputs.len()
    }

    /// Marks operands as read that do not change the result of the node.
    pub(super) fn ignore(&self, indices: &[usize]) {
        self.seen.borrow_mut().extend(indices);
    }

    /// Returns the first operand that is present but was not read.
    pub(super) fn unread(&self) -> Option<usize> {
        let seen = self.seen.borrow();
        let given = |i: &usize| !matches!(self.inputs.get(*i), None | Some(Value::Absent));
        (0..self.inputs.len()).filter(given).find(|i| !seen.contains(i))
    }

    /// Returns true if operand `index` is present, and marks it as read.
    pub(super) fn has(&self, index: usize) -> bool {
        !matches!(self.operand(index), None | Some(Value::Absent))
    }

    /// Returns true if the model uses result `index` of the node.
    pub(super) fn wants(&self, index: usize) -> bool {
        self.wanted.get(index).copied().unwrap_or(false)
    }

    /// Returns a required operand as a node of the graph.
    pub(super) fn node(&mut self, index: usize) -> Lowered<NodeId> {
        self.optional(index)?.ok_or_else(|| Refused::new(format!("the required operand {index} is missing")))
    }

    /// Returns an optional operand as a node of the graph.
    pub(super) fn optional(&mut self, index: usize) -> Lowered<Option<NodeId>> {
        match self.operand(index) {
            None | Some(Value::Absent) => Ok(None),
            Some(Value::Node(node)) => Ok(Some(*node)),
            Some(Value::Ints(ints)) => {
                let ints = ints.clone();
                Ok(Some(ints.materialize(&mut self.b)?))
            }
            Some(Value::Unsupported(reason)) => Err(Refused::new(reason.clone())),
            Some(Value::Int4(tensor)) => Err(Refused::new(tensor.refusal())),
            Some(Value::Unknown) => Err(Refused::new("an operand could not be lowered")),
        }
    }

    /// Returns all operands as nodes of the graph.
    pub(super) fn nodes(&mut self) -> Lowered<Vec<NodeId>> {
        (0..self.inputs.len()).map(|i| self.node(i)).collect()
    }

    /// Returns operand `index` as integers that are known expressions of the symbols; `None` if they are not known.
    pub(super) fn ints(&self, index: usize) -> Option<SymbolicInts> {
        match self.operand(index)? {
            Value::Ints(ints) => Some(ints.clone()),
            Value::Node(node) => {
                let constant = self.b.graph.constant(*node)?;
                if constant.dtype.is_float() || constant.elements() > FOLDED_ELEMENTS {
                    return None;
                }
                SymbolicInts::from_array(&constant.to_array().ok()?)
            }
            _ => None,
        }
    }

    /// Returns the elements of an optional operand. Fails unless the elements are known expressions of the symbols.
    pub(super) fn dims(&self, index: usize, name: &str) -> Lowered<Option<Vec<Dim>>> {
        if !self.has(index) {
            return Ok(None);
        }
        match self.ints(index) {
            Some(ints) => Ok(Some(ints.values)),
            None => Err(Refused::new(format!(
                "{name} is computed from data at run time; it must be known at compile time"
            ))),
        }
    }

    /// Returns the elements of an optional operand. Fails unless the elements are constant integers.
    pub(super) fn known(&self, index: usize, name: &str) -> Lowered<Option<Vec<i64>>> {
        let Some(dims) = self.dims(index, name)? else { return Ok(None) };
        dims.iter()
            .map(|d| {
                d.as_known().ok_or_else(|| {
                    Refused::new(format!("{name} depends on the symbolic size {d}; fix it with --dim"))
                })
            })
            .collect::<Lowered<Vec<i64>>>()
            .map(Some)
    }

    /// Returns an optional operand that must be one constant integer.
    pub(super) fn known_scalar(&self, index: usize, name: &str) -> Lowered<Option<i64>> {
        match self.known(index, name)?.as_deref() {
            None => Ok(None),
            Some([value]) => Ok(Some(*value)),
            Some(values) => Err(Refused::new(format!("{name} has {} elements; one is needed", values.len()))),
        }
    }

    /// Returns the elements of operand `index`; `None` if the operand is not constant.
    pub(super) fn array(&self, index: usize) -> Option<Array> {
        match self.operand(index)? {
            Value::Node(node) => self.constant(*node),
            Value::Ints(ints) => ints.to_array(),
            _ => None,
        }
    }

    /// Returns the elements of an optional operand as floats. Fails unless the elements are constant.
    pub(super) fn known_floats(&self, index: usize, name: &str) -> Lowered<Option<Vec<f32>>> {
        if !self.has(index) {
            return Ok(None);
        }
        match self.array(index) {
            Some(array) => Ok(Some(array.to_floats())),
            None => Err(Refused::new(format!(
                "{name} is computed from data at run time; it must be known at compile time"
            ))),
        }
    }

    /// Returns the elements of a node; `None` if the node is not constant.
    pub(super) fn constant(&self, node: NodeId) -> Option<Array> {
        self.b.graph.constant(node)?.to_array().ok()
    }

    /// Returns the type and shape of a node's result.
    pub(super) fn tensor(&self, x: NodeId) -> &TensorDesc {
        self.b.tensor(x)
    }

    /// Returns the shape of a node's result.
    pub(super) fn shape(&self, x: NodeId) -> Vec<Dim> {
        self.tensor(x).shape.clone()
    }

    /// Returns the rank of a node's result.
    pub(super) fn rank(&self, x: NodeId) -> usize {
        self.tensor(x).rank()
    }

    /// Returns the element type of a node's result.
    pub(super) fn dtype(&self, x: NodeId) -> DType {
        self.tensor(x).dtype
    }

    /// Returns the bounds of the symbols.
    pub(super) fn bounds(&self) -> &Bounds {
        &self.b.graph.bounds
    }

    /// Returns a size as a number. Fails if the size is symbolic.
    pub(super) fn known_dim(&self, dim: &Dim, name: &str) -> Lowered<usize> {
        match dim.as_known() {
            Some(value) => usize::try_from(value)
                .map_err(|_| Refused::new(format!("{name} is {value}, which is negative"))),
            None => Err(Refused::new(format!("{name} is the symbolic size {dim}; fix it with --dim"))),
        }
    }

    /// Returns the attribute `axis`, or `default` if it is absent, as an axis counted from 0 of a tensor of rank
    /// `rank`.
    pub(super) fn axis(&self, default: i64, rank: usize) -> Lowered<usize> {
        Ok(normalize_axis(self.attributes.int("axis", default)?, rank)?)
    }

    /// Returns the shape of an operand; `None` if it is not known.
    pub(super) fn operand_shape(&self, index: usize) -> Option<Vec<Dim>> {
        match self.operand(index)? {
            Value::Node(node) => Some(self.shape(*node)),
            Value::Ints(ints) => Some(ints.shape.iter().map(|d| Dim::from(*d)).collect()),
            _ => None,
        }
    }

    /// Returns the attribute `output_dtype`, if present.
    pub(super) fn output_dtype(&self) -> Lowered<Option<DType>> {
        match self.attributes.int("output_dtype", 0)? {
            0 => Ok(None),
            number => tensors::dtype(i32::try_from(number).unwrap_or(-1)).map(Some),
        }
    }

    /// Adds an operator.
    pub(super) fn add(&mut self, op: impl Into<Op>, operands: &[NodeId]) -> Lowered<NodeId> {
        Ok(self.b.add(op, operands)?)
    }
}

/// Converts axes that count from the end to axes that count from 0, and sorts them. Fails if an axis occurs twice.
pub(super) fn axes(list: &[i64], rank: usize) -> Lowered<Vec<usize>> {
    let mut axes = Vec::with_capacity(list.len());
    for axis in list {
        axes.push(normalize_axis(*axis, rank)?);
    }
    axes.sort_unstable();
    if axes.windows(2).any(|w| w[0] == w[1]) {
        return Err(Refused::new("the list of axes contains an axis twice"));
    }
    Ok(axes)
}

/// Fails if BatchNormalization or Dropout of opset 1 to 6 is in training mode, which is the default mode in these
/// opsets.
pub(super) fn check_inference(call: &Call<'_>) -> Lowered<()> {
    if call.opset < 7 && !call.attributes.flag("is_test", false)? {
        return Err(Refused::new(
            "training mode is not supported; before opset 7 it is on unless attribute `is_test` is 1",
        ));
    }
    Ok(())
}
