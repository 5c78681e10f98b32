//! Caches that lie, caches that several builds use at once, and output folders that cannot be written.

use std::path::{Path, PathBuf};
use std::process::Output;

use crate::fixture::text;
use crate::project::{Project, count};

/// Files below a folder, in order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// Ways in which an entry of a cache can be wrong.
const DAMAGES: &[fn(&Path)] = &[
    |path| std::fs::write(path, b"").unwrap(),
    |path| std::fs::write(path, &std::fs::read(path).unwrap()[..10]).unwrap(),
    |path| {
        let mut bytes = std::fs::read(path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(path, bytes).unwrap();
    },
    |path| std::fs::remove_file(path).unwrap(),
    |path| {
        // Another entry of the same kind.
        let same = |other: &PathBuf| other.extension() == path.extension() && other != path;
        let other = files(path.parent().unwrap()).into_iter().find(same).unwrap();
        std::fs::copy(other, path).unwrap();
    },
];

/// Damages the entries of a cache in turn, and checks that every build makes the right bundles.
fn lies(cache: &Path, project: &Project, build: &dyn Fn() -> Output) {
    let right = project.bundles();
    for damage in DAMAGES {
        for kind in ["drift", "json"] {
            for path in files(cache).iter().filter(|path| path.extension().is_some_and(|e| e == kind)) {
                damage(path);
            }
            std::fs::remove_dir_all(project.path("bundles")).unwrap();
            let built = build();
            assert!(built.status.success(), "{}", text(&built.stderr));
            // Bundles of one size and one hash are the same, so a record of another bundle may hold.
            assert!(count(&built, "built") >= 3, "{kind}: {}{}", text(&built.stdout), text(&built.stderr));
            assert!(project.bundles() == right);
            // The entries are right again.
            std::fs::remove_dir_all(project.path("bundles")).unwrap();
            assert_eq!(count(&build(), "built"), 0);
            assert!(project.bundles() == right);
        }
    }
}

#[test]
fn a_local_cache_that_lies_is_not_believed() {
    let project = Project::new();
    let build = || project.build(&["--json"]);
    assert_eq!(count(&build(), "built"), 5);
    lies(&project.path("cache/driftc/builds"), &project, &build);
}

#[test]
fn a_shared_folder_that_lies_is_not_believed() {
    let project = Project::new();
    let shared = tempfile::tempdir().unwrap();
    let url = format!("file://{}", shared.path().display());
    let build = || project.build(&["--json", "--no-cache", "--shared-cache", &url]);
    assert_eq!(count(&build(), "built"), 5);
    lies(shared.path(), &project, &build);
}

#[test]
fn machines_share_their_bundles() {
    let (a, b) = (Project::new(), Project::new());
    let shared = tempfile::tempdir().unwrap();
    let url = format!("file://{}/team/driftc", shared.path().display());
    assert_eq!(count(&a.build(&["--json", "--shared-cache", &url]), "built"), 5);
    assert_eq!(count(&b.build(&["--json", "--shared-cache", &url]), "fetched"), 5);
    assert_eq!(a.bundles(), b.bundles());
    // What was fetched is in the local cache.
    std::fs::remove_dir_all(b.path("bundles")).unwrap();
    assert_eq!(count(&b.build(&["--json"]), "cached"), 5);
}

#[test]
fn builds_at_the_same_time_do_not_disturb_each_other() {
    let (a, b) = (Project::new(), Project::new());
    let shared = tempfile::tempdir().unwrap();
    let url = format!("file://{}", shared.path().display());
    let start = |project: &Project| {
        let mut command = project.command(&["build", "--json", "--shared-cache", &url]);
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap()
    };
    let builds = [start(&a), start(&b), start(&a), start(&b)];
    let built: u64 = builds
        .map(|build| {
            let done = build.wait_with_output().unwrap();
            assert!(done.status.success(), "{}", text(&done.stderr));
            count(&done, "built")
        })
        .iter()
        .sum();
    // Builds of one folder wait for each other, and each of the two folders makes a bundle at most once.
    assert!((5..=10).contains(&built), "{built}");
    assert_eq!(a.bundles(), b.bundles());
}

#[cfg(unix)]
#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let project = Project::new();
    project.write("bundles", b"a file");
    let built = project.build(&[]);
    assert_eq!(built.status.code(), Some(1));
    assert!(text(&built.stderr).contains("bundles"), "{}", text(&built.stderr));
    // A cache that cannot be written is a note.
    std::fs::remove_file(project.path("bundles")).unwrap();
    let built = project.build(&["--cache-dir", "/proc/none"]);
    assert!(
        built.status.code() == Some(0) || text(&built.stderr).contains("--cache-dir"),
        "{}",
        text(&built.stderr)
    );
}
