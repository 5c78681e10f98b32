//! Networks of a diffusion model from ONNX files, as Optimum exports them: one folder with `model.onnx` for each network.
//!
//! The imported graphs are copied into the functions of the bundle. The values of the UNet that depend on the prompts alone,
//! such as keys and values of cross-attention, are computed by `encode` and kept in states ([`prompt_values`]).

mod networks;
pub(crate) mod part;
mod prompt_values;
mod settings;

use std::collections::BTreeMap;
use std::path::Path;

use driftc::error::Result;
use driftc::import::onnx::DimSpec;
use driftc::ir::dim::Dim;

use super::functions::TIME_IDS;
use super::networks::{PROMPTS, Parts};
use super::{MAX_TOKENS, PictureSize};
use crate::folder::Dims;
use crate::function_graph::dims as known_dims;
use crate::opened::Checkpoint;
use networks::{BATCH, OnnxNetworks, UNet};
use part::{MODEL_FILE, Part, PartFile};
use settings::{Settings, VaeSizes};

/// Returns true if a diffusers folder has the UNet as an ONNX file only.
pub fn is_onnx(path: &Path) -> bool {
    let unet = path.join("unet");
    let is_weights = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.is_ok_and(|entry| entry.path().extension().is_some_and(|e| e == "safetensors"))
    };
    unet.join(MODEL_FILE).is_file() && !std::fs::read_dir(&unet).is_ok_and(|mut files| files.any(is_weights))
}

/// ONNX files of a folder, before they are imported.
struct Files {
    text: Vec<PartFile>,
    unet: PartFile,
    vae_encoder: Option<PartFile>,
    vae_decoder: PartFile,
}

impl Files {
    fn open(path: &Path) -> Result<Self> {
        let optional = |part: &str| match path.join(part).is_dir() {
            true => PartFile::open(path, part).map(Some),
            false => Ok(None),
        };
        let text = match (optional("text_encoder")?, optional("text_encoder_2")?) {
            (None, None) => vec![PartFile::open(path, "text_encoder")?],
            (first, second) => first.into_iter().chain(second).collect(),
        };
        let (unet, vae_decoder) = (PartFile::open(path, "unet")?, PartFile::open(path, "vae_decoder")?);
        Ok(Self { text, unet, vae_encoder: optional("vae_encoder")?, vae_decoder })
    }
}

/// Opens the networks of a folder. Also returns notes for the user.
///
/// # Errors
/// If a part is missing, malformed or not supported, or the sizes are not valid.
pub(super) fn open(path: &Path, dims: &Dims) -> Result<(Parts, Vec<String>, Checkpoint)> {
    let files = Files::open(path)?;
    let unet = Settings::read(path, "unet")?;
    let vae = VaeSizes::read(path, &files.vae_decoder)?;
    let (sides, notes) = picture_size(&files.unet, &unet, vae.pixels)?.select(dims)?;
    let mut imports = Imports { notes, files: Vec::new() };

    let tokens = tokens(path, &files.text)?;
    let mut text = Vec::new();
    for file in &files.text {
        text.push(imports.add(file, &[("input_ids", known_dims(&[PROMPTS, tokens]))])?);
    }
    let latent = [vae.latent_channels, sides[0] / vae.pixels, sides[1] / vae.pixels];
    let (unet, channels) = imports.unet(&files.unet, &unet, &text, tokens, latent)?;

    let [channel_count, height, width] = latent;
    let latent_dims = known_dims(&[1, channel_count, height, width]);
    let vae_decoder = imports.add(&files.vae_decoder, &[("latent_sample", latent_dims)])?;
    vae_decoder.check_output("sample", &[1, 3, sides[0], sides[1]])?;
    let image = known_dims(&[1, 3, sides[0], sides[1]]);
    let vae_encoder = match &files.vae_encoder {
        Some(file) => Some(imports.add(file, &[("sample", image)])?),
        None => None,
    };
    let takes_time_ids = files.unet.has("time_ids");
    let parts = Parts {
        text_encoders: text.len(),
        tokens,
        sides,
        pixels: vae.pixels,
        latent_channels: vae.latent_channels,
        latent_scale: vae.latent_scale,
        inpaints: channels == 2 * vae.latent_channels + 1,
        takes_guidance: unet.guidance.is_some(),
        takes_time_ids,
        vae_needs_f32: takes_time_ids && vae.needs_f32,
        encodes_images: vae_encoder.is_some(),
        networks: Box::new(OnnxNetworks {
            text,
            unet,
            vae_encoder,
            vae_decoder,
            latent_channels: vae.latent_channels,
        }),
    };
    Ok((parts, imports.notes, Checkpoint::Files(imports.files)))
}

