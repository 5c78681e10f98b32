//! Writes the quantized graph: QuantizeLinear and DequantizeLinear around quantized tensors, and quantized weights.

use std::collections::{BTreeMap, BTreeSet};

use super::affine::remove_unused;
use super::emitter::Emitter;
use super::layer::{Bias, LayerContext, quantize_layer};
use super::names::{collect_names, free_name};
use super::operators::{Kind, data_inputs};
use super::placement::{Placement, Unit};
use super::scale::{Scale, activation_scale, quantize_activations};
use super::settings::Activations;
use super::tensors::Constants;
use crate::error::OpError;
use crate::import::onnx::schema::{GraphProto, NodeProto};

/// Form of a rewritten graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// The quantized model.
    Whole,
    /// The float graph with a quantized copy of each operator, which reads the quantized values of the float graph.
    Alone,
}

/// Facts from which a graph is rewritten.
pub(super) struct Plan<'a> {
    pub(super) graph: &'a GraphProto,
    pub(super) constants: &'a Constants,
    pub(super) placement: &'a Placement,
    /// Scales of the tensors that have their own scale.
    pub(super) scales: &'a BTreeMap<String, Scale>,
    pub(super) activations: Activations,
    pub(super) per_channel: bool,
}

/// A rewritten graph.
#[derive(Debug)]
pub(super) struct Rewritten {
    pub(super) graph: GraphProto,
    /// Names of the dequantized values of each unit's output. In the form [`Form::Alone`], the value is computed by the
    /// copy of the unit.
    pub(super) results: BTreeMap<String, String>,
}

/// State while a graph is rewritten.
struct Rewriter<'a> {
    plan: &'a Plan<'a>,
    form: Form,
    emitter: Emitter,
    /// Dequantized values of the quantized tensors, by the name of the tensor.
    dequantized: BTreeMap<String, String>,
    /// Values in copies of units, by the name of the value in the float graph.
    copies: BTreeMap<String, String>,
    results: BTreeMap<String, String>,
    /// Dequantized biases that a node adds, by the index of the node and the name of the bias.
    biases: BTreeMap<(usize, String), String>,
}

/// Rewrites a graph.
///
/// # Errors
/// If a constant is malformed.
pub(super) fn rewrite(plan: &Plan<'_>, form: Form) -> Result<Rewritten, OpError> {
    let mut rewriter = Rewriter {
        plan,
        form,
        emitter: Emitter::default(),
        dequantized: BTreeMap::new(),
        copies: BTreeMap::new(),
        results: BTreeMap::new(),
        biases: BTreeMap::new(),
    };
    collect_names(plan.graph, &mut rewriter.emitter.taken);
    rewriter.emitter.node_names = plan.graph.node.iter().map(|node| node.name().to_string()).collect();
    let mut units: BTreeMap<usize, &Unit> = BTreeMap::new();
    for unit in &plan.placement.units {
        units.extend(unit.nodes.iter().map(|i| (*i, unit)));
    }
    for input in &plan.graph.input {
        rewriter.quantize_value(input.name(), input.name());
    }
    let outputs: BTreeSet<&str> = plan.graph.output.iter().map(|o| o.name()).collect();
    for (i, node) in plan.graph.node.iter().enumerate() {
        match units.get(&i) {
            Some(unit) => rewriter.add_unit_node(i, node, unit, &outputs)?,
            None => rewriter.add_float_node(node, &outputs),
        }
    }
    let Rewriter { emitter, results, .. } = rewriter;
    let mut graph = plan.graph.clone();
    graph.node = emitter.nodes;
    graph.initializer.extend(emitter.initializers);
    if form == Form::Whole {
        remove_unused(&mut graph);
    }
    Ok(Rewritten { graph, results })
}

