//! The text on either side of a bundle's language model, from the files that travel with it.

use std::io::Write;

use drift_runtime::Bundle;
use drift_text::{ChatTemplate, Clock, Message, Stream, Tokenizer};

use crate::failure::{Failure, Result};
use crate::output::Out;

/// A tokenizer, and how its model wants to be talked to.
pub(crate) struct Text {
    pub(crate) tokenizer: Tokenizer,
    template: Option<ChatTemplate>,
}

impl Text {
    /// What a bundle has; none where it has no tokenizer.
    pub(crate) fn of(bundle: &Bundle) -> Result<Option<Self>> {
        let file = |name| bundle.attachment(name).map_err(Failure::from);
        let Some(tokenizer) = file("tokenizer.json")? else { return Ok(None) };
        let config = file("tokenizer_config.json")?;
        let tokenizer = Tokenizer::new(tokenizer, config, file("generation_config.json")?)?;
        let template = ChatTemplate::new(file("chat_template.jinja")?, config)?;
        Ok(Some(Self { tokenizer, template }))
    }

    /// The ids of a conversation, up to where the answer begins.
    pub(crate) fn conversation(&self, messages: &[Message]) -> Result<Vec<u32>> {
        let template = self.template.as_ref().ok_or_else(|| {
            Failure::input("the model has no chat template: it goes on with texts, and answers nobody")
                .help("use `driftc generate` without --chat")
        })?;
        let text = template.render(messages, true, Clock::now())?;
        // The template writes the tokens that texts begin with.
        Ok(self.tokenizer.encode(&text, false)?)
    }
}

/// Prints a text as its tokens come.
pub(crate) struct Printer<'a> {
    stream: Stream<'a>,
    out: &'a mut Out,
    text: String,
    failed: Option<Failure>,
}

impl<'a> Printer<'a> {
    /// A text behind a prompt, which is not printed.
    pub(crate) fn new(tokenizer: &'a Tokenizer, prompt: &[u32], out: &'a mut Out) -> Self {
        Self { stream: Stream::new(tokenizer, prompt), out, text: String::new(), failed: None }
    }

    /// Prints what a token makes certain; false where nobody reads it.
    pub(crate) fn push(&mut self, id: u32) -> bool {
        let written = self.stream.push(id).map_err(Failure::from);
        let written = written.and_then(|text| write(self.out, &mut self.text, &text));
        self.failed = written.err();
        self.failed.is_none()
    }

    /// Prints the rest and a line end, and returns the whole text.
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
