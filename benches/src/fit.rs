//! Fits the parameters of kernels' estimates to measurements of a device, and judges the picks that follow.
//!
//! Coordinate descent in log space over the numbers of one family of groups at a time. What is minimised is, summed over
//! the problems of the standing set, the logarithm of how much slower the pick is than the fastest candidate, and how far
//! estimates are from the times, fast candidates first. Parameters start from the generic ones and keep to three digits,
//! so that the same measurements give the same file.

mod file;
mod samples;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use driftc::kernels::KERNELS;
use driftc::plan::tuning::Database;
use driftc::target::TargetProfile;
use driftc::target::costs::{Costs, Fit, Number, generic};
use rayon::prelude::*;

use samples::{Sample, Samples};

/// Factors by which a parameter is changed, one after the other.
const STEPS: &[f64] = &[3.0, 1.6, 1.2, 1.07, 2.0, 1.3, 1.1, 1.03];
/// How far a parameter may go from the generic one.
const REACH: f64 = 40.0;
/// The weight of a step away from the generic value, so that what measurements say nothing about stays.
const PULL: f64 = 0.006;
/// The weight of wrong estimates beside that of slow picks.
const ACCURACY: f64 = 0.05;
/// What a pick counts besides that is slower than the fastest candidate by more than [`GOOD`].
const MISSED: f64 = 0.2;
/// A pick that takes no longer than this many times the fastest candidate is a good one.
const GOOD: f64 = 1.15;
/// An estimate that is further off than this, in logarithms, counts no more for each further step.
const OUTLIER: f64 = 1.0;

/// Random changes tried of a family behind each step, how many numbers one changes at most, and by about which factors,
/// as logarithms.
const TRIES: u32 = 150;
const MOVED: usize = 4;
const WANDERS: &[f64] = &[0.05, 0.2, 0.7];
/// A change that helps less is none.
const LEAST: f64 = 1e-6;

/// What a fit found.
#[derive(Debug)]
pub struct Fitted {
    /// The groups that were fitted.
    pub costs: Costs,
    pub fit: Fit,
    /// Measurements that were of use.
    pub measurements: usize,
    /// Problems whose cheapest candidate nobody measured.
    pub unmeasured: usize,
    /// Every problem with its regret, worst first.
    pub regrets: Vec<(f64, String)>,
}

/// Fits the parameters of a profile to what was measured under its name.
///
/// # Errors
/// When the standing set does not compile for the profile, or nothing of it was measured.
pub fn fit(profile: &TargetProfile, database: &Database) -> Result<Fitted, Box<dyn std::error::Error>> {
    let graphs = samples::graphs(profile)?;
    let base = TargetProfile { costs: generic().clone(), ..profile.clone() };
    let samples = Samples::of(&graphs, &base, database);
    if samples.all.is_empty() {
        return Err(format!("nothing of the standing set was measured for {}", profile.name).into());
    }
    let mut state = State::new(&samples, base.clone());
    let families = families(&samples);
    let mut random = Random(1);
    for step in STEPS {
        for family in &families {
            state.improve(family, *step);
            state.wander(family, TRIES, &mut random);
        }
    }
    let mut fitted = state.judge();
    let groups: BTreeSet<&str> = families.iter().flat_map(|f| f.groups.iter().copied()).collect();
    fitted.costs =
        state.target.costs.into_iter().filter(|(name, _)| groups.contains(name.as_str())).collect();
    Ok(fitted)
}

/// How the measurements judge a profile's parameters as they are.
///
/// # Errors
/// As [`fit`].
pub fn judge(profile: &TargetProfile, database: &Database) -> Result<Fitted, Box<dyn std::error::Error>> {
    let graphs = samples::graphs(profile)?;
    let samples = Samples::of(&graphs, profile, database);
    Ok(State::new(&samples, profile.clone()).judge())
}

/// Reads a profile's measurements, fits its parameters and gives the file that says them.
///
/// # Errors
/// As [`fit`], and when the measurements cannot be read.
pub fn file(
    profile: &TargetProfile,
    measured: &Path,
) -> Result<(String, Fitted), Box<dyn std::error::Error>> {
    let database = Database::load(measured)?;
    let fitted = fit(profile, &database)?;
    let device = database.device(&profile.name).unwrap_or("a device without a name");
    let text = file::text(&profile.name, device, &fitted);
    Ok((text, fitted))
}

