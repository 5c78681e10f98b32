//! What a lowering sees of one node: its operands, attributes and operator-set version, and a builder.
//!
//! Operands are tracked like attributes: one that no lowering looked at is refused afterwards, so that an operand which
//! would change the result is never dropped in silence.

use std::cell::RefCell;
use std::collections::BTreeSet;

use super::attributes::Attributes;
use super::ints::Ints;
use super::tensors::Nibbles;
use crate::error::{Error, OpError, Within};
use crate::ir::array::Array;
use crate::ir::builder::Builder;
use crate::ir::dim::{Bounds, Dim};
use crate::ir::graph::NodeId;
use crate::ir::op::Op;
use crate::ir::tensor::{DType, TensorDesc, normalize_axis};

/// Elements up to which constants are computed while importing.
pub(super) const FOLDED_ELEMENTS: usize = 4096;

/// Why a node is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused(pub(super) String, pub(super) Option<Within>);

impl Refused {
    pub(super) fn new(reason: impl Into<String>) -> Self {
        Self(reason.into(), None)
    }

    /// Why a node is refused, and the bounds of a size with which it would not be.
    pub(super) fn but_for(reason: String, within: Within) -> Self {
        Self(reason, Some(within))
    }
}

impl From<OpError> for Refused {
    fn from(error: OpError) -> Self {
        Self::new(error.0)
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        match error {
            Error::Node { reason, operator, .. } => Self::new(format!("{operator}: {reason}")),
            other => Self::new(other.to_string()),
        }
    }
}

/// The result of a lowering.
pub(super) type Lowered<T = Outputs> = Result<T, Refused>;

/// What a name of the model stands for.
#[derive(Debug, Clone)]
pub(super) enum Value {
    /// An optional operand or result that is left out.
    Absent,
    /// A value of the graph.
    Node(NodeId),
    /// A small integer tensor whose elements are known as functions of the symbols.
    Ints(Ints),
    /// Something the graph cannot hold, with the reason; refused only where it is used.
    Foreign(String),
    /// A constant of numbers of 4 bits, which few operators know.
    Nibbles(Nibbles),
    /// The result of a node that was refused.
    Unknown,
}

/// The results of a node, in order; trailing ones may be missing when nobody uses them.
#[derive(Debug, Clone)]
pub(super) struct Outputs(pub(super) Vec<Value>);

impl From<NodeId> for Outputs {
    fn from(node: NodeId) -> Self {
        Self(vec![Value::Node(node)])
    }
}

impl From<Ints> for Outputs {
    fn from(ints: Ints) -> Self {
        Self(vec![Value::Ints(ints)])
    }
}

impl From<Vec<NodeId>> for Outputs {
    fn from(nodes: Vec<NodeId>) -> Self {
        Self(nodes.into_iter().map(Value::Node).collect())
    }
}

/// One line of a family's table: an ONNX operator and how it is lowered.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpEntry {
    /// Operator name.
    pub(super) name: &'static str,
    /// Domain; empty for ai.onnx.
    pub(super) domain: &'static str,
    /// First version of the operator set from which on the operator means what the lowering does.
    pub(super) since: i64,
    /// Last version in which it means that, where it was removed or changed.
    pub(super) until: Option<i64>,
    /// The lowering.
    pub(super) lower: fn(&mut Call<'_>) -> Lowered,
}

/// An operator of ai.onnx that has one meaning from `since` on, whatever newer versions there are. Where attributes
/// became operands or defaults changed, the lowering asks for the version.
pub(super) const fn op(name: &'static str, since: i64, lower: fn(&mut Call<'_>) -> Lowered) -> OpEntry {
    OpEntry { name, domain: "", since, until: None, lower }
}

/// An operator of ai.onnx that was removed, or got another meaning, after version `until`.
pub(super) const fn old(
    name: &'static str,
    since: i64,
    until: i64,
    lower: fn(&mut Call<'_>) -> Lowered,
) -> OpEntry {
    OpEntry { name, domain: "", since, until: Some(until), lower }
}

/// An operator of com.microsoft.
pub(super) const fn microsoft(name: &'static str, lower: fn(&mut Call<'_>) -> Lowered) -> OpEntry {
    OpEntry { name, domain: "com.microsoft", since: 1, until: None, lower }
}

