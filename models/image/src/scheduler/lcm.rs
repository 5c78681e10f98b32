//! Latent consistency models (Luo et al., 2023).

use super::alphas::{Alphas, Defaults, ZeroSnr, check_steps};
use super::prediction::{Prediction, clip_limit};
use super::settings::{FILE, Settings};
use super::solver::{Scheduler, Solver};
use super::step::{ExactStep, NOISE, Plan};
use crate::{Error, Result};

/// Entry of the table of schedulers.
pub(super) const SCHEDULER: Scheduler = Scheduler {
    class: "LCMScheduler",
    names: &[("lcm", &[])],
    read: |settings| Ok(Box::new(Lcm::read(settings)?)),
};

/// Default values of the betas.
const BETAS: Defaults = Defaults { start: 0.000_85, end: 0.012, schedule: "scaled_linear" };
/// Standard deviation of the data in the boundary condition.
const SIGMA_DATA: f64 = 0.5;

/// Scheduler with its settings.
#[derive(Debug)]
struct Lcm {
    alphas: Alphas,
    prediction: Prediction,
    limit: Option<f64>,
    /// Number of timesteps of the distillation.
    original_steps: usize,
    timestep_scaling: f64,
}

impl Lcm {
    /// Reads the settings.
    fn read(settings: &Settings) -> Result<Self> {
        let alphas = Alphas::read(settings, BETAS, ZeroSnr::Exact)?;
        let original_steps = settings.integer("original_inference_steps", 50, 1..=alphas.count() as i64)?;
        Ok(Self {
            alphas,
            prediction: Prediction::read(settings)?,
            limit: clip_limit(settings, false)?,
            original_steps: usize::try_from(original_steps).unwrap_or(1),
            timestep_scaling: settings.number("timestep_scaling", 10.0)?,
        })
    }

    /// Returns the timesteps of a run.
    fn timesteps(&self, steps: usize) -> Result<Vec<i64>> {
        check_steps(steps, self.alphas.count())?;
        if steps > self.original_steps {
            return Err(Error::Request(format!(
                "{steps} denoising steps were requested, but `original_inference_steps` of {FILE} is {count}; request at most {count} steps",
                count = self.original_steps
            )));
        }
        let distance = self.alphas.count() / self.original_steps;
        let stride = self.original_steps as f64 / steps as f64;
        let index = |i: usize| (i as f64 * stride) as usize;
        Ok((0..steps).map(|i| ((self.original_steps - index(i)) * distance) as i64 - 1).collect())
    }

    /// Computes a step. The last step has no next timestep.
    fn step(&self, timestep: i64, next: Option<i64>) -> Result<ExactStep> {
        let alpha = self.alphas.at(timestep)?;
        let (a, s) = (alpha.sqrt(), (1.0 - alpha).sqrt());
        let scaled = timestep as f64 * self.timestep_scaling;
        let sum = scaled * scaled + SIGMA_DATA * SIGMA_DATA;
        let (skip, out) = (SIGMA_DATA * SIGMA_DATA / sum, scaled / sum.sqrt());
        let next = next.map_or(Ok(1.0), |next| self.alphas.at(next))?;
        let mut step = ExactStep::new(timestep as f32, [a, s]);
        step.add(next.sqrt() * skip, [1.0, 0.0]);
        step.add_original(next.sqrt() * out, self.prediction.original(a, s), self.limit);
        step.update[NOISE] = (1.0 - next).sqrt();
        Ok(step)
    }
}

impl Solver for Lcm {
    fn plan(&self, steps: usize, first: usize) -> Result<Plan> {
        let timesteps = self.timesteps(steps)?;
        let timesteps = timesteps.get(first..).unwrap_or_default();
        let mut plan = Plan { steps: Vec::with_capacity(timesteps.len()), initial_noise: 1.0 };
        for (index, timestep) in timesteps.iter().enumerate() {
            let next = timesteps.get(index + 1).copied();
            let mut step = self.step(*timestep, next)?;
            step.needs_noise = next.is_some();
            plan.steps.push(step);
        }
        Ok(plan)
    }
}
