//! `WhisperForConditionalGeneration`: speech recognition with an encoder of log-mel features and a decoder of text.
//!
//! ```text
//! features   samples [1, 480400], largest, valid -> input_features [1, mels, 3000], largest
//! encode     input_features [1, mels, 3000]      -> last_hidden_state [1, 1500, hidden]
//!                                                   states: keys and values of each cross-attention
//! verify, decode, prefill   ids                  -> logits, next  (language models, with the states of `encode`)
//! align      ids                                 -> weights [heads, ids, 1500] of the alignment heads
//! ```
//!
//! With `--dim batch` or `--dim seq`, the bundle has only the function `main` instead: `input_features` and
//! `decoder_input_ids` to `logits` and `encoder_last_hidden_state`.

mod decoder;
mod encoder;
mod features;
mod mel;

use std::rc::Rc;

use driftc::compile::EntryPoint;
use driftc::error::Result;
use driftc::ir::builder::Builder;
use driftc::ir::dim::Dim;
use driftc::ir::element::UnaryFn;
use driftc::ir::graph::NodeId;
use driftc::ir::tensor::DType;
use driftc::pass::Precision;
use serde::Deserialize;
use serde_json::json;

use crate::blocks::{linear, linear_without_bias};
use crate::decoder::config::activation;
use crate::decoder::generation::{self, Sequence};
use crate::folder::Folder;
use crate::function_graph::graph;
use crate::weights::Tensors;
use decoder::{CrossSource, Decoder};

/// Epsilon of every LayerNorm.
const EPSILON: f32 = 1e-5;
/// Maximum number of layers of the encoder and of the decoder.
const MAX_LAYERS: usize = 1000;
/// Maximum of every other size of the configuration.
const MAX_SIZE: usize = 1 << 20;

#[derive(Debug, Clone, Deserialize)]
struct Config {
    vocab_size: usize,
    num_mel_bins: usize,
    d_model: usize,
    encoder_layers: usize,
    encoder_attention_heads: usize,
    encoder_ffn_dim: usize,
    decoder_layers: usize,
    decoder_attention_heads: usize,
    decoder_ffn_dim: usize,
    max_source_positions: usize,
    max_target_positions: usize,
    activation_function: String,
}

/// Sizes of one stack of layers, the encoder or the decoder.
#[derive(Debug, Clone, Copy)]
struct Stack {
    hidden: usize,
    layers: usize,
    heads: usize,
    inner: usize,
    activation: UnaryFn,
}

/// Checked configuration.
struct Whisper {
    config: Config,
    encoder: Stack,
    decoder: Stack,
    /// Prefix of the names of all tensors but `proj_out.weight`.
    prefix: &'static str,
}

/// Builds the graphs of a Whisper folder.
pub(crate) fn build(folder: &mut Folder) -> Result<()> {
    let config: Config = folder.config(&json!({
        "vocab_size": 51865, "num_mel_bins": 80, "d_model": 384,
        "encoder_layers": 4, "encoder_attention_heads": 6, "encoder_ffn_dim": 1536,
        "decoder_layers": 4, "decoder_attention_heads": 6, "decoder_ffn_dim": 1536,
        "max_source_positions": 1500, "max_target_positions": 448,
        "activation_function": "gelu",
    }))?;
    let whisper = Whisper::new(folder, config)?;
    if folder.dims.contains_key("batch") || folder.dims.contains_key("seq") {
        folder.notes.push(
            "with --dim batch or --dim seq, the bundle has only the function `main`, which `driftc transcribe` cannot use"
                .to_string(),
        );
        return whisper.whole_graph(folder);
    }
    folder.sizes.extend(["batch", "seq"].map(str::to_string));
    let weights = Rc::clone(&folder.weights);
    let front_end = features::FrontEnd::read(folder, whisper.config.num_mel_bins, whisper.frames())?;
    let graph = graph("features", |g| front_end.build(g))?;
    let features = EntryPoint {
        precision: Some(Precision::F32),
        fixed_size: true,
        ..EntryPoint::new("features", graph)
    };
    let encode = EntryPoint { fixed_size: true, ..EntryPoint::new("encode", whisper.encode(&*weights)?) };
    let heads = whisper.alignment_heads(folder)?;
    let decoder = Decoder { whisper: &whisper, cross: CrossSource::States };
    generation::functions(folder, &decoder)?;
    folder.entry_points.extend([features, encode]);
    if !heads.is_empty() {
        folder.entry_points.push(EntryPoint::new("align", decoder.align(&*weights, &heads)?));
    }
    Ok(())
}

