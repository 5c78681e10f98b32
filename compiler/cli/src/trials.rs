//! Measurement of kernel candidates outside their model. One bundle holds many candidates, so the device is opened and
//! pipelines are created once for all of them. The database is written after each bundle, so an interrupted run can
//! continue.

use std::path::Path;
use std::time::{Duration, Instant};

use drift_runtime::format::{Function, Provenance};
use drift_runtime::{Array, ArrayRef, Session};
use driftc::bundle::{self, Planned};
use driftc::emit::spirv;
use driftc::plan::trial::{self, Trial};
use driftc::plan::tuning::{Database, Outcome};
use driftc::target::TargetProfile;

use crate::arrays::{dtype, generate_array, to_runtime};
use crate::failure::{Failure, Result};
use crate::finish::finish;
use crate::measure::{dispatch_runs, median};
use crate::output::{file_name, write_file};
use crate::progress::Progress;
use crate::session::DeviceArgs;

/// Maximum number of candidates that one bundle holds.
pub(crate) const BATCH: usize = 48;
/// Approximate maximum bytes of the buffers that the candidates of one bundle bind.
const BATCH_BYTES: u64 = 1 << 30;

/// Writes a database.
pub(crate) fn save(path: &Path, database: &Database) -> Result<()> {
    write_file(path, |file| file.write_all(database.text().as_bytes()))
}

/// Returns an error if the database already has times of another device for the target.
fn same_device(database: &Database, target: &str, device: &str, path: &Path) -> Result<()> {
    match database.device(target) {
        Some(known) if known != device => {
            Err(Failure::usage(format!("{} has times of {target} measured on {known}", path.display()))
                .because(format!("this is {device}"))
                .help("write to another file with -o"))
        }
        _ => Ok(()),
    }
}

/// Splits trials into the trials of the next bundle (at least one) and the remaining trials. All trials of a bundle
/// have symbols with equal bounds.
fn batch<'t>(trials: &[&'t Trial]) -> (Vec<&'t Trial>, Vec<&'t Trial>) {
    let (mut now, mut later, mut bytes) = (Vec::<&Trial>::new(), Vec::new(), 0u64);
    for &trial in trials {
        let more = bytes.saturating_add(trial.bytes());
        let fits = now.len() < BATCH && more <= BATCH_BYTES;
        match now.first() {
            Some(first) if !fits || trial.bounds() != first.bounds() => later.push(trial),
            _ => {
                bytes = more;
                now.push(trial);
            }
        }
    }
    (now, later)
}

/// Runner that measures trials for one target on one device. A trial is one measurement of one kernel candidate.
pub(crate) struct TrialRunner<'a> {
    target: &'a TargetProfile,
    device: &'a DeviceArgs,
    /// Path of the tuning database to write.
    output: &'a Path,
    /// Time after which no further measurement starts.
    end: Option<Instant>,
    folder: tempfile::TempDir,
}

/// Counts of trials: measured, failed, and not measured in time.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Tally {
    pub(crate) measured: usize,
    pub(crate) failed: usize,
    /// Number of trials that were not measured because time ran out.
    pub(crate) left: usize,
}

impl<'a> TrialRunner<'a> {
    /// Creates a runner that starts no measurement after the time `end`.
    pub(crate) fn new(
        target: &'a TargetProfile,
        device: &'a DeviceArgs,
        output: &'a Path,
        end: Option<Instant>,
    ) -> Result<Self> {
        Ok(Self { target, device, output, end, folder: tempfile::tempdir()? })
    }

    /// Returns true if the time limit has passed.
    pub(crate) fn is_over(&self) -> bool {
        self.end.is_some_and(|end| Instant::now() >= end)
    }

    /// Measures trials and adds the results to the database, until all trials are measured or time runs out.
    pub(crate) fn measure_all(
        &self,
        trials: &[&Trial],
        database: &mut Database,
        progress: &Progress,
    ) -> Result<Tally> {
        let mut tally = Tally::default();
        let mut rest = trials.to_vec();
        while !rest.is_empty() {
            if self.is_over() {
                tally.left = rest.len();
                break;
            }
            let (now, later) = batch(&rest);
            rest = later;
            let (device, outcomes) = self.measure(&now)?;
            same_device(database, &self.target.name, &device, self.output)?;
            database.set_device(&self.target.name, &device);
            for (trial, outcome) in now.iter().zip(outcomes) {
                database.insert(&self.target.name, &trial.problem, &trial.configuration, outcome);
                tally.measured += 1;
                tally.failed += usize::from(outcome == Outcome::Failed);
                progress.step();
            }
            save(self.output, database)?;
        }
        Ok(tally)
    }

