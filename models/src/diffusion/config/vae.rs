//! Configuration of the VAE: diffusers' classes `AutoencoderKL` and `AutoencoderTiny`.

use std::path::Path;

use driftc::error::Result;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    Supported, check_divides, check_settings, check_sizes, fault, four, object, thirty_two, unsupported,
};
use crate::folder::typed;

/// VAE of a diffusion model: diffusers' classes `AutoencoderKL` and `AutoencoderTiny`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum VaeConfig {
    Kl(KlConfig),
    Tiny(TinyConfig),
}

/// diffusers' class `AutoencoderKL`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct KlConfig {
    pub(crate) block_out_channels: Vec<usize>,
    #[serde(default = "one")]
    pub(crate) layers_per_block: usize,
    #[serde(default = "four")]
    pub(crate) latent_channels: usize,
    #[serde(default = "thirty_two")]
    pub(crate) norm_num_groups: usize,
    #[serde(default = "kl_scale")]
    pub(crate) scaling_factor: f32,
    pub(crate) shift_factor: Option<f32>,
    #[serde(default = "yes")]
    pub(crate) use_quant_conv: bool,
    #[serde(default = "yes")]
    pub(crate) use_post_quant_conv: bool,
    #[serde(default = "yes")]
    pub(crate) mid_block_add_attention: bool,
    /// True if SDXL computes the VAE in f32, because f16 cannot hold its values. diffusers' other pipelines ignore it.
    #[serde(default = "yes")]
    pub(crate) force_upcast: bool,
}

/// diffusers' class `AutoencoderTiny`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct TinyConfig {
    pub(crate) encoder_block_out_channels: Vec<usize>,
    pub(crate) decoder_block_out_channels: Vec<usize>,
    pub(crate) num_encoder_blocks: Vec<usize>,
    pub(crate) num_decoder_blocks: Vec<usize>,
    #[serde(default = "four")]
    pub(crate) latent_channels: usize,
    #[serde(default = "tiny_scale")]
    pub(crate) scaling_factor: f32,
}

fn one() -> usize {
    1
}

fn yes() -> bool {
    true
}

fn kl_scale() -> f32 {
    0.18215
}

fn tiny_scale() -> f32 {
    1.0
}

const KL_SETTINGS: &[Supported] = &[
    ("act_fn", &["silu", "swish"]),
    ("in_channels", &["3"]),
    ("out_channels", &["3"]),
    ("latents_mean", &[]),
    ("latents_std", &[]),
];

const TINY_SETTINGS: &[Supported] = &[
    ("act_fn", &["relu"]),
    ("in_channels", &["3"]),
    ("out_channels", &["3"]),
    ("shift_factor", &["0"]),
    ("upsampling_scaling_factor", &["2"]),
    ("upsample_fn", &["nearest"]),
];

impl VaeConfig {
    /// Reads `config.json` of a VAE.
    ///
    /// # Errors
    /// If a field is missing, malformed or has a value that is not supported.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let fields = object(path)?;
        let malformed = |reason: String| fault(path, "configuration", reason);
        match fields.get("_class_name").and_then(Value::as_str).unwrap_or("AutoencoderKL") {
            "AutoencoderKL" => {
                check_settings(path, &fields, KL_SETTINGS)?;
                for name in ["down_block_types", "up_block_types"] {
                    check_plain_blocks(path, &fields, name)?;
                }
                let config: KlConfig = typed(&fields).map_err(malformed)?;
                check_sizes(
                    path,
                    &[
                        ("layers_per_block", config.layers_per_block),
                        ("latent_channels", config.latent_channels),
                    ],
                )?;
                check_channels(
                    path,
                    "block_out_channels",
                    &config.block_out_channels,
                    config.norm_num_groups,
                )?;
                Ok(Self::Kl(config))
            }
            "AutoencoderTiny" => {
                check_settings(path, &fields, TINY_SETTINGS)?;
                let config: TinyConfig = typed(&fields).map_err(malformed)?;
                check_sizes(path, &[("latent_channels", config.latent_channels)])?;
                check_channels(path, "encoder_block_out_channels", &config.encoder_block_out_channels, 1)?;
                check_channels(path, "decoder_block_out_channels", &config.decoder_block_out_channels, 1)?;
                for (name, blocks, channels) in [
                    ("num_encoder_blocks", &config.num_encoder_blocks, &config.encoder_block_out_channels),
                    ("num_decoder_blocks", &config.num_decoder_blocks, &config.decoder_block_out_channels),
                ] {
                    if blocks.len() != channels.len() || blocks.iter().any(|blocks| *blocks > 64) {
                        return Err(fault(
                            path,
                            &format!("`{name}`"),
                            "it must have one small number for each level",
                        ));
                    }
                }
                Ok(Self::Tiny(config))
            }
            other => Err(unsupported(
                path,
                "_class_name",
                &Value::String(other.into()),
                "AutoencoderKL, AutoencoderTiny",
            )),
        }
    }

    /// Channels of the latent.
    pub(crate) fn latent_channels(&self) -> usize {
        match self {
            Self::Kl(config) => config.latent_channels,
            Self::Tiny(config) => config.latent_channels,
        }
    }

    /// Number of pixels along each side of a picture for one pixel of the latent.
    pub(crate) fn pixels(&self) -> usize {
        let levels = match self {
            Self::Kl(config) => config.block_out_channels.len(),
            Self::Tiny(config) => config.decoder_block_out_channels.len(),
        };
        1 << (levels - 1)
    }

    /// Factor of the latent after the encoder, and the shift that is subtracted before.
    pub(crate) fn latent_scale(&self) -> (f32, f32) {
        match self {
            Self::Kl(config) => (config.scaling_factor, config.shift_factor.unwrap_or(0.0)),
            Self::Tiny(config) => (config.scaling_factor, 0.0),
        }
    }

    /// True if f16 cannot hold the values inside of the VAE in SDXL.
    pub(crate) fn needs_f32(&self) -> bool {
        matches!(self, Self::Kl(config) if config.force_upcast)
    }
}

fn check_channels(path: &Path, name: &str, channels: &[usize], groups: usize) -> Result<()> {
    if !(1..=8).contains(&channels.len()) {
        return Err(fault(path, &format!("`{name}`"), "it must be a list of 1 to 8 numbers"));
    }
    for channels in channels {
        check_sizes(path, &[(name, *channels)])?;
        check_divides(path, "norm_num_groups", groups, *channels)?;
    }
    Ok(())
}

/// Checks that the blocks of a VAE have no attention.
fn check_plain_blocks(path: &Path, fields: &Map<String, Value>, name: &str) -> Result<()> {
    let types = fields.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let plain = |kind: &&Value| !matches!(kind.as_str(), Some("DownEncoderBlock2D" | "UpDecoderBlock2D"));
    match types.iter().find(plain) {
        Some(other) => Err(unsupported(path, name, other, "DownEncoderBlock2D, UpDecoderBlock2D")),
        None => Ok(()),
    }
}
