//! Storage formats of weights, and rules for the weights that each format applies to.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::ir::encoding::{Encoding, QuantScheme};
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{Element, Elementwise, Op};
use crate::ir::tensor::DType;

/// Default group size of the weight format `w4`.
const GROUP: usize = 128;

/// Minimum number of input channels and of output channels of quantized convolution filters. With fewer channels, scales
/// and padding take a large part of the memory.
const MIN_FILTER_CHANNELS: [usize; 2] = [32, 16];
/// The number of input channels of quantized convolution filters is a multiple of this number, so that no packed word has
/// values of two taps.
const FILTER_CHANNEL_MULTIPLE: usize = 8;

/// Storage format of a model's weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weights {
    /// f16.
    F16,
    /// 8 bits for each weight, with a scale for each output of a matmul or convolution.
    Q8,
    /// 8 bits for each weight of attention and of convolutions, and 4 bits for each other weight, with a scale for each output.
    Q844,
    /// 4 bits for each weight, with a scale for each group of inputs of an output; the number is the group size. The flag is true
    /// if each group also has a zero point. Filters whose input channels the group size does not divide have 8 bits, as in `Q8`.
    W4(usize, bool),
}

impl fmt::Display for Weights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::F16 => f.write_str("f16"),
            Self::Q8 => f.write_str("q8"),
            Self::Q844 => f.write_str("q844"),
            Self::W4(group, false) => write!(f, "w4:{group}"),
            Self::W4(group, true) => write!(f, "w4:{group}:zeros"),
        }
    }
}

impl FromStr for Weights {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut fields = text.split(':');
        let found = match (fields.next(), fields.next(), fields.next(), fields.next()) {
            (Some("f16"), None, ..) => Some(Self::F16),
            (Some("q8"), None, ..) => Some(Self::Q8),
            (Some("q844"), None, ..) => Some(Self::Q844),
            (Some("w4"), group, zeros @ (None | Some("zeros")), None) => {
                let group = group.map_or(Some(GROUP), |group| group.parse().ok());
                group
                    .filter(|group| matches!(group, 32 | 64 | 128))
                    .map(|group| Self::W4(group, zeros.is_some()))
            }
            _ => None,
        };
        found.ok_or_else(|| {
            Error::request(
                format!("`{text}` is not a storage format for weights"),
                "write `f16`, `q8`, `q844`, or `w4:128` (groups of 32, 64 or 128; `w4:128:zeros` with zero points)",
            )
        })
    }
}

/// Use of a weight matrix. The use decides which axis the scales belong to: the axis of a matmul's outputs, or the axis of an
/// embedding table's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// The matrix is the second operand of a matmul. The number is the axis of the matrix that has one position for each output
    /// of the matmul.
    MatMul(usize),
    /// The matrix is an embedding table.
    Table,
}

/// Returns the axis of a constant float matrix that has one position for each output of a matmul or for each row of an embedding
/// table. Returns `None` for other constants, and if two uses of the matrix need different axes.
pub(super) fn output_axis(graph: &Graph, id: NodeId) -> Option<usize> {
    let constant = graph.constant(id)?;
    let (stored, axes) = match &constant.encoding {
        Encoding::Stack(stack) => (&stack.members().first()?.encoding, 3),
        stored => (stored, 2),
    };
    let float = matches!(stored.plain_dtype(), Some(DType::F32 | DType::F16 | DType::Bf16));
    if constant.shape.len() != axes || !float || constant.elements() == 0 || is_router(&graph.node(id).name) {
        return None;
    }
    let mut uses = Vec::new();
    collect_uses(graph, id, false, &mut uses)?;
    let axis = uses.iter().find_map(|u| if let Use::MatMul(axis) = u { Some(*axis) } else { None });
    let table = uses.contains(&Use::Table);
    let axis = axis.or_else(|| (table && is_embedding(&graph.node(id).name)).then_some(0))?;
    let agreed = uses.iter().all(|u| *u == Use::MatMul(axis) || *u == Use::Table && axis == 0);
    // Matrices of a stack must have outputs as their first axis.
    (agreed && (axes == 2 || axis == 0)).then_some(axis)
}

