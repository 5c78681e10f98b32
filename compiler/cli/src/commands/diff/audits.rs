//! Comparison of two reports of `driftc audit --json`: pipelines whose spills, occupancy or other facts changed, worse ones first.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use serde::Serialize;

use super::DiffArgs;
use super::report::Change;
use crate::audit_report::{Report, Row, Totals};
use crate::drivers::Fact;
use crate::failure::{Failure, Result};
use crate::output::Out;

/// Maximum number of pipelines to list without `--all`.
const MAX_LISTED: usize = 40;

#[derive(Debug, Serialize)]
struct AuditDiff {
    /// Differences of target, device and driver. If there are any, the pipelines are not comparable.
    compiled: Vec<Change>,
    totals: Vec<Change>,
    /// Pipelines that differ, the ones with most additional spills first.
    pipelines: Vec<PipelineDiff>,
}

#[derive(Debug, Serialize)]
struct PipelineDiff {
    kernel: String,
    node: String,
    /// Change of the number of spills; positive if the second report has more.
    more_spills: f64,
    changes: Vec<Change>,
}

/// True if a file is a JSON document, as `driftc audit --json` writes.
///
/// # Errors
/// If the file cannot be read.
pub(super) fn is_report(path: &Path) -> Result<bool> {
    let mut first = [0u8];
    let mut file = File::open(path).map_err(|e| Failure::file(path, &e))?;
    let read = file.read(&mut first).map_err(|e| Failure::file(path, &e))?;
    Ok(read == 1 && first == *b"{")
}

pub(super) fn run(args: &DiffArgs, out: &mut Out) -> Result<()> {
    let diff = compare(&read(&args.a)?, &read(&args.b)?);
    if args.json { out.json(&diff) } else { print(&diff, args.all, out) }
}

fn read(path: &Path) -> Result<Report> {
    let text = std::fs::read_to_string(path).map_err(|e| Failure::file(path, &e))?;
    serde_json::from_str(&text).map_err(|e| {
        Failure::input(format!("{} is no report of an audit: {e}", path.display()))
            .help("`driftc audit --json` writes one")
    })
}

fn compare(a: &Report, b: &Report) -> AuditDiff {
    let name = |what: &str, a: &str, b: &str| change(what, Some(a.to_owned()), Some(b.to_owned()));
    let compiled = [
        name("target", &a.target, &b.target),
        name("device", &a.device, &b.device),
        name("driver", &a.driver, &b.driver),
        name("driver version", &a.driver_info, &b.driver_info),
    ];
    let total = |what: &str, get: fn(&Totals) -> usize| {
        change(what, Some(get(&a.totals).to_string()), Some(get(&b.totals).to_string()))
    };
    let totals = [
        total("pipelines", |totals| totals.pipelines),
        total("refused", |totals| totals.refused),
        total("crashed", |totals| totals.crashed),
        total("timed out", |totals| totals.timed_out),
        total("with spills", |totals| totals.spilling),
        total("without the instructions of their shader", |totals| totals.emulated),
    ];
    let mut pairs: BTreeMap<(&str, &str), [Option<&Row>; 2]> = BTreeMap::new();
    for (side, report) in [a, b].into_iter().enumerate() {
        for row in &report.pipelines {
            let pair = pairs.entry((&row.node, &row.kernel)).or_default();
            if let Some(place) = pair.get_mut(side) {
                place.get_or_insert(row);
            }
        }
    }
    let mut pipelines: Vec<PipelineDiff> = pairs
        .into_iter()
        .map(|((node, kernel), [a, b])| PipelineDiff {
            kernel: kernel.to_owned(),
            node: node.to_owned(),
            more_spills: spills(b) - spills(a),
            changes: changes(a, b),
        })
        .filter(|pipeline| !pipeline.changes.is_empty())
        .collect();
    pipelines.sort_by_key(|pipeline| Reverse(pipeline.more_spills as i64));
    AuditDiff {
        compiled: compiled.into_iter().flatten().collect(),
        totals: totals.into_iter().flatten().collect(),
        pipelines,
    }
}

fn spills(row: Option<&Row>) -> f64 {
    row.and_then(|row| row.fact(Fact::Spills)).unwrap_or_default()
}

/// Returns what differs between two pipelines of a node, without the time to compile, which differs from run to run.
fn changes(a: Option<&Row>, b: Option<&Row>) -> Vec<Change> {
    let value = |row: Option<&Row>, get: &dyn Fn(&Row) -> Option<String>| row.and_then(get);
    let mut changes = Vec::new();
    let mut add = |what: &str, get: &dyn Fn(&Row) -> Option<String>| {
        changes.extend(change(what, value(a, get), value(b, get)));
    };
    add("failure", &|row| row.failure.clone());
    add("dispatches", &|row| Some(row.dispatches.to_string()));
    for (what, fact) in [
        ("spills", Fact::Spills),
        ("scratch bytes", Fact::ScratchBytes),
        ("registers", Fact::Registers),
        ("occupancy", Fact::Occupancy),
        ("workgroup memory", Fact::WorkgroupMemory),
        ("code bytes", Fact::CodeBytes),
        ("instructions", Fact::Instructions),
        ("cycles", Fact::Cycles),
    ] {
        add(what, &|row| row.fact(fact).map(|value| value.to_string()));
    }
    add("subgroup size", &|row| row.subgroup_size.map(|size| size.to_string()));
    add("matrix instructions", &|row| row.matrix_instructions.map(|emitted| emitted.to_string()));
    add("dot instructions", &|row| row.dot_instructions.map(|emitted| emitted.to_string()));
    changes
}

fn change(what: &str, a: Option<String>, b: Option<String>) -> Option<Change> {
    (a != b).then(|| Change { what: what.to_owned(), a, b })
}

fn print(diff: &AuditDiff, all: bool, out: &mut Out) -> Result<()> {
    let shown = |change: &Change| {
        let side = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".to_owned());
        format!("{} {} -> {}", change.what, side(&change.a), side(&change.b))
    };
    for change in diff.compiled.iter().chain(&diff.totals) {
        writeln!(out, "{}", shown(change))?;
    }
    if diff.pipelines.is_empty() {
        return Ok(writeln!(out, "no pipeline differs")?);
    }
    let listed = if all { diff.pipelines.len() } else { MAX_LISTED };
    for pipeline in diff.pipelines.iter().take(listed) {
        let changes: Vec<String> = pipeline.changes.iter().map(shown).collect();
        writeln!(out, "{} of {}: {}", pipeline.kernel, pipeline.node, changes.join(", "))?;
    }
    match diff.pipelines.len().saturating_sub(listed) {
        0 => Ok(()),
        more => Ok(writeln!(out, "{more} more pipelines; list them with --all")?),
    }
}
