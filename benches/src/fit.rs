//! Fits cost parameters to measurements of a device, and judges the resulting selections.
//!
//! The fit is coordinate descent on the logarithms of the parameters, one family of parameter groups at a time. The loss sums,
//! over the problems of the calibration suite, the logarithm of the regret, the regret of candidates with nearly the lowest
//! estimate, and the error of the estimates, in which fast candidates weigh more. Parameters start from the generic values and
//! keep three digits, so that equal measurements give equal files.

mod file;
mod samples;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use driftc::kernels::KERNELS;
use driftc::plan::tuning::Database;
use driftc::target::TargetProfile;
use driftc::target::costs::{Costs, Fit, Number, generic, is_in_range};
use rayon::prelude::*;

use samples::{Sample, Samples};

/// Factors by which the fit multiplies or divides a parameter, in the order in which they are tried.
const STEPS: &[f64] = &[3.0, 1.6, 1.2, 1.07, 2.0, 1.3, 1.1, 1.03];
/// Maximum factor between a fitted parameter and its generic value, in either direction.
const REACH: f64 = 40.0;
/// Weight of the distance between a parameter and its generic value in the loss. It keeps a parameter that no measurement depends
/// on at its generic value.
const PULL: f64 = 0.006;
/// Weight of the estimates' errors in the loss. The logarithm of the regret and the near regret have weight 1.
const ACCURACY: f64 = 0.05;
/// Extra loss of a problem whose selected candidate has a regret above 1.15 ([`GOOD`]).
const MISSED: f64 = 0.2;
/// Maximum regret of a good selection: time of the selected candidate divided by the time of the fastest one.
const GOOD: f64 = 1.15;

/// Number of random changes that the fit tries for each family of parameter groups, after each factor of [`STEPS`].
const TRIES: u32 = 150;
/// Maximum number of cost parameters that one random change of a fit changes.
const MOVED: usize = 4;
/// Maximum absolute logarithms of the factors in a random change. Each change draws one of these maxima.
const WANDERS: &[f64] = &[0.05, 0.2, 0.7];
/// Minimum decrease of the loss for which a change of parameters is kept.
const LEAST: f64 = 1e-6;

/// Result of fitting or judging cost parameters.
#[derive(Debug)]
pub struct Fitted {
    /// Fitted parameters by group; empty if parameters were only judged.
    pub costs: Costs,
    pub fit: Fit,
    /// Number of measured candidates that the fit used.
    pub measurements: usize,
    /// Number of problems whose cheapest candidate was not measured.
    pub unmeasured: usize,
    /// Regret and description of every problem with several measured candidates, largest regret first.
    pub regrets: Vec<(f64, String)>,
}

/// Fits a profile's cost parameters to the measurements that the database has under the profile's name.
///
/// # Errors
/// If the calibration suite does not compile for the profile, or no problem of the suite was measured.
pub fn fit(profile: &TargetProfile, database: &Database) -> Result<Fitted, Box<dyn std::error::Error>> {
    let base = TargetProfile { costs: generic().clone(), ..profile.clone() };
    let graphs = samples::graphs(&base)?;
    let samples = Samples::measured(&graphs, &base, database);
    if samples.all.is_empty() {
        return Err(format!(
            "no problem of the calibration suite has a measurement for profile {}",
            profile.name
        )
        .into());
    }
    let mut state = State::new(&samples, base.clone());
    let families = families(&samples);
    // Each family has its own random numbers, so that a new kernel does not change the random changes of other families.
    let mut random: Vec<Random> = families.iter().map(|family| Random::from_names(&family.groups)).collect();
    for step in STEPS {
        for (family, random) in families.iter().zip(&mut random) {
            state.improve(family, *step);
            state.wander(family, TRIES, random);
        }
    }
    let mut fitted = state.judge();
    let groups: BTreeSet<&str> = families.iter().flat_map(|f| f.groups.iter().copied()).collect();
    fitted.costs =
        state.target.costs.into_iter().filter(|(name, _)| groups.contains(name.as_str())).collect();
    Ok(fitted)
}

/// Computes the regret and the accuracy of a profile's present cost parameters, without fitting.
///
/// # Errors
/// If the calibration suite does not compile for the profile.
pub fn judge(profile: &TargetProfile, database: &Database) -> Result<Fitted, Box<dyn std::error::Error>> {
    let graphs = samples::graphs(profile)?;
    let samples = Samples::measured(&graphs, profile, database);
    Ok(State::new(&samples, profile.clone()).judge())
}

/// Reads a profile's measurements, fits its cost parameters and returns the text of its file in `targets/costs/`.
///
/// # Errors
/// If the measurements cannot be read, or the fit fails ([`fit`]).
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

/// Parameter groups that are fitted together because the same kernels read them, and these kernels.
struct Family {
    groups: BTreeSet<&'static str>,
    kernels: BTreeSet<&'static str>,
}

/// Families of parameter groups that the measured kernels read.
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

/// State of a fit: a target profile with the present cost parameters, and the estimates computed from them.
struct State<'s> {
    samples: &'s Samples<'s>,
    target: TargetProfile,
    /// Estimate in nanoseconds of each entry (candidate) of each problem.
    costs: Vec<Vec<f64>>,
}

impl<'s> State<'s> {
    fn new(samples: &'s Samples<'s>, target: TargetProfile) -> Self {
        let costs = samples.all.par_iter().map(|sample| sample.costs(&target, None)).collect();
        Self { samples, target, costs }
    }

    /// Multiplies or divides each parameter of a family by `step`, again and again while the loss decreases.
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

