//! What the last build in a folder knew: hashes of files, external data of models, and the bundles that it wrote.
//!
//! The state only saves time. Without it, a build hashes every file again and finds the same keys.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::build::record::Record;
use crate::build::stamps::{Stamp, Stamps};
use crate::failure::Result;
use crate::output::write_file;

/// State of a build.
#[derive(Debug)]
pub(crate) struct State {
    file: PathBuf,
    pub(crate) stamps: Stamps,
    rest: Mutex<Rest>,
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

#[derive(Debug, Default, Serialize, Deserialize)]
struct Rest {
    /// Names of external data, by the hash of a model file.
    external: BTreeMap<String, Vec<String>>,
    /// Bundles by path.
    written: BTreeMap<PathBuf, Written>,
}

#[derive(Debug, Default, Deserialize)]
struct Stored {
    stamps: BTreeMap<PathBuf, Stamp>,
    rest: Rest,
}

impl State {
    /// Reads the state. A file that is missing or malformed counts as empty.
    pub(crate) fn load(file: &Path) -> Self {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let Stored { stamps, rest } = serde_json::from_str(&text).unwrap_or_default();
        Self { file: file.to_owned(), stamps: Stamps::new(stamps), rest: Mutex::new(rest) }
    }

    /// Writes the state for the next build.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn save(&self) -> Result<()> {
        let stored = serde_json::json!({ "stamps": &*self.stamps.entries(), "rest": &*self.rest() });
        write_file(&self.file, |file| serde_json::to_writer(file, &stored).map_err(Into::into))
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
        if let Some(known) = self.rest().external.get(model) {
            return Ok(known.clone());
        }
        let names = read()?;
        self.rest().external.insert(model.to_owned(), names.clone());
        Ok(names)
    }

    /// Returns the bundle that a build wrote to a path.
    pub(crate) fn written(&self, output: &Path) -> Option<Written> {
        self.rest().written.get(output).cloned()
    }

    /// Remembers a bundle that was written.
    pub(crate) fn remember(&self, output: &Path, written: Written) {
        self.rest().written.insert(output.to_owned(), written);
    }

    fn rest(&self) -> MutexGuard<'_, Rest> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
