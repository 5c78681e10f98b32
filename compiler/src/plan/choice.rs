//! A candidate together with the kernel that offers it: what the plan chooses among, and what measurements are of.

use crate::kernels::kernel::{Candidate, Kernel};

/// A kernel in one configuration.
#[derive(Debug, Clone)]
pub struct Choice {
    /// The kernel.
    pub kernel: &'static Kernel,
    /// Knobs, cost and reason.
    pub candidate: Candidate,
    /// The measured time in nanoseconds, which is then the candidate's cost too.
    pub measured: Option<f64>,
}
