//! `GPT2LMHeadModel`: learned positions, LayerNorm, and weights stored as `[inputs, outputs]`.

use driftc::error::Result;
use driftc::ir::builder::Builder;
use driftc::ir::dim::Dim;
use driftc::ir::element::{BinaryFn, UnaryFn};
use driftc::ir::graph::NodeId;
use driftc::ir::op::{Attention, MatMul, Range};
use driftc::ir::tensor::DType;
use serde::Deserialize;
use serde_json::json;

use crate::blocks::{embedding, layer_norm, merge_heads, weight};
use crate::decoder::attention::{heads_first, slice_columns, split_head_axis};
use crate::decoder::config::activation;
use crate::decoder::generation::{self, LanguageModel, Sequence};
use crate::folder::Folder;
use crate::weights::Tensors;

#[derive(Debug, Deserialize)]
struct Config {
    vocab_size: usize,
    n_positions: usize,
    n_embd: usize,
    n_layer: usize,
    n_head: usize,
    #[serde(default)]
    n_inner: Option<usize>,
    activation_function: String,
    layer_norm_epsilon: f32,
    scale_attn_weights: bool,
    scale_attn_by_inverse_layer_idx: bool,
    #[serde(default)]
    add_cross_attention: bool,
}

/// Builds the graphs of a GPT-2 folder.
pub(crate) fn build(folder: &mut Folder) -> Result<()> {
    let config: Config = folder.config(&json!({
        "n_positions": 1024, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
        "scale_attn_weights": true, "scale_attn_by_inverse_layer_idx": false,
    }))?;
    let (hidden, heads) = (config.n_embd, config.n_head);
    if heads == 0 || hidden % heads != 0 || hidden > 1 << 20 {
        let reason = format!("`n_embd` {hidden} is not a multiple of {heads} heads, or is larger than 2^20");
        return Err(folder.error("config.json", reason));
    }
    if config.n_layer > 1000 || config.add_cross_attention {
        let reason = "models with more than 1000 layers or with cross-attention are not supported";
        return Err(folder.error("config.json", reason));
    }
    let act = activation(folder, &config.activation_function)?;
    generation::build(folder, &Gpt2 { config, hidden, heads, act })
}

/// Checked configuration.
struct Gpt2 {
    config: Config,
    hidden: usize,
    heads: usize,
    act: UnaryFn,
}

impl LanguageModel for Gpt2 {
    fn max_positions(&self) -> i64 {
        i64::try_from(self.config.n_positions).unwrap_or(i64::MAX)
    }

    fn logits(
        &self,
        g: &mut Builder<'_>,
        weights: &dyn Tensors,
        ids: NodeId,
        sequence: &Sequence,
        only: Option<Dim>,
    ) -> Result<NodeId> {
        let Self { config, hidden, heads, act } = self;
        let (hidden, heads) = (*hidden, *heads);
        let prefix = if weights.has("transformer.wte.weight") { "transformer." } else { "" };
        let tokens = embedding(g, weights, &format!("{prefix}wte"), ids, config.vocab_size, hidden)?;
        let Sequence { past, seq, .. } = sequence.clone();
        let positions = g.add(Range { dtype: DType::I64, start: past, step: 1, length: seq }, &[])?;
        let position_rows =
            embedding(g, weights, &format!("{prefix}wpe"), positions, config.n_positions, hidden)?;
        let mut x = g.binary(BinaryFn::Add, tokens, position_rows)?;
        for layer in 0..config.n_layer {
            let at = |part: &str| format!("{prefix}h.{layer}.{part}");
            let mut scale =
                if config.scale_attn_weights { libm::powf((hidden / heads) as f32, -0.5) } else { 1.0 };
            if config.scale_attn_by_inverse_layer_idx {
                scale /= layer as f32 + 1.0;
            }
            let y = layer_norm(g, weights, &at("ln_1"), x, hidden, config.layer_norm_epsilon)?;
            let y = affine(g, weights, &at("attn.c_attn"), y, [hidden, 3 * hidden])?;
            let mut heads_of = |i: usize| {
                let projected = slice_columns(g, y, i * hidden, hidden)?;
                split_head_axis(g, projected, heads, hidden / heads)
            };
            let [q, k, v] = [heads_of(0)?, heads_of(1)?, heads_of(2)?];
            let k = sequence.cached(g, &at("keys"), k)?;
            let v = sequence.cached(g, &at("values"), v)?;
            g.name = at("attn");
            let qkv = [heads_first(g, q)?, heads_first(g, k)?, heads_first(g, v)?];
            let y = g.add(Attention { causal: true, ..Attention::plain(scale) }, &qkv)?;
            let y = merge_heads(g, y)?;
            let y = affine(g, weights, &at("attn.c_proj"), y, [hidden, hidden])?;
            x = g.binary(BinaryFn::Add, y, x)?;
            let inner = config.n_inner.unwrap_or(4 * hidden);
            let y = layer_norm(g, weights, &at("ln_2"), x, hidden, config.layer_norm_epsilon)?;
            let y = affine(g, weights, &at("mlp.c_fc"), y, [hidden, inner])?;
            let y = g.unary(*act, y)?;
            let y = affine(g, weights, &at("mlp.c_proj"), y, [inner, hidden])?;
            x = g.binary(BinaryFn::Add, y, x)?;
        }
        if let Some(only) = only {
            x = g.slice(x, 1, only, Dim::known(1))?;
        }
        x = layer_norm(g, weights, &format!("{prefix}ln_f"), x, hidden, config.layer_norm_epsilon)?;
        g.name = "logits".into();
        let head = match weights.has("lm_head.weight") {
            true => "lm_head.weight".into(),
            false => format!("{prefix}wte.weight"),
        };
        let head = weight(g, weights, &head, &[config.vocab_size, hidden])?;
        g.add(MatMul { trans_a: false, trans_b: true }, &[x, head])
    }
}

/// Adds a linear layer with a weight that is not transposed, `x * weight [inputs, outputs] + bias`.
fn affine(
    g: &mut Builder<'_>,
    weights: &dyn Tensors,
    name: &str,
    x: NodeId,
    [inputs, outputs]: [usize; 2],
) -> Result<NodeId> {
    g.name = name.to_string();
    let w = weight(g, weights, &format!("{name}.weight"), &[inputs, outputs])?;
    let y = g.matmul(x, w)?;
    let b = weight(g, weights, &format!("{name}.bias"), &[outputs])?;
    g.binary(BinaryFn::Add, y, b)
}
