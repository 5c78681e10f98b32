//! Trials of the targets of the Makefile.

use std::collections::BTreeSet;
use std::sync::Arc;

use libtest_mimic::{Failed, Trial};

use crate::place::{Place, root};
use crate::rules::{Rules, Target, ignored};

/// Returns the trials: one compares the targets with the table, and one runs each target.
pub(crate) fn trials(rules: &Arc<Rules>) -> Vec<Trial> {
    let is_full = drift_tests::settings::Scope::from_environment().is_full();
    let all = Arc::clone(rules);
    let mut trials =
        vec![Trial::test("Makefile: every target is in the table and in `make help`", move || {
            Ok(every_target_is_listed(&all)?)
        })];
    for (name, target) in &rules.make {
        let (all, run_name) = (Arc::clone(rules), name.clone());
        let reason = ignored(target.ignored.as_deref(), target.full.as_deref(), &target.programs, is_full);
        let run = move || run(&run_name, &all.make[&run_name]);
        trials.push(crate::trial(&format!("Makefile: make {name}"), reason.as_deref(), run));
    }
    trials
}

/// Returns why the target that a command of a document names is not run with the document, or `None` if the command is something
/// else than `make TARGET`, or the table has no such target.
pub(crate) fn ignored_now(rules: &Rules, command: &str) -> Option<String> {
    let command = command.split('#').next().unwrap_or_default();
    let name = command.trim().strip_prefix("make ")?.trim();
    rules.make.get(name).map(|_| format!("see the trial `Makefile: make {name}`"))
}

fn run(name: &str, target: &Target) -> Result<(), Failed> {
    let mut place = Place::new()?;
    let make = format!("env -u PYTHONPATH -u DRIFTC -u DRIFT_LIBRARY make {name}\n");
    match &target.background {
        Some(text) => place.start(&make, text)?,
        None => drop(place.shell(&make, "")?),
    }
    Ok(())
}

fn every_target_is_listed(rules: &Rules) -> Result<(), String> {
    let path = root().join("Makefile");
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let targets: BTreeSet<&str> = text.lines().filter_map(target).collect();
    let listed: BTreeSet<&str> = rules.make.keys().map(String::as_str).collect();
    if targets != listed {
        return Err(format!(
            "the Makefile has the targets {targets:?}, but the table `make` of tests/documents/rules.toml has {listed:?}"
        ));
    }
    let phony = text.lines().find_map(|line| line.strip_prefix(".PHONY:")).unwrap_or_default();
    let phony: BTreeSet<&str> = phony.split_whitespace().collect();
    if phony != targets {
        return Err(format!("the Makefile has the targets {targets:?}, but .PHONY has {phony:?}"));
    }
    let header = text.split("\n\n").next().unwrap_or_default();
    let described: BTreeSet<&str> =
        header.lines().filter_map(|line| line.strip_prefix("# ")?.split_whitespace().next()).collect();
    let missing: Vec<&&str> =
        targets.iter().filter(|name| **name != "help" && !described.contains(**name)).collect();
    if missing.is_empty() { Ok(()) } else { Err(format!("`make help` does not describe {missing:?}")) }
}

/// Returns the target that a line of the Makefile defines.
fn target(line: &str) -> Option<&str> {
    let (name, rest) = line.split_once(':')?;
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '-');
    (is_name && !rest.starts_with('=')).then_some(name)
}
