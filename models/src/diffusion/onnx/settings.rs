//! Settings of `config.json` that an ONNX file does not state. Old exports have no `config.json`.

use std::path::{Path, PathBuf};

use driftc::error::Result;
use serde::Deserialize;

use super::part::PartFile;
use crate::diffusion::config::{PerLevel, check_sizes, config_path, fault, object};
use crate::folder::typed;

/// Channels of the latent if neither a configuration nor a graph states them.
const LATENT_CHANNELS: usize = 4;
/// Pixels along each side of the highest level of the UNet or the VAE for a pixel of the lowest level, if there is no
/// configuration.
const SCALE: usize = 8;
/// Factor of the latent after the VAE encoder, if there is no configuration.
const LATENT_SCALE: f32 = 0.18215;
/// Height and width of the latent, if there is no configuration.
const LATENT_SIDE: usize = 64;

/// Settings of the text encoders, the UNet and the VAE.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Settings {
    /// Path of the file.
    #[serde(skip)]
    path: PathBuf,
    // Text encoders.
    pub(super) max_position_embeddings: Option<usize>,
    // UNet.
    pub(super) in_channels: Option<usize>,
    sample_size: Option<PerLevel>,
    pub(super) time_cond_proj_dim: Option<usize>,
    // UNet and VAE.
    block_out_channels: Option<Vec<usize>>,
    // VAE.
    latent_channels: Option<usize>,
    scaling_factor: Option<f32>,
    shift_factor: Option<f32>,
    force_upcast: Option<bool>,
}

impl Settings {
    /// Reads the configuration of a part.
    ///
    /// # Errors
    /// If the file is malformed, or a size is not valid.
    pub(super) fn read(path: &Path, part: &str) -> Result<Self> {
        let file = config_path(path, part);
        if !file.is_file() {
            return Ok(Self::default());
        }
        let mut settings: Self =
            typed(&object(&file)?).map_err(|reason| fault(&file, "configuration", reason))?;
        settings.path.clone_from(&file);
        let [height, width] = settings.latent_sides();
        let sizes = [
            ("max_position_embeddings", settings.max_position_embeddings),
            ("in_channels", settings.in_channels),
            ("sample_size", Some(height)),
            ("sample_size", Some(width)),
            ("time_cond_proj_dim", settings.time_cond_proj_dim),
            ("latent_channels", settings.latent_channels),
        ];
        let sizes: Vec<(&str, usize)> =
            sizes.into_iter().filter_map(|(name, size)| Some((name, size?))).collect();
        check_sizes(&file, &sizes)?;
        Ok(settings)
    }

    /// Returns the number of pixels along each side of the highest level for a pixel of the lowest level.
    ///
    /// # Errors
    /// If the number of levels is not valid.
    pub(super) fn scale(&self) -> Result<usize> {
        match self.block_out_channels.as_ref().map(Vec::len) {
            Some(levels @ 1..=8) => Ok(1 << (levels - 1)),
            Some(levels) => {
                let reason = format!("it has {levels} numbers, but must have 1 to 8");
                Err(fault(&self.path, "`block_out_channels`", reason))
            }
            None => Ok(SCALE),
        }
    }

    /// Height and width of the latent in training.
    pub(super) fn latent_sides(&self) -> [usize; 2] {
        match self.sample_size.as_ref().and_then(|size| size.expand(2)).as_deref() {
            Some([height, width]) => [*height, *width],
            _ => [LATENT_SIDE; 2],
        }
    }
}

/// Sizes of the VAE.
pub(super) struct VaeSizes {
    pub(super) latent_channels: usize,
    /// Pixels of a picture along each side for a pixel of the latent.
    pub(super) pixels: usize,
    /// Factor of the latent after the encoder, and the shift that is subtracted before.
    pub(super) latent_scale: (f32, f32),
    /// True if f16 cannot hold the values inside of the VAE in SDXL.
    pub(super) needs_f32: bool,
}

impl VaeSizes {
    /// Reads the sizes from the configuration and the file of the decoder.
    ///
    /// # Errors
    /// If the configuration is malformed.
    pub(super) fn read(path: &Path, decoder: &PartFile) -> Result<Self> {
        let vae = Settings::read(path, &decoder.part)?;
        let pixels = vae.scale()?;
        let declared = decoder.size("latent_sample", 1);
        Ok(Self {
            latent_channels: declared.or(vae.latent_channels).unwrap_or(LATENT_CHANNELS),
            pixels,
            latent_scale: (vae.scaling_factor.unwrap_or(LATENT_SCALE), vae.shift_factor.unwrap_or(0.0)),
            needs_f32: vae.force_upcast.unwrap_or(true),
        })
    }
}
