//! Tuning database: measured times of candidates on a device, as text that can be read, compared and merged.
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
//! Problems are grouped by the profile they were planned for. Each configuration has its time in nanoseconds. The
//! digits after a kernel's name are from the hash of its source, so measurements of an older source do not apply. The
//! printed form is canonical: targets and problems are sorted by name, configurations by time. Empty lines and lines
//! that start with `#` are dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::sync::LazyLock;

use super::choice::Choice;
use crate::error::{Error, Result};
use crate::ir::graph_text::{epilogue_text, op_text};
use crate::kernels::{KERNELS, Kernel};
use crate::shader::problem::{Operand, Placement, Problem};
use crate::shader::specialize::strip_comments;

const FIRST_LINE: &str = "driftc tuning 1";
/// Maximum bytes of a tuning database file.
const MAX_BYTES: u64 = 256 << 20;

/// Result of the measurement of a candidate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Outcome {
    /// Measured time in nanoseconds, positive.
    Time(f64),
    /// The driver refused the pipeline or lost the device.
    Failed,
}

/// Measurements of one problem, by the candidate's key in the tuning database ([`configuration_with_hash`]).
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
    /// Returns the measurement of a candidate, given its key in the tuning database ([`configuration_with_hash`]).
    pub fn get(&self, configuration: &str) -> Option<Outcome> {
        self.0.get(configuration).copied()
    }

    /// Iterates over all measured configurations of the problem with their results.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Outcome)> {
        self.0.iter().map(|(configuration, outcome)| (configuration.as_str(), *outcome))
    }
}

impl Database {
    /// Reads a tuning database from a file.
    ///
    /// # Errors
    /// If the file cannot be read, or is not a tuning database.
    pub fn load(path: &Path) -> Result<Self> {
        let wrong = |e: std::io::Error| Error::Io { path: path.to_owned(), reason: e.to_string() };
        let size = std::fs::metadata(path).map_err(wrong)?.len();
        if size > MAX_BYTES {
            return Err(malformed(
                path,
                0,
                &format!("the file has {size} bytes; at most {MAX_BYTES} are read"),
            ));
        }
        let bytes = std::fs::read(path).map_err(wrong)?;
        let text = String::from_utf8(bytes).map_err(|_| malformed(path, 0, "the file is not UTF-8 text"))?;
        Self::parse(&text).map_err(|(line, reason)| malformed(path, line, &reason))
    }

    /// Parses the text form of a tuning database.
    ///
    /// # Errors
    /// Returns the number of the invalid line, counted from 1, and the reason.
    pub fn parse(text: &str) -> std::result::Result<Self, (usize, String)> {
        let mut database = Self::default();
        let mut lines = text.lines().zip(1..);
        if lines.next().map(|(line, _)| line.trim_end()) != Some(FIRST_LINE) {
            return Err((1, format!("the file does not start with `{FIRST_LINE}`")));
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
            let section =
                section.as_deref_mut().ok_or_else(|| wrong("there is no `target` line before this line"))?;
            if let Some(device) = line.strip_prefix("device ") {
                section.device = device.to_string();
            } else if let Some(key) = line.strip_prefix("problem ") {
                section.problems.entry(key.to_string()).or_default();
                problem = Some(key.to_string());
            } else if let Some((outcome, configuration)) =
                line.strip_prefix("  ").and_then(|l| l.split_once(' '))
            {
                let outcome = parse_outcome(outcome)
                    .ok_or_else(|| wrong("expected a positive number of nanoseconds or `failed`"))?;
                let key =
                    problem.as_ref().ok_or_else(|| wrong("there is no `problem` line before this line"))?;
                if let Some(measured) = section.problems.get_mut(key) {
                    measured.0.insert(configuration.to_string(), outcome);
                }
            } else {
                return Err(wrong("expected `target`, `device`, `problem` or an indented time"));
            }
        }
        Ok(database)
    }

    /// Returns the canonical text form of the tuning database.
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
                configurations.sort_by(|a, b| sort_key(a.1).total_cmp(&sort_key(b.1)));
                for (configuration, outcome) in configurations {
                    match outcome {
                        Outcome::Time(ns) => line(format_args!("  {ns:.0} {configuration}\n")),
                        Outcome::Failed => line(format_args!("  failed {configuration}\n")),
                    }
                }
            }
        }
        text
    }

    /// Returns the hash of the tuning database's text form, for a bundle's provenance.
    pub fn hash(&self) -> String {
        blake3::hash(self.text().as_bytes()).to_hex().to_string()
    }

    /// Returns the name of the device on which a target was measured.
    pub fn device(&self, target: &str) -> Option<&str> {
        self.targets.get(target).map(|s| s.device.as_str()).filter(|d| !d.is_empty())
    }

    /// Sets the name of the device on which a target was measured.
    pub fn set_device(&mut self, target: &str, device: &str) {
        self.targets.entry(target.to_string()).or_default().device = device.lines().collect();
    }

    /// Returns the measurements of a problem for a target. `key` computes the problem's key; it is called only if the database
    /// has the target.
    pub fn measured(&self, target: &str, key: impl FnOnce() -> String) -> Option<&Measured> {
        self.targets.get(target)?.problems.get(&key())
    }

    /// Inserts the result of a measurement, replacing an earlier one. Times are rounded to nanoseconds, as in the text
    /// form.
    pub fn insert(&mut self, target: &str, key: &str, configuration: &str, outcome: Outcome) {
        let outcome = match outcome {
            Outcome::Time(ns) => Outcome::Time(ns.round().max(1.0)),
            Outcome::Failed => Outcome::Failed,
        };
        let section = self.targets.entry(target.to_string()).or_default();
        section.problems.entry(key.to_string()).or_default().0.insert(configuration.to_string(), outcome);
    }

    /// Number of measured problems of a target.
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

