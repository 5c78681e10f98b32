//! Code blocks of a Markdown document, and the commands of shell blocks.

use std::process::Command;

/// Fenced code block of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    /// Line number of the first line of code, from 1.
    pub line: usize,
    /// Language after the opening fence; empty if there is none.
    pub language: String,
    /// Code without the indentation of the fence.
    pub code: String,
}

/// Part of a block that is run by itself: a shell command, or a whole block in another language.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    /// Line number of the part's first line, from 1.
    pub line: usize,
    /// Code of the part. A shell command has no prompt.
    pub code: String,
    /// Output that the document shows below a command of a `console` block.
    pub output: Option<String>,
}

/// Returns the fenced code blocks of a Markdown text, without blocks that are marked as `text`.
pub(crate) fn blocks(markdown: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut open: Option<(usize, Block)> = None;
    for (line, number) in markdown.lines().zip(1..) {
        let trimmed = line.trim_start();
        let indentation = line.len() - trimmed.len();
        match (&mut open, trimmed.strip_prefix("```")) {
            (None, Some(language)) => {
                let language = language.trim().to_owned();
                open = Some((indentation, Block { line: number + 1, language, code: String::new() }));
            }
            (Some(_), Some("")) => found.extend(open.take().map(|(_, block)| block)),
            (Some((fence, block)), _) => {
                block.code += line.get(indentation.min(*fence)..).unwrap_or_default();
                block.code.push('\n');
            }
            (None, None) => {}
        }
    }
    found.retain(|block| block.language != "text");
    found
}

/// True if the language of a block is shell. Blocks without a language are shell.
pub(crate) fn is_shell(language: &str) -> bool {
    ["", "sh", "bash", "shell", "console"].contains(&language)
}

/// Splits a block into its parts, in order.
pub(crate) fn parts(block: &Block) -> Vec<Part> {
    match block.language.as_str() {
        language if is_shell(language) && block.code.starts_with("$ ") => console_commands(block),
        language if is_shell(language) => shell_commands(block),
        _ => vec![Part { line: block.line, code: block.code.clone(), output: None }],
    }
}

/// Splits a block of a terminal: commands follow `$ `, further lines of an incomplete command follow `> `, and the other lines are
/// output.
fn console_commands(block: &Block) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for (text, line) in block.code.lines().zip(block.line..) {
        if let Some(command) = text.strip_prefix("$ ") {
            parts.push(Part { line, code: format!("{command}\n"), output: Some(String::new()) });
            continue;
        }
        let Some(last) = parts.last_mut() else { continue };
        match (text.strip_prefix("> "), &mut last.output) {
            (Some(more), Some(_)) if !is_complete(&last.code) => last.code += &format!("{more}\n"),
            (_, Some(output)) => *output += &format!("{text}\n"),
            (_, None) => {}
        }
    }
    parts
}

/// Splits shell code into commands. A command may take several lines: continued lines, here-documents, loops.
fn shell_commands(block: &Block) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut pending: Option<Part> = None;
    for (text, line) in block.code.lines().zip(block.line..) {
        let skipped = text.trim().is_empty() || text.trim_start().starts_with('#');
        if pending.is_none() && skipped {
            continue;
        }
        let part = pending.get_or_insert(Part { line, code: String::new(), output: None });
        part.code += &format!("{text}\n");
        if is_complete(&part.code) {
            parts.extend(pending.take());
        }
    }
    parts.extend(pending);
    parts
}

/// True if bash would not wait for further lines of a command.
fn is_complete(code: &str) -> bool {
    let last = code.lines().last().unwrap_or_default();
    let here = code.split_once("<<").map(|(_, rest)| rest.trim_start_matches('-').trim_start());
    let end = here.and_then(|rest| rest.split(|c: char| !c.is_alphanumeric() && !"'\"_".contains(c)).next());
    let end = end.map(|word| word.trim_matches(['\'', '"'])).filter(|word| !word.is_empty());
    if last.ends_with('\\') || end.is_some_and(|end| last.trim() != end) {
        return false;
    }
    Command::new("bash").args(["-n", "-c", code]).output().is_ok_and(|output| output.status.success())
}

/// Checks this file on a small document.
///
/// # Errors
/// If blocks or commands differ from the expected ones.
pub(crate) fn check() -> Result<(), String> {
    let page = "a\n```\none  # first\n\n# comment\ntwo \\\n  three\nfor x in 1; do\n  echo $x\ndone\n```\n- b\n\n  ```py\n  if x:\n    y\n  ```\n\
        ```text\nnot run\n```\n```console\n$ cat <<END\n> x\n> END\n> x\n\ny\n$ true\n```\n";
    let found: Vec<(usize, String, Option<String>)> =
        blocks(page).iter().flat_map(parts).map(|part| (part.line, part.code, part.output)).collect();
    let plain = |line: usize, code: &str| (line, code.to_owned(), None);
    let shown = |line: usize, code: &str, output: &str| (line, code.to_owned(), Some(output.to_owned()));
    let expected = vec![
        plain(3, "one  # first\n"),
        plain(6, "two \\\n  three\n"),
        plain(8, "for x in 1; do\n  echo $x\ndone\n"),
        plain(15, "if x:\n  y\n"),
        shown(22, "cat <<END\nx\nEND\n", "> x\n\ny\n"),
        shown(28, "true\n", ""),
    ];
    if found == expected { Ok(()) } else { Err(format!("expected {expected:#?}\nfound {found:#?}")) }
}
