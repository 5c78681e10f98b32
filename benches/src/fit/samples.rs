//! Problems of the calibration suite with the measured times of their candidates.

use std::collections::{BTreeMap, BTreeSet};

use driftc::calibration_suite::{self, drop_constant_data};
use driftc::ir::graph::Graph;
use driftc::kernels::KERNELS;
use driftc::kernels::kernel::Kernel;
use driftc::plan::choice::Choice;
use driftc::plan::tuning::{Database, Outcome, configuration, key, key_without_epilogue};
use driftc::shader::problem::Problem;
use driftc::target::TargetProfile;
use rayon::prelude::*;

/// Maximum ratio of an estimate to the lowest one for which an entry counts as near.
const NEAR: f64 = 1.08;
/// Error |ln(estimate / time)| from which the loss of an estimate grows linearly instead of quadratically.
const OUTLIER: f64 = 1.0;
/// Minimum regret that is assumed for a problem whose selected candidate was not measured.
const UNKNOWN: f64 = 1.3;

/// Graphs of the calibration suite, lowered for a target, without the elements of their constants.
pub(super) fn graphs(target: &TargetProfile) -> Result<Vec<Graph>, Box<dyn std::error::Error>> {
    let lowered = calibration_suite::graphs().into_par_iter().map(|suite_graph| {
        let mut graph = suite_graph.lowered(target)?;
        drop_constant_data(&mut graph)?;
        Ok::<_, driftc::error::Error>(graph)
    });
    Ok(lowered.collect::<Result<Vec<_>, _>>()?)
}

/// A candidate with its measured time in nanoseconds.
pub(super) struct Entry {
    pub(super) kernel: &'static str,
    /// Kernel name and knobs, in the form of a profile's `overrides`.
    pub(super) configuration: String,
    /// Measured nanoseconds; `None` if the candidate was not measured.
    pub(super) time: Option<f64>,
    /// True if each of the candidate's knob values occurs in the measurements of its kernel.
    known: bool,
}

impl Entry {
    /// Knobs of the candidate, each as `name=value`.
    fn knobs(&self) -> impl Iterator<Item = &str> {
        self.configuration.split(' ').skip(1)
    }
}

/// A measured problem with its candidates (entries), in the order of the list of kernels.
pub(super) struct Sample<'g> {
    pub(super) key: String,
    problem: Problem<'g>,
    kernels: Vec<(&'static Kernel, usize)>,
    pub(super) entries: Vec<Entry>,
    best: f64,
    /// Index of the entry that the profile's override selects, whatever its estimate.
    overridden: Option<usize>,
}

/// All problems of the calibration suite that have a measurement, each once.
pub(super) struct Samples<'g> {
    pub(super) all: Vec<Sample<'g>>,
}

