//! Texts of the user: prompts and system messages from the command line, from files and from standard input.

use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};

use clap::Args;

use crate::failure::{Failure, Result};

/// Value of `--prompt` that stands for standard input.
const STANDARD_INPUT: &str = "-";

/// System message of a chat.
#[derive(Debug, Args)]
pub(crate) struct SystemArgs {
    /// Start the chat with this system message
    #[arg(long, value_name = "TEXT", conflicts_with = "system_file")]
    system: Option<String>,
    /// Start the chat with the text of this file as the system message
    #[arg(long, value_name = "FILE.txt")]
    system_file: Option<PathBuf>,
}

impl SystemArgs {
    /// Returns the system message.
    ///
    /// # Errors
    /// If its file cannot be read or is not UTF-8.
    pub(crate) fn text(&self) -> Result<Option<String>> {
        match &self.system_file {
            Some(path) => read_file(path).map(Some),
            None => Ok(self.system.clone()),
        }
    }
}

/// Returns the prompt: `text`, or the text of the file `file`, or standard input if `text` is `-`. Without `text` and `file`,
/// returns standard input if it is no terminal.
///
/// # Errors
/// If there is no prompt, or it cannot be read or is not UTF-8.
pub(crate) fn prompt_text(text: Option<&str>, file: Option<&Path>) -> Result<String> {
    let missing = || {
        Failure::usage("there is no prompt")
            .help("give --prompt TEXT, --prompt-file FILE or --ids IDS.npy, or a text on standard input")
    };
    match (text, file) {
        (Some(STANDARD_INPUT), _) => read_standard_input(),
        (Some(text), _) => Ok(text.to_owned()),
        (None, Some(file)) => read_file(file),
        (None, None) if std::io::stdin().is_terminal() => Err(missing()),
        (None, None) => read_standard_input().and_then(|text| match text.is_empty() {
            true => Err(missing()),
            false => Ok(text),
        }),
    }
}

fn read_file(path: &Path) -> Result<String> {
    let text = std::fs::read_to_string(path).map_err(|e| Failure::file(path, &e))?;
    Ok(without_last_line_break(text))
}

fn read_standard_input() -> Result<String> {
    let mut text = String::new();
    let read = std::io::stdin().lock().read_to_string(&mut text);
    read.map_err(|e| Failure::input(format!("cannot read standard input: {e}")))?;
    Ok(without_last_line_break(text))
}

/// Removes one line break at the end, because editors and `echo` add it.
fn without_last_line_break(mut text: String) -> String {
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::without_last_line_break;

    #[test]
    fn only_the_last_line_break_is_removed() {
        let removed = |text: &str| without_last_line_break(text.to_owned());
        assert_eq!(removed("a\n\n"), "a\n");
        assert_eq!(removed("a\r\n"), "a");
        assert_eq!(removed("\na "), "\na ");
        assert_eq!(removed(""), "");
    }
}
