//! Links as text: `FUNCTION.OUTPUT=FUNCTION.INPUT`, with `*` for any part of a name.

use std::str::FromStr;

use super::endpoint::{Endpoint, Link};
use crate::entry_points::EntryPoint;
use crate::error::{Error, Result};
use crate::suggest::did_you_mean;

/// Text of links, such as `encoder.hidden=decoder.hidden` or `decoder.present.*=decoder.past.*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkPattern {
    /// Function and output.
    from: String,
    /// Function and input.
    to: String,
}

impl FromStr for LinkPattern {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let wrong = || {
            "write FUNCTION.OUTPUT=FUNCTION.INPUT, for example encoder.hidden=decoder.hidden; `*` stands for any part of the names".to_string()
        };
        let (from, to) = text.split_once('=').ok_or_else(wrong)?;
        let [from, to] = [from.trim(), to.trim()];
        let stars = |text: &str| text.matches('*').count();
        if !from.contains('.') || !to.contains('.') || stars(from) != stars(to) || stars(from) > 1 {
            return Err(wrong());
        }
        Ok(Self { from: from.to_string(), to: to.to_string() })
    }
}

impl std::fmt::Display for LinkPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}={}", self.from, self.to)
    }
}

impl LinkPattern {
    /// Returns the links of a pattern. A pattern with `*` links each output that matches to the input with the same part.
    ///
    /// # Errors
    /// If a function, output or input does not exist.
    pub fn resolve(&self, entries: &[EntryPoint]) -> Result<Vec<Link>> {
        let (from, output) = split(entries, &self.from)?;
        let (to, input) = split(entries, &self.to)?;
        let outputs = names(entries, from, false);
        let inputs = names(entries, to, true);
        let matched: Vec<(String, String)> = match (output.split_once('*'), input.split_once('*')) {
            (Some((start, end)), Some((first, last))) => {
                let part = |name: &String| {
                    let part = name.strip_prefix(start)?.strip_suffix(end)?;
                    Some((name.clone(), format!("{first}{part}{last}")))
                };
                outputs.iter().filter_map(part).filter(|(_, input)| inputs.contains(input)).collect()
            }
            _ => vec![(output.to_string(), input.to_string())],
        };
        let known = |kind: &str, names: &[String], name: &str| match names.iter().any(|known| known == name) {
            true => Ok(()),
            false => Err(Error::request(
                format!("the link `{self}` names the {kind} `{name}`, which does not exist"),
                format!(
                    "{}the {kind}s are {}",
                    did_you_mean(name, names.iter().map(String::as_str)),
                    names.join(", ")
                ),
            )),
        };
        if matched.is_empty() {
            return Err(Error::request(
                format!("the link `{self}` matches no output and input"),
                format!("the outputs are {}; the inputs are {}", outputs.join(", "), inputs.join(", ")),
            ));
        }
        let mut links = Vec::new();
        for (output, input) in matched {
            known("output", &outputs, &output)?;
            known("input", &inputs, &input)?;
            links.push(Link {
                from: Endpoint { entry: from, name: output },
                to: Endpoint { entry: to, name: input },
            });
        }
        Ok(links)
    }
}

/// Splits `FUNCTION.NAME`. Both parts may contain dots, so the longest function name counts.
fn split<'a>(entries: &[EntryPoint], text: &'a str) -> Result<(usize, &'a str)> {
    let mut found: Option<(usize, &str)> = None;
    for (index, entry) in entries.iter().enumerate() {
        let Some(name) = text.strip_prefix(entry.name.as_str()).and_then(|rest| rest.strip_prefix('.'))
        else {
            continue;
        };
        if found.is_none_or(|(_, other)| name.len() < other.len()) {
            found = Some((index, name));
        }
    }
    found.ok_or_else(|| {
        let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
        let given = text.split('.').next().unwrap_or_default();
        Error::request(
            format!("the link end `{text}` names no function"),
            format!(
                "{}the functions are {}, as the names of the files without `.onnx`",
                did_you_mean(given, names.iter().copied()),
                names.join(", ")
            ),
        )
    })
}

/// Names of the inputs or outputs of an entry point.
fn names(entries: &[EntryPoint], entry: usize, inputs: bool) -> Vec<String> {
    let Some(graph) = entries.get(entry).map(|entry| &entry.graph) else { return Vec::new() };
    match inputs {
        true => graph.inputs().iter().filter_map(|id| Some(graph.input(*id)?.name.clone())).collect(),
        false => graph.outputs().iter().map(|output| output.name.clone()).collect(),
    }
}
