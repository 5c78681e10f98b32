//! Tokenizer, which converts text to token ids and back.

use serde_json::Value;

use crate::{Error, Result};

/// Tokenizer with the settings of its configuration files, such as the end tokens.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    eos: Vec<u32>,
}

impl Tokenizer {
    /// Parses `tokenizer.json`, and the end tokens from `tokenizer_config.json` and `generation_config.json`.
    ///
    /// # Errors
    /// If a file is malformed.
    pub fn new(tokenizer: &[u8], config: Option<&[u8]>, generation: Option<&[u8]>) -> Result<Self> {
        let mut inner = tokenizers::Tokenizer::from_bytes(tokenizer)
            .map_err(|e| Error::File { file: "tokenizer.json", reason: e.to_string() })?;
        // Padding and truncation are settings for batches. A prompt keeps its length.
        inner.with_padding(None);
        inner.with_truncation(None).map_err(|e| Error::Text(e.to_string()))?;
        let config = json("tokenizer_config.json", config)?;
        let generation = json("generation_config.json", generation)?;
        let mut eos = Vec::new();
        if let Some(token) = special(&config, "eos_token") {
            eos.extend(inner.token_to_id(&token));
        }
        match generation.get("eos_token_id") {
            None | Some(Value::Null) => {}
            Some(Value::Array(ids)) => eos.extend(ids.iter().map(end_token).collect::<Result<Vec<u32>>>()?),
            Some(one) => eos.push(end_token(one)?),
        }
        eos.sort_unstable();
        eos.dedup();
        Ok(Self { inner, eos })
    }

    /// Encodes a text to token ids. If `special` is set, the post-processor adds its start and end tokens.
    ///
    /// # Errors
    /// If no token exists for a part of the text.
    pub fn encode(&self, text: &str, special: bool) -> Result<Vec<u32>> {
        let encoding = self.inner.encode_fast(text, special).map_err(|e| Error::Text(e.to_string()))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Decodes token ids to a text. Special tokens give no text.
    ///
    /// # Errors
    /// If the tokenizer cannot decode the ids.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        self.inner.decode(ids, true).map_err(|e| Error::Text(e.to_string()))
    }

    /// Returns the id of a token, or `None` if the vocabulary does not have the token.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// Returns the name of a token in the vocabulary, which is not always its text. Returns `None` if the id is unknown.
    pub fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// Returns the number of tokens in the vocabulary, including special tokens.
    pub fn size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// Returns the highest token id of the vocabulary, or `None` if it is empty.
    pub fn highest(&self) -> Option<u32> {
        self.inner.get_vocab(true).into_values().max()
    }

    /// Returns the ids of the end tokens, at which a generated text ends.
    pub fn ends(&self) -> &[u32] {
        &self.eos
    }
}

/// Parses the content of a file as JSON. A missing file counts as an empty object.
pub(crate) fn json(file: &'static str, bytes: Option<&[u8]>) -> Result<Value> {
    match bytes {
        None => Ok(Value::Object(serde_json::Map::new())),
        Some(bytes) => serde_json::from_slice(bytes).map_err(|e| Error::File { file, reason: e.to_string() }),
    }
}

/// Returns a special token of `tokenizer_config.json`, which is a string, or an object with the field `content`.
pub(crate) fn special(config: &Value, name: &str) -> Option<String> {
    let value = config.get(name)?;
    let text = value.as_str().or_else(|| value.get("content")?.as_str())?;
    Some(text.to_owned())
}

/// Parses the id of an end token.
fn end_token(value: &Value) -> Result<u32> {
    let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
    id.ok_or_else(|| Error::File {
        file: "generation_config.json",
        reason: format!("`eos_token_id` is {value}, which is not the id of a token"),
    })
}
