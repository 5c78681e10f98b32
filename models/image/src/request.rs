//! Request of a picture: prompts, settings, and an image with a mask.

use crate::Picture;

/// Request of a picture.
#[derive(Debug, Clone)]
pub struct ImageRequest {
    /// Text that the picture shows.
    pub prompt: String,
    /// Text that the picture avoids.
    pub negative_prompt: Option<String>,
    /// Number of denoising steps. `None`: the default of the model.
    pub steps: Option<usize>,
    /// Scale of classifier-free guidance. Values up to 1 turn it off. `None`: the default of the model.
    pub guidance: Option<f32>,
    /// Seed of the noise, as for torch's CPU generator.
    pub seed: u64,
    /// Short name of a scheduler. `None`: the scheduler of the model.
    pub scheduler: Option<String>,
    /// Image to start from.
    pub image: Option<Picture>,
    /// Mask of the image: white where the picture is new, black where the image is kept.
    pub mask: Option<Picture>,
    /// Share of the steps that change the image, above 0 and at most 1. Ignored without an image.
    pub strength: f64,
}

impl ImageRequest {
    /// Returns the usual strength: 1 with a mask, else 0.8.
    pub fn default_strength(has_mask: bool) -> f64 {
        if has_mask { 1.0 } else { 0.8 }
    }
}

impl Default for ImageRequest {
    fn default() -> Self {
        Self {
            prompt: String::new(),
            negative_prompt: None,
            steps: None,
            guidance: None,
            seed: 0,
            scheduler: None,
            image: None,
            mask: None,
            strength: Self::default_strength(false),
        }
    }
}

/// Settings that a picture was made with, after defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Number of denoising steps of the schedule. With an image, only a part of them ran.
    pub steps: usize,
    /// Scale of classifier-free guidance.
    pub guidance: f32,
    /// Class of the scheduler in diffusers.
    pub scheduler: &'static str,
    /// Ends of prompts that were cut off, because the text encoder takes no more tokens.
    pub cut: Vec<String>,
}
