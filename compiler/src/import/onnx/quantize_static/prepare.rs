//! Reads a float model and prepares it: all tensors are in the model, the operator set has quantization, and batch
//! normalizations are folded into convolutions.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::affine::fold_affine;
use super::opset::{Scales, decisive_values, raise_opset, version};
use super::reference::{Sample, import};
use crate::error::{Error, OpError, Result};
use crate::import::onnx::lower::decode_model;
use crate::import::onnx::node_order::topological_order;
use crate::import::onnx::refused::Refused;
use crate::import::onnx::schema::attribute_proto::AttributeType;
use crate::import::onnx::schema::tensor_proto::DataType;
use crate::import::onnx::schema::{AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto};
use crate::import::onnx::source::Source;
use crate::import::onnx::tensors::{Tensor, read};

/// A float model that is ready for quantization.
#[derive(Debug)]
pub(super) struct FloatModel {
    pub(super) source: Source,
    /// The model without its graph.
    frame: ModelProto,
    pub(super) graph: GraphProto,
    /// True if weights may have a scale for each channel.
    pub(super) per_channel: bool,
    /// Names of folded nodes and their values, each with the value in their place.
    pub(super) renamed: BTreeMap<String, String>,
    /// Notes for the user.
    pub(super) notes: Vec<String>,
}

impl FloatModel {
    /// Returns a model file of the given graph.
    pub(super) fn with_graph(&self, graph: GraphProto) -> ModelProto {
        ModelProto { graph: Some(graph), ..self.frame.clone() }
    }

    /// Returns the error for a fault of the model. `place` names a node or a value.
    pub(super) fn fault(&self, place: &str, reason: impl Into<String>, help: &str) -> Error {
        fault(&self.source, place, reason, help)
    }
}

fn fault(source: &Source, place: &str, reason: impl Into<String>, help: &str) -> Error {
    Error::Model {
        path: source.path.clone(),
        place: place.to_string(),
        reason: reason.into(),
        help: help.to_string(),
    }
}

/// Reads and prepares a float model. The sample gives the shapes of values.
///
/// # Errors
/// If the file is malformed, is quantized already, or has an operator set without quantization.
pub(super) fn prepare(path: &Path, sample: &Sample) -> Result<FloatModel> {
    let (source, bytes) = Source::open(path)?;
    let mut model = decode_model(&source, bytes)?;
    let checked = |place: &str, reason: String| {
        fault(&source, place, reason, "check the file with `onnx.checker`, or export it again")
    };
    let Some(graph) = model.graph.as_mut() else {
        return Err(checked("the file", "it contains no graph".into()));
    };
    if let Some(node) = graph.node.iter().find(|node| is_quantized(node)) {
        let reason = format!("the model is quantized already: it has the operator {}", node.op_type());
        return Err(fault(&source, "the file", reason, "give the float model"));
    }
    move_constants(graph);
    include_tensors(graph, &source).map_err(|e| checked("a tensor", e.reason))?;
    sort_nodes(graph).map_err(|name| {
        checked(&format!("node `{name}`"), "the node's operands depend on its own result".into())
    })?;
    let mut notes = Vec::new();
    let version = version(&model).unwrap_or(0);
    let decisive = decisive_values(&model);
    let ranks = match decisive.is_empty() {
        true => BTreeMap::new(),
        false => import(&source, model.clone(), &decisive, sample)?.ranks(),
    };
    let per_channel = match raise_opset(&mut model, &ranks) {
        Scales::PerChannel => true,
        Scales::PerTensor(operator) => {
            notes.push(format!(
                "operator set {version} has no scales for each channel, and {operator} cannot be converted to operator \
                 set 13: each weight gets one scale; export the model with operator set 13 for smaller errors"
            ));
            false
        }
        Scales::None => {
            let reason = format!("operator set {version} has no quantization");
            return Err(fault(&source, "the file", reason, "export the model with operator set 13 or newer"));
        }
    };
    model.ir_version = Some(model.ir_version().max(4));
    let mut graph = model.graph.take().unwrap_or_default();
    let renamed =
        fold_affine(&mut graph).map_err(|OpError(reason)| checked("a batch normalization", reason))?;
    Ok(FloatModel { source, frame: model, graph, per_channel, renamed, notes })
}