impl Rewriter<'_> {
    /// Scale of a quantized tensor.
    fn scale(&self, name: &str) -> Option<Scale> {
        self.plan.placement.tensors.get(name)?;
        self.plan.scales.get(self.plan.placement.scale_source(name)).copied()
    }

    /// Adds QuantizeLinear and DequantizeLinear for the quantized tensor `name`, whose float value is `value`.
    fn quantize_value(&mut self, name: &str, value: &str) {
        let Some(scale) = self.scale(name) else { return };
        let output = match value == name {
            true => free_name(&mut self.emitter.taken, &format!("{name}_dequantized")),
            false => name.to_string(),
        };
        self.emitter.quantize(value, (name, &output), scale, self.plan.activations);
        self.dequantized.insert(name.to_string(), output);
    }

    /// Adds a node that stays in float.
    fn add_float_node(&mut self, node: &NodeProto, outputs: &BTreeSet<&str>) {
        let mut copy = node.clone();
        if self.form == Form::Whole {
            for input in &mut copy.input {
                if let Some(name) = self.dequantized.get(input) {
                    input.clone_from(name);
                }
            }
        }
        self.push_producer(copy, node, outputs);
    }

    /// Adds a node of the float graph or the quantized graph, and quantizes its outputs. A quantized output of the model
    /// keeps its name after it is dequantized.
    fn push_producer(&mut self, mut copy: NodeProto, node: &NodeProto, outputs: &BTreeSet<&str>) {
        let mut quantized = Vec::new();
        for output in &mut copy.output {
            let name = output.clone();
            if self.scale(&name).is_none() {
                continue;
            }
            if self.form == Form::Whole && outputs.contains(name.as_str()) {
                *output = free_name(&mut self.emitter.taken, &format!("{name}_float"));
            }
            quantized.push((name, output.clone()));
        }
        debug_assert_eq!(copy.output.len(), node.output.len());
        self.emitter.nodes.push(copy);
        for (name, value) in quantized {
            self.quantize_value(&name, &value);
        }
    }

    /// Adds a node of a quantized operator.
    fn add_unit_node(
        &mut self,
        i: usize,
        node: &NodeProto,
        unit: &Unit,
        outputs: &BTreeSet<&str>,
    ) -> Result<(), OpError> {
        let mut copy = node.clone();
        let is_first = unit.nodes.first() == Some(&i);
        if is_first && let Kind::Layer(layer) = unit.kind {
            let later_bias = self.later_bias(unit)?;
            let scales = [self.operand_scale(node, 0)?, self.operand_scale(node, 1)?];
            let context = LayerContext {
                constants: self.plan.constants,
                scales,
                per_channel: self.plan.per_channel,
                later_bias: later_bias.as_ref().map(|(_, bias)| bias.clone()),
            };
            let bias = quantize_layer(&mut self.emitter, &mut copy, layer, &context)?;
            if let (Some((at, (name, _))), Some(dequantized)) = (later_bias, bias) {
                self.biases.insert((at, name), dequantized);
            }
        }
        let data = if is_first { data_inputs(node, unit.kind) } else { 0..0 };
        for (position, input) in copy.input.iter_mut().enumerate() {
            if let Some(bias) = self.biases.get(&(i, input.clone())) {
                input.clone_from(bias);
                continue;
            }
            if let Some(name) = self.dequantized.get(input).or_else(|| self.copies.get(input)) {
                input.clone_from(name);
            } else if data.contains(&position)
                && matches!(unit.kind, Kind::Layer(_) | Kind::Binary | Kind::Concat)
                && let Some(constant) = constant_operand(self.plan, input)?
            {
                let ConstantOperand { scale, shape, bytes } = constant;
                *input =
                    self.emitter.quantized_constant(input, (&shape, bytes), scale, self.plan.activations);
            }
        }
        if self.form == Form::Whole {
            self.push_producer(copy, node, outputs);
            if is_last(unit, i) {
                let result = self.dequantized.get(&unit.output).unwrap_or(&unit.output);
                self.results.insert(unit.output.clone(), result.clone());
            }
            return Ok(());
        }
        self.push_producer(node.clone(), node, outputs);
        self.push_copy(copy, unit, is_last(unit, i));
        Ok(())
    }

    /// Adds a node of a copy of a unit. The last node's output is quantized if the unit's output is.
    fn push_copy(&mut self, mut copy: NodeProto, unit: &Unit, last: bool) {
        copy.name = copy.name.map(|name| format!("{name}_alone"));
        for output in copy.output.iter_mut().filter(|o| !o.is_empty()) {
            let name = free_name(&mut self.emitter.taken, &format!("{output}_alone"));
            self.copies.insert(std::mem::replace(output, name.clone()), name);
        }
        self.emitter.nodes.push(copy);
        let Some(value) = self.copies.get(&unit.output).filter(|_| last).cloned() else { return };
        let result = match self.scale(&unit.output) {
            Some(scale) => {
                let output = free_name(&mut self.emitter.taken, &format!("{value}_dequantized"));
                self.emitter.quantize(&value, (&value, &output), scale, self.plan.activations);
                output
            }
            None => value,
        };
        self.results.insert(unit.output.clone(), result);
    }

    /// Scale of an operand of a layer; 1 for constant weights, which have scales of their own.
    fn operand_scale(&self, node: &NodeProto, position: usize) -> Result<f32, OpError> {
        let Some(name) = node.input.get(position) else { return Ok(1.0) };
        if let Some(scale) = self.scale(name) {
            return Ok(scale.scale);
        }
        Ok(constant_operand(self.plan, name)?.map_or(1.0, |operand| operand.scale.scale))
    }

    /// Returns the bias that the second node of a matmul unit adds, and the index of this node.
    fn later_bias(&self, unit: &Unit) -> Result<Option<(usize, Bias)>, OpError> {
        let Some((at, add)) = unit.nodes.get(1).and_then(|at| Some((*at, self.plan.graph.node.get(*at)?)))
        else {
            return Ok(None);
        };
        if add.op_type() != "Add" {
            return Ok(None);
        }
        for name in &add.input {
            if let Some(bias) = self.plan.constants.floats(name)? {
                return Ok(Some((at, (name.clone(), bias.floats()?.to_vec()))));
            }
        }
        Ok(None)
    }
}

fn is_last(unit: &Unit, i: usize) -> bool {
    unit.nodes.last() == Some(&i)
}

/// Constant operand that is no weight.
struct ConstantOperand {
    scale: Scale,
    shape: Vec<usize>,
    /// Quantized values.
    bytes: Vec<u8>,
}

/// Quantizes a constant operand that is no weight; returns `None` for other values.
fn constant_operand(plan: &Plan<'_>, name: &str) -> Result<Option<ConstantOperand>, OpError> {
    let Some(constant) = plan.constants.floats(name)? else { return Ok(None) };
    let values = constant.floats()?;
    let range = values.iter().fold((0f32, 0f32), |(low, high), v| (low.min(*v), high.max(*v)));
    let scale = activation_scale(range, plan.activations);
    let bytes = quantize_activations(values, scale, plan.activations);
    Ok(Some(ConstantOperand { scale, shape: constant.shape.clone(), bytes }))
}
