//! Runs the Python package's tests with the C library and the program `driftc` of this build, and checks `pyproject.toml` of
//! the wheel.

use drift_tests::settings;
use std::path::Path;
use std::process::Command;

#[test]
fn the_package_works() {
    run("test_driftc.py", &[]);
}

#[test]
fn the_fleet_calls_driftc() {
    run("test_fleet_commands.py", &[]);
}

/// Makes pictures with a small diffusion model, and compares them with the pictures of diffusers.
#[test]
fn pictures_are_made() {
    run("test_pictures.py", &[]);
}

/// Transcribes recordings with small Whisper models, and compares them with the results of transformers.
#[test]
fn recordings_are_transcribed() {
    run("test_speech.py", &[]);
}

/// Compiles a recognizer of text lines, whose metadata has its characters, and reads a rendered line with numpy alone.
#[test]
fn a_line_of_text_is_read() {
    let recognizer = settings::text_detector().with_file_name("ch_PP-OCRv4_rec_infer.onnx");
    run("test_ocr.py", &[&recognizer]);
}

/// Runs the programs in `runtime/python/examples` with real models, and compares their results with results of onnxruntime.
#[test]
fn the_examples_work() {
    run("test_examples.py", &[]);
}

/// Runs a file of Python tests with arguments.
#[track_caller]
fn run(tests: &str, arguments: &[&Path]) {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../runtime/python");
    let library = std::env::current_exe().unwrap().with_file_name("libdrift.so");
    // `tests/setup.sh` installs a Python with numpy, onnx, pillow and the models of the examples.
    let python = settings::python();
    let status = Command::new(python)
        .arg(package.join("tests").join(tests))
        .args(arguments)
        .env("PYTHONPATH", &package)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("DRIFT_LIBRARY", library)
        .env("DRIFTC", env!("CARGO_BIN_EXE_driftc"))
        .status()
        .unwrap();
    assert!(status.success());
}

/// The wheel's `pyproject.toml` agrees with the sources: version, the two Cargo packages that it builds, their profile, and the
/// name of the program, which is built without SPIRV-Tools.
#[test]
fn the_wheel_is_described_by_what_there_is() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../runtime/python");
    let read = |path: &Path| {
        let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        text.parse::<toml::Table>().unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    };
    let described = read(&package.join("pyproject.toml"));
    let project = &described["project"];
    assert_eq!(project["name"].as_str(), Some("driftc"));
    assert_eq!(project["version"].as_str(), Some(env!("CARGO_PKG_VERSION")));
    let version = format!("__version__ = \"{}\"", env!("CARGO_PKG_VERSION"));
    assert!(std::fs::read_to_string(package.join("driftc/__init__.py")).unwrap().contains(&version));
    assert_eq!(project["requires-python"].as_str(), Some(">=3.10"));
    assert!(
        package.join("driftc/py.typed").is_file(),
        "`py.typed` is missing, so type checkers would ignore the annotations"
    );

    let tools = &described["tool"]["setuptools-rust"];
    let built = |kind: &str| {
        let [one] = tools[kind].as_array().unwrap().as_slice() else { panic!("one of {kind}") };
        let manifest = package.join(one["path"].as_str().unwrap());
        (one["target"].as_str().unwrap().to_owned(), read(&manifest))
    };
    let (library, manifest) = built("ext-modules");
    assert_eq!(
        library, "driftc._drift",
        "the library must have `drift` in its name, because `driftc._native` looks for such a file"
    );
    let kinds = manifest["lib"]["crate-type"].as_array().unwrap();
    assert!(kinds.iter().any(|kind| kind.as_str() == Some("cdylib")));
    let (program, manifest) = built("bins");
    let named = |bin: &toml::Value| bin["name"].as_str() == Some(&program);
    assert!(program == "driftc" && manifest["bin"].as_array().unwrap().iter().any(named));
    let arguments = tools["bins"][0]["args"].as_array().unwrap();
    let arguments: Vec<&str> = arguments.iter().map(|argument| argument.as_str().unwrap()).collect();
    let has = |words: &[&str]| arguments.windows(words.len()).any(|window| window == words);
    assert!(has(&["--no-default-features"]), "{arguments:?}");
    assert!(has(&["-p", "drift-c"]) && has(&["--lib"]), "one build for both: {arguments:?}");
    assert_eq!(arguments[0], "--profile");
    let workspace = read(&package.join("../../Cargo.toml"));
    let profiles = workspace["profile"].as_table().unwrap();
    assert!(profiles.contains_key(arguments[1]), "no profile `{}`", arguments[1]);
}
