//! Checks that output files and folders can be written, before a command starts its work.

use std::path::Path;

use crate::failure::{Failure, Result};

/// Checks that a file can be written.
///
/// # Errors
/// If the path is a folder or no regular file, its folder does not exist, or the folder is not writable.
pub(crate) fn check_output_file(path: &Path, option: &str) -> Result<()> {
    let shown = path.display();
    if path.is_dir() {
        let inside = path.join("NAME");
        return Err(Failure::input(format!("{option} `{shown}` is a folder"))
            .help(format!("name a file in the folder: {option} {}", inside.display())));
    }
    if path.exists() && !path.is_file() {
        return Err(Failure::input(format!("{option} `{shown}` is not a regular file"))
            .help("name a file that driftc may replace"));
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        let problem = if folder.exists() { "is not a folder" } else { "does not exist" };
        let reason = format!("cannot write {option} `{shown}`: the folder `{}` {problem}", folder.display());
        return Err(Failure::input(reason).help("create the folder, or name a file in another folder"));
    }
    check_writable(folder, path, option)
}

/// Checks that files can be written to a folder. The folder and its parents need not exist.
///
/// # Errors
/// If the path or a parent is no folder, or the nearest existing folder is not writable.
pub(crate) fn check_output_folder(path: &Path, option: &str) -> Result<()> {
    let existing = path.ancestors().find(|folder| folder.exists() && !folder.as_os_str().is_empty());
    let folder = existing.unwrap_or(Path::new("."));
    if !folder.is_dir() {
        let reason =
            format!("cannot write to {option} `{}`: `{}` is not a folder", path.display(), folder.display());
        return Err(Failure::input(reason).help("name another folder"));
    }
    check_writable(folder, path, option)
}

fn check_writable(folder: &Path, path: &Path, option: &str) -> Result<()> {
    tempfile::tempfile_in(folder).map(drop).map_err(|error| {
        let shown = path.display();
        Failure::input(format!("cannot write {option} `{shown}`: the folder `{}`: {error}", folder.display()))
            .help("check the permissions of the folder, or choose another one")
    })
}

#[cfg(test)]
mod tests {
    use super::{check_output_file, check_output_folder};

    #[test]
    fn paths_that_cannot_be_written_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        std::fs::write(path("file"), "").unwrap();
        for good in ["new", "file"] {
            assert!(check_output_file(&path(good), "--output").is_ok(), "{good}");
        }
        for bad in ["", "no/new", "file/new"] {
            assert!(check_output_file(&path(bad), "--output").is_err(), "{bad}");
        }
        for good in ["", "new", "a/b/c"] {
            assert!(check_output_folder(&path(good), "--output-dir").is_ok(), "{good}");
        }
        for bad in ["file", "file/new"] {
            assert!(check_output_folder(&path(bad), "--output-dir").is_err(), "{bad}");
        }
        // The checks leave nothing behind.
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
    }
}
