//! Benchmarks of driftc. `README.md` has the newest figures, `log/` the history.

pub mod fit;
pub mod language;

use std::collections::BTreeMap;
use std::path::Path;

use drift_runtime::format::{HostType, Provenance};
use drift_runtime::{Array, Session};
use driftc::bundle::{self, Planned};
use driftc::compile::{Options, lower};
use driftc::emit::spirv;
use driftc::ir::graph::Graph;
use driftc::plan::build_visiting;
use driftc::plan::choice::Choice;
use driftc::plan::trial::{self, Trial};
use driftc::shader::problem::Problem;
use driftc::target::TargetProfile;

/// A problem of a graph with its candidates and their measured times.
#[derive(Debug, Clone)]
pub struct Measured {
    /// Name of the problem's operator.
    pub operator: &'static str,
    /// Candidates with their times in microseconds, the selected candidate first.
    pub candidates: Vec<(Choice, f64)>,
}

impl Measured {
    /// Regret: time of the selected candidate divided by the time of the fastest one.
    pub fn quality(&self) -> f64 {
        let selected = self.candidates.first().map_or(0.0, |(_, time)| *time);
        let best = self.candidates.iter().map(|(_, time)| *time).fold(f64::INFINITY, f64::min);
        if best > 0.0 && best.is_finite() { selected / best } else { 1.0 }
    }
}

/// Lowers a graph and times every candidate of its problems, all in one bundle that is written to `path`. Copies between layouts,
/// and operators that `wanted` rejects by name, are not timed.
///
/// # Errors
/// If the graph does not compile, or the bundle does not load or run.
pub fn measure_candidates(
    graph: &Graph,
    target: &TargetProfile,
    path: &Path,
    wanted: impl Fn(&str) -> bool,
) -> Result<Vec<Measured>, Box<dyn std::error::Error>> {
    let options = Options::default();
    let lowered = lower(graph, target, &options)?.graph;
    let mut trials: Vec<Trial> = Vec::new();
    let mut measured: Vec<Measured> = Vec::new();
    let mut failure = None;
    let mut visit = |_: &str, problem: &Problem<'_>, choices: &[Choice]| {
        let operator = problem.op.name();
        if operator == "relayout" || !wanted(operator) {
            return;
        }
        let mut candidates = Vec::with_capacity(choices.len());
        for choice in choices {
            match Trial::new(problem, choice) {
                Ok(None) => {}
                Ok(Some(trial)) => {
                    trials.push(trial);
                    candidates.push((choice.clone(), 0.0));
                }
                Err(e) => failure = Some(e.0),
            }
        }
        measured.push(Measured { operator, candidates });
    };
    build_visiting(&lowered, target, &options.plan, &mut visit)?;
    if let Some(reason) = failure {
        return Err(reason.into());
    }
    if trials.is_empty() {
        return Ok(measured);
    }
    let plan = trial::plan(&trials, target)?;
    // The dispatches that wake the device belong to no trial.
    let owners: Vec<Option<usize>> = plan.dispatches.iter().map(|s| s.label.parse().ok()).collect();
    let planned = [Planned { target, functions: vec![("main".to_string(), &plan)] }];
    bundle::write(path, Provenance::default(), &planned, &[], spirv::Options::default())?;
    let mut times = vec![0.0; trials.len()];
    for (time, owner) in dispatch_medians(path)?.iter().zip(owners) {
        if let Some(trial) = owner {
            times[trial] += time;
        }
    }
    for ((_, time), time_of_trial) in measured.iter_mut().flat_map(|m| &mut m.candidates).zip(times) {
        *time = time_of_trial;
    }
    Ok(measured)
}

/// Number of timed replays of a bundle.
const RUNS: usize = 20;

/// Loads a bundle and returns the median time of each dispatch of its function `main` in microseconds, at the upper bounds of the
/// symbols. Float inputs are noise, because devices multiply zeros with less power and therefore faster.
///
/// # Errors
/// If the bundle does not load or run.
pub fn dispatch_medians(path: &Path) -> Result<Vec<f64>, Box<dyn std::error::Error>> {
    medians(&mut Session::load(path, &drift_runtime::Options::default())?)
}

/// Shortest time of a run of the function `main` in microseconds, on the host's clock, without copies of outputs.
///
/// # Errors
/// If the bundle does not run.
pub fn shortest_run(session: &mut Session) -> Result<f64, Box<dyn std::error::Error>> {
    medians(session)?;
    let mut best = f64::INFINITY;
    for _ in 0..RUNS * 3 {
        let start = std::time::Instant::now();
        session.replay_on_device("main")?;
        best = best.min(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(best)
}

/// Median time of each dispatch of a loaded session's function `main` in microseconds, at the upper bounds of the symbols.
///
/// # Errors
/// If the bundle does not run.
pub fn medians(session: &mut Session) -> Result<Vec<f64>, Box<dyn std::error::Error>> {
    let function = session.function("main")?.clone();
    let symbols: Vec<i64> = function.symbols.iter().map(|s| s.max).collect();
    for symbol in &function.symbols {
        session.set_symbol("main", &symbol.name, symbol.max)?;
    }
    let mut inputs: BTreeMap<&str, Array> = BTreeMap::new();
    for port in &function.inputs {
        let shape = port.shape_at(&symbols)?;
        let shape: Vec<usize> = shape.into_iter().map(usize::try_from).collect::<Result<_, _>>()?;
        let mut array = Array::zeros(port.host_type, &shape)
            .ok_or("an input of the bundle is too large for an array on this machine")?;
        if port.host_type == HostType::F32 {
            noise(&mut array.bytes);
        }
        inputs.insert(&port.name, array);
    }
    let arrays: Vec<_> = inputs.iter().map(|(name, array)| (*name, array.as_ref())).collect();
    session.run("main", &arrays)?;
    let mut times: Vec<Vec<f64>> = Vec::new();
    for _ in 0..RUNS {
        for (i, dispatch) in session.replay_timed("main")?.iter().enumerate() {
            if times.len() == i {
                times.push(Vec::with_capacity(RUNS));
            }
            times[i].push((dispatch.end - dispatch.start) / 1e3);
        }
    }
    Ok(times
        .into_iter()
        .map(|mut times| {
            times.sort_by(f64::total_cmp);
            times.get(times.len() / 2).copied().unwrap_or(0.0)
        })
        .collect())
}

/// Fills f32 elements with pseudo-random numbers between -1 and 1, which are equal in every call.
fn noise(bytes: &mut [u8]) {
    let mut state = 1u32;
    for chunk in bytes.chunks_exact_mut(4) {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let value = f64::from(state) / f64::from(u32::MAX) * 2.0 - 1.0;
        chunk.copy_from_slice(&(value as f32).to_le_bytes());
    }
}
