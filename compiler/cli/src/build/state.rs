//! What the last build in a folder knew: hashes of files, external data of models, and the bundles that it wrote.
//!
//! The state only saves time. Without it, a build hashes every file again and finds the same keys.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::build::actions::Action;
use crate::build::record::Record;
use crate::build::stamps::{Stamp, Stamps};
use crate::failure::{Failure, Result};
use crate::output::{make_folder, write_file};

/// File that a running build locks.
pub(crate) const LOCK: &str = "lock";
/// File with hashes.
const FILE: &str = "state.json";
/// Folder with a file for each bundle that was written.
const WRITTEN: &str = "written";

/// State of a build.
#[derive(Debug)]
pub(crate) struct State {
    folder: PathBuf,
    pub(crate) stamps: Stamps,
    /// Names of external data, by the hash of a model file.
    external: Mutex<BTreeMap<String, Vec<String>>>,
}

/// Bundle in the output folder.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Written {
    pub(crate) record: Record,
    /// BLAKE3 hash of the file, which has a signature if the build signs.
    pub(crate) file: String,
    /// Id of the key that signed the file.
    pub(crate) signer: Option<String>,
}

/// Contents of the state's file.
#[derive(Debug, Default, Deserialize)]
struct Stored {
    stamps: BTreeMap<PathBuf, Stamp>,
    external: BTreeMap<String, Vec<String>>,
}

impl State {
    /// Reads the state in a folder. A file that is missing or malformed counts as empty.
    pub(crate) fn load(folder: &Path) -> Self {
        let text = std::fs::read_to_string(folder.join(FILE)).unwrap_or_default();
        let Stored { stamps, external } = serde_json::from_str(&text).unwrap_or_default();
        Self { folder: folder.to_owned(), stamps: Stamps::new(stamps), external: Mutex::new(external) }
    }

    /// Creates the folders of the state, and removes what an interrupted build left there. No other build may use them.
    ///
    /// # Errors
    /// If a folder cannot be created or read.
    pub(crate) fn clean(folder: &Path) -> Result<()> {
        let written = folder.join(WRITTEN);
        make_folder(&written)?;
        let is_kept = |name: &str| name == FILE || name == LOCK;
        let is_record = |name: &str| name.ends_with(".json") && !name.starts_with('.');
        remove_files(folder, &is_kept)?;
        remove_files(&written, &is_record)
    }

    /// Writes hashes for the next build.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn save(&self) -> Result<()> {
        let stored = serde_json::json!({ "stamps": &*self.stamps.entries(), "external": &*self.names() });
        write_file(&self.folder.join(FILE), |file| serde_json::to_writer(file, &stored).map_err(Into::into))
    }

    /// Returns the names of a model's external data. `read` reads them from a model that is new.
    ///
    /// # Errors
    /// If `read` fails.
    pub(crate) fn external(
        &self,
        model: &str,
        read: impl FnOnce() -> Result<Vec<String>>,
    ) -> Result<Vec<String>> {
        if let Some(known) = self.names().get(model) {
            return Ok(known.clone());
        }
        let names = read()?;
        self.names().insert(model.to_owned(), names.clone());
        Ok(names)
    }

    /// Returns the bundle of an action in the output folder if it has this key and nobody changed it.
    pub(crate) fn written(&self, action: &Action, key: &str) -> Option<Written> {
        let text = std::fs::read(self.written_path(&action.name)).ok()?;
        let written: Written = serde_json::from_slice(&text).ok()?;
        let is_whole = || self.stamps.hash(&action.output).is_ok_and(|(hash, _)| hash == written.file);
        (written.record.key == key && is_whole()).then_some(written)
    }

    /// Notes the bundle that was written for an action. The note is a file of its own, so an interruption loses nothing.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn remember(&self, action: &str, written: &Written) -> Result<()> {
        write_file(&self.written_path(action), |file| {
            serde_json::to_writer(file, written).map_err(Into::into)
        })
    }

    fn written_path(&self, action: &str) -> PathBuf {
        self.folder.join(WRITTEN).join(format!("{action}.json"))
    }

    fn names(&self) -> MutexGuard<'_, BTreeMap<String, Vec<String>>> {
        self.external.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes the files of a folder whose names are not kept.
fn remove_files(folder: &Path, is_kept: &dyn Fn(&str) -> bool) -> Result<()> {
    let entries = std::fs::read_dir(folder).map_err(|error| Failure::file(folder, &error))?;
    for entry in entries.flatten() {
        if !is_kept(&entry.file_name().to_string_lossy()) {
            // A folder stays.
            let _ = std::fs::remove_file(entry.path());
        }
    }
    Ok(())
}
