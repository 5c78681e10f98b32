//! `BertModel`: the encoder of BERT, MiniLM and most sentence-embedding models.
//!
//! Inputs: `input_ids`, `attention_mask` and, if the model has token types, `token_type_ids`, each `[batch, seq]`.
//! Outputs: `last_hidden_state [batch, seq, hidden]`; `pooler_output [batch, hidden]` if the checkpoint has a pooler;
//! and `sentence_embedding [batch, hidden]` if `modules.json` describes a sentence transformer. The sentence embedding
//! is the mean over unmasked tokens, and it is L2-normalized if the modules ask for it.

use std::rc::Rc;

use driftc::error::Result;
use driftc::ir::builder::Builder;
use driftc::ir::dim::Dim;
use driftc::ir::element::{BinaryFn, UnaryFn};
use driftc::ir::graph::NodeId;
use driftc::ir::op::{Attention, Range};
use driftc::ir::ops::reduce::ReduceKind;
use driftc::ir::tensor::DType;
use serde::Deserialize;

use crate::blocks::{additive_mask, embedding, layer_norm, linear, merge_heads, split_heads};
use crate::folder::Folder;
use crate::weights::Tensors;

/// Upper bound of the sequence length `seq` if the user gives none.
const DEFAULT_MAX_SEQ: i64 = 256;

#[derive(Debug, Deserialize)]
struct Config {
    vocab_size: usize,
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    intermediate_size: usize,
    max_position_embeddings: usize,
    #[serde(default = "default_type_vocab_size")]
    type_vocab_size: usize,
    #[serde(default = "default_epsilon")]
    layer_norm_eps: f32,
    #[serde(default = "default_activation")]
    hidden_act: String,
    #[serde(default)]
    position_embedding_type: Option<String>,
}

fn default_type_vocab_size() -> usize {
    2
}

fn default_epsilon() -> f32 {
    1e-12
}

fn default_activation() -> String {
    "gelu".into()
}

/// Checks that the architecture supports a configuration, and returns the activation function of its encoder layers.
///
/// # Errors
/// The reason, if the configuration is not supported.
fn checked_activation(config: &Config) -> std::result::Result<UnaryFn, String> {
    let (hidden, heads) = (config.hidden_size, config.num_attention_heads);
    if heads == 0 || hidden % heads != 0 {
        return Err(format!("`hidden_size` {hidden} is not a multiple of the number of heads, {heads}"));
    }
    if config.num_hidden_layers > 1000 {
        let layers = config.num_hidden_layers;
        return Err(format!("`num_hidden_layers` is {layers}; at most 1000 layers are supported"));
    }
    if config.position_embedding_type.as_deref().is_some_and(|t| t != "absolute") {
        return Err("`position_embedding_type` is not `absolute`, the only supported type".into());
    }
    match config.hidden_act.as_str() {
        "gelu" => Ok(UnaryFn::Gelu),
        "gelu_new" | "gelu_pytorch_tanh" => Ok(UnaryFn::GeluTanh),
        "relu" => Ok(UnaryFn::Relu),
        "silu" | "swish" => Ok(UnaryFn::Swish { alpha: 1.0 }),
        other => Err(format!("activation `{other}` is not supported")),
    }
}

