//! Configurations of a diffusers folder: `config.json` of the UNet, the text encoders and the VAE.

use std::path::{Path, PathBuf};

use driftc::error::{Error, Result};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::folder::{read_json, typed};

/// Reads a JSON object of a diffusers folder.
///
/// # Errors
/// If the file is missing or no JSON object.
pub(crate) fn object(path: &Path) -> Result<Map<String, Value>> {
    match read_json(path)? {
        Some(Value::Object(fields)) => Ok(fields),
        Some(_) => Err(fault(path, "file", "the file is no JSON object")),
        None => Err(fault(path, "file", "the file is missing")),
    }
}

/// Creates the error about a configuration file of a diffusers folder.
pub(crate) fn fault(path: &Path, place: &str, reason: impl Into<String>) -> Error {
    Error::Model {
        path: path.to_path_buf(),
        place: place.into(),
        reason: reason.into(),
        help: "compare the folder with the model's page, or download it again".into(),
    }
}

/// Creates the error about a setting that is not supported.
pub(crate) fn unsupported(path: &Path, name: &str, value: &Value, supported: &str) -> Error {
    Error::Model {
        path: path.to_path_buf(),
        place: format!("`{name}`"),
        reason: format!("{value} is not supported"),
        help: format!("supported: {supported}; export other models to ONNX and compile each part"),
    }
}

/// A number, or a list with one number for each level.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(crate) enum PerLevel {
    One(usize),
    Each(Vec<usize>),
}

impl PerLevel {
    /// Returns the number of each level. `None` if the list has another length.
    fn expand(&self, levels: usize) -> Option<Vec<usize>> {
        match self {
            Self::One(value) => Some(vec![*value; levels]),
            Self::Each(values) => (values.len() == levels).then(|| values.clone()),
        }
    }
}

/// Settings that change the network, each with its only supported values. A missing setting counts as the first value.
type Supported = (&'static str, &'static [&'static str]);

/// Checks that settings have supported values.
fn check_settings(path: &Path, fields: &Map<String, Value>, settings: &[Supported]) -> Result<()> {
    for (name, supported) in settings {
        let value = fields.get(*name).unwrap_or(&Value::Null);
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_string);
        let number =
            |other: &&str| other.parse::<f64>().ok().is_some_and(|other| Some(other) == value.as_f64());
        if !value.is_null() && !supported.iter().any(|other| *other == text || number(other)) {
            return Err(unsupported(path, name, value, &supported.join(", ")));
        }
    }
    Ok(())
}

/// Checks that sizes are positive and small enough that products of them do not overflow.
fn check_sizes(path: &Path, sizes: &[(&str, usize)]) -> Result<()> {
    const LIMIT: usize = 1 << 20;
    match sizes.iter().find(|(_, size)| !(1..=LIMIT).contains(size)) {
        Some((name, size)) => Err(fault(path, &format!("`{name}`"), format!("{size} is not a valid size"))),
        None => Ok(()),
    }
}

/// Checks that a number of channels is a multiple of a number of groups or heads.
fn check_divides(path: &Path, name: &str, parts: usize, channels: usize) -> Result<()> {
    match channels.checked_rem(parts) {
        Some(0) => Ok(()),
        _ => Err(fault(path, &format!("`{name}`"), format!("{parts} does not divide {channels} channels"))),
    }
}

/// One resolution of a UNet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Level {
    /// Number of channels.
    pub(crate) channels: usize,
    /// Number of residual blocks of the down path. The up path has one more.
    pub(crate) blocks: usize,
    /// Number of attention heads.
    pub(crate) heads: usize,
    /// Number of transformer blocks behind each residual block of the down path, and of the up path. 0: no transformer.
    pub(crate) transformers: [usize; 2],
}

/// Time embedding with additional inputs, as in SDXL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AddedTime {
    /// Number of sines and cosines of each time id.
    pub(crate) waves: usize,
    /// Number of elements of the pooled text embedding and of all time ids.
    pub(crate) width: usize,
}