/// True if a constant has the float filters of dense convolutions with enough channels, and no other use.
pub(super) fn is_quantizable_filter(graph: &Graph, id: NodeId) -> bool {
    let Some(constant) = graph.constant(id) else { return false };
    let float = matches!(constant.encoding.plain_dtype(), Some(DType::F32 | DType::F16 | DType::Bf16));
    let [outputs, inputs, _, ..] = constant.shape[..] else { return false };
    let [min_inputs, min_outputs] = MIN_FILTER_CHANNELS;
    let channels =
        inputs >= min_inputs && inputs.is_multiple_of(FILTER_CHANNEL_MULTIPLE) && outputs >= min_outputs;
    float && channels && constant.elements() > 0 && is_used_by_dense_convolutions(graph, id)
}

/// True if all users of a value are convolutions of one group, which read it as their filters, possibly through casts.
fn is_used_by_dense_convolutions(graph: &Graph, id: NodeId) -> bool {
    let is_filter = |user: &NodeId| {
        let (node, operands) = (graph.node(*user), graph.operands(*user));
        match &node.op {
            Op::Conv(conv) => {
                conv.group == 1 && operands.iter().enumerate().all(|(i, o)| (*o == id) == (i == 1))
            }
            Op::Elementwise(Elementwise { element: Element::Cast(to) }) => {
                to.is_float() && node.epilogue.is_empty() && is_used_by_dense_convolutions(graph, *user)
            }
            _ => false,
        }
    };
    let users = graph.users(id);
    !graph.is_output(id) && !users.is_empty() && users.iter().all(is_filter)
}

/// Collects the uses of a constant or, if `transposed`, of its transpose. Returns `None` if any use is not a matmul or
/// a look-up in an embedding table.
fn collect_uses(graph: &Graph, id: NodeId, transposed: bool, uses: &mut Vec<Use>) -> Option<()> {
    if graph.is_output(id) {
        return None;
    }
    for user in graph.users(id) {
        let node = graph.node(user);
        let operands = graph.operands(user);
        let places: Vec<usize> = (0..operands.len()).filter(|i| operands.get(*i) == Some(&id)).collect();
        match &node.op {
            Op::Transpose(t) if t.perm == [1, 0] && node.epilogue.is_empty() => {
                collect_uses(graph, user, !transposed, uses)?;
            }
            Op::Elementwise(Elementwise { element: Element::Cast(to) })
                if to.is_float() && node.epilogue.is_empty() =>
            {
                collect_uses(graph, user, transposed, uses)?;
            }
            Op::MatMul(matmul) if places == [1] => {
                uses.push(Use::MatMul(usize::from(matmul.trans_b == transposed)));
            }
            Op::GatherMatMul(gather) if places == [1] => {
                uses.push(Use::MatMul(usize::from(gather.matmul.trans_b == transposed)));
            }
            Op::Gather(gather) if places == [0] && gather.axis == 0 && !transposed => uses.push(Use::Table),
            _ => return None,
        }
    }
    Some(())
}

/// Returns the quantization scheme of a weight, which depends on the weight's name.
pub(super) fn scheme(weights: Weights, name: &str) -> QuantScheme {
    let per_output = |bits| QuantScheme { bits, group: None, asymmetric: false };
    match weights {
        Weights::F16 | Weights::Q8 => per_output(8),
        Weights::Q844 => per_output(if is_attention(name) { 8 } else { 4 }),
        Weights::W4(group, asymmetric) => QuantScheme { bits: 4, group: Some(group), asymmetric },
    }
}

/// Returns the quantization scheme of convolution filters with a number of input channels. Groups of `w4` lie within a tap.
pub(super) fn filter_scheme(weights: Weights, inputs: usize) -> QuantScheme {
    match weights {
        Weights::W4(group, asymmetric) if inputs.is_multiple_of(group) => {
            QuantScheme { bits: 4, group: Some(group), asymmetric }
        }
        Weights::F16 | Weights::Q8 | Weights::Q844 | Weights::W4(..) => {
            QuantScheme { bits: 8, group: None, asymmetric: false }
        }
    }
}

/// True if a weight belongs to attention, by the names that exporters use.
fn is_attention(name: &str) -> bool {
    ["attn", "attention", "q_proj", "k_proj", "v_proj", "o_proj", "qkv"]
        .iter()
        .any(|part| name.contains(part))
}

/// True if a table holds embeddings, by its name, and not rotary angles or masks.
fn is_embedding(name: &str) -> bool {
    ["emb", "wte", "wpe"].iter().any(|part| name.contains(part))
}

/// True if a matmul selects experts, by the name of its weight. Its matrix is small, and errors in it change the
/// selection.
fn is_router(name: &str) -> bool {
    let name = name.strip_suffix(".weight").unwrap_or(name);
    name.ends_with(".gate") || name.contains("router") || name.contains("ffn_gate_inp")
}
