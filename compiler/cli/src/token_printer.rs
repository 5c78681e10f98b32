//! Printing of generated tokens as text.

use std::io::Write;

use drift_text::{Stream, Tokenizer};

use crate::failure::{Failure, Result};
use crate::output::Out;

/// Prints text while its tokens are generated.
pub(crate) struct TokenPrinter<'a> {
    stream: Stream<'a>,
    out: &'a mut Out,
    text: String,
    failed: Option<Failure>,
}

impl<'a> TokenPrinter<'a> {
    /// Creates a printer for the tokens that follow a prompt. The prompt itself is not printed.
    pub(crate) fn new(tokenizer: &'a Tokenizer, prompt: &[u32], out: &'a mut Out) -> Self {
        Self { stream: Stream::new(tokenizer, prompt), out, text: String::new(), failed: None }
    }

    /// Adds a token, and prints the part of the text that later tokens cannot change. Returns false if printing fails.
    pub(crate) fn push(&mut self, id: u32) -> bool {
        let written = self.stream.push(id).map_err(Failure::from);
        let written = written.and_then(|text| write(self.out, &mut self.text, &text));
        self.failed = written.err();
        self.failed.is_none()
    }

    /// Prints the rest of the text and a line break. Returns the whole text.
    pub(crate) fn finish(self) -> Result<String> {
        let Self { stream, out, mut text, failed } = self;
        failed.map_or(Ok(()), Err)?;
        let rest = stream.finish()?;
        write(out, &mut text, &rest)?;
        if !text.ends_with('\n') {
            write(out, &mut String::new(), "\n")?;
        }
        Ok(text)
    }
}

fn write(out: &mut Out, all: &mut String, text: &str) -> Result<()> {
    all.push_str(text);
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}
