//! Bundles of earlier builds, by the keys of their actions: in a folder of this machine, and in a cache that machines share.
//!
//! An entry is a record (`KEY.json`) and a bundle (`HASH.drift`). Nothing in a cache is trusted: a bundle counts only if it
//! has the hash of its record, is a whole bundle, and has the action's targets. Anything else is compiled again.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use drift_runtime::Bundle;

use crate::build::actions::Action;
use crate::build::record::Record;
use crate::build::shared_cache::SharedCache;
use crate::build::stamps::hash_file;
use crate::failure::{Failure, Result};
use crate::output::{make_folder, note, write_file};

/// Maximum bytes of a record.
const MAX_RECORD_BYTES: usize = 1 << 20;

/// Caches of a build, fastest first.
#[derive(Debug)]
pub(crate) struct Cache {
    folder: Option<PathBuf>,
    shared: Option<SharedCache>,
    /// Problems that were told.
    told: Mutex<Vec<String>>,
}

/// Cache in which a bundle was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Folder,
    Shared,
}

impl Cache {
    pub(crate) fn new(folder: Option<PathBuf>, shared: Option<SharedCache>) -> Self {
        Self { folder, shared, told: Mutex::default() }
    }

    /// Looks for the bundle of a key, and writes it to `file`. A cache that fails counts as a cache without the bundle.
    pub(crate) fn find(&self, key: &str, action: &Action, file: &Path) -> Option<(Record, Place)> {
        if let Some(folder) = &self.folder {
            match from_folder(folder, key, action, file) {
                Ok(Some(record)) => return Some((record, Place::Folder)),
                Ok(None) => {}
                Err(failure) => self.tell(&failure.context("the local cache is not used for a bundle")),
            }
        }
        let shared = self.shared.as_ref()?;
        match from_shared(shared, key, action, file) {
            Ok(Some(record)) => {
                self.keep_in_folder(key, &record, file);
                Some((record, Place::Shared))
            }
            Ok(None) => None,
            Err(failure) => {
                self.tell(&failure.context("the shared cache is not used for a bundle"));
                None
            }
        }
    }

    /// Adds a bundle. A cache that fails is left as it is.
    pub(crate) fn keep(&self, key: &str, record: &Record, file: &Path) {
        self.keep_in_folder(key, record, file);
        if let Some(shared) = &self.shared
            && let Err(failure) = shared.keep(key, &text(record), &record.bundle, file)
        {
            self.tell(&failure.context("a bundle is not in the shared cache"));
        }
    }

    fn keep_in_folder(&self, key: &str, record: &Record, file: &Path) {
        if let Some(folder) = &self.folder
            && let Err(failure) = to_folder(folder, key, record, file)
        {
            self.tell(&failure.context("a bundle is not in the local cache"));
        }
    }

    /// Prints a problem, but not twice.
    fn tell(&self, failure: &Failure) {
        let text = failure.text();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if !told.contains(&text) {
            note(&text);
            told.push(text);
        }
    }
}

fn text(record: &Record) -> Vec<u8> {
    serde_json::to_vec(record).unwrap_or_default()
}

fn record_path(folder: &Path, key: &str) -> PathBuf {
    folder.join(format!("{key}.json"))
}

fn bundle_path(folder: &Path, hash: &str) -> PathBuf {
    folder.join(format!("{hash}.drift"))
}

fn from_folder(folder: &Path, key: &str, action: &Action, file: &Path) -> Result<Option<Record>> {
    let path = record_path(folder, key);
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Failure::file(&path, &error)),
    };
    let record = parse(&text, key, action)?;
    let bundle = bundle_path(folder, &record.bundle);
    std::fs::copy(&bundle, file).map_err(|error| Failure::file(&bundle, &error))?;
    check(&record, action, file)?;
    Ok(Some(record))
}

fn from_shared(shared: &SharedCache, key: &str, action: &Action, file: &Path) -> Result<Option<Record>> {
    let Some(text) = shared.record(key, MAX_RECORD_BYTES)? else { return Ok(None) };
    let record = parse(&text, key, action)?;
    shared.fetch(&record.bundle, record.bytes, file)?;
    check(&record, action, file)?;
    Ok(Some(record))
}

fn to_folder(folder: &Path, key: &str, record: &Record, file: &Path) -> Result<()> {
    make_folder(folder)?;
    let bundle = bundle_path(folder, &record.bundle);
    write_file(&bundle, |copy| {
        std::io::copy(&mut std::fs::File::open(file)?, copy)?;
        Ok(())
    })?;
    write_file(&record_path(folder, key), |json| json.write_all(&text(record)))
}

/// Parses a record, and checks that it can be about an action.
fn parse(text: &[u8], key: &str, action: &Action) -> Result<Record> {
    let record: Record = serde_json::from_slice(text)
        .map_err(|error| Failure::input("the record is malformed").because(error.to_string()))?;
    match record.fits(key, &action.targets) {
        true => Ok(record),
        false => Err(Failure::input("the record is about another bundle")),
    }
}

/// Checks that a file is the bundle of a record, and that it has the action's targets.
fn check(record: &Record, action: &Action, file: &Path) -> Result<()> {
    if hash_file(file)? != record.bundle {
        return Err(Failure::input("the bundle does not have the hash of its record"));
    }
    let bundle = Bundle::open(file)?;
    bundle.verify()?;
    let variants = &bundle.manifest().variants;
    for (variant, target) in variants.iter().zip(&action.targets) {
        if variant.target != target.name || variant.profile_hash.0 != target.hash()? {
            return Err(Failure::input("the bundle has another target"));
        }
    }
    match variants.len() == action.targets.len() {
        true => Ok(()),
        false => Err(Failure::input("the bundle has another number of targets")),
    }
}
