//! DPM-Solver and DPM-Solver++, multistep (Lu et al., 2022). The history holds predicted clean latents, or predicted noises.

use serde_json::Value;

use super::alphas::{Alphas, DEFAULTS, ZeroSnr, check_steps};
use super::dpm_update::{Algorithm, Update};
use super::prediction::Prediction;
use super::settings::{FILE, Fixed, Settings, invalid};
use super::sigmas::{Curve, SigmaSettings, SigmaTable};
use super::solver::{Scheduler, Solver};
use super::spacing::{Spacing, linspace, trailing};
use super::step::{ExactStep, HISTORY, LATENT, NOISE, Plan};
use crate::{Error, Result};

/// Entry of the table of schedulers.
pub(super) const SCHEDULER: Scheduler = Scheduler {
    class: "DPMSolverMultistepScheduler",
    names: &[
        (
            "dpm++2m",
            &[
                ("algorithm_type", Fixed::Word("dpmsolver++")),
                ("solver_order", Fixed::Count(2)),
                ("use_karras_sigmas", Fixed::Flag(false)),
            ],
        ),
        (
            "dpm++2m-karras",
            &[
                ("algorithm_type", Fixed::Word("dpmsolver++")),
                ("solver_order", Fixed::Count(2)),
                ("use_karras_sigmas", Fixed::Flag(true)),
                ("use_exponential_sigmas", Fixed::Flag(false)),
                ("use_beta_sigmas", Fixed::Flag(false)),
            ],
        ),
    ],
    read: |settings| Ok(Box::new(DpmMultistep::read(settings)?)),
};

/// Minimum number of steps from which `lower_order_final` has no effect.
const MANY_STEPS: usize = 15;

/// Scheduler with its settings.
#[derive(Debug)]
struct DpmMultistep {
    table: SigmaTable,
    train: usize,
    /// Number of training timesteps that are left after clipping by `lambda_min_clipped`.
    last: usize,
    prediction: Prediction,
    algorithm: Algorithm,
    heun: bool,
    order: usize,
    lower_order_final: bool,
    euler_at_final: bool,
    sigmas: SigmaSettings,
    /// The timesteps of a curve of sigmas are rounded. Otherwise their fractions are cut off.
    rounds: bool,
    spacing: Spacing,
    offset: i64,
}

impl DpmMultistep {
    /// Reads the settings.
    fn read(settings: &Settings) -> Result<Self> {
        for key in ["thresholding", "use_flow_sigmas", "use_dynamic_shifting"] {
            settings.refuse(key)?;
        }
        settings.refuse_words("variance_type", &["learned", "learned_range"])?;
        let alphas = Alphas::read(settings, DEFAULTS, ZeroSnr::Finite)?;
        let algorithm = Algorithm::read(settings)?;
        let sigmas = SigmaSettings::read(settings, true)?;
        if !algorithm.predicts_original() && !sigmas.ends_at_minimum {
            return Err(invalid(
                "final_sigmas_type",
                &Value::from("zero"),
                "sigma_min, because `algorithm_type` is dpmsolver or sde-dpmsolver",
            ));
        }
        let highest = if algorithm == Algorithm::StochasticNoise { 2 } else { 3 };
        let order = settings.integer("solver_order", 2, 1..=highest)?;
        let solvers =
            [("midpoint", false), ("heun", true), ("logrho", false), ("bh1", false), ("bh2", false)];
        let cosine = [("linear", false), ("scaled_linear", false), ("squaredcos_cap_v2", true)];
        Ok(Self {
            table: SigmaTable::new(&alphas),
            train: alphas.count(),
            last: unclipped(&alphas, settings)?,
            prediction: Prediction::read(settings)?,
            algorithm,
            heun: settings.choice("solver_type", "midpoint", &solvers)?,
            order: usize::try_from(order).unwrap_or(1),
            lower_order_final: settings.flag("lower_order_final", true)?,
            euler_at_final: settings.flag("euler_at_final", false)?,
            rounds: sigmas.curve != Curve::Exponential
                && !settings.choice("beta_schedule", "linear", &cosine)?,
            sigmas,
            spacing: Spacing::read(settings, "linspace")?,
            offset: settings.steps_offset()?,
        })
    }

