//! Diffusion models in diffusers' folder form: Stable Diffusion 1 and 2, SDXL, LCM, and their inpainting models.
//!
//! The folder has `model_index.json` and a subfolder for each part: `unet`, `vae`, `text_encoder`, `tokenizer`, `scheduler`, and
//! for SDXL `text_encoder_2` and `tokenizer_2`. The parts are checkpoints, or ONNX files ([`onnx`]) with `vae_encoder` and
//! `vae_decoder` for `vae`. The configurations of the parts decide what is built, not the names of models. [`functions`] lists
//! the functions of the bundle.

mod checkpoint;
mod clip;
pub(crate) mod config;
mod functions;
mod image;
mod networks;
mod onnx;
pub(crate) mod published;
mod step;
mod tiny_vae;
mod transformer;
mod unet;
mod vae;

use std::path::Path;

use driftc::compile::Model;
use driftc::error::{Error, Result};
use driftc::suggest::did_you_mean;
use serde_json::{Map, Value};

use crate::folder::Dims;
use crate::opened::Checkpoint;
use config::{fault, object};
pub use onnx::is_onnx;
pub(crate) use onnx::part::MODEL_FILE;

/// File that marks a diffusers folder and names its parts.
pub(crate) const INDEX: &str = "model_index.json";
/// Folders of the parts that have weights.
pub(crate) const PARTS: [&str; 4] = ["unet", "vae", "text_encoder", "text_encoder_2"];
/// Number of tokens of a prompt. Longer texts have no positions in CLIP.
const MAX_TOKENS: usize = 77;
/// Largest height and width of pictures.
const MAX_SIDE: i64 = 4096;
/// Names of the sizes of pictures.
const SIZES: [&str; 2] = ["height", "width"];
/// Files that the bundle carries, by folder.
const ATTACHED: &[(&str, &[&str])] = &[
    ("", &[INDEX]),
    ("unet", CONFIG),
    ("vae", CONFIG),
    ("vae_encoder", CONFIG),
    ("vae_decoder", CONFIG),
    ("text_encoder", CONFIG),
    ("text_encoder_2", CONFIG),
    ("scheduler", &["scheduler_config.json"]),
    ("tokenizer", TOKENIZER_FILES),
    ("tokenizer_2", TOKENIZER_FILES),
];
const CONFIG: &[&str] = &["config.json"];
const SCHEDULER: &str = "scheduler/scheduler_config.json";
const TOKENIZER_FILES: &[&str] =
    &["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.json", "merges.txt"];

/// Reads a diffusers folder and builds the functions of the bundle. Also returns notes for the user.
///
/// # Errors
/// If a part is missing, malformed or not supported, or the sizes are not valid.
pub(crate) fn build(path: &Path, dims: &Dims) -> Result<(Model, Vec<String>, Checkpoint)> {
    let index = object(&path.join(INDEX))?;
    let (parts, notes, checkpoint) = match onnx::is_onnx(path) {
        true => onnx::open(path, dims)?,
        false => {
            check_parts(path, &index)?;
            checkpoint::open(path, &index, dims)?
        }
    };
    let entry_points = functions::entry_points(&parts)?;
    let name = path.file_name().map_or_else(|| "model".into(), |n| n.to_string_lossy().into_owned());
    let attachments = attachments(path)?;
    Ok((Model { entry_points, name, attachments, ..Model::default() }, notes, checkpoint))
}

/// Returns the folders that a diffusers folder is read from. The list is empty for other folders.
pub fn diffusion_folders(path: &Path) -> Vec<&'static str> {
    match path.join(INDEX).is_file() {
        true => attached_folders(path).map(|(part, _)| part).collect(),
        false => Vec::new(),
    }
}

/// Returns the folders that a diffusers folder is read from, with the names of attached files. A folder may have the VAE twice,
/// as a checkpoint and as ONNX files.
fn attached_folders(path: &Path) -> impl Iterator<Item = (&'static str, &'static [&'static str])> {
    let unused: &[&str] = if onnx::is_onnx(path) { &["vae"] } else { &["vae_encoder", "vae_decoder"] };
    let is_used = move |part: &str| !unused.contains(&part) && path.join(part).is_dir();
    ATTACHED.iter().copied().filter(move |(part, _)| is_used(part))
}

/// Returns true if the index names a class for a part.
fn has_part(index: &Map<String, Value>, part: &str) -> bool {
    class(index, part).is_some()
}

/// Returns the class of a part in the index, as in `["diffusers", "UNet2DConditionModel"]`.
fn class<'a>(index: &'a Map<String, Value>, part: &str) -> Option<&'a str> {
    index.get(part)?.as_array()?.get(1)?.as_str()
}

