//! Structs for the structure of a decoder-only model, and for the state that its layers share while the graph is built.

use driftc::error::Result;
use driftc::ir::builder::Builder;
use driftc::ir::element::UnaryFn;
use driftc::ir::graph::NodeId;
use driftc::ir::op::LayerNorm;

use super::generation::Sequence;
use super::rope::{Angles, Rope};
use crate::blocks::weight;
use crate::weights::Tensors;

/// Structure and sizes of a decoder-only language model.
#[derive(Debug, Clone)]
pub(crate) struct Decoder {
    /// Vocabulary size.
    pub(crate) vocab: usize,
    /// Hidden size.
    pub(crate) hidden: usize,
    /// Maximum number of positions (tokens of a text) that the model supports.
    pub(crate) max_positions: i64,
    /// Settings of RMSNorm, which are equal in all layers.
    pub(crate) norm: Norm,
    /// Factor that multiplies the token embeddings, if any.
    pub(crate) embedding_scale: Option<f32>,
    /// Rotary embeddings (RoPE) of the model. Layers refer to them by index.
    pub(crate) ropes: Vec<Rope>,
    /// Layers in order.
    pub(crate) layers: Vec<Layer>,
    /// True if the output head uses the embedding table as its weight.
    pub(crate) tied_embeddings: bool,
    /// Value `cap` of the soft cap of the logits, `cap * tanh(logit / cap)`, if any.
    pub(crate) softcap: Option<f32>,
}

/// Settings of RMSNorm.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Norm {
    /// Number that RMSNorm adds to the mean square before the root.
    pub(crate) epsilon: f32,
    /// Number that RMSNorm adds to its weight: 1 in Gemma, else 0.
    pub(crate) offset: f32,
}

/// Transformer layer.
#[derive(Debug, Clone)]
pub(crate) struct Layer {
    pub(crate) attention: SelfAttention,
    pub(crate) feed_forward: FeedForward,
    /// True if RMSNorm is also applied to the results of attention and feed-forward, before the residual adds.
    pub(crate) post_norms: bool,
}

/// Settings of a layer's self-attention.
#[derive(Debug, Clone)]
pub(crate) struct SelfAttention {
    pub(crate) heads: usize,
    /// Number of key and value heads (GQA). Each serves `heads / kv_heads` query heads.
    pub(crate) kv_heads: usize,
    /// Number of elements of an attention head.
    pub(crate) head_size: usize,
    /// Factor that multiplies the attention scores before softmax.
    pub(crate) scale: f32,
    /// Sliding window: number of positions that a position attends to, including itself. `None` for all earlier positions.
    pub(crate) window: Option<i64>,
    /// Value `cap` of the soft cap of the attention scores, `cap * tanh(score / cap)`, if any.
    pub(crate) softcap: Option<f32>,
    /// Index of the layer's rotary embedding in [`Decoder::ropes`].
    pub(crate) rope: usize,
    /// True if one weight matrix projects to queries, keys and values.
    pub(crate) fused_qkv: bool,
    /// True if the projections to queries, keys and values have a bias.
    pub(crate) bias: bool,
    /// True if the output projection has a bias.
    pub(crate) output_bias: bool,
    /// True if RMSNorm is applied to each query head and key head.
    pub(crate) head_norms: bool,
}

/// Settings of a layer's feed-forward block.
#[derive(Debug, Clone)]
pub(crate) enum FeedForward {
    /// Gated feed-forward block, such as SwiGLU.
    Gated(GatedFeedForward),
    /// Mixture of experts.
    Experts(Experts),
}

/// Gated feed-forward block `down(activation(gate x) * up x)`, where `gate`, `up` and `down` are matmuls.
#[derive(Debug, Clone)]
pub(crate) struct GatedFeedForward {
    /// Intermediate size.
    pub(crate) inner: usize,
    pub(crate) activation: UnaryFn,
    /// True if the matmuls `gate`, `up` and `down` have biases.
    pub(crate) bias: bool,
    /// True if one weight matrix holds `gate` and `up`.
    pub(crate) fused_gate_up: bool,
}

/// Mixture of experts: a token uses the experts with its highest router probabilities, weighted by these probabilities.
#[derive(Debug, Clone)]
pub(crate) struct Experts {
    /// Number of experts.
    pub(crate) count: usize,
    /// Number of experts that a token uses.
    pub(crate) used: usize,
    /// True if the weights of a token's experts are divided by their sum, so that they add up to 1.
    pub(crate) normalize_weights: bool,
    /// Intermediate size of an expert.
    pub(crate) inner: usize,
    pub(crate) activation: UnaryFn,
    /// Name of the mixture of experts, which follows the layer's prefix in tensor names.
    pub(crate) block: &'static str,
    /// Names of the gate, up and down matrices of an expert, as they occur in tensor names.
    pub(crate) names: [&'static str; 3],
}

/// Data that all layers of a decoder use while a graph is built.
pub(crate) struct BuildContext<'a> {
    pub(crate) weights: &'a dyn Tensors,
    pub(crate) hidden: usize,
    pub(crate) norm: Norm,
    pub(crate) sequence: Sequence,
    /// Cosines and sines for each rotary embedding of the model.
    pub(crate) angles: Vec<Angles>,
}

impl BuildContext<'_> {
    /// Adds an RMSNorm of `x` over its last axis of `size` elements, with the tensor `name.weight`.
    pub(crate) fn rms_norm(&self, g: &mut Builder<'_>, name: &str, x: NodeId, size: usize) -> Result<NodeId> {
        g.name = name.to_string();
        let mut scale = weight(g, self.weights, &format!("{name}.weight"), &[size])?;
        if self.norm.offset != 0.0 {
            scale = g.unary(UnaryFn::Affine { scale: 1.0, shift: self.norm.offset }, scale)?;
        }
        let axis = g.tensor(x).rank().saturating_sub(1);
        g.add(LayerNorm { axis, epsilon: self.norm.epsilon, rms: true }, &[x, scale])
    }
}
