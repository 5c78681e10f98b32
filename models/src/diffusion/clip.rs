//! Text encoder of CLIP: transformers' classes `CLIPTextModel` and `CLIPTextModelWithProjection`.

use driftc::error::Result;
use driftc::ir::array::Array;
use driftc::ir::builder::Builder;
use driftc::ir::dim::Dim;
use driftc::ir::graph::NodeId;
use driftc::ir::op::{ArgReduce, BinaryFn, Gather, UnaryFn};
use driftc::ir::tensor::DType;

use super::config::TextConfig;
use crate::blocks::{attention, embedding, layer_norm, linear, linear_without_bias, size, weight};
use crate::weights::Tensors;

/// Factor inside the sigmoid of the activation quick GELU, `x * sigmoid(1.702 x)`.
const ALPHA: f32 = 1.702;
/// Value of `eos_token_id` in old configurations, where the end token is the token with the largest id.
const OLD_END: i64 = 2;

/// Hidden states `[batch, tokens, hidden]` of a text.
pub(crate) struct EncodedText {
    /// Hidden state after the last layer and the final norm.
    pub(crate) last: NodeId,
    /// Hidden state before the last layer.
    pub(crate) penultimate: NodeId,
}

impl TextConfig {
    /// Adds the text encoder for token ids `[batch, tokens]`.
    ///
    /// # Errors
    /// If a weight is missing or has another shape.
    pub(crate) fn build(&self, g: &mut Builder<'_>, w: &dyn Tensors, ids: NodeId) -> Result<EncodedText> {
        let prefix = self.prefix(w);
        let hidden = self.hidden_size;
        let table = format!("{prefix}embeddings.token_embedding");
        let x = embedding(g, w, &table, ids, self.vocab_size, hidden)?;
        g.name = format!("{prefix}embeddings.position_embedding");
        let name = format!("{}.weight", g.name);
        let mut positions = weight(g, w, &name, &[self.max_position_embeddings, hidden])?;
        let tokens = size(g, ids, 1)?;
        if tokens < self.max_position_embeddings {
            positions = g.slice(positions, 0, Dim::known(0), tokens.into())?;
        }
        let mut x = g.binary(BinaryFn::Add, x, positions)?;
        let mut penultimate = x;
        for layer in 0..self.num_hidden_layers {
            penultimate = x;
            x = self.layer(g, w, &format!("{prefix}encoder.layers.{layer}"), x)?;
        }
        let last = layer_norm(g, w, &format!("{prefix}final_layer_norm"), x, hidden, self.layer_norm_eps)?;
        Ok(EncodedText { last, penultimate })
    }

    /// Prefix of the names of all tensors but the projection. Newer files of `CLIPTextModel` have none.
    fn prefix(&self, w: &dyn Tensors) -> &'static str {
        match w.has("text_model.embeddings.token_embedding.weight") {
            true => "text_model.",
            false => "",
        }
    }

    fn layer(&self, g: &mut Builder<'_>, w: &dyn Tensors, name: &str, x: NodeId) -> Result<NodeId> {
        let at = |part: &str| format!("{name}.{part}");
        let (hidden, inner, epsilon) = (self.hidden_size, self.intermediate_size, self.layer_norm_eps);
        let y = layer_norm(g, w, &at("layer_norm1"), x, hidden, epsilon)?;
        let mut project =
            |part: &str| linear(g, w, &at(&format!("self_attn.{part}_proj")), y, hidden, hidden);
        let qkv = [project("q")?, project("k")?, project("v")?];
        g.name = at("self_attn");
        let y = attention(g, qkv, self.num_attention_heads, true)?;
        let y = linear(g, w, &at("self_attn.out_proj"), y, hidden, hidden)?;
        let x = g.binary(BinaryFn::Add, x, y)?;
        let y = layer_norm(g, w, &at("layer_norm2"), x, hidden, epsilon)?;
        let y = linear(g, w, &at("mlp.fc1"), y, hidden, inner)?;
        let y = match self.hidden_act.as_str() {
            "gelu" => g.unary(UnaryFn::Gelu, y)?,
            _ => g.unary(UnaryFn::Swish { alpha: ALPHA }, y)?,
        };
        let y = linear(g, w, &at("mlp.fc2"), y, inner, hidden)?;
        g.binary(BinaryFn::Add, x, y)
    }

    /// Adds the text embedding `[batch, projection]`: the last hidden state of each end token, projected.
    ///
    /// # Errors
    /// If a weight is missing or has another shape.
    pub(crate) fn pooled(
        &self,
        g: &mut Builder<'_>,
        w: &dyn Tensors,
        ids: NodeId,
        last: NodeId,
    ) -> Result<NodeId> {
        g.name = "text_embeds".into();
        let (batch, tokens, hidden) = (size(g, last, 0)?, size(g, last, 1)?, self.hidden_size);
        let ids = g.cast(ids, DType::I32)?;
        let scores = match self.eos_token_id {
            OLD_END => ids,
            end => {
                let end = g.constant(&Array::int(DType::I32, &[1], vec![end]))?;
                let is_end = g.binary(BinaryFn::Equal, ids, end)?;
                g.cast(is_end, DType::I32)?
            }
        };
        let ends = g.add(ArgReduce { axis: 1, largest: true, last: false, keepdims: false }, &[scores])?;
        let starts = (0..batch).map(|row| i64::try_from(row * tokens).unwrap_or(0)).collect();
        let starts = g.constant(&Array::int(DType::I64, &[batch], starts))?;
        let rows = g.binary(BinaryFn::Add, ends, starts)?;
        let all = g.reshape(last, vec![Dim::from(batch * tokens), hidden.into()])?;
        let pooled = g.add(Gather { axis: 0 }, &[all, rows])?;
        let projection = self.projection_dim.unwrap_or(hidden);
        linear_without_bias(g, w, "text_projection", pooled, hidden, projection)
    }
}
