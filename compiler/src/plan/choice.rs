//! A candidate with the kernel that offers it: the unit of selection and of measurement.

use crate::kernels::kernel::{Candidate, Kernel};

/// A kernel in one configuration.
#[derive(Debug, Clone)]
pub struct Choice {
    /// The kernel.
    pub kernel: &'static Kernel,
    /// Knobs, cost and reason.
    pub candidate: Candidate,
    /// Measured time in nanoseconds; if there is one, it is also the candidate's cost.
    pub measured: Option<f64>,
}
