//! Decoder-only language models: what they have in common, told apart by typed attributes.
//!
//! Input `input_ids [batch, seq]`, output `logits [batch, seq, vocab]`: every position sees itself and those before it.
//! An architecture reads its configuration into a [`Decoder`] and hands it to [`build`].
//!
//! ```text
//! embedding [* scale] -> layers -> norm -> head [softcap]
//! layer: x + [norm] attention(norm x), then x + [norm] feed(norm x)
//! ```

pub(crate) mod attention;
pub(crate) mod config;
pub(crate) mod feed;
pub(crate) mod rope;

use std::collections::BTreeMap;
use std::rc::Rc;

use driftc::error::Result;
use driftc::ir::builder::Builder;
use driftc::ir::dim::Dim;
use driftc::ir::element::{BinaryFn, UnaryFn};
use driftc::ir::graph::NodeId;
use driftc::ir::op::{LayerNorm, MatMul};
use driftc::ir::tensor::DType;

use crate::blocks::{embedding, scaled, weight};
use crate::folder::Folder;
use crate::weights::Tensors;
use attention::SelfAttention;
use feed::Feed;
use rope::{Angles, Rope};

/// Longest sequence that a bundle is made for unless the user asks for another.
const DEFAULT_SEQ: i64 = 256;

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

/// Which positions a run computes: `seq` of them after `past` that were computed before.
#[derive(Debug, Clone)]
pub(crate) struct Sequence {
    pub(crate) past: Dim,
    pub(crate) seq: Dim,
}

impl Sequence {
    /// Keys that the last position sees.
    pub(crate) fn keys(&self) -> Dim {
        self.past.add(&self.seq)
    }
}

/// What the parts of a model need while they are built.
pub(crate) struct Parts<'a> {
    pub(crate) weights: &'a dyn Tensors,
    pub(crate) hidden: usize,
    pub(crate) norm: Norm,
    pub(crate) sequence: Sequence,
    /// Of each rotary embedding.
    pub(crate) angles: Vec<Angles>,
    /// What is added to scores, by window.
    pub(crate) masks: BTreeMap<i64, NodeId>,
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

/// Builds the graph.
pub(crate) fn build(folder: &mut Folder, decoder: &Decoder) -> Result<()> {
    let batch = folder.dim("batch", (1, 1))?;
    let usual = decoder.ropes.iter().fold(DEFAULT_SEQ, |usual, rope| usual.min(rope.steady()));
    let seq = folder.positions("seq", decoder.longest, usual)?;
    let weights = Rc::clone(&folder.weights);
    let prefix = prefix(&*weights);
    let sequence = Sequence { past: Dim::known(0), seq: seq.clone() };
    let reach = sequence.keys().range(&folder.graph.bounds);
    for rope in &decoder.ropes {
        rope.check(reach).map_err(|reason| folder.error("config.json", reason))?;
    }
    let mut g = Builder::new(&mut folder.graph, "embedding");
    let ids = g.input("input_ids", DType::I64, vec![batch, seq])?;
    let name = format!("{prefix}embed_tokens");
    let mut x = embedding(&mut g, &*weights, &name, ids, decoder.vocab, decoder.hidden)?;
    if let Some(scale) = decoder.embedding_scale {
        x = scaled(&mut g, x, scale)?;
    }
    let angles = decoder.ropes.iter().map(|rope| rope.angles(&mut g, &sequence)).collect::<Result<_>>()?;
    let mut parts = Parts {
        weights: &*weights,
        hidden: decoder.hidden,
        norm: decoder.norm,
        sequence,
        angles,
        masks: BTreeMap::new(),
    };
    for (i, layer) in decoder.layers.iter().enumerate() {
        x = layer.apply(&mut g, &mut parts, &format!("{prefix}layers.{i}"), x)?;
    }
    x = parts.normalise(&mut g, &format!("{prefix}norm"), x, decoder.hidden)?;
    let head = if decoder.tied { format!("{name}.weight") } else { head(&*weights) };
    g.name = "logits".into();
    let head = weight(&mut g, &*weights, &head, &[decoder.vocab, decoder.hidden])?;
    let mut logits = g.add(MatMul { trans_a: false, trans_b: true }, &[x, head])?;
    if let Some(cap) = decoder.softcap {
        logits = attention::softcapped(&mut g, logits, cap)?;
    }
    g.graph.add_output("logits", logits);
    Ok(())
}

impl Layer {
    fn apply(&self, g: &mut Builder<'_>, parts: &mut Parts<'_>, name: &str, x: NodeId) -> Result<NodeId> {
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
        let mut y = self.feed.apply(g, parts.weights, name, y, size)?;
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
