//! Tests of `driftc build`: what it makes, when it makes it again, and what it does with wrong manifests, interruptions and
//! caches that lie.

#[path = "builds/caches.rs"]
mod caches;
#[path = "cli/fixture.rs"]
#[allow(dead_code, reason = "this test uses some of the helpers")]
mod fixture;
#[path = "builds/interruptions.rs"]
mod interruptions;
#[path = "builds/manifests.rs"]
mod manifests;
#[path = "builds/object_store.rs"]
mod object_store;
#[path = "builds/project.rs"]
mod project;

use std::path::Path;

use fixture::text;
use project::{Project, count, events};

#[test]
fn bundles_equal_the_bundles_of_compile() {
    let project = Project::new();
    let built = project.build(&[]);
    assert_eq!(built.status.code(), Some(0), "{}", text(&built.stderr));
    assert!(text(&built.stdout).contains("5 bundles: 5 built"), "{}", text(&built.stdout));
    for action in project.dry_run() {
        let mut command: Vec<String> = serde_json::from_value(action["command"].clone()).unwrap();
        let made = project.bytes(action["output"].as_str().unwrap());
        let other = project.path("other.drift");
        *command.last_mut().unwrap() = other.to_str().unwrap().to_owned();
        let words: Vec<&str> = command[1..].iter().map(String::as_str).collect();
        let compiled = project.driftc(&words);
        assert!(compiled.status.success(), "{}", text(&compiled.stderr));
        assert!(std::fs::read(other).unwrap() == made, "{command:?}");
        assert_eq!(action["up_to_date"], true);
    }
    let page = String::from_utf8(project.bytes("bundles/build-report.html")).unwrap();
    assert!(page.contains("first.all.lavapipe") && page.contains("main "), "{page}");
}

#[test]
fn equal_builds_write_equal_files() {
    let (a, b) = (Project::new(), Project::new());
    assert!(a.build(&["--jobs", "1", "--no-cache"]).status.success());
    assert!(b.build(&["--jobs", "3", "--no-cache"]).status.success());
    for file in ["drift.lock", "bundles/build-report.json", "bundles/build-report.html"] {
        assert_eq!(text(&a.bytes(file)), text(&b.bytes(file)), "{file}");
    }
    assert_eq!(a.bundles(), b.bundles());
}

#[test]
fn only_what_changed_is_made_again() {
    let project = Project::new();
    assert_eq!(count(&project.build(&["--json"]), "built"), 5);
    assert_eq!(count(&project.build(&["--json"]), "up-to-date"), 5);
    // A new time does not matter, other contents do.
    let first = project.bytes("first.onnx");
    project.write("first.onnx", &first);
    assert_eq!(count(&project.build(&["--json"]), "up-to-date"), 5);
    project.write("first.onnx", &fixture::model(&[("Sub", &["a", "b"], "y")]));
    let built = project.build(&["--json"]);
    assert_eq!((count(&built, "built"), count(&built, "up-to-date")), (3, 2));
    // The cache has the bundles of the old model.
    project.write("first.onnx", &first);
    assert_eq!(count(&project.build(&["--json"]), "cached"), 3);
    // A bundle that somebody changed or removed is replaced.
    project.write("bundles/second.all.drift", b"changed");
    std::fs::remove_file(project.path("bundles/first.small.drift")).unwrap();
    assert_eq!(count(&project.build(&["--json"]), "cached"), 2);
    // An option of one artifact.
    project.replace("drift.toml", "n = \"1..4\"", "n = \"1..5\"");
    let built = project.build(&["--json"]);
    assert_eq!((count(&built, "built"), count(&built, "up-to-date")), (1, 4));
    // The state only saves time.
    std::fs::remove_dir_all(project.path("bundles/.driftc")).unwrap();
    let again = project.build(&["--json"]);
    assert_eq!(count(&again, "built"), 0, "{}", text(&again.stdout));
}