fn parse_outcome(text: &str) -> Option<Outcome> {
    if text == "failed" {
        return Some(Outcome::Failed);
    }
    let ns: u64 = text.parse().ok()?;
    (ns > 0).then_some(Outcome::Time(ns as f64))
}

fn sort_key(outcome: Outcome) -> f64 {
    match outcome {
        Outcome::Time(ns) => ns,
        Outcome::Failed => f64::INFINITY,
    }
}

/// Returns the key of a candidate in a tuning database: kernel, hash of its source without comments, and knobs.
pub fn configuration_with_hash(choice: &Choice) -> String {
    let kernel = format!("{}/{}", choice.kernel.name, kernel_hash(choice.kernel));
    with_knobs(kernel, choice)
}

/// Returns the hash of a kernel's source ([`source_hash`]). Each kernel's hash is computed once.
pub fn kernel_hash(kernel: &Kernel) -> String {
    static HASHES: LazyLock<BTreeMap<&str, String>> =
        LazyLock::new(|| KERNELS.iter().map(|kernel| (kernel.name, source_hash(kernel.wgsl))).collect());
    HASHES.get(kernel.name).cloned().unwrap_or_else(|| source_hash(kernel.wgsl))
}

/// Returns the first eight digits of the hash of a kernel's source. Comments do not count,
/// except markers of unrolled loops; indentation does.
pub fn source_hash(wgsl: &str) -> String {
    blake3::hash(strip_comments(wgsl).as_bytes()).to_hex().chars().take(8).collect()
}

/// Returns the key of a candidate in a profile's overrides: kernel and knobs.
pub fn configuration(choice: &Choice) -> String {
    with_knobs(choice.kernel.name.to_string(), choice)
}

fn with_knobs(mut key: String, choice: &Choice) -> String {
    for (name, value) in choice.candidate.knobs.iter() {
        key.write_fmt(format_args!(" {name}={value}")).unwrap_or_default();
    }
    key
}

/// Returns the key of a problem: everything that its time depends on. These are operator, types, shapes, placements,
/// fused epilogue and bounds.
pub fn key(problem: &Problem<'_>) -> String {
    describe_problem(problem, true)
}

/// Returns the key of a problem without its fused epilogue, as in a profile's overrides.
pub fn key_without_epilogue(problem: &Problem<'_>) -> String {
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
    // Names of symbols come from the model and may contain control characters; the key must be one line.
    text.replace(char::is_control, " ")
}

fn describe(operand: &Operand<'_>) -> String {
    let shape: Vec<String> = operand.shape.iter().map(ToString::to_string).collect();
    let constant = if operand.constant.is_some() { "const " } else { "" };
    let quantized = operand.quantized.map_or(String::new(), |codes| format!("{} ", codes.source.encoding));
    let text = format!("{constant}{quantized}{}[{}]", operand.dtype.name(), shape.join(", "));
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
    use super::{Database, Outcome, source_hash};

    const TEXT: &str = "driftc tuning 1\ntarget a\ndevice A, driver 1\nproblem matmul f32[1, 64]\n  \
        4120 matvec/1f0c93aa ROWS=2\n  failed matmul/5a0be6c1 TILE=8\ntarget b\nproblem x\n";

    #[test]
    fn comments_do_not_change_the_hash_of_a_source_but_unrolling_does() {
        let source = "const A = 1u; // a number\n\n// A comment.\nfn f() {}\n";
        assert_eq!(source_hash(source), source_hash("const A = 1u;\nfn f() {}"));
        assert_ne!(source_hash(source), source_hash("const A = 1u;\n// unroll\nfn f() {}"));
        assert_ne!(source_hash(source), source_hash("const A = 2u;\nfn f() {}"));
    }

    #[test]
    fn text_form_round_trips_and_is_canonical() {
        let database = Database::parse(TEXT).unwrap();
        assert_eq!(database.text(), TEXT);
        let loose = TEXT.replace("target b", "\n# a remark\ntarget b  ");
        assert_eq!(Database::parse(&loose).unwrap().hash(), database.hash());
        assert_eq!(database.device("a"), Some("A, driver 1"));
        assert_eq!((database.problems("a"), database.problems("c")), (1, 0));
    }

    #[test]
    fn outcomes_are_stored_by_target_problem_and_configuration() {
        let mut database = Database::parse(TEXT).unwrap();
        database.insert("a", "matmul f32[1, 64]", "matvec/1f0c93aa ROWS=2", Outcome::Time(99.4));
        let measured = database.measured("a", || "matmul f32[1, 64]".into()).unwrap();
        assert_eq!(measured.get("matvec/1f0c93aa ROWS=2"), Some(Outcome::Time(99.0)));
        assert_eq!(measured.get("matmul/5a0be6c1 TILE=8"), Some(Outcome::Failed));
        assert_eq!(measured.get("matvec"), None);
        assert!(database.measured("c", || unreachable!()).is_none());
        assert_ne!(database.hash(), Database::parse(TEXT).unwrap().hash());
    }

    #[test]
    fn invalid_databases_are_refused_with_the_line() {
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
