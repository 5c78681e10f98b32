//! Tests that errors of the Rust compiler name every place in the code that must be changed for a new operator.
//!
//! The test copies the crate `driftc` to a scratch folder, adds an operator `Dummy` as docs/ADDING.md says, and compares the
//! errors of `cargo check` with the expected ones. Two stages list what is missing; at the third, the crate compiles. A place
//! that can be forgotten without an error, such as a trait item with a default or a match with a wildcard, is missing from these
//! errors. The full scope runs the test, since it compiles the crate's dependencies once and the crate three times.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use drift_tests::settings::{self, Scope};
use libtest_mimic::{Arguments, Failed, Trial};

/// Files and folders that the crate needs, relative to the repository's root. The workspace's manifest is written anew.
const COPIED: &[&str] = &[
    "Cargo.lock",
    "compiler/Cargo.toml",
    "compiler/src",
    "compiler/spirv-tools",
    "runtime/format",
    "targets",
];

/// Registration of the operator: file, existing text, and the text that is inserted before its first occurrence.
const REGISTRATION: &[[&str; 3]] = &[
    ["compiler/src/ir/ops/mod.rs", "pub mod ", "pub mod dummy;\n"],
    ["compiler/src/ir/op.rs", "pub use super::ops::", "pub use super::ops::dummy::Dummy;\n"],
    ["compiler/src/ir/op.rs", "    Input = \"input\"", "    Dummy = \"dummy\",\n"],
];

/// File of the operator.
const OPERATOR_FILE: &str = "compiler/src/ir/ops/dummy.rs";

/// First stage of the operator's file: the struct of the operator (its payload), without any trait.
const PAYLOAD: &str = "\
//! An operator that exists only in a test.

/// An operator that exists only in a test.
pub struct Dummy {}
";

/// Second stage of the operator's file: derived traits, and an empty implementation of the trait of operators.
const EMPTY_IMPLEMENTATION: &str = "\
//! An operator that exists only in a test.

/// An operator that exists only in a test.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Dummy {}

impl crate::ir::op::Operation for Dummy {}
";

/// Third stage of the operator's file: every item of the trait. It compiles.
const IMPLEMENTATION: &str = "\
//! An operator that exists only in a test.

use crate::error::OpError;
use crate::ir::array::Array;
use crate::ir::dim::{Bindings, Dim};
use crate::ir::op::{Exactness, Facts, Fusion, LayoutClass, Operation, PrecisionClass};
use crate::ir::tensor::TensorDesc;

/// An operator that exists only in a test.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Dummy {}

