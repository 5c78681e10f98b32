//! Euler's method for the probability flow ODE (Karras et al., 2022, algorithm 2 without added noise).

use super::alphas::{Alphas, DEFAULTS, ZeroSnr, check_steps};
use super::prediction::Prediction;
use super::settings::Settings;
use super::sigmas::{Curve, SigmaSettings, SigmaTable};
use super::solver::{Scheduler, Solver};
use super::spacing::{Spacing, linspace, timesteps};
use super::step::{ExactStep, LATENT, OUTPUT, Plan};
use crate::Result;

/// Entry of the table of schedulers.
pub(super) const SCHEDULER: Scheduler = Scheduler {
    class: "EulerDiscreteScheduler",
    names: &[("euler", &[])],
    read: |settings| Ok(Box::new(Euler::read(settings)?)),
};

/// Scheduler with its settings.
#[derive(Debug)]
struct Euler {
    table: SigmaTable,
    train: usize,
    prediction: Prediction,
    sigmas: SigmaSettings,
    log_linear: bool,
    continuous: bool,
    spacing: Spacing,
    offset: i64,
}

impl Euler {
    /// Reads the settings.
    fn read(settings: &Settings) -> Result<Self> {
        let alphas = Alphas::read(settings, DEFAULTS, ZeroSnr::Finite)?;
        let prediction = Prediction::read(settings)?;
        let continuous =
            settings.choice("timestep_type", "discrete", &[("discrete", false), ("continuous", true)])?;
        Ok(Self {
            table: SigmaTable::new(&alphas),
            train: alphas.count(),
            prediction,
            sigmas: SigmaSettings::read(settings, false)?,
            log_linear: settings.choice(
                "interpolation_type",
                "linear",
                &[("linear", false), ("log_linear", true)],
            )?,
            continuous: continuous && prediction == Prediction::Velocity,
            spacing: Spacing::read(settings, "linspace")?,
            offset: settings.steps_offset()?,
        })
    }

    /// Returns the timesteps and sigmas of a run. The sigmas have at least one more entry, the last sigma.
    fn levels(&self, steps: usize) -> (Vec<f32>, Vec<f64>) {
        let mut times = timesteps(self.spacing, self.train, steps, self.offset);
        for time in &mut times {
            *time = f64::from(*time as f32);
        }
        let mut sigmas: Vec<f64> = if self.log_linear {
            let (first, last) = (libm::log(self.table.maximum()), libm::log(self.table.minimum()));
            linspace(first, last, steps + 1).into_iter().map(libm::exp).collect()
        } else {
            times.iter().map(|t| self.table.at(*t)).collect()
        };
        if self.sigmas.curve != Curve::Table {
            let (first, last) = (sigmas.first().copied(), sigmas.last().copied());
            sigmas = self.sigmas.distributed(first.unwrap_or(0.0), last.unwrap_or(0.0), steps);
            times = sigmas.iter().map(|sigma| self.table.timestep(*sigma)).collect();
        }
        sigmas.push(if self.sigmas.ends_at_minimum { self.table.minimum() } else { 0.0 });
        for sigma in &mut sigmas {
            *sigma = f64::from(*sigma as f32);
        }
        if self.continuous {
            times = sigmas
                .iter()
                .take(times.len())
                .map(|sigma| 0.25 * f64::from(libm::log(*sigma) as f32))
                .collect();
        }
        (times.into_iter().map(|t| t as f32).collect(), sigmas)
    }

    /// Computes the step from one sigma to the next.
    fn step(&self, timestep: f32, sigma: f64, next: f64) -> ExactStep {
        let mut step = euler_step(self.prediction, timestep, sigma, next - sigma);
        step.add_noise = [1.0, sigma];
        step
    }
}

/// Computes an Euler step that changes sigma by `change`.
pub(super) fn euler_step(prediction: Prediction, timestep: f32, sigma: f64, change: f64) -> ExactStep {
    let variance = sigma * sigma + 1.0;
    let mut step = ExactStep::new(timestep, [1.0, sigma]);
    step.input_scale = 1.0 / variance.sqrt();
    let [latent, output] = match prediction {
        Prediction::Epsilon => [0.0, 1.0],
        Prediction::Sample => [1.0 / sigma, -1.0 / sigma],
        Prediction::Velocity => [sigma / variance, 1.0 / variance.sqrt()],
    };
    step.update[LATENT] = 1.0 + change * latent;
    step.update[OUTPUT] = change * output;
    step
}

/// Returns the standard deviation of the first latent.
pub(super) fn initial_noise(spacing: Spacing, sigmas: &[f64]) -> f64 {
    let maximum = sigmas.iter().copied().fold(0.0, f64::max);
    if spacing == Spacing::Leading { (maximum * maximum + 1.0).sqrt() } else { maximum }
}

impl Solver for Euler {
    fn plan(&self, steps: usize, first: usize) -> Result<Plan> {
        check_steps(steps, self.train)?;
        let (times, sigmas) = self.levels(steps);
        let pairs = sigmas.windows(2).map(|pair| (pair[0], pair[1]));
        let steps = times.iter().zip(pairs).skip(first).map(|(t, (sigma, next))| self.step(*t, sigma, next));
        Ok(Plan { steps: steps.collect(), initial_noise: initial_noise(self.spacing, &sigmas) })
    }
}