/// UNet of a diffusion model: diffusers' class `UNet2DConditionModel`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct UNetConfig {
    /// Channels of the input: 4 for a latent, 9 for inpainting with a latent, a mask and a masked latent.
    pub(crate) inputs: usize,
    /// Channels of the output.
    pub(crate) outputs: usize,
    /// Resolutions, the highest first.
    pub(crate) levels: Vec<Level>,
    /// Number of transformer blocks of the middle block, if there is one.
    pub(crate) middle: Option<usize>,
    /// Size of the text embedding.
    pub(crate) text: usize,
    /// Number of groups of GroupNorm.
    pub(crate) groups: usize,
    /// Epsilon of the residual blocks' GroupNorm.
    pub(crate) epsilon: f32,
    /// True if the transformers' projections are linear layers, false for convolutions of one pixel.
    pub(crate) linear_projection: bool,
    /// Number of elements of the guidance embedding, if the guidance is an input.
    pub(crate) guidance: Option<usize>,
    pub(crate) added: Option<AddedTime>,
    /// Height and width of the latent in training.
    pub(crate) sample: [usize; 2],
}

#[derive(Debug, Deserialize)]
struct UNetFields {
    #[serde(default = "four")]
    in_channels: usize,
    #[serde(default = "four")]
    out_channels: usize,
    block_out_channels: Vec<usize>,
    #[serde(default = "two_layers")]
    layers_per_block: PerLevel,
    down_block_types: Vec<String>,
    up_block_types: Vec<String>,
    attention_head_dim: Option<PerLevel>,
    num_attention_heads: Option<PerLevel>,
    #[serde(default = "one_layer")]
    transformer_layers_per_block: PerLevel,
    cross_attention_dim: usize,
    #[serde(default = "thirty_two")]
    norm_num_groups: usize,
    #[serde(default = "unet_epsilon")]
    norm_eps: f32,
    #[serde(default)]
    use_linear_projection: bool,
    time_cond_proj_dim: Option<usize>,
    addition_embed_type: Option<String>,
    addition_time_embed_dim: Option<usize>,
    projection_class_embeddings_input_dim: Option<usize>,
    sample_size: Option<PerLevel>,
}

fn four() -> usize {
    4
}

fn thirty_two() -> usize {
    32
}

fn unet_epsilon() -> f32 {
    1e-5
}

fn one_layer() -> PerLevel {
    PerLevel::One(1)
}

fn two_layers() -> PerLevel {
    PerLevel::One(2)
}

const UNET_SETTINGS: &[Supported] = &[
    ("act_fn", &["silu", "swish"]),
    ("addition_embed_type", &["text_time"]),
    ("attention_type", &["default"]),
    ("center_input_sample", &["false"]),
    ("class_embed_type", &[]),
    ("conv_in_kernel", &["3"]),
    ("conv_out_kernel", &["3"]),
    ("cross_attention_norm", &[]),
    ("downsample_padding", &["1"]),
    ("dual_cross_attention", &["false"]),
    ("encoder_hid_dim", &[]),
    ("encoder_hid_dim_type", &[]),
    ("flip_sin_to_cos", &["true"]),
    ("freq_shift", &["0"]),
    ("mid_block_only_cross_attention", &["false"]),
    ("mid_block_scale_factor", &["1"]),
    ("mid_block_type", &["UNetMidBlock2DCrossAttn"]),
    ("num_class_embeds", &[]),
    ("only_cross_attention", &["false"]),
    ("resnet_out_scale_factor", &["1"]),
    ("resnet_skip_time_act", &["false"]),
    ("resnet_time_scale_shift", &["default"]),
    ("reverse_transformer_layers_per_block", &[]),
    ("time_embedding_act_fn", &[]),
    ("time_embedding_dim", &[]),
    ("time_embedding_type", &["positional"]),
    ("timestep_post_act", &[]),
];

