//! Runs what the documents show: each shell command and each code block is a trial, and so is each target of the Makefile.
//!
//! A document's parts run in document order, in a scratch folder with small models (`documents/models.rs`). Parts run as they are;
//! `documents/rules.toml` lists the others: parts that need other hardware or software, parts of the full scope, and
//! declarations of variables that a block uses. A rule that matches no part is a failure.

mod documents {
    pub(crate) mod blocks;
    pub(crate) mod console;
    pub(crate) mod languages;
    pub(crate) mod makefile;
    pub(crate) mod models;
    pub(crate) mod place;
    pub(crate) mod rules;
}

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use documents::blocks::{self, Part};
use documents::place::{Place, git_files, root};
use documents::rules::{Rule, Rules, ignored};
use documents::{console, languages, makefile, models, place, rules};
use drift_tests::settings::{self, Scope};
use libtest_mimic::{Arguments, Failed, Trial};

/// Documents whose code blocks are run, as patterns of git.
const DOCUMENTS: &[&str] =
    &["README.md", "docs/*.md", "targets/README.md", "benches/README.md", "runtime/*.md", "models/*.md"];

/// File of the scratch folder with the code of the part that runs, for code that runs instead of it.
const BLOCK: &str = "home/block";

/// Document with the parts that are run.
struct Document {
    path: String,
    steps: Vec<Step>,
    /// Outcomes of the steps, in order. The first trial of the document runs all steps.
    outcomes: OnceLock<Vec<Result<(), String>>>,
}

