//! Cost estimates: the terms of a candidate's time, the formula that combines them, and functions that compute terms.
//! All times are in nanoseconds.
//!
//! An estimate combines facts about the device ([`Machine`](crate::target::Machine)) with parameters that are fitted to
//! measurements, in `targets/costs/`.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::shader::problem::Problem;
use crate::target::costs::read_group;

/// Terms of the estimated time of a candidate, in nanoseconds. A term that a kernel does not have is zero.
/// A kernel whose times cannot be separated puts their combination into one term, so single terms are approximate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// Time to read each operand once and to write the result, at the memory bandwidth.
    pub memory: f64,
    /// Time of repeated reads of operands, which come from the cache.
    pub cache: f64,
    /// Time of the arithmetic.
    pub compute: f64,
    /// Time of an invocation's loads and barriers that run in sequence, because each waits for the one before it.
    pub latency: f64,
    /// Rule by which the terms `memory`, `cache`, `compute` and `latency` overlap.
    pub overlap: Overlap,
    /// Time of work that overlaps with no other term, such as an epilogue or an exchange of sums.
    pub serial: f64,
    /// Fixed time of the first load and the last store, which overlaps with no other term.
    pub fixed: f64,
    /// Launch overhead of all dispatches.
    pub launch: f64,
}

/// Rule by which the memory, cache, compute and latency times of an estimate overlap. A weight of 0 means complete
/// overlap, a weight of 1 none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Overlap {
    /// All times overlap completely, so only the longest time counts.
    Complete,
    /// The memory and latency times overlap in part: the shorter one, multiplied by a weight, is added to the longer
    /// one. The other times overlap completely.
    PartialReads { shorter_weight: f64 },
    /// All times overlap in part: the sum of all but the longest time, multiplied by a weight, is added to the longest time.
    Partial { shorter_weight: f64 },
}

impl Estimate {
    /// Returns an estimate that holds only the launch overhead of `count` dispatches.
    pub(crate) fn for_dispatches(problem: &Problem<'_>, count: f64) -> Self {
        Self {
            memory: 0.0,
            cache: 0.0,
            compute: 0.0,
            latency: 0.0,
            overlap: Overlap::Complete,
            serial: 0.0,
            fixed: 0.0,
            launch: count * problem.target.machine.launch_us * 1e3,
        }
    }

    /// Returns a roofline estimate of one dispatch: `flops` operations at `efficiency` times the f32 peak, and `bytes`
    /// bytes at the full memory bandwidth.
    pub(crate) fn roofline(problem: &Problem<'_>, flops: f64, bytes: f64, efficiency: f64) -> Self {
        let machine = &problem.target.machine;
        Self {
            compute: flops / (machine.peak.f32 * efficiency).max(1e-3),
            memory: bytes / machine.bandwidth_gb_s.max(1e-3),
            ..Self::for_dispatches(problem, 1.0)
        }
    }

    /// Returns the estimate with all terms multiplied by `ratio`.
    pub(crate) fn scaled(self, ratio: f64) -> Self {
        let Self { memory, cache, compute, latency, overlap, serial, fixed, launch } = self;
        let [memory, cache, compute, latency] = [memory, cache, compute, latency].map(|ns| ns * ratio);
        let [serial, fixed, launch] = [serial, fixed, launch].map(|ns| ns * ratio);
        Self { memory, cache, compute, latency, overlap, serial, fixed, launch }
    }

    /// Returns the estimated time in nanoseconds.
    pub fn combine(&self) -> f64 {
        let Self { memory, cache, compute, latency, overlap, serial, fixed, launch } = *self;
        let longest = memory.max(cache).max(compute).max(latency);
        let overlapped = match overlap {
            Overlap::Complete => longest,
            Overlap::PartialReads { shorter_weight } => {
                longest.max(memory.max(latency) + shorter_weight * memory.min(latency))
            }
            Overlap::Partial { shorter_weight } => {
                longest + shorter_weight * (memory + compute + latency + cache - longest)
            }
        };
        overlapped + serial + fixed + launch
    }
}