impl UNetConfig {
    /// Reads `config.json` of a UNet.
    ///
    /// # Errors
    /// If a field is missing, malformed or has a value that is not supported.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let fields = object(path)?;
        check_settings(path, &fields, UNET_SETTINGS)?;
        // The key exists with the value null if there is no middle block. Old files lack the key.
        let has_middle = fields.get("mid_block_type").is_none_or(|kind| !kind.is_null());
        let unet: UNetFields = typed(&fields).map_err(|reason| fault(path, "configuration", reason))?;

        let levels = levels(path, &unet)?;
        let added = match (
            &unet.addition_embed_type,
            unet.addition_time_embed_dim,
            unet.projection_class_embeddings_input_dim,
        ) {
            (None, ..) => None,
            (Some(_), Some(waves), Some(width)) if waves > 0 && waves % 2 == 0 => {
                Some(AddedTime { waves, width })
            }
            (Some(_), ..) => {
                let reason = "`text_time` needs an even `addition_time_embed_dim` and `projection_class_embeddings_input_dim`";
                return Err(fault(path, "`addition_embed_type`", reason));
            }
        };
        let sample = match unet.sample_size.as_ref().map(|size| size.expand(2)) {
            None => [64, 64],
            Some(size) => match size.as_deref() {
                Some([height, width]) => [*height, *width],
                _ => return Err(fault(path, "`sample_size`", "it must be a number or two numbers")),
            },
        };
        check_sizes(
            path,
            &[
                ("in_channels", unet.in_channels),
                ("out_channels", unet.out_channels),
                ("cross_attention_dim", unet.cross_attention_dim),
                ("sample_size", sample[0]),
                ("sample_size", sample[1]),
            ],
        )?;
        Ok(Self {
            inputs: unet.in_channels,
            outputs: unet.out_channels,
            middle: (has_middle && !levels.is_empty()).then(|| middle_blocks(&unet)),
            levels,
            text: unet.cross_attention_dim,
            groups: unet.norm_num_groups,
            epsilon: unet.norm_eps,
            linear_projection: unet.use_linear_projection,
            guidance: unet.time_cond_proj_dim,
            added,
            sample,
        })
    }

    /// Number of elements of the time embedding.
    pub(crate) fn time(&self) -> usize {
        4 * self.waves()
    }

    /// Number of cosines and sines that encode the time step.
    pub(crate) fn waves(&self) -> usize {
        self.levels.first().map_or(0, |level| level.channels)
    }
}

/// Returns the number of transformer blocks of the middle block: the number of the lowest resolution.
fn middle_blocks(unet: &UNetFields) -> usize {
    match &unet.transformer_layers_per_block {
        PerLevel::One(blocks) => *blocks,
        PerLevel::Each(blocks) => blocks.last().copied().unwrap_or(1),
    }
}

