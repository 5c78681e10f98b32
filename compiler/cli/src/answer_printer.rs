//! Printing of generated text, and of the progress of the prompt before it.

use std::io::{self, Write};

use drift_chat::Listener;

use crate::failure::Result;
use crate::interrupt::Interrupt;
use crate::output::Out;
use crate::progress::Progress;

/// Listener that prints text while its tokens are generated, and the progress of the prompt on a terminal.
#[derive(Default)]
pub(crate) struct AnswerPrinter<'a> {
    /// Destination of the text. The text is not printed if it is `None`.
    out: Option<&'a mut Out>,
    /// Handler of Ctrl-C, which ends the generation.
    interrupt: Option<&'a Interrupt>,
    /// Progress line, until the first token is generated.
    progress: Option<Progress>,
    /// Last printed character.
    last: Option<char>,
    failed: Option<io::Error>,
}

impl<'a> AnswerPrinter<'a> {
    /// Creates a printer that shows only the progress of the prompt.
    pub(crate) fn silent() -> Self {
        Self::default()
    }

    /// Creates a printer of text.
    pub(crate) fn new(out: &'a mut Out) -> Self {
        Self { out: Some(out), ..Self::default() }
    }

    /// Ends the generation if the user presses Ctrl-C.
    pub(crate) fn interrupted_by(self, interrupt: &'a Interrupt) -> Self {
        Self { interrupt: Some(interrupt), ..self }
    }

    /// Ends the last line of the text. A completion that failed before its first text has no lines.
    ///
    /// # Errors
    /// If this call or an earlier one could not write the text.
    pub(crate) fn finish(mut self, failed: bool) -> Result<()> {
        // The progress line is erased before the cursor moves to the next line.
        self.progress = None;
        if let Some(error) = self.failed {
            return Err(error.into());
        }
        let ended = self.last == Some('\n') || (failed && self.last.is_none());
        if let Some(out) = self.out.filter(|_| !ended) {
            out.write_all(b"\n")?;
            out.flush()?;
        }
        Ok(())
    }

    /// True if the generation continues.
    fn goes_on(&self) -> bool {
        self.failed.is_none() && !self.interrupt.is_some_and(Interrupt::requested)
    }
}

impl Listener for AnswerPrinter<'_> {
    fn prompt(&mut self, read: usize, total: usize) -> bool {
        let message = match read {
            0 => format!("reading {total} tokens"),
            _ => format!("reading {total} tokens, {read} done"),
        };
        match &self.progress {
            Some(progress) => progress.stage(&message),
            None => self.progress = Some(Progress::start(&message)),
        }
        self.goes_on()
    }

    fn token(&mut self, _id: u32, _logits: Option<&[f32]>) -> bool {
        self.progress = None;
        self.goes_on()
    }

    fn text(&mut self, text: &str) -> bool {
        let written = self.out.as_mut().map(|out| out.write_all(text.as_bytes()).and_then(|()| out.flush()));
        self.failed = written.and_then(|written| written.err());
        self.last = text.chars().last().or(self.last);
        self.goes_on()
    }
}
