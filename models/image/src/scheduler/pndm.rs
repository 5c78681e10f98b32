//! PNDM (Liu et al., 2022) without Runge-Kutta steps, also called PLMS. Its history holds model outputs.

use super::alphas::{Alphas, DEFAULTS, ZeroSnr, check_steps};
use super::prediction::Prediction;
use super::settings::{Settings, invalid};
use super::solver::{Scheduler, Solver};
use super::spacing::{Spacing, whole_timesteps};
use super::step::{ExactStep, HISTORY, LATENT, Plan};
use crate::Result;

/// Entry of the table of schedulers.
pub(super) const SCHEDULER: Scheduler = Scheduler {
    class: "PNDMScheduler",
    names: &[("pndm", &[])],
    read: |settings| Ok(Box::new(Pndm::read(settings)?)),
};

/// Scheduler with its settings.
#[derive(Debug)]
struct Pndm {
    alphas: Alphas,
    last_alpha: f64,
    prediction: Prediction,
    spacing: Spacing,
    offset: i64,
}

impl Pndm {
    /// Reads the settings.
    fn read(settings: &Settings) -> Result<Self> {
        if !settings.flag("skip_prk_steps", false)? {
            return Err(invalid("skip_prk_steps", &false.into(), "true"));
        }
        let alphas = Alphas::read(settings, DEFAULTS, ZeroSnr::Ignored)?;
        Ok(Self {
            last_alpha: alphas.last(settings, false)?,
            alphas,
            prediction: Prediction::read_without_sample(settings)?,
            spacing: Spacing::read(settings, "leading")?,
            offset: settings.steps_offset()?,
        })
    }

    /// Returns the weights of the latent and of the averaged model output in the next latent.
    fn transfer(&self, from: i64, to: i64) -> Result<[f64; 2]> {
        let (alpha, next) = (self.alphas.at(from)?, self.alphas.before(to, self.last_alpha)?);
        let latent = (next / alpha).sqrt();
        let denominator = alpha * (1.0 - next).sqrt() + (alpha * (1.0 - alpha) * next).sqrt();
        let output = -(next - alpha) / denominator;
        Ok(match self.prediction {
            Prediction::Velocity => [latent + output * (1.0 - alpha).sqrt(), output * alpha.sqrt()],
            _ => [latent, output],
        })
    }

    /// Computes the step with this index in the run. `first_transfer` are the weights of step 0.
    fn step(&self, index: usize, timestep: i64, ratio: i64, first_transfer: [f64; 2]) -> Result<ExactStep> {
        let (from, to) = if index == 1 { (timestep + ratio, timestep) } else { (timestep, timestep - ratio) };
        let [latent, output] = self.transfer(from, to)?;
        let alpha = self.alphas.at(timestep)?;
        let mut step = ExactStep::new(timestep as f32, [alpha.sqrt(), (1.0 - alpha).sqrt()]);
        step.history = [0.0, 1.0];
        step.update[LATENT] = latent;
        for (weight, average) in step.update[HISTORY..].iter_mut().zip(average(index)) {
            *weight = output * average;
        }
        if index == 1 {
            // The step starts again from the latent of step 0, which follows from the present latent and h1.
            step.update[LATENT] = latent / first_transfer[0];
            step.update[HISTORY + 1] -= latent * first_transfer[1] / first_transfer[0];
        }
        Ok(step)
    }
}

/// Returns the weights of h0 to h4 in the averaged model output. The output of step 1 is used only in step 1.
fn average(index: usize) -> [f64; 5] {
    match index {
        0 => [1.0, 0.0, 0.0, 0.0, 0.0],
        1 => [0.5, 0.5, 0.0, 0.0, 0.0],
        2 => [1.5, 0.0, -0.5, 0.0, 0.0],
        3 => [23.0, -16.0, 0.0, 5.0, 0.0].map(|weight| weight / 12.0),
        4 => [55.0, -59.0, 37.0, 0.0, -9.0].map(|weight| weight / 24.0),
        _ => [55.0, -59.0, 37.0, -9.0, 0.0].map(|weight| weight / 24.0),
    }
}

impl Solver for Pndm {
    fn plan(&self, steps: usize, first: usize) -> Result<Plan> {
        let train = self.alphas.count();
        check_steps(steps, train)?;
        let ratio = (train / steps) as i64;
        let mut timesteps = whole_timesteps(self.spacing, train, steps, self.offset);
        if let Some(second) = timesteps.get(1).copied() {
            timesteps.insert(1, second);
        }
        let timesteps = timesteps.get(first..).unwrap_or_default();
        let first_transfer = timesteps.first().map_or(Ok([1.0, 0.0]), |t| self.transfer(*t, t - ratio))?;
        let numbered = timesteps.iter().enumerate();
        let steps: Result<Vec<_>> = numbered.map(|(i, t)| self.step(i, *t, ratio, first_transfer)).collect();
        Ok(Plan { steps: steps?, initial_noise: 1.0 })
    }
}
