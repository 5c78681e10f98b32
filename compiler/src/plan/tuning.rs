//! A tuning database: how long candidates took on a device, as text that people read, compare and merge.
//!
//! ```text
//! driftc tuning 1
//! target some-device
//! device Some Device, driver 1.2.3
//! problem matmul f32[1, 64], const f32[64, 10] -> f32[1, 10]
//!   4120 matvec/1f0c93aa ROWS=2
//!   8034 matmul_direct/77d0e1b2
//!   failed matmul/5a0be6c1 TILE=8
//! ```
//!
//! Problems stand under the profile they were planned for, times in nanoseconds behind each configuration.
//! The digits behind a kernel's name are of its source's hash, so a changed kernel is no longer the one that was
//! measured. Printing is canonical: targets and problems by name, configurations from the fastest on, empty lines and lines
//! that start with `#` are not kept.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use super::choice::Choice;
use crate::error::{Error, Result};
use crate::ir::text::{epilogue_text, op_text};
use crate::shader::problem::{Operand, Placement, Problem};

const FIRST_LINE: &str = "driftc tuning 1";
/// A longer file is not a database.
const MAX_BYTES: u64 = 256 << 20;

/// What came of a measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Outcome {
    /// Nanoseconds, positive.
    Took(f64),
    /// The driver refused it or lost the device.
    Failed,
}

/// The outcomes of one problem, by [`configuration_with_hash`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Measured(BTreeMap<String, Outcome>);

#[derive(Debug, Clone, Default, PartialEq)]
struct Section {
    device: String,
    problems: BTreeMap<String, Measured>,
}

/// Measured times of the problems of any number of models and targets.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Database {
    targets: BTreeMap<String, Section>,
}

impl Measured {
    /// What came of measuring a [`configuration_with_hash`].
    pub fn get(&self, configuration: &str) -> Option<Outcome> {
        self.0.get(configuration).copied()
    }

    /// All configurations with their outcomes.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Outcome)> {
        self.0.iter().map(|(configuration, outcome)| (configuration.as_str(), *outcome))
    }
}

impl Database {
    /// Reads a database file.
    ///
    /// # Errors
    /// When it cannot be read, or is not a database.
    pub fn load(path: &Path) -> Result<Self> {
        let wrong = |e: std::io::Error| Error::Io { path: path.to_owned(), reason: e.to_string() };
        let size = std::fs::metadata(path).map_err(wrong)?.len();
        if size > MAX_BYTES {
            return Err(malformed(path, 0, &format!("it is {size} bytes long")));
        }
        let bytes = std::fs::read(path).map_err(wrong)?;
        let text = String::from_utf8(bytes).map_err(|_| malformed(path, 0, "it is not text"))?;
        Self::parse(&text).map_err(|(line, reason)| malformed(path, line, &reason))
    }

    /// Reads the text form.
    ///
    /// # Errors
    /// The number of the line that is wrong, from 1 on, and why.
    pub fn parse(text: &str) -> std::result::Result<Self, (usize, String)> {
        let mut database = Self::default();
        let mut lines = text.lines().zip(1..);
        if lines.next().map(|(line, _)| line.trim_end()) != Some(FIRST_LINE) {
            return Err((1, format!("it does not start with `{FIRST_LINE}`")));
        }
        let (mut section, mut problem): (Option<&mut Section>, Option<String>) = (None, None);
        for (line, number) in lines {
            let line = line.trim_end();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |reason: &str| (number, reason.to_string());
            if let Some(target) = line.strip_prefix("target ") {
                section = Some(database.targets.entry(target.to_string()).or_default());
                problem = None;
                continue;
            }
            let section = section.as_deref_mut().ok_or_else(|| wrong("no `target` line stands before it"))?;
            if let Some(device) = line.strip_prefix("device ") {
                section.device = device.to_string();
            } else if let Some(key) = line.strip_prefix("problem ") {
                section.problems.entry(key.to_string()).or_default();
                problem = Some(key.to_string());
            } else if let Some((outcome, configuration)) =
                line.strip_prefix("  ").and_then(|l| l.split_once(' '))
            {
                let outcome = outcome_of(outcome)
                    .ok_or_else(|| wrong("a time is a positive number of nanoseconds, or `failed`"))?;
                let key = problem.as_ref().ok_or_else(|| wrong("no `problem` line stands before it"))?;
                if let Some(measured) = section.problems.get_mut(key) {
                    measured.0.insert(configuration.to_string(), outcome);
                }
            } else {
                return Err(wrong("it is none of `target`, `device`, `problem` and an indented time"));
            }
        }
        Ok(database)
    }

