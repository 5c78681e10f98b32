//! Causal self-attention with shared key heads, rotary embeddings, windows and soft caps.

use driftc::error::Result;
use driftc::ir::builder::Builder;
use driftc::ir::dim::Dim;
use driftc::ir::element::{BinaryFn, UnaryFn};
use driftc::ir::graph::NodeId;
use driftc::ir::op::{Attention, MatMul, Range};
use driftc::ir::tensor::DType;

use super::Parts;
use super::generation::Sequence;
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
        parts: &mut Parts<'_>,
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
        let mask = match self.window {
            Some(window) => parts.mask(g, window)?,
            None => None,
        };
        let q = heads_first(g, q)?;
        let k = heads_first(g, k)?;
        let v = heads_first(g, v)?;
        let y = attend(g, [q, k, v], self.scale, self.softcap, mask, &parts.sequence)?;
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

impl Parts<'_> {
    /// What hides keys before a window, `[seq, keys]` to be added to scores; none where no position has so many.
    fn mask(&mut self, g: &mut Builder<'_>, window: i64) -> Result<Option<NodeId>> {
        if self.sequence.keys().range(&g.graph.bounds).1 <= window {
            return Ok(None);
        }
        if let Some(mask) = self.masks.get(&window) {
            return Ok(Some(*mask));
        }
        let Sequence { past, seq, .. } = self.sequence.clone();
        let first = past.plus(1 - window);
        let rows = Range { dtype: DType::I64, start: first, step: 1, length: seq.clone() };
        let rows = g.add(rows, &[])?;
        let rows = g.reshape(rows, vec![seq, Dim::known(1)])?;
        let keys = Range { dtype: DType::I64, start: Dim::known(0), step: 1, length: self.sequence.keys() };
        let keys = g.add(keys, &[])?;
        let seen = g.binary(BinaryFn::GreaterEqual, keys, rows)?;
        let zero = g.scalar(DType::F32, 0.0)?;
        let never = g.scalar(DType::F32, f32::NEG_INFINITY)?;
        let mask = g.select(seen, zero, never)?;
        self.masks.insert(window, mask);
        Ok(Some(mask))
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

/// Causal attention of `q [B, H, S, D]` over `k` and `v [B, Hk, T, D]`, the last `S` of whose positions are those of `q`.
pub(crate) fn attend(
    g: &mut Builder<'_>,
    [q, k, v]: [NodeId; 3],
    scale: f32,
    softcap: Option<f32>,
    mask: Option<NodeId>,
    sequence: &Sequence,
) -> Result<NodeId> {
    let Some(cap) = softcap else {
        let mut operands = vec![q, k, v];
        operands.extend(mask);
        return g.add(Attention { scale, causal: true }, &operands);
    };
    // Query heads that share a key head are rows of one product.
    let (queries, keys) = (g.tensor(q).shape.clone(), g.tensor(k).shape.clone());
    let [batch, heads, seq, size] = queries.as_slice() else { return Ok(q) };
    let [_, kv_heads, length, _] = keys.as_slice() else { return Ok(q) };
    let shared = heads.div_exact(kv_heads).unwrap_or(Dim::known(1));
    let rows = shared.mul(seq);
    let q = g.reshape(q, vec![batch.clone(), kv_heads.clone(), rows.clone(), size.clone()])?;
    let scores = g.add(MatMul { trans_a: false, trans_b: true }, &[q, k])?;
    let scores = scaled(g, scores, scale)?;
    let scores = softcapped(g, scores, cap)?;
    let split = vec![batch.clone(), kv_heads.clone(), shared, seq.clone(), length.clone()];
    let scores = g.reshape(scores, split)?;
    let mut all = causal_mask(g, sequence)?;
    if let Some(mask) = mask {
        all = g.binary(BinaryFn::Add, all, mask)?;
    }
    let scores = g.binary(BinaryFn::Add, scores, all)?;
    let weights = g.softmax(scores, 4)?;
    let weights = g.reshape(weights, vec![batch.clone(), kv_heads.clone(), rows, length.clone()])?;
    let y = g.matmul(weights, v)?;
    g.reshape(y, queries)
}

/// What hides later keys, `[seq, keys]` to be added to scores.
fn causal_mask(g: &mut Builder<'_>, sequence: &Sequence) -> Result<NodeId> {
    let Sequence { past, seq, .. } = sequence.clone();
    let rows = g.add(Range { dtype: DType::I64, start: past, step: 1, length: seq.clone() }, &[])?;
    let rows = g.reshape(rows, vec![seq, Dim::known(1)])?;
    let keys = Range { dtype: DType::I64, start: Dim::known(0), step: 1, length: sequence.keys() };
    let keys = g.add(keys, &[])?;
    let seen = g.binary(BinaryFn::LessEqual, keys, rows)?;
    let zero = g.scalar(DType::F32, 0.0)?;
    let never = g.scalar(DType::F32, f32::NEG_INFINITY)?;
    g.select(seen, zero, never)
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
