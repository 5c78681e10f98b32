//! The text on either side of a bundle's language model, from the files that travel with it.

use std::io::Write;

use drift_runtime::Bundle;
use drift_text::{ChatTemplate, Clock, Message, Stream, Tokenizer};
use driftc::compile::Model;

use crate::failure::{Failure, Result};
use crate::output::Out;

/// A tokenizer, and how its model wants to be talked to.
pub(crate) struct Text {
    pub(crate) tokenizer: Tokenizer,
    /// An error is one of whoever wants to chat.
    template: Result<Option<ChatTemplate>, drift_text::Error>,
    /// Number of tokens that the model knows.
    vocabulary: usize,
}

impl Text {
    /// What a bundle has, for a model that knows every id; none where it has no tokenizer.
    pub(crate) fn of(bundle: &Bundle) -> Result<Option<Self>> {
        let file = |name| bundle.attachment(name).map_err(Failure::from);
        let Some(tokenizer) = file("tokenizer.json")? else { return Ok(None) };
        let config = file("tokenizer_config.json")?;
        let tokenizer = Tokenizer::new(tokenizer, config, file("generation_config.json")?)?;
        let template = ChatTemplate::new(file("chat_template.jinja")?, config);
        Ok(Some(Self { tokenizer, template, vocabulary: usize::MAX }))
    }

    /// The same for a model that knows so many ids.
    pub(crate) fn with_vocabulary(self, vocabulary: usize) -> Self {
        Self { vocabulary, ..self }
    }

    /// The ids of a text, with those that a model's texts begin with.
    pub(crate) fn ids(&self, text: &str) -> Result<Vec<u32>> {
        self.known(self.tokenizer.encode(text, true)?)
    }

    /// The ids of a conversation, up to where the answer begins.
    pub(crate) fn conversation(&self, messages: &[Message]) -> Result<Vec<u32>> {
        let template = self.template.as_ref()?.as_ref().ok_or_else(|| {
            Failure::input("the model has no chat template: it goes on with texts, and answers nobody")
                .help("use `driftc generate` without --chat")
        })?;
        let text = template.render(messages, true, Clock::now())?;
        if text.is_empty() {
            return Err(Failure::input("the chat template makes no text of the conversation").help(
                "use `driftc generate` without --chat, or compile the model with another chat_template.jinja",
            ));
        }
        // The template writes the tokens that texts begin with.
        self.known(self.tokenizer.encode(&text, false)?)
    }

    /// Ids that the tokenizer has made, all of which the model must know.
    fn known(&self, ids: Vec<u32>) -> Result<Vec<u32>> {
        match ids.iter().find(|id| !is_below(**id, self.vocabulary)) {
            None => Ok(ids),
            Some(id) => Err(Failure::input(format!(
                "tokenizer.json gives a part of the text the id {id}, and the model knows {} tokens",
                self.vocabulary
            ))
            .help("the tokenizer belongs to another model: compile the model with its own, or leave that part out")),
        }
    }
}

fn is_below(id: u32, vocabulary: usize) -> bool {
    usize::try_from(id).is_ok_and(|id| id < vocabulary)
}

/// What is wrong with the files that a language model's texts need, for the user to read while it is compiled; it computes
/// with ids all the same.
pub(crate) fn notes(model: &Model) -> Vec<String> {
    let file = |name| model.attachments.iter().find(|(n, _)| n == name).map(|(_, bytes)| bytes.as_slice());
    let (Some((_, graph)), Some(tokenizer)) = (model.functions.first(), file("tokenizer.json")) else {
        return Vec::new();
    };
    let logits = graph.outputs().iter().find(|output| output.name == "logits");
    let vocabulary = logits.and_then(|output| graph.tensor(output.node).shape.last()?.as_known());
    let vocabulary = vocabulary.and_then(|size| usize::try_from(size).ok()).unwrap_or(usize::MAX);
    let config = file("tokenizer_config.json");
    let mut notes = Vec::new();
    match Tokenizer::new(tokenizer, config, file("generation_config.json")) {
        Err(error) => notes.push(format!("texts mean nothing to the bundle: {error}")),
        Ok(tokenizer) => {
            if let Some(id) = tokenizer.highest().filter(|id| !is_below(*id, vocabulary)) {
                notes.push(format!(
                    "tokenizer.json has ids up to {id}, and the model knows {vocabulary} tokens: texts that need others are refused"
                ));
            }
            if let Some(id) = tokenizer.ends().iter().find(|id| !is_below(**id, vocabulary)) {
                notes.push(format!(
                    "the id {id} ends a text, and the model, of {vocabulary} tokens, never gives it"
                ));
            }
        }
    }
    if let Err(error) = ChatTemplate::new(file("chat_template.jinja"), config) {
        notes.push(format!("chats are refused: {error}"));
    }
    notes
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
