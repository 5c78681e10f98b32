//! Tests that no files of a crate import each other in a circle, except the operator enum with its operators.
//!
//! A file depends on another if its code, without tests, names an item of the other. Re-exports are followed to the file that
//! defines the item, so a `mod.rs` that only lists and re-exports its children depends on none of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use drift_tests::modules::{Module, modules};

/// Source folders of the crates that are checked for circular imports.
const CRATES: &[&str] = &[
    "benches/src",
    "compiler/cli/src",
    "compiler/src",
    "models/audio/src",
    "models/chat/src",
    "models/demo/src",
    "models/image/src",
    "models/serve/src",
    "models/src",
    "models/text/src",
    "runtime/c/src",
    "runtime/format/src",
    "runtime/src",
    "tests/src",
];

/// True for the files of the only allowed circle: the enum of all operators, and the files of its operators.
fn is_operator(name: &str) -> bool {
    name == "ir::op" || name.starts_with("ir::ops")
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut circles = Vec::new();
    for folder in CRATES {
        let modules = modules(&root.join(folder)).unwrap();
        assert!(!modules.is_empty(), "{folder} has no modules");
        for circle in circles_of(&modules) {
            if !circle.iter().all(|name| is_operator(name)) {
                circles.push(format!("{folder}: {}", circle.join(" <-> ")));
            }
        }
    }
    assert!(
        circles.is_empty(),
        "these files import each other in a circle; move what they share into another file:\n{}",
        circles.join("\n")
    );
}

/// Returns the groups of at least two modules that depend on each other, directly or through others.
fn circles_of(modules: &BTreeMap<String, Module>) -> Vec<Vec<String>> {
    let reachable: BTreeMap<&str, BTreeSet<&str>> =
        modules.keys().map(|name| (name.as_str(), reach(modules, name))).collect();
    let mut seen = BTreeSet::new();
    let mut circles = Vec::new();
    for name in modules.keys() {
        if !seen.insert(name.as_str()) {
            continue;
        }
        let others =
            reachable[name.as_str()].iter().filter(|other| reachable[*other].contains(name.as_str()));
        let circle: BTreeSet<&str> = others.copied().chain([name.as_str()]).collect();
        if circle.len() > 1 {
            seen.extend(circle.iter());
            circles.push(circle.into_iter().map(str::to_owned).collect());
        }
    }
    circles
}

/// Returns the modules that a module depends on, directly or through others.
fn reach<'a>(modules: &'a BTreeMap<String, Module>, from: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut waiting: Vec<&str> = modules[from].uses.iter().map(String::as_str).collect();
    while let Some(name) = waiting.pop() {
        if let Some((name, module)) = modules.get_key_value(name)
            && found.insert(name.as_str())
        {
            waiting.extend(module.uses.iter().map(String::as_str));
        }
    }
    found
}

#[test]
fn a_circle_is_found_through_a_re_export() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("lib.rs", "mod a;\nmod b;\npub mod c;\npub use b::B;\n");
    write("a.rs", "use crate::B;\npub struct A(B);\n");
    write("b.rs", "pub struct B;\npub fn f() { super::a::g(\"crate::c::x\") } // crate::c::y\n");
    write("c.rs", "#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n");
    let modules = modules(folder.path()).unwrap();
    assert_eq!(circles_of(&modules), [["a", "b"]]);
    assert!(modules["c"].uses.is_empty());
}