    /// Returns the timesteps of a run, without a curve of sigmas.
    fn timesteps(&self, steps: usize) -> Vec<f64> {
        match self.spacing {
            Spacing::Linspace => {
                let all = linspace(0.0, self.last as f64 - 1.0, steps + 1);
                all.into_iter().skip(1).rev().map(f64::round_ties_even).collect()
            }
            Spacing::Leading => {
                let ratio = self.last / (steps + 1);
                (1..=steps).rev().map(|i| (i * ratio) as f64 + self.offset as f64).collect()
            }
            Spacing::Trailing => trailing(self.last, self.train, steps),
        }
    }

    /// Returns the timesteps and sigmas of a run. The sigmas have one more entry, the last sigma.
    fn levels(&self, steps: usize) -> (Vec<f64>, Vec<f64>) {
        let mut times;
        let mut sigmas: Vec<f64>;
        if self.sigmas.curve == Curve::Table {
            times = self.timesteps(steps);
            sigmas = times.iter().map(|t| self.table.at(*t)).collect();
        } else {
            sigmas = self.sigmas.distributed(self.table.maximum(), self.table.minimum(), steps);
            times = sigmas.iter().map(|sigma| self.table.timestep(*sigma)).collect();
            for time in &mut times {
                *time = if self.rounds { time.round_ties_even() } else { time.trunc() };
            }
        }
        sigmas.push(if self.sigmas.ends_at_minimum { self.table.minimum() } else { 0.0 });
        (times, sigmas.into_iter().map(|sigma| f64::from(sigma as f32)).collect())
    }

    /// Returns the order of the step with this index among all timesteps, and this number of steps before it in the run.
    fn order(&self, index: usize, count: usize, before: usize) -> usize {
        let few = self.lower_order_final && count < MANY_STEPS;
        if index + 1 == count && (self.euler_at_final || few || !self.sigmas.ends_at_minimum) {
            return 1;
        }
        let highest = if index + 2 == count && few { 2 } else { 3 };
        self.order.min(before + 1).min(highest)
    }

    /// Computes the step of an order. `sigmas` holds the next sigma, the present one, and the earlier ones.
    fn step(&self, timestep: f64, order: usize, sigmas: [f64; 4]) -> ExactStep {
        let a = 1.0 / (sigmas[1] * sigmas[1] + 1.0).sqrt();
        let s = sigmas[1] * a;
        let mut step = ExactStep::new(timestep as f32, [a, s]);
        step.history = match self.algorithm.predicts_original() {
            true => self.prediction.original(a, s),
            false => self.prediction.noise(a, s),
        };
        let update = Update::new(self.algorithm, self.heun, order, sigmas);
        step.update[LATENT] = update.latent;
        step.update[HISTORY..HISTORY + 3].copy_from_slice(&update.history);
        step.update[NOISE] = update.noise;
        step.needs_noise = self.algorithm.is_stochastic() && sigmas[0] > 0.0;
        step
    }
}

/// Returns the number of training timesteps whose lambda is at least `lambda_min_clipped`.
fn unclipped(alphas: &Alphas, settings: &Settings) -> Result<usize> {
    let minimum = settings.number("lambda_min_clipped", f64::NEG_INFINITY)?;
    let lambda = |alpha: &f32| {
        let alpha = f64::from(*alpha);
        libm::log(alpha.sqrt()) - libm::log((1.0 - alpha).sqrt())
    };
    let clipped = alphas.table().iter().rev().take_while(|alpha| lambda(alpha) < minimum).count();
    match alphas.count() - clipped {
        0 => Err(Error::Request(format!(
            "{FILE}: `lambda_min_clipped` is {minimum}, which leaves no training timestep; use -5.1 or less"
        ))),
        left => Ok(left),
    }
}

impl Solver for DpmMultistep {
    fn plan(&self, steps: usize, first: usize) -> Result<Plan> {
        check_steps(steps, self.train)?;
        let (times, sigmas) = self.levels(steps);
        let sigma = |index: Option<usize>| index.and_then(|i| sigmas.get(i)).copied().unwrap_or(f64::NAN);
        let step = |(index, time): (usize, &f64)| {
            let order = self.order(index, times.len(), index - first);
            let around =
                [Some(index + 1), Some(index), index.checked_sub(1), index.checked_sub(2)].map(sigma);
            self.step(*time, order, around)
        };
        let steps = times.iter().enumerate().skip(first).map(step);
        Ok(Plan { steps: steps.collect(), initial_noise: 1.0 })
    }
}
