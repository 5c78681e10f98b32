//! Cost estimate for convolution kernels in which each invocation computes a block of pixels and output slices (of four
//! channels).

use serde::Deserialize;

use crate::kernels::cost::{Estimate, waiting};
use crate::shader::problem::Problem;

/// Cost parameters of convolutions whose invocations compute blocks of pixels. All are positive.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Params {
    /// Fixed time before the first step and after the last step of an invocation, in memory latencies.
    fixed_latencies: f64,
    /// Arithmetic throughput relative to the f32 peak, before it is multiplied by the factors for reuse, register
    /// pressure and occupancy. May exceed 1.
    peak_ratio: f64,
    /// Time of a step (one tap and four input channels) of an invocation, in memory latencies.
    step_latencies: f64,
    /// Number of vec4 registers per invocation up to which occupancy is full.
    full_occupancy_vec4s: f64,
}

/// Work of a convolution dispatch, as input of its cost estimate.
#[derive(Debug)]
pub(super) struct Work {
    /// Number of invocations.
    pub(super) lanes: f64,
    /// Number of vec4 sums that an invocation accumulates.
    pub(super) sums: f64,
    /// Number of vec4 registers that an invocation needs.
    pub(super) vectors: f64,
    /// Steps per invocation.
    pub(super) steps: f64,
    /// Floating-point operations of all invocations together.
    pub(super) flops: f64,
    /// Fraction of the instructions of a step that are arithmetic; the rest are reads. 0 to 1.
    pub(super) reuse: f64,
}

impl Work {
    /// Returns the estimated time of a convolution dispatch, its occupancy, and its fraction of arithmetic instructions.
    pub(super) fn estimate(&self, p: &Params, problem: &Problem<'_>) -> (Estimate, f64, f64) {
        let machine = &problem.target.machine;
        // Several independent sums per invocation hide latency like more invocations.
        let occupancy = (self.lanes * self.sums.min(4.0) / machine.invocations()).clamp(0.001, 1.0);
        let pressure =
            if self.vectors > p.full_occupancy_vec4s { p.full_occupancy_vec4s / self.vectors } else { 1.0 };
        let efficiency = p.peak_ratio * self.reuse * pressure * occupancy;
        let estimate = Estimate {
            latency: waiting(problem, self.lanes, p.step_latencies * self.steps + p.fixed_latencies),
            ..Estimate::roofline(problem, self.flops, problem.traffic() as f64, efficiency)
        };
        (estimate, occupancy, self.reuse * pressure)
    }
}
