//! Quantity that the model predicts.

use super::settings::Settings;
use crate::Result;

/// Quantity that the model predicts. In all of them, a latent is `a * clean + s * noise`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Prediction {
    /// The noise.
    Epsilon,
    /// The clean latent.
    Sample,
    /// The velocity, `a * noise - s * clean`.
    Velocity,
}

impl Prediction {
    /// Reads the setting.
    pub(super) fn read(settings: &Settings) -> Result<Self> {
        let choices =
            [("epsilon", Self::Epsilon), ("sample", Self::Sample), ("v_prediction", Self::Velocity)];
        settings.choice("prediction_type", "epsilon", &choices)
    }

    /// Reads the setting for schedulers without `sample`.
    pub(super) fn read_without_sample(settings: &Settings) -> Result<Self> {
        let choices = [("epsilon", Self::Epsilon), ("v_prediction", Self::Velocity)];
        settings.choice("prediction_type", "epsilon", &choices)
    }

    /// Returns the weights of the latent and the model output in the clean latent.
    pub(super) fn original(self, a: f64, s: f64) -> [f64; 2] {
        match self {
            Self::Epsilon => [1.0 / a, -s / a],
            Self::Sample => [0.0, 1.0],
            Self::Velocity => [a, -s],
        }
    }

    /// Returns the weights of the latent and the model output in the noise.
    pub(super) fn noise(self, a: f64, s: f64) -> [f64; 2] {
        match self {
            Self::Epsilon => [0.0, 1.0],
            Self::Sample => [1.0 / s, -a / s],
            Self::Velocity => [s, a],
        }
    }
}

/// Reads the maximum magnitude of the predicted clean latent, or `None` if it is not clipped.
pub(super) fn clip_limit(settings: &Settings, default: bool) -> Result<Option<f64>> {
    settings.refuse("thresholding")?;
    let limit = settings.positive("clip_sample_range")?.unwrap_or(1.0);
    Ok(settings.flag("clip_sample", default)?.then_some(limit))
}
