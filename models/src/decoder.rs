//! Decoder-only language models: the common structure, with typed options for the differences.
//!
//! An architecture reads its configuration into a [`Decoder`] and passes it to [`build`]. [`generation`] builds the
//! entry points.
//!
//! ```text
//! embedding [* scale] -> layers -> norm -> head [softcap]
//! layer: x + [norm] attention(norm x), then x + [norm] feed_forward(norm x)
//! ```

pub(crate) mod attention;
pub(crate) mod config;
pub(crate) mod context;
pub(crate) mod feed_forward;
pub(crate) mod generation;
pub(crate) mod rope;

use driftc::error::Result;
use driftc::ir::builder::Builder;
use driftc::ir::dim::Dim;
use driftc::ir::element::BinaryFn;
use driftc::ir::graph::NodeId;
use driftc::ir::op::MatMul;

use crate::blocks::{embedding, scaled, weight};
use crate::folder::Folder;
use crate::weights::Tensors;
use context::{BuildContext, Decoder, Layer};
use generation::{LanguageModel, Sequence};
use rope::Rope;

/// Builds the graphs of a decoder-only language model: the whole graph, and the functions that generate text.
pub(crate) fn build(folder: &mut Folder, decoder: &Decoder) -> Result<()> {
    let extra_layer =
        format!("{}layers.{}.input_layernorm.weight", prefix(&*folder.weights), decoder.layers.len());
    if folder.weights.has(&extra_layer) {
        let reason = format!(
            "`num_hidden_layers` is {}, but the checkpoint has more layers: `{extra_layer}`",
            decoder.layers.len()
        );
        return Err(folder.error("config.json", reason));
    }
    generation::build(folder, decoder)
}

impl LanguageModel for Decoder {
    fn max_positions(&self) -> i64 {
        self.max_positions
    }

    fn max_static_length(&self) -> i64 {
        self.ropes.iter().map(Rope::max_static_length).min().unwrap_or(i64::MAX)
    }

    fn switch_length(&self, lengths: (i64, i64)) -> Option<i64> {
        self.ropes.iter().find_map(|rope| rope.switch_length(lengths))
    }

    fn check(&self, lengths: (i64, i64)) -> std::result::Result<(), String> {
        self.ropes.iter().try_for_each(|rope| rope.check(lengths))
    }

    fn logits(
        &self,
        g: &mut Builder<'_>,
        weights: &dyn Tensors,
        ids: NodeId,
        sequence: &Sequence,
        only: Option<Dim>,
    ) -> Result<NodeId> {
        let prefix = prefix(weights);
        let name = format!("{prefix}embed_tokens");
        let mut x = embedding(g, weights, &name, ids, self.vocab, self.hidden)?;
        if let Some(scale) = self.embedding_scale {
            x = scaled(g, x, scale)?;
        }
        let angles = self.ropes.iter().map(|rope| rope.angles(g, sequence)).collect::<Result<_>>()?;
        let context = BuildContext {
            weights,
            hidden: self.hidden,
            norm: self.norm,
            sequence: sequence.clone(),
            angles,
        };
        for (i, layer) in self.layers.iter().enumerate() {
            x = layer.apply(g, &context, &format!("{prefix}layers.{i}"), x)?;
        }
        if let Some(only) = only {
            x = g.slice(x, 1, only, Dim::known(1))?;
        }
        x = context.rms_norm(g, &format!("{prefix}norm"), x, self.hidden)?;
        let head = if self.tied_embeddings { format!("{name}.weight") } else { head(weights) };
        g.name = "logits".into();
        let head = weight(g, weights, &head, &[self.vocab, self.hidden])?;
        let logits = g.add(MatMul { trans_a: false, trans_b: true }, &[x, head])?;
        match self.softcap {
            Some(cap) => attention::apply_softcap(g, logits, cap),
            None => Ok(logits),
        }
    }
}

impl Layer {
    fn apply(
        &self,
        g: &mut Builder<'_>,
        context: &BuildContext<'_>,
        name: &str,
        x: NodeId,
    ) -> Result<NodeId> {
        let at = |part: &str| format!("{name}.{part}");
        let size = context.hidden;
        let y = context.rms_norm(g, &at("input_layernorm"), x, size)?;
        let mut y = self.attention.apply(g, context, &at("self_attn"), y)?;
        let feed_forward_norm = if self.post_norms {
            y = context.rms_norm(g, &at("post_attention_layernorm"), y, size)?;
            "pre_feedforward_layernorm"
        } else {
            "post_attention_layernorm"
        };
        let x = g.binary(BinaryFn::Add, y, x)?;
        let y = context.rms_norm(g, &at(feed_forward_norm), x, size)?;
        let mut y = self.feed_forward.apply(g, context, name, y)?;
        if self.post_norms {
            y = context.rms_norm(g, &at("post_feedforward_layernorm"), y, size)?;
        }
        g.binary(BinaryFn::Add, y, x)
    }
}

/// Returns the prefix of the text model's tensor names in a checkpoint. Multimodal checkpoints use other prefixes than text-only
/// checkpoints.
fn prefix(weights: &dyn Tensors) -> &'static str {
    const PREFIXES: [&str; 4] = ["model.", "language_model.model.", "model.language_model.", ""];
    PREFIXES.into_iter().find(|p| weights.has(&format!("{p}embed_tokens.weight"))).unwrap_or("model.")
}

/// Returns the name of the tensor that maps hidden states to logits (the output head).
fn head(weights: &dyn Tensors) -> String {
    let nested = "language_model.lm_head.weight";
    if weights.has(nested) { nested.into() } else { "lm_head.weight".into() }
}
