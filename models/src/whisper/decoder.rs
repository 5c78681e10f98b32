//! Decoder of Whisper: a language model with cross-attention over the hidden states of the encoder.

use driftc::error::Result;
use driftc::ir::builder::Builder;
use driftc::ir::dim::Dim;
use driftc::ir::element::BinaryFn;
use driftc::ir::graph::{Graph, NodeId};
use driftc::ir::op::{Attention, Concat, MatMul, Range};
use driftc::ir::tensor::DType;
use driftc::language::COUNT;

use super::network::{EPSILON, Projection, Whisper, cross_states, project};
use crate::blocks::{attention, embedding, layer_norm, linear, merge_heads, scaled, weight};
use crate::decoder::attention::{heads_first, slice_columns, split_head_axis};
use crate::decoder::generation::{LanguageModel, Sequence};
use crate::folder::Folder;
use crate::function_graph::state;
use crate::weights::Tensors;

/// Source of the keys and values of cross-attention.
pub(super) enum CrossSource {
    /// States that the function `encode` stores.
    States,
    /// Hidden states of the encoder, `[batch, frames / 2, hidden]`.
    Encoder(NodeId),
}

/// Decoder with the source of its cross-attention.
pub(super) struct Decoder<'a> {
    pub(super) whisper: &'a Whisper,
    pub(super) cross: CrossSource,
}

impl Whisper {
    /// Reads the alignment heads of `generation_config.json`, as pairs of layer and head. Word timestamps need them.
    pub(super) fn alignment_heads(&self, folder: &Folder) -> Result<Vec<(usize, usize)>> {
        let file = "generation_config.json";
        let Some(value) =
            folder.json(file)?.and_then(|mut json| Some(json.get_mut("alignment_heads")?.take()))
        else {
            return Ok(Vec::new());
        };
        if value.is_null() {
            return Ok(Vec::new());
        }
        let heads: Vec<(usize, usize)> = serde_json::from_value(value)
            .map_err(|_| folder.error(file, "`alignment_heads` is not a list of pairs of layer and head"))?;
        match heads.iter().find(|(layer, head)| *layer >= self.decoder.layers || *head >= self.decoder.heads)
        {
            None => Ok(heads),
            Some((layer, head)) => {
                let (layers, count) = (self.decoder.layers, self.decoder.heads);
                Err(folder.error(
                    file,
                    format!(
                        "`alignment_heads` has head {head} of layer {layer}, but the decoder has {layers} layers with {count} heads"
                    ),
                ))
            }
        }
    }
}

impl LanguageModel for Decoder<'_> {
    fn max_positions(&self) -> i64 {
        i64::try_from(self.whisper.config.max_target_positions).unwrap_or(i64::MAX)
    }

    fn logits(
        &self,
        g: &mut Builder<'_>,
        weights: &dyn Tensors,
        ids: NodeId,
        sequence: &Sequence,
        only: Option<Dim>,
    ) -> Result<NodeId> {
        let (whisper, stack) = (self.whisper, &self.whisper.decoder);
        let mut x = self.embed(g, weights, ids, sequence)?;
        for layer in 0..stack.layers {
            x = self.layer(g, weights, layer, (x, sequence))?.0;
        }
        if let Some(only) = only {
            x = g.slice(x, 1, only, Dim::known(1))?;
        }
        let prefix = format!("{}decoder", whisper.prefix);
        x = layer_norm(g, weights, &format!("{prefix}.layer_norm"), x, stack.hidden, EPSILON)?;
        g.name = "logits".into();
        let tied = format!("{prefix}.embed_tokens.weight");
        let head =
            if weights.has("proj_out.weight") && !weights.has(&tied) { "proj_out.weight" } else { &tied };
        let head = weight(g, weights, head, &[whisper.config.vocab_size, stack.hidden])?;
        g.add(MatMul { trans_a: false, trans_b: true }, &[x, head])
    }
}

/// Queries and keys of a cross-attention, each `[batch, positions, hidden]`.
struct CrossAttention {
    queries: NodeId,
    keys: NodeId,
}

