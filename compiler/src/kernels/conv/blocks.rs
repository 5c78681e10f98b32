//! Cost estimate of convolution kernels whose invocations compute blocks of pixels and output slices.

use serde::Deserialize;

use crate::kernels::cost::{roofline, waiting};
use crate::shader::problem::Problem;

/// Cost parameters. All are positive.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Params {
    /// Memory latencies before the first step and after the last.
    fixed_latencies: f64,
    /// Arithmetic throughput relative to the f32 peak, before the reuse, register and occupancy factors. May exceed 1.
    peak_ratio: f64,
    /// Memory latencies per step.
    step_latencies: f64,
    /// Maximum vec4 registers per invocation at full occupancy.
    full_occupancy_vec4s: f64,
}

/// Work of a dispatch.
#[derive(Debug)]
pub(super) struct Work {
    /// Number of invocations.
    pub(super) lanes: f64,
    /// Vec4 sums per invocation.
    pub(super) sums: f64,
    /// Vec4 registers per invocation.
    pub(super) vectors: f64,
    /// Steps per invocation.
    pub(super) steps: f64,
    /// Operations of all invocations.
    pub(super) flops: f64,
    /// Fraction of a step's instructions that are arithmetic.
    pub(super) reuse: f64,
}

impl Work {
    /// Returns the time in nanoseconds, the occupancy, and the fraction of arithmetic instructions.
    pub(super) fn estimate(&self, p: &Params, problem: &Problem<'_>) -> (f64, f64, f64) {
        let machine = &problem.target.machine;
        // Several independent sums per invocation hide latency like more invocations.
        let occupancy = (self.lanes * self.sums.min(4.0) / machine.invocations()).clamp(0.001, 1.0);
        let pressure =
            if self.vectors > p.full_occupancy_vec4s { p.full_occupancy_vec4s / self.vectors } else { 1.0 };
        let waiting = waiting(problem, self.lanes, p.step_latencies * self.steps + p.fixed_latencies)
            + machine.launch_us * 1e3;
        let efficiency = p.peak_ratio * self.reuse * pressure * occupancy;
        let cost = roofline(problem, self.flops, problem.traffic() as f64, efficiency).max(waiting);
        (cost, occupancy, self.reuse * pressure)
    }
}
