//! Choosing a kernel for a problem: every candidate of every kernel, with its cost and reason, and the cheapest.
//!
//! Costs are estimates from the profile's numbers. Where a tuning database has measured the problem, the measured
//! times take their place.

use super::tuning::{self, Database, Outcome};
use crate::kernels::problem::Problem;
use crate::kernels::{Candidate, KERNELS, Kernel};

/// A kernel with one way of using it.
#[derive(Debug, Clone)]
pub struct Choice {
    /// The kernel.
    pub kernel: &'static Kernel,
    /// Knobs, cost and reason.
    pub candidate: Candidate,
    /// The measured time in nanoseconds, which is then the candidate's cost too.
    pub measured: Option<f64>,
}

/// The candidates for a problem, cheapest first; equal costs keep the order of [`KERNELS`].
pub fn candidates(problem: &Problem<'_>, only: Option<&str>, tuning: Option<&Database>) -> Vec<Choice> {
    let mut out: Vec<Choice> = KERNELS
        .iter()
        .filter(|k| only.is_none_or(|name| name == k.name))
        .flat_map(|kernel| {
            (kernel.candidates)(problem).into_iter().map(move |candidate| Choice {
                kernel,
                candidate,
                measured: None,
            })
        })
        .collect();
    out.sort_by(|a, b| a.candidate.cost.total_cmp(&b.candidate.cost));
    if let Some(tuning) = tuning {
        apply(&mut out, problem, tuning);
    }
    out
}

/// Puts measured candidates first, the fastest before all others.
///
/// Measurements that lack the candidate which the estimates prefer are of another compiler, profile or an unfinished
/// run: they say nothing about what is best, and the estimates stand.
fn apply(choices: &mut [Choice], problem: &Problem<'_>, tuning: &Database) {
    let Some(measured) = tuning.measured(&problem.target.name, || tuning::key(problem)) else { return };
    let outcomes: Vec<Option<Outcome>> = choices.iter().map(|c| measured.get(&tuning::way(c))).collect();
    if outcomes.first().is_none_or(Option::is_none) {
        return;
    }
    for (choice, outcome) in choices.iter_mut().zip(outcomes) {
        let estimate = choice.candidate.cost / 1e3;
        match outcome {
            Some(Outcome::Took(ns)) => {
                let reason = format!("measured, estimated {estimate:.1} µs; {}", choice.candidate.reason);
                choice.candidate.reason = reason;
                choice.candidate.cost = ns;
                choice.measured = Some(ns);
            }
            Some(Outcome::Failed) => {
                choice.candidate.reason = format!("failed when measured; {}", choice.candidate.reason);
                choice.candidate.cost = f64::MAX;
            }
            None => {}
        }
    }
    choices.sort_by(|a, b| {
        let rank = |c: &Choice| (c.measured.is_none(), c.candidate.cost);
        let ((a_class, a_cost), (b_class, b_cost)) = (rank(a), rank(b));
        a_class.cmp(&b_class).then(a_cost.total_cmp(&b_cost))
    });
}
