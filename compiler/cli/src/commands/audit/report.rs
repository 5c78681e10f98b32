//! Report of `driftc audit`: one row for each distinct pipeline, worst first, and the checks of `--max-spills` and the like.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use drift_runtime::format::{Manifest, Variant};
use serde::Serialize;

use super::children::Outcome;
use super::shader_uses::ShaderUses;
use super::worker::{Compiled, Device};
use crate::drivers::{Driver, Fact};

/// Report about all pipelines of a variant.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) bundle: String,
    pub(super) target: String,
    /// Name of the device, as the driver reports it.
    pub(super) device: String,
    pub(super) driver: String,
    pub(super) driver_info: String,
    /// False if the driver reports no statistics; the rows then have compile times only.
    pub(super) statistics: bool,
    pub(super) totals: Totals,
    /// Distinct pipelines, the worst first.
    pub(super) pipelines: Vec<Row>,
}

/// Numbers of pipelines.
#[derive(Debug, Default, Serialize)]
pub(super) struct Totals {
    pub(super) pipelines: usize,
    pub(super) refused: usize,
    pub(super) crashed: usize,
    pub(super) timed_out: usize,
    /// Pipelines with spills.
    pub(super) spilling: usize,
    /// Pipelines whose shader multiplies matrices or computes packed dot products, but whose machine code has no such
    /// instruction.
    pub(super) emulated: usize,
    /// Sum of the compile times, in milliseconds.
    pub(super) compile_ms: f64,
}

/// A pipeline with the driver's report about it.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Row {
    /// Name of the kernel.
    pub(super) kernel: String,
    /// Node of the first dispatch with the pipeline.
    pub(super) node: String,
    /// Number of dispatches with the pipeline, over all functions.
    pub(super) dispatches: usize,
    /// Hash of the shader.
    pub(super) shader: String,
    pub(super) workgroup_size: [u32; 3],
    /// Refusal, crash or timeout; absent if the pipeline was compiled.
    pub(super) failure: Option<String>,
    pub(super) compile_ms: Option<f64>,
    pub(super) subgroup_size: Option<u32>,
    pub(super) facts: BTreeMap<Fact, f64>,
    /// True if the machine code has instructions that multiply matrices; absent if the shader needs none.
    pub(super) matrix_instructions: Option<bool>,
    /// True if the machine code has dot products of packed integers; absent if the shader needs none.
    pub(super) dot_instructions: Option<bool>,
    /// All statistics under the driver's names.
    pub(super) statistics: BTreeMap<String, f64>,
}

/// Limits that a report is checked against.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Limits {
    pub(super) spills: Option<f64>,
    pub(super) compile_ms: Option<f64>,
    pub(super) occupancy: Option<f64>,
}

impl Row {
    pub(super) fn fact(&self, fact: Fact) -> Option<f64> {
        self.facts.get(&fact).copied()
    }

    fn is_emulated(&self) -> bool {
        self.matrix_instructions == Some(false) || self.dot_instructions == Some(false)
    }
}

/// A pipeline to report about: its index, and the instructions that its shader is written for.
pub(super) struct Audited {
    pub(super) pipeline: usize,
    pub(super) uses: ShaderUses,
}

/// Creates the report from the results of the pipelines.
pub(super) fn report(
    bundle: &str,
    (manifest, variant): (&Manifest, &Variant),
    device: Device,
    driver: Option<&Driver>,
    audited: &[Audited],
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
    audited: &Audited,
    outcome: Outcome,
    driver: Option<&Driver>,
) -> Row {
    let pipeline = variant.pipelines.get(audited.pipeline);
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

/// True if two pipelines are compiled to the same code.
pub(super) fn same_pipeline(
    a: &drift_runtime::format::Pipeline,
    b: &drift_runtime::format::Pipeline,
) -> bool {
    a.artifact == b.artifact
        && a.entry == b.entry
        && a.bindings == b.bindings
        && a.required_subgroup_size == b.required_subgroup_size
}

fn fill(row: &mut Row, compiled: Compiled, uses: ShaderUses, driver: Option<&Driver>) {
    row.compile_ms = Some(compiled.compile_ms);
    row.subgroup_size = Some(compiled.subgroup_size).filter(|size| *size > 0);
    row.statistics = compiled.statistics.into_iter().collect();
    let Some(driver) = driver else { return };
    for (fact, names) in &driver.statistics {
        let values: Vec<f64> = names.iter().filter_map(|name| row.statistics.get(name).copied()).collect();
        if !values.is_empty() {
            row.facts.insert(*fact, values.iter().sum());
        }
    }
    let emitted = |parts: &[String]| {
        let known = !parts.is_empty() && !compiled.texts.is_empty();
        known.then(|| {
            compiled.texts.iter().any(|(_, text)| parts.iter().any(|part| text.contains(part.as_str())))
        })
    };
    if uses.matrices {
        row.matrix_instructions = emitted(&driver.matrix_instructions);
    }
    if uses.dot_products {
        row.dot_instructions = emitted(&driver.dot_instructions);
    }
}

impl Report {
    /// Returns a sentence for each limit that the report exceeds, and for failures.
    pub(super) fn violations(&self, limits: Limits) -> Vec<String> {
        let mut sentences = Vec::new();
        let failed = self.pipelines.iter().filter(|row| row.failure.is_some()).count();
        if failed > 0 {
            sentences.push(format!("{failed} of {} pipelines were not compiled", self.totals.pipelines));
        }
        let mut check = |limit: Option<f64>, what: &str, value: &dyn Fn(&Row) -> Option<f64>, sign: f64| {
            let Some(limit) = limit else { return };
            let beyond = |row: &&Row| value(row).is_some_and(|value| value * sign > limit * sign);
            let count = self.pipelines.iter().filter(beyond).count();
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
}
