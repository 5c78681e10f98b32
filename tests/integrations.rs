//! Tests of the integrations with build systems: each builds its example project of the folder `integrations`, builds it again
//! after changes, and shows the compiler's errors. An integration whose build system is not installed is listed as ignored.

#[path = "cli/fixture.rs"]
#[allow(dead_code, reason = "this test uses some of the helpers")]
mod fixture;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};

use drift_tests::settings::{self, Scope};
use fixture::{model, text};
use libtest_mimic::{Arguments, Failed, Trial};

/// Targets and options of the bundle that every example makes.
const OPTIONS: [&str; 8] =
    ["-t", "lavapipe", "-t", "vulkan-baseline", "--precision", "f16", "--dim", "n=1..4"];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let needs = |trial: Trial, program: &str| match has_program(program) {
        true => trial,
        false => trial.with_kind(format!("needs {program}")).with_ignored_flag(true),
    };
    let is_full = Scope::from_environment().is_full();
    let trials = vec![
        Trial::test("cargo", cargo),
        needs(Trial::test("cmake", cmake), "cmake"),
        needs(Trial::test("bazel", bazel), "bazel"),
        needs(Trial::test("gradle", gradle), "gradle"),
        needs(Trial::test("github", github), "jq"),
        Trial::test("fleet", fleet)
            .with_kind(if is_full { "" } else { "full scope: downloads Ray" })
            .with_ignored_flag(!is_full),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Copy of an example project in a temporary folder, with the model `detector.onnx`.
struct Project(tempfile::TempDir);

impl Project {
    fn new(name: &str) -> Result<Self, Failed> {
        let project = Self(tempfile::tempdir()?);
        let source = root().join("tests/integrations").join(name);
        done(Command::new("cp").arg("-r").arg(source.join(".")).arg(project.0.path()))?;
        project.write_model("Add")?;
        Ok(project)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a model with one operator.
    fn write_model(&self, operator: &str) -> Result<(), Failed> {
        Ok(std::fs::write(self.path("detector.onnx"), model(&[(operator, &["a", "b"], "y")]))?)
    }

    fn replace(&self, file: &str, old: &str, new: &str) -> Result<(), Failed> {
        let text = std::fs::read_to_string(self.path(file))?;
        if !text.contains(old) {
            return Err(format!("{file} does not contain `{old}`").into());
        }
        Ok(std::fs::write(self.path(file), text.replace(old, new))?)
    }

    /// Returns a command in the project's folder that finds the compiler by `DRIFTC`.
    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).current_dir(self.0.path()).env("DRIFTC", env!("CARGO_BIN_EXE_driftc"));
        command.env("XDG_CACHE_HOME", self.path("cache"));
        command
    }

    /// Builds the project, changes the model, and breaks it. `bundle` is the bundle that `build` makes with [`OPTIONS`].
    fn check(&self, bundle: &Path, build: &dyn Fn() -> Command) -> Result<(), Failed> {
        for operator in ["Add", "Sub"] {
            self.write_model(operator)?;
            done(&mut build())?;
            let expected = self.path("expected.drift");
            let mut compile = self.command(env!("CARGO_BIN_EXE_driftc"), &["compile", "detector.onnx"]);
            done(compile.args(OPTIONS).arg("-o").arg(&expected))?;
            if std::fs::read(bundle)? != std::fs::read(expected)? {
                return Err(format!("the bundle of the model with {operator} differs").into());
            }
        }
        let written = std::fs::metadata(bundle)?.modified()?;
        done(&mut build())?;
        if std::fs::metadata(bundle)?.modified()? != written {
            return Err("a build without changes made the bundle again".into());
        }
        self.write_model("NoSuchOperator")?;
        let failed = build().output()?;
        let shown = shown(&failed);
        match !failed.status.success() && shown.contains("NoSuchOperator") {
            true => Ok(()),
            false => Err(format!("expected an error of the compiler: {shown}").into()),
        }
    }
}

/// The crate `drift-build`, in a package whose build script calls it.
fn cargo() -> Result<(), Failed> {
    let project = Project::new("cargo")?;
    project.replace("Cargo.toml", "../../../runtime", root().join("runtime").to_str().ok_or("path")?)?;
    std::fs::copy(root().join("Cargo.lock"), project.path("Cargo.lock"))?;
    let build = || {
        let mut command = project.command("cargo", &["build", "--quiet", "--offline"]);
        command.env("CARGO_TARGET_DIR", project.path("target"));
        command
    };
    done(&mut build())?;
    let found = done(Command::new("find").arg(project.path("target")).args(["-name", "detector.app.drift"]))?;
    let bundle = PathBuf::from(found.trim());
    project.check(&bundle, &build)?;
    project.write_model("Add")?;
    done(&mut build())?;
    let printed = done(&mut project.command("target/debug/example", &[]))?;
    if printed != format!("{} bytes\n", std::fs::metadata(&bundle)?.len()) {
        return Err(format!("the program has another bundle: {printed}").into());
    }
    if project.path("drift.lock").exists() || project.path("bundles").exists() {
        return Err("the build script wrote to the package's folder".into());
    }
    let missing = build().env("DRIFTC", "/no/driftc").output()?;
    let shown = shown(&missing);
    match shown.contains("cannot run /no/driftc") && shown.contains("set DRIFTC") {
        true => Ok(()),
        false => Err(format!("expected an error about the compiler: {shown}").into()),
    }
}

