//! Operators that static quantization knows, by what they mean for scales.

use crate::import::onnx::schema::NodeProto;

/// Operator with weights that are quantized to i8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layer {
    Conv,
    ConvTranspose,
    Gemm,
    MatMul,
}

/// Kind of a quantized operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Has weights.
    Layer(Layer),
    /// Combines two tensors. It is quantized if both are.
    Binary,
    /// Joins tensors. Inputs that only it reads get its output's scale, so that it copies bytes.
    Concat,
    /// Has one input, and an output with its own range.
    Unary,
    /// Like [`Kind::Unary`], but the operator bounds the output's range, so that no value is an outlier.
    Bounded,
    /// Clamps values. After a layer or a sum it is computed before rounding.
    Clamp,
    /// Only moves or selects values: each output has the scale of the input.
    Same,
}

/// Returns the kind of a node's operator; `None` if static quantization leaves it in float.
pub(super) fn kind(node: &NodeProto) -> Option<Kind> {
    if !matches!(node.domain(), "" | "ai.onnx") {
        return None;
    }
    Some(match node.op_type() {
        "Conv" => Kind::Layer(Layer::Conv),
        "ConvTranspose" => Kind::Layer(Layer::ConvTranspose),
        "Gemm" => Kind::Layer(Layer::Gemm),
        "MatMul" => Kind::Layer(Layer::MatMul),
        "Add" | "Mul" => Kind::Binary,
        "Concat" => Kind::Concat,
        "AveragePool" | "GlobalAveragePool" | "HardSwish" | "LeakyRelu" | "Tanh" | "Gelu" => Kind::Unary,
        "Sigmoid" | "Softmax" | "HardSigmoid" => Kind::Bounded,
        "Relu" | "Clip" => Kind::Clamp,
        "MaxPool" | "GlobalMaxPool" | "Reshape" | "Flatten" | "Transpose" | "Squeeze" | "Unsqueeze"
        | "Slice" | "Split" | "DepthToSpace" | "SpaceToDepth" | "Identity" => Kind::Same,
        "Resize" | "Upsample" => {
            let is_cubic = node.attribute.iter().any(|a| a.name() == "mode" && a.s() == b"cubic");
            if is_cubic { Kind::Unary } else { Kind::Same }
        }
        _ => return None,
    })
}

/// Returns the positions of a node's inputs that are activations. The weights and the bias of a layer are no activations.
pub(super) fn data_inputs(node: &NodeProto, kind: Kind) -> std::ops::Range<usize> {
    match kind {
        Kind::Concat => 0..node.input.len(),
        Kind::Binary | Kind::Layer(Layer::Gemm | Layer::MatMul) => 0..2.min(node.input.len()),
        Kind::Layer(Layer::Conv | Layer::ConvTranspose) => 0..2.min(node.input.len()),
        Kind::Unary | Kind::Bounded | Kind::Clamp | Kind::Same => 0..1.min(node.input.len()),
    }
}

/// Returns the name that messages and `--leave` use for a node: its name, or its first output if it has none.
pub(super) fn shown_name(node: &NodeProto) -> &str {
    match node.name() {
        "" => node.output.iter().find(|o| !o.is_empty()).map_or(node.op_type(), String::as_str),
        name => name,
    }
}
