//! Collects the nodes and initializers of a rewritten graph.

use std::collections::{BTreeMap, BTreeSet};

use super::names::free_name;
use super::scale::Scale;
use super::settings::Activations;
use super::tensors::{byte_tensor, float_tensor};
use crate::import::onnx::schema::attribute_proto::AttributeType;
use crate::import::onnx::schema::{AttributeProto, NodeProto, TensorProto};

/// Nodes and initializers of a graph that is being written.
#[derive(Debug, Default)]
pub(super) struct Emitter {
    pub(super) nodes: Vec<NodeProto>,
    pub(super) initializers: Vec<TensorProto>,
    /// Names of the graph's values.
    pub(super) taken: BTreeSet<String>,
    /// Names of the graph's nodes, which ONNX Runtime requires to differ.
    pub(super) node_names: BTreeSet<String>,
    /// Names of the initializers by the hash of type, shape and bytes.
    by_content: BTreeMap<[u8; 32], String>,
}

/// Operands of DequantizeLinear, by name.
pub(super) struct Dequantize<'a> {
    pub(super) quantized: &'a str,
    pub(super) scale: &'a str,
    pub(super) zero: Option<&'a str>,
    /// Axis of the scales; `None` for one scale.
    pub(super) axis: Option<usize>,
}

impl Emitter {
    /// Adds an initializer and returns its name. An equal initializer that was added before is used again.
    pub(super) fn constant(&mut self, mut tensor: TensorProto) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(format!("{:?} {:?} ", tensor.data_type, tensor.dims).as_bytes());
        hasher.update(tensor.raw_data.as_deref().unwrap_or_default());
        let hash = *hasher.finalize().as_bytes();
        if let Some(name) = self.by_content.get(&hash) {
            return name.clone();
        }
        let name = free_name(&mut self.taken, tensor.name());
        tensor.name = Some(name.clone());
        self.initializers.push(tensor);
        self.by_content.insert(hash, name.clone());
        name
    }

    /// Adds the initializers of a scale and its zero point. Returns their names.
    fn scale(&mut self, base: &str, at: Scale, activations: Activations) -> (String, String) {
        let scale = self.constant(float_tensor(&format!("{base}_scale"), &[], &[at.scale]));
        let signed = activations == Activations::I8;
        let zero = self.constant(byte_tensor(&format!("{base}_zero_point"), signed, &[], vec![at.zero]));
        (scale, zero)
    }

    /// Adds QuantizeLinear and DequantizeLinear of the value `from`. `base` is the start of new names, and `output` the name
    /// of the dequantized value.
    pub(super) fn quantize(
        &mut self,
        from: &str,
        (base, output): (&str, &str),
        at: Scale,
        activations: Activations,
    ) {
        let (scale, zero) = self.scale(base, at, activations);
        let quantized = free_name(&mut self.taken, &format!("{base}_quantized"));
        let node = free_name(&mut self.node_names, &format!("{base}_QuantizeLinear"));
        self.nodes.push(NodeProto {
            name: Some(node),
            op_type: Some("QuantizeLinear".into()),
            input: vec![from.into(), scale.clone(), zero.clone()],
            output: vec![quantized.clone()],
            ..NodeProto::default()
        });
        let operands = Dequantize { quantized: &quantized, scale: &scale, zero: Some(&zero), axis: None };
        self.dequantize(base, output, &operands);
    }

    /// Adds DequantizeLinear with the given output.
    pub(super) fn dequantize(&mut self, base: &str, output: &str, operands: &Dequantize<'_>) {
        let Dequantize { quantized, scale, zero, axis } = operands;
        let inputs = [*quantized, *scale].into_iter().chain(*zero);
        let axis = axis.map(|axis| AttributeProto {
            name: Some("axis".into()),
            r#type: Some(AttributeType::Int as i32),
            i: Some(i64::try_from(axis).unwrap_or(0)),
            ..AttributeProto::default()
        });
        let node = free_name(&mut self.node_names, &format!("{base}_DequantizeLinear"));
        self.nodes.push(NodeProto {
            name: Some(node),
            op_type: Some("DequantizeLinear".into()),
            input: inputs.map(str::to_string).collect(),
            output: vec![output.to_string()],
            attribute: axis.into_iter().collect(),
            ..NodeProto::default()
        });
    }

    /// Adds a quantized constant with one scale. Returns the name of its dequantized value.
    pub(super) fn quantized_constant(
        &mut self,
        name: &str,
        (shape, bytes): (&[usize], Vec<u8>),
        at: Scale,
        activations: Activations,
    ) -> String {
        let signed = activations == Activations::I8;
        let quantized = self.constant(byte_tensor(&format!("{name}_quantized"), signed, shape, bytes));
        let (scale, zero) = self.scale(name, at, activations);
        let output = free_name(&mut self.taken, &format!("{name}_dequantized"));
        let operands = Dequantize { quantized: &quantized, scale: &scale, zero: Some(&zero), axis: None };
        self.dequantize(name, &output, &operands);
        output
    }
}
