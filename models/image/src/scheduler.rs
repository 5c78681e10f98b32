//! Schedulers: the coefficients of each denoising step.
//!
//! Every scheduler becomes a list of steps, and the device evaluates one formula for all of them. The coefficients are
//! computed on the host before the run, in f64. The noise level tables are f32 as in diffusers, because the rounding of
//! these tables shows in the results.

mod alphas;
mod ddim;
mod dpm_multistep;
mod dpm_update;
mod euler;
mod euler_ancestral;
mod json;
mod lcm;
mod pndm;
mod prediction;
mod settings;
mod sigmas;
mod solver;
mod spacing;
mod step;

pub use step::{Schedule, Step};

use settings::{Fixed, Settings};
use solver::{Scheduler, Solver};

use crate::{Error, Result};

/// All schedulers.
const SCHEDULERS: &[Scheduler] = &[
    pndm::SCHEDULER,
    ddim::SCHEDULER,
    euler::SCHEDULER,
    euler_ancestral::SCHEDULER,
    dpm_multistep::SCHEDULER,
    lcm::SCHEDULER,
];

/// Scheduler with its settings.
#[derive(Debug)]
pub struct SchedulerConfig {
    class: &'static str,
    solver: Box<dyn Solver>,
}

impl SchedulerConfig {
    /// Reads `scheduler_config.json` of diffusers. A `name` of [`scheduler_names`] selects another scheduler than the
    /// configured one, which takes those settings that it knows, as `from_config` of diffusers does.
    ///
    /// # Errors
    /// If the file is malformed, the name or the class is unknown, or a setting is not supported.
    pub fn from_json(bytes: &[u8], name: Option<&str>) -> Result<Self> {
        Self::corrected(bytes, name, &[])
    }

    /// Reads `scheduler_config.json` like [`Self::from_json`], and corrects settings as a pipeline of diffusers does.
    ///
    /// # Errors
    /// As for [`Self::from_json`].
    pub fn corrected(bytes: &[u8], name: Option<&str>, corrections: &[Correction]) -> Result<Self> {
        let mut settings = Settings::parse(bytes)?;
        let (scheduler, fixed) = match name {
            Some(name) => named(name)?,
            None => (configured(&settings)?, &[][..]),
        };
        for correction in corrections {
            match correction {
                Correction::StepsOffset => settings.fix("steps_offset", Fixed::Count(1)),
                Correction::ClipSample => settings.fix("clip_sample", Fixed::Flag(false)),
            }
        }
        for (key, value) in fixed {
            settings.fix(key, *value);
        }
        Ok(Self { class: scheduler.class, solver: (scheduler.read)(&settings)? })
    }

    /// Class of the scheduler in diffusers.
    pub fn class(&self) -> &'static str {
        self.class
    }

    /// Computes the steps of a run. With a `strength`, the run starts from a picture instead of noise, and only the last
    /// `steps * strength` steps remain, as in the image-to-image pipelines of diffusers.
    ///
    /// # Errors
    /// If the scheduler cannot make this number of steps, or the strength is not above 0 and at most 1, or no step remains.
    pub fn schedule(&self, steps: usize, strength: Option<f64>) -> Result<Schedule> {
        if steps == 0 {
            return Err(Error::Request("0 denoising steps were requested; request at least 1".into()));
        }
        let plan = self.solver.plan(steps, first_step(steps, strength)?)?;
        plan.finish(self.class)
    }
}

/// Correction of an outdated setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Correction {
    /// `steps_offset` is 1.
    StepsOffset,
    /// `clip_sample` is false.
    ClipSample,
}

/// Returns the short names of all schedulers, with their classes in diffusers.
pub fn scheduler_names() -> impl Iterator<Item = (&'static str, &'static str)> {
    SCHEDULERS.iter().flat_map(|s| s.names.iter().map(|(name, _)| (*name, s.class)))
}

/// Returns the index of the first step of a run.
fn first_step(steps: usize, strength: Option<f64>) -> Result<usize> {
    let Some(strength) = strength else { return Ok(0) };
    if !(strength > 0.0 && strength <= 1.0) {
        return Err(Error::Request(format!(
            "the strength is {strength}; use a number above 0 and at most 1"
        )));
    }
    let remaining = ((steps as f64 * strength) as usize).min(steps);
    if remaining == 0 {
        return Err(Error::Request(format!(
            "the strength {strength} leaves none of {steps} denoising steps; use more steps or a higher strength"
        )));
    }
    Ok(steps - remaining)
}

/// Finds a scheduler by its short name, with the settings that the name fixes.
fn named(name: &str) -> Result<(&'static Scheduler, &'static [(&'static str, Fixed)])> {
    let mut all =
        SCHEDULERS.iter().flat_map(|s| s.names.iter().map(move |(short, fixed)| (s, *short, *fixed)));
    let found = all.find(|(_, short, _)| *short == name).map(|(scheduler, _, fixed)| (scheduler, fixed));
    found.ok_or_else(|| {
        let names: Vec<&str> = scheduler_names().map(|(name, _)| name).collect();
        Error::Request(format!("no scheduler has the name `{name}`; use one of {}", names.join(", ")))
    })
}

/// Finds the scheduler of the configured class.
fn configured(settings: &Settings) -> Result<&'static Scheduler> {
    let classes: Vec<(&str, &'static Scheduler)> = SCHEDULERS.iter().map(|s| (s.class, s)).collect();
    settings.choice("_class_name", "", &classes)
}