impl Whisper {
    fn new(folder: &Folder, config: Config) -> Result<Self> {
        let fail = |reason: String| folder.error("config.json", reason);
        let activation = activation(folder, &config.activation_function)?;
        let stack = |layers, heads, inner| Stack { hidden: config.d_model, layers, heads, inner, activation };
        let encoder = stack(config.encoder_layers, config.encoder_attention_heads, config.encoder_ffn_dim);
        let decoder = stack(config.decoder_layers, config.decoder_attention_heads, config.decoder_ffn_dim);
        for (part, stack) in [("encoder", encoder), ("decoder", decoder)] {
            if stack.heads == 0 || !stack.hidden.is_multiple_of(stack.heads) {
                let (hidden, heads) = (stack.hidden, stack.heads);
                return Err(fail(format!(
                    "`d_model` {hidden} is not a multiple of `{part}_attention_heads` {heads}"
                )));
            }
            if stack.layers > MAX_LAYERS {
                return Err(fail(format!("`{part}_layers` is {}, above {MAX_LAYERS}", stack.layers)));
            }
        }
        let sizes = [
            ("vocab_size", config.vocab_size),
            ("num_mel_bins", config.num_mel_bins),
            ("d_model", config.d_model),
            ("encoder_ffn_dim", config.encoder_ffn_dim),
            ("decoder_ffn_dim", config.decoder_ffn_dim),
            ("max_source_positions", config.max_source_positions),
            ("max_target_positions", config.max_target_positions),
        ];
        if let Some((name, size)) = sizes.into_iter().find(|(_, size)| !(1..=MAX_SIZE).contains(size)) {
            return Err(fail(format!("`{name}` is {size}; supported: 1 to {MAX_SIZE}")));
        }
        let has = |name: &str| folder.weights.has(name);
        let prefix = if has("encoder.conv1.weight") { "" } else { "model." };
        for (part, stack) in [("encoder", encoder), ("decoder", decoder)] {
            let extra = format!("{prefix}{part}.layers.{}.fc1.weight", stack.layers);
            if has(&extra) {
                let layers = stack.layers;
                return Err(fail(format!(
                    "`{part}_layers` is {layers}, but the checkpoint has more layers: `{extra}`"
                )));
            }
        }
        Ok(Self { config, encoder, decoder, prefix })
    }

    /// Number of frames of the features of a window. The encoder halves it.
    fn frames(&self) -> usize {
        2 * self.config.max_source_positions
    }

    /// Builds the graph of the whole model.
    fn whole_graph(&self, folder: &mut Folder) -> Result<()> {
        let batch = folder.dim("batch", (1, 1))?;
        let positions = i64::try_from(self.config.max_target_positions).unwrap_or(i64::MAX);
        let seq = folder.positions("seq", positions, positions)?;
        let weights = Rc::clone(&folder.weights);
        let mut g = Builder::new(&mut folder.graph, "features");
        let shape = vec![batch.clone(), self.config.num_mel_bins.into(), self.frames().into()];
        let features = g.input("input_features", DType::F32, shape)?;
        let ids = g.input("decoder_input_ids", DType::I64, vec![batch, seq.clone()])?;
        let features = g.cast(features, weights.element())?;
        let hidden = self.encoder_hidden(&mut g, &*weights, features)?;
        let sequence = Sequence { past: Dim::known(0), length: seq.clone(), seq, context: None };
        let decoder = Decoder { whisper: self, cross: CrossSource::Encoder(hidden) };
        let logits = decoder.all_logits(&mut g, &*weights, ids, &sequence, None)?;
        g.graph.add_output("logits", logits);
        g.graph.add_output("encoder_last_hidden_state", hidden);
        Ok(())
    }
}

/// Adds the linear layers of the queries, keys and values of an attention. The layer of the keys has no bias.
fn project(
    g: &mut Builder<'_>,
    w: &dyn Tensors,
    name: &str,
    (part, x): (Projection, NodeId),
    hidden: usize,
) -> Result<NodeId> {
    match part {
        Projection::Query => linear(g, w, &format!("{name}.q_proj"), x, hidden, hidden),
        Projection::Key => linear_without_bias(g, w, &format!("{name}.k_proj"), x, hidden, hidden),
        Projection::Value => linear(g, w, &format!("{name}.v_proj"), x, hidden, hidden),
    }
}

/// Linear layers before an attention.
#[derive(Debug, Clone, Copy)]
enum Projection {
    Query,
    Key,
    Value,
}
