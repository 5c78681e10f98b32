//! Tests of the manual pages: exit codes, and environment variables.

use std::path::{Path, PathBuf};

use crate::fixture::{FOLDER, driftc, file, refused, text};

/// Folders of the sources that the program is built from.
const SOURCES: &[&str] = &["compiler", "models/src", "models/text/src", "runtime/src", "runtime/format/src"];
/// The only file of the command line that reads environment variables.
const TABLE: &str = "compiler/cli/src/environment.rs";

fn page() -> String {
    let done = driftc(&["man"]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    text(&done.stdout).replace("\\-", "-")
}

/// Section of a manual page, without its heading.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let after =
        page.split(&format!(".SH {heading}\n")).nth(1).unwrap_or_else(|| panic!("{heading} in\n{page}"));
    after.split(".SH ").next().unwrap()
}

/// Entries of a section: the bold terms.
fn terms(section: &str) -> Vec<String> {
    section.lines().filter_map(|line| line.strip_prefix(".B ")).map(str::to_owned).collect()
}

#[test]
fn every_page_has_examples_exit_codes_and_variables() {
    let folder = FOLDER.path().join("man1");
    let done = driftc(&["man", "--output-dir", folder.to_str().unwrap()]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    let listed = text(&done.stdout);
    assert!(listed.lines().count() > 20, "{listed}");
    for path in listed.lines() {
        let page = std::fs::read_to_string(path).unwrap();
        assert!(section(&page, "EXAMPLES").contains(".nf\ndriftc"), "{path}");
        assert_eq!(terms(section(&page, "\"EXIT STATUS\"")), ["0", "1", "2", "130"], "{path}");
        assert!(section(&page, "ENVIRONMENT").contains("DRIFT_DEVICE"), "{path}");
        assert!(page.contains(".SH OPTIONS") && !page.contains(".SH EXTRA"), "{path}");
    }
}

/// The program returns the exit code that each manual page documents. The interrupted chat, code 130, needs a terminal.
#[test]
fn the_program_exits_as_documented() {
    let codes = terms(section(&page(), "\"EXIT STATUS\""));
    let documented = |code: i32| assert!(codes.contains(&code.to_string()), "{code} in {codes:?}");
    for (args, code) in [
        (vec!["ops".to_owned()], 0),
        (vec!["--version".to_owned()], 0),
        (vec!["inspect".to_owned(), "missing.drift".to_owned()], 1),
        (vec!["compile".to_owned(), file("add.onnx")], 2),
        (vec!["--no-such-option".to_owned()], 2),
    ] {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        assert_eq!(driftc(&args).status.code(), Some(code), "{args:?}");
        documented(code);
    }
    refused(&["verify", &file("add.onnx"), "-t", "no-such-target"], 2, "no-such-target");
    let wrong = format!("y={}", file("wrong.npy"));
    let inputs = [format!("a={}", file("a.npy")), format!("b={}", file("b.npy"))];
    let target = crate::fixture::target();
    let args = ["verify", &file("add.onnx"), "-t", &target, "-i", &inputs[0], "-i", &inputs[1], "-e", &wrong];
    assert_eq!(driftc(&args).status.code(), Some(1));
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// Names of the environment variables that a source reads, and the number of reads whose name is no literal.
fn variables(source: &str) -> (Vec<String>, usize) {
    // Tests may read variables of their own.
    let code = source.split("#[cfg(test)]").next().unwrap_or_default();
    let (mut names, mut others) = (Vec::new(), 0);
    if code.contains("#[test]") {
        // A module that exists only in tests.
        return (names, others);
    }
    for call in ["env::var(", "env::var_os("] {
        for after in code.split(call).skip(1) {
            match after.strip_prefix('"').and_then(|rest| rest.split_once('"')) {
                Some((name, _)) => names.push(name.to_owned()),
                None => others += 1,
            }
        }
    }
    (names, others)
}

#[test]
fn the_environment_section_is_complete() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let mut files = Vec::new();
    SOURCES.iter().for_each(|folder| rust_files(&root.join(folder), &mut files));
    assert!(files.len() > 200, "{}", files.len());
    let listed = terms(section(&page(), "ENVIRONMENT"));
    let table = std::fs::read_to_string(root.join(TABLE)).unwrap();
    let mut read = Vec::new();
    for path in files.iter().filter(|path| **path != root.join(TABLE)) {
        let (names, others) = variables(&std::fs::read_to_string(path).unwrap());
        let name = path.strip_prefix(&root).unwrap().display();
        assert_eq!(others, 0, "{name}: read the variable by a literal name, or through {TABLE}");
        let in_cli = path.starts_with(root.join("compiler/cli"));
        assert!(!in_cli || names.is_empty(), "{name} reads {names:?}: use {TABLE}");
        read.extend(names);
    }
    for name in &read {
        assert!(listed.contains(name), "{name} is read, but {TABLE} does not list it");
    }
    // Each constant of the table is in the list, and the program reads it.
    let commands: String = files
        .iter()
        .filter(|path| path.starts_with(root.join("compiler/cli")) && **path != root.join(TABLE))
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect();
    let constants: Vec<&str> =
        table.split("const ").filter_map(|part| Some(part.split_once(": Variable")?.0)).collect();
    assert_eq!(constants.len(), listed.len(), "{TABLE}: list every constant in VARIABLES");
    for constant in constants {
        let value = table.split(&format!("const {constant}: Variable")).nth(1).unwrap();
        let name = value.split('"').nth(1).unwrap();
        let used =
            ["value()", "absolute_path()"].iter().any(|f| commands.contains(&format!("{constant}.{f}")));
        assert!(used || read.iter().any(|r| r == name), "{name} is listed in {TABLE}, but nothing reads it");
    }
}