/// Part of a document with its language and rule.
struct Step {
    part: Part,
    language: String,
    /// Index of the rule in `rules.toml`.
    rule: Option<usize>,
    /// Reason why the step is not run.
    ignored: Option<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let rules = Arc::new(Rules::read().unwrap_or_else(|e| panic!("{e}")));
    let documents = read(&rules).unwrap_or_else(|e| panic!("{e}"));
    let mut trials = vec![
        Trial::test("blocks are found", || Ok(blocks::check()?)),
        Trial::test("outputs are compared", || Ok(console::check()?)),
        Trial::test("models run", || Ok(models::check()?)).with_ignored_flag(!settings::on_software_driver()),
    ];
    let used: BTreeSet<usize> =
        documents.iter().flat_map(|document| &document.steps).filter_map(|step| step.rule).collect();
    let all = Arc::clone(&rules);
    let paths: Vec<String> = documents.iter().map(|document| document.path.clone()).collect();
    trials.push(Trial::test("every rule is used", move || every_rule_is_used(&all, &used, &paths)));
    trials.extend(makefile::trials(&rules));
    for document in documents {
        trials.extend(trials_of(document, &rules));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Reads the documents and finds the rule of each part.
fn read(rules: &Rules) -> Result<Vec<Document>, String> {
    let root = root();
    let is_full = Scope::from_environment().is_full();
    let mut documents = Vec::new();
    for path in git_files(&root, DOCUMENTS)? {
        let Ok(text) = std::fs::read_to_string(root.join(&path)) else { continue };
        let steps = blocks::blocks(&text).into_iter().flat_map(|block| {
            let language = block.language.clone();
            blocks::parts(&block).into_iter().map(move |part| (part, language.clone()))
        });
        let steps = steps.map(|(part, language)| {
            let found = rules.of_part(&path, &part.code);
            let rule = found.map(|(index, _)| index);
            let ignored = match found {
                _ if !settings::on_software_driver() => Some("runs on the software driver only".to_owned()),
                Some((_, rule)) => rule.ignored_now(is_full),
                None => makefile::ignored_now(rules, &part.code),
            };
            Step { part, language, rule, ignored }
        });
        let steps: Vec<Step> = steps.collect();
        documents.push(Document { path, steps, outcomes: OnceLock::new() });
    }
    Ok(documents)
}

impl Rule {
    /// Returns why parts with this rule are not run now, or `None` if they are run.
    fn ignored_now(&self, is_full: bool) -> Option<String> {
        ignored(self.ignored.as_deref(), self.full.as_deref(), &self.programs, is_full)
    }

    /// Returns the shell code that is run instead of parts with this rule.
    fn replacement(&self) -> Option<&str> {
        let is_full = Scope::from_environment().is_full();
        self.quick.as_deref().filter(|_| !is_full).or(self.instead.as_deref())
    }
}

fn every_rule_is_used(rules: &Rules, used: &BTreeSet<usize>, paths: &[String]) -> Result<(), Failed> {
    let unused = rules.rule.iter().enumerate().filter(|(index, _)| !used.contains(index));
    let unused =
        unused.map(|(_, rule)| format!("no part of {} starts with `{}`", rule.document, rule.starts));
    let missing = rules.setup.keys().filter(|path| !paths.contains(path));
    let missing = missing.map(|path| format!("setup: there is no document {path}"));
    let complaints: Vec<String> = unused.chain(missing).collect();
    if complaints.is_empty() { Ok(()) } else { Err(complaints.join("\n").into()) }
}

/// Returns the trials of a document. The name of a trial is the place and the first line of a part.
fn trials_of(document: Document, rules: &Arc<Rules>) -> Vec<Trial> {
    let document = Arc::new(document);
    let trial = |(index, step): (usize, &Step)| {
        let first = step.part.code.lines().next().unwrap_or_default();
        let name = format!("{}:{}: {}", document.path, step.part.line, shorten(first));
        let is_changed = step.rule.and_then(|index| rules.rule[index].replacement()).is_some();
        let name = if is_changed { format!("{name} [runs other commands]") } else { name };
        let (document, rules) = (Arc::clone(&document), Arc::clone(rules));
        trial(&name, step.ignored.as_deref(), move || {
            let outcomes = document.outcomes.get_or_init(|| run(&document, &rules));
            Ok(outcomes[index].clone()?)
        })
    };
    document.steps.iter().enumerate().map(trial).collect()
}

/// Returns a trial. If there is a reason to ignore it, its name ends with the reason.
fn trial(
    name: &str,
    ignored: Option<&str>,
    run: impl FnOnce() -> Result<(), Failed> + Send + 'static,
) -> Trial {
    match ignored {
        Some(reason) => Trial::test(format!("{name} ({reason})"), run).with_ignored_flag(true),
        None => Trial::test(name, run),
    }
}

/// Shortens a line to its first 50 characters or so, without a comment.
fn shorten(line: &str) -> String {
    let code = line.split("  #").next().unwrap_or_default().trim_end();
    match code.char_indices().nth(50) {
        Some((end, _)) => format!("{}…", &code[..end]),
        None => code.to_owned(),
    }
}

/// Runs all steps of a document that are not ignored. Returns the outcome of every step.
fn run(document: &Document, rules: &Rules) -> Vec<Result<(), String>> {
    let prepared = Place::new().and_then(|place| {
        let setup = rules.setup.get(&document.path).map_or("", String::as_str);
        place
            .shell(&format!("{setup}\n"), "")
            .map(|_| place)
            .map_err(|e| format!("setup of {}: {e}", document.path))
    });
    let mut place = match prepared {
        Ok(place) => place,
        Err(error) => return vec![Err(error); document.steps.len()],
    };
    let default = Rule::default();
    let outcome = |step: &Step| {
        let rule = step.rule.and_then(|index| rules.rule.get(index)).unwrap_or(&default);
        if step.ignored.is_some() { Ok(()) } else { run_step(&mut place, step, rule) }
    };
    document.steps.iter().map(outcome).collect()
}

fn run_step(place: &mut Place, step: &Step, rule: &Rule) -> Result<(), String> {
    let given = rule.given.as_deref().unwrap_or_default();
    std::fs::write(place.path().join(BLOCK), &step.part.code).map_err(|e| format!("{BLOCK}: {e}"))?;
    let (code, is_shell) = match rule.replacement() {
        Some(code) => (code, true),
        None => (step.part.code.as_str(), blocks::is_shell(&step.language)),
    };
    let output = match &rule.background {
        Some(text) => place.start(&[given, code].concat(), text).map(|()| String::new())?,
        None if is_shell => place.shell(&format!("{given}{code}"), &rule.input)?,
        None => languages::run(place, &step.language, step.part.line, code, given)?,
    };
    if let Some(shown) = &step.part.output {
        let home = place.path().join("home").display().to_string();
        console::compare(shown, &output.replace(&home, "~"))?;
    }
    if let Some(after) = &rule.after {
        place.shell(after, "").map_err(|e| format!("after the block: {e}"))?;
    }
    Ok(())
}
