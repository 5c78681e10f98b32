//! Choosing a kernel for a problem: every candidate of every kernel, with its cost and reason, and the cheapest.

use crate::kernels::problem::Problem;
use crate::kernels::{Candidate, KERNELS, Kernel};

/// A kernel with one way of using it.
#[derive(Debug, Clone)]
pub struct Choice {
    /// The kernel.
    pub kernel: &'static Kernel,
    /// Knobs, cost and reason.
    pub candidate: Candidate,
}

/// The candidates for a problem, cheapest first; equal costs keep the order of [`KERNELS`].
pub fn candidates(problem: &Problem<'_>, only: Option<&str>) -> Vec<Choice> {
    let mut out: Vec<Choice> = KERNELS
        .iter()
        .filter(|k| only.is_none_or(|name| name == k.name))
        .flat_map(|kernel| {
            (kernel.candidates)(problem).into_iter().map(move |candidate| Choice { kernel, candidate })
        })
        .collect();
    out.sort_by(|a, b| a.candidate.cost.total_cmp(&b.candidate.cost));
    out
}
