//! Builds that are killed: nothing is lost, and no file is half written.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use drift_tests::settings::Scope;

use crate::fixture::{model, text};
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

#[test]
fn a_model_that_changes_meanwhile_makes_no_wrong_bundle() {
    let contents = ["Add", "Mul"].map(|operator| model(&[(operator, &["a", "b"], "y")]));
    let right = [0, 1].map(|index| {
        let project = Project::new();
        project.write("first.onnx", &contents[index]);
        assert!(project.build(&[]).status.success());
        project.bundles()
    });
    let project = Project::new();
    let path = project.path("first.onnx");
    for _ in 0..4 {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for turn in (0..2).cycle().take_while(|_| !stop.load(Ordering::Relaxed)) {
                    std::fs::write(&path, &contents[turn]).unwrap();
                    std::thread::sleep(Duration::from_millis(3));
                }
            });
            let built = project.build(&[]);
            stop.store(true, Ordering::Relaxed);
            let out = text(&built.stdout);
            let failures = out.lines().filter(|line| line.starts_with("failed: "));
            for line in failures {
                let known = ["changed while it was built", "first.onnx"];
                assert!(known.iter().any(|part| line.contains(part)), "{out}");
            }
        });
        for index in [0, 1] {
            project.write("first.onnx", &contents[index]);
            let built = project.build(&[]);
            assert!(built.status.success(), "{}", text(&built.stdout));
            assert!(project.bundles() == right[index], "a cache has a bundle of another model");
        }
    }
}
