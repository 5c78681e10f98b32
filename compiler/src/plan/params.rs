//! Thresholds of lowering and planning: how much cheaper an alternative must be, and the sizes at which a rule starts
//! to apply.
//!
//! The values come from experience with estimates and devices, so they are data like the parameters of the cost model.

use serde::Deserialize;

use crate::error::{Error, Result};
use crate::target::TargetProfile;
use crate::target::costs::read_group;

/// Name of the group of these thresholds in the cost files `targets/costs/`.
pub(crate) const GROUP: &str = "plan";

/// Thresholds of lowering and planning. All are positive.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// Minimum estimated speedup of a specialized or optional function over the function that would run otherwise. 1 or
    /// more. Above 1 because estimates are not exact.
    pub min_function_speedup_ratio: f64,
    /// Minimum estimated speedup of a specialized or optional function over the function that would run otherwise, if the device
    /// compiles all pipelines at each start. 1 or more.
    pub min_function_speedup_ratio_compiled_at_start: f64,
    /// Maximum cost of a kernel that reuses packed constants of another function, relative to the cheapest kernel. 1 or
    /// more. Reuse costs time in each run; a further copy of the constants costs memory once.
    pub reuse_max_cost_ratio: f64,
    /// Maximum cost of a kernel that reuses packed constants, relative to the cheapest kernel, in functions that avoid
    /// copies of weights. 1 or more.
    pub reuse_max_cost_ratio_avoiding_copies: f64,
    /// Maximum cost of a kernel with a short shader, relative to the cheapest kernel, on drivers that fail on some long
    /// shaders. 1 or more.
    pub short_shader_max_cost_ratio: f64,
    /// Maximum bytes of WGSL, with unrolled loops, of a short shader.
    pub max_short_shader_bytes: f64,
    /// Maximum cost of a candidate that is preferred because it adds the least shader source, relative to the cheapest
    /// candidate. 1 or more. Only for devices that compile all shaders at each start.
    pub least_source_max_cost_ratio: f64,
    /// Cost of a candidate that always spills registers, relative to its estimate. 1 or more.
    pub spilling_cost_ratio: f64,
    /// Maximum cost of a candidate with full occupancy that is selected instead of a candidate with less, relative to the
    /// latter. 1 or more.
    pub full_occupancy_max_cost_ratio: f64,
    /// Minimum time that a change of a value's layout must save, as a fraction of the cost of the nodes that compute or read the
    /// value. 0 to 1.
    pub layout_min_saving_fraction: f64,
    /// Maximum peak of live bytes at which another order of the nodes replaces the model's order, in percent of the peak of the
    /// model's order. 1 to 100, a whole number.
    pub reordered_max_peak_percent: f64,
    /// Maximum peak of live bytes of a graph whose nodes are ordered for few barriers, without regard to memory. A whole number.
    pub small_peak_bytes: f64,
    /// Margin of an estimate on a profile without measurements: the factor by which the real time may be longer or
    /// shorter. 1 or more.
    pub unmeasured_margin_ratio: f64,
}

impl Params {
    /// Returns the thresholds in the target's cost parameters. Returns `None` if some are missing, which loading a
    /// profile rules out.
    pub fn from_target(target: &TargetProfile) -> Option<Self> {
        read_group(&target.costs, GROUP)
    }

    /// Returns the thresholds in the target's cost parameters, for a step that reports errors.
    ///
    /// # Errors
    /// An internal error that names `stage`, if some thresholds are missing.
    pub fn for_stage(target: &TargetProfile, stage: &'static str) -> Result<Self> {
        let missing = || Error::internal(stage, "the profile lacks parameters in `costs.plan`");
        Self::from_target(target).ok_or_else(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::Params;
    use crate::target::{TargetProfile, names};

    #[test]
    fn every_profile_has_the_parameters_and_no_others() {
        for name in names() {
            let target = TargetProfile::load(name).unwrap();
            assert!(Params::from_target(&target).is_some(), "{name}");
        }
    }
}
