//! `BertModel`: the encoder of BERT, MiniLM and most sentence-embedding models.
//!
//! Inputs `input_ids`, `attention_mask` and, where the model knows types, `token_type_ids`, each `[batch, seq]`.
//! Outputs `last_hidden_state [batch, seq, hidden]`; `pooler_output [batch, hidden]` when the checkpoint has a pooler;
//! and `sentence_embedding [batch, hidden]` when the folder's `modules.json` says that it is a sentence transformer
//! (mean of the tokens the mask keeps, and normalisation to length one where the modules ask for it).

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

/// Longest sequence that a bundle is made for unless the user asks for another.
const DEFAULT_SEQ: i64 = 256;

#[derive(Debug, Deserialize)]
struct Config {
    vocab_size: usize,
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    intermediate_size: usize,
    max_position_embeddings: usize,
    #[serde(default = "two")]
    type_vocab_size: usize,
    #[serde(default = "epsilon")]
    layer_norm_eps: f32,
    #[serde(default = "gelu")]
    hidden_act: String,
    #[serde(default)]
    position_embedding_type: Option<String>,
}

fn two() -> usize {
    2
}

fn epsilon() -> f32 {
    1e-12
}

fn gelu() -> String {
    "gelu".into()
}

/// Builds the graph.
pub(crate) fn build(folder: &mut Folder) -> Result<()> {
    let config: Config = folder.config(&serde_json::Value::Null)?;
    let refuse = |folder: &Folder, reason: String| Err(folder.error("config.json", reason));
    let (hidden, heads) = (config.hidden_size, config.num_attention_heads);
    if heads == 0 || hidden % heads != 0 {
        return refuse(folder, format!("{heads} heads do not divide a hidden size of {hidden}"));
    }
    if config.num_hidden_layers > 1000 {
        return refuse(folder, format!("{} layers are more than 1000", config.num_hidden_layers));
    }
    if config.position_embedding_type.as_deref().is_some_and(|t| t != "absolute") {
        return refuse(folder, "only absolute position embeddings are supported".into());
    }
    let activation = match config.hidden_act.as_str() {
        "gelu" => UnaryFn::Gelu,
        "gelu_new" | "gelu_pytorch_tanh" => UnaryFn::GeluTanh,
        "relu" => UnaryFn::Relu,
        "silu" | "swish" => UnaryFn::Swish { alpha: 1.0 },
        other => return refuse(folder, format!("activation `{other}` is not supported")),
    };
    let longest = i64::try_from(config.max_position_embeddings).unwrap_or(i64::MAX);
    let batch = folder.dim("batch", (1, 1))?;
    let seq = folder.dim("seq", (1, longest.min(DEFAULT_SEQ)))?;
    if seq.range(&folder.graph.bounds).1 > longest {
        return refuse(folder, format!("`seq` may reach {seq}, past the {longest} positions of the model"));
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
    let size = hidden / heads;
    for layer in 0..config.num_hidden_layers {
        let at = |part: &str| format!("{prefix}encoder.layer.{layer}.{part}");
        let project = |g: &mut Builder<'_>, part: &str| {
            let y = linear(g, weights, &at(&format!("attention.self.{part}")), x, hidden, hidden)?;
            split_heads(g, y, heads, size)
        };
        let q = project(&mut g, "query")?;
        let k = project(&mut g, "key")?;
        let v = project(&mut g, "value")?;
        g.name = at("attention.self");
        let scale = 1.0 / (size as f32).sqrt();
        let a = g.add(Attention::plain(scale), &[q, k, v, scores])?;
        let a = merge_heads(&mut g, a)?;
        let a = linear(&mut g, weights, &at("attention.output.dense"), a, hidden, hidden)?;
        let a = g.binary(BinaryFn::Add, a, x)?;
        x = layer_norm(&mut g, weights, &at("attention.output.LayerNorm"), a, hidden, config.layer_norm_eps)?;
        let inner = config.intermediate_size;
        let y = linear(&mut g, weights, &at("intermediate.dense"), x, hidden, inner)?;
        let y = g.unary(activation, y)?;
        let y = linear(&mut g, weights, &at("output.dense"), y, inner, hidden)?;
        let y = g.binary(BinaryFn::Add, y, x)?;
        x = layer_norm(&mut g, weights, &at("output.LayerNorm"), y, hidden, config.layer_norm_eps)?;
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
    if let Some(normalise) = sentence_modules(modules.as_ref(), pooling.as_ref()) {
        let y = mean_of_tokens(&mut g, x, mask, normalise)?;
        g.graph.add_output("sentence_embedding", y);
    }
    Ok(())
}

/// Whether the folder's modules pool by the mean, and if so whether they normalise the result.
fn sentence_modules(
    modules: Option<&serde_json::Value>,
    pooling: Option<&serde_json::Value>,
) -> Option<bool> {
    let types: Vec<&str> = modules?.as_array()?.iter().filter_map(|m| m.get("type")?.as_str()).collect();
    let mean = pooling?.get("pooling_mode_mean_tokens")?.as_bool()?;
    (mean && types.iter().any(|t| t.ends_with("Pooling")))
        .then(|| types.iter().any(|t| t.ends_with("Normalize")))
}

/// `x [batch, seq, hidden]` averaged over the tokens that the mask keeps.
fn mean_of_tokens(g: &mut Builder<'_>, x: NodeId, mask: NodeId, normalise: bool) -> Result<NodeId> {
    g.name = "sentence_embedding".into();
    let mask = g.cast(mask, DType::F32)?;
    let mut shape = g.tensor(mask).shape.clone();
    shape.push(Dim::known(1));
    let mask = g.reshape(mask, shape)?;
    let kept = g.binary(BinaryFn::Mul, x, mask)?;
    let sum = g.reduce(ReduceKind::Sum, kept, vec![1], false)?;
    let count = g.reduce(ReduceKind::Sum, mask, vec![1], false)?;
    let count = g.unary(UnaryFn::Clip { low: 1e-9, high: f32::INFINITY }, count)?;
    let mean = g.binary(BinaryFn::Div, sum, count)?;
    if !normalise {
        return Ok(mean);
    }
    let length = g.reduce(ReduceKind::L2, mean, vec![1], true)?;
    let length = g.unary(UnaryFn::Clip { low: 1e-12, high: f32::INFINITY }, length)?;
    g.binary(BinaryFn::Div, mean, length)
}
