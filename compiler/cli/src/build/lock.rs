//! `drift.lock`: the hashes and figures of the bundles of a build, for version control.
//!
//! `driftc build --locked` fails if a bundle would differ. The file does not depend on the machine or on the program's file,
//! because equal inputs give equal bundles on every machine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::build::record::{Record, TargetRecord};
use crate::failure::{Failure, Result};
use crate::output::write_file;

/// Version of the file's format.
const VERSION: u32 = 1;
const HEADER: &str = "# Written by `driftc build`. Keep this file under version control: `driftc build --locked` fails if a \
                      bundle differs.\n";

/// Entries by the names of their actions.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Lock(pub(crate) BTreeMap<String, Locked>);

/// Entry of a bundle.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Locked {
    /// Name of the action.
    name: String,
    /// Version of the compiler.
    pub(crate) compiler: String,
    /// BLAKE3 hash of model, arguments and profiles.
    pub(crate) inputs: String,
    /// BLAKE3 hash of the bundle.
    pub(crate) bundle: String,
    pub(crate) bytes: u64,
    #[serde(default, rename = "target", skip_serializing_if = "Vec::is_empty")]
    pub(crate) targets: Vec<TargetRecord>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: u32,
    #[serde(default, rename = "bundle", skip_serializing_if = "Vec::is_empty")]
    bundles: Vec<Locked>,
}

/// Returns the path of a manifest's lock file.
pub(crate) fn lock_path(manifest: &Path) -> PathBuf {
    manifest.with_extension("lock")
}

impl Locked {
    pub(crate) fn new(name: &str, inputs: &str, record: &Record) -> Self {
        Self {
            name: name.to_owned(),
            compiler: env!("CARGO_PKG_VERSION").to_owned(),
            inputs: inputs.to_owned(),
            bundle: record.bundle.clone(),
            bytes: record.bytes,
            targets: record.targets.clone(),
        }
    }
}

impl Lock {
    /// Reads a lock file. Returns `None` if there is none.
    ///
    /// # Errors
    /// If the file cannot be read or is malformed.
    pub(crate) fn load(path: &Path) -> Result<Option<Self>> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Failure::file(path, &error)),
        };
        let wrong = |reason: String| {
            Failure::input(format!("{} is not a lock file", path.display()))
                .because(reason)
                .help("restore the file from version control, or remove it and build again")
        };
        let file: File = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        if file.version != VERSION {
            return Err(wrong(format!("its version is {}, this driftc reads {VERSION}", file.version)));
        }
        Ok(Some(Self(file.bundles.into_iter().map(|entry| (entry.name.clone(), entry)).collect())))
    }

    /// Writes the lock file, unless it has these entries already.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn save(&self, path: &Path) -> Result<()> {
        let file = File { version: VERSION, bundles: self.0.values().cloned().collect() };
        let text = toml::to_string(&file)
            .map_err(|error| Failure::input("cannot write the lock file").because(error.to_string()))?;
        let text = format!("{HEADER}{text}");
        if std::fs::read(path).is_ok_and(|present| present == text.as_bytes()) {
            return Ok(());
        }
        write_file(path, |file| file.write_all(text.as_bytes()))
    }
}

/// Returns what differs between an entry and a new bundle, or `None` if the bundle is the same.
pub(crate) fn difference(locked: Option<&Locked>, now: &Locked) -> Option<String> {
    let Some(locked) = locked else { return Some("it is not in the lock file".to_owned()) };
    if locked.bundle == now.bundle {
        return None;
    }
    let cause = match (locked.inputs == now.inputs, locked.compiler == now.compiler) {
        (false, true) => "the model, the options or a profile changed".to_owned(),
        (true, false) => format!("driftc changed from {} to {}", locked.compiler, now.compiler),
        (false, false) => format!(
            "driftc changed from {} to {}, and the model, the options or a profile changed",
            locked.compiler, now.compiler
        ),
        (true, true) => "another build of the same driftc version made it".to_owned(),
    };
    Some(format!("{cause} ({} bytes, locked {})", now.bytes, locked.bytes))
}

#[cfg(test)]
mod tests {
    use super::{Lock, Locked, difference};
    use crate::build::record::Record;

    #[test]
    fn a_lock_file_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("drift.lock");
        assert_eq!(Lock::load(&path).unwrap(), None);
        let record = Record {
            key: String::new(),
            bundle: "ab".repeat(32),
            bytes: 7,
            targets: Vec::new(),
            notes: Vec::new(),
        };
        let entry = Locked::new("a.b", "cd", &record);
        let lock = Lock([("a.b".to_owned(), entry.clone())].into());
        lock.save(&path).unwrap();
        assert_eq!(Lock::load(&path).unwrap(), Some(lock));
        assert_eq!(difference(Some(&entry), &entry), None);
        let other = Locked { bundle: "00".into(), inputs: "11".into(), ..entry.clone() };
        assert!(difference(Some(&entry), &other).unwrap().contains("the model"));
        assert!(difference(None, &entry).is_some());
        std::fs::write(&path, "version = 9").unwrap();
        assert!(Lock::load(&path).unwrap_err().text().contains("version is 9"));
    }
}
