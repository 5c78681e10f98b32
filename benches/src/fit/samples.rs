//! The standing set with what was measured of it.

use std::collections::{BTreeMap, BTreeSet};

use driftc::ir::graph::Graph;
use driftc::kernels::KERNELS;
use driftc::kernels::kernel::Kernel;
use driftc::plan::choice::Choice;
use driftc::plan::tuning::{Database, Outcome, configuration, core_key, key};
use driftc::shader::problem::Problem;
use driftc::standing::{self, forget_elements};
use driftc::target::TargetProfile;
use rayon::prelude::*;

use super::OUTLIER;

/// How slow a pick that nobody measured is taken to be: nothing is known of it.
const UNKNOWN: f64 = 1.3;

/// The graphs of the standing set, without the elements of their constants.
pub(super) fn graphs(target: &TargetProfile) -> Result<Vec<Graph>, Box<dyn std::error::Error>> {
    let lowered = standing::graphs().into_par_iter().map(|standing| {
        let mut graph = standing.lowered(target)?;
        forget_elements(&mut graph)?;
        Ok::<_, driftc::error::Error>(graph)
    });
    Ok(lowered.collect::<Result<Vec<_>, _>>()?)
}

/// A candidate with its measured time in nanoseconds.
pub(super) struct Entry {
    pub(super) kernel: &'static str,
    /// As a profile's picks name it.
    pub(super) configuration: String,
    /// None where nobody measured it.
    pub(super) time: Option<f64>,
    /// Whether its kernel came with each of its knobs' values when the measurements were made.
    known: bool,
}

impl Entry {
    /// Its knobs with their values.
    fn knobs(&self) -> impl Iterator<Item = &str> {
        self.configuration.split(' ').skip(1)
    }
}

/// A problem with its candidates, in the order in which kernels offer them.
pub(super) struct Sample<'g> {
    pub(super) key: String,
    problem: Problem<'g>,
    kernels: Vec<(&'static Kernel, usize)>,
    pub(super) entries: Vec<Entry>,
    best: f64,
    /// The entry that the profile picks, whatever it costs.
    pinned: Option<usize>,
}

/// All problems of which something was measured, each once.
pub(super) struct Samples<'g> {
    pub(super) all: Vec<Sample<'g>>,
}

impl<'g> Samples<'g> {
    pub(super) fn of(graphs: &'g [Graph], target: &'g TargetProfile, database: &Database) -> Self {
        let mut all = BTreeMap::new();
        for graph in graphs {
            for problem in standing::problems(graph, target) {
                let key = key(&problem);
                if !all.contains_key(&key)
                    && let Some(sample) = Sample::of(problem, &key, target, database)
                {
                    all.insert(key, sample);
                }
            }
        }
        let mut all: Vec<Sample<'g>> = all.into_values().collect();
        let mut seen = BTreeSet::new();
        for entry in all.iter().flat_map(|sample| &sample.entries).filter(|entry| entry.time.is_some()) {
            seen.extend(entry.knobs().map(|knob| (entry.kernel, knob.to_owned())));
        }
        for entry in all.iter_mut().flat_map(|sample| &mut sample.entries) {
            let known = entry.knobs().all(|knob| seen.contains(&(entry.kernel, knob.to_owned())));
            entry.known = known;
        }
        Self { all }
    }
}

/// A candidate without the hash of its kernel's source, as a profile's picks name it.
fn without_hash(configuration: &str) -> String {
    let (kernel, knobs) =
        configuration.split_once(' ').map_or((configuration, ""), |(kernel, knobs)| (kernel, knobs));
    let name = kernel.split('/').next().unwrap_or_default();
    if knobs.is_empty() { name.to_owned() } else { format!("{name} {knobs}") }
}

impl<'g> Sample<'g> {
    fn of(problem: Problem<'g>, key: &str, target: &TargetProfile, database: &Database) -> Option<Self> {
        let measured = database.measured(&target.name, || key.to_owned())?;
        let times: BTreeMap<String, f64> = measured
            .iter()
            .filter_map(|(configuration, outcome)| match outcome {
                Outcome::Took(ns) => Some((without_hash(configuration), ns)),
                Outcome::Failed => None,
            })
            .collect();
        let pick =
            target.picks.iter().find(|p| p.problem == core_key(&problem)).map(|p| p.configuration.as_str());
        let (mut kernels, mut entries, mut pinned) = (Vec::new(), Vec::new(), None);
        for kernel in KERNELS {
            let candidates = (kernel.candidates)(&problem);
            if !candidates.is_empty() {
                kernels.push((kernel, candidates.len()));
            }
            for candidate in candidates {
                let configuration = configuration(&Choice { kernel, candidate, measured: None });
                if pick == Some(configuration.as_str()) {
                    pinned = Some(entries.len());
                }
                entries.push(Entry {
                    kernel: kernel.name,
                    time: times.get(&configuration).copied(),
                    known: true,
                    configuration,
                });
            }
        }
        let best = entries.iter().filter_map(|e| e.time).fold(f64::INFINITY, f64::min);
        best.is_finite().then(|| Self { key: key.to_owned(), problem, kernels, entries, best, pinned })
    }