/// Builds the graph of a `BertModel` folder.
pub(crate) fn build(folder: &mut Folder) -> Result<()> {
    let config: Config = folder.config(&serde_json::Value::Null)?;
    let activation = checked_activation(&config).map_err(|reason| folder.error("config.json", reason))?;
    let hidden = config.hidden_size;
    let max_positions = i64::try_from(config.max_position_embeddings).unwrap_or(i64::MAX);
    let batch = folder.dim("batch", (1, 1))?;
    let seq = folder.dim("seq", (1, max_positions.min(DEFAULT_MAX_SEQ)))?;
    if seq.range(&folder.graph.bounds).1 > max_positions {
        let reason = format!(
            "the sequence length `seq` may reach {seq}, but the model supports {max_positions} positions"
        );
        return Err(folder.error("config.json", reason));
    }
    let modules = folder.json("modules.json")?;
    let pooling = folder.json("1_Pooling/config.json")?;
    let prefix = if folder.weights.has("bert.embeddings.word_embeddings.weight") { "bert." } else { "" };
    let weights = Rc::clone(&folder.weights);
    let weights = &*weights;
    let mut g = Builder::new(&mut folder.graph, "embeddings");

    let shape = vec![batch.clone(), seq.clone()];
    let ids = g.input("input_ids", DType::I64, shape.clone())?;
    let mask = g.input("attention_mask", DType::I64, shape.clone())?;
    let name = |part: &str| format!("{prefix}embeddings.{part}");
    let mut x = embedding(&mut g, weights, &name("word_embeddings"), ids, config.vocab_size, hidden)?;
    if config.type_vocab_size > 0 {
        let types = g.input("token_type_ids", DType::I64, shape)?;
        let t = embedding(
            &mut g,
            weights,
            &name("token_type_embeddings"),
            types,
            config.type_vocab_size,
            hidden,
        )?;
        x = g.binary(BinaryFn::Add, x, t)?;
    }
    let positions = g.add(Range { dtype: DType::I64, start: Dim::known(0), step: 1, length: seq }, &[])?;
    let rows = config.max_position_embeddings;
    let p = embedding(&mut g, weights, &name("position_embeddings"), positions, rows, hidden)?;
    x = g.binary(BinaryFn::Add, x, p)?;
    x = layer_norm(&mut g, weights, &name("LayerNorm"), x, hidden, config.layer_norm_eps)?;

    let scores = additive_mask(&mut g, mask)?;
    for layer in 0..config.num_hidden_layers {
        let name = format!("{prefix}encoder.layer.{layer}");
        x = encoder_layer(&mut g, weights, &name, &config, activation, [x, scores])?;
    }
    g.graph.add_output("last_hidden_state", x);
    let pooler = format!("{prefix}pooler.dense");
    if weights.has(&format!("{pooler}.weight")) {
        g.name.clone_from(&pooler);
        let first = g.slice(x, 1, Dim::known(0), Dim::known(1))?;
        let first = g.reshape(first, vec![batch, Dim::from(hidden)])?;
        let y = linear(&mut g, weights, &pooler, first, hidden, hidden)?;
        let y = g.unary(UnaryFn::Tanh, y)?;
        g.graph.add_output("pooler_output", y);
    }
    if let Some(pooling) = Pooling::read(modules.as_ref(), pooling.as_ref()) {
        let y = pooled_tokens(&mut g, x, mask, &pooling)?;
        g.graph.add_output("sentence_embedding", y);
    }
    Ok(())
}

/// Adds a layer of the encoder. `x` is the layer's input; `scores` is the additive mask of the attention scores.
fn encoder_layer(
    g: &mut Builder<'_>,
    weights: &dyn Tensors,
    name: &str,
    config: &Config,
    activation: UnaryFn,
    [x, scores]: [NodeId; 2],
) -> Result<NodeId> {
    let (hidden, heads) = (config.hidden_size, config.num_attention_heads);
    let size = hidden / heads;
    let at = |part: &str| format!("{name}.{part}");
    let project = |g: &mut Builder<'_>, part: &str| {
        let y = linear(g, weights, &at(&format!("attention.self.{part}")), x, hidden, hidden)?;
        split_heads(g, y, heads, size)
    };
    let q = project(g, "query")?;
    let k = project(g, "key")?;
    let v = project(g, "value")?;
    g.name = at("attention.self");
    let scale = 1.0 / (size as f32).sqrt();
    let a = g.add(Attention::plain(scale), &[q, k, v, scores])?;
    let a = merge_heads(g, a)?;
    let a = linear(g, weights, &at("attention.output.dense"), a, hidden, hidden)?;
    let a = g.binary(BinaryFn::Add, a, x)?;
    let x = layer_norm(g, weights, &at("attention.output.LayerNorm"), a, hidden, config.layer_norm_eps)?;
    let inner = config.intermediate_size;
    let y = linear(g, weights, &at("intermediate.dense"), x, hidden, inner)?;
    let y = g.unary(activation, y)?;
    let y = linear(g, weights, &at("output.dense"), y, inner, hidden)?;
    let y = g.binary(BinaryFn::Add, y, x)?;
    layer_norm(g, weights, &at("output.LayerNorm"), y, hidden, config.layer_norm_eps)
}