    /// Measures trials in one bundle. If that fails, splits the trials in half until each failing trial is alone.
    fn measure(&self, trials: &[&Trial]) -> Result<(String, Vec<Outcome>)> {
        let path = self.folder.path().join(format!("{}.drift", file_name(&self.target.name)));
        let owned: Vec<Trial> = trials.iter().map(|t| (*t).clone()).collect();
        let plan = trial::plan(&owned, self.target)?;
        let planned = [Planned { target: self.target, functions: vec![("main".to_owned(), &plan)] }];
        let emit = spirv::Options { finish: finish(false)?, matrix: None };
        bundle::write(&path, Provenance::default(), &planned, &[], emit)?;
        match self.replay(&path, trials.len()) {
            Ok(measured) => Ok(measured),
            Err(error) if !may_succeed_alone(&error) => Err(error.into()),
            Err(_) if trials.len() > 1 => {
                let (left, right) = trials.split_at(trials.len() / 2);
                let (device, mut outcomes) = self.measure(left)?;
                outcomes.extend(self.measure(right)?.1);
                Ok((device, outcomes))
            }
            // The session is gone, so probe the device for its name.
            Err(_) => Ok((self.device_name()?, vec![Outcome::Failed])),
        }
    }

    fn device_name(&self) -> Result<String> {
        let device = drift_runtime::device::probe(self.device.device.as_deref())?;
        Ok(described(&device))
    }

    fn replay(&self, path: &Path, n: usize) -> Result<(String, Vec<Outcome>), drift_runtime::Error> {
        let options = drift_runtime::Options {
            device: self.device.device.clone(),
            ..drift_runtime::Options::default()
        };
        let mut session = Session::load(path, &options)?;
        let function = session.function("main")?.clone();
        let inputs = inputs(&function);
        let inputs: Vec<(&str, ArrayRef<'_>)> =
            inputs.iter().map(|(n, a)| (n.as_str(), a.as_ref())).collect();
        for symbol in &function.symbols {
            session.set_symbol("main", &symbol.name, symbol.max)?;
        }
        session.run("main", &inputs)?;
        let runs = dispatch_runs(&mut session, "main", None, Duration::from_millis(15 * n as u64))?;
        let outcomes = (0..n).map(|i| {
            let trial_time = |times: &Vec<f64>| {
                let dispatches = function.dispatches.iter().zip(times);
                dispatches.filter(|(d, _)| d.label.parse() == Ok(i)).map(|(_, t)| t).sum()
            };
            Outcome::Time(median(runs.iter().map(trial_time).collect()))
        });
        Ok((described(session.device()), outcomes.collect()))
    }
}

fn described(device: &drift_runtime::device::DeviceInfo) -> String {
    format!("{}, {} {}", device.name, device.driver_name, device.driver_info).trim().to_owned()
}

/// Returns true for errors that a smaller bundle may avoid: a refused shader, a lost device, or too little memory.
fn may_succeed_alone(error: &drift_runtime::Error) -> bool {
    use drift_runtime::Error as E;
    matches!(error, E::DeviceLost { .. } | E::OutOfMemory { .. } | E::Driver { .. })
}

/// Inputs for a trial: random floats, and zeros of other types, because zero is a valid index.
fn inputs(function: &Function) -> Vec<(String, Array)> {
    let symbols: Vec<i64> = function.symbols.iter().map(|s| s.max).collect();
    let one = |(i, port): (usize, &drift_runtime::format::Port)| {
        let shape = port.shape_at(&symbols).ok()?;
        let shape: Vec<usize> = shape.into_iter().map(usize::try_from).collect::<Result<_, _>>().ok()?;
        let dtype = dtype(port.host_type);
        let array = match dtype.is_float() {
            true => to_runtime(&generate_array(dtype, &shape, i as u64)),
            false => Array::zeros(port.host_type, &shape)?,
        };
        Some((port.name.clone(), array))
    };
    function.inputs.iter().enumerate().filter_map(one).collect()
}
