//! A conversation with a language model.
//!
//! For each answer, the whole conversation is encoded again. The KV cache already holds the earlier tokens, so the model
//! computes only the new ones.

use std::path::Path;

use drift_runtime::{Bundle, Draft, Generator, Options, Session};
use drift_text::Message;

use crate::complete::{Completion, Finish, Listener, TextRequest, complete};
use crate::encoder::PromptEncoder;
use crate::{Error, Result, transcript};

/// Conversation with a language model: its messages, the model on a device, and the source of draft tokens.
pub struct Chat {
    generator: Generator,
    encoder: PromptEncoder,
    draft: Draft,
    messages: Vec<Message>,
}

impl Chat {
    /// Creates an empty conversation.
    pub fn new(generator: Generator, encoder: PromptEncoder) -> Self {
        let encoder = encoder.with_vocabulary(generator.vocabulary_size());
        Self { generator, encoder, draft: Draft::None, messages: Vec::new() }
    }

    /// Opens a bundle on a device, and starts an empty conversation.
    ///
    /// # Errors
    /// If the bundle cannot be loaded, is not a language model, or has no tokenizer.
    pub fn open(path: &Path, options: &Options) -> Result<Self> {
        let bundle = Bundle::open(path)?;
        let encoder = PromptEncoder::from_bundle(&bundle)?.ok_or(Error::NoTokenizer)?;
        Ok(Self::new(Generator::new(Session::from_bundle(bundle, options)?)?, encoder))
    }

    /// Sets the source of draft tokens.
    pub fn with_draft(self, draft: Draft) -> Self {
        Self { draft, ..self }
    }

    /// Returns the messages of the conversation, with the system message first if there is one.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Returns the generator.
    pub fn generator(&self) -> &Generator {
        &self.generator
    }

    /// Returns the encoder.
    pub fn encoder(&self) -> &PromptEncoder {
        &self.encoder
    }

    /// Returns the system message.
    pub fn system(&self) -> Option<&str> {
        self.messages.first().filter(|m| m.role == "system").map(|m| m.content.as_str())
    }

    /// Sets or removes the system message. The other messages stay.
    pub fn set_system(&mut self, text: Option<&str>) {
        if self.system().is_some() {
            self.messages.remove(0);
        }
        if let Some(text) = text {
            self.messages.insert(0, Message::new("system", text));
        }
    }

    /// Removes all messages except the system message.
    pub fn reset(&mut self) {
        let system = usize::from(self.system().is_some());
        self.messages.truncate(system);
    }

    /// Adds a message of the user, and generates the answer. A cancelled answer stays in the conversation if it has text.
    ///
    /// # Errors
    /// If the template rejects the conversation, and as for [`complete`]. The message is then not part of the conversation.
    pub fn say(
        &mut self,
        text: &str,
        request: &TextRequest,
        listener: &mut dyn Listener,
    ) -> Result<Completion> {
        let before = self.messages.len();
        self.messages.push(Message::new("user", text));
        let done = self.answer(request, listener);
        if self.messages.len() == before + 1 {
            self.messages.truncate(before);
        }
        done
    }

    /// Generates the last answer again.
    ///
    /// # Errors
    /// If there is no answer, and as for [`Self::say`]. The old answer then stays.
    pub fn regenerate(&mut self, request: &TextRequest, listener: &mut dyn Listener) -> Result<Completion> {
        let old = self.messages.pop_if(|last| last.role == "assistant").ok_or(Error::NoAnswer)?;
        let before = self.messages.len();
        let done = self.answer(request, listener);
        if self.messages.len() == before {
            self.messages.push(old);
        }
        done
    }

    /// Saves the messages to a JSON file.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        transcript::save(path, &self.messages)
    }

    /// Replaces the messages by the messages of a file that [`Self::save`] wrote.
    ///
    /// # Errors
    /// If the file cannot be read or is not a conversation. The messages then stay.
    pub fn load(&mut self, path: &Path) -> Result<()> {
        self.messages = transcript::load(path)?;
        Ok(())
    }

    /// Generates the answer to the last message, and appends it unless it was cancelled before its first text.
    fn answer(&mut self, request: &TextRequest, listener: &mut dyn Listener) -> Result<Completion> {
        let prompt = self.encoder.encode_conversation(&self.messages)?;
        let Self { generator, encoder, draft, messages } = self;
        let done = complete(generator, encoder, &prompt, request, draft, listener)?;
        if done.finish != Finish::Cancelled || !done.text.is_empty() {
            messages.push(Message::new("assistant", &done.text));
        }
        Ok(done)
    }
}
