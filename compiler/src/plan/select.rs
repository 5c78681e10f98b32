//! Selects a kernel for a problem: collects the candidates of all kernels, with cost and reason, and sorts them by
//! cost.
//!
//! Costs are estimates from the profile's numbers. Where the profile has static facts, configurations that spill registers cost
//! more, and full occupancy is preferred. An override of the profile moves its candidate to the front. If a
//! tuning database has measured the problem, the measured times replace the estimates.

use super::choice::Choice;
use super::static_facts;
use super::tuning::{self, Database, Outcome};
use crate::kernels::KERNELS;
use crate::shader::problem::Problem;

/// Returns the candidates for a problem, cheapest first. If costs are equal, the order of [`KERNELS`] is kept. With
/// `only`, considers only the kernel of that name.
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
    static_facts::apply_spills(&mut out, problem.target);
    out.sort_by(|a, b| a.candidate.cost.total_cmp(&b.candidate.cost));
    static_facts::prefer_full_occupancy(&mut out, problem.target);
    apply_override(&mut out, problem);
    if let Some(tuning) = tuning {
        apply_measurements(&mut out, problem, tuning);
    }
    out
}

/// Moves the candidate of the profile's override for this problem to the front.
fn apply_override(choices: &mut [Choice], problem: &Problem<'_>) {
    let overrides = &problem.target.overrides;
    if overrides.is_empty() {
        return;
    }
    let key = tuning::key_without_epilogue(problem);
    let Some(selected) = overrides.iter().find(|o| o.problem == key) else { return };
    let found = choices.iter().position(|c| tuning::configuration(c) == selected.configuration);
    let Some(place) = found else {
        let missing = &selected.configuration;
        add_reason(choices, &format!("the profile's override `{missing}` is not a candidate"));
        return;
    };
    if let Some(before) = choices.get_mut(..=place) {
        before.rotate_right(1);
    }
    if let Some(choice) = choices.first_mut() {
        let reason = format!("override of the profile; {}", choice.candidate.reason);
        (choice.candidate.cost, choice.candidate.reason) = (selected.us * 1e3, reason);
    }
}

/// Adds to the first candidate's reason a text that says why an override or a measurement was not used.
fn add_reason(choices: &mut [Choice], what: &str) {
    if let Some(choice) = choices.first_mut() {
        choice.candidate.reason = format!("{what}; {}", choice.candidate.reason);
    }
}

/// Moves measured candidates to the front, the fastest first.
///
/// If the cheapest candidate was not measured, the measurements are from another compiler or profile, or from an
/// unfinished run. They do not show which candidate is best, so the estimates are kept.
fn apply_measurements(choices: &mut [Choice], problem: &Problem<'_>, tuning: &Database) {
    let Some(measured) = tuning.measured(&problem.target.name, || tuning::key(problem)) else { return };
    let outcomes: Vec<Option<Outcome>> =
        choices.iter().map(|c| measured.get(&tuning::configuration_with_hash(c))).collect();
    if outcomes.first().is_none_or(Option::is_none) {
        add_reason(
            choices,
            "the tuning database lacks this candidate, so the measurements of this problem are ignored",
        );
        return;
    }
    for (choice, outcome) in choices.iter_mut().zip(outcomes) {
        let estimate = choice.candidate.cost / 1e3;
        match outcome {
            Some(Outcome::Time(ns)) => {
                let reason = format!("measured, estimated {estimate:.1} µs; {}", choice.candidate.reason);
                choice.candidate.reason = reason;
                choice.candidate.cost = ns;
                choice.measured = Some(ns);
            }
            Some(Outcome::Failed) => {
                choice.candidate.reason = format!("failed in a measurement; {}", choice.candidate.reason);
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

#[cfg(test)]
mod tests {
    use super::Choice;
    use crate::compile::{Options, lower};
    use crate::ir::graph_text;
    use crate::plan::tuning::configuration;
    use crate::target::{KernelOverride, TargetProfile};

    const MATMUL: &str = r#"
%0 = input {"name":"x","dtype":"f32","shape":[3,64]}
%1 = input {"name":"w","dtype":"f32","shape":[64,96]}
%2 = matmul %0 %1 {"trans_a":false,"trans_b":false}
%3 = relu %2
output "y" %3
"#;

    fn choices(target: &TargetProfile) -> Vec<Choice> {
        let lowered = lower(&graph_text::parse(MATMUL).unwrap(), target, &Options::default()).unwrap();
        lowered.plan.decisions.into_iter().find(|d| d.what.starts_with("matmul")).unwrap().choices
    }

    #[test]
    fn an_override_is_selected_whatever_its_epilogue() {
        let mut target = TargetProfile::load("vulkan-baseline").unwrap();
        let before = choices(&target);
        let wanted = configuration(before.last().unwrap());
        let problem =
            r#"matmul {"trans_a":false,"trans_b":false} f32[3, 64], f32[64, 96] -> f32[3, 96]"#.to_string();
        target.overrides = vec![KernelOverride { problem, configuration: wanted.clone(), us: 7.5 }];
        let after = choices(&target);
        assert_ne!(configuration(&before[0]), wanted);
        assert_eq!(configuration(&after[0]), wanted);
        assert_eq!((after.len(), after[0].candidate.cost), (before.len(), 7500.0));
        assert!(
            after[0].candidate.reason.starts_with("override of the profile"),
            "{}",
            after[0].candidate.reason
        );
        target.overrides[0].configuration = "matmul NO=1".into();
        let first = choices(&target).swap_remove(0);
        assert_eq!(configuration(&first), configuration(&before[0]));
        let expected = "the profile's override `matmul NO=1` is not a candidate; ";
        assert!(first.candidate.reason.starts_with(expected), "{}", first.candidate.reason);
    }
}