/// One node of the model while it is lowered.
#[derive(Debug)]
pub(super) struct Call<'a> {
    /// Adds to the graph under the node's name.
    pub(super) b: Builder<'a>,
    /// The node's attributes.
    pub(super) attributes: &'a Attributes<'a>,
    /// Version of the operator set of the node's domain.
    pub(super) opset: i64,
    /// Operands.
    inputs: &'a [Value],
    /// For each result, whether it has a name.
    pub(super) wanted: &'a [bool],
    /// Operands that were looked at.
    seen: RefCell<BTreeSet<usize>>,
}

impl<'a> Call<'a> {
    pub(super) fn new(
        b: Builder<'a>,
        attributes: &'a Attributes<'a>,
        opset: i64,
        inputs: &'a [Value],
        wanted: &'a [bool],
    ) -> Self {
        Self { b, attributes, opset, inputs, wanted, seen: RefCell::default() }
    }
}

impl Call<'_> {
    /// The operand, if there is one at this place.
    pub(super) fn operand(&self, index: usize) -> Option<&Value> {
        self.seen.borrow_mut().insert(index);
        self.inputs.get(index)
    }

    /// How many operands there are, those that are left out included.
    pub(super) fn operands(&self) -> usize {
        self.inputs.len()
    }

    /// Marks operands that do not change the result.
    pub(super) fn ignore(&self, indices: &[usize]) {
        self.seen.borrow_mut().extend(indices);
    }

    /// The first operand that is given and that nobody looked at.
    pub(super) fn unread(&self) -> Option<usize> {
        let seen = self.seen.borrow();
        let given = |i: &usize| !matches!(self.inputs.get(*i), None | Some(Value::Absent));
        (0..self.inputs.len()).filter(given).find(|i| !seen.contains(i))
    }

    /// Whether the operand is given.
    pub(super) fn has(&self, index: usize) -> bool {
        !matches!(self.operand(index), None | Some(Value::Absent))
    }

    /// Whether the model names the result.
    pub(super) fn wants(&self, index: usize) -> bool {
        self.wanted.get(index).copied().unwrap_or(false)
    }

    /// A required operand as a value of the graph.
    pub(super) fn node(&mut self, index: usize) -> Lowered<NodeId> {
        self.optional(index)?.ok_or_else(|| Refused::new(format!("the required operand {index} is missing")))
    }

    /// An optional operand as a value of the graph.
    pub(super) fn optional(&mut self, index: usize) -> Lowered<Option<NodeId>> {
        match self.operand(index) {
            None | Some(Value::Absent) => Ok(None),
            Some(Value::Node(node)) => Ok(Some(*node)),
            Some(Value::Ints(ints)) => {
                let ints = ints.clone();
                Ok(Some(ints.materialize(&mut self.b)?))
            }
            Some(Value::Foreign(reason)) => Err(Refused::new(reason.clone())),
            Some(Value::Nibbles(nibbles)) => Err(Refused::new(nibbles.refusal())),
            Some(Value::Unknown) => Err(Refused::new("an operand could not be lowered")),
        }
    }

    /// Every operand given, as values of the graph.
    pub(super) fn nodes(&mut self) -> Lowered<Vec<NodeId>> {
        (0..self.inputs.len()).map(|i| self.node(i)).collect()
    }

    /// The operand as integers that are known as functions of the symbols.
    pub(super) fn ints(&self, index: usize) -> Option<Ints> {
        match self.operand(index)? {
            Value::Ints(ints) => Some(ints.clone()),
            Value::Node(node) => {
                let constant = self.b.graph.constant(*node)?;
                if constant.dtype.is_float() || constant.elements() > FOLDED_ELEMENTS {
                    return None;
                }
                Ints::from_array(&constant.to_array().ok()?)
            }
            _ => None,
        }
    }

    /// An optional operand whose elements must be known as functions of the symbols.
    pub(super) fn dims(&self, index: usize, what: &str) -> Lowered<Option<Vec<Dim>>> {
        if !self.has(index) {
            return Ok(None);
        }
        match self.ints(index) {
            Some(ints) => Ok(Some(ints.values)),
            None => Err(Refused::new(format!("{what} is computed from data at run time"))),
        }
    }

    /// An optional operand that must be constant integers.
    pub(super) fn known(&self, index: usize, what: &str) -> Lowered<Option<Vec<i64>>> {
        let Some(dims) = self.dims(index, what)? else { return Ok(None) };
        dims.iter()
            .map(|d| d.as_known().ok_or_else(|| Refused::new(format!("{what} depends on the size {d}"))))
            .collect::<Lowered<Vec<i64>>>()
            .map(Some)
    }

    /// An optional operand that must be one constant integer.
    pub(super) fn known_scalar(&self, index: usize, what: &str) -> Lowered<Option<i64>> {
        match self.known(index, what)?.as_deref() {
            None => Ok(None),
            Some([value]) => Ok(Some(*value)),
            Some(values) => {
                Err(Refused::new(format!("{what} has {} elements where one is needed", values.len())))
            }
        }
    }

    /// The operand's elements when it is constant.
    pub(super) fn array(&self, index: usize) -> Option<Array> {
        match self.operand(index)? {
            Value::Node(node) => self.constant(*node),
            Value::Ints(ints) => ints.to_array(),
            _ => None,
        }
    }

    /// An optional operand that must be constant floats.
    pub(super) fn known_floats(&self, index: usize, what: &str) -> Lowered<Option<Vec<f32>>> {
        if !self.has(index) {
            return Ok(None);
        }
        match self.array(index) {
            Some(array) => Ok(Some(array.to_floats())),
            None => Err(Refused::new(format!("{what} is computed from data at run time"))),
        }
    }

    /// The elements of a value of the graph when it is constant.
    pub(super) fn constant(&self, node: NodeId) -> Option<Array> {
        self.b.graph.constant(node)?.to_array().ok()
    }

    /// Type and shape of a value.
    pub(super) fn tensor(&self, x: NodeId) -> &TensorDesc {
        self.b.tensor(x)
    }

    /// Sizes of a value.
    pub(super) fn shape(&self, x: NodeId) -> Vec<Dim> {
        self.tensor(x).shape.clone()
    }

    /// Number of dimensions of a value.
    pub(super) fn rank(&self, x: NodeId) -> usize {
        self.tensor(x).rank()
    }

    /// Element type of a value.
    pub(super) fn dtype(&self, x: NodeId) -> DType {
        self.tensor(x).dtype
    }

    /// Bounds of the symbols.
    pub(super) fn bounds(&self) -> &Bounds {
        &self.b.graph.bounds
    }

    /// A size that must be known.
    pub(super) fn known_dim(&self, dim: &Dim, what: &str) -> Lowered<usize> {
        match dim.as_known() {
            Some(value) => usize::try_from(value)
                .map_err(|_| Refused::new(format!("{what} is {value}, which is negative"))),
            None => Err(Refused::new(format!(
                "{what} is the symbolic size {dim}, which must be fixed with --dim"
            ))),
        }
    }

    /// The attribute `axis` of a tensor of the given rank.
    pub(super) fn axis(&self, default: i64, rank: usize) -> Lowered<usize> {
        Ok(normalize_axis(self.attributes.int("axis", default)?, rank)?)
    }

    /// Adds an operator.
    pub(super) fn add(&mut self, op: impl Into<Op>, operands: &[NodeId]) -> Lowered<NodeId> {
        Ok(self.b.add(op, operands)?)
    }
}

/// Sorted distinct axes for possibly negative ones.
pub(super) fn axes(list: &[i64], rank: usize) -> Lowered<Vec<usize>> {
    let mut axes = Vec::with_capacity(list.len());
    for axis in list {
        axes.push(normalize_axis(*axis, rank)?);
    }
    axes.sort_unstable();
    if axes.windows(2).any(|w| w[0] == w[1]) {
        return Err(Refused::new("an axis is named twice"));
    }
    Ok(axes)
}

/// Fails where a file of opset 1 to 6 asks for training, which is what BatchNormalization and Dropout did there unless
/// told otherwise.
pub(super) fn inference(call: &Call<'_>) -> Lowered<()> {
    if call.opset < 7 && !call.attributes.flag("is_test", false)? {
        return Err(Refused::new(
            "until opset 6 it is in training mode unless the attribute `is_test` is 1, and training is not supported",
        ));
    }
    Ok(())
}