/// The function `drift_add_bundle` of the installed CMake package.
fn cmake() -> Result<(), Failed> {
    let project = Project::new("cmake")?;
    let built = project.path("built");
    std::fs::create_dir(&built)?;
    // The package's function needs no library.
    for library in ["libdrift.a", "libdrift.so"] {
        std::fs::write(built.join(library), "")?;
    }
    let prefix = project.path("prefix");
    done(Command::new(root().join("runtime/c/install.sh")).arg(&built).arg(&prefix))?;
    let prefix = format!("-DCMAKE_PREFIX_PATH={}", prefix.display());
    done(&mut project.command("cmake", &["-S", ".", "-B", "build", &prefix]))?;
    let build = || project.command("cmake", &["--build", "build"]);
    project.check(&project.path("build/detector.drift"), &build)?;
    project.write_model("Add")?;
    done(&mut build())?;
    let mine = std::fs::read(project.path("build/bundles/mine.drift"))?;
    project.replace("mine.toml", "\"mine\"", "\"other\"")?;
    done(&mut build())?;
    if std::fs::read(project.path("build/bundles/mine.drift"))? == mine {
        return Err("a change of a profile did not change the bundle".into());
    }
    project.replace("CMakeLists.txt", "TARGETS ./mine.toml", "")?;
    let refused = project.command("cmake", &["-S", ".", "-B", "build"]).output()?;
    match shown(&refused).contains("no target profile; add TARGETS") {
        true => Ok(()),
        false => Err(shown(&refused).into()),
    }
}

/// The rule `drift_bundle` of Bazel.
fn bazel() -> Result<(), Failed> {
    let project = Project::new("bazel")?;
    project.replace("WORKSPACE", "../../../runtime", root().join("runtime").to_str().ok_or("path")?)?;
    let scratch = tempfile::tempdir()?;
    let output = format!("--output_user_root={}", scratch.path().display());
    let args = ["--batch", &output, "build", "--verbose_failures", "//..."];
    let outcome =
        project.check(&project.path("bazel-bin/detector.drift"), &|| project.command("bazel", &args));
    // Bazel removes write permissions from its outputs, so the folder could not be removed.
    done(Command::new("chmod").args(["-R", "u+w"]).arg(scratch.path()))?;
    outcome
}

/// The task `driftBundles` of Gradle.
fn gradle() -> Result<(), Failed> {
    let project = Project::new("gradle")?;
    std::fs::copy(root().join("runtime/build/gradle/drift.gradle"), project.path("drift.gradle"))?;
    let home = project.path("home").display().to_string();
    let build =
        || project.command("gradle", &["--no-daemon", "--offline", "--quiet", "-g", &home, "driftBundles"]);
    project.check(&project.path("build/generated/drift/assets/detector.app.drift"), &build)
}

/// The GitHub action: its schema, its shell scripts, and the schema of the example workflow.
fn github() -> Result<(), Failed> {
    let project = Project::new("cargo")?;
    let driftc = Path::new(env!("CARGO_BIN_EXE_driftc"));
    done(&mut project.command(env!("CARGO_BIN_EXE_driftc"), &["build", "--output", "other"]))?;
    let path =
        format!("export PATH={}:\"$PATH\"; exec \"$@\"", driftc.parent().unwrap_or(Path::new("")).display());
    let mut command = project.command("bash", &["-c", &path, "bash", &settings::python()]);
    command.arg(root().join("tests/integrations/github.py"));
    done(command.arg(root().join(".github/actions/driftc-build")).arg(project.0.path())).map(drop)
}

/// `python -m driftc.fleet` on a Ray cluster of two workers on this machine.
fn fleet() -> Result<(), Failed> {
    let scratch = tempfile::tempdir()?;
    let package = root().join("runtime/python");
    let environment = scratch.path().join("venv");
    done(Command::new(settings::python()).args(["-m", "venv"]).arg(&environment))?;
    let python = environment.join("bin/python");
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "numpy", "ray==2.60.0"];
    done(Command::new(&python).args(install))?;
    std::fs::write(scratch.path().join("a.onnx"), model(&[("Add", &["a", "b"], "y")]))?;
    std::fs::write(scratch.path().join("b.onnx"), model(&[("Neg", &["a"], "y")]))?;
    let mut command = Command::new(&python);
    command.arg(package.join("tests/test_fleet.py")).arg(scratch.path());
    command.env("PYTHONPATH", &package).env("DRIFTC", env!("CARGO_BIN_EXE_driftc"));
    command.env("DRIFT_LIBRARY", std::env::current_exe()?.with_file_name("libdrift.so"));
    print!("{}", done(&mut command)?);
    Ok(())
}

/// Runs a program that must succeed. Returns its standard output.
fn done(command: &mut Command) -> Result<String, Failed> {
    let output = command.output().map_err(|e| format!("{command:?}: {e}; run `make setup`"))?;
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(format!("{command:?}\n{}", shown(&output)).into()),
    }
}

fn shown(output: &Output) -> String {
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}

fn has_program(name: &str) -> bool {
    let found = Command::new("bash").args(["-c", &format!("command -v {name}")]).output();
    found.is_ok_and(|output| output.status.success())
}

fn root() -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    path.canonicalize().unwrap_or(path)
}
