//! Text output of `driftc audit`.

use std::io::Write;

use crate::audit_report::{Report, Row};
use crate::drivers::Fact;
use crate::failure::Result;
use crate::output::{Out, bytes, three_digits, time};
use std::time::Duration;

/// Maximum number of pipelines to list without `--all`.
const MAX_LISTED: usize = 20;
/// Maximum number of characters of a node's name.
const NODE_WIDTH: usize = 32;

/// Columns: heading, and the cell of a row.
type Column = (&'static str, fn(&Row) -> String);

const COLUMNS: &[Column] = &[
    ("kernel", |row| row.kernel.clone()),
    ("node", |row| shortened(&row.node)),
    ("uses", |row| row.dispatches.to_string()),
    ("compile", |row| row.compile_ms.map_or_else(none, milliseconds)),
    ("spills", |row| count(row, Fact::Spills)),
    ("scratch", |row| size(row, Fact::ScratchBytes)),
    ("registers", |row| count(row, Fact::Registers)),
    ("occupancy", |row| count(row, Fact::Occupancy)),
    ("workgroup memory", |row| size(row, Fact::WorkgroupMemory)),
    ("code", |row| size(row, Fact::CodeBytes)),
    ("instructions", |row| count(row, Fact::Instructions)),
    ("cycles", |row| count(row, Fact::Cycles)),
    ("subgroup", |row| row.subgroup_size.map_or_else(none, |n| n.to_string())),
    ("matrix", |row| row.matrix_instructions.map_or_else(none, yes_or_no)),
    ("dot", |row| row.dot_instructions.map_or_else(none, yes_or_no)),
    ("shader", |row| row.shader.chars().take(8).collect()),
];

/// Prints the report. With `all`, lists all pipelines, else the worst ones.
pub(super) fn print(report: &Report, all: bool, out: &mut Out) -> Result<()> {
    let driver = format!("{} {}", report.driver, report.driver_info);
    writeln!(out, "{} for {} on {} ({})", report.bundle, report.target, report.device, driver.trim())?;
    let totals = &report.totals;
    let mut counts = vec![format!("{} pipelines in {}", totals.pipelines, milliseconds(totals.compile_ms))];
    for (count, what) in [
        (totals.refused, "refused"),
        (totals.crashed, "crashed"),
        (totals.timed_out, "timed out"),
        (totals.spilling, "with spills"),
        (totals.emulated, "without the instructions of their shader"),
    ] {
        counts.push(format!("{count} {what}"));
    }
    writeln!(out, "{}", counts.join(", "))?;
    if !report.statistics {
        writeln!(out, "the driver reports no statistics, so only compile times are known")?;
    }
    let listed = if all { report.pipelines.len() } else { MAX_LISTED };
    let rows: Vec<&Row> = report.pipelines.iter().take(listed).collect();
    writeln!(out)?;
    print_table(&rows, out)?;
    for row in rows.iter().filter(|row| row.failure.is_some()) {
        let failure = row.failure.as_deref().unwrap_or_default();
        writeln!(out, "{} of {}: {failure}", row.kernel, row.node)?;
    }
    match report.pipelines.len().saturating_sub(listed) {
        0 => Ok(()),
        more => Ok(writeln!(out, "{more} more pipelines; list them with --all")?),
    }
}

/// Prints the columns that have a value in any row.
fn print_table(rows: &[&Row], out: &mut Out) -> Result<()> {
    let used = |(_, cell): &&Column| rows.iter().any(|row| cell(row) != none());
    let columns: Vec<&Column> = COLUMNS.iter().filter(used).collect();
    let right: Vec<bool> =
        columns.iter().map(|(name, _)| !["kernel", "node", "shader"].contains(name)).collect();
    let heading = columns.iter().map(|(name, _)| (*name).to_owned()).collect();
    let cells = rows.iter().map(|row| columns.iter().map(|(_, cell)| cell(row)).collect());
    let table: Vec<Vec<String>> = std::iter::once(heading).chain(cells).collect();
    out.table(&right, &table)
}

fn none() -> String {
    "-".to_owned()
}

fn milliseconds(ms: f64) -> String {
    time(Duration::from_secs_f64(ms.max(0.0) / 1e3))
}

fn count(row: &Row, fact: Fact) -> String {
    row.fact(fact).map_or_else(none, |value| match value.fract() == 0.0 {
        true => format!("{value}"),
        false => three_digits(value),
    })
}

fn size(row: &Row, fact: Fact) -> String {
    row.fact(fact).map_or_else(none, |value| bytes(value.max(0.0) as u64))
}

fn yes_or_no(value: bool) -> String {
    if value { "yes" } else { "no" }.to_owned()
}

/// Returns the end of a node's name, which differs most between nodes.
fn shortened(node: &str) -> String {
    let length = node.chars().count();
    match length > NODE_WIDTH {
        true => format!("...{}", node.chars().skip(length + 3 - NODE_WIDTH).collect::<String>()),
        false => node.to_owned(),
    }
}
