//! Builds that are killed: nothing is lost, and no file is half written.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::{Duration, Instant};

use drift_tests::settings::Scope;

use crate::fixture::text;
use crate::project::{Project, count};

#[test]
fn a_killed_build_is_resumed() {
    let times = if Scope::from_environment().is_full() { 20 } else { 5 };
    let undisturbed = Project::new();
    let start = Instant::now();
    assert!(undisturbed.build(&["--jobs", "1", "--no-cache"]).status.success());
    let whole = start.elapsed();
    let right = undisturbed.bundles();
    let project = Project::new();
    // Moments spread over the time of a build by the golden ratio.
    for moment in (1..=times).map(|n| f64::from(n) * 0.618_034 % 1.0) {
        let mut command = project.command(&["build", "--jobs", "1", "--no-cache"]);
        let mut build = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(whole.mul_f64(moment).max(Duration::from_millis(1)));
        // Kill sends SIGKILL, which no program can handle.
        build.kill().unwrap();
        build.wait().unwrap();
        let made = if project.path("bundles").exists() { project.bundles() } else { BTreeMap::new() };
        for (name, bytes) in &made {
            assert!(right.get(name) == Some(bytes), "{name} is not whole after {moment}");
        }
        let done = project.build(&["--jobs", "1", "--no-cache", "--json"]);
        assert!(done.status.success(), "{}", text(&done.stderr));
        // The last bundle may have come without its record.
        assert!(count(&done, "up-to-date") + 1 >= made.len() as u64, "{moment}: {}", text(&done.stdout));
        assert!(project.bundles() == right, "{moment}");
        let left: Vec<_> = std::fs::read_dir(project.path("bundles/.driftc")).unwrap().collect();
        assert_eq!(left.len(), 3, "{left:?}");
        assert_eq!(project.bytes("drift.lock"), undisturbed.bytes("drift.lock"));
        std::fs::remove_dir_all(project.path("bundles")).unwrap();
        std::fs::remove_file(project.path("drift.lock")).unwrap();
    }
}
