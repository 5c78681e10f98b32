//! Report of `driftc audit`: one row for each distinct pipeline, worst first, and the checks of `--max-spills` and the like.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::audit_report::{Report, Row, Totals};
use crate::driver_compiler::worker::{Compiled, Device};
use crate::driver_compiler::{DistinctPipeline, Facts, Outcome, ShaderUses, facts, same_pipeline};
use crate::drivers::{Driver, Fact};
use drift_runtime::format::{Manifest, Variant};

/// Limits that a report is checked against.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Limits {
    pub(super) spills: Option<f64>,
    pub(super) compile_ms: Option<f64>,
    pub(super) occupancy: Option<f64>,
}

/// Creates the report from the results of the pipelines.
pub(super) fn report(
    bundle: &str,
    (manifest, variant): (&Manifest, &Variant),
    device: Device,
    driver: Option<&Driver>,
    audited: &[DistinctPipeline],
    outcomes: Vec<Outcome>,
) -> Report {
    let mut rows = Vec::with_capacity(outcomes.len());
    let mut totals = Totals { pipelines: outcomes.len(), ..Totals::default() };
    for (audited, outcome) in audited.iter().zip(outcomes) {
        match &outcome {
            Outcome::Compiled(compiled) => totals.compile_ms += compiled.compile_ms,
            Outcome::Refused(_) => totals.refused += 1,
            Outcome::Crashed(_) => totals.crashed += 1,
            Outcome::TimedOut(_) => totals.timed_out += 1,
        }
        rows.push(row((manifest, variant), audited, outcome, driver));
    }
    totals.spilling = rows.iter().filter(|row| row.fact(Fact::Spills).is_some_and(|n| n > 0.0)).count();
    totals.emulated = rows.iter().filter(|row| row.is_emulated()).count();
    let badness = |row: &Row| {
        let whole = |value: Option<f64>| value.unwrap_or(0.0).max(0.0) as u64;
        (row.failure.is_some(), whole(row.fact(Fact::Spills)), row.is_emulated(), whole(row.compile_ms))
    };
    rows.sort_by_key(|row| Reverse(badness(row)));
    Report {
        bundle: bundle.to_owned(),
        target: variant.target.clone(),
        device: device.name,
        driver: device.driver,
        driver_info: device.driver_info,
        statistics: device.statistics,
        totals,
        pipelines: rows,
    }
}

fn row(
    (manifest, variant): (&Manifest, &Variant),
    audited: &DistinctPipeline,
    outcome: Outcome,
    driver: Option<&Driver>,
) -> Row {
    let pipeline = variant.pipelines.get(audited.index);
    let artifact = pipeline.and_then(|p| manifest.artifacts.get(p.artifact as usize));
    let same = |index: u32| {
        let other = variant.pipelines.get(index as usize);
        other.zip(pipeline).is_some_and(|(other, this)| same_pipeline(this, other))
    };
    let dispatches = variant.functions.iter().flat_map(|function| &function.dispatches);
    let users: Vec<&str> =
        dispatches.filter(|dispatch| same(dispatch.pipeline)).map(|d| d.label.as_str()).collect();
    let mut row = Row {
        kernel: pipeline.map_or_else(String::new, |p| p.name.clone()),
        node: users.first().map_or_else(String::new, |node| (*node).to_owned()),
        dispatches: users.len(),
        shader: artifact.map_or_else(String::new, |a| a.hash.to_string()),
        workgroup_size: pipeline.map_or([0; 3], |p| p.workgroup_size),
        failure: None,
        compile_ms: None,
        subgroup_size: None,
        facts: BTreeMap::new(),
        matrix_instructions: None,
        dot_instructions: None,
        statistics: BTreeMap::new(),
    };
    match outcome {
        Outcome::Compiled(compiled) => fill(&mut row, compiled, audited.uses, driver),
        Outcome::Refused(message) => row.failure = Some(format!("refused: {message}")),
        Outcome::Crashed(how) => row.failure = Some(format!("crashed: {how}")),
        Outcome::TimedOut(limit) => row.failure = Some(format!("took longer than {} s", limit.as_secs())),
    }
    row
}

fn fill(row: &mut Row, compiled: Compiled, uses: ShaderUses, driver: Option<&Driver>) {
    row.compile_ms = Some(compiled.compile_ms);
    row.subgroup_size = Some(compiled.subgroup_size).filter(|size| *size > 0);
    if let Some(driver) = driver {
        let Facts { values, matrix_instructions, dot_instructions } = facts(&compiled, uses, driver);
        row.facts = values;
        (row.matrix_instructions, row.dot_instructions) = (matrix_instructions, dot_instructions);
    }
    row.statistics = compiled.statistics.into_iter().collect();
}

/// Returns a sentence for each limit that a report exceeds, and for failures.
pub(super) fn violations(report: &Report, limits: Limits) -> Vec<String> {
    let mut sentences = Vec::new();
    let failed = report.pipelines.iter().filter(|row| row.failure.is_some()).count();
    if failed > 0 {
        sentences.push(format!("{failed} of {} pipelines were not compiled", report.totals.pipelines));
    }
    let mut check = |limit: Option<f64>, what: &str, value: &dyn Fn(&Row) -> Option<f64>, sign: f64| {
        let Some(limit) = limit else { return };
        let beyond = |row: &&Row| value(row).is_some_and(|value| value * sign > limit * sign);
        let count = report.pipelines.iter().filter(beyond).count();
        if count > 0 {
            let side = if sign > 0.0 { "more" } else { "less" };
            sentences.push(format!("{count} pipelines have {side} than {limit} {what}"));
        }
    };
    check(limits.spills, "spills", &|row| row.fact(Fact::Spills), 1.0);
    check(limits.compile_ms, "ms of compile time", &|row| row.compile_ms, 1.0);
    check(limits.occupancy, "subgroups of occupancy", &|row| row.fact(Fact::Occupancy), -1.0);
    sentences
}
