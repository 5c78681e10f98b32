//! Lines of the user: from a line editor on a terminal, or as they are from a pipe or a file.

use std::io::{self, BufRead, IsTerminal, Lines, StdinLock};
use std::path::PathBuf;

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{
    Behavior, Cmd, ConditionalEventHandler, Config, Context, Editor, Event, EventContext, EventHandler,
    Helper, KeyEvent, Movement, RepeatCount,
};

use crate::chat_command::names_from;
use crate::failure::{Failure, Result};
use crate::output::note;

/// Maximum number of inputs in the history file.
const MAX_HISTORY: usize = 1000;
/// Prompts of the first line of an input, and of the lines that continue it.
const PROMPTS: (&str, &str) = ("> ", ". ");

/// Source of the user's inputs.
pub(crate) enum LineInput {
    /// A person types on a terminal.
    Terminal(Box<TerminalInput>),
    /// Another program or a file gives the lines.
    Pipe(Lines<StdinLock<'static>>),
}

/// Line editor on a terminal, with a history.
pub(crate) struct TerminalInput {
    editor: Editor<Assistant, FileHistory>,
    /// File that keeps the history, if any.
    history: Option<PathBuf>,
}

impl LineInput {
    /// Opens standard input. On a terminal, inputs are kept in the file `history`.
    ///
    /// # Errors
    /// If the terminal cannot be used.
    pub(crate) fn open(history: Option<PathBuf>) -> Result<Self> {
        match io::stdin().is_terminal() {
            true => TerminalInput::open(history).map(|input| Self::Terminal(Box::new(input))),
            false => Ok(Self::Pipe(io::stdin().lock().lines())),
        }
    }

    /// True if a person types the lines.
    pub(crate) fn is_terminal(&self) -> bool {
        matches!(self, Self::Terminal(_))
    }

    /// Reads the next input, which has several lines if the user continues or pastes lines. Returns `None` at the end of the
    /// input, and if the user quits with Ctrl-C or Ctrl-D.
    ///
    /// # Errors
    /// If standard input cannot be read or is not UTF-8.
    pub(crate) fn read(&mut self) -> Result<Option<String>> {
        match self {
            Self::Terminal(input) => input.read(),
            Self::Pipe(lines) => lines.next().transpose().map_err(|error| unreadable(&error)),
        }
    }
}

impl TerminalInput {
    fn open(history: Option<PathBuf>) -> Result<Self> {
        // If standard output is a file, the editor writes to the terminal and leaves the file to the answers.
        let behavior = match io::stdout().is_terminal() {
            true => Behavior::Stdio,
            false => Behavior::PreferTerm,
        };
        let config = Config::builder().max_history_size(MAX_HISTORY).map_err(|e| unreadable(&e))?;
        let config = config.behavior(behavior).build();
        let mut editor = Editor::with_config(config).map_err(|e| unreadable(&e))?;
        editor.set_helper(Some(Assistant));
        editor.bind_sequence(KeyEvent::ctrl('C'), EventHandler::Conditional(Box::new(ClearLine)));
        let history = history.filter(|path| {
            let loaded = if path.exists() { editor.load_history(path) } else { Ok(()) };
            let loaded = loaded.map_err(|error| note_history(path, &error));
            loaded.is_ok()
        });
        Ok(Self { editor, history })
    }

    fn read(&mut self) -> Result<Option<String>> {
        let mut input = String::new();
        let mut continued = false;
        loop {
            match self.editor.readline(if continued { PROMPTS.1 } else { PROMPTS.0 }) {
                Ok(line) => {
                    let (line, continues) = match line.strip_suffix('\\') {
                        Some(line) => (line, true),
                        None => (line.as_str(), false),
                    };
                    input.push_str(line);
                    if !continues {
                        self.remember(&input);
                        return Ok(Some(input));
                    }
                    input.push('\n');
                    continued = true;
                }
                // Drops the lines before, as Ctrl-C drops the text of a line.
                Err(ReadlineError::Interrupted) if continued => {
                    input.clear();
                    continued = false;
                }
                Err(ReadlineError::Interrupted | ReadlineError::Eof) => return Ok(None),
                Err(error) => return Err(unreadable(&error)),
            }
        }
    }

    /// Adds an input to the history and to its file. After a failure, the file is left alone.
    fn remember(&mut self, input: &str) {
        if input.trim().is_empty() {
            return;
        }
        let added = self.editor.add_history_entry(input);
        if let (Ok(true), Some(path)) = (added, &self.history)
            && let Err(error) = self.editor.append_history(path)
        {
            note_history(path, &error);
            self.history = None;
        }
    }
}

fn note_history(path: &std::path::Path, error: &ReadlineError) {
    note(&format!("{}: {error}; this chat has no history file", path.display()));
}

fn unreadable(error: &dyn std::error::Error) -> Failure {
    Failure::input(format!("cannot read standard input: {error}"))
}

/// Ctrl-C at the prompt: clears a line that has text, and quits at an empty line.
struct ClearLine;

impl ConditionalEventHandler for ClearLine {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, context: &EventContext<'_>) -> Option<Cmd> {
        match context.line().is_empty() {
            true => Some(Cmd::Interrupt),
            false => Some(Cmd::Kill(Movement::WholeBuffer)),
        }
    }
}

/// Completion of the names of commands.
struct Assistant;

impl Completer for Assistant {
    type Candidate = String;

    fn complete(&self, line: &str, pos: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        let start = line.get(..pos).filter(|start| start.starts_with('/'));
        Ok((0, start.map(names_from).unwrap_or_default()))
    }
}

impl Hinter for Assistant {
    type Hint = String;
}
impl Highlighter for Assistant {}
impl Validator for Assistant {}
impl Helper for Assistant {}
