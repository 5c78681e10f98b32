//! Ancestral sampling with Euler steps: each step removes more noise than needed and adds fresh noise.

use super::alphas::{Alphas, DEFAULTS, ZeroSnr, check_steps};
use super::euler::{euler_step, initial_noise};
use super::prediction::Prediction;
use super::settings::Settings;
use super::sigmas::SigmaTable;
use super::solver::{Scheduler, Solver};
use super::spacing::{Spacing, timesteps};
use super::step::{ExactStep, NOISE, Plan};
use crate::Result;

/// Entry of the table of schedulers.
pub(super) const SCHEDULER: Scheduler = Scheduler {
    class: "EulerAncestralDiscreteScheduler",
    names: &[("euler-a", &[])],
    read: |settings| Ok(Box::new(EulerAncestral::read(settings)?)),
};

/// Scheduler with its settings.
#[derive(Debug)]
struct EulerAncestral {
    table: SigmaTable,
    train: usize,
    prediction: Prediction,
    spacing: Spacing,
    offset: i64,
}

impl EulerAncestral {
    /// Reads the settings.
    fn read(settings: &Settings) -> Result<Self> {
        let alphas = Alphas::read(settings, DEFAULTS, ZeroSnr::Finite)?;
        Ok(Self {
            table: SigmaTable::new(&alphas),
            train: alphas.count(),
            prediction: Prediction::read_without_sample(settings)?,
            spacing: Spacing::read(settings, "linspace")?,
            offset: settings.steps_offset()?,
        })
    }

    /// Computes the step from one sigma to the next.
    fn step(&self, timestep: f32, sigma: f64, next: f64) -> ExactStep {
        let ratio = next / sigma;
        let fresh = next * (1.0 - ratio * ratio).sqrt();
        let target = next * ratio;
        let mut step = euler_step(self.prediction, timestep, sigma, target - sigma);
        step.update[NOISE] = fresh;
        step.needs_noise = next > 0.0;
        step
    }
}

impl Solver for EulerAncestral {
    fn plan(&self, steps: usize, first: usize) -> Result<Plan> {
        check_steps(steps, self.train)?;
        let times: Vec<f32> =
            timesteps(self.spacing, self.train, steps, self.offset).into_iter().map(|t| t as f32).collect();
        let mut sigmas: Vec<f64> =
            times.iter().map(|t| f64::from(self.table.at(f64::from(*t)) as f32)).collect();
        sigmas.push(0.0);
        let pairs = sigmas.windows(2).map(|pair| (pair[0], pair[1]));
        let steps = times.iter().zip(pairs).skip(first).map(|(t, (sigma, next))| self.step(*t, sigma, next));
        Ok(Plan { steps: steps.collect(), initial_noise: initial_noise(self.spacing, &sigmas) })
    }
}
