//! Causal self-attention of a decoder layer, with GQA, RoPE, sliding windows and soft caps.

use driftc::error::Result;
use driftc::ir::builder::Builder;
use driftc::ir::dim::Dim;
use driftc::ir::element::UnaryFn;
use driftc::ir::graph::NodeId;
use driftc::ir::op::Attention;

use super::context::{BuildContext, SelfAttention};
use crate::blocks::{linear, linear_without_bias, merge_heads, scaled};
use crate::weights::Tensors;

impl SelfAttention {
    /// Adds the self-attention of `x [batch, seq, hidden]`, with projections. The result has the shape of `x`; `name` is the
    /// prefix of the tensor names.
    pub(super) fn apply(
        &self,
        g: &mut Builder<'_>,
        context: &BuildContext<'_>,
        name: &str,
        x: NodeId,
    ) -> Result<NodeId> {
        let at = |part: &str| format!("{name}.{part}");
        let [q, k, v] = self.projections(g, context.weights, name, x, context.hidden)?;
        let mut q = split_head_axis(g, q, self.heads, self.head_size)?;
        let mut k = split_head_axis(g, k, self.kv_heads, self.head_size)?;
        let v = split_head_axis(g, v, self.kv_heads, self.head_size)?;
        if self.head_norms {
            q = context.rms_norm(g, &at("q_norm"), q, self.head_size)?;
            k = context.rms_norm(g, &at("k_norm"), k, self.head_size)?;
        }
        g.name = at("rotary_emb");
        if let Some(angles) = context.angles.get(self.rope) {
            q = angles.rotate(g, q)?;
            k = angles.rotate(g, k)?;
        }
        let k = context.sequence.cached(g, &at("keys"), k)?;
        let v = context.sequence.cached(g, &at("values"), v)?;
        g.name = name.to_string();
        let q = heads_first(g, q)?;
        let k = heads_first(g, k)?;
        let v = heads_first(g, v)?;
        // A window at least as long as the keys hides no key.
        let max_keys = context.sequence.keys().range(&g.graph.bounds).1;
        let window =
            self.window.filter(|window| *window < max_keys).and_then(|window| u32::try_from(window).ok());
        let op = Attention { scale: self.scale, causal: true, window, softcap: self.softcap };
        let y = g.add(op, &[q, k, v])?;
        let y = merge_heads(g, y)?;
        let sizes = [self.heads * self.head_size, context.hidden];
        affine(g, context.weights, &at("o_proj"), y, sizes, self.output_bias)
    }

    /// Adds the projections of `x` to queries, keys and values, each `[batch, seq, heads * size]`.
    fn projections(
        &self,
        g: &mut Builder<'_>,
        weights: &dyn Tensors,
        name: &str,
        x: NodeId,
        hidden: usize,
    ) -> Result<[NodeId; 3]> {
        let sizes = [self.heads, self.kv_heads, self.kv_heads].map(|heads| heads * self.head_size);
        if self.fused_qkv {
            let all = sizes.iter().sum();
            let y = affine(g, weights, &format!("{name}.qkv_proj"), x, [hidden, all], self.bias)?;
            let [q, k, v] = sizes;
            return Ok([
                slice_columns(g, y, 0, q)?,
                slice_columns(g, y, q, k)?,
                slice_columns(g, y, q + k, v)?,
            ]);
        }
        let [q, k, v] = sizes;
        let mut project = |projection: &str, size: usize| {
            affine(g, weights, &format!("{name}.{projection}"), x, [hidden, size], self.bias)
        };
        Ok([project("q_proj", q)?, project("k_proj", k)?, project("v_proj", v)?])
    }
}

/// Splits the last axis into attention heads: `[batch, seq, heads * size]` to `[batch, seq, heads, size]`.
pub(crate) fn split_head_axis(g: &mut Builder<'_>, x: NodeId, heads: usize, size: usize) -> Result<NodeId> {
    let mut split: Vec<Dim> = g.tensor(x).shape.iter().take(2).cloned().collect();
    split.extend([Dim::from(heads), Dim::from(size)]);
    g.reshape(x, split)
}

/// Moves the axis of attention heads before the positions: `[batch, seq, heads, size]` to `[batch, heads, seq, size]`.
pub(crate) fn heads_first(g: &mut Builder<'_>, x: NodeId) -> Result<NodeId> {
    g.transpose(x, vec![0, 2, 1, 3])
}

/// Adds a soft cap, `cap * tanh(x / cap)`.
pub(super) fn apply_softcap(g: &mut Builder<'_>, x: NodeId, cap: f32) -> Result<NodeId> {
    let x = scaled(g, x, 1.0 / cap)?;
    let x = g.unary(UnaryFn::Tanh, x)?;
    scaled(g, x, cap)
}

/// Adds a linear layer `x * weight^T`, plus a bias if `bias` is set.
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
        linear_without_bias(g, weights, name, x, inputs, outputs)
    }
}

/// Adds a slice of the columns `first..first + count` of `x [batch, seq, columns]`.
pub(crate) fn slice_columns(g: &mut Builder<'_>, x: NodeId, first: usize, count: usize) -> Result<NodeId> {
    g.slice(x, 2, Dim::from(first), Dim::from(count))
}
