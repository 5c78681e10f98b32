//! A folder with two models and a manifest, and helpers that run `driftc build` there.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

use crate::fixture::{model, text};

/// Manifest of five bundles: `first.small`, `first.all.lavapipe`, `first.all.vulkan-baseline`, `second.all`, `second.f16`.
const MANIFEST: &str = r#"
[targets]
both = ["lavapipe", "vulkan-baseline"]

[[model]]
path = "first.onnx"
dims = { n = 2 }
[[model.artifact]]
name = "small"
targets = "lavapipe"
dims = { n = "1..4" }
[[model.artifact]]
name = "all"
targets = ["both", "lavapipe"]
split = true

[[model]]
name = "second"
path = "second.onnx"
[[model.artifact]]
name = "all"
targets = "both"
# budget
[[model.artifact]]
name = "f16"
targets = "./lavapipe.toml"
precision = "f16"
"#;

/// Project in a temporary folder, with its own cache folder.
pub(crate) struct Project(tempfile::TempDir);

impl Project {
    pub(crate) fn new() -> Self {
        let project = Self(tempfile::tempdir().unwrap());
        project.write("first.onnx", &model(&[("Add", &["a", "b"], "y")]));
        project.write("second.onnx", &model(&[("Neg", &["a"], "y")]));
        project.write("lavapipe.toml", b"inherits = \"lavapipe\"\nname = \"mine\"\n");
        project.write("drift.toml", MANIFEST.as_bytes());
        project
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path(name), bytes).unwrap();
    }

    pub(crate) fn bytes(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Replaces a text that a file has once.
    pub(crate) fn replace(&self, name: &str, old: &str, new: &str) {
        let text = text(&self.bytes(name));
        assert_eq!(text.matches(old).count(), 1, "{old} in {text}");
        self.write(name, text.replace(old, new).as_bytes());
    }

    /// Returns `driftc` with arguments, in the project's folder and with its cache folder.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_driftc"));
        command.args(args).current_dir(self.0.path()).env("XDG_CACHE_HOME", self.path("cache"));
        command
    }

    pub(crate) fn driftc(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    pub(crate) fn build(&self, args: &[&str]) -> Output {
        self.driftc(&[&["build"], args].concat())
    }

    /// Returns the lines of `driftc build --dry-run --json`.
    pub(crate) fn dry_run(&self) -> Vec<Value> {
        events(&self.build(&["--dry-run", "--json"]))
    }

    /// Returns the bundles of the output folder with their contents.
    pub(crate) fn bundles(&self) -> BTreeMap<String, Vec<u8>> {
        let files = std::fs::read_dir(self.path("bundles")).unwrap().map(|file| file.unwrap());
        let files = files.filter(|file| file.path().extension().is_some_and(|e| e == "drift"));
        files
            .map(|file| (file.file_name().into_string().unwrap(), std::fs::read(file.path()).unwrap()))
            .collect()
    }
}

/// Returns the lines of JSON that a command printed.
pub(crate) fn events(output: &Output) -> Vec<Value> {
    let lines = text(&output.stdout);
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    let events: Vec<Value> = lines.lines().map(parse).collect();
    assert!(!events.is_empty(), "{}", text(&output.stderr));
    events
}

/// Returns how many actions ended in a way, by the last event of `driftc build --json`.
pub(crate) fn count(output: &Output, status: &str) -> u64 {
    let events = events(output);
    let done = events.last().unwrap();
    assert_eq!(done["event"], "done", "{}", text(&output.stderr));
    done[status].as_u64().unwrap_or_else(|| panic!("{status} in {done}"))
}
