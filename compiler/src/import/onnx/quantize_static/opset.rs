//! Operator set of a quantized model. Scales for each channel need operator set 13 of ONNX, scales for each tensor need
//! 10.

use std::collections::{BTreeMap, BTreeSet};

use super::names::{collect_names, free_name};
use super::tensors::{i64_tensor, int_attribute};
use crate::import::onnx::schema::{GraphProto, ModelProto, NodeProto, OperatorSetIdProto};

/// First operator set with scales for each channel.
const PER_CHANNEL: i64 = 13;
/// First operator set with QuantizeLinear and DequantizeLinear.
const PER_TENSOR: i64 = 10;
/// IR version that belongs to [`PER_CHANNEL`].
const IR_VERSION: i64 = 7;

/// Operators with the first operator set from which their meaning does not change up to operator set 13.
const UNCHANGED: &[(&str, i64)] = &[
    ("Abs", 6),
    ("Add", 7),
    ("ArgMax", 11),
    ("AveragePool", 7),
    ("BatchNormalization", 9),
    ("Cast", 9),
    ("Ceil", 6),
    ("Clip", 11),
    ("Concat", 4),
    ("Constant", 9),
    ("ConstantOfShape", 9),
    ("Conv", 1),
    ("ConvTranspose", 1),
    ("DepthToSpace", 1),
    ("Div", 7),
    ("Elu", 6),
    ("Equal", 7),
    ("Erf", 9),
    ("Exp", 6),
    ("Expand", 8),
    ("Flatten", 9),
    ("Floor", 6),
    ("Gather", 1),
    ("Gemm", 9),
    ("GlobalAveragePool", 1),
    ("GlobalMaxPool", 1),
    ("Greater", 9),
    ("HardSigmoid", 6),
    ("Identity", 1),
    ("InstanceNormalization", 6),
    ("LRN", 1),
    ("LeakyRelu", 6),
    ("Less", 9),
    ("Log", 6),
    ("MatMul", 9),
    ("Max", 8),
    ("MaxPool", 8),
    ("Min", 8),
    ("Mul", 7),
    ("Neg", 6),
    ("Not", 1),
    ("PRelu", 9),
    ("Pad", 11),
    ("Pow", 7),
    ("Reciprocal", 6),
    ("ReduceMax", 11),
    ("ReduceMean", 11),
    ("ReduceMin", 11),
    ("Relu", 6),
    ("Reshape", 5),
    ("Resize", 11),
    ("Shape", 1),
    ("Sigmoid", 6),
    ("Slice", 10),
    ("SpaceToDepth", 1),
    ("Sqrt", 6),
    ("Sub", 7),
    ("Sum", 8),
    ("Tanh", 6),
    ("Tile", 6),
    ("Transpose", 1),
    ("Where", 9),
];

/// Attributes of older operators that became the second input in operator set 13.
const INPUTS_SINCE: &[(&str, &str)] =
    &[("Squeeze", "axes"), ("Unsqueeze", "axes"), ("ReduceSum", "axes"), ("Split", "split")];

/// Result of [`raise_opset`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Scales {
    /// Weights may have a scale for each channel.
    PerChannel,
    /// Weights must have one scale, because this operator cannot be converted to operator set 13.
    PerTensor(String),
    /// The operator set has no quantization.
    None,
}

/// Numbers of axes of values by name.
pub(super) type Ranks = BTreeMap<String, usize>;

/// Returns the names of the values whose numbers of axes decide whether the operator set can be raised.
pub(super) fn decisive_values(model: &ModelProto) -> BTreeSet<String> {
    if version(model).is_none_or(|version| version >= PER_CHANNEL) {
        return BTreeSet::new();
    }
    let nodes = model.graph.iter().flat_map(|graph| &graph.node);
    nodes.filter(|node| is_softmax(node)).filter_map(|node| node.input.first().cloned()).collect()
}

fn is_softmax(node: &NodeProto) -> bool {
    matches!(node.op_type(), "Softmax" | "LogSoftmax")
}

/// Version of the operator set of ONNX that a model imports.
pub(super) fn version(model: &ModelProto) -> Option<i64> {
    model.opset_import.iter().find(|import| is_onnx(import)).map(|import| import.version())
}

/// Raises the operator set of a model to 13 if it is older and all of its operators can be converted. Returns the scales
/// that the model can have then.
pub(super) fn raise_opset(model: &mut ModelProto, ranks: &Ranks) -> Scales {
    let Some(version) = version(model) else { return Scales::None };
    if version >= PER_CHANNEL {
        return Scales::PerChannel;
    }
    let Some(graph) = &mut model.graph else { return Scales::None };
    let unknown = graph.node.iter().find(|node| !is_convertible(node, ranks, version));
    if let Some(operator) = unknown.map(|node| node.op_type().to_string()) {
        return if version >= PER_TENSOR { Scales::PerTensor(operator) } else { Scales::None };
    }
    if !model.functions.is_empty() {
        return if version >= PER_TENSOR { Scales::PerTensor("a function".into()) } else { Scales::None };
    }
    convert(graph);
    for import in model.opset_import.iter_mut().filter(|i| is_onnx(i)) {
        import.version = Some(PER_CHANNEL);
    }
    model.ir_version = Some(model.ir_version().max(IR_VERSION));
    Scales::PerChannel
}

fn is_onnx(import: &OperatorSetIdProto) -> bool {
    matches!(import.domain(), "" | "ai.onnx")
}

/// True if a node keeps its meaning in operator set 13, or [`convert`] can rewrite it.
fn is_convertible(node: &NodeProto, ranks: &Ranks, version: i64) -> bool {
    let operator = node.op_type();
    let is_standard = matches!(node.domain(), "" | "ai.onnx");
    let unchanged = UNCHANGED.iter().any(|(name, since)| *name == operator && version >= *since);
    let becomes_input = INPUTS_SINCE.iter().any(|(name, _)| *name == operator);
    let is_dropout = operator == "Dropout" && version >= 7;
    is_standard && (unchanged || becomes_input || is_dropout || is_softmax_of_last_axis(node, ranks))
}

/// True for a softmax over the last axis. Before operator set 13, a softmax over another axis covers all later axes, too.
fn is_softmax_of_last_axis(node: &NodeProto, ranks: &Ranks) -> bool {
    let axis = int_attribute(node, "axis", 1);
    let rank = node.input.first().and_then(|name| ranks.get(name)).and_then(|rank| i64::try_from(*rank).ok());
    is_softmax(node) && (axis == -1 || rank == Some(axis + 1))
}

/// Rewrites the nodes of a graph whose attributes differ in operator set 13.
fn convert(graph: &mut GraphProto) {
    let mut taken = BTreeSet::new();
    collect_names(graph, &mut taken);
    for node in &mut graph.node {
        let operator = node.op_type().to_string();
        match operator.as_str() {
            "Dropout" => node.attribute.retain(|a| a.name() != "ratio"),
            "Softmax" | "LogSoftmax" => {
                for axis in node.attribute.iter_mut().filter(|a| a.name() == "axis") {
                    axis.i = Some(-1);
                }
            }
            _ => {}
        }
        let Some((_, name)) = INPUTS_SINCE.iter().find(|(name, _)| *name == operator) else { continue };
        let Some(at) = node.attribute.iter().position(|a| a.name() == *name) else { continue };
        let values = node.attribute.remove(at).ints;
        let base = format!("{}_{name}", node.output.first().map_or("", String::as_str));
        let input = free_name(&mut taken, &base);
        node.input.truncate(1);
        graph.initializer.push(i64_tensor(&input, &values));
        node.input.push(input);
    }
}
