//! Tests of the installed C library: its files and SONAME, `DESTDIR`, pkg-config and CMake, with the C example as the program.
//!
//! The quick scope installs the library that cargo built for the tests. The full scope also runs `make library` with an empty
//! target folder.

#[path = "../runtime/c/tests/common/mod.rs"]
mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::LazyLock;

use drift_tests::settings::Scope;
use libtest_mimic::{Arguments, Failed, Trial};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Output of the example program for the bundle of `common`.
const RESULT: &str = "y: shape 2 2, first value 1";

/// Folder with the bundle `small.drift`, and the library of the tests, installed below `prefix`.
static PLACE: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let place = tempfile::tempdir().unwrap();
    common::write_bundle(place.path());
    build(place.path());
    install(place.path(), &place.path().join("prefix"), "");
    place
});

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let is_full = Scope::from_environment().is_full();
    let prefix = || PLACE.path().join("prefix");
    let trials = vec![
        Trial::test("destdir", destdir),
        Trial::test("files_and_soname", move || files_and_soname(&prefix())),
        Trial::test("pkg_config", move || pkg_config(&prefix())),
        Trial::test("cmake", move || cmake(&prefix())),
        Trial::test("cmake_refuses_other_versions", cmake_refuses_other_versions),
        Trial::test("make_library", make_library)
            .with_kind(if is_full { "" } else { "full scope" })
            .with_ignored_flag(!is_full),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// `make library` with an empty target folder installs a library that works with pkg-config and CMake. DESTDIR does not change
/// the installed text.
fn make_library() -> Result<(), Failed> {
    let scratch = tempfile::tempdir()?;
    let path = |name: &str| scratch.path().join(name);
    let make = |destdir: &Path, prefix: &Path| {
        let mut command = Command::new("make");
        command.arg("library").arg(format!("PREFIX={}", prefix.display()));
        command.arg(format!("DESTDIR={}", destdir.display())).current_dir(root());
        done(command.env("CARGO_TARGET_DIR", path("target")).env_remove("MAKEFLAGS"))
    };
    make(Path::new(""), &path("prefix"))?;
    files_and_soname(&path("prefix"))?;
    pkg_config(&path("prefix"))?;
    cmake(&path("prefix"))?;
    make(&path("stage"), Path::new("/opt/drift"))?;
    files_and_soname(&path("stage/opt/drift"))
}

/// Files below DESTDIR name no folder.
fn destdir() -> Result<(), Failed> {
    let stage = PLACE.path().join("stage");
    install(PLACE.path(), Path::new("/opt/drift"), stage.to_str().ok_or("stage")?);
    files_and_soname(&stage.join("opt/drift"))
}

/// Checks the installed files, links and SONAME. The files name no folder, so that they can be moved together.
fn files_and_soname(prefix: &Path) -> Result<(), Failed> {
    let soname = format!("libdrift.so.{}", VERSION.split('.').next().unwrap_or_default());
    let file = format!("libdrift.so.{VERSION}");
    let mut found = BTreeSet::new();
    list(prefix, prefix, &mut found)?;
    let expected = [
        "include/drift.h".to_owned(),
        "lib/cmake/drift/drift-bundles.cmake".to_owned(),
        "lib/cmake/drift/drift-config-version.cmake".to_owned(),
        "lib/cmake/drift/drift-config.cmake".to_owned(),
        "lib/libdrift.a".to_owned(),
        format!("lib/libdrift.so -> {soname}"),
        format!("lib/{soname} -> {file}"),
        format!("lib/{file}"),
        "lib/pkgconfig/drift.pc".to_owned(),
    ];
    if found != BTreeSet::from(expected.clone()) {
        return Err(format!("installed: {found:#?}, expected: {expected:#?}").into());
    }
    let dynamic = done(Command::new("readelf").arg("-d").arg(prefix.join("lib").join(&file)))?;
    contains(&dynamic, &format!("soname: [{soname}]"))?;
    let text = std::fs::read_to_string(prefix.join("lib/pkgconfig/drift.pc"))?;
    contains(&text, &format!("Version: {VERSION}\n"))?;
    for name in
        ["pkgconfig/drift.pc", "cmake/drift/drift-config.cmake", "cmake/drift/drift-config-version.cmake"]
    {
        let text = std::fs::read_to_string(prefix.join("lib").join(name))?;
        if text.contains('@') || text.contains("=/") || text.contains(&prefix.display().to_string()) {
            return Err(format!("{name} has an unfilled field or an absolute path:\n{text}").into());
        }
    }
    Ok(())
}

/// Compiles the example with the flags of pkg-config, and runs it with each way to find the library that docs/EMBEDDING.md shows.
fn pkg_config(prefix: &Path) -> Result<(), Failed> {
    let scratch = tempfile::tempdir()?;
    let shell = |code: &str| {
        let mut command = Command::new("bash");
        command
            .args(["-euo", "pipefail", "-c", code])
            .current_dir(scratch.path())
            .env_remove("LD_LIBRARY_PATH");
        command.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")).env("ROOT", root());
        done(command.env("BUNDLE", PLACE.path().join("small.drift")))
    };
    shell("cc -std=c99 \"$ROOT/runtime/c/examples/run.c\" $(pkg-config --cflags --libs drift) -o run")?;
    contains(&shell("readelf -d run")?, "Shared library: [libdrift.so.0]")?;
    contains(&shell("LD_LIBRARY_PATH=$(pkg-config --variable=libdir drift) ./run \"$BUNDLE\"")?, RESULT)?;
    let rpath = "cc -std=c99 \"$ROOT/runtime/c/examples/run.c\" $(pkg-config --cflags --libs drift) \
        -Wl,-rpath,$(pkg-config --variable=libdir drift) -o run_rpath";
    shell(rpath)?;
    contains(&shell("./run_rpath \"$BUNDLE\"")?, RESULT)?;
    let fixed = "cc -std=c99 \"$ROOT/runtime/c/examples/run.c\" $(pkg-config --cflags drift) \
        $(pkg-config --variable=libdir drift)/libdrift.a \
        $(pkg-config --static --libs-only-l drift | sed 's/-ldrift //') -o run_static";
    shell(fixed)?;
    contains(&shell("./run_static \"$BUNDLE\"")?, RESULT)?;
    contains(&shell("pkg-config --define-variable=prefix=/moved --cflags drift")?, "-I/moved/include")
}

/// Builds the example with CMake, linked to the shared and to the static library, from a folder that was moved after the
/// installation.
fn cmake(prefix: &Path) -> Result<(), Failed> {
    let scratch = tempfile::tempdir()?;
    let moved = scratch.path().join("moved");
    done(Command::new("cp").arg("-a").arg(prefix).arg(&moved))?;
    let source = root().join("runtime/c/examples/run.c");
    let project = format!(
        "cmake_minimum_required(VERSION 3.13)\nproject(example C)\nfind_package(drift 0.1 REQUIRED)\n\
        add_executable(run {source})\ntarget_link_libraries(run PRIVATE drift::drift)\n\
        add_executable(run_static {source})\ntarget_link_libraries(run_static PRIVATE drift::drift_static)\n",
        source = source.display()
    );
    std::fs::write(scratch.path().join("CMakeLists.txt"), project)?;
    configure(scratch.path(), &moved)?;
    done(Command::new("cmake").args(["--build", "build"]).current_dir(scratch.path()))?;
    for program in ["run", "run_static"] {
        let mut command = Command::new(scratch.path().join("build").join(program));
        command.arg(PLACE.path().join("small.drift")).env_remove("LD_LIBRARY_PATH");
        contains(&done(&mut command)?, RESULT)?;
    }
    Ok(())
}

/// `find_package` accepts the installed version and no version, and refuses other major and minor versions.
fn cmake_refuses_other_versions() -> Result<(), Failed> {
    for (wanted, accepted) in
        [("", true), ("0", true), ("0.1.0 EXACT", true), ("0.2", false), ("1", false), ("0.1.9", false)]
    {
        let scratch = tempfile::tempdir()?;
        let project = format!(
            "cmake_minimum_required(VERSION 3.13)\nproject(example C)\nfind_package(drift {wanted} REQUIRED)\n"
        );
        std::fs::write(scratch.path().join("CMakeLists.txt"), project)?;
        let outcome = configure(scratch.path(), &PLACE.path().join("prefix"));
        if outcome.is_ok() != accepted {
            return Err(
                format!("find_package(drift {wanted}): expected {accepted}, found {outcome:?}").into()
            );
        }
    }
    Ok(())
}

fn configure(folder: &Path, prefix: &Path) -> Result<String, Failed> {
    let mut command = Command::new("cmake");
    command.args(["-S", ".", "-B", "build"]).arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display()));
    done(command.current_dir(folder))
}