/// Returns the sizes that pictures may have. An exported UNet halves and doubles the sides, so they must be even at each level.
fn picture_size(file: &PartFile, settings: &Settings, pixels: usize) -> Result<PictureSize> {
    let multiple = pixels * settings.scale()?;
    let declared = [2, 3].map(|axis| file.size("sample", axis));
    Ok(match declared {
        [Some(height), Some(width)] => {
            PictureSize { latent: [height, width], pixels, multiple, is_fixed: true }
        }
        _ => PictureSize { latent: settings.latent_sides(), pixels, multiple, is_fixed: false },
    })
}

/// Returns the number of tokens of a prompt.
fn tokens(path: &Path, files: &[PartFile]) -> Result<usize> {
    let mut tokens = MAX_TOKENS;
    for file in files {
        let most = Settings::read(path, &file.part)?.max_position_embeddings.unwrap_or(MAX_TOKENS);
        tokens = file.size("input_ids", 1).unwrap_or(most).min(tokens);
    }
    Ok(tokens)
}

/// Notes and files of the imported parts.
struct Imports {
    notes: Vec<String>,
    files: Vec<std::path::PathBuf>,
}

impl Imports {
    /// Imports a part with these shapes of its inputs.
    fn add(&mut self, file: &PartFile, shapes: &[(&str, Vec<Dim>)]) -> Result<Part> {
        let bounds = BTreeMap::from([(BATCH.to_owned(), DimSpec::Range(1, PROMPTS as i64))]);
        let is_batched = shapes.iter().any(|(_, shape)| shape.first() == Some(&Dim::symbol(BATCH)));
        let part = file.import(shapes, if is_batched { bounds } else { BTreeMap::new() })?;
        self.notes.extend(part.notes.iter().cloned());
        self.files.extend(part.files.iter().cloned());
        Ok(part)
    }

    /// Imports the UNet. Also returns the number of channels of its input. `latent` has the channels, height and width of the
    /// latent.
    fn unet(
        &mut self,
        file: &PartFile,
        settings: &Settings,
        text: &[Part],
        tokens: usize,
        latent: [usize; 3],
    ) -> Result<(UNet, usize)> {
        let [latent_channels, height, width] = latent;
        let batched = |sizes: &[usize]| -> Vec<Dim> {
            std::iter::once(Dim::symbol(BATCH)).chain(known_dims(sizes)).collect()
        };
        let takes_time_ids = file.has("time_ids");
        let mut embedding = 0;
        for part in text {
            let sizes = part.sizes(&part.embedding(takes_time_ids))?;
            embedding += sizes.last().copied().unwrap_or(0);
        }
        let channels = file.size("sample", 1).or(settings.in_channels).unwrap_or(latent_channels);
        if ![latent_channels, 2 * latent_channels + 1].contains(&channels) {
            let reason = format!("it has {channels} channels, but latents of the VAE have {latent_channels}");
            return Err(file.fault("input `sample`", reason));
        }
        let guidance = match file.has("timestep_cond") {
            true => Some(file.size("timestep_cond", 1).or(settings.time_cond_proj_dim).ok_or_else(|| {
                file.fault("input `timestep_cond`", "neither the file nor config.json states its size")
            })?),
            false => None,
        };
        let mut shapes = vec![
            ("sample", batched(&[channels, height, width])),
            ("timestep", file.timestep_shape(&Dim::symbol(BATCH))),
            ("encoder_hidden_states", batched(&[tokens, embedding])),
        ];
        shapes.extend(guidance.map(|size| ("timestep_cond", batched(&[size]))));
        if takes_time_ids {
            let pooled = text.iter().rev().find(|part| part.has_output("text_embeds"));
            let pooled = match pooled.or(text.last()) {
                Some(part) => part.sizes("text_embeds")?,
                None => Vec::new(),
            };
            shapes.push(("text_embeds", batched(pooled.get(1..).unwrap_or_default())));
            shapes.push(("time_ids", batched(&[TIME_IDS])));
        }
        let part = self.add(file, &shapes)?;
        Ok((UNet::new(&part, guidance, &[latent_channels, height, width])?, channels))
    }
}