    /// Estimates of all entries; not a number for those of kernels that are not asked for.
    pub(super) fn costs(&self, target: &TargetProfile, only: Option<&BTreeSet<&'static str>>) -> Vec<f64> {
        let problem = Problem { target, ..self.problem.clone() };
        let mut out = Vec::with_capacity(self.entries.len());
        for (kernel, count) in &self.kernels {
            if only.is_some_and(|only| !only.contains(kernel.name)) {
                out.extend(std::iter::repeat_n(f64::NAN, *count));
                continue;
            }
            let candidates = (kernel.candidates)(&problem);
            // Which candidates there are does not depend on what they cost.
            let costs = candidates.iter().map(|c| c.cost).chain(std::iter::repeat(f64::INFINITY));
            out.extend(costs.take(*count));
        }
        out
    }

    /// The cheapest entry that satisfies a condition; the first of equals.
    fn cheapest(&self, costs: &[f64], wanted: impl Fn(&Entry) -> bool) -> Option<(&Entry, f64)> {
        let both = self.entries.iter().zip(costs).filter(|(entry, _)| wanted(entry));
        both.map(|(e, c)| (e, *c)).reduce(|best, next| if next.1 < best.1 { next } else { best })
    }

    /// The pick among what was measured: how many times as long as the fastest it takes, and how many times as long, or as
    /// short, as estimated.
    pub(super) fn pick(&self, costs: &[f64]) -> Option<(f64, f64)> {
        let pinned = self.pinned.and_then(|i| Some((self.entries.get(i)?, *costs.get(i)?)));
        let measured = pinned.filter(|(entry, _)| entry.time.is_some());
        let (entry, cost) = measured.or_else(|| self.cheapest(costs, |e| e.time.is_some()))?;
        let time = entry.time?;
        Some((time / self.best, (time / cost).max(cost / time)))
    }

    /// The pick and the fastest entry, for people.
    pub(super) fn told(&self, costs: &[f64]) -> String {
        let Some((entry, _)) = self.cheapest(costs, |e| e.time.is_some()) else { return String::new() };
        let fastest = self.entries.iter().find(|e| e.time == Some(self.best));
        let fastest = fastest.map_or("", |e| e.configuration.as_str());
        format!("{} {:.0} ns; {fastest} {:.0} ns", entry.configuration, entry.time.unwrap_or(0.0), self.best)
    }

    /// Whether the cheapest entry was measured. Measurements say nothing of values of knobs that came after them.
    pub(super) fn picks_measured(&self, costs: &[f64]) -> bool {
        self.pinned.is_some()
            || self.cheapest(costs, |e| e.known).is_some_and(|(entry, _)| entry.time.is_some())
    }

    /// How many times as long as the fastest the pick takes.
    pub(super) fn regret(&self, costs: &[f64]) -> f64 {
        let regret = self.pick(costs).map_or(1.0, |(regret, _)| regret);
        if self.picks_measured(costs) { regret } else { regret.max(UNKNOWN) }
    }

    /// How far estimates of some kernels' entries are from their times, in logarithms; slow entries count less.
    pub(super) fn error(&self, costs: &[f64], kernels: &BTreeSet<&'static str>) -> f64 {
        let (mut sum, mut weights) = (0.0, 0.0);
        for (entry, cost) in self.entries.iter().zip(costs).filter(|(e, _)| kernels.contains(e.kernel)) {
            let Some(time) = entry.time else { continue };
            let error = (cost / time).ln().abs();
            let bent = if error < OUTLIER { error * error / 2.0 } else { OUTLIER * (error - OUTLIER / 2.0) };
            let weight = self.best / time;
            sum += weight * bent;
            weights += weight;
        }
        if weights > 0.0 { sum / weights } else { 0.0 }
    }
}