#[test]
fn a_file_beside_the_model_is_a_part_of_it() {
    let project = Project::new();
    assert!(project.build(&[]).status.success());
    project.write("labels.txt", b"cat\ndog\n");
    assert_eq!(count(&project.build(&["--json"]), "built"), 5);
}

/// A copy of a small diffusion model: weights and configurations lie in inner folders.
#[test]
fn inner_folders_of_a_diffusion_model_are_a_part_of_it() {
    let project = Project::new();
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/diffusion/sd");
    for part in ["", "unet", "vae", "text_encoder", "tokenizer", "scheduler"] {
        std::fs::create_dir_all(project.path("sd").join(part)).unwrap();
        for entry in std::fs::read_dir(from.join(part)).unwrap().map(Result::unwrap) {
            if entry.path().is_file() {
                std::fs::copy(entry.path(), project.path("sd").join(part).join(entry.file_name())).unwrap();
            }
        }
    }
    let manifest = "[[model]]\npath = \"sd\"\n[[model.artifact]]\nname = \"all\"\ntargets = \"lavapipe\"\n";
    project.write("drift.toml", manifest.as_bytes());
    assert_eq!(count(&project.build(&["--json"]), "built"), 1);
    assert_eq!(count(&project.build(&["--json"]), "up-to-date"), 1);
    let weights = "sd/unet/diffusion_pytorch_model.safetensors";
    let mut bytes = project.bytes(weights);
    let last = bytes.len() - 2;
    bytes[last] ^= 1;
    project.write(weights, &bytes);
    assert_eq!(count(&project.build(&["--json"]), "built"), 1);
    project.replace("sd/unet/config.json", "\"norm_eps\": 1e-05", "\"norm_eps\": 1e-06");
    assert_eq!(count(&project.build(&["--json"]), "built"), 1);
}

#[test]
fn a_failed_action_stops_no_other() {
    let project = Project::new();
    project.write("second.onnx", &fixture::model(&[("NoSuchOperator", &["a"], "y")]));
    let built = project.build(&[]);
    let out = text(&built.stdout);
    assert_eq!(built.status.code(), Some(1), "{out}");
    assert!(out.contains("5 bundles: 3 built, 2 failed"), "{out}");
    assert!(out.contains("NoSuchOperator"), "{out}");
    assert!(out.contains("repeat: driftc build drift.toml --only second.all"), "{out}");
    let events = events(&project.build(&["--json"]));
    let failed: Vec<_> = events.iter().filter(|e| e["event"] == "failed").collect();
    assert_eq!(failed.len(), 2);
    assert!(failed[0]["help"].as_str().unwrap().contains("driftc ops"));
    // The command that was printed repeats this action alone.
    project.write("second.onnx", &fixture::model(&[("Neg", &["a"], "y")]));
    let repeated = project.build(&["--json", "--only", "second.all"]);
    assert_eq!(count(&repeated, "built"), 1, "{}", text(&repeated.stdout));
}

#[test]
fn a_locked_build_fails_if_a_bundle_differs() {
    let project = Project::new();
    let none = project.build(&["--locked"]);
    assert_eq!(none.status.code(), Some(1));
    assert!(text(&none.stderr).contains("there is no drift.lock"), "{}", text(&none.stderr));
    assert!(project.build(&[]).status.success());
    assert!(project.build(&["--locked"]).status.success());
    let lock = project.bytes("drift.lock");
    project.write("first.onnx", &fixture::model(&[("Mul", &["a", "b"], "y")]));
    let built = project.build(&["--locked"]);
    let out = text(&built.stdout);
    assert_eq!(built.status.code(), Some(1));
    let line = "differs from the lock file: first.small: the model, the options or a profile changed";
    assert!(out.contains(line), "{out}");
    assert!(!out.contains("second"), "{out}");
    assert_eq!(project.bytes("drift.lock"), lock);
    // Without the option, the lock file follows.
    assert!(project.build(&[]).status.success());
    assert_ne!(project.bytes("drift.lock"), lock);
    assert!(project.build(&["--locked"]).status.success());
}

