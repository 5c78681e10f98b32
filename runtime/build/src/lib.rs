//! Makes bundles in a build script of Cargo: runs `driftc build` for a manifest, with the output below `OUT_DIR`.
//!
//! ```no_run
//! // build.rs
//! drift_build::Build::new("drift.toml").run();
//! ```
//!
//! The program includes a bundle with `include_bytes!(concat!(env!("DRIFT_BUNDLES"), "/detector.phones.drift"))`. Cargo runs
//! the script again if the manifest, a model, a target profile or the compiler changes. The compiler is the program that the
//! variable `DRIFTC` names, or else `driftc` in `PATH`.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// Settings of a build.
#[derive(Debug, Clone)]
pub struct Build {
    manifest: PathBuf,
    locked: bool,
    args: Vec<OsString>,
}

/// Reason why a build failed, as text with advice.
#[derive(Debug)]
pub struct Error(String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

impl Build {
    /// Builds the bundles of a manifest. A relative path is relative to the package.
    pub fn new(manifest: impl Into<PathBuf>) -> Self {
        Self { manifest: manifest.into(), locked: false, args: Vec::new() }
    }

    /// Fails the build if a bundle differs from the lock file. By default, the lock file is neither checked nor written.
    #[must_use]
    pub fn locked(mut self, locked: bool) -> Self {
        self.locked = locked;
        self
    }

    /// Adds an argument of `driftc build`, such as `--only`.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Makes the bundles, sets the variable `DRIFT_BUNDLES` for the package, and returns the paths of the bundles. Prints the
    /// error and ends the script if a bundle cannot be made.
    #[allow(
        clippy::exit,
        reason = "a build script that fails ends with an exit code; a panic would hide the message"
    )]
    pub fn run(&self) -> Vec<PathBuf> {
        self.try_run().unwrap_or_else(|error| {
            eprintln!("drift-build: {error}");
            std::process::exit(1)
        })
    }

    /// Makes the bundles like [`Build::run`].
    ///
    /// # Errors
    /// If `OUT_DIR` is not set, the compiler is missing, or a bundle cannot be made.
    pub fn try_run(&self) -> Result<Vec<PathBuf>, Error> {
        for variable in ["DRIFTC", "PATH", "DRIFT_SHARED_CACHE"] {
            println!("cargo:rerun-if-env-changed={variable}");
        }
        watch(&self.manifest);
        let folder = std::env::var_os("OUT_DIR")
            .ok_or_else(|| Error("OUT_DIR is not set; call this function from build.rs".to_owned()))?;
        let folder = Path::new(&folder).join("bundles");
        let program = program()?;
        watch(&program);
        let mut files = BTreeSet::new();
        let mut bundles = Vec::new();
        let listed = self.driftc(&program, &folder, &["--dry-run", "--json"])?;
        for line in String::from_utf8_lossy(&listed.stdout).lines() {
            let action: Value = serde_json::from_str(line).map_err(|_| other_version(&program))?;
            let inputs = action["input_files"].as_array().ok_or_else(|| other_version(&program))?;
            files.extend(inputs.iter().filter_map(Value::as_str).map(PathBuf::from));
            bundles.extend(action["output"].as_str().map(PathBuf::from));
        }
        files.iter().for_each(|file| watch(file));
        self.driftc(&program, &folder, &[if self.locked { "--locked" } else { "--no-lock" }])?;
        println!("cargo:rustc-env=DRIFT_BUNDLES={}", folder.display());
        Ok(bundles)
    }

    /// Runs `driftc build`, which must succeed.
    fn driftc(&self, program: &Path, folder: &Path, args: &[&str]) -> Result<Output, Error> {
        let mut command = Command::new(program);
        command.arg("build").arg(&self.manifest).arg("--output").arg(folder).args(args).args(&self.args);
        let output = command.output().map_err(|error| {
            Error(format!("cannot run {}: {error}; set DRIFTC to the path of driftc", program.display()))
        })?;
        if output.status.success() {
            return Ok(output);
        }
        let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
        Err(Error(format!("`driftc build {}` failed\n{err}{out}", self.manifest.display())))
    }
}

fn other_version(program: &Path) -> Error {
    let version = env!("CARGO_PKG_VERSION");
    Error(format!("{} does not list its input files; install driftc {version}", program.display()))
}

/// Tells Cargo to run the script again when a file changes.
fn watch(file: &Path) {
    println!("cargo:rerun-if-changed={}", file.display());
}

/// Returns the path of the compiler.
fn program() -> Result<PathBuf, Error> {
    if let Some(program) = std::env::var_os("DRIFTC").filter(|program| !program.is_empty()) {
        return Ok(PathBuf::from(program));
    }
    let name = format!("driftc{}", std::env::consts::EXE_SUFFIX);
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(&name)).find(|file| file.is_file()).ok_or_else(
        || Error("the compiler driftc is not in PATH; install it, or set DRIFTC to its path".to_owned()),
    )
}
