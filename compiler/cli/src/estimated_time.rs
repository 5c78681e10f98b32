//! Estimated times of compiled functions, at the upper bounds of their symbols.

use std::collections::BTreeSet;

use driftc::compile::Lowered;
use driftc::target::TargetProfile;
use serde::Serialize;

use crate::memory_report::Memory;

/// Estimated time of a function, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EstimatedTime {
    /// Time of all dispatches.
    pub(crate) total: f64,
    /// Part of it: copies between layouts.
    pub(crate) copies: f64,
}

/// Estimates of a function.
#[derive(Debug, Serialize)]
pub(crate) struct Estimate {
    pub(crate) function: String,
    pub(crate) ns: f64,
    /// Bytes of intermediate tensors.
    pub(crate) memory: u64,
}

/// Returns the estimated time of a function: the sum of its selected candidates' estimates, and of its copies.
pub(crate) fn estimated_time(lowered: &Lowered, target: &TargetProfile) -> EstimatedTime {
    let plan = &lowered.plan;
    let selected = plan.decisions.iter().filter_map(|decision| decision.choices.first());
    let machine = &target.machine;
    let copies = plan.dispatches.iter().filter(|step| step.is_copy);
    let copied_bytes = copies.map(|step| step.bytes.range(&plan.bounds).1.max(0) as f64);
    let copies: f64 =
        copied_bytes.map(|bytes| bytes / machine.bandwidth_gb_s + machine.launch_us * 1e3).sum();
    EstimatedTime { total: selected.map(|choice| choice.candidate.cost).sum::<f64>() + copies, copies }
}

/// Returns the estimates of functions without specializations, which follow the function of the same name.
pub(crate) fn estimates(functions: &[Lowered], target: &TargetProfile) -> Vec<Estimate> {
    let mut seen = BTreeSet::new();
    let general = functions.iter().filter(|function| seen.insert(function.name.as_str()));
    general
        .map(|function| Estimate {
            function: function.name.clone(),
            ns: estimated_time(function, target).total,
            memory: Memory::from_lowered(function).peak,
        })
        .collect()
}
