//! Text encoder of Stable Diffusion: the text model of CLIP ViT-L/14 with 77 tokens.
//!
//! The input is `input_ids [1, 77]`, the output `last_hidden_state [1, 77, 768]`.

use driftc::error::Result;
use driftc::ir::builder::Builder;
use driftc::ir::dim::Dim;
use driftc::ir::op::{BinaryFn, UnaryFn};
use driftc::ir::tensor::DType;

use super::{TEXT_HIDDEN, TOKENS};
use crate::blocks::{attention, embedding, layer_norm, linear, weight};
use crate::weights::Tensors;

const VOCABULARY: usize = 49_408;
const LAYERS: usize = 12;
const HEADS: usize = 12;
const INNER: usize = 4 * TEXT_HIDDEN;
const EPSILON: f32 = 1e-5;
/// Factor inside the sigmoid of the activation quick GELU, `x * sigmoid(1.702 x)`.
const ALPHA: f32 = 1.702;

/// Builds the graph of Stable Diffusion's text encoder.
///
/// # Errors
/// If a weight is missing or has another shape.
pub fn build(g: &mut Builder<'_>, w: &dyn Tensors) -> Result<()> {
    let ids = g.input("input_ids", DType::I64, vec![Dim::known(1), TOKENS.into()])?;
    let table = "text_model.embeddings.token_embedding";
    let x = embedding(g, w, table, ids, VOCABULARY, TEXT_HIDDEN)?;
    g.name = "text_model.embeddings.position_embedding".into();
    let positions = weight(g, w, &format!("{}.weight", g.name.clone()), &[TOKENS, TEXT_HIDDEN])?;
    let mut x = g.binary(BinaryFn::Add, x, positions)?;
    for layer in 0..LAYERS {
        let at = |part: &str| format!("text_model.encoder.layers.{layer}.{part}");
        let y = layer_norm(g, w, &at("layer_norm1"), x, TEXT_HIDDEN, EPSILON)?;
        let mut project =
            |part: &str| linear(g, w, &at(&format!("self_attn.{part}_proj")), y, TEXT_HIDDEN, TEXT_HIDDEN);
        let qkv = [project("q")?, project("k")?, project("v")?];
        g.name = at("self_attn");
        let y = attention(g, qkv, HEADS, true)?;
        let y = linear(g, w, &at("self_attn.out_proj"), y, TEXT_HIDDEN, TEXT_HIDDEN)?;
        x = g.binary(BinaryFn::Add, x, y)?;
        let y = layer_norm(g, w, &at("layer_norm2"), x, TEXT_HIDDEN, EPSILON)?;
        let y = linear(g, w, &at("mlp.fc1"), y, TEXT_HIDDEN, INNER)?;
        let y = g.unary(UnaryFn::Swish { alpha: ALPHA }, y)?;
        let y = linear(g, w, &at("mlp.fc2"), y, INNER, TEXT_HIDDEN)?;
        x = g.binary(BinaryFn::Add, x, y)?;
    }
    let y = layer_norm(g, w, "text_model.final_layer_norm", x, TEXT_HIDDEN, EPSILON)?;
    g.graph.add_output("last_hidden_state", y);
    Ok(())
}
