//! Decides which operators are quantized, and which tensors get QuantizeLinear and DequantizeLinear.
//!
//! Inputs and outputs of layers (operators with weights) are quantized. Other operators are quantized if their inputs
//! are. An activation function that clamps, and the bias of a matmul, belong to the layer before them.

use std::collections::{BTreeMap, BTreeSet};

use super::names::Readers;
use super::operators::{Kind, Layer, data_inputs, kind};
use super::tensors::Constants;
use crate::error::OpError;
use crate::import::onnx::schema::{GraphProto, NodeProto};

/// Maximum magnitude of a constant operand that is quantized. Attention masks have larger constants.
const MAX_CONSTANT: f32 = 1e6;

/// Quantized operator with the nodes that are computed before its result is rounded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unit {
    pub(super) kind: Kind,
    /// Indices of the nodes, in order.
    pub(super) nodes: Vec<usize>,
    /// Name of the value that is quantized.
    pub(super) output: String,
}

/// Quantized tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Quantized {
    /// Tensor whose scale it has; `None` for its own scale.
    pub(super) same_as: Option<String>,
    /// True if the operator bounds the values, so that the range always covers all values of the samples.
    pub(super) bounded: bool,
}

/// Quantized operators and tensors of a model.
#[derive(Debug, Default)]
pub(super) struct Placement {
    /// Quantized operators, in the order of their first nodes.
    pub(super) units: Vec<Unit>,
    /// Quantized tensors by name.
    pub(super) tensors: BTreeMap<String, Quantized>,
}

impl Placement {
    /// Returns the tensor whose range determines the scale of a quantized tensor.
    pub(super) fn scale_source<'a>(&'a self, name: &'a str) -> &'a str {
        let mut name = name;
        // Each step leads to another tensor, so the number of tensors bounds the steps.
        for _ in 0..self.tensors.len() {
            match self.tensors.get(name).and_then(|t| t.same_as.as_deref()) {
                Some(other) => name = other,
                None => break,
            }
        }
        name
    }

    fn mark(&mut self, name: &str) -> &mut Quantized {
        let plain = Quantized { same_as: None, bounded: false };
        self.tensors.entry(name.to_string()).or_insert(plain)
    }
}

/// Graph with the facts that decide which operators are quantized.
pub(super) struct Facts<'a> {
    pub(super) graph: &'a GraphProto,
    pub(super) constants: &'a Constants,
    pub(super) readers: &'a Readers,
    /// Names of values of f32 that are no constants.
    pub(super) floats: &'a BTreeSet<String>,
    /// Indices of nodes that stay in float.
    pub(super) left: &'a BTreeSet<usize>,
}

/// Returns the names of the values whose element types decide which operators are quantized.
pub(super) fn candidates(graph: &GraphProto, constants: &Constants) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for node in &graph.node {
        let Some(kind) = kind(node) else { continue };
        let inputs = data_inputs(node, kind).filter_map(|i| node.input.get(i));
        names.extend(inputs.chain(&node.output).filter(|n| !n.is_empty() && !constants.contains(n)).cloned());
    }
    names
}

/// Selects the quantized operators and tensors.
///
/// # Errors
/// If a constant is malformed.
pub(super) fn place(facts: &Facts<'_>) -> Result<Placement, OpError> {
    let mut placement = Placement::default();
    let mut taken = BTreeSet::new();
    for i in 0..facts.graph.node.len() {
        if let Some(unit) = layer_unit(facts, i)? {
            taken.extend(unit.nodes.iter().copied());
            let Some(node) = facts.graph.node.get(i) else { continue };
            for input in data_inputs(node, unit.kind).filter_map(|at| node.input.get(at)) {
                if facts.floats.contains(input) {
                    placement.mark(input);
                }
            }
            placement.mark(&unit.output);
            placement.units.push(unit);
        }
    }
    for (i, node) in facts.graph.node.iter().enumerate() {
        let Some(kind) = kind(node) else { continue };
        if taken.contains(&i)
            || facts.left.contains(&i)
            || !has_quantized_inputs(facts, node, kind, &placement)?
        {
            continue;
        }
        if let Some(unit) = other_unit(facts, i, node, kind, &mut placement) {
            taken.extend(unit.nodes.iter().copied());
            placement.units.push(unit);
        }
    }
    placement.units.sort_by(|a, b| a.nodes.cmp(&b.nodes));
    // Nodes that stay in float read a result before it is rounded, if no other node reads it.
    for unit in placement.units.iter().filter(|u| !matches!(u.kind, Kind::Same | Kind::Concat)) {
        if facts.readers.are_within(&unit.output, facts.left) {
            placement.tensors.remove(&unit.output);
        }
    }
    Ok(placement)
}

