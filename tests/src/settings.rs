//! Environment variables that the tests read. No other file of this package reads environment variables.
//!
//! docs/CONTRIBUTING.md has the table of all variables of the tests.

use std::path::PathBuf;

/// Scope of a test run, which `DRIFT_TEST_SCOPE` sets: the quick scope runs samples, the full scope everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Tests run an evenly spread sample of their cases where all cases would take too long on the software driver.
    Quick,
    /// Tests run all their cases.
    Full,
}

impl Scope {
    /// Reads `DRIFT_TEST_SCOPE` (default `quick`). Panics on values other than `quick` and `full`, so that typing errors are
    /// seen.
    pub fn from_environment() -> Self {
        match std::env::var("DRIFT_TEST_SCOPE").as_deref() {
            Err(_) | Ok("" | "quick") => Self::Quick,
            Ok("full") => Self::Full,
            Ok(other) => panic!("DRIFT_TEST_SCOPE is `{other}`: use `quick` or `full`"),
        }
    }

    /// True if tests run all their cases.
    pub fn is_full(self) -> bool {
        self == Self::Full
    }
}

/// True if `DRIFT_BLESS` is set: tests then rewrite their stored expectations instead of comparing with them.
pub fn bless() -> bool {
    std::env::var_os("DRIFT_BLESS").is_some()
}

/// True if the tests run on the software driver, because `DRIFT_TEST_DEVICE` names no device.
pub fn on_software_driver() -> bool {
    std::env::var_os("DRIFT_TEST_DEVICE").is_none()
}

/// True if the tests of kernels run on the newer Mesa that `make setup` unpacks (see `tests/runner.sh`).
pub fn on_newer_mesa() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    on_software_driver() && is_set("DRIFT_NEWER_MESA") && !is_set("DRIFT_SYSTEM_DRIVER")
}

/// Name of the target profile for which tests compile: the value of `DRIFT_TEST_TARGET`, or the software driver's profile.
pub fn target_name() -> String {
    std::env::var("DRIFT_TEST_TARGET").unwrap_or_else(|_| "lavapipe".into())
}

/// Folder of the official ONNX operator tests, from `DRIFT_ONNX_NODE_DATA`. The path is empty if the variable is not set.
pub fn onnx_node_data() -> PathBuf {
    PathBuf::from(std::env::var("DRIFT_ONNX_NODE_DATA").unwrap_or_default())
}

/// Folder of GPU drivers that need no GPU, from `DRIFT_DRIVERS`, if it has been filled.
pub fn drivers() -> Option<PathBuf> {
    std::env::var_os("DRIFT_DRIVERS").map(PathBuf::from).filter(|folder| folder.join("run").is_file())
}

/// Python interpreter with the packages that `tests/setup.sh` installs: the value of `DRIFT_PYTHON`, or else `python3`.
pub fn python() -> String {
    std::env::var("DRIFT_PYTHON").unwrap_or_else(|_| "python3".into())
}

/// Path of Microsoft's HLSL compiler, from `DRIFT_DXC`. `None` on machines for which there is no package of the compiler.
pub fn hlsl_compiler() -> Option<PathBuf> {
    std::env::var_os("DRIFT_DXC").map(PathBuf::from)
}

/// Path of the spelling checker `typos`, from `DRIFT_TYPOS`.
pub fn spelling_checker() -> PathBuf {
    required("DRIFT_TYPOS")
}

/// Folder of the sentence-embedding model MiniLM, from `DRIFT_MINILM`.
pub fn sentence_model() -> PathBuf {
    required("DRIFT_MINILM")
}

/// Path of the ONNX file of the text detector for the demo page, from `DRIFT_TEXT_MODEL`.
pub fn text_detector() -> PathBuf {
    required("DRIFT_TEXT_MODEL")
}

/// Prints how many of all items (cases, trials) a test ran, so that nobody takes a sample for the whole list.
pub fn report_ran(ran: usize, total: usize, items: &str) {
    println!("ran {ran} of {total} {items}");
}

fn required(name: &str) -> PathBuf {
    let value = std::env::var_os(name);
    value
        .map(PathBuf::from)
        .unwrap_or_else(|| panic!("{name} is not set: run `make setup`, then `. target/setup/env`"))
}
