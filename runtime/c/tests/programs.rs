//! The C and C++ examples compile without warnings in strict modes, and run.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Compiles an example and links it to the static library next to the test program.
fn build(compiler: &str, flags: &[&str], source: &str, program: &Path) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let libraries = std::env::current_exe().unwrap().parent().map(Path::to_owned).unwrap();
    let output = Command::new(compiler)
        .args(flags)
        .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g", "-I"])
        .arg(folder.join("include"))
        .arg(folder.join("examples").join(source))
        .arg("-o")
        .arg(program)
        .arg(libraries.join("libdrift.a"))
        .args(["-lpthread", "-ldl", "-lm"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{compiler} {source}:\n{}", text(&output));
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn run(program: &Path, arguments: &[&str]) -> (bool, String) {
    let output = Command::new(program).args(arguments).output().unwrap();
    (output.status.success(), text(&output))
}

fn bundle(folder: &Path) -> (PathBuf, String) {
    let path = common::write_bundle(folder);
    let name = path.to_str().unwrap().to_owned();
    (path, name)
}

#[test]
fn the_c_example_runs() {
    let folder = tempfile::tempdir().unwrap();
    let (_, path) = bundle(folder.path());
    let program = folder.path().join("run");
    build("cc", &["-std=c99"], "run.c", &program);
    let (done, said) = run(&program, &[&path]);
    assert!(done && said.contains("y: shape 2 2, first value 1"), "{said}");
    let (done, said) = run(&program, &["/nowhere/at/all"]);
    assert!(!done && said.contains("/nowhere/at/all"), "{said}");
    assert!(!run(&program, &[]).0);
}

#[test]
fn the_cpp_example_runs() {
    let folder = tempfile::tempdir().unwrap();
    let (_, path) = bundle(folder.path());
    let program = folder.path().join("twice");
    build("c++", &["-std=c++11"], "twice.cpp", &program);
    let (done, said) = run(&program, &[&path, "2"]);
    assert!(done && said.contains("from 22 to 22"), "{said}");
    let (done, said) = run(&program, &["/nowhere/at/all", "2"]);
    assert!(!done && said.contains("/nowhere/at/all"), "{said}");
}
