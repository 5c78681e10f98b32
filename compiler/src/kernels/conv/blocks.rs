//! What the estimates of convolutions share whose invocations each compute a block of pixels and slices.

use serde::Deserialize;

use crate::kernels::cost::{roofline, waiting};
use crate::shader::problem::Problem;

/// Parameters of such an estimate; waits in latencies of memory.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Params {
    /// Part of the arithmetic peak that is reached.
    reached: f64,
    /// Vectors that an invocation holds before fewer of them fit.
    vectors: f64,
    /// A step.
    step: f64,
    /// Before the first step and after the last.
    ends: f64,
}

/// What invocations do.
#[derive(Debug)]
pub(super) struct Work {
    /// How many invocations there are.
    pub(super) lanes: f64,
    /// Sums of vectors that each has.
    pub(super) sums: f64,
    /// Vectors that each holds.
    pub(super) vectors: f64,
    /// Steps of each.
    pub(super) steps: f64,
    /// Operations of all.
    pub(super) flops: f64,
    /// The part of a step's instructions that computes.
    pub(super) reuse: f64,
}

impl Work {
    /// Nanoseconds, the occupancy of the device, and the part of the time that goes into computing.
    pub(super) fn estimate(&self, p: &Params, problem: &Problem<'_>) -> (f64, f64, f64) {
        let machine = &problem.target.machine;
        // Sums of several vectors hide latency like more invocations do.
        let occupancy = (self.lanes * self.sums.min(4.0) / machine.invocations()).clamp(0.001, 1.0);
        let pressure = if self.vectors > p.vectors { p.vectors / self.vectors } else { 1.0 };
        let waiting = waiting(problem, self.lanes, p.step * self.steps + p.ends) + machine.launch_us * 1e3;
        let efficiency = p.reached * self.reuse * pressure * occupancy;
        let cost = roofline(problem, self.flops, problem.traffic() as f64, efficiency).max(waiting);
        (cost, occupancy, self.reuse * pressure)
    }
}
