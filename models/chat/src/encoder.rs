//! Tokenizer and chat template of a language model, from the files that its bundle carries.

use drift_runtime::Bundle;
use drift_text::{ChatTemplate, Clock, Message, Tokenizer};

use crate::{Error, Result};

/// Encoder of texts and conversations as token ids.
pub struct PromptEncoder {
    tokenizer: Tokenizer,
    /// Chat template of the bundle. An invalid template is an error only for conversations.
    template: Result<Option<ChatTemplate>, drift_text::Error>,
    /// Vocabulary size of the model.
    vocabulary: usize,
}

impl PromptEncoder {
    /// Reads the tokenizer files of a bundle. Every token id is accepted until [`Self::with_vocabulary`] sets the
    /// vocabulary size. Returns `None` if the bundle has no tokenizer.
    ///
    /// # Errors
    /// If an attached file is corrupt or malformed.
    pub fn from_bundle(bundle: &Bundle) -> Result<Option<Self>> {
        let Some(tokenizer) = bundle.attachment("tokenizer.json")? else { return Ok(None) };
        let config = bundle.attachment("tokenizer_config.json")?;
        let tokenizer = Tokenizer::new(tokenizer, config, bundle.attachment("generation_config.json")?)?;
        let template = ChatTemplate::new(bundle.attachment("chat_template.jinja")?, config);
        Ok(Some(Self { tokenizer, template, vocabulary: usize::MAX }))
    }

    /// Sets the vocabulary size of the model, in tokens.
    pub fn with_vocabulary(self, vocabulary: usize) -> Self {
        Self { vocabulary, ..self }
    }

    /// Returns the tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// True if the bundle has a valid chat template.
    pub fn has_chat_template(&self) -> bool {
        matches!(self.template, Ok(Some(_)))
    }

    /// Encodes a text as token ids, with the tokenizer's start tokens.
    ///
    /// # Errors
    /// If the text cannot be encoded, or has a token outside the vocabulary.
    pub fn encode_text(&self, text: &str) -> Result<Vec<u32>> {
        self.check_ids(self.tokenizer.encode(text, true)?)
    }

    /// Encodes a conversation as token ids, up to the start of the answer.
    ///
    /// # Errors
    /// If there is no chat template, or the template rejects the conversation; and as for [`Self::encode_text`].
    pub fn encode_conversation(&self, messages: &[Message]) -> Result<Vec<u32>> {
        let template = self.template.as_ref().map_err(Clone::clone)?.as_ref().ok_or(Error::NoChatTemplate)?;
        let text = template.render(messages, true, Clock::now())?;
        if text.is_empty() {
            return Err(Error::EmptyConversation);
        }
        // The template itself writes the start tokens.
        self.check_ids(self.tokenizer.encode(&text, false)?)
    }

    /// Checks token ids that a caller gives in place of a text.
    ///
    /// # Errors
    /// If one of them is outside the vocabulary.
    pub fn check(&self, ids: &[u32]) -> Result<()> {
        match ids.iter().find(|id| !self.knows(**id)) {
            None => Ok(()),
            Some(id) => {
                Err(drift_runtime::Error::NotInVocabulary { id: *id, vocabulary: self.vocabulary }.into())
            }
        }
    }

    fn knows(&self, id: u32) -> bool {
        usize::try_from(id).is_ok_and(|id| id < self.vocabulary)
    }

    /// Returns the token ids, or an error if one of them is outside the model's vocabulary.
    fn check_ids(&self, ids: Vec<u32>) -> Result<Vec<u32>> {
        match ids.iter().find(|id| !self.knows(**id)) {
            None => Ok(ids),
            Some(id) => Err(Error::OutsideVocabulary { id: *id, vocabulary: self.vocabulary }),
        }
    }
}
