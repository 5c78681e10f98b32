//! A candidate together with the kernel that offers it. The compiler selects and measures such pairs.

use crate::kernels::kernel::{Candidate, Kernel};

/// A kernel in one configuration.
#[derive(Debug, Clone)]
pub struct Choice {
    /// The kernel.
    pub kernel: &'static Kernel,
    /// Knobs and cost of the kernel's configuration, and the reason for them as text.
    pub candidate: Candidate,
    /// Measured time in nanoseconds; if there is one, it is also the candidate's cost.
    pub measured: Option<f64>,
}
