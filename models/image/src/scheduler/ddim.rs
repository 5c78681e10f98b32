//! DDIM (Song et al., 2020), deterministic: eta is 0.

use super::alphas::{Alphas, DEFAULTS, ZeroSnr, check_steps};
use super::prediction::{Prediction, clip_limit};
use super::settings::Settings;
use super::solver::{Scheduler, Solver};
use super::spacing::{Spacing, whole_timesteps};
use super::step::{ExactStep, Plan};
use crate::Result;

/// Entry of the table of schedulers.
pub(super) const SCHEDULER: Scheduler = Scheduler {
    class: "DDIMScheduler",
    names: &[("ddim", &[])],
    read: |settings| Ok(Box::new(Ddim::read(settings)?)),
};

/// Scheduler with its settings.
#[derive(Debug)]
struct Ddim {
    alphas: Alphas,
    last_alpha: f64,
    prediction: Prediction,
    limit: Option<f64>,
    spacing: Spacing,
    offset: i64,
}

impl Ddim {
    /// Reads the settings.
    fn read(settings: &Settings) -> Result<Self> {
        let alphas = Alphas::read(settings, DEFAULTS, ZeroSnr::Exact)?;
        Ok(Self {
            last_alpha: alphas.last(settings, true)?,
            alphas,
            prediction: Prediction::read(settings)?,
            limit: clip_limit(settings, true)?,
            spacing: Spacing::read(settings, "leading")?,
            offset: settings.steps_offset()?,
        })
    }

    /// Computes the step from `timestep` to the timestep `ratio` earlier.
    fn step(&self, timestep: i64, ratio: i64) -> Result<ExactStep> {
        let alpha = self.alphas.at(timestep)?;
        let next = self.alphas.before(timestep - ratio, self.last_alpha)?;
        let (a, s) = (alpha.sqrt(), (1.0 - alpha).sqrt());
        let mut step = ExactStep::new(timestep as f32, [a, s]);
        step.add_original(next.sqrt(), self.prediction.original(a, s), self.limit);
        step.add((1.0 - next).sqrt(), self.prediction.noise(a, s));
        Ok(step)
    }
}

impl Solver for Ddim {
    fn plan(&self, steps: usize, first: usize) -> Result<Plan> {
        let train = self.alphas.count();
        check_steps(steps, train)?;
        let ratio = (train / steps) as i64;
        let timesteps = whole_timesteps(self.spacing, train, steps, self.offset);
        let steps: Result<Vec<_>> = timesteps.into_iter().skip(first).map(|t| self.step(t, ratio)).collect();
        Ok(Plan { steps: steps?, initial_noise: 1.0 })
    }
}
