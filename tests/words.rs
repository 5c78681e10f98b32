//! Tests of spelling and words: `typos` accepts the spelling as American English, and no file contains a word or phrase that
//! `words.toml` lists.

use std::path::{Path, PathBuf};
use std::process::Command;

use drift_tests::settings;
use serde::Deserialize;

/// Endings of the files that are searched for listed words.
const ENDINGS: &[&str] = &["rs", "wgsl", "md", "toml", "py", "ts", "mjs", "kt", "swift", "h", "c", "sh"];

/// Files and folders that are not searched: they hold text that other projects wrote, numbers, or the list of words itself.
const EXCEPT: &[&str] = &[
    "Cargo.lock",
    "targets/measured/",
    "tests/corpus/",
    "tests/text/",
    "tests/words.toml",
    "tests/words.rs",
];

/// Rule of `words.toml`: words and phrases that are not used, and what to write instead.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    words: Vec<String>,
    instead: String,
    #[serde(default)]
    except: Vec<String>,
}

/// The file `words.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    rule: Vec<Rule>,
}

#[test]
fn spelling_is_american() {
    let done = Command::new(settings::spelling_checker())
        .args(["--format", "brief"])
        .current_dir(root())
        .output()
        .unwrap();
    let found = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "`typos` finds wrong spelling; add exceptions to .typos.toml:\n{found}");
}

#[test]
fn no_banned_word_is_used() {
    let rules: Rules = toml::from_str(include_str!("words.toml")).unwrap();
    let mut found = Vec::new();
    for path in tracked_files() {
        let Ok(text) = std::fs::read_to_string(root().join(&path)) else { continue };
        let rules: Vec<&Rule> = rules
            .rule
            .iter()
            .filter(|rule| !rule.except.iter().any(|prefix| path.starts_with(prefix)))
            .collect();
        for (line, number) in text.lines().zip(1..) {
            found.extend(banned(line, &rules).map(|reason| format!("{path}:{number}: {reason}")));
        }
    }
    assert!(found.is_empty(), "{} places:\n{}", found.len(), found.join("\n"));
}

#[test]
fn a_banned_word_is_found_in_names_and_across_cases() {
    let rule = Rule { words: vec!["some word".into()], instead: "another".into(), except: Vec::new() };
    for line in ["let some_word = 1;", "// Some word.", "x.some word", "SOME_WORD"] {
        assert_eq!(banned(line, &[&rule]).count(), 1, "{line}");
    }
    for line in ["some words", "awesome word", "some  other word"] {
        assert_eq!(banned(line, &[&rule]).count(), 0, "{line}");
    }
}

/// Returns a message for each listed word or phrase that a line contains: the word, and what to write instead.
fn banned(line: &str, rules: &[&Rule]) -> impl Iterator<Item = String> {
    let spaced: String = line
        .chars()
        .map(|c| if c.is_alphanumeric() || c == '\'' { c.to_ascii_lowercase() } else { ' ' })
        .collect();
    let words = format!(" {} ", spaced.split_whitespace().collect::<Vec<_>>().join(" "));
    let mut reasons = Vec::new();
    for rule in rules {
        let hits = rule.words.iter().filter(|word| words.contains(&format!(" {word} ")));
        reasons.extend(hits.map(|word| format!("`{word}`: write {}", rule.instead)));
    }
    reasons.into_iter()
}

/// Returns the paths of the files that are searched: tracked by git, with a listed ending, relative to the repository's root.
fn tracked_files() -> Vec<String> {
    let listed = Command::new("git").arg("ls-files").current_dir(root()).output().unwrap();
    assert!(listed.status.success(), "git ls-files: {}", String::from_utf8_lossy(&listed.stderr));
    let names = String::from_utf8_lossy(&listed.stdout).into_owned();
    let wanted = |path: &&str| {
        let ending = path.rsplit_once('.').map_or("", |(_, ending)| ending);
        ENDINGS.contains(&ending) && !EXCEPT.iter().any(|prefix| path.starts_with(prefix))
    };
    names.lines().filter(wanted).map(str::to_owned).collect()
}

/// The repository's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
