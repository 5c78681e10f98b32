//! Costs that follow from a profile's static facts: what the compiler of the device's driver made of a configuration. Spills of
//! configurations without facts follow from an estimate of their registers.

use super::choice::Choice;
use super::params::Params;
use super::tuning::kernel_hash;
use crate::target::TargetProfile;
use crate::target::static_facts::{ConfigurationFacts, StaticFacts};

/// Raises the cost of candidates that spill registers: by the facts about their configuration, in proportion to the fraction of
/// its shaders that spill, or by the estimate of their registers. The higher cost counts.
pub(super) fn apply_spills(choices: &mut [Choice], target: &TargetProfile) {
    let Some(params) = Params::from_target(target) else { return };
    for choice in choices {
        let spills = [spills_by_facts(choice, target, &params), spills_by_estimate(choice, target, &params)];
        let Some((ratio, spills)) = spills.into_iter().flatten().max_by(|a, b| a.0.total_cmp(&b.0)) else {
            continue;
        };
        let candidate = &mut choice.candidate;
        candidate.cost *= ratio;
        candidate.reason =
            format!("{spills}, so it counts {ratio:.2} times its estimate; {}", candidate.reason);
    }
}

/// Returns the cost ratio of a candidate whose configuration spills by the profile's static facts, and the reason.
fn spills_by_facts(choice: &Choice, target: &TargetProfile, params: &Params) -> Option<(f64, String)> {
    let facts = target.static_facts.as_ref()?;
    let known = configuration(facts, choice).filter(|known| known.spilling + known.failed > 0)?;
    let ConfigurationFacts { shaders, spilling, failed, spills, .. } = known;
    let fraction = f64::from(spilling + failed) / f64::from(shaders.max(1));
    let reason = format!(
        "registers spill in {spilling} of {shaders} shaders with this configuration (at most {spills} spills, {failed} not compiled, {})",
        facts.driver
    );
    Some((1.0 + (params.spilling_cost_ratio - 1.0) * fraction, reason))
}

/// Returns the cost ratio of a candidate that needs more registers than the device has without spills, and the reason.
fn spills_by_estimate(choice: &Choice, target: &TargetProfile, params: &Params) -> Option<(f64, String)> {
    let limit = target.machine.spills_above?;
    let registers = choice.candidate.registers.filter(|registers| *registers > limit)?;
    let reason =
        format!("an invocation needs about {registers} registers, and registers spill above {limit}");
    Some((params.spilling_cost_ratio, reason))
}

/// Moves a candidate with full occupancy to the front if the cheapest candidate has less and costs little less.
pub(super) fn prefer_full_occupancy(choices: &mut [Choice], target: &TargetProfile) {
    let Some((facts, full)) = target.static_facts.as_ref().zip(target.machine.full_occupancy) else { return };
    let occupancy = |choice: &Choice| configuration(facts, choice).and_then(|known| known.occupancy);
    let Some(first) = choices.first() else { return };
    let Some(less) = occupancy(first).filter(|less| *less < full) else { return };
    let Some(params) = Params::from_target(target) else { return };
    let limit = first.candidate.cost * params.full_occupancy_max_cost_ratio;
    let is_full = |choice: &Choice| occupancy(choice).is_none_or(|subgroups| subgroups >= full);
    let affordable = choices.iter().take_while(|choice| choice.candidate.cost <= limit);
    let Some(place) = affordable.into_iter().position(is_full) else { return };
    if let Some(before) = choices.get_mut(..=place) {
        before.rotate_right(1);
    }
    if let Some(selected) = choices.first_mut() {
        selected.candidate.reason = format!(
            "full occupancy; the cheapest candidate has {less} of {full} subgroups per execution unit; {}",
            selected.candidate.reason
        );
    }
}

/// Returns the facts about a choice's configuration if the profile lists it. If facts count by the value of a knob, returns the
/// sum of the facts about all configurations with the choice's value.
fn configuration(facts: &StaticFacts, choice: &Choice) -> Option<ConfigurationFacts> {
    let candidate = &choice.candidate;
    if let Some(knob) = candidate.facts_knob {
        let kernel = facts.kernels.get(choice.kernel.name)?;
        let value = format!("{knob}={}", candidate.knobs.get(knob)?);
        let listed = kernel.configurations.iter().filter(|(knobs, _)| knobs.split(' ').any(|k| k == value));
        let sum = listed.fold(ConfigurationFacts::default(), |sum, (_, known)| ConfigurationFacts {
            shaders: sum.shaders + known.shaders,
            spilling: sum.spilling + known.spilling,
            failed: sum.failed + known.failed,
            spills: sum.spills.max(known.spills),
            occupancy: None,
        });
        return (kernel.source == kernel_hash(choice.kernel)).then_some(sum);
    }
    let source = || kernel_hash(choice.kernel);
    facts.configuration(choice.kernel.name, source, || candidate.knobs.to_string())
}