/// Checks that the folder has the needed parts, and that their classes are supported.
fn check_parts(path: &Path, index: &Map<String, Value>) -> Result<()> {
    let file = path.join(INDEX);
    let parts: [(&str, &[&str]); 5] = [
        ("unet", &["UNet2DConditionModel"]),
        ("vae", &["AutoencoderKL", "AutoencoderTiny"]),
        ("text_encoder", &["CLIPTextModel", "CLIPTextModelWithProjection"]),
        ("text_encoder_2", &["CLIPTextModel", "CLIPTextModelWithProjection"]),
        ("transformer", &[]),
    ];
    for (part, supported) in parts {
        match class(index, part) {
            Some(class) if !supported.contains(&class) => {
                return Err(Error::Model {
                    path: file,
                    place: format!("`{part}`"),
                    reason: format!("the class {class} is not supported"),
                    help: "supported: folders with a UNet2DConditionModel, an AutoencoderKL or AutoencoderTiny, and one or \
                           two CLIP text encoders; export other models to ONNX and compile each part"
                        .into(),
                });
            }
            None if ["unet", "vae"].contains(&part) => {
                return Err(fault(&file, &format!("`{part}`"), "the part is missing"));
            }
            _ => {}
        }
    }
    match has_part(index, "text_encoder") || has_part(index, "text_encoder_2") {
        true => Ok(()),
        false => Err(fault(&file, "`text_encoder`", "the part is missing")),
    }
}

/// Sizes that pictures may have.
struct PictureSize {
    /// Height and width of the latent in training.
    latent: [usize; 2],
    /// Number of pixels along each side of a picture for one pixel of the latent.
    pixels: usize,
    /// Number that divides the height and the width of pictures.
    multiple: usize,
    /// True if the networks accept no other size.
    is_fixed: bool,
}

impl PictureSize {
    /// Returns the height and width of pictures: the user's, or else the sizes of training. Also returns notes for the user.
    ///
    /// # Errors
    /// If a size has another name, varies, or is not possible.
    fn select(&self, dims: &Dims) -> Result<([usize; 2], Vec<String>)> {
        if let Some(unknown) = dims.keys().find(|name| !SIZES.contains(&name.as_str())) {
            let help = format!("{}the model's sizes are `height`, `width`", did_you_mean(unknown, SIZES));
            return Err(Error::request(format!("the model has no size `{unknown}`"), help));
        }
        let multiple = i64::try_from(self.multiple).unwrap_or(1);
        let trained = self.latent.map(|side| side * self.pixels);
        let mut sides = trained;
        for (side, name) in sides.iter_mut().zip(SIZES) {
            let Some((low, high)) = dims.get(name).copied() else { continue };
            if low != high {
                let help = format!("give one number: --dim {name}=N; compile a bundle for each size");
                return Err(Error::request(
                    format!("the {name} of pictures cannot vary in one bundle"),
                    help,
                ));
            }
            if low < multiple || low > MAX_SIDE || low % multiple != 0 {
                let help = format!("give a multiple of {multiple} from {multiple} to {MAX_SIDE}");
                return Err(Error::request(format!("pictures cannot have a {name} of {low} pixels"), help));
            }
            *side = usize::try_from(low).unwrap_or(0);
        }
        let [height, width] = trained;
        if self.is_fixed && sides != trained {
            return Err(Error::request(
                format!("the model was exported for pictures of {width} x {height} pixels only"),
                "leave out the sizes, or export the model again with symbolic sizes",
            ));
        }
        let mut notes = Vec::new();
        if dims.is_empty() && !self.is_fixed {
            notes.push(format!(
                "pictures are {width} x {height} pixels; give --dim width=W and --dim height=H for another size"
            ));
        }
        Ok((sides, notes))
    }
}

/// Reads the files that the bundle carries. Their names are their paths in the folder.
fn attachments(path: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let mut attachments = Vec::new();
    for (part, names) in attached_folders(path) {
        for name in names {
            let file = path.join(part).join(name);
            // With a `tokenizer.json`, the older files are not needed.
            let is_old = ["vocab.json", "merges.txt"].contains(name);
            if file.is_file() && !(is_old && path.join(part).join("tokenizer.json").is_file()) {
                let bytes =
                    std::fs::read(&file).map_err(|e| Error::Io { path: file, reason: e.to_string() })?;
                let name = if part.is_empty() { (*name).to_string() } else { format!("{part}/{name}") };
                attachments.push((name, bytes));
            }
        }
    }
    // diffusers writes numbers such as -Infinity, which are not JSON, into this file. The runtime reads them.
    let (scheduler, others): (Vec<_>, Vec<_>) =
        attachments.into_iter().partition(|(name, _)| name == SCHEDULER);
    crate::folder::check_attachments(path, &others)?;
    Ok(others.into_iter().chain(scheduler).collect())
}