/// Groups of parameters that are fitted together, since a kernel reads them both, and these kernels.
struct Family {
    groups: BTreeSet<&'static str>,
    kernels: BTreeSet<&'static str>,
}

/// The families of the kernels that were measured.
fn families(samples: &Samples<'_>) -> Vec<Family> {
    let measured: BTreeSet<&str> =
        samples.all.iter().flat_map(|s| &s.entries).filter(|e| e.time.is_some()).map(|e| e.kernel).collect();
    let mut families: Vec<Family> = Vec::new();
    for kernel in KERNELS.iter().filter(|k| measured.contains(k.name) && !k.params.is_empty()) {
        let groups: BTreeSet<&'static str> = kernel.params.iter().map(|g| g.name).collect();
        let mut family = Family { groups, kernels: BTreeSet::from([kernel.name]) };
        while let Some(place) = families.iter().position(|f| !f.groups.is_disjoint(&family.groups)) {
            let other = families.remove(place);
            family.groups.extend(other.groups);
            family.kernels.extend(other.kernels);
        }
        families.push(family);
    }
    families
}

/// The parameters so far, with the estimates that follow.
struct State<'s> {
    samples: &'s Samples<'s>,
    target: TargetProfile,
    /// Estimates by problem and entry.
    costs: Vec<Vec<f64>>,
}

impl<'s> State<'s> {
    fn new(samples: &'s Samples<'s>, target: TargetProfile) -> Self {
        let costs = samples.all.par_iter().map(|sample| sample.costs(&target, None)).collect();
        Self { samples, target, costs }
    }

    /// Changes every parameter of a family by a factor, as long as that helps.
    fn improve(&mut self, family: &Family, step: f64) {
        let touched = self.touched(family);
        let mut best = self.total(&touched, &self.target, family);
        for (group, name, place) in self.numbers(family) {
            for factor in [step, 1.0 / step] {
                let before = best;
                while let Some(target) = changed(&self.target, (group, &name, place), factor) {
                    let loss = self.total(&touched, &target, family);
                    if loss >= best - LEAST {
                        break;
                    }
                    (best, self.target) = (loss, target);
                }
                if best < before {
                    break;
                }
            }
        }
        self.settle(&touched, family);
    }

    /// Changes a few parameters of a family at once, at random, and keeps what helps.
    fn wander(&mut self, family: &Family, tries: u32, random: &mut Random) {
        let touched = self.touched(family);
        let numbers = self.numbers(family);
        let mut best = self.total(&touched, &self.target, family);
        for _ in 0..tries {
            let spread = WANDERS[random.below(WANDERS.len())];
            let mut next = Some(self.target.clone());
            for _ in 0..=random.below(MOVED) {
                let Some((group, name, place)) = numbers.get(random.below(numbers.len())) else { continue };
                let factor = (spread * random.signed()).exp();
                next = next.and_then(|target| changed(&target, (group, name, *place), factor));
            }
            let Some(target) = next else { continue };
            let loss = self.total(&touched, &target, family);
            if loss < best - LEAST {
                (best, self.target) = (loss, target);
            }
        }
        self.settle(&touched, family);
    }

    /// The problems that a family's kernels offer candidates for.
    fn touched(&self, family: &Family) -> Vec<usize> {
        let concerned =
            |sample: &Sample<'_>| sample.entries.iter().any(|e| family.kernels.contains(e.kernel));
        let all = self.samples.all.iter().enumerate();
        all.filter(|(_, sample)| concerned(sample)).map(|(i, _)| i).collect()
    }

