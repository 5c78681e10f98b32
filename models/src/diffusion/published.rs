//! The three networks of Stable Diffusion 1.4 at their published size: text encoder, UNet and VAE decoder.
//!
//! Weights have the names of the published Hugging Face folders `text_encoder`, `unet` and `vae`.

use driftc::error::Result;
use driftc::ir::builder::Builder;
use driftc::ir::dim::Dim;
use driftc::ir::tensor::DType;

use super::config::{KlConfig, Level, TextConfig, UNetConfig};
use super::transformer::TextEmbedding;
use super::unet::UNetInputs;
use crate::weights::Tensors;

/// Number of tokens of the text that conditions the UNet.
const TOKENS: usize = 77;
/// Hidden size of the text encoder.
const TEXT_HIDDEN: usize = 768;
/// Height and width of the latent image.
const LATENT: usize = 64;
/// Channels of the latent image.
const LATENT_CHANNELS: usize = 4;
/// Number of groups in every GroupNorm.
const GROUPS: usize = 32;

/// Builds the graph of the text encoder. The input is `input_ids [1, 77]`, the output `last_hidden_state [1, 77, 768]`.
///
/// # Errors
/// If a weight is missing or has another shape.
pub(crate) fn text_encoder(g: &mut Builder<'_>, w: &dyn Tensors) -> Result<()> {
    let config = TextConfig {
        vocab_size: 49_408,
        hidden_size: TEXT_HIDDEN,
        intermediate_size: 4 * TEXT_HIDDEN,
        num_hidden_layers: 12,
        num_attention_heads: 12,
        max_position_embeddings: TOKENS,
        hidden_act: "quick_gelu".into(),
        layer_norm_eps: 1e-5,
        projection_dim: None,
        eos_token_id: 49_407,
    };
    let ids = g.input("input_ids", DType::I64, vec![Dim::known(1), TOKENS.into()])?;
    let text = config.build(g, w, ids)?;
    g.graph.add_output("last_hidden_state", text.last);
    Ok(())
}

/// Builds the graph of the UNet: 860 million parameters. The inputs are `sample [1, 4, 64, 64]`, `timestep [1]` (f32) and
/// `encoder_hidden_states [1, 77, 768]`; the output is `out_sample`.
///
/// # Errors
/// If a weight is missing or has another shape.
pub(crate) fn unet(g: &mut Builder<'_>, w: &dyn Tensors) -> Result<()> {
    let level =
        |channels: usize, attends: usize| Level { channels, blocks: 2, heads: 8, transformers: [attends; 2] };
    let config = UNetConfig {
        inputs: LATENT_CHANNELS,
        outputs: LATENT_CHANNELS,
        levels: vec![level(320, 1), level(640, 1), level(1280, 1), level(1280, 0)],
        middle: Some(1),
        text: TEXT_HIDDEN,
        groups: GROUPS,
        epsilon: 1e-5,
        linear_projection: false,
        guidance: None,
        added: None,
        sample: [LATENT; 2],
    };
    let element = w.element();
    let latent = Dim::from(LATENT);
    let sample =
        g.input("sample", element, vec![Dim::known(1), LATENT_CHANNELS.into(), latent.clone(), latent])?;
    let timestep = g.input("timestep", DType::F32, vec![Dim::known(1)])?;
    let text =
        g.input("encoder_hidden_states", element, vec![Dim::known(1), TOKENS.into(), TEXT_HIDDEN.into()])?;
    let text = TextEmbedding(text);
    let inputs = UNetInputs { sample, timestep, guidance: None, added: None, text: &text };
    let x = config.build(g, w, &inputs)?;
    g.graph.add_output("out_sample", x);
    Ok(())
}

/// Builds the graph of the VAE decoder. The input is `latent_sample [1, 4, 64, 64]`, the output `sample [1, 3, 512, 512]`.
///
/// # Errors
/// If a weight is missing or has another shape.
pub(crate) fn vae_decoder(g: &mut Builder<'_>, w: &dyn Tensors) -> Result<()> {
    let config = KlConfig {
        block_out_channels: vec![128, 256, 512, 512],
        layers_per_block: 2,
        latent_channels: LATENT_CHANNELS,
        norm_num_groups: GROUPS,
        scaling_factor: 0.18215,
        shift_factor: None,
        use_quant_conv: true,
        use_post_quant_conv: true,
        mid_block_add_attention: true,
        force_upcast: false,
    };
    let latent = Dim::from(LATENT);
    let shape = vec![Dim::known(1), LATENT_CHANNELS.into(), latent.clone(), latent];
    let x = g.input("latent_sample", w.element(), shape)?;
    let x = config.decode(g, w, x)?;
    g.graph.add_output("sample", x);
    Ok(())
}