    /// Tries random changes of a few parameters of a family, and keeps each change that decreases the loss.
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

    /// Indices of the problems for which kernels of a family have candidates.
    fn touched(&self, family: &Family) -> Vec<usize> {
        let concerned =
            |sample: &Sample<'_>| sample.entries.iter().any(|e| family.kernels.contains(e.kernel));
        let all = self.samples.all.iter().enumerate();
        all.filter(|(_, sample)| concerned(sample)).map(|(i, _)| i).collect()
    }

    /// All numbers of a family's cost parameters. Each is given by its group, the name of its parameter, and its index in the
    /// parameter, which may have several numbers.
    fn numbers(&self, family: &Family) -> Vec<(&'static str, String, usize)> {
        let numbers = |group: &&'static str| {
            let group = *group;
            let counts = parameters(&self.target.costs, group).map(|(name, n)| (name, n.values().len()));
            counts.flat_map(move |(name, count)| (0..count).map(move |i| (group, name.to_owned(), i)))
        };
        family.groups.iter().flat_map(numbers).collect()
    }

    /// Recomputes the estimates of a family's problems with the present parameters, and stores them.
    fn settle(&mut self, touched: &[usize], family: &Family) {
        let costs = self.costs_of(touched, &self.target, family);
        for (place, costs) in touched.iter().zip(costs) {
            self.costs[*place] = costs;
        }
    }

    /// Loss of a family: of its problems, and of the distance of its parameters from the generic values.
    fn total(&self, touched: &[usize], target: &TargetProfile, family: &Family) -> f64 {
        self.loss(touched, &self.costs_of(touched, target, family), family) + pull(&target.costs, family)
    }

    /// Estimates of the problems `touched`: new ones for the family's kernels, the stored ones for other kernels.
    fn costs_of(&self, touched: &[usize], target: &TargetProfile, family: &Family) -> Vec<Vec<f64>> {
        let costs = |i: &usize| {
            let (sample, before) = (&self.samples.all[*i], &self.costs[*i]);
            let new = sample.costs(target, Some(&family.kernels));
            new.iter().zip(before).map(|(new, old)| if new.is_nan() { *old } else { *new }).collect()
        };
        touched.par_iter().map(costs).collect()
    }

    fn loss(&self, touched: &[usize], costs: &[Vec<f64>], family: &Family) -> f64 {
        let each = touched.iter().zip(costs).map(|(i, costs)| {
            let sample = &self.samples.all[*i];
            let regret = sample.regret(costs);
            let missed = if regret > GOOD { MISSED } else { 0.0 };
            regret.ln() + sample.near_regret(costs) + missed + ACCURACY * sample.error(costs, &family.kernels)
        });
        each.sum()
    }

    fn judge(&self) -> Fitted {
        let mut regrets = Vec::new();
        let mut errors = Vec::new();
        for (sample, costs) in self.samples.all.iter().zip(&self.costs) {
            let Some((regret, ratio)) = sample.selection(costs) else { continue };
            errors.push(ratio);
            if sample.entries.iter().filter(|e| e.time.is_some()).count() > 1 {
                regrets.push((regret, format!("{}  [{}]", sample.key, sample.description(costs))));
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
            self.samples.all.iter().zip(&self.costs).filter(|(s, costs)| !s.selection_is_measured(costs));
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

/// Returns a profile with one cost parameter multiplied by a factor. Returns `None` if the result would be more than [`REACH`]
/// times above or below the generic value, would be outside of the parameter's range, or would not change in three digits.
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
    if reach > REACH || !is_in_range(name, next) || next == *number {
        return None;
    }
    *number = next;
    Some(target)
}

fn three_digits(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}

/// Rounds a ratio up to two digits after the point.
fn rounded(ratio: f64) -> f64 {
    (ratio * 100.0 - 1e-6).ceil() / 100.0
}

/// Loss for the distance of a family's parameters from their generic values.
fn pull(costs: &Costs, family: &Family) -> f64 {
    let distance = |group: &&str| -> f64 {
        let (now, first) = (parameters(costs, group), parameters(generic(), group));
        let values = now.zip(first).flat_map(|((_, a), (_, b))| a.values().iter().zip(b.values()));
        values.map(|(a, b)| (a / b).ln().powi(2)).sum()
    };
    PULL * family.groups.iter().map(distance).sum::<f64>()
}

/// Parameters of a group in the order of their declaration, so that the result of a fit does not depend on how they are named.
fn parameters<'c>(costs: &'c Costs, group: &str) -> impl Iterator<Item = (&'static str, &'c Number)> {
    let declared = KERNELS.iter().flat_map(|kernel| kernel.params).find(|known| known.name == group);
    let names = declared.map_or(&[][..], |group| (group.parameters)());
    let numbers = costs.get(group);
    names.iter().filter_map(move |name| Some((*name, numbers?.get(*name)?)))
}

/// Pseudo-random numbers, with the same sequence in every run.
struct Random(u64);

impl Random {
    /// Returns the pseudo-random numbers of a family with these parameter groups.
    fn from_names(groups: &BTreeSet<&'static str>) -> Self {
        let mut random = Self(1);
        for byte in groups.iter().flat_map(|name| name.bytes()) {
            random.0 ^= u64::from(byte);
            random.next();
        }
        random
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % (end.max(1) as u64)) as usize
    }

    /// Next pseudo-random number between -1 and 1.
    fn signed(&mut self) -> f64 {
        self.next() as f64 / f64::from(1u32 << 30) - 1.0
    }
}
