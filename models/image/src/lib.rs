//! Host side of image generation with diffusion models.
//!
//! ```text
//! prompt -> PromptEncoder -> token ids -> text encoder
//! scheduler_config.json -> SchedulerConfig -> Schedule -> coefficients of each denoising step
//! seed -> TorchGenerator -> noise
//! VAE decoder -> Picture -> PNG file
//! ```
//!
//! All settings come from files of a diffusers folder, which a bundle carries. The results agree with diffusers and with
//! PyTorch's CPU generator, so a seed gives the same picture.

mod model;
mod noise;
mod picture;
mod pipeline;
mod prompt;
mod request;
mod scheduler;

pub use noise::TorchGenerator;
pub use picture::{Picture, preview, to_ansi};
pub use pipeline::{ImagePipeline, Listener, Progress};
pub use prompt::{Encoded, PromptEncoder, clip_tokenizer_json};
pub use request::{ImageRequest, Settings};
pub use scheduler::{Correction, Schedule, SchedulerConfig, Step, scheduler_names};

/// Error of reading scheduler, tokenizer or picture files, or of a request that they do not support.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of the model is malformed.
    #[error("{file}: {reason}")]
    File {
        /// Name of the malformed file.
        file: &'static str,
        /// Reason.
        reason: String,
    },
    /// A setting of a file of the model has an unsupported or invalid value.
    #[error("{file}: the setting `{setting}` is {value}; supported: {supported}")]
    Setting {
        /// Name of the file.
        file: &'static str,
        /// Name of the setting.
        setting: String,
        /// Value in the file, as JSON.
        value: String,
        /// Supported values.
        supported: String,
    },
    /// The requested number of steps, strength or scheduler is not possible.
    #[error("{0}")]
    Request(String),
    /// A picture cannot be read or written.
    #[error("{path}: {reason}")]
    Picture {
        /// Path of the file, or a description of the source.
        path: String,
        /// Reason.
        reason: String,
    },
    /// A tokenizer file is malformed, or a prompt cannot be encoded.
    #[error(transparent)]
    Text(#[from] drift_text::Error),
    /// The bundle, the device or an input is at fault.
    #[error(transparent)]
    Runtime(#[from] drift_runtime::Error),
    /// The bundle makes no pictures.
    #[error("the model makes no pictures: {reason}")]
    NotAnImageModel {
        /// Reason.
        reason: String,
    },
    /// An element of the latent is infinite or NaN.
    #[error("the latent is not finite after step {step}")]
    NotFinite {
        /// Number of the step, from 1.
        step: usize,
    },
    /// The listener cancelled the run.
    #[error("the run was cancelled")]
    Cancelled,
}

impl Error {
    /// Advice for the user, in terms of the program `driftc`.
    pub fn help(&self) -> Option<&'static str> {
        match self {
            Error::File { .. } => Some("download this file of the model again, then compile the model again"),
            Error::Setting { .. } => Some(
                "select another scheduler by name (pndm, ddim, euler, euler-a, dpm++2m, dpm++2m-karras, lcm), or change the setting in the model's folder and compile the model again",
            ),
            Error::Picture { .. } => Some("use a PNG, JPEG or WebP file of at most 16384 x 16384 pixels"),
            Error::Text(error) => error.help(),
            Error::NotAnImageModel { .. } => Some("compile a diffusers folder: one with model_index.json"),
            Error::NotFinite { .. } => {
                Some("compile the model with --precision f32, or use a lower guidance or another scheduler")
            }
            // The runtime's errors compute their advice.
            Error::Runtime(_) | Error::Request(_) | Error::Cancelled => None,
        }
    }
}

/// Result type of the functions of `drift-image`.
pub type Result<T> = std::result::Result<T, Error>;
