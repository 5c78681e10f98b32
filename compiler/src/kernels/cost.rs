//! What kernels' estimates of time are made of.

use serde::de::DeserializeOwned;

use crate::shader::problem::Problem;
use crate::target::costs::typed;

/// The parameters of an estimate, which a kernel declares as a struct: what was fitted to measurements, while facts about
/// the device are in its machine's numbers.
pub(crate) trait Parameters: DeserializeOwned {
    /// Name of the group in `targets/costs/`.
    const GROUP: &'static str;

    /// The target's; none where the profile lacks some, which loading a profile excludes.
    fn of(problem: &Problem<'_>) -> Option<Self> {
        named(problem, Self::GROUP)
    }
}

/// The target's parameters of a group; kernels that share an estimate have a group each.
pub(crate) fn named<P: DeserializeOwned>(problem: &Problem<'_>, group: &str) -> Option<P> {
    typed(problem.target.costs.get(group)?).ok()
}

/// Part of the last level of the cache that what a problem reads and writes may fill at most to be found there the next time.
const CACHED: f64 = 0.8;

/// Whether so many bytes are still in the cache when a problem is computed again.
pub(crate) fn stays_cached(problem: &Problem<'_>, bytes: f64) -> bool {
    bytes <= problem.target.machine.last_level_cache as f64 * CACHED
}

/// Nanoseconds that `steps` loads one after the other take, when as many invocations as `lanes` run in rounds of what
/// the device keeps in flight.
pub(crate) fn waiting(problem: &Problem<'_>, lanes: f64, steps: f64) -> f64 {
    let machine = &problem.target.machine;
    let room = machine.invocations();
    (lanes / room).ceil().max(1.0) * steps * machine.memory_latency_ns
}

/// Nanoseconds that `count` barriers take, one after the other, where workgroups have as many invocations in all as
/// `lanes`.
pub(crate) fn barriers(problem: &Problem<'_>, lanes: f64, count: f64) -> f64 {
    let machine = &problem.target.machine;
    let room = machine.invocations();
    (lanes / room).ceil().max(1.0) * count * machine.barrier_ns
}

/// A roofline estimate in nanoseconds: the slower of arithmetic and traffic, over what the device reaches of its
/// peaks, plus one launch.
pub(crate) fn roofline(problem: &Problem<'_>, flops: f64, bytes: f64, efficiency: f64) -> f64 {
    let machine = &problem.target.machine;
    let compute = flops / (machine.peak.f32 * efficiency).max(1e-3);
    let traffic = bytes / machine.bandwidth_gb_s.max(1e-3);
    compute.max(traffic) + machine.launch_us * 1e3
}