    /// The canonical text.
    pub fn text(&self) -> String {
        let mut text = format!("{FIRST_LINE}\n");
        let mut line = |what: std::fmt::Arguments<'_>| text.write_fmt(what).unwrap_or_default();
        for (target, section) in &self.targets {
            line(format_args!("target {target}\n"));
            if !section.device.is_empty() {
                line(format_args!("device {}\n", section.device));
            }
            for (key, measured) in &section.problems {
                line(format_args!("problem {key}\n"));
                let mut configurations: Vec<(&str, Outcome)> = measured.iter().collect();
                configurations.sort_by(|a, b| rank(a.1).total_cmp(&rank(b.1)));
                for (configuration, outcome) in configurations {
                    match outcome {
                        Outcome::Took(ns) => line(format_args!("  {ns:.0} {configuration}\n")),
                        Outcome::Failed => line(format_args!("  failed {configuration}\n")),
                    }
                }
            }
        }
        text
    }

    /// The hash of the text, for a bundle's provenance.
    pub fn hash(&self) -> String {
        blake3::hash(self.text().as_bytes()).to_hex().to_string()
    }

    /// The device that the times of a target are of.
    pub fn device(&self, target: &str) -> Option<&str> {
        self.targets.get(target).map(|s| s.device.as_str()).filter(|d| !d.is_empty())
    }

    /// Says which device the times of a target are of.
    pub fn set_device(&mut self, target: &str, device: &str) {
        self.targets.entry(target.to_string()).or_default().device = device.lines().collect();
    }

    /// What was measured of a problem; its key is made only where the target is known.
    pub fn measured(&self, target: &str, key: impl FnOnce() -> String) -> Option<&Measured> {
        self.targets.get(target)?.problems.get(&key())
    }

    /// Keeps an outcome in place of an earlier one. Times are whole nanoseconds, as they are written.
    pub fn insert(&mut self, target: &str, key: &str, configuration: &str, outcome: Outcome) {
        let outcome = match outcome {
            Outcome::Took(ns) => Outcome::Took(ns.round().max(1.0)),
            Outcome::Failed => Outcome::Failed,
        };
        let section = self.targets.entry(target.to_string()).or_default();
        section.problems.entry(key.to_string()).or_default().0.insert(configuration.to_string(), outcome);
    }

    /// Problems that were measured for a target.
    pub fn problems(&self, target: &str) -> usize {
        self.targets.get(target).map_or(0, |s| s.problems.len())
    }
}

fn malformed(path: &Path, line: usize, reason: &str) -> Error {
    let place = if line == 0 { String::new() } else { format!(", line {line}") };
    Error::request(
        format!("{}{place}: not a tuning database: {reason}", path.display()),
        "`driftc tune` writes one",
    )
}

fn outcome_of(text: &str) -> Option<Outcome> {
    if text == "failed" {
        return Some(Outcome::Failed);
    }
    let ns: u64 = text.parse().ok()?;
    (ns > 0).then_some(Outcome::Took(ns as f64))
}

fn rank(outcome: Outcome) -> f64 {
    match outcome {
        Outcome::Took(ns) => ns,
        Outcome::Failed => f64::INFINITY,
    }
}

/// The configuration of a kernel, with the hash of its source.
pub fn configuration_with_hash(choice: &Choice) -> String {
    let hash = blake3::hash(choice.kernel.wgsl.as_bytes()).to_hex();
    let kernel = format!("{}/{}", choice.kernel.name, hash.get(..8).unwrap_or_default());
    with_knobs(kernel, choice)
}

/// The configuration of a kernel: its name and its parameters, as a profile's picks name it.
pub fn configuration(choice: &Choice) -> String {
    with_knobs(choice.kernel.name.to_string(), choice)
}

fn with_knobs(mut text: String, choice: &Choice) -> String {
    for (name, value) in &choice.candidate.knobs {
        text.write_fmt(format_args!(" {name}={value}")).unwrap_or_default();
    }
    text
}

/// Everything about a problem that the time depends on: operator, types, shapes, placements, fused epilogue, bounds.
pub fn key(problem: &Problem<'_>) -> String {
    describe_problem(problem, true)
}

/// The same without the fused epilogue: what a profile's picks name.
pub fn core_key(problem: &Problem<'_>) -> String {
    describe_problem(problem, false)
}