/// True for a node that only quantized models have.
fn is_quantized(node: &NodeProto) -> bool {
    let operator = node.op_type();
    operator.starts_with("QLinear")
        || matches!(
            operator,
            "QuantizeLinear" | "DequantizeLinear" | "DynamicQuantizeLinear" | "MatMulInteger" | "ConvInteger"
        )
}

/// Turns constants of nodes into initializers, unless they are outputs of the graph.
fn move_constants(graph: &mut GraphProto) {
    let outputs: BTreeSet<String> = graph.output.iter().map(|o| o.name().to_string()).collect();
    let mut moved = Vec::new();
    graph.node.retain_mut(|node| {
        let is_constant = node.op_type() == "Constant" && matches!(node.domain(), "" | "ai.onnx");
        let ([output], [attribute]) = (node.output.as_slice(), node.attribute.as_mut_slice()) else {
            return true;
        };
        if !is_constant || outputs.contains(output) {
            return true;
        }
        let Some(tensor) = constant_tensor(attribute) else { return true };
        moved.push(TensorProto { name: Some(output.clone()), ..tensor });
        false
    });
    graph.initializer.extend(moved);
}

/// Takes the value of the attribute of a Constant node; `None` for values that are no tensors of numbers.
fn constant_tensor(attribute: &mut AttributeProto) -> Option<TensorProto> {
    let floats = |dims: Vec<i64>, values: Vec<f32>| {
        let kind = Some(DataType::Float as i32);
        Some(TensorProto { dims, data_type: kind, float_data: values, ..TensorProto::default() })
    };
    match (attribute.name(), AttributeType::try_from(attribute.r#type.unwrap_or(0)).ok()?) {
        ("value", AttributeType::Tensor) => {
            let is_string = |t: &TensorProto| t.data_type == Some(DataType::String as i32);
            attribute.t.take_if(|t| !is_string(t))
        }
        ("value_float", AttributeType::Float) => floats(Vec::new(), vec![attribute.f()]),
        ("value_floats", AttributeType::Floats) => {
            floats(vec![i64::try_from(attribute.floats.len()).ok()?], std::mem::take(&mut attribute.floats))
        }
        _ => None,
    }
}

/// Copies external data into the tensors of a graph and its subgraphs, and stores floats as bytes.
fn include_tensors(graph: &mut GraphProto, source: &Source) -> Result<(), Refused> {
    for tensor in &mut graph.initializer {
        include_tensor(tensor, source)?;
    }
    for attribute in graph.node.iter_mut().flat_map(|node| &mut node.attribute) {
        for tensor in attribute.t.iter_mut().chain(&mut attribute.tensors) {
            include_tensor(tensor, source)?;
        }
        for inner in attribute.g.iter_mut().chain(&mut attribute.graphs) {
            include_tensors(inner, source)?;
        }
    }
    Ok(())
}

fn include_tensor(tensor: &mut TensorProto, source: &Source) -> Result<(), Refused> {
    let is_float = tensor.data_type == Some(DataType::Float as i32) && tensor.raw_data.is_none();
    if tensor.external_data.is_empty() && !is_float {
        return Ok(());
    }
    let name = tensor.name().to_string();
    let in_tensor = |e: Refused| Refused::new(format!("tensor `{name}`: {}", e.reason));
    let bytes = match read(tensor, source).map_err(in_tensor)? {
        Tensor::Constant(constant) => constant.bytes.bytes().clone(),
        Tensor::Int4(int4) => int4.bytes.bytes().clone(),
        Tensor::Unsupported(_) => return Ok(()),
    };
    tensor.raw_data = Some(bytes);
    tensor.float_data.clear();
    tensor.external_data.clear();
    tensor.data_location = None;
    Ok(())
}

/// Sorts the nodes of a graph topologically. Fails with the name of a node on a cycle.
fn sort_nodes(graph: &mut GraphProto) -> Result<(), String> {
    let order = topological_order(&graph.node)
        .map_err(|i| graph.node.get(i).map_or(String::new(), |n| n.name().to_string()))?;
    let mut nodes: Vec<Option<NodeProto>> = std::mem::take(&mut graph.node).into_iter().map(Some).collect();
    graph.node = order.into_iter().filter_map(|i| nodes.get_mut(i).and_then(Option::take)).collect();
    Ok(())
}
