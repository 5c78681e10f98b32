//! Which candidate starts soonest of those that cost about the same, where each start compiles all shaders anew: one
//! whose shader there is already, else the one whose shader is the shortest.

use std::collections::BTreeSet;

use super::choice::Choice;
use super::{faults, fit};
use crate::error::OpError;
use crate::shader::Launch;
use crate::shader::problem::Problem;
use crate::shader::share::{Key, key};

/// How many times longer than the cheapest a candidate may take.
const NEAR: f64 = 1.25;

/// The shaders of the launches so far.
#[derive(Debug, Default)]
pub(super) struct Shaders(BTreeSet<Key>);

impl Shaders {
    pub(super) fn add(&mut self, launches: &[Launch]) {
        self.0.extend(launches.iter().filter_map(key));
    }

    /// Bytes of text that launches add to what is compiled.
    fn added(&self, launches: &[Launch]) -> usize {
        let new = launches.iter().filter(|launch| key(launch).is_none_or(|key| !self.0.contains(&key)));
        new.map(|launch| launch.wgsl.len()).sum()
    }

    /// Puts the candidate first that starts soonest of those that the target can run and that are near to the cheapest.
    /// Measured ones keep their order.
    pub(super) fn prefer(&self, problem: &Problem<'_>, choices: &mut [Choice]) -> Result<(), OpError> {
        let Some(first) = choices.first().filter(|first| first.measured.is_none()) else { return Ok(()) };
        let limit = first.candidate.cost * NEAR;
        let mut least: Option<(usize, usize)> = None;
        for (at, choice) in choices.iter().enumerate().take_while(|(_, c)| c.candidate.cost <= limit) {
            let launches = (choice.kernel.launches)(problem, &choice.candidate)?;
            let runs = fit::exceeded(&launches, problem.bounds, problem.target).is_none()
                && faults::refused(&launches, problem.target).is_none()
                && !launches.iter().any(|launch| launch.partial_texels);
            let added = self.added(&launches);
            if runs && least.is_none_or(|(bytes, _)| added < bytes) {
                least = Some((added, at));
            }
        }
        if let Some(before) = least.and_then(|(_, at)| choices.get_mut(..=at)) {
            before.rotate_right(1);
        }
        Ok(())
    }
}
