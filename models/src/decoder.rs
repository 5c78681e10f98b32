//! Decoder-only language models: what they have in common, told apart by typed attributes.
//!
//! An architecture reads its configuration into a [`Decoder`] and hands it to [`build`]; [`generation`] says which entry
//! points come of it.
//!
//! ```text
//! embedding [* scale] -> layers -> norm -> head [softcap]
//! layer: x + [norm] attention(norm x), then x + [norm] feed(norm x)
//! ```

pub(crate) mod attention;
pub(crate) mod config;
pub(crate) mod feed;
pub(crate) mod generation;
pub(crate) mod rope;

use driftc::error::Result;
use driftc::ir::builder::Builder;
use driftc::ir::dim::Dim;
use driftc::ir::element::{BinaryFn, UnaryFn};
use driftc::ir::graph::NodeId;
use driftc::ir::op::{LayerNorm, MatMul};

use crate::blocks::{embedding, scaled, weight};
use crate::folder::Folder;
use crate::weights::Tensors;
use attention::SelfAttention;
use feed::Feed;
use generation::{LanguageModel, Sequence};
use rope::{Angles, Rope};

/// A decoder-only model.
#[derive(Debug, Clone)]
pub(crate) struct Decoder {
    /// Rows of the embedding, and logits of a position.
    pub(crate) vocab: usize,
    /// Elements of a row between layers.
    pub(crate) hidden: usize,
    /// Positions that the model knows.
    pub(crate) longest: i64,
    /// How rows are normalised.
    pub(crate) norm: Norm,
    /// Factor of the embedded tokens.
    pub(crate) embedding_scale: Option<f32>,
    /// Rotary embeddings, which layers name by number.
    pub(crate) ropes: Vec<Rope>,
    /// The layers in order.
    pub(crate) layers: Vec<Layer>,
    /// Whether the head is the embedding.
    pub(crate) tied: bool,
    /// `cap * tanh(logit / cap)`.
    pub(crate) softcap: Option<f32>,
}

/// Normalisation by the root mean square.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Norm {
    /// Added to the mean square.
    pub(crate) epsilon: f32,
    /// Added to the weight.
    pub(crate) offset: f32,
}

/// A layer.
#[derive(Debug, Clone)]
pub(crate) struct Layer {
    /// The first half.
    pub(crate) attention: SelfAttention,
    /// The second half.
    pub(crate) feed: Feed,
    /// Whether the results of both halves are normalised, too.
    pub(crate) post_norms: bool,
}

/// What the parts of a model need while they are built.
pub(crate) struct Parts<'a> {
    pub(crate) weights: &'a dyn Tensors,
    pub(crate) hidden: usize,
    pub(crate) norm: Norm,
    pub(crate) sequence: Sequence,
    /// Of each rotary embedding.
    pub(crate) angles: Vec<Angles>,
}

impl Parts<'_> {
    /// `x` normalised over its last axis of `size` with the tensor `name.weight`.
    pub(crate) fn normalise(
        &self,
        g: &mut Builder<'_>,
        name: &str,
        x: NodeId,
        size: usize,
    ) -> Result<NodeId> {
        g.name = name.to_string();
        let mut scale = weight(g, self.weights, &format!("{name}.weight"), &[size])?;
        if self.norm.offset != 0.0 {
            scale = g.unary(UnaryFn::Affine { scale: 1.0, shift: self.norm.offset }, scale)?;
        }
        let axis = g.tensor(x).rank().saturating_sub(1);
        g.add(LayerNorm { axis, epsilon: self.norm.epsilon, rms: true }, &[x, scale])
    }
}

/// Builds the graphs.
pub(crate) fn build(folder: &mut Folder, decoder: &Decoder) -> Result<()> {
    let beyond =
        format!("{}layers.{}.input_layernorm.weight", prefix(&*folder.weights), decoder.layers.len());
    if folder.weights.has(&beyond) {
        let reason = format!(
            "`num_hidden_layers` is {}, and the checkpoint has more: `{beyond}`",
            decoder.layers.len()
        );
        return Err(folder.error("config.json", reason));
    }
    generation::build(folder, decoder)
}

impl LanguageModel for Decoder {
    fn longest(&self) -> i64 {
        self.longest
    }

    fn steady(&self) -> i64 {
        self.ropes.iter().map(Rope::steady).min().unwrap_or(i64::MAX)
    }

    fn turn(&self, lengths: (i64, i64)) -> Option<i64> {
        self.ropes.iter().find_map(|rope| rope.turn(lengths))
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
        let parts =
            Parts { weights, hidden: self.hidden, norm: self.norm, sequence: sequence.clone(), angles };
        for (i, layer) in self.layers.iter().enumerate() {
            x = layer.apply(g, &parts, &format!("{prefix}layers.{i}"), x)?;
        }
        if let Some(only) = only {
            x = g.slice(x, 1, only, Dim::known(1))?;
        }
        x = parts.normalise(g, &format!("{prefix}norm"), x, self.hidden)?;
        let head = if self.tied { format!("{name}.weight") } else { head(weights) };
        g.name = "logits".into();
        let head = weight(g, weights, &head, &[self.vocab, self.hidden])?;
        let logits = g.add(MatMul { trans_a: false, trans_b: true }, &[x, head])?;
        match self.softcap {
            Some(cap) => attention::softcapped(g, logits, cap),
            None => Ok(logits),
        }
    }
}

impl Layer {
    fn apply(&self, g: &mut Builder<'_>, parts: &Parts<'_>, name: &str, x: NodeId) -> Result<NodeId> {
        let at = |part: &str| format!("{name}.{part}");
        let size = parts.hidden;
        let y = parts.normalise(g, &at("input_layernorm"), x, size)?;
        let mut y = self.attention.apply(g, parts, &at("self_attn"), y)?;
        let before_feed = if self.post_norms {
            y = parts.normalise(g, &at("post_attention_layernorm"), y, size)?;
            "pre_feedforward_layernorm"
        } else {
            "post_attention_layernorm"
        };
        let x = g.binary(BinaryFn::Add, y, x)?;
        let y = parts.normalise(g, &at(before_feed), x, size)?;
        let mut y = self.feed.apply(g, parts, name, y)?;
        if self.post_norms {
            y = parts.normalise(g, &at("post_feedforward_layernorm"), y, size)?;
        }
        g.binary(BinaryFn::Add, y, x)
    }
}

/// What stands before the names of the text model's tensors; checkpoints of several modalities have their own.
fn prefix(weights: &dyn Tensors) -> &'static str {
    const PREFIXES: [&str; 4] = ["model.", "language_model.model.", "model.language_model.", ""];
    PREFIXES.into_iter().find(|p| weights.has(&format!("{p}embed_tokens.weight"))).unwrap_or("model.")
}

/// The name of the head's tensor.
fn head(weights: &dyn Tensors) -> String {
    let nested = "language_model.lm_head.weight";
    if weights.has(nested) { nested.into() } else { "lm_head.weight".into() }
}