fn describe_problem(problem: &Problem<'_>, epilogue: bool) -> String {
    let (mut text, attributes) = op_text(problem.op);
    if attributes != "{}" {
        text.push(' ');
        text.push_str(&attributes);
    }
    let operands = if epilogue { problem.operands.len() } else { problem.arity };
    for (i, operand) in problem.operands.iter().take(operands).enumerate() {
        text.push_str(match i {
            0 => " ",
            i if i == problem.arity => " | ",
            _ => ", ",
        });
        text.push_str(&describe(operand));
    }
    let mut result = problem.result.clone();
    if epilogue {
        text.push_str(&epilogue_text(problem.epilogue));
        if problem.computed != problem.result.dtype {
            text.push_str(&format!(" as {}", problem.computed.name()));
        }
    } else {
        result.dtype = problem.computed;
    }
    text.push_str(" -> ");
    text.push_str(&describe(&result));
    let mut used = BTreeSet::new();
    for dim in problem.operands.iter().chain([&problem.result]).flat_map(|o| &o.shape) {
        dim.symbols(&mut used);
    }
    for (name, (low, high)) in problem.bounds.iter().filter(|(name, _)| used.contains(*name)) {
        text.push_str(&format!(" {name}={low}..{high}"));
    }
    // Names of symbols are the model's; the key is one line whatever they hold.
    text.replace(char::is_control, " ")
}

fn describe(operand: &Operand<'_>) -> String {
    let shape: Vec<String> = operand.shape.iter().map(ToString::to_string).collect();
    let constant = if operand.constant.is_some() { "const " } else { "" };
    let codes = operand.codes.map_or(String::new(), |codes| format!("{} ", codes.source.stored));
    let text = format!("{constant}{codes}{}[{}]", operand.dtype.name(), shape.join(", "));
    match &operand.placement {
        placement if placement.is_dense(&operand.shape) => text,
        Placement::Strided { strides, offset } => {
            let strides: Vec<String> = strides.iter().map(ToString::to_string).collect();
            format!("{text} at {offset} by [{}]", strides.join(", "))
        }
        placement => format!("{text} {placement:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Database, Outcome};

    const TEXT: &str = "driftc tuning 1\ntarget a\ndevice A, driver 1\nproblem matmul f32[1, 64]\n  \
        4120 matvec/1f0c93aa ROWS=2\n  failed matmul/5a0be6c1 TILE=8\ntarget b\nproblem x\n";

    #[test]
    fn the_text_reads_back_and_is_canonical() {
        let database = Database::parse(TEXT).unwrap();
        assert_eq!(database.text(), TEXT);
        let loose = TEXT.replace("target b", "\n# a remark\ntarget b  ");
        assert_eq!(Database::parse(&loose).unwrap().hash(), database.hash());
        assert_eq!(database.device("a"), Some("A, driver 1"));
        assert_eq!((database.problems("a"), database.problems("c")), (1, 0));
    }

    #[test]
    fn outcomes_are_kept_by_target_problem_and_way() {
        let mut database = Database::parse(TEXT).unwrap();
        database.insert("a", "matmul f32[1, 64]", "matvec/1f0c93aa ROWS=2", Outcome::Took(99.4));
        let measured = database.measured("a", || "matmul f32[1, 64]".into()).unwrap();
        assert_eq!(measured.get("matvec/1f0c93aa ROWS=2"), Some(Outcome::Took(99.0)));
        assert_eq!(measured.get("matmul/5a0be6c1 TILE=8"), Some(Outcome::Failed));
        assert_eq!(measured.get("matvec"), None);
        assert!(database.measured("c", || unreachable!()).is_none());
        assert_ne!(database.hash(), Database::parse(TEXT).unwrap().hash());
    }

    #[test]
    fn what_is_no_database_is_refused_with_its_line() {
        for (text, line) in [
            ("", 1),
            ("driftc tuning 2\n", 1),
            ("driftc tuning 1\nproblem x\n", 2),
            ("driftc tuning 1\ntarget a\n  4 x\n", 3),
            ("driftc tuning 1\ntarget a\nproblem x\n  -4 y\n", 4),
            ("driftc tuning 1\ntarget a\nproblem x\n  0 y\n", 4),
            ("driftc tuning 1\ntarget a\nwhatever\n", 3),
        ] {
            assert_eq!(Database::parse(text).map_err(|(n, _)| n), Err(line), "{text}");
        }
    }
}