impl<'g> Samples<'g> {
    pub(super) fn measured(graphs: &'g [Graph], target: &'g TargetProfile, database: &Database) -> Self {
        let mut all = BTreeMap::new();
        for graph in graphs {
            for problem in calibration_suite::problems(graph, target) {
                let key = key(&problem);
                if !all.contains_key(&key)
                    && let Some(sample) = Sample::from_problem(problem, &key, target, database)
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

/// Returns a configuration of a tuning database without the hash of the kernel's source, in the form of a profile's `overrides`.
fn without_hash(configuration: &str) -> String {
    let (kernel, knobs) =
        configuration.split_once(' ').map_or((configuration, ""), |(kernel, knobs)| (kernel, knobs));
    let name = kernel.split('/').next().unwrap_or_default();
    if knobs.is_empty() { name.to_owned() } else { format!("{name} {knobs}") }
}

impl<'g> Sample<'g> {
    fn from_problem(
        problem: Problem<'g>,
        key: &str,
        target: &TargetProfile,
        database: &Database,
    ) -> Option<Self> {
        let measured = database.measured(&target.name, || key.to_owned())?;
        let times: BTreeMap<String, f64> = measured
            .iter()
            .filter_map(|(configuration, outcome)| match outcome {
                Outcome::Time(ns) => Some((without_hash(configuration), ns)),
                Outcome::Failed => None,
            })
            .collect();
        let fixed = target
            .overrides
            .iter()
            .find(|p| p.problem == key_without_epilogue(&problem))
            .map(|p| p.configuration.as_str());
        let (mut kernels, mut entries, mut overridden) = (Vec::new(), Vec::new(), None);
        for kernel in KERNELS {
            let candidates = (kernel.candidates)(&problem);
            if !candidates.is_empty() {
                kernels.push((kernel, candidates.len()));
            }
            for candidate in candidates {
                let configuration = configuration(&Choice { kernel, candidate, measured: None });
                if fixed == Some(configuration.as_str()) {
                    overridden = Some(entries.len());
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
        best.is_finite().then(|| Self { key: key.to_owned(), problem, kernels, entries, best, overridden })
    }

    /// Estimates in nanoseconds of all entries of the problem; NaN for entries of kernels outside of `only`.
    pub(super) fn costs(&self, target: &TargetProfile, only: Option<&BTreeSet<&'static str>>) -> Vec<f64> {
        let problem = Problem { target, ..self.problem.clone() };
        let mut out = Vec::with_capacity(self.entries.len());
        for (kernel, count) in &self.kernels {
            if only.is_some_and(|only| !only.contains(kernel.name)) {
                out.extend(std::iter::repeat_n(f64::NAN, *count));
                continue;
            }
            let candidates = (kernel.candidates)(&problem);
            // The list of candidates does not depend on their costs.
            let costs = candidates.iter().map(|c| c.cost).chain(std::iter::repeat(f64::INFINITY));
            out.extend(costs.take(*count));
        }
        out
    }

    /// Returns the cheapest entry that satisfies `wanted`, and its cost. If entries are equally cheap, returns the first.
    fn cheapest(&self, costs: &[f64], wanted: impl Fn(&Entry) -> bool) -> Option<(&Entry, f64)> {
        let both = self.entries.iter().zip(costs).filter(|(entry, _)| wanted(entry));
        both.map(|(e, c)| (e, *c)).reduce(|best, next| if next.1 < best.1 { next } else { best })
    }

    /// Returns the regret of the measured entry that would be selected, and the factor (at least 1) between its time and its
    /// estimate.
    pub(super) fn selection(&self, costs: &[f64]) -> Option<(f64, f64)> {
        let overridden = self.overridden.and_then(|i| Some((self.entries.get(i)?, *costs.get(i)?)));
        let measured = overridden.filter(|(entry, _)| entry.time.is_some());
        let (entry, cost) = measured.or_else(|| self.cheapest(costs, |e| e.time.is_some()))?;
        let time = entry.time?;
        Some((time / self.best, (time / cost).max(cost / time)))
    }

    /// Configurations and times of the selected and the fastest entry, for reports.
    pub(super) fn description(&self, costs: &[f64]) -> String {
        let Some((entry, _)) = self.cheapest(costs, |e| e.time.is_some()) else { return String::new() };
        let fastest = self.entries.iter().find(|e| e.time == Some(self.best));
        let fastest = fastest.map_or("", |e| e.configuration.as_str());
        format!("{} {:.0} ns; {fastest} {:.0} ns", entry.configuration, entry.time.unwrap_or(0.0), self.best)
    }

    /// True if the selected entry was measured. Entries with knob values that occur in no measurement are ignored: the values
    /// were added to the kernel later.
    pub(super) fn selection_is_measured(&self, costs: &[f64]) -> bool {
        self.overridden.is_some()
            || self.cheapest(costs, |e| e.known).is_some_and(|(entry, _)| entry.time.is_some())
    }

    /// Regret of the selected entry, at least [`UNKNOWN`] if this entry was not measured.
    pub(super) fn regret(&self, costs: &[f64]) -> f64 {
        let regret = self.selection(costs).map_or(1.0, |(regret, _)| regret);
        if self.selection_is_measured(costs) { regret } else { regret.max(UNKNOWN) }
    }

    /// Weighted mean of ln(time / best) of the measured entries whose estimates are near the lowest one: the regret that small
    /// errors of the estimates would cause.
    pub(super) fn near_regret(&self, costs: &[f64]) -> f64 {
        let Some((_, lowest)) = self.cheapest(costs, |e| e.time.is_some()) else { return 0.0 };
        let measured = self.entries.iter().zip(costs).filter_map(|(e, cost)| Some((e.time?, cost)));
        let (mut sum, mut weights) = (0.0, 0.0);
        for (time, cost) in measured.filter(|(_, cost)| **cost < lowest * NEAR) {
            let weight = 1.0 - (cost / lowest - 1.0) / (NEAR - 1.0);
            sum += weight * (time / self.best).ln();
            weights += weight;
        }
        if weights > 0.0 { sum / weights } else { 0.0 }
    }

    /// Weighted mean error of the estimates for the measured entries of `kernels`, computed from |ln(estimate / time)|. Slow
    /// entries weigh less.
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
