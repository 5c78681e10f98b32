//! Report of a build, as JSON and as an HTML page: bundles, their figures and the figures of the lock file, budgets, errors.
//!
//! The report has no times of this machine, so equal builds write equal reports.

use std::fmt::Write;

use serde::Serialize;

use crate::build::actions::Action;
use crate::build::lock::{Lock, Locked, difference};
use crate::build::outcome::Finished;
use crate::build::record::TargetRecord;
use crate::failure::Result;
use crate::html_page::{STYLE, escape};
use crate::output::{bytes, nanoseconds};

/// Report of a build.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// Version of driftc.
    compiler: &'static str,
    pub(crate) bundles: Vec<BundleReport>,
}

/// Report of an action.
#[derive(Debug, Serialize)]
pub(crate) struct BundleReport {
    pub(crate) name: String,
    model: String,
    file: String,
    #[serde(flatten)]
    pub(crate) result: BundleResult,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum BundleResult {
    Made(Box<Made>),
    Failed { error: Vec<String>, help: Option<String> },
}

/// Bundle that was made.
#[derive(Debug, Serialize)]
pub(crate) struct Made {
    pub(crate) bundle: String,
    pub(crate) bytes: u64,
    pub(crate) targets: Vec<TargetRecord>,
    pub(crate) notes: Vec<String>,
    /// Limits that the bundle exceeds.
    pub(crate) over_budget: Vec<String>,
    /// Why the bundle differs from the lock file. Absent if it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) difference: Option<String>,
    /// The bundle of the lock file, if it differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) locked: Option<Locked>,
    #[serde(skip)]
    pub(crate) now: Locked,
}

impl Report {
    /// Makes the report of actions with their outcomes.
    pub(crate) fn new<'a>(
        outcomes: impl IntoIterator<Item = (&'a Action, &'a Result<Finished>)>,
        lock: &Lock,
    ) -> Self {
        let bundles = outcomes.into_iter().map(|(action, outcome)| {
            let file =
                action.output.file_name().map_or_else(String::new, |f| f.to_string_lossy().into_owned());
            BundleReport {
                name: action.name.clone(),
                model: action.model.clone(),
                file,
                result: result(action, outcome, lock),
            }
        });
        Self { compiler: env!("CARGO_PKG_VERSION"), bundles: bundles.collect() }
    }

    /// Bundles that were made.
    pub(crate) fn made(&self) -> impl Iterator<Item = (&BundleReport, &Made)> {
        self.bundles.iter().filter_map(|bundle| match &bundle.result {
            BundleResult::Made(made) => Some((bundle, made.as_ref())),
            BundleResult::Failed { .. } => None,
        })
    }

    /// Builds the HTML page.
    pub(crate) fn page(&self) -> String {
        let mut page = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>Build</title>\n\
             <style>{STYLE}</style>\n</head>\n<body>\n<h1>Build with driftc {}</h1>\n<table>\n<thead><tr><th>bundle</th>\
             <th class=\"n\">bytes</th><th>target</th><th class=\"n\">memory</th><th>estimated time</th><th>remarks</th>\
             </tr></thead>\n<tbody>\n",
            escape(self.compiler)
        );
        for bundle in &self.bundles {
            rows(&mut page, bundle);
        }
        page.push_str("</tbody>\n</table>\n</body>\n</html>\n");
        page
    }
}

fn result(action: &Action, outcome: &Result<Finished>, lock: &Lock) -> BundleResult {
    let finished = match outcome {
        Ok(finished) => finished,
        Err(failure) => {
            return BundleResult::Failed {
                error: failure.lines(),
                help: failure.advice().map(str::to_owned),
            };
        }
    };
    let record = &finished.record;
    let locked = lock.0.get(&action.name);
    let now = Locked::new(&action.name, &finished.keys.inputs, record);
    let difference = difference(locked, &now);
    BundleResult::Made(Box::new(Made {
        bundle: record.bundle.clone(),
        bytes: record.bytes,
        targets: record.targets.clone(),
        notes: record.notes.clone(),
        over_budget: action.budget.exceeded_by(record),
        locked: locked.filter(|_| difference.is_some()).cloned(),
        difference,
        now,
    }))
}

/// Appends the table rows of a bundle: one for each target. Writing to a string cannot fail.
fn rows(page: &mut String, bundle: &BundleReport) {
    let name = escape(&bundle.name);
    let made = match &bundle.result {
        BundleResult::Made(made) => made,
        BundleResult::Failed { error, .. } => {
            let _ = writeln!(
                page,
                "<tr><td>{name}</td><td class=\"n\"></td><td></td><td></td><td></td><td>failed: {}</td></tr>",
                escape(&error.join(": "))
            );
            return;
        }
    };
    let remarks: Vec<&str> =
        made.over_budget.iter().chain(&made.difference).chain(&made.notes).map(String::as_str).collect();
    let locked = made.locked.as_ref();
    let size = with_locked(bytes(made.bytes), locked.map(|l| bytes(l.bytes)));
    for (index, target) in made.targets.iter().enumerate() {
        let before = locked.and_then(|l| l.targets.iter().find(|t| t.target == target.target));
        let memory = with_locked(bytes(target.memory), before.map(|t| bytes(t.memory)));
        let times = target.functions.iter().map(|function| {
            let before = before.and_then(|t| t.functions.iter().find(|f| f.name == function.name));
            let time = with_locked(
                nanoseconds(function.estimated_ns as f64),
                before.map(|f| nanoseconds(f.estimated_ns as f64)),
            );
            format!("{} {time}", function.name)
        });
        let times = times.collect::<Vec<_>>().join(", ");
        let (name, size, remarks) = match index {
            0 => (name.as_str(), escape(&size), escape(&remarks.join("; "))),
            _ => ("", String::new(), String::new()),
        };
        let _ = writeln!(
            page,
            "<tr><td>{name}</td><td class=\"n\">{size}</td><td>{}</td><td class=\"n\">{}</td><td>{}</td><td>{remarks}</td></tr>",
            escape(&target.target),
            escape(&memory),
            escape(&times)
        );
    }
}

/// Returns a figure, with the lock file's figure if it differs.
fn with_locked(now: String, locked: Option<String>) -> String {
    match locked.filter(|locked| *locked != now) {
        Some(locked) => format!("{now} (locked {locked})"),
        None => now,
    }
}