impl Operation for Dummy {
    fn infer(&self, _inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        Err(OpError::new(\"dummy\"))
    }

    fn sizes_mut(&mut self) -> Vec<&mut Dim> {
        Vec::new()
    }

    fn fusion(&self) -> Fusion {
        Fusion::Opaque
    }

    fn facts(&self, _inputs: &[&TensorDesc]) -> Facts {
        Facts::new(LayoutClass::RowMajor, PrecisionClass::Other, Exactness::Independent)
    }

    fn eval(&self, _inputs: &[&Array], _out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        Err(OpError::new(\"dummy\"))
    }
}
";

/// Errors about a payload without traits: the derived traits and the trait of operators.
const TRAITS: &[&str] = &[
    "compiler/src/ir/op.rs E0277 Clone",
    "compiler/src/ir/op.rs E0277 Debug",
    "compiler/src/ir/op.rs E0277 Operation",
    "compiler/src/ir/op.rs E0277 serde::Serialize",
    "compiler/src/ir/op.rs E0277 serde::de::DeserializeOwned",
    "compiler/src/ir/op.rs E0369 ==",
];

/// Errors about an empty implementation: the items of the trait.
const ITEMS: &[&str] = &[
    "compiler/src/ir/ops/dummy.rs E0046 eval",
    "compiler/src/ir/ops/dummy.rs E0046 facts",
    "compiler/src/ir/ops/dummy.rs E0046 fusion",
    "compiler/src/ir/ops/dummy.rs E0046 infer",
    "compiler/src/ir/ops/dummy.rs E0046 sizes_mut",
];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let runs = Scope::from_environment().is_full();
    settings::report_ran(usize::from(runs), 1, "trials of a new operator");
    let trial = Trial::test("the_compiler_lists_every_place_of_a_new_operator", lists_every_place);
    libtest_mimic::run(&arguments, vec![trial.with_ignored_flag(!runs)]).exit_code()
}

fn lists_every_place() -> Result<(), Failed> {
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join("new_operator");
    let workspace = scratch.join("workspace");
    copy_crate(&workspace)?;
    for [file, existing, inserted] in REGISTRATION {
        insert_before(&workspace.join(file), existing, inserted)?;
    }
    let stages = [(PAYLOAD, TRAITS), (EMPTY_IMPLEMENTATION, ITEMS), (IMPLEMENTATION, &[])];
    for (text, expected) in stages {
        fs::write(workspace.join(OPERATOR_FILE), text)?;
        check(&workspace, &scratch.join("target"), expected)?;
    }
    Ok(())
}

/// Copies the crate `driftc` with its path dependencies to `workspace`, and writes a workspace manifest of these crates.
fn copy_crate(workspace: &Path) -> Result<(), Failed> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    if workspace.exists() {
        fs::remove_dir_all(workspace)?;
    }
    for path in COPIED {
        copy(&root.join(path), &workspace.join(path))?;
    }
    let manifest = fs::read_to_string(root.join("Cargo.toml"))?;
    let members =
        manifest.lines().find(|line| line.starts_with("members = ")).ok_or("no workspace members")?;
    fs::write(workspace.join("Cargo.toml"), manifest.replace(members, "members = [\"compiler\"]"))?;
    Ok(())
}

/// Copies a file, or a folder with all that it contains.
fn copy(from: &Path, to: &Path) -> Result<(), Failed> {
    if from.is_dir() {
        for entry in fs::read_dir(from)? {
            let path = entry?.path();
            copy(&path, &to.join(path.file_name().ok_or("a path without a name")?))?;
        }
        return Ok(());
    }
    fs::create_dir_all(to.parent().ok_or("a path without a folder")?)?;
    fs::copy(from, to)?;
    Ok(())
}

/// Inserts text into a file, before the first occurrence of `existing`.
fn insert_before(path: &Path, existing: &str, inserted: &str) -> Result<(), Failed> {
    let text = fs::read_to_string(path)?;
    let at = text.find(existing).ok_or_else(|| format!("{} has no `{existing}`", path.display()))?;
    let (before, after) = text.split_at(at);
    fs::write(path, [before, inserted, after].concat())?;
    Ok(())
}

/// Type-checks the crate and compares its errors with the expected ones.
///
/// # Errors
/// If the errors are not those in `expected`, each as its file, its code and a name.
fn check(workspace: &Path, target: &Path, expected: &[&str]) -> Result<(), Failed> {
    let done = Command::new(env!("CARGO"))
        .args(["check", "-p", "driftc", "--lib", "--offline", "--message-format=short", "--target-dir"])
        .arg(target)
        .current_dir(workspace)
        .env_remove("RUSTFLAGS")
        .output()?;
    let output = String::from_utf8_lossy(&done.stderr);
    let found: BTreeSet<String> = output.lines().filter_map(parse_error).flatten().collect();
    let wanted: BTreeSet<String> = expected.iter().map(|error| (*error).to_string()).collect();
    if found != wanted || done.status.success() != expected.is_empty() {
        return Err(format!("expected {wanted:#?}\nfound {found:#?}\n{output}").into());
    }
    Ok(())
}

/// Parses an error in cargo's short form, `FILE:LINE:COLUMN: error[CODE]: MESSAGE`, and returns `FILE CODE NAME`. For E0046 there
/// is an entry for each missing item. For other errors, NAME is the first quoted name that is not the added operator; without
/// such a name it is the whole message. Returns `None` for lines that are no errors.
fn parse_error(line: &str) -> Option<Vec<String>> {
    let (place, error) = line.split_once(": error")?;
    let (file, _) = place.split_once(':')?;
    let (code, message) =
        error.strip_prefix('[').and_then(|rest| rest.split_once("]: ")).unwrap_or(("", error));
    // Names are in backticks, so they are every second part.
    let names = message.split('`').skip(1).step_by(2);
    let names = names.map(|name| name.trim_start_matches("Dummy: ")).filter(|name| *name != "Dummy");
    let mut names: Vec<&str> = names.take(if code == "E0046" { usize::MAX } else { 1 }).collect();
    if code.is_empty() || names.is_empty() {
        names = vec![message];
    }
    Some(names.into_iter().map(|name| format!("{file} {code} {name}")).collect())
}