/// Pooling of a sentence transformer.
struct Pooling {
    /// Vector of the text: the mean of the unmasked tokens, or the first token (CLS).
    kind: PoolingKind,
    /// L2-normalize the vector of the text.
    normalize: bool,
}

enum PoolingKind {
    Mean,
    FirstToken,
}

impl Pooling {
    /// Reads the modules of a sentence transformer. Returns `None` if they pool tokens in another way.
    fn read(modules: Option<&serde_json::Value>, pooling: Option<&serde_json::Value>) -> Option<Self> {
        let types: Vec<&str> = modules?.as_array()?.iter().filter_map(|m| m.get("type")?.as_str()).collect();
        if !types.iter().any(|t| t.ends_with("Pooling")) {
            return None;
        }
        let mode = |name: &str| pooling.and_then(|p| p.get(name)?.as_bool()).unwrap_or(false);
        let kind = match (mode("pooling_mode_mean_tokens"), mode("pooling_mode_cls_token")) {
            (true, false) => PoolingKind::Mean,
            (false, true) => PoolingKind::FirstToken,
            // No pooling, or several vectors one after the other.
            (false, false) | (true, true) => return None,
        };
        Some(Self { kind, normalize: types.iter().any(|t| t.ends_with("Normalize")) })
    }
}

/// Adds the vector of the text to the tokens `x [batch, seq, hidden]`.
fn pooled_tokens(g: &mut Builder<'_>, x: NodeId, mask: NodeId, pooling: &Pooling) -> Result<NodeId> {
    g.name = "sentence_embedding".into();
    let vector = match pooling.kind {
        PoolingKind::Mean => mean_of_tokens(g, x, mask)?,
        PoolingKind::FirstToken => {
            let first = g.slice(x, 1, Dim::known(0), Dim::known(1))?;
            let shape = &g.tensor(x).shape;
            let shape = [shape.first(), shape.last()].into_iter().flatten().cloned().collect();
            g.reshape(first, shape)?
        }
    };
    if pooling.normalize { l2_normalized(g, vector) } else { Ok(vector) }
}

/// Adds the mean of `x [batch, seq, hidden]` over unmasked tokens.
fn mean_of_tokens(g: &mut Builder<'_>, x: NodeId, mask: NodeId) -> Result<NodeId> {
    let mask = g.cast(mask, DType::F32)?;
    let mut shape = g.tensor(mask).shape.clone();
    shape.push(Dim::known(1));
    let mask = g.reshape(mask, shape)?;
    let unmasked = g.binary(BinaryFn::Mul, x, mask)?;
    let sum = g.reduce(ReduceKind::Sum, unmasked, vec![1], false)?;
    let count = g.reduce(ReduceKind::Sum, mask, vec![1], false)?;
    let count = g.unary(UnaryFn::Clip { low: 1e-9, high: f32::INFINITY }, count)?;
    g.binary(BinaryFn::Div, sum, count)
}

/// Adds the L2 normalization of `x [batch, hidden]`.
fn l2_normalized(g: &mut Builder<'_>, x: NodeId) -> Result<NodeId> {
    let length = g.reduce(ReduceKind::L2, x, vec![1], true)?;
    let length = g.unary(UnaryFn::Clip { low: 1e-12, high: f32::INFINITY }, length)?;
    g.binary(BinaryFn::Div, x, length)
}