    /// The numbers of a family by group, name and place.
    fn numbers(&self, family: &Family) -> Vec<(&'static str, String, usize)> {
        let of = |group: &&'static str| {
            let numbers = self.target.costs.get(*group).into_iter().flatten();
            let each = |(name, n): (&String, &Number)| {
                (0..n.values().len()).map(|i| (name.clone(), i)).collect::<Vec<_>>()
            };
            let group = *group;
            numbers.flat_map(each).map(move |(name, i)| (group, name, i)).collect::<Vec<_>>()
        };
        family.groups.iter().flat_map(of).collect()
    }

    /// Keeps the estimates of what a family's parameters are now.
    fn settle(&mut self, touched: &[usize], family: &Family) {
        let costs = self.costs_of(touched, &self.target, family);
        for (place, costs) in touched.iter().zip(costs) {
            self.costs[*place] = costs;
        }
    }

    /// What is minimised.
    fn total(&self, touched: &[usize], target: &TargetProfile, family: &Family) -> f64 {
        self.loss(touched, &self.costs_of(touched, target, family), family) + pull(&target.costs, family)
    }

    /// Estimates of the problems that a family concerns; those of other kernels stay.
    fn costs_of(&self, touched: &[usize], target: &TargetProfile, family: &Family) -> Vec<Vec<f64>> {
        let of = |i: &usize| {
            let (sample, before) = (&self.samples.all[*i], &self.costs[*i]);
            let new = sample.costs(target, Some(&family.kernels));
            new.iter().zip(before).map(|(new, old)| if new.is_nan() { *old } else { *new }).collect()
        };
        touched.par_iter().map(of).collect()
    }

    fn loss(&self, touched: &[usize], costs: &[Vec<f64>], family: &Family) -> f64 {
        let each = touched.iter().zip(costs).map(|(i, costs)| {
            let sample = &self.samples.all[*i];
            let regret = sample.regret(costs);
            let missed = if regret > GOOD { MISSED } else { 0.0 };
            regret.ln() + missed + ACCURACY * sample.error(costs, &family.kernels)
        });
        each.sum()
    }

    fn judge(&self) -> Fitted {
        let mut regrets = Vec::new();
        let mut errors = Vec::new();
        for (sample, costs) in self.samples.all.iter().zip(&self.costs) {
            let Some((picked, ratio)) = sample.pick(costs) else { continue };
            errors.push(ratio);
            if sample.entries.iter().filter(|e| e.time.is_some()).count() > 1 {
                regrets.push((picked, format!("{}  [{}]", sample.key, sample.told(costs))));
            }
        }
        regrets.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        errors.sort_by(f64::total_cmp);
        let at = |part: f64, values: &[f64]| {
            let place = (values.len() as f64 * part).ceil() as usize;
            values.get(place.saturating_sub(1)).copied().unwrap_or(1.0)
        };
        let ascending: Vec<f64> = regrets.iter().rev().map(|r| r.0).collect();
        let unmeasured =
            self.samples.all.iter().zip(&self.costs).filter(|(s, costs)| !s.picks_measured(costs));
        Fitted {
            costs: BTreeMap::new(),
            fit: Fit {
                problems: regrets.len() as u32,
                worst: rounded(ascending.last().copied().unwrap_or(1.0)),
                regret: rounded(at(0.95, &ascending)),
                margin: rounded(at(0.9, &errors)),
            },
            measurements: self
                .samples
                .all
                .iter()
                .flat_map(|s| &s.entries)
                .filter(|e| e.time.is_some())
                .count(),
            unmeasured: unmeasured.count(),
            regrets,
        }
    }
}

/// A profile with one number changed; none where that is out of reach.
fn changed(
    target: &TargetProfile,
    (group, name, place): (&str, &str, usize),
    factor: f64,
) -> Option<TargetProfile> {
    let first = *generic().get(group)?.get(name)?.values().get(place)?;
    let mut target = target.clone();
    let number = target.costs.get_mut(group)?.get_mut(name)?.values_mut().get_mut(place)?;
    let next = three_digits(*number * factor);
    let reach = (next / first).max(first / next);
    if reach > REACH || next == *number {
        return None;
    }
    *number = next;
    Some(target)
}

fn three_digits(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}

/// A ratio as files say it, on the safe side.
fn rounded(ratio: f64) -> f64 {
    (ratio * 100.0 - 1e-6).ceil() / 100.0
}

/// What a family's distance from the generic parameters counts.
fn pull(costs: &Costs, family: &Family) -> f64 {
    let distance = |group: &&str| -> f64 {
        let (Some(now), Some(first)) = (costs.get(*group), generic().get(*group)) else { return 0.0 };
        let values = now.values().zip(first.values()).flat_map(|(a, b)| a.values().iter().zip(b.values()));
        values.map(|(a, b)| (a / b).ln().powi(2)).sum()
    };
    PULL * family.groups.iter().map(distance).sum::<f64>()
}

/// Numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % (end.max(1) as u64)) as usize
    }

    /// Between -1 and 1.
    fn signed(&mut self) -> f64 {
        self.next() as f64 / f64::from(1u32 << 30) - 1.0
    }
}
