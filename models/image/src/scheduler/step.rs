//! Steps of a run: in f64 while they are computed, and in f32 for the device.

use super::settings::FILE;
use crate::{Error, Result};

/// Coefficients of one denoising step.
///
/// The device computes for each element of the latent `x`, in f32:
///
/// ```text
/// model input = input_scale * x
/// m           = model output after guidance
/// h0          = clamp(history[0] * x + history[1] * m, -limit, limit)
/// x           = update[0]*x + update[1]*m + update[2]*h0 + update[3]*h1 + update[4]*h2 + update[5]*h3 + update[6]*h4
///             + update[7]*noise
/// ```
///
/// After the step h0 to h3 become h1 to h4. They start as zeros. The noise is a fresh standard normal tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Timestep, an input of the model.
    pub timestep: f32,
    /// Factor of the latent for the model input.
    pub input_scale: f32,
    /// Weights of the latent and of the model output in h0.
    pub history: [f32; 2],
    /// Maximum magnitude of h0. Infinite if the scheduler does not clip.
    pub limit: f32,
    /// Weights of the latent, the model output, h0 to h4, and the noise in the next latent.
    pub update: [f32; 8],
    /// The step needs a noise tensor. A caller that draws noise only for these steps draws the noise of diffusers.
    pub needs_noise: bool,
}

/// Denoising steps of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// Steps in order.
    pub steps: Vec<Step>,
    /// Standard deviation of the first latent in a run that starts from noise.
    pub initial_noise: f32,
    /// Weights of a clean latent and of noise that give a latent before each step. A last entry holds `[1, 0]`.
    pub add_noise: Vec<[f32; 2]>,
}

/// Steps in f64, before the check for finite coefficients.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) steps: Vec<ExactStep>,
    pub(super) initial_noise: f64,
}

/// Step in f64, with the fields of [`Step`].
#[derive(Debug, Clone)]
pub(super) struct ExactStep {
    pub(super) timestep: f32,
    pub(super) input_scale: f64,
    pub(super) history: [f64; 2],
    pub(super) limit: f64,
    pub(super) update: [f64; 8],
    pub(super) needs_noise: bool,
    /// Weights of a clean latent and of noise that give a latent before this step.
    pub(super) add_noise: [f64; 2],
}

/// Index of the latent in `update`.
pub(super) const LATENT: usize = 0;
/// Index of the model output in `update`.
pub(super) const OUTPUT: usize = 1;
/// Index of h0 in `update`.
pub(super) const HISTORY: usize = 2;
/// Index of the noise in `update`.
pub(super) const NOISE: usize = 7;

impl ExactStep {
    /// Creates a step without history that leaves a latent of zeros.
    pub(super) fn new(timestep: f32, add_noise: [f64; 2]) -> Self {
        Self {
            timestep,
            input_scale: 1.0,
            history: [0.0; 2],
            limit: f64::INFINITY,
            update: [0.0; 8],
            needs_noise: false,
            add_noise,
        }
    }

    /// Adds a weighted sum of latent and model output to the next latent.
    pub(super) fn add(&mut self, weight: f64, [latent, output]: [f64; 2]) {
        self.update[LATENT] += weight * latent;
        self.update[OUTPUT] += weight * output;
    }

    /// Adds the predicted clean latent to the next latent. If it is clipped, h0 holds it.
    pub(super) fn add_original(&mut self, weight: f64, original: [f64; 2], limit: Option<f64>) {
        match limit {
            None => self.add(weight, original),
            Some(limit) => {
                self.history = original;
                self.limit = limit;
                self.update[HISTORY] += weight;
            }
        }
    }
}

impl Plan {
    /// Converts all coefficients to f32 and checks that they are finite.
    pub(super) fn finish(self, class: &str) -> Result<Schedule> {
        let steps: Vec<Step> = self.steps.iter().map(rounded).collect();
        if let Some(index) = steps.iter().position(|step| !finite(step)) {
            let timestep = steps.get(index).map_or(0.0, |s| s.timestep);
            return Err(Error::Request(format!(
                "{FILE}: the coefficients of {class} are not finite at step {index} (timestep {timestep}); use fewer steps or another scheduler"
            )));
        }
        let mut add_noise: Vec<[f32; 2]> = self.steps.iter().map(|s| s.add_noise.map(|v| v as f32)).collect();
        add_noise.push([1.0, 0.0]);
        let finite = add_noise.iter().flatten().all(|v| v.is_finite()) && self.initial_noise.is_finite();
        if !finite {
            return Err(Error::Request(format!(
                "{FILE}: the noise levels of {class} are not finite; use another scheduler"
            )));
        }
        Ok(Schedule { steps, initial_noise: self.initial_noise as f32, add_noise })
    }
}

/// Rounds a step to f32.
fn rounded(step: &ExactStep) -> Step {
    Step {
        timestep: step.timestep,
        input_scale: step.input_scale as f32,
        history: step.history.map(|v| v as f32),
        limit: step.limit as f32,
        update: step.update.map(|v| v as f32),
        needs_noise: step.needs_noise,
    }
}

/// Returns true if all coefficients are finite. The limit may be infinite.
fn finite(step: &Step) -> bool {
    let single = [step.timestep, step.input_scale];
    let all = single.iter().chain(&step.history).chain(&step.update);
    all.copied().all(f32::is_finite) && !step.limit.is_nan()
}
