//! Causal self-attention with shared key heads, rotary embeddings, windows and soft caps.

use driftc::error::Result;
use driftc::ir::builder::Builder;
use driftc::ir::dim::Dim;
use driftc::ir::element::UnaryFn;
use driftc::ir::graph::NodeId;
use driftc::ir::op::Attention;

use super::Parts;
use crate::blocks::{linear, merge_heads, product, scaled};
use crate::weights::Tensors;

/// The attention of a layer.
#[derive(Debug, Clone)]
pub(crate) struct SelfAttention {
    pub(crate) heads: usize,
    /// Key and value heads, each shared by as many query heads as the others.
    pub(crate) kv_heads: usize,
    /// Elements of a head.
    pub(crate) head_size: usize,
    /// Factor of the scores.
    pub(crate) scale: f32,
    /// A position sees this many, itself among them.
    pub(crate) window: Option<i64>,
    /// `cap * tanh(score / cap)`.
    pub(crate) softcap: Option<f32>,
    /// Number of the rotary embedding.
    pub(crate) rope: usize,
    /// Whether one weight holds queries, keys and values.
    pub(crate) fused: bool,
    /// Whether queries, keys and values have a bias.
    pub(crate) bias: bool,
    /// Whether the output has a bias.
    pub(crate) output_bias: bool,
    /// Whether each query and key head is normalised.
    pub(crate) head_norms: bool,
}

impl SelfAttention {
    /// `x [batch, seq, hidden]` attended, in the same form; `name` is that of the block.
    pub(super) fn apply(
        &self,
        g: &mut Builder<'_>,
        parts: &Parts<'_>,
        name: &str,
        x: NodeId,
    ) -> Result<NodeId> {
        let at = |part: &str| format!("{name}.{part}");
        let [q, k, v] = self.projections(g, parts.weights, name, x, parts.hidden)?;
        let mut q = in_heads(g, q, self.heads, self.head_size)?;
        let mut k = in_heads(g, k, self.kv_heads, self.head_size)?;
        let v = in_heads(g, v, self.kv_heads, self.head_size)?;
        if self.head_norms {
            q = parts.normalise(g, &at("q_norm"), q, self.head_size)?;
            k = parts.normalise(g, &at("k_norm"), k, self.head_size)?;
        }
        g.name = at("rotary_emb");
        if let Some(angles) = parts.angles.get(self.rope) {
            q = angles.rotate(g, q)?;
            k = angles.rotate(g, k)?;
        }
        let k = parts.sequence.cached(g, &at("keys"), k)?;
        let v = parts.sequence.cached(g, &at("values"), v)?;
        g.name = name.to_string();
        let q = heads_first(g, q)?;
        let k = heads_first(g, k)?;
        let v = heads_first(g, v)?;
        // Where no position has so many keys, a window hides none.
        let most = parts.sequence.keys().range(&g.graph.bounds).1;
        let window =
            self.window.filter(|window| *window < most).and_then(|window| u32::try_from(window).ok());
        let op = Attention { scale: self.scale, causal: true, window, softcap: self.softcap };
        let y = g.add(op, &[q, k, v])?;
        let y = merge_heads(g, y)?;
        let sizes = [self.heads * self.head_size, parts.hidden];
        affine(g, parts.weights, &at("o_proj"), y, sizes, self.output_bias)
    }

    /// Queries, keys and values `[batch, seq, heads * size]`.
    fn projections(
        &self,
        g: &mut Builder<'_>,
        weights: &dyn Tensors,
        name: &str,
        x: NodeId,
        hidden: usize,
    ) -> Result<[NodeId; 3]> {
        let sizes = [self.heads, self.kv_heads, self.kv_heads].map(|heads| heads * self.head_size);
        if self.fused {
            let all = sizes.iter().sum();
            let y = affine(g, weights, &format!("{name}.qkv_proj"), x, [hidden, all], self.bias)?;
            let [q, k, v] = sizes;
            return Ok([columns(g, y, 0, q)?, columns(g, y, q, k)?, columns(g, y, q + k, v)?]);
        }
        let [q, k, v] = sizes;
        let mut part = |part: &str, size: usize| {
            affine(g, weights, &format!("{name}.{part}"), x, [hidden, size], self.bias)
        };
        Ok([part("q_proj", q)?, part("k_proj", k)?, part("v_proj", v)?])
    }
}

/// `[batch, seq, heads * size] -> [batch, seq, heads, size]`.
pub(crate) fn in_heads(g: &mut Builder<'_>, x: NodeId, heads: usize, size: usize) -> Result<NodeId> {
    let mut split: Vec<Dim> = g.tensor(x).shape.iter().take(2).cloned().collect();
    split.extend([Dim::from(heads), Dim::from(size)]);
    g.reshape(x, split)
}

/// `[batch, seq, heads, size] -> [batch, heads, seq, size]`.
pub(crate) fn heads_first(g: &mut Builder<'_>, x: NodeId) -> Result<NodeId> {
    g.transpose(x, vec![0, 2, 1, 3])
}

/// `cap * tanh(x / cap)`.
pub(super) fn softcapped(g: &mut Builder<'_>, x: NodeId, cap: f32) -> Result<NodeId> {
    let x = scaled(g, x, 1.0 / cap)?;
    let x = g.unary(UnaryFn::Tanh, x)?;
    scaled(g, x, cap)
}

/// `x * weight^T`, plus a bias where there is one.
pub(super) fn affine(
    g: &mut Builder<'_>,
    weights: &dyn Tensors,
    name: &str,
    x: NodeId,
    [inputs, outputs]: [usize; 2],
    bias: bool,
) -> Result<NodeId> {
    if bias {
        linear(g, weights, name, x, inputs, outputs)
    } else {
        product(g, weights, name, x, inputs, outputs)
    }
}

/// Columns of `x [batch, seq, all]`.
pub(crate) fn columns(g: &mut Builder<'_>, x: NodeId, first: usize, count: usize) -> Result<NodeId> {
    g.slice(x, 2, Dim::from(first), Dim::from(count))
}