/// Returns the layer that starts at a node, with the nodes that belong to it.
fn layer_unit(facts: &Facts<'_>, i: usize) -> Result<Option<Unit>, OpError> {
    let Some(node) = facts.graph.node.get(i) else { return Ok(None) };
    let Some(kind @ Kind::Layer(layer)) = kind(node) else { return Ok(None) };
    let Some(output) = node.output.first().filter(|o| facts.floats.contains(*o)) else { return Ok(None) };
    let is_usable = |name: &String| facts.floats.contains(name) || facts.constants.contains(name);
    let mut operands = data_inputs(node, kind).map(|at| node.input.get(at));
    if facts.left.contains(&i) || !operands.all(|o| o.is_some_and(is_usable)) {
        return Ok(None);
    }
    let mut unit = Unit { kind, nodes: vec![i], output: output.clone() };
    if layer == Layer::MatMul
        && let Some(at) = facts.readers.sole(output).filter(|at| !facts.left.contains(at))
        && let Some(add) = facts.graph.node.get(at)
        && matmul_bias(facts, node, add, output)?.is_some()
    {
        append(&mut unit, at, add);
    }
    append_clamp(facts, &mut unit);
    Ok(Some(unit))
}

/// Returns the position of the bias among the inputs of an `Add` that adds a constant bias to a matmul with constant
/// weights.
fn matmul_bias(
    facts: &Facts<'_>,
    matmul: &NodeProto,
    add: &NodeProto,
    product: &str,
) -> Result<Option<usize>, OpError> {
    let weights = matmul.input.get(1).map(|name| facts.constants.floats(name)).transpose()?.flatten();
    let Some(columns) = weights.filter(|w| w.shape.len() >= 2).and_then(|w| w.shape.last().copied()) else {
        return Ok(None);
    };
    if kind(add) != Some(Kind::Binary) || add.op_type() != "Add" {
        return Ok(None);
    }
    let Some(at) = add.input.iter().position(|input| input != product) else { return Ok(None) };
    let bias = add.input.get(at).map(|name| facts.constants.floats(name)).transpose()?.flatten();
    Ok(bias.is_some_and(|b| b.shape == [columns]).then_some(at))
}

fn append(unit: &mut Unit, at: usize, node: &NodeProto) {
    if let Some(output) = node.output.first() {
        unit.nodes.push(at);
        unit.output.clone_from(output);
    }
}

/// Adds the activation function to a unit that clamps the unit's result, if nothing else reads the result.
fn append_clamp(facts: &Facts<'_>, unit: &mut Unit) {
    let Some(at) = facts.readers.sole(&unit.output).filter(|at| !facts.left.contains(at)) else { return };
    let Some(node) = facts.graph.node.get(at) else { return };
    if kind(node) == Some(Kind::Clamp) && node.input.first() == Some(&unit.output) {
        append(unit, at, node);
    }
}

/// True if all inputs of an operator are quantized or constants that can be quantized, and at least one is no constant.
fn has_quantized_inputs(
    facts: &Facts<'_>,
    node: &NodeProto,
    kind: Kind,
    placement: &Placement,
) -> Result<bool, OpError> {
    let mut quantized = 0;
    for input in data_inputs(node, kind).filter_map(|at| node.input.get(at)) {
        if placement.tensors.contains_key(input) {
            quantized += 1;
            continue;
        }
        let Some(constant) = facts.constants.floats(input)? else { return Ok(false) };
        let small = |v: &f32| v.abs() <= MAX_CONSTANT;
        if !matches!(kind, Kind::Binary | Kind::Concat) || !constant.floats()?.iter().all(small) {
            return Ok(false);
        }
    }
    Ok(quantized > 0 && node.output.first().is_some_and(|o| facts.floats.contains(o)))
}

/// Returns the unit of an operator without weights whose inputs are quantized, and marks its outputs.
fn other_unit(
    facts: &Facts<'_>,
    i: usize,
    node: &NodeProto,
    kind: Kind,
    placement: &mut Placement,
) -> Option<Unit> {
    let mut unit = Unit { kind, nodes: vec![i], output: node.output.first()?.clone() };
    match kind {
        Kind::Binary => append_clamp(facts, &mut unit),
        Kind::Same => {
            let input = node.input.first()?;
            for output in node.output.iter().filter(|o| facts.floats.contains(*o)) {
                placement.mark(output).same_as = Some(input.clone());
            }
        }
        Kind::Concat => {
            for input in &node.input {
                if facts.readers.sole(input).is_some()
                    && let Some(quantized) = placement.tensors.get_mut(input)
                    && quantized.same_as.is_none()
                {
                    quantized.same_as = Some(unit.output.clone());
                }
            }
        }
        Kind::Layer(_) | Kind::Unary | Kind::Bounded | Kind::Clamp => {}
    }
    placement.mark(&unit.output).bounded = kind == Kind::Bounded;
    Some(unit)
}
