//! Tensors of the rewritten model: reading constants, and building initializers.

use std::collections::BTreeMap;

use crate::error::OpError;
use crate::import::onnx::schema::tensor_proto::DataType;
use crate::import::onnx::schema::{GraphProto, NodeProto, TensorProto};
use crate::import::onnx::tensors::inline;
use crate::ir::array::Array;
use crate::ir::tensor::DType;

/// The constants of a graph by name.
#[derive(Debug, Default)]
pub(super) struct Constants(BTreeMap<String, TensorProto>);

impl Constants {
    /// Collects the initializers of a graph, and copies of them that `Identity` nodes make. The nodes of the graph are in
    /// topological order.
    pub(super) fn collect(graph: &GraphProto) -> Self {
        let own = graph.initializer.iter().map(|t| (t.name().to_string(), t.clone()));
        let mut constants: BTreeMap<String, TensorProto> = own.collect();
        for node in graph.node.iter().filter(|n| n.op_type() == "Identity" && n.domain().is_empty()) {
            let value = node.input.first().and_then(|input| constants.get(input)).cloned();
            if let (Some(value), Some(output)) = (value, node.output.first()) {
                constants.insert(output.clone(), value);
            }
        }
        Self(constants)
    }

    /// True if a constant has this name.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Returns the value of the f32 constant with this name; `None` if there is no such constant.
    ///
    /// # Errors
    /// If the constant is malformed.
    pub(super) fn floats(&self, name: &str) -> Result<Option<Array>, OpError> {
        let Some(tensor) = self.0.get(name).filter(|t| t.data_type == Some(DataType::Float as i32)) else {
            return Ok(None);
        };
        let array = inline(tensor).map_err(|e| OpError::new(format!("constant `{name}`: {}", e.reason)))?;
        Ok((array.dtype == DType::F32).then_some(array))
    }

    /// True if the constant with this name has 16-bit or 64-bit floats.
    pub(super) fn is_other_float(&self, name: &str) -> bool {
        let others = [DataType::Float16, DataType::Bfloat16, DataType::Double].map(|kind| Some(kind as i32));
        self.0.get(name).is_some_and(|t| others.contains(&t.data_type))
    }
}

/// Creates an initializer from little-endian bytes.
fn tensor(name: &str, kind: DataType, shape: &[usize], bytes: Vec<u8>) -> TensorProto {
    TensorProto {
        name: Some(name.to_string()),
        data_type: Some(kind as i32),
        dims: shape.iter().map(|d| i64::try_from(*d).unwrap_or(i64::MAX)).collect(),
        raw_data: Some(bytes.into()),
        ..TensorProto::default()
    }
}

/// Creates an initializer of f32.
pub(super) fn float_tensor(name: &str, shape: &[usize], values: &[f32]) -> TensorProto {
    tensor(name, DataType::Float, shape, values.iter().flat_map(|v| v.to_le_bytes()).collect())
}

/// Creates an initializer of i32.
pub(super) fn i32_tensor(name: &str, shape: &[usize], values: &[i32]) -> TensorProto {
    tensor(name, DataType::Int32, shape, values.iter().flat_map(|v| v.to_le_bytes()).collect())
}

/// Creates an initializer of i64 with one axis.
pub(super) fn i64_tensor(name: &str, values: &[i64]) -> TensorProto {
    let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    tensor(name, DataType::Int64, &[values.len()], bytes)
}

/// Creates an initializer of 8-bit integers from their bytes.
pub(super) fn byte_tensor(name: &str, signed: bool, shape: &[usize], bytes: Vec<u8>) -> TensorProto {
    tensor(name, if signed { DataType::Int8 } else { DataType::Uint8 }, shape, bytes)
}

/// Returns the value of a node's integer attribute, or its default.
pub(super) fn int_attribute(node: &NodeProto, name: &str, default: i64) -> i64 {
    node.attribute.iter().find(|a| a.name() == name).map_or(default, |a| a.i())
}

/// Returns the value of a node's float attribute, or its default.
pub(super) fn float_attribute(node: &NodeProto, name: &str, default: f32) -> f32 {
    node.attribute.iter().find(|a| a.name() == name).map_or(default, |a| a.f())
}
