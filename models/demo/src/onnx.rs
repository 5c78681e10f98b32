//! Helper functions that build ONNX models in Rust code.

use driftc::import::onnx::schema::attribute_proto::AttributeType;
use driftc::import::onnx::schema::tensor_proto::DataType;
use driftc::import::onnx::schema::tensor_shape_proto::{Dimension, dimension};
use driftc::import::onnx::schema::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, TensorShapeProto,
    TypeProto, ValueInfoProto, type_proto,
};
use prost::Message;

/// Returns an ONNX model of one graph, for an operator set version.
pub fn model(opset: i64, graph: GraphProto) -> ModelProto {
    ModelProto {
        ir_version: Some(8),
        opset_import: vec![OperatorSetIdProto { domain: None, version: Some(opset) }],
        graph: Some(graph),
        ..ModelProto::default()
    }
}

/// Returns an ONNX graph of nodes. [`input`] creates its inputs; its outputs are given by name.
pub fn graph(inputs: Vec<ValueInfoProto>, nodes: Vec<NodeProto>, outputs: &[&str]) -> GraphProto {
    let output =
        |name: &&str| ValueInfoProto { name: Some((*name).to_string()), ..ValueInfoProto::default() };
    GraphProto {
        input: inputs,
        node: nodes,
        output: outputs.iter().map(output).collect(),
        ..GraphProto::default()
    }
}

/// Returns a graph input of f32. Each size of its shape is a number, a symbol, or `?` for an unknown size.
pub fn input(name: &str, shape: &[&str]) -> ValueInfoProto {
    typed_input(name, DataType::Float, shape)
}

/// Returns a graph input of any element type; sizes as in [`input`].
pub fn typed_input(name: &str, kind: DataType, shape: &[&str]) -> ValueInfoProto {
    let dim = |text: &&str| Dimension {
        value: match text.parse() {
            Ok(value) => Some(dimension::Value::DimValue(value)),
            Err(_) if *text == "?" => None,
            Err(_) => Some(dimension::Value::DimParam((*text).to_string())),
        },
        ..Dimension::default()
    };
    let tensor = type_proto::Tensor {
        elem_type: Some(kind as i32),
        shape: Some(TensorShapeProto { dim: shape.iter().map(dim).collect() }),
    };
    let kind = TypeProto { value: Some(type_proto::Value::TensorType(tensor)), ..TypeProto::default() };
    ValueInfoProto { name: Some(name.to_string()), r#type: Some(kind), ..ValueInfoProto::default() }
}

/// Returns a node, which is named after its operator and its first result.
pub fn node(operator: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    NodeProto {
        name: Some(format!("{operator}_{}", outputs.first().unwrap_or(&""))),
        op_type: Some(operator.to_string()),
        input: inputs.iter().map(|s| (*s).to_string()).collect(),
        output: outputs.iter().map(|s| (*s).to_string()).collect(),
        ..NodeProto::default()
    }
}

/// Returns a node with an additional attribute.
#[must_use]
pub fn with(mut node: NodeProto, attribute: AttributeProto) -> NodeProto {
    node.attribute.push(attribute);
    node
}

fn attribute(name: &str, kind: AttributeType) -> AttributeProto {
    AttributeProto { name: Some(name.to_string()), r#type: Some(kind as i32), ..AttributeProto::default() }
}

/// Integer attribute.
pub fn int(name: &str, value: i64) -> AttributeProto {
    AttributeProto { i: Some(value), ..attribute(name, AttributeType::Int) }
}

/// Integer list attribute.
pub fn ints(name: &str, values: &[i64]) -> AttributeProto {
    AttributeProto { ints: values.to_vec(), ..attribute(name, AttributeType::Ints) }
}

/// Float attribute.
pub fn float(name: &str, value: f32) -> AttributeProto {
    AttributeProto { f: Some(value), ..attribute(name, AttributeType::Float) }
}

/// String attribute.
pub fn text(name: &str, value: &str) -> AttributeProto {
    AttributeProto { s: Some(value.as_bytes().to_vec()), ..attribute(name, AttributeType::String) }
}

/// Graph attribute.
pub fn subgraph(name: &str, value: GraphProto) -> AttributeProto {
    AttributeProto { g: Some(value), ..attribute(name, AttributeType::Graph) }
}

/// Float attribute of a node inside an ONNX function. The attribute takes its value from the function's attribute `to`.
pub fn reference(name: &str, to: &str) -> AttributeProto {
    AttributeProto { ref_attr_name: Some(to.to_string()), ..attribute(name, AttributeType::Float) }
}

fn constant(name: &str, kind: DataType, shape: &[i64]) -> TensorProto {
    TensorProto {
        name: Some(name.to_string()),
        data_type: Some(kind as i32),
        dims: shape.to_vec(),
        ..TensorProto::default()
    }
}

/// Constant of i64.
pub fn integers(name: &str, shape: &[i64], values: &[i64]) -> TensorProto {
    TensorProto { int64_data: values.to_vec(), ..constant(name, DataType::Int64, shape) }
}

/// Constant tensor of an integer type of at most 32 bits.
pub fn small_integers(name: &str, kind: DataType, shape: &[i64], values: &[i64]) -> TensorProto {
    TensorProto { int32_data: values.iter().map(|v| *v as i32).collect(), ..constant(name, kind, shape) }
}

/// Constant of f32.
pub fn floats(name: &str, shape: &[i64], values: &[f32]) -> TensorProto {
    TensorProto { float_data: values.to_vec(), ..constant(name, DataType::Float, shape) }
}

/// Serializes a model.
pub fn bytes(model: &ModelProto) -> prost::bytes::Bytes {
    model.encode_to_vec().into()
}
