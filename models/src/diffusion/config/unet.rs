//! Configuration of the UNet: diffusers' class `UNet2DConditionModel`.

use std::path::Path;

use driftc::error::Result;
use serde::Deserialize;
use serde_json::Value;

use super::{
    Supported, check_divides, check_settings, check_sizes, epsilon, fault, four, object, thirty_two,
    unsupported,
};
use crate::folder::typed;

/// A number, or a list with one number for each level.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(crate) enum PerLevel {
    One(usize),
    Each(Vec<usize>),
}

impl PerLevel {
    /// Returns the number of each level. `None` if the list has another length.
    pub(crate) fn expand(&self, levels: usize) -> Option<Vec<usize>> {
        match self {
            Self::One(value) => Some(vec![*value; levels]),
            Self::Each(values) => (values.len() == levels).then(|| values.clone()),
        }
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
    /// Number of transformer blocks after each residual block of the down path, and of the up path. 0: no transformer.
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
    #[serde(default = "epsilon")]
    norm_eps: f32,
    #[serde(default)]
    use_linear_projection: bool,
    time_cond_proj_dim: Option<usize>,
    addition_embed_type: Option<String>,
    addition_time_embed_dim: Option<usize>,
    projection_class_embeddings_input_dim: Option<usize>,
    sample_size: Option<PerLevel>,
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
