//! Scratch folder of a document, in which its commands run.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use drift_tests::settings::{self, Scope};

use crate::models;

/// Seconds after which a command of the quick scope and of the full scope is ended.
const LIMITS: [u64; 2] = [300, 6 * 3600];

/// Shell code around each command: variables and the folder that earlier commands of the document set stay set. Cargo keeps its
/// own home, and driftc gets a cache folder of its own.
const FRAME: &str = r#"exec 2>&1
if [ -f "$SESSION" ]; then . "$SESSION"; else
    export CARGO_HOME="${CARGO_HOME:-$HOME/.cargo}" RUSTUP_HOME="${RUSTUP_HOME:-$HOME/.rustup}"
    export HOME="$SCRATCH/home" PATH="$SCRATCH/bin:$PATH"
fi
set -euo pipefail
"#;
const FRAME_END: &str = "\n{ export -p; printf 'cd %q\\n' \"$PWD\"; } >\"$SESSION\"\n";

/// Scratch folder with links to the top-level entries of the repository, the models of [`models::write`], and programs below
/// `bin`. Ends the background processes of its document when it is dropped.
pub(crate) struct Place {
    folder: tempfile::TempDir,
    root: PathBuf,
    /// Folder of the test programs and libraries that cargo built.
    built: PathBuf,
    background: Vec<Child>,
}

impl Place {
    /// Makes the folder.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(crate) fn new() -> Result<Self, String> {
        let fail = |e: std::io::Error| format!("scratch folder: {e}");
        let folder = tempfile::tempdir().map_err(fail)?;
        let root = root();
        let program = std::env::current_exe().map_err(fail)?;
        let built = program.parent().unwrap_or(Path::new("/")).to_owned();
        let at = folder.path();
        for name in git_files(&root, &[])?.iter().filter_map(|path| path.split('/').next()) {
            let link = at.join(name);
            if !name.starts_with('.') && !link.exists() {
                symlink(root.join(name), link).map_err(fail)?;
            }
        }
        symlink(built.join("../.."), at.join("target")).map_err(fail)?;
        for name in ["home", "bin"] {
            fs::create_dir(at.join(name)).map_err(fail)?;
        }
        symlink(env!("CARGO_BIN_EXE_driftc"), at.join("bin/driftc")).map_err(fail)?;
        for name in ["python", "python3"] {
            script(&at.join("bin").join(name), &format!("exec '{}' \"$@\"", settings::python()))
                .map_err(fail)?;
        }
        let make = format!("exec \"$(PATH=${{PATH#*:}} command -v make)\" -C '{}' \"$@\"", root.display());
        script(&at.join("bin/make"), &make).map_err(fail)?;
        models::write(&root, at)?;
        Ok(Self { folder, root, built, background: Vec::new() })
    }

    /// Path of the scratch folder.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Folder of the libraries that cargo built for the tests.
    pub(crate) fn built(&self) -> &Path {
        &self.built
    }

    /// Runs shell code that must succeed, with text as standard input. Returns its output and error output, mixed.
    ///
    /// # Errors
    /// If the code fails, or does not end in time. The message has the output.
    pub(crate) fn shell(&self, code: &str, input: &str) -> Result<String, String> {
        let at = self.path().join("home");
        let fail = |e: std::io::Error| format!("bash: {e}");
        // Files instead of pipes: a process that the code leaves in the background may keep them open.
        fs::write(at.join("input"), input).map_err(fail)?;
        let limit = LIMITS[usize::from(Scope::from_environment().is_full())];
        let mut command = self.command(limit, &[FRAME, code, FRAME_END].concat());
        command.stdin(fs::File::open(at.join("input")).map_err(fail)?);
        let status =
            command.stdout(fs::File::create(at.join("output")).map_err(fail)?).status().map_err(fail)?;
        let said = fs::read(at.join("output")).map_err(fail)?;
        let said = String::from_utf8_lossy(&said).into_owned();
        match status.code() {
            Some(0) => Ok(said),
            Some(124) => Err(format!(
                "{code}does not end within {limit} s; a server needs a rule with `background`\n{said}"
            )),
            _ => Err(format!("{code}fails with {status}:\n{said}")),
        }
    }

    /// Starts shell code that runs until the document ends, and waits until it prints a text.
    ///
    /// # Errors
    /// If the code ends, or does not print the text in time.
    pub(crate) fn start(&mut self, code: &str, text: &str) -> Result<(), String> {
        let log = self.path().join(format!("background-{}.log", self.background.len()));
        let fail = |e: std::io::Error| format!("{}: {e}", log.display());
        let file = fs::File::create(&log).map_err(fail)?;
        let mut command = self.command(LIMITS[1], &[FRAME, code].concat());
        self.background.push(command.stdin(Stdio::null()).stdout(file).spawn().map_err(fail)?);
        // At most ten minutes, for programs that first compile a model.
        for _ in 0..6000 {
            let said = fs::read_to_string(&log).unwrap_or_default();
            if said.contains(text) {
                return Ok(());
            }
            let ended = self.background.last_mut().and_then(|child| child.try_wait().ok().flatten());
            if let Some(status) = ended {
                return Err(format!("{code}ends with {status} before it prints `{text}`:\n{said}"));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Err(format!("{code}does not print `{text}`"))
    }

    /// Returns the command that runs shell code for at most `limit` seconds.
    fn command(&self, limit: u64, code: &str) -> Command {
        let at = self.path();
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", &limit.to_string(), "bash", "-c", code]).current_dir(at);
        command.env("SCRATCH", at).env("ROOT", &self.root).env("BUILT", &self.built);
        command.env("SESSION", at.join("home/session")).env("PREFIX", at.join("prefix"));
        command.env("PKG_CONFIG_PATH", at.join("prefix/lib/pkgconfig"));
        command.env("CMAKE_PREFIX_PATH", at.join("prefix"));
        command.env("PYTHONPATH", self.root.join("runtime/python")).env("PYTHONDONTWRITEBYTECODE", "1");
        command
            .env("DRIFTC", env!("CARGO_BIN_EXE_driftc"))
            .env("DRIFT_LIBRARY", self.built.join("libdrift.so"));
        command.env_remove("XDG_CACHE_HOME").env_remove("MAKEFLAGS");
        command
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for child in &mut self.background {
            // `timeout` passes the signal on to all processes of the command.
            let _ = Command::new("kill").arg(child.id().to_string()).status();
            let _ = child.wait();
        }
    }
}

/// Root of the repository.
pub(crate) fn root() -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    path.canonicalize().unwrap_or(path)
}

/// Returns the paths of the repository's files that match patterns of git, sorted; new files are included.
///
/// # Errors
/// If git fails.
pub(crate) fn git_files(root: &Path, patterns: &[&str]) -> Result<Vec<String>, String> {
    let listed = Command::new("git")
        .args(["ls-files", "-co", "--exclude-standard", "--"])
        .args(patterns)
        .current_dir(root)
        .output()
        .map_err(|e| format!("git: {e}"))?;
    if !listed.status.success() {
        return Err(format!("git ls-files: {}", String::from_utf8_lossy(&listed.stderr)));
    }
    let mut paths: Vec<String> = String::from_utf8_lossy(&listed.stdout).lines().map(str::to_owned).collect();
    paths.sort();
    Ok(paths)
}

/// Writes an executable shell script.
fn script(path: &Path, code: &str) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::write(path, format!("#!/bin/sh\n{code}\n"))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}
