//! Tokenizer and chat template of a language model, from the files that its bundle carries.

use drift_runtime::Bundle;
use drift_text::{ChatTemplate, Clock, Message, Tokenizer};
use driftc::compile::Model;

use crate::failure::{Failure, Result};

/// Encoder of texts and conversations as token ids.
pub(crate) struct PromptEncoder {
    pub(crate) tokenizer: Tokenizer,
    /// Chat template of the bundle. An invalid template is an error only for conversations.
    template: Result<Option<ChatTemplate>, drift_text::Error>,
    /// Vocabulary size of the model.
    vocabulary: usize,
}

impl PromptEncoder {
    /// Reads the tokenizer files of a bundle. Every token id is accepted until [`Self::with_vocabulary`] sets the
    /// vocabulary size. Returns `None` if the bundle has no tokenizer.
    pub(crate) fn from_bundle(bundle: &Bundle) -> Result<Option<Self>> {
        let file = |name| bundle.attachment(name).map_err(Failure::from);
        let Some(tokenizer) = file("tokenizer.json")? else { return Ok(None) };
        let config = file("tokenizer_config.json")?;
        let tokenizer = Tokenizer::new(tokenizer, config, file("generation_config.json")?)?;
        let template = ChatTemplate::new(file("chat_template.jinja")?, config);
        Ok(Some(Self { tokenizer, template, vocabulary: usize::MAX }))
    }

    /// Sets the vocabulary size of the model.
    pub(crate) fn with_vocabulary(self, vocabulary: usize) -> Self {
        Self { vocabulary, ..self }
    }

    /// Token ids of a text, with the tokenizer's start tokens.
    pub(crate) fn encode_text(&self, text: &str) -> Result<Vec<u32>> {
        self.check_ids(self.tokenizer.encode(text, true)?)
    }

    /// Token ids of a conversation, up to the start of the answer.
    pub(crate) fn encode_conversation(&self, messages: &[Message]) -> Result<Vec<u32>> {
        let template = self.template.as_ref()?.as_ref().ok_or_else(|| {
            Failure::input("the model has no chat template: it completes texts and answers no questions")
                .help("use `driftc generate` without --chat")
        })?;
        let text = template.render(messages, true, Clock::now())?;
        if text.is_empty() {
            return Err(Failure::input("the chat template returns no text for this conversation").help(
                "use `driftc generate` without --chat, or compile the model with another chat_template.jinja",
            ));
        }
        // The template itself writes the start tokens.
        self.check_ids(self.tokenizer.encode(&text, false)?)
    }

    /// Returns the token ids, or an error if one of them is outside the model's vocabulary.
    fn check_ids(&self, ids: Vec<u32>) -> Result<Vec<u32>> {
        match ids.iter().find(|id| !is_below(**id, self.vocabulary)) {
            None => Ok(ids),
            Some(id) => Err(Failure::input(format!(
                "tokenizer.json encodes a part of the text as the id {id}, but the model's vocabulary has {} tokens",
                self.vocabulary
            ))
            .help("compile the model with its own tokenizer, or remove that part of the text")),
        }
    }
}

fn is_below(id: u32, vocabulary: usize) -> bool {
    usize::try_from(id).is_ok_and(|id| id < vocabulary)
}

/// Problems of the tokenizer files, as notes for the compile command. The bundle still works with token ids.
pub(crate) fn tokenizer_notes(model: &Model) -> Vec<String> {
    let file = |name| model.attachments.iter().find(|(n, _)| n == name).map(|(_, bytes)| bytes.as_slice());
    let (Some(entry), Some(tokenizer)) = (model.entry_points.first(), file("tokenizer.json")) else {
        return Vec::new();
    };
    let logits = entry.graph.outputs().iter().find(|output| output.name == "logits");
    let vocabulary = logits.and_then(|output| entry.graph.tensor(output.node).shape.last()?.as_known());
    let vocabulary = vocabulary.and_then(|size| usize::try_from(size).ok()).unwrap_or(usize::MAX);
    let config = file("tokenizer_config.json");
    let mut notes = Vec::new();
    match Tokenizer::new(tokenizer, config, file("generation_config.json")) {
        Err(error) => notes.push(format!("the bundle accepts only token ids, no text: {error}")),
        Ok(tokenizer) => {
            if let Some(id) = tokenizer.highest().filter(|id| !is_below(*id, vocabulary)) {
                notes.push(format!(
                    "tokenizer.json has ids up to {id}, but the model's vocabulary has {vocabulary} tokens: texts with ids outside the vocabulary are refused"
                ));
            }
            if let Some(id) = tokenizer.ends().iter().find(|id| !is_below(**id, vocabulary)) {
                notes.push(format!(
                    "the end token {id} is outside the model's vocabulary of {vocabulary} tokens, so the model never generates it"
                ));
            }
        }
    }
    if let Err(error) = ChatTemplate::new(file("chat_template.jinja"), config) {
        notes.push(format!("the bundle refuses chats: {error}"));
    }
    notes
}
