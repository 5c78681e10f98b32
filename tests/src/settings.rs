//! Environment variables of the tests. No other file of this package reads one.
//!
//! docs/CONTRIBUTING.md has the table of all variables.

use std::path::PathBuf;

/// How much the tests run: `DRIFT_TEST_SCOPE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// An evenly spread sample where a whole list takes too long on the software driver.
    Quick,
    /// Everything.
    Full,
}

impl Scope {
    /// Reads `DRIFT_TEST_SCOPE`; `quick` without it. Panics on any other value, so that a typing error is seen.
    pub fn from_environment() -> Self {
        match std::env::var("DRIFT_TEST_SCOPE").as_deref() {
            Err(_) | Ok("" | "quick") => Self::Quick,
            Ok("full") => Self::Full,
            Ok(other) => panic!("DRIFT_TEST_SCOPE is `{other}`: use `quick` or `full`"),
        }
    }

    /// True if everything runs.
    pub fn is_full(self) -> bool {
        self == Self::Full
    }
}

/// True if tests rewrite their expectations instead of comparing: `DRIFT_BLESS`.
pub fn bless() -> bool {
    std::env::var_os("DRIFT_BLESS").is_some()
}

/// True if the tests run on the software driver, not on the device that `DRIFT_TEST_DEVICE` names.
pub fn on_software_driver() -> bool {
    std::env::var_os("DRIFT_TEST_DEVICE").is_none()
}

/// Name of the profile that tests compile for: `DRIFT_TEST_TARGET`, or the software driver's.
pub fn target_name() -> String {
    std::env::var("DRIFT_TEST_TARGET").unwrap_or_else(|_| "lavapipe".into())
}

/// Folder of the official ONNX operator tests: `DRIFT_ONNX_NODE_DATA`. Empty without the variable.
pub fn onnx_node_data() -> PathBuf {
    PathBuf::from(std::env::var("DRIFT_ONNX_NODE_DATA").unwrap_or_default())
}

/// Python with the packages that `tests/setup.sh` installs: `DRIFT_PYTHON`, or the system's.
pub fn python() -> String {
    std::env::var("DRIFT_PYTHON").unwrap_or_else(|_| "python3".into())
}

/// Microsoft's HLSL compiler, where there is a package of it for this machine: `DRIFT_DXC`.
pub fn hlsl_compiler() -> Option<PathBuf> {
    std::env::var_os("DRIFT_DXC").map(PathBuf::from)
}

/// The spelling checker `typos`: `DRIFT_TYPOS`.
pub fn spelling_checker() -> PathBuf {
    required("DRIFT_TYPOS")
}

/// Folder of the sentence model: `DRIFT_MINILM`.
pub fn sentence_model() -> PathBuf {
    required("DRIFT_MINILM")
}

/// ONNX file of the text detector: `DRIFT_TEXT_MODEL`.
pub fn text_detector() -> PathBuf {
    required("DRIFT_TEXT_MODEL")
}

/// Prints how many items of a list ran, so that a sample is never taken for the whole.
pub fn report_ran(ran: usize, total: usize, items: &str) {
    println!("ran {ran} of {total} {items}");
}

fn required(name: &str) -> PathBuf {
    let value = std::env::var_os(name);
    value
        .map(PathBuf::from)
        .unwrap_or_else(|| panic!("{name} is not set: run `make setup`, then `. target/setup/env`"))
}