#[cfg(test)]
mod tests {
    use crate::compile::{Options, lower};
    use crate::ir::graph_text;
    use crate::plan::choice::Choice;
    use crate::plan::tuning::{configuration, source_hash};
    use crate::target::TargetProfile;
    use crate::target::costs::Number;
    use crate::target::static_facts::{ConfigurationFacts, KernelFacts, StaticFacts};

    const MATMUL: &str = r#"
%0 = input {"name":"x","dtype":"f32","shape":[64,64]}
%1 = input {"name":"w","dtype":"f32","shape":[64,96]}
%2 = matmul %0 %1 {"trans_a":false,"trans_b":false}
output "y" %2
"#;

    /// Returns the candidates for the matmul, the selected one first.
    fn choices(target: &TargetProfile) -> Vec<Choice> {
        let lowered = lower(&graph_text::parse(MATMUL).unwrap(), target, &Options::default()).unwrap();
        lowered.plan.decisions.into_iter().find(|d| d.what.starts_with("matmul")).unwrap().choices
    }

    /// Returns the target with facts about the configuration of a choice.
    fn with_facts(target: &TargetProfile, choice: &Choice, facts: ConfigurationFacts) -> TargetProfile {
        let kernel = KernelFacts {
            source: source_hash(choice.kernel.wgsl),
            shaders: 1,
            configurations: [(choice.candidate.knobs.to_string(), facts)].into(),
        };
        let kernels = [(choice.kernel.name.to_owned(), kernel)].into();
        let facts = StaticFacts { driver: "a driver".into(), device: "a device".into(), kernels };
        TargetProfile { static_facts: Some(facts), ..target.clone() }
    }

    #[test]
    fn a_configuration_that_spills_costs_more() {
        let target = TargetProfile::load("vulkan-baseline").unwrap();
        let before = choices(&target);
        let spills =
            ConfigurationFacts { shaders: 4, spilling: 3, spills: 28, ..ConfigurationFacts::default() };
        let after = choices(&with_facts(&target, &before[0], spills));
        let same = |choice: &&Choice| configuration(choice) == configuration(&before[0]);
        let spilling = after.iter().find(same).unwrap();
        assert_eq!(spilling.candidate.cost, (1.0 + 3.0 * 0.75) * before[0].candidate.cost);
        let reason = "registers spill in 3 of 4 shaders with this configuration (at most 28 spills, 0 not compiled, a driver)";
        assert!(spilling.candidate.reason.starts_with(reason), "{}", spilling.candidate.reason);
        assert_ne!(configuration(&after[0]), configuration(&before[0]));
        assert_eq!(after.len(), before.len());
    }

    #[test]
    fn a_candidate_with_too_many_registers_costs_more() {
        let mut target = TargetProfile::load("vulkan-baseline").unwrap();
        let before = choices(&target);
        let known = before.iter().find(|choice| choice.candidate.registers.is_some()).unwrap();
        let registers = known.candidate.registers.unwrap();
        let mut with_limit = |limit: u32| {
            target.machine.spills_above = Some(limit);
            let after = choices(&target);
            after.into_iter().find(|choice| configuration(choice) == configuration(known)).unwrap().candidate
        };
        assert_eq!(with_limit(registers), known.candidate);
        let spilling = with_limit(registers - 1);
        assert_eq!(spilling.cost, 4.0 * known.candidate.cost);
        let reason = format!("an invocation needs about {registers} registers");
        assert!(spilling.reason.starts_with(&reason), "{}", spilling.reason);
    }

    #[test]
    fn full_occupancy_decides_between_candidates_of_similar_cost() {
        let target = TargetProfile::load("vulkan-baseline").unwrap();
        let before = choices(&target);
        let low = ConfigurationFacts { shaders: 1, occupancy: Some(4), ..ConfigurationFacts::default() };
        let mut facts = with_facts(&target, &before[0], low);
        let selected = |target: &TargetProfile| configuration(&choices(target)[0]);
        assert_eq!(selected(&facts), configuration(&before[0]), "no full occupancy is known");
        facts.machine.full_occupancy = Some(8);
        let mut set_limit = |ratio: f64| {
            let plan = facts.costs.get_mut("plan").unwrap();
            plan.insert("full_occupancy_max_cost_ratio".into(), Number::One(ratio));
            facts.clone()
        };
        let ratio = before[1].candidate.cost / before[0].candidate.cost;
        assert_eq!(selected(&set_limit(ratio * 0.99)), configuration(&before[0]));
        let facts = set_limit(ratio * 1.01);
        assert_eq!(selected(&facts), configuration(&before[1]));
    }
}
