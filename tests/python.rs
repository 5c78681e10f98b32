//! Runs the Python package's own tests on the library and the program that Cargo has just built.

use std::path::Path;
use std::process::Command;

#[test]
fn the_package_works() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../runtime/python");
    let library = std::env::current_exe().unwrap().with_file_name("libdrift.so");
    // `tests/setup.sh` names one that has numpy and onnx.
    let python = std::env::var("DRIFT_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let status = Command::new(python)
        .arg(package.join("tests/test_driftc.py"))
        .env("PYTHONPATH", &package)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("DRIFT_LIBRARY", library)
        .env("DRIFTC", env!("CARGO_BIN_EXE_driftc"))
        .status()
        .unwrap();
    assert!(status.success());
}
