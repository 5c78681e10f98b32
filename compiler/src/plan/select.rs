//! Choosing a kernel for a problem: every candidate of every kernel, with its cost and reason, and the cheapest.
//!
//! Costs are estimates from the profile's numbers. A profile may name the candidate that was found fastest for a problem,
//! which then stands first. Where a tuning database has measured the problem, the measured times take their place.

use super::choice::Choice;
use super::tuning::{self, Database, Outcome};
use crate::kernels::KERNELS;
use crate::shader::problem::Problem;

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
    prefer_picks(&mut out, problem);
    if let Some(tuning) = tuning {
        apply(&mut out, problem, tuning);
    }
    out
}

/// Puts the candidate that the profile picks for this very problem first.
fn prefer_picks(choices: &mut [Choice], problem: &Problem<'_>) {
    let picks = &problem.target.picks;
    if picks.is_empty() {
        return;
    }
    let key = tuning::core_key(problem);
    let Some(pick) = picks.iter().find(|p| p.problem == key) else { return };
    let Some(place) = choices.iter().position(|c| tuning::configuration(c) == pick.configuration) else {
        tell(choices, &format!("`{}`, which the profile picks, is not offered", pick.configuration));
        return;
    };
    if let Some(before) = choices.get_mut(..=place) {
        before.rotate_right(1);
    }
    if let Some(choice) = choices.first_mut() {
        let reason = format!("found fastest on the device; {}", choice.candidate.reason);
        (choice.candidate.cost, choice.candidate.reason) = (pick.us * 1e3, reason);
    }
}

/// Says in the first candidate's reason why nothing took its place.
fn tell(choices: &mut [Choice], what: &str) {
    if let Some(choice) = choices.first_mut() {
        choice.candidate.reason = format!("{what}; {}", choice.candidate.reason);
    }
}

/// Puts measured candidates first, the fastest before all others.
///
/// Measurements that lack the candidate which the estimates prefer are of another compiler, profile or an unfinished
/// run: they say nothing about what is best, and the estimates stand.
fn apply(choices: &mut [Choice], problem: &Problem<'_>, tuning: &Database) {
    let Some(measured) = tuning.measured(&problem.target.name, || tuning::key(problem)) else { return };
    let outcomes: Vec<Option<Outcome>> =
        choices.iter().map(|c| measured.get(&tuning::configuration_with_hash(c))).collect();
    if outcomes.first().is_none_or(Option::is_none) {
        tell(choices, "measurements in the database lack this candidate, so none of them counts");
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

#[cfg(test)]
mod tests {
    use super::Choice;
    use crate::compile::{Options, lower};
    use crate::ir::text;
    use crate::plan::tuning::configuration;
    use crate::target::{Pick, TargetProfile};

    const PRODUCT: &str = r#"
%0 = input {"name":"x","dtype":"f32","shape":[3,64]}
%1 = input {"name":"w","dtype":"f32","shape":[64,96]}
%2 = matmul %0 %1 {"trans_a":false,"trans_b":false}
%3 = relu %2
output "y" %3
"#;

    fn choices(target: &TargetProfile) -> Vec<Choice> {
        let lowered = lower(&text::parse(PRODUCT).unwrap(), target, &Options::default()).unwrap();
        lowered.plan.decisions.into_iter().find(|d| d.what.starts_with("matmul")).unwrap().choices
    }

    #[test]
    fn a_profile_s_pick_comes_first_whatever_is_fused_behind() {
        let mut target = TargetProfile::load("vulkan-baseline").unwrap();
        let before = choices(&target);
        let wanted = configuration(before.last().unwrap());
        let problem =
            r#"matmul {"trans_a":false,"trans_b":false} f32[3, 64], f32[64, 96] -> f32[3, 96]"#.to_string();
        target.picks = vec![Pick { problem, configuration: wanted.clone(), us: 7.5 }];
        let after = choices(&target);
        assert_ne!(configuration(&before[0]), wanted);
        assert_eq!(configuration(&after[0]), wanted);
        assert_eq!((after.len(), after[0].candidate.cost), (before.len(), 7500.0));
        assert!(after[0].candidate.reason.starts_with("found fastest"), "{}", after[0].candidate.reason);
        target.picks[0].configuration = "matmul NO=1".into();
        let first = choices(&target).swap_remove(0);
        assert_eq!(configuration(&first), configuration(&before[0]));
        let told = "`matmul NO=1`, which the profile picks, is not offered; ";
        assert!(first.candidate.reason.starts_with(told), "{}", first.candidate.reason);
    }
}
