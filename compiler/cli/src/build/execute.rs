//! Execution of actions on several threads.
//!
//! `keys -> up to date? -> caches -> compile -> check that nothing changed -> rename -> keep in the caches`. A bundle is
//! written in the folder `.driftc` and renamed when it is whole, so the output folder never has a part of a bundle. An
//! action that fails does not stop the others.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use drift_runtime::Bundle;

use crate::build::actions::Action;
use crate::build::cache::{Cache, Place};
use crate::build::imports::Imports;
use crate::build::keys::{Inputs, keys};
use crate::build::outcome::{Finished, Status};
use crate::build::record::{FunctionRecord, Record, TargetRecord};
use crate::build::stamps::hash_file;
use crate::build::state::{State, Written};
use crate::commands::compile::compile;
use crate::failure::{Failure, Result};
use crate::signing::{Signer, sign_bundle};

/// Stack size of a thread that compiles, as large as the stack of a program.
const STACK_BYTES: usize = 8 << 20;

/// Shared parts of a build.
pub(crate) struct Builder<'a> {
    pub(crate) state: &'a State,
    pub(crate) cache: &'a Cache,
    /// Hash of this program.
    pub(crate) compiler: &'a str,
    /// Folder for unfinished bundles, on the file system of the output folder.
    pub(crate) unfinished: &'a Path,
    /// Key that signs the bundles.
    pub(crate) signer: Option<&'a Signer>,
}

/// Receiver of progress. Several threads call it.
pub(crate) trait Observer: Sync {
    fn started(&self, action: &Action);
    fn stage(&self, action: &Action, stage: &str);
    fn finished(&self, action: &Action, outcome: &Result<Finished>);
}

impl Builder<'_> {
    /// Executes actions, `jobs` at once. Returns their outcomes in the order of the actions.
    pub(crate) fn execute(
        &self,
        actions: &[&Action],
        jobs: usize,
        observer: &dyn Observer,
    ) -> Result<Vec<Result<Finished>>> {
        let imports = Imports::new(actions.iter().copied());
        let queue: Mutex<VecDeque<usize>> = Mutex::new((0..actions.len()).collect());
        let outcomes = Mutex::new(Vec::new());
        let work = || {
            loop {
                let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                let Some((index, action)) = next.and_then(|index| Some((index, *actions.get(index)?))) else {
                    return;
                };
                let outcome = self.guarded(action, &imports, observer);
                imports.finish(action);
                observer.finished(action, &outcome);
                outcomes.lock().unwrap_or_else(PoisonError::into_inner).push((index, outcome));
            }
        };
        std::thread::scope(|scope| -> Result<()> {
            for _ in 0..jobs.clamp(1, actions.len().max(1)) {
                let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
                thread
                    .spawn_scoped(scope, work)
                    .map_err(|error| Failure::input(format!("cannot start a thread: {error}")))?;
            }
            Ok(())
        })?;
        let mut outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
        outcomes.sort_by_key(|(index, _)| *index);
        Ok(outcomes.into_iter().map(|(_, outcome)| outcome).collect())
    }

    /// Executes an action. A panic is a failure of this action alone.
    fn guarded(&self, action: &Action, imports: &Imports, observer: &dyn Observer) -> Result<Finished> {
        let outcome = catch_unwind(AssertUnwindSafe(|| self.action(action, imports, observer)));
        outcome.unwrap_or_else(|_| {
            Err(Failure::input("internal error: the compiler panicked")
                .help("this is a bug in driftc; please report it with the model"))
        })
    }

    fn action(&self, action: &Action, imports: &Imports, observer: &dyn Observer) -> Result<Finished> {
        let start = Instant::now();
        let inputs = Inputs::of(action, self.state)?;
        let keys = keys(action, &inputs, self.compiler)?;
        let done = |status, record| {
            let seconds = start.elapsed().as_secs_f64();
            Ok(Finished { status, keys: keys.clone(), record, seconds })
        };
        let written = self.state.written(action, &keys.key);
        if let Some(written) = written.filter(|written| written.signer == self.signer_id()) {
            return done(Status::UpToDate, written.record);
        }
        observer.started(action);
        let file = Unfinished(self.unfinished.join(format!("{}.drift", action.name)));
        if let Some((record, place)) = self.cache.find(&keys.key, action, &file.0) {
            self.publish(action, &record, &file)?;
            return done(
                match place {
                    Place::Folder => Status::Cached,
                    Place::Shared => Status::Fetched,
                },
                record,
            );
        }
        let model = imports.get(action);
        observer.stage(action, "importing");
        let (model, references) = (model.model(action, &inputs.looks())?, model.references());
        let args = action.args.writing_to(&file.0);
        let report =
            compile(&args, &action.targets, model, references, &|stage| observer.stage(action, stage))?;
        let targets = report.targets.iter().map(|target| TargetRecord {
            target: target.target.clone(),
            memory: target.estimates.iter().map(|function| function.memory).max().unwrap_or(0),
            functions: target
                .estimates
                .iter()
                .map(|f| FunctionRecord { name: f.function.clone(), estimated_ns: f.ns.round() as u64 })
                .collect(),
        });
        let record = Record {
            key: keys.key.clone(),
            bundle: hash_file(&file.0)?,
            bytes: report.bytes.file,
            targets: targets.collect(),
            notes: report.notes,
        };
        inputs.check_unchanged(action)?;
        self.cache.keep(&keys.key, &record, &file.0);
        self.publish(action, &record, &file)?;
        done(Status::Built, record)
    }

    /// Id of the key that signs the bundles.
    fn signer_id(&self) -> Option<String> {
        self.signer.map(|signer| signer.id.to_string())
    }

    /// Moves a whole bundle to the output folder, with a signature if the build signs.
    fn publish(&self, action: &Action, record: &Record, file: &Unfinished) -> Result<()> {
        let mut hash = record.bundle.clone();
        if let Some(signer) = self.signer {
            sign_bundle(&Bundle::open(&file.0)?, signer, &file.0)?;
            hash = hash_file(&file.0)?;
        }
        std::fs::rename(&file.0, &action.output).map_err(|error| Failure::file(&action.output, &error))?;
        self.state.stamps.note(&action.output, &hash)?;
        let written = Written { record: record.clone(), file: hash, signer: self.signer_id() };
        self.state.remember(&action.name, &written)
    }
}

/// Path of an unfinished bundle. Dropping this object removes the file, if there is one.
#[derive(Debug)]
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