/// Cost parameters of a kernel's estimate. A kernel declares them as a struct, whose fields are the keys of the
/// kernel's group in `targets/costs/`. The fit of cost parameters varies them in the order of the fields.
pub(crate) trait Parameters: DeserializeOwned {
    /// Name of the group of cost parameters in `targets/costs/`.
    const GROUP: &'static str;

    /// Returns the cost parameters of the problem's target. Returns `None` if the target profile lacks a parameter;
    /// profiles that are loaded from a file are complete.
    fn from_problem(problem: &Problem<'_>) -> Option<Self> {
        named(problem, Self::GROUP)
    }
}

/// Returns the target's cost parameters of the group `group`. Kernels that use the same parameter struct with different
/// values have one group each.
pub(crate) fn named<P: DeserializeOwned>(problem: &Problem<'_>, group: &str) -> Option<P> {
    read_group(&problem.target.costs, group)
}

/// Thresholds that several matmul kernels read, for estimates and for their eligibility. They are chosen, not fitted.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Thresholds {
    /// Maximum fraction of the last-level cache that operands and result of a problem may fill. If they fill more, they
    /// do not stay cached from run to run. 0 to 1.
    pub(crate) max_cached_fraction: f64,
    /// Ratio of the load time of a quantized weight to the load time of a float in `matmul_direct`, where this kernel
    /// is only a fallback. Large enough that every other kernel costs less.
    pub(crate) last_resort_load_ratio: f64,
}

impl Parameters for Thresholds {
    const GROUP: &str = "thresholds";
}

/// True if operands and results of `bytes` bytes stay in the last-level cache from one run of the problem to the next.
pub(crate) fn stays_cached(problem: &Problem<'_>, bytes: f64) -> bool {
    let cache = problem.target.machine.last_level_cache as f64;
    Thresholds::from_problem(problem).is_some_and(|p| bytes <= cache * p.max_cached_fraction)
}

/// Returns the time of `invocations` invocations that wait for `latencies` loads in sequence, in nanoseconds. The
/// invocations run in rounds ([`Machine::rounds`](crate::target::Machine::rounds)).
pub(crate) fn waiting(problem: &Problem<'_>, invocations: f64, latencies: f64) -> f64 {
    let machine = &problem.target.machine;
    machine.rounds(invocations) * latencies * machine.memory_latency_ns
}

/// Returns the time of `invocations` invocations that wait for `count` barriers in sequence, in nanoseconds. The
/// invocations run in rounds ([`Machine::rounds`](crate::target::Machine::rounds)).
pub(crate) fn barriers(problem: &Problem<'_>, invocations: f64, count: f64) -> f64 {
    let machine = &problem.target.machine;
    machine.rounds(invocations) * count * machine.barrier_ns
}

#[cfg(test)]
mod tests {
    use super::{Estimate, Overlap, Parameters, Thresholds};
    use crate::target::costs::{generic, read_group};

    const ESTIMATE: Estimate = Estimate {
        memory: 8.0,
        cache: 0.0,
        compute: 16.0,
        latency: 4.0,
        overlap: Overlap::Complete,
        serial: 1.0,
        fixed: 2.0,
        launch: 3.0,
    };

    #[test]
    fn shorter_times_count_by_their_weight() {
        let combine = |overlap| Estimate { overlap, ..ESTIMATE }.combine();
        assert_eq!(combine(Overlap::Complete), 22.0);
        assert_eq!(combine(Overlap::Partial { shorter_weight: 0.5 }), 28.0);
        assert_eq!(combine(Overlap::PartialReads { shorter_weight: 0.5 }), 22.0);
        let reads = Overlap::PartialReads { shorter_weight: 0.5 };
        assert_eq!(Estimate { compute: 9.0, overlap: reads, ..ESTIMATE }.combine(), 16.0);
        assert_eq!(Estimate { cache: 20.0, ..ESTIMATE }.combine(), 26.0);
        assert_eq!(ESTIMATE.scaled(2.0).combine(), 44.0);
    }

    #[test]
    fn the_generic_file_has_the_thresholds() {
        assert!(read_group::<Thresholds>(generic(), Thresholds::GROUP).is_some());
    }
}
