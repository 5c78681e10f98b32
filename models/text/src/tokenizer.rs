//! Ids of a text, and the text of ids.

use serde_json::Value;

use crate::{Error, Result};

/// A tokenizer with the settings of its configuration.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    eos: Vec<u32>,
}

impl Tokenizer {
    /// Reads `tokenizer.json`, and what `tokenizer_config.json` and `generation_config.json` say about it.
    ///
    /// # Errors
    /// When a file is malformed.
    pub fn new(tokenizer: &[u8], config: Option<&[u8]>, generation: Option<&[u8]>) -> Result<Self> {
        let mut inner = tokenizers::Tokenizer::from_bytes(tokenizer)
            .map_err(|e| Error::File { file: "tokenizer.json", reason: e.to_string() })?;
        // What a file says about batches is of no use here: a prompt is as long as it is.
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
            Some(Value::Array(ids)) => eos.extend(ids.iter().map(end).collect::<Result<Vec<u32>>>()?),
            Some(one) => eos.push(end(one)?),
        }
        eos.sort_unstable();
        eos.dedup();
        Ok(Self { inner, eos })
    }

    /// The ids of a text; with `special` those that a model's texts begin with, too.
    ///
    /// # Errors
    /// When the text has a part that no token stands for.
    pub fn encode(&self, text: &str, special: bool) -> Result<Vec<u32>> {
        let encoding = self.inner.encode_fast(text, special).map_err(|e| Error::Text(e.to_string()))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The text of ids, without special tokens.
    ///
    /// # Errors
    /// When the tokenizer cannot decode.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        self.inner.decode(ids, true).map_err(|e| Error::Text(e.to_string()))
    }

    /// The id of a token.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// Number of tokens, special ones among them.
    pub fn size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// The highest id of a token; none where there is no token.
    pub fn highest(&self) -> Option<u32> {
        self.inner.get_vocab(true).into_values().max()
    }

    /// Ids that end a text.
    pub fn ends(&self) -> &[u32] {
        &self.eos
    }
}

/// A file as JSON; an empty object where there is none.
pub(crate) fn json(file: &'static str, bytes: Option<&[u8]>) -> Result<Value> {
    match bytes {
        None => Ok(Value::Object(serde_json::Map::new())),
        Some(bytes) => serde_json::from_slice(bytes).map_err(|e| Error::File { file, reason: e.to_string() }),
    }
}

/// A special token, which files write as text or as an object.
pub(crate) fn special(config: &Value, name: &str) -> Option<String> {
    let value = config.get(name)?;
    let text = value.as_str().or_else(|| value.get("content")?.as_str())?;
    Some(text.to_owned())
}

/// The id of a token that ends a text.
fn end(value: &Value) -> Result<u32> {
    let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
    id.ok_or_else(|| Error::File {
        file: "generation_config.json",
        reason: format!("`eos_token_id` is {value}, which is no id"),
    })
}
