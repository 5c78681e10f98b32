//! Rules of `rules.toml`: which parts of documents and which targets of the Makefile are run in another way than by default.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The file `rules.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rules {
    /// Rules of parts of documents.
    pub rule: Vec<Rule>,
    /// Shell code that prepares the folder of a document, by the document's path.
    pub setup: BTreeMap<String, String>,
    /// All targets of the Makefile.
    pub make: BTreeMap<String, Target>,
}

/// Rule of one or several parts of a document. Parts without a rule are run as they are, in both scopes.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Rule {
    /// Path of the document.
    pub document: String,
    /// Beginning of the part's code.
    pub starts: String,
    /// Reason why the part is never run.
    pub ignored: Option<String>,
    /// Reason why the part is run in the full scope only.
    pub full: Option<String>,
    /// Programs without which the part is ignored.
    pub programs: Vec<String>,
    /// Shell code that is run instead of the part, in the full scope too if there is no `quick`.
    pub instead: Option<String>,
    /// Shell code that is run instead of the part in the quick scope.
    pub quick: Option<String>,
    /// Code in the part's language that comes before it, such as declarations of its variables.
    pub given: Option<String>,
    /// Shell code that is run after the part and must succeed.
    pub after: Option<String>,
    /// Standard input of a command.
    pub input: String,
    /// Output of a command that runs in the background until the document ends: the next part starts when it appears.
    pub background: Option<String>,
}

/// Target of the Makefile.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Target {
    /// Reason why no test runs the target.
    pub ignored: Option<String>,
    /// Reason why the target is run in the full scope only.
    pub full: Option<String>,
    /// Programs without which the target is ignored.
    pub programs: Vec<String>,
    /// Output that shows that a target which runs until it is stopped has started.
    pub background: Option<String>,
}

impl Rules {
    /// Reads `rules.toml`.
    ///
    /// # Errors
    /// If the file is malformed.
    pub(crate) fn read() -> Result<Self, String> {
        toml::from_str(include_str!("rules.toml")).map_err(|e| format!("tests/documents/rules.toml: {e}"))
    }

    /// Returns the rule of a part with its index; of several rules, the rule with the longest beginning.
    pub(crate) fn of_part(&self, document: &str, code: &str) -> Option<(usize, &Rule)> {
        let matches = |rule: &Rule| rule.document == document && code.starts_with(&rule.starts);
        let found = self.rule.iter().enumerate().filter(|(_, rule)| matches(rule));
        found.max_by_key(|(_, rule)| rule.starts.len())
    }
}

/// Returns why a part or target is not run now, or `None` if it is run. `scope` is the reason why it is run in the full scope
/// only.
pub(crate) fn ignored(
    ignored: Option<&str>,
    scope: Option<&str>,
    programs: &[String],
    is_full: bool,
) -> Option<String> {
    let missing = || programs.iter().find(|program| !has_program(program));
    match (ignored, scope) {
        (Some(reason), _) => Some(reason.to_owned()),
        (None, Some(reason)) if !is_full => Some(format!("full scope: {reason}")),
        _ => missing().map(|program| format!("needs {program}")),
    }
}

/// True if a program exists. Its name may contain variables of the shell.
fn has_program(program: &str) -> bool {
    let found =
        std::process::Command::new("bash").args(["-c", &format!("command -v \"{program}\"")]).output();
    found.is_ok_and(|output| output.status.success())
}