#[test]
fn budgets_fail_a_build_with_the_numbers() {
    let project = Project::new();
    let budget = "budget = { bytes = 10, memory = 0, time-ms = { lavapipe = 0.0, none = 1 } }";
    project.replace("drift.toml", "# budget", budget);
    for _ in 0..2 {
        let built = project.build(&[]);
        let out = text(&built.stdout);
        assert_eq!(built.status.code(), Some(1), "{out}");
        assert!(out.contains("over budget: second.all: the bundle has "), "{out}");
        assert!(out.contains("more than the budget of 10 B"), "{out}");
        assert!(out.contains("main for lavapipe takes "), "{out}");
        assert!(out.contains("time-ms has the target `none`"), "{out}");
    }
    project.replace(
        "drift.toml",
        budget,
        "budget = { bytes = \"1 MiB\", time-ms = { lavapipe = { main = 1e6 } } }",
    );
    assert!(project.build(&[]).status.success());
}

#[test]
fn signed_builds_have_the_bundles_of_unsigned_ones() {
    let project = Project::new();
    let made = project.driftc(&["keygen", "--no-password", "-o", "team.key"]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    assert_eq!(count(&project.build(&["--json"]), "built"), 5);
    let lock = project.bytes("drift.lock");
    // The cache has the bundles; only the signatures are new.
    for status in ["cached", "up-to-date"] {
        let built = project.build(&["--json", "--sign", "team.key"]);
        assert_eq!(count(&built, status), 5, "{}", text(&built.stderr));
        assert_eq!(project.bytes("drift.lock"), lock);
        for bundle in project.bundles().into_keys() {
            let checked = project.driftc(&["check", &format!("bundles/{bundle}"), "--key", "team.pub"]);
            assert!(!text(&checked.stderr).contains("sign"), "{}", text(&checked.stderr));
        }
    }
    let checked = project.driftc(&["check", "bundles/second.all.drift", "--key", "team.pub"]);
    assert!(checked.status.success(), "{}", text(&checked.stderr));
    assert_eq!(count(&project.build(&["--json"]), "cached"), 5);
    let checked = project.driftc(&["check", "bundles/second.all.drift", "--key", "team.pub"]);
    assert_eq!(checked.status.code(), Some(1));
}

#[test]
fn another_output_folder_leaves_the_project_as_it_is() {
    let project = Project::new();
    let built = project.build(&["--output", "elsewhere/out", "--no-lock"]);
    assert_eq!(built.status.code(), Some(0), "{}", text(&built.stderr));
    assert!(!project.path("drift.lock").exists() && !project.path("bundles").exists());
    assert!(project.build(&[]).status.success());
    assert_eq!(project.bytes("elsewhere/out/second.all.drift"), project.bytes("bundles/second.all.drift"));
    assert_eq!(count(&project.build(&["--json", "-o", "elsewhere/out"]), "up-to-date"), 5);
}

#[test]
fn a_dry_run_lists_the_input_files() {
    let project = Project::new();
    project.write("labels.txt", b"cat\n");
    project.write("base.toml", b"inherits = \"lavapipe\"\nname = \"base\"\n");
    project.write("lavapipe.toml", b"inherits = \"./base.toml\"\nname = \"mine\"\n");
    project.write("more.toml", b"[targets]\nother = [\"lavapipe\"]\n");
    let manifest = text(&project.bytes("drift.toml"));
    project.write("drift.toml", format!("include = [\"more.toml\"]\n{manifest}").as_bytes());
    let actions = project.dry_run();
    let files = |name: &str| -> Vec<String> {
        let action = actions.iter().find(|action| action["action"] == name).unwrap();
        let paths: Vec<std::path::PathBuf> = serde_json::from_value(action["input_files"].clone()).unwrap();
        paths.iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect()
    };
    assert_eq!(files("first.small"), ["drift.toml", "more.toml", "first.onnx", "labels.txt"]);
    let own = ["drift.toml", "more.toml", "second.onnx", "labels.txt", "lavapipe.toml", "base.toml"];
    assert_eq!(files("second.f16"), own);
    assert_eq!(actions[0]["model"], "first");
}
