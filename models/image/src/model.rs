//! Functions, sizes and files of a diffusion model in a bundle.

use drift_runtime::Session;
use drift_runtime::format::{Function, Port};

use crate::{Correction, Error, ImageRequest, PromptEncoder, Result, SchedulerConfig, clip_tokenizer_json};

/// Guidance and steps that a family of models is used with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Defaults {
    pub(crate) guidance: f32,
    pub(crate) steps: usize,
}

/// Sizes and inputs of a diffusion model.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    /// Shape of the latent, `[1, channels, height, width]`.
    pub(crate) latent: [usize; 4],
    /// Height and width of pictures.
    pub(crate) sides: [usize; 2],
    /// Number of text encoders.
    pub(crate) encoders: usize,
    /// Number of tokens of a prompt.
    pub(crate) tokens: usize,
    /// True if the text encoder also takes time ids, as in SDXL.
    pub(crate) has_time_ids: bool,
    /// True if the model can compute classifier-free guidance.
    pub(crate) can_guide: bool,
    /// True if the UNet reads the mask and the masked image.
    pub(crate) inpaints: bool,
    /// True if the bundle has the VAE encoder.
    pub(crate) encodes_images: bool,
    /// True if the VAE encoder draws noise.
    pub(crate) encoder_draws: bool,
    /// True if the pipeline of the model in diffusers corrects outdated settings of the scheduler.
    pub(crate) corrects_scheduler: bool,
    /// True if an empty negative prompt has an embedding of zeros.
    pub(crate) zeros_for_empty: bool,
}

impl Model {
    /// Reads the functions of a bundle.
    ///
    /// # Errors
    /// If the bundle has no diffusion model.
    pub(crate) fn new(session: &Session) -> Result<Self> {
        let ids = |port: &&Port| port.name == "ids" || port.name.starts_with("ids_");
        let encode = &function(session, "encode")?.inputs;
        let tokens = encode.iter().find(ids).map(shape).and_then(|shape| shape.get(1).copied());
        let start = &function(session, "start")?.inputs;
        let sides = match function(session, "decode")?.outputs.first().map(shape).as_deref() {
            Some([1, height, width, 3]) => [*height, *width],
            _ => return Err(not("the output of `decode` is no picture")),
        };
        let latent = start.iter().find(|port| port.name == "noise").map(shape);
        let (Some(tokens), Some(Ok(latent))) = (tokens, latent.map(<[usize; 4]>::try_from)) else {
            return Err(not("the inputs of `encode` and `start` have other shapes"));
        };
        let index = session.bundle().attachment("model_index.json")?.unwrap_or(b"{}");
        let index: serde_json::Value = serde_json::from_slice(index)
            .map_err(|e| Error::File { file: "model_index.json", reason: e.to_string() })?;
        let class = index.get("_class_name").and_then(serde_json::Value::as_str).unwrap_or_default();
        // Exports to ONNX may add a prefix to the class of the pipeline.
        let class = ["ORT", "Onnx"].iter().find_map(|prefix| class.strip_prefix(prefix)).unwrap_or(class);
        let encoder = session.function("encode_image").ok();
        Ok(Self {
            latent,
            sides,
            encoders: encode.iter().filter(ids).count(),
            tokens,
            has_time_ids: has(encode, "time_ids"),
            can_guide: session.function("denoise").is_ok(),
            inpaints: has(start, "masked_image"),
            encodes_images: encoder.is_some(),
            encoder_draws: encoder.is_some_and(|encoder| has(&encoder.inputs, "noise")),
            corrects_scheduler: class.starts_with("StableDiffusion")
                && !class.starts_with("StableDiffusionXL"),
            zeros_for_empty: index.get("force_zeros_for_empty_prompt").is_some_and(|v| v == true),
        })
    }

    pub(crate) fn defaults(&self) -> Defaults {
        match (self.can_guide, self.has_time_ids) {
            (false, _) => Defaults { guidance: 8.5, steps: 4 },
            (true, true) => Defaults { guidance: 5.0, steps: 20 },
            (true, false) => Defaults { guidance: 7.5, steps: 20 },
        }
    }

    /// Number of elements of a latent.
    pub(crate) fn latent_elements(&self) -> usize {
        self.latent.iter().product()
    }
}

/// Returns the error for a bundle that is no diffusion model.
fn not(reason: &str) -> Error {
    Error::NotAnImageModel { reason: reason.to_owned() }
}

fn function<'a>(session: &'a Session, name: &str) -> Result<&'a Function> {
    session.function(name).map_err(|_| not(&format!("it has no function `{name}`")))
}

fn has(ports: &[Port], name: &str) -> bool {
    ports.iter().any(|port| port.name == name)
}

/// Returns the sizes of a port. A size that is not fixed is 0.
fn shape(port: &Port) -> Vec<usize> {
    port.shape
        .iter()
        .map(|size| size.as_constant().and_then(|n| usize::try_from(n).ok()).unwrap_or(0))
        .collect()
}

/// Reads the tokenizers of a bundle, one for each text encoder.
///
/// # Errors
/// If a tokenizer is missing or malformed.
pub(crate) fn prompt_encoders(session: &Session, model: &Model) -> Result<Vec<PromptEncoder>> {
    let folders = ["tokenizer", "tokenizer_2"];
    let mut encoders = Vec::new();
    for folder in folders {
        let file = |name: &str| session.bundle().attachment(&format!("{folder}/{name}"));
        let json = match (file("tokenizer.json")?, file("vocab.json")?, file("merges.txt")?) {
            (Some(json), ..) => json.to_vec(),
            (None, Some(vocabulary), Some(merges)) => clip_tokenizer_json(vocabulary, merges)?,
            _ => continue,
        };
        encoders.push(PromptEncoder::new(
            &json,
            file("tokenizer_config.json")?,
            file("special_tokens_map.json")?,
        )?);
    }
    match encoders.len() == model.encoders {
        true => Ok(encoders),
        false => Err(not(&format!(
            "it has {} tokenizers for {} text encoders; compile the folder again with its folders `tokenizer`",
            encoders.len(),
            model.encoders
        ))),
    }
}

/// Reads the scheduler of a bundle, or selects another one by its short name.
///
/// # Errors
/// If the bundle has no scheduler, or its settings are not supported.
pub(crate) fn scheduler(session: &Session, model: &Model, request: &ImageRequest) -> Result<SchedulerConfig> {
    let file = session.bundle().attachment("scheduler/scheduler_config.json")?;
    let file = file.ok_or_else(|| not("it has no file `scheduler/scheduler_config.json`"))?;
    let corrections: &[Correction] = match (model.corrects_scheduler, request.mask.is_some()) {
        (false, _) => &[],
        (true, true) => &[Correction::StepsOffset],
        (true, false) => &[Correction::StepsOffset, Correction::ClipSample],
    };
    SchedulerConfig::corrected(file, request.scheduler.as_deref(), corrections)
}
