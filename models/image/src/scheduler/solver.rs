//! Interface of the schedulers.

use std::fmt::Debug;

use super::settings::{Fixed, Settings};
use super::step::Plan;
use crate::Result;

/// Entry of the table of schedulers.
pub(super) struct Scheduler {
    /// Class in diffusers.
    pub(super) class: &'static str,
    /// Short names, with the settings that each of them fixes.
    pub(super) names: &'static [(&'static str, &'static [(&'static str, Fixed)])],
    /// Reads the settings.
    pub(super) read: fn(&Settings) -> Result<Box<dyn Solver>>,
}

/// Scheduler with its settings, ready to compute steps.
pub(super) trait Solver: Debug + Send + Sync {
    /// Computes the steps from index `first` on, out of a run of `steps` steps.
    fn plan(&self, steps: usize, first: usize) -> Result<Plan>;
}