impl Decoder<'_> {
    /// Adds the embeddings of tokens and positions, `[batch, seq, hidden]`.
    fn embed(
        &self,
        g: &mut Builder<'_>,
        w: &dyn Tensors,
        ids: NodeId,
        sequence: &Sequence,
    ) -> Result<NodeId> {
        let (config, hidden) = (&self.whisper.config, self.whisper.decoder.hidden);
        let prefix = format!("{}decoder", self.whisper.prefix);
        let x = embedding(g, w, &format!("{prefix}.embed_tokens"), ids, config.vocab_size, hidden)?;
        let Sequence { past, seq, .. } = sequence.clone();
        let positions = g.add(Range { dtype: DType::I64, start: past, step: 1, length: seq }, &[])?;
        let table = format!("{prefix}.embed_positions");
        let rows = embedding(g, w, &table, positions, config.max_target_positions, hidden)?;
        g.binary(BinaryFn::Add, x, rows)
    }

    /// Adds a layer of `x [batch, seq, hidden]`. Also returns the queries and keys of its cross-attention.
    fn layer(
        &self,
        g: &mut Builder<'_>,
        w: &dyn Tensors,
        layer: usize,
        (x, sequence): (NodeId, &Sequence),
    ) -> Result<(NodeId, CrossAttention)> {
        let stack = &self.whisper.decoder;
        let (hidden, heads) = (stack.hidden, stack.heads);
        let name = format!("{}decoder.layers.{layer}", self.whisper.prefix);
        let at = |part: &str| format!("{name}.{part}");
        let y = layer_norm(g, w, &at("self_attn_layer_norm"), x, hidden, EPSILON)?;
        let mut part = |part| {
            let y = project(g, w, &at("self_attn"), (part, y), hidden)?;
            split_head_axis(g, y, heads, hidden / heads)
        };
        let [q, k, v] = [part(Projection::Query)?, part(Projection::Key)?, part(Projection::Value)?];
        let k = sequence.cached(g, &at("self_attn.keys"), k)?;
        let v = sequence.cached(g, &at("self_attn.values"), v)?;
        g.name = at("self_attn");
        let qkv = [heads_first(g, q)?, heads_first(g, k)?, heads_first(g, v)?];
        let scale = 1.0 / libm::sqrtf((hidden / heads) as f32);
        let y = g.add(Attention { causal: true, ..Attention::plain(scale) }, &qkv)?;
        let y = merge_heads(g, y)?;
        let y = linear(g, w, &at("self_attn.out_proj"), y, hidden, hidden)?;
        let x = g.binary(BinaryFn::Add, x, y)?;

        let y = layer_norm(g, w, &at("encoder_attn_layer_norm"), x, hidden, EPSILON)?;
        let queries = project(g, w, &at("encoder_attn"), (Projection::Query, y), hidden)?;
        let [keys, values] = self.cross_keys_values(g, w, layer)?;
        g.name = at("encoder_attn");
        let y = attention(g, [queries, keys, values], heads, false)?;
        let y = linear(g, w, &at("encoder_attn.out_proj"), y, hidden, hidden)?;
        let x = g.binary(BinaryFn::Add, x, y)?;
        let x = stack.feed_forward(g, w, &name, x)?;
        Ok((x, CrossAttention { queries, keys }))
    }

    /// Adds the keys and values of the cross-attention of a layer, each `[batch, frames / 2, hidden]`.
    fn cross_keys_values(&self, g: &mut Builder<'_>, w: &dyn Tensors, layer: usize) -> Result<[NodeId; 2]> {
        let name = self.whisper.cross_attention(layer);
        let hidden = self.whisper.decoder.hidden;
        match self.cross {
            CrossSource::States => {
                let shape = [1, self.whisper.config.max_source_positions, hidden];
                let [keys, values] = cross_states(&name);
                Ok([state(g, &keys, &shape)?, state(g, &values, &shape)?])
            }
            CrossSource::Encoder(x) => {
                let mut part = |part| project(g, w, &name, (part, x), hidden);
                Ok([part(Projection::Key)?, part(Projection::Value)?])
            }
        }
    }

    /// Builds the function `align`: the cross-attention weights `[heads, count, frames / 2]` of some heads for the first `count`
    /// of the ids.
    pub(super) fn align(&self, w: &dyn Tensors, heads: &[(usize, usize)]) -> Result<Graph> {
        let mut graph = Graph::default();
        let positions = self.max_positions();
        let mut g = Builder::new(&mut graph, "ids");
        let ids = g.input("ids", DType::I32, vec![Dim::known(1), Dim::known(positions)])?;
        g.graph.bounds.insert(COUNT.to_string(), (1, positions));
        let seq = Dim::symbol(COUNT);
        let ids = g.slice(ids, 1, Dim::known(0), seq.clone())?;
        let sequence = Sequence { past: Dim::known(0), length: seq.clone(), seq: seq.clone(), context: None };
        let mut x = self.embed(&mut g, w, ids, &sequence)?;
        let layers = heads.iter().map(|(layer, _)| layer + 1).max().unwrap_or(0);
        let mut attentions = Vec::new();
        for layer in 0..layers {
            let (next, cross) = self.layer(&mut g, w, layer, (x, &sequence))?;
            attentions.push(cross);
            x = next;
        }
        g.name = "weights".into();
        let mut all = Vec::new();
        for (layer, head) in heads {
            if let Some(cross) = attentions.get(*layer) {
                all.push(self.head_weights(&mut g, cross, *head)?);
            }
        }
        let weights = g.add(Concat { axis: 0 }, &all)?;
        let weights = g.cast(weights, DType::F32)?;
        g.graph.add_output("weights", weights);
        // The last layer ends with the cross-attention; what follows is not needed.
        graph.sweep();
        Ok(graph)
    }

    /// Adds the attention weights `[1, seq, frames / 2]` of one head.
    fn head_weights(&self, g: &mut Builder<'_>, cross: &CrossAttention, head: usize) -> Result<NodeId> {
        let size = self.whisper.decoder.hidden / self.whisper.decoder.heads;
        let q = slice_columns(g, cross.queries, head * size, size)?;
        let q = scaled(g, q, 1.0 / libm::sqrtf(size as f32))?;
        let k = slice_columns(g, cross.keys, head * size, size)?;
        let scores = g.add(MatMul { trans_a: false, trans_b: true }, &[q, k])?;
        g.softmax(scores, 2)
    }
}
