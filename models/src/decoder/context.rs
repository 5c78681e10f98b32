//! Structure of a decoder-only model, and the state that its layers share while they are built.

use driftc::error::Result;
use driftc::ir::builder::Builder;
use driftc::ir::element::UnaryFn;
use driftc::ir::graph::NodeId;
use driftc::ir::op::LayerNorm;

use super::generation::Sequence;
use super::rope::{Angles, Rope};
use crate::blocks::weight;
use crate::weights::Tensors;

/// Decoder-only model.
#[derive(Debug, Clone)]
pub(crate) struct Decoder {
    /// Vocabulary size.
    pub(crate) vocab: usize,
    /// Hidden size.
    pub(crate) hidden: usize,
    /// Number of positions that the model supports.
    pub(crate) max_positions: i64,
    /// RMSNorm of all layers.
    pub(crate) norm: Norm,
    /// Factor of the embeddings.
    pub(crate) embedding_scale: Option<f32>,
    /// Rotary embeddings. Layers refer to them by index.
    pub(crate) ropes: Vec<Rope>,
    /// Layers in order.
    pub(crate) layers: Vec<Layer>,
    /// True if the output head is the embedding table.
    pub(crate) tied_embeddings: bool,
    /// Soft cap of the logits: `cap * tanh(logit / cap)`.
    pub(crate) softcap: Option<f32>,
}

/// RMSNorm.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Norm {
    /// Number added to the mean square.
    pub(crate) epsilon: f32,
    /// Number added to the weight.
    pub(crate) offset: f32,
}

/// Transformer layer.
#[derive(Debug, Clone)]
pub(crate) struct Layer {
    pub(crate) attention: SelfAttention,
    pub(crate) feed_forward: FeedForward,
    /// True if the results of attention and feed-forward are normalized before the residual add.
    pub(crate) post_norms: bool,
}

/// Self-attention of a layer.
#[derive(Debug, Clone)]
pub(crate) struct SelfAttention {
    pub(crate) heads: usize,
    /// Key and value heads. Each serves `heads / kv_heads` query heads.
    pub(crate) kv_heads: usize,
    /// Elements of a head.
    pub(crate) head_size: usize,
    /// Factor of the scores.
    pub(crate) scale: f32,
    /// Number of positions that a position sees, including itself.
    pub(crate) window: Option<i64>,
    /// Soft cap of the scores: `cap * tanh(score / cap)`.
    pub(crate) softcap: Option<f32>,
    /// Index of the rotary embedding.
    pub(crate) rope: usize,
    /// True if one weight holds queries, keys and values.
    pub(crate) fused_qkv: bool,
    /// True if queries, keys and values have a bias.
    pub(crate) bias: bool,
    /// True if the output has a bias.
    pub(crate) output_bias: bool,
    /// True if each query and key head is normalized.
    pub(crate) head_norms: bool,
}

/// Feed-forward block of a layer.
#[derive(Debug, Clone)]
pub(crate) enum FeedForward {
    /// `down(activation(gate x) * up x)`.
    Gated(GatedFeedForward),
    /// Mixture of experts.
    Experts(Experts),
}

/// `down(activation(gate x) * up x)`.
#[derive(Debug, Clone)]
pub(crate) struct GatedFeedForward {
    /// Intermediate size.
    pub(crate) inner: usize,
    pub(crate) activation: UnaryFn,
    /// True if the three matmuls have biases.
    pub(crate) bias: bool,
    /// True if one weight holds gate and up.
    pub(crate) fused_gate_up: bool,
}

/// Mixture of experts: the experts with the highest softmax scores, weighted by these scores.
#[derive(Debug, Clone)]
pub(crate) struct Experts {
    /// Number of experts.
    pub(crate) count: usize,
    /// Number of experts that a token uses.
    pub(crate) used: usize,
    /// True if the weights of a token's experts are divided by their sum.
    pub(crate) normalize_weights: bool,
    /// Intermediate size of an expert.
    pub(crate) inner: usize,
    pub(crate) activation: UnaryFn,
    /// Name of the block within the layer.
    pub(crate) block: &'static str,
    /// Names of an expert's gate, up and down matrices.
    pub(crate) names: [&'static str; 3],
}

/// State that layers share while a graph is built.
pub(crate) struct BuildContext<'a> {
    pub(crate) weights: &'a dyn Tensors,
    pub(crate) hidden: usize,
    pub(crate) norm: Norm,
    pub(crate) sequence: Sequence,
    /// Angles of each rotary embedding.
    pub(crate) angles: Vec<Angles>,
}

impl BuildContext<'_> {
    /// RMSNorm of `x` over its last axis of `size` elements, with the tensor `name.weight`.
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
