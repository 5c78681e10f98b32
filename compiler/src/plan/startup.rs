//! Selects candidates that start fast, on targets that compile all shaders at each start: among candidates of similar
//! cost, one whose shader another dispatch of the bundle already uses, else one with the shortest shader.

use std::collections::BTreeSet;

use super::choice::Choice;
use super::params::Params;
use super::{device_limits, faults};
use crate::error::OpError;
use crate::shader::Launch;
use crate::shader::launch::specialize_all;
use crate::shader::merge_shaders::{MergeKey, merge_key};
use crate::shader::problem::Problem;

/// Shaders of the launches that were added to the plan so far.
#[derive(Debug, Default)]
pub(super) struct CompiledShaders(BTreeSet<MergeKey>);

impl CompiledShaders {
    pub(super) fn add(&mut self, launches: &[Launch]) {
        self.0.extend(launches.iter().filter_map(merge_key));
    }

    /// Bytes of WGSL that launches would add to the compiled shaders.
    fn added_bytes(&self, launches: &[Launch]) -> usize {
        let new = launches.iter().filter(|launch| merge_key(launch).is_none_or(|key| !self.0.contains(&key)));
        new.map(|launch| launch.wgsl.len()).sum()
    }

    /// Moves the candidate that adds the least WGSL to the front, among those that the target can run and whose cost is
    /// close to the cheapest. Measured candidates keep their order.
    pub(super) fn prefer(
        &self,
        problem: &Problem<'_>,
        choices: &mut [Choice],
        params: &Params,
    ) -> Result<(), OpError> {
        let Some(first) = choices.first().filter(|first| first.measured.is_none()) else { return Ok(()) };
        let limit = first.candidate.cost * params.least_source_max_cost_ratio;
        let mut least: Option<(usize, usize)> = None;
        for (at, choice) in choices.iter().enumerate().take_while(|(_, c)| c.candidate.cost <= limit) {
            let drafts = (choice.kernel.launches)(problem, &choice.candidate)?;
            let runs = device_limits::exceeded(&drafts, problem.bounds, problem.target).is_none()
                && faults::refused(&drafts, problem.target).is_none()
                && !drafts.iter().any(|launch| launch.partial_texels);
            if !runs {
                continue;
            }
            let launches = specialize_all(drafts)?;
            let added = self.added_bytes(&launches);
            if least.is_none_or(|(bytes, _)| added < bytes) {
                least = Some((added, at));
            }
        }
        if let Some(before) = least.and_then(|(_, at)| choices.get_mut(..=at)) {
            before.rotate_right(1);
        }
        Ok(())
    }
}
