//! Building blocks of cost estimates. All times are in nanoseconds.
//!
//! An estimate combines facts about the device ([`Machine`](crate::target::Machine)) with parameters that are fitted to
//! measurements, in `targets/costs/`.

use serde::de::DeserializeOwned;

use crate::plan::params::Params as Thresholds;
use crate::shader::problem::Problem;
use crate::target::costs::typed;

/// Cost parameters of an estimate. A kernel declares them as a struct; the fields are the keys of its group in
/// `targets/costs/`. Fields are declared in the order in which the fit varies them.
pub(crate) trait Parameters: DeserializeOwned {
    /// Name of the group in `targets/costs/`.
    const GROUP: &'static str;

    /// Returns the parameters of the problem's target. Returns `None` if the profile lacks some, which loading a
    /// profile prevents.
    fn of(problem: &Problem<'_>) -> Option<Self> {
        named(problem, Self::GROUP)
    }
}

/// Returns the target's parameters of a group, for estimates that several kernels use with a group each.
pub(crate) fn named<P: DeserializeOwned>(problem: &Problem<'_>, group: &str) -> Option<P> {
    typed(problem.target.costs.get(group)?).ok()
}

/// True if `bytes` bytes of operands and result are still cached when the problem is computed again.
pub(crate) fn stays_cached(problem: &Problem<'_>, bytes: f64) -> bool {
    let cache = problem.target.machine.last_level_cache as f64;
    Thresholds::max_cached_fraction(problem.target).is_some_and(|fraction| bytes <= cache * fraction)
}

/// Returns the time of `latencies` dependent loads per invocation, if `invocations` invocations run in waves that
/// fill the device.
pub(crate) fn waiting(problem: &Problem<'_>, invocations: f64, latencies: f64) -> f64 {
    let machine = &problem.target.machine;
    let resident = machine.invocations();
    (invocations / resident).ceil().max(1.0) * latencies * machine.memory_latency_ns
}

/// Returns the time of `count` barriers in sequence, if `invocations` invocations run in waves that fill the
/// device.
pub(crate) fn barriers(problem: &Problem<'_>, invocations: f64, count: f64) -> f64 {
    let machine = &problem.target.machine;
    let resident = machine.invocations();
    (invocations / resident).ceil().max(1.0) * count * machine.barrier_ns
}

/// Returns a roofline estimate: the longer of arithmetic at `efficiency` times the f32 peak and traffic at the full
/// memory bandwidth, plus the launch overhead.
pub(crate) fn roofline(problem: &Problem<'_>, flops: f64, bytes: f64, efficiency: f64) -> f64 {
    let machine = &problem.target.machine;
    let compute = flops / (machine.peak.f32 * efficiency).max(1e-3);
    let traffic = bytes / machine.bandwidth_gb_s.max(1e-3);
    compute.max(traffic) + machine.launch_us * 1e3
}