/// Makes the shared and the static library of the tests in a folder.
fn build(folder: &Path) {
    let built = std::env::current_exe().unwrap();
    let mut command = Command::new(root().join("tests/library.sh"));
    done(command.arg(built.parent().unwrap()).arg(folder)).unwrap_or_else(|e| panic!("{e:?}"));
}

/// Installs the libraries of a folder.
fn install(folder: &Path, prefix: &Path, destdir: &str) {
    let mut command = Command::new(root().join("runtime/c/install.sh"));
    command.arg(folder).arg(prefix).env("DESTDIR", destdir);
    done(&mut command).unwrap_or_else(|e| panic!("{e:?}"));
}

/// Runs a program that must succeed. Returns its standard output.
fn done(command: &mut Command) -> Result<String, Failed> {
    let output = command.output().map_err(|e| format!("{command:?}: {e}; run `make setup`"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    Err(format!("{command:?}\n{}{}", text(&output.stdout), text(&output.stderr)).into())
}

fn contains(text: &str, part: &str) -> Result<(), Failed> {
    if text.contains(part) { Ok(()) } else { Err(format!("expected `{part}` in\n{text}").into()) }
}

/// Adds the paths of all files below a folder, relative to `prefix`; links have their targets.
fn list(prefix: &Path, folder: &Path, found: &mut BTreeSet<String>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.strip_prefix(prefix).unwrap_or(&path).display().to_string();
        if let Ok(target) = path.read_link() {
            found.insert(format!("{name} -> {}", target.display()));
        } else if path.is_dir() {
            list(prefix, &path, found)?;
        } else {
            found.insert(name);
        }
    }
    Ok(())
}

fn root() -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    path.canonicalize().unwrap_or(path)
}
