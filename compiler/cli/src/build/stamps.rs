//! Hashes of files, which are computed once while a file stays the same.
//!
//! A file is the same if its size, inode and times are. Times have a resolution, clocks go backwards, and programs set
//! times, so a stamp counts only if the file was older than [`SETTLED`] when it was hashed, and has no time in the future.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use driftc::content::Content;
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};
/// Age of a file from which on a change would change its times.
const SETTLED: Duration = Duration::from_secs(3);

/// Hashes by path. Several threads use the stamps.
#[derive(Debug)]
pub(crate) struct Stamps(Mutex<BTreeMap<PathBuf, Stamp>>);

/// Hash of a file, and what the file looked like then.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Stamp {
    look: Look,
    hash: String,
}

/// Properties that change when a file changes. Times are in nanoseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Look {
    size: u64,
    modified: u64,
    /// Time of the last change of contents, owner, permissions or name. 0 where the system has none.
    changed: u64,
    /// Number of the file. 0 where the system has none.
    inode: u64,
}

/// Properties of several files.
pub(crate) type Looks = BTreeMap<PathBuf, Look>;

/// Checks that the files that two lists share have not changed between them.
///
/// # Errors
/// If a file has changed. A file that changed and changed back counts, because its times are new.
pub(crate) fn check_same(before: &Looks, after: &Looks) -> Result<()> {
    let differs = |(path, look): &(&PathBuf, &Look)| after.get(*path).is_some_and(|now| now != *look);
    before.iter().find(differs).map_or(Ok(()), |(path, _)| Err(changed(path)))
}

impl Look {
    /// Reads the properties of a file.
    ///
    /// # Errors
    /// If there is no such file.
    pub(crate) fn of(path: &Path) -> Result<Self> {
        let metadata = std::fs::metadata(path).map_err(|error| Failure::file(path, &error))?;
        let modified = metadata.modified().ok().and_then(nanoseconds).unwrap_or(0);
        let (changed, inode) = identity(&metadata);
        Ok(Self { size: metadata.len(), modified, changed, inode })
    }

    /// True if a change from now on would change the times.
    fn is_settled(&self) -> bool {
        let now = nanoseconds(SystemTime::now()).unwrap_or(0);
        now.checked_sub(self.modified.max(self.changed)).is_some_and(|age| age > SETTLED.as_nanos() as u64)
    }
}

#[cfg(unix)]
fn identity(metadata: &Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    let changed = metadata.ctime().saturating_mul(1_000_000_000).saturating_add(metadata.ctime_nsec());
    (u64::try_from(changed).unwrap_or(0), metadata.ino())
}

#[cfg(not(unix))]
fn identity(_: &Metadata) -> (u64, u64) {
    (0, 0)
}

fn nanoseconds(time: SystemTime) -> Option<u64> {
    u64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_nanos()).ok()
}

impl Stamps {
    pub(crate) fn new(entries: BTreeMap<PathBuf, Stamp>) -> Self {
        Self(Mutex::new(entries))
    }

    /// Returns the BLAKE3 hash of a file in hexadecimal digits, and the look of the file.
    ///
    /// # Errors
    /// If the file cannot be read, or changes while it is read.
    pub(crate) fn hash(&self, path: &Path) -> Result<(String, Look)> {
        let look = Look::of(path)?;
        if let Some(stamp) = self.entries().get(path).filter(|stamp| stamp.look == look) {
            return Ok((stamp.hash.clone(), look));
        }
        let hash = hash_file(path)?;
        if Look::of(path)? != look {
            return Err(changed(path));
        }
        match look.is_settled() {
            true => self.entries().insert(path.to_owned(), Stamp { look: look.clone(), hash: hash.clone() }),
            false => self.entries().remove(path),
        };
        Ok((hash, look))
    }

    /// Notes the hash of a file that this program wrote, and that nothing else writes.
    ///
    /// # Errors
    /// If there is no such file.
    pub(crate) fn note(&self, path: &Path, hash: &str) -> Result<()> {
        let stamp = Stamp { look: Look::of(path)?, hash: hash.to_owned() };
        self.entries().insert(path.to_owned(), stamp);
        Ok(())
    }

    /// Hashes by path.
    pub(crate) fn entries(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Stamp>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Error for a file that changed while it was used.
pub(crate) fn changed(path: &Path) -> Failure {
    Failure::input(format!("{} changed while it was built", path.display()))
        .help("build again when nothing writes to the file")
}

/// Returns the BLAKE3 hash of a file in hexadecimal digits.
///
/// # Errors
/// If the file cannot be read.
pub(crate) fn hash_file(path: &Path) -> Result<String> {
    let content = Content::map(path).map_err(|error| Failure::file(path, &error))?;
    let hash = blake3::hash(&content).to_hex().to_string();
    content.release();
    Ok(hash)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs::File;
    use std::time::{Duration, SystemTime};

    use super::{Look, Stamps};

    #[test]
    fn a_stamp_counts_only_for_an_old_unchanged_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, "1").unwrap();
        let stamps = Stamps::new(BTreeMap::new());
        let first = stamps.hash(&path).unwrap().0;
        // A file that was just written may change without a change of its times.
        assert!(stamps.entries().is_empty());
        std::fs::write(&path, "2").unwrap();
        assert_ne!(stamps.hash(&path).unwrap().0, first);
        // A time in the future says nothing.
        let later = SystemTime::now() + Duration::from_secs(3600);
        File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
        stamps.hash(&path).unwrap();
        assert!(stamps.entries().is_empty());
        assert!(!Look::of(&path).unwrap().is_settled());
        // A noted hash counts until the file changes.
        stamps.note(&path, "noted").unwrap();
        assert_eq!(stamps.hash(&path).unwrap().0, "noted");
        std::fs::write(&path, "three").unwrap();
        assert_ne!(stamps.hash(&path).unwrap().0, "noted");
    }
}