/// Returns the resolutions of a UNet.
fn levels(path: &Path, unet: &UNetFields) -> Result<Vec<Level>> {
    let count = unet.block_out_channels.len();
    let per_level = |name: &str, value: &PerLevel| {
        let reason = format!("it must be a number or a list of {count} numbers");
        value.expand(count).ok_or_else(|| fault(path, &format!("`{name}`"), reason))
    };
    // In old files, `attention_head_dim` is the number of heads. diffusers reads it so, too.
    let heads = unet.num_attention_heads.as_ref().or(unet.attention_head_dim.as_ref());
    let heads = per_level("attention_head_dim", heads.unwrap_or(&PerLevel::One(8)))?;
    let blocks = per_level("layers_per_block", &unet.layers_per_block)?;
    let layers = per_level("transformer_layers_per_block", &unet.transformer_layers_per_block)?;
    let down = attends(
        path,
        "down_block_types",
        &unet.down_block_types,
        ["CrossAttnDownBlock2D", "DownBlock2D"],
        count,
    )?;
    let mut up =
        attends(path, "up_block_types", &unet.up_block_types, ["CrossAttnUpBlock2D", "UpBlock2D"], count)?;
    up.reverse();
    let mut levels = Vec::with_capacity(count);
    for (i, channels) in unet.block_out_channels.iter().enumerate() {
        check_sizes(path, &[("block_out_channels", *channels), ("layers_per_block", blocks[i])])?;
        check_sizes(path, &[("transformer_layers_per_block", layers[i])])?;
        check_divides(path, "norm_num_groups", unet.norm_num_groups, *channels)?;
        check_divides(path, "attention_head_dim", heads[i], *channels)?;
        let transformers = [down[i], up[i]].map(|attends| if attends { layers[i] } else { 0 });
        levels.push(Level { channels: *channels, blocks: blocks[i], heads: heads[i], transformers });
    }
    match levels.first() {
        Some(first) if first.channels % 2 == 0 => Ok(levels),
        _ => Err(fault(path, "`block_out_channels`", "the list must begin with an even number")),
    }
}

/// Returns for each level whether its block type has cross attention.
fn attends(
    path: &Path,
    name: &str,
    types: &[String],
    [with, without]: [&str; 2],
    count: usize,
) -> Result<Vec<bool>> {
    if types.len() != count {
        return Err(fault(path, &format!("`{name}`"), format!("it must have {count} block types")));
    }
    let one = |kind: &String| match kind.as_str() {
        kind if kind == with => Ok(true),
        kind if kind == without => Ok(false),
        _ => Err(unsupported(path, name, &Value::String(kind.clone()), &format!("{with}, {without}"))),
    };
    types.iter().map(one).collect()
}

/// Text encoder of CLIP: transformers' classes `CLIPTextModel` and `CLIPTextModelWithProjection`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct TextConfig {
    pub(crate) vocab_size: usize,
    pub(crate) hidden_size: usize,
    pub(crate) intermediate_size: usize,
    pub(crate) num_hidden_layers: usize,
    pub(crate) num_attention_heads: usize,
    #[serde(default = "positions")]
    pub(crate) max_position_embeddings: usize,
    #[serde(default = "quick_gelu")]
    pub(crate) hidden_act: String,
    #[serde(default = "unet_epsilon")]
    pub(crate) layer_norm_eps: f32,
    pub(crate) projection_dim: Option<usize>,
    /// Id of the end token. In old files it is 2, which is wrong; the end token then is the one with the largest id.
    #[serde(default = "old_end")]
    pub(crate) eos_token_id: i64,
}

fn positions() -> usize {
    77
}

fn old_end() -> i64 {
    2
}

fn quick_gelu() -> String {
    "quick_gelu".into()
}

impl TextConfig {
    /// Reads `config.json` of a text encoder.
    ///
    /// # Errors
    /// If a field is missing, malformed or has a value that is not supported.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let fields = object(path)?;
        check_settings(path, &fields, &[("hidden_act", &["quick_gelu", "gelu"])])?;
        let text: Self = typed(&fields).map_err(|reason| fault(path, "configuration", reason))?;
        check_sizes(
            path,
            &[
                ("vocab_size", text.vocab_size),
                ("hidden_size", text.hidden_size),
                ("intermediate_size", text.intermediate_size),
                ("num_hidden_layers", text.num_hidden_layers),
                ("max_position_embeddings", text.max_position_embeddings),
            ],
        )?;
        check_divides(path, "num_attention_heads", text.num_attention_heads, text.hidden_size)?;
        Ok(text)
    }
}

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
    /// True if f16 cannot hold the values inside of the VAE.
    #[serde(default)]
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

    /// True if f16 cannot hold the values inside of the VAE.
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

/// Path of the configuration of a part of a diffusers folder.
pub(crate) fn config_path(folder: &Path, part: &str) -> PathBuf {
    folder.join(part).join("config.json")
}
