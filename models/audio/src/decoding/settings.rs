//! Settings of decoding, from `generation_config.json`, `config.json` and the tokenizer.

use std::collections::BTreeMap;

use drift_text::Tokenizer;
use serde_json::{Map, Value};

use super::languages::LANGUAGES;
use crate::{Error, Result};

const GENERATION: &str = "generation_config.json";
const CONFIG: &str = "config.json";
/// Number of positions of the decoder if `config.json` does not state it.
const POSITIONS: usize = 448;
/// Number of positions of the encoder if `config.json` does not state it.
const SOURCE_POSITIONS: usize = 1500;
/// Width of the median filter if no file states it.
const MEDIAN_WIDTH: usize = 7;

/// Settings of decoding. Settings that the files do not have are `None` or empty.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DecodingSettings {
    /// Id of the start token `<|startoftranscript|>`.
    pub start: u32,
    /// Ids of the end tokens. The first one is `<|endoftext|>`.
    pub ends: Vec<u32>,
    /// Token ids of the languages by their codes, such as `en`. Empty for English-only models.
    pub languages: BTreeMap<String, u32>,
    /// Id of `<|transcribe|>`.
    pub transcribe: Option<u32>,
    /// Id of `<|translate|>`.
    pub translate: Option<u32>,
    /// Id of `<|notimestamps|>`. The timestamp `<|0.00|>` is the next id.
    pub no_timestamps: Option<u32>,
    /// Id of `<|startofprev|>`.
    pub previous: Option<u32>,
    /// Ids of tokens that the model never writes.
    pub suppressed: Vec<u32>,
    /// Ids of tokens that the model does not write first.
    pub suppressed_at_begin: Vec<u32>,
    /// Highest timestamp that a window may begin with, in steps of 0.02 seconds.
    pub max_initial_timestamp: Option<u32>,
    /// Tokens that follow the start token in models without language and task tokens (`forced_decoder_ids`).
    pub forced: Vec<u32>,
    /// Layer and head of each cross-attention head that follows the audio. Word timestamps need them.
    pub alignment_heads: Vec<(usize, usize)>,
    /// Width of the median filter for word timestamps.
    pub median_width: usize,
    /// Maximum number of tokens of the decoder, with start tokens and previous text.
    pub max_positions: usize,
    /// Number of frames of the features of a window.
    pub window_frames: usize,
    /// Number of tokens in the vocabulary, if `config.json` states it.
    pub vocabulary: Option<usize>,
}

impl DecodingSettings {
    /// Reads the files of a model. Values in `generation_config.json` have precedence over `config.json`. If
    /// `generation_config.json` exists, ids that it does not have come from the tokenizer, and only that file lists
    /// suppressed tokens. Models without it get plain greedy decoding from `decoder_start_token_id`.
    ///
    /// # Errors
    /// If a file is malformed, or no file has `decoder_start_token_id`.
    pub fn from_json(
        generation: Option<&[u8]>,
        config: Option<&[u8]>,
        tokenizer: Option<&Tokenizer>,
    ) -> Result<Self> {
        let mut files =
            Files { generation: object(GENERATION, generation)?, config: object(CONFIG, config)? };
        if generation.is_some() {
            files.config.remove("suppress_tokens");
            files.config.remove("begin_suppress_tokens");
        }
        let mut settings = Self::from_files(&files)?;
        if let (Some(_), Some(tokenizer)) = (generation, tokenizer) {
            settings.complete(tokenizer, files.is_multilingual());
        }
        if settings.previous.is_none() {
            // The list of suppressed tokens of all published models ends with `<|startofprev|>` and `<|nospeech|>`.
            settings.previous = settings.suppressed.iter().rev().nth(1).copied();
        }
        Ok(settings)
    }

    fn from_files(files: &Files) -> Result<Self> {
        let start = match files.ids("decoder_start_token_id")?.first() {
            Some(start) => *start,
            None => {
                return Err(Error::File {
                    file: GENERATION,
                    reason: "the setting `decoder_start_token_id` is missing, also in config.json".into(),
                });
            }
        };
        let mut languages = BTreeMap::new();
        for (token, id) in files.table("lang_to_id")? {
            let code = token.trim_start_matches("<|").trim_end_matches("|>");
            languages.insert(code.to_owned(), id);
        }
        let tasks: BTreeMap<String, u32> = files.table("task_to_id")?.into_iter().collect();
        let first = |name: &str| Ok::<_, Error>(files.ids(name)?.first().copied());
        Ok(Self {
            start,
            ends: files.ids("eos_token_id")?,
            languages,
            transcribe: tasks.get("transcribe").copied(),
            translate: tasks.get("translate").copied(),
            no_timestamps: first("no_timestamps_token_id")?,
            previous: first("prev_sot_token_id")?,
            suppressed: files.ids("suppress_tokens")?,
            suppressed_at_begin: files.ids("begin_suppress_tokens")?,
            max_initial_timestamp: first("max_initial_timestamp_index")?,
            forced: files.forced()?,
            alignment_heads: files.alignment_heads()?,
            median_width: files.count("median_filter_width")?.unwrap_or(MEDIAN_WIDTH),
            max_positions: files.count("max_target_positions")?.unwrap_or(POSITIONS),
            window_frames: 2 * files.count("max_source_positions")?.unwrap_or(SOURCE_POSITIONS),
            vocabulary: files.count("vocab_size")?,
        })
    }

    /// Adds ids from the tokenizer that the files do not have.
    fn complete(&mut self, tokenizer: &Tokenizer, is_multilingual: Option<bool>) {
        let add = |id: &mut Option<u32>, token: &str| *id = id.or_else(|| tokenizer.id(token));
        add(&mut self.no_timestamps, "<|notimestamps|>");
        add(&mut self.previous, "<|startofprev|>");
        if is_multilingual.unwrap_or(!self.languages.is_empty()) {
            add(&mut self.transcribe, "<|transcribe|>");
            add(&mut self.translate, "<|translate|>");
            if self.languages.is_empty() {
                let ids = LANGUAGES.iter().filter_map(|(code, _)| {
                    tokenizer.id(&format!("<|{code}|>")).map(|id| ((*code).to_owned(), id))
                });
                self.languages = ids.collect();
            }
        }
        if self.ends.is_empty() {
            self.ends = tokenizer.ends().to_vec();
        }
    }

    /// Returns the id of the timestamp `<|0.00|>`, or `None` for models without timestamps.
    pub fn first_timestamp(&self) -> Option<u32> {
        self.no_timestamps.and_then(|id| id.checked_add(1))
    }

    /// Returns the id of `<|nospeech|>`, or `None` for models without this token.
    pub fn no_speech(&self) -> Option<u32> {
        self.no_timestamps.and_then(|id| id.checked_sub(1))
    }

    /// Returns true if the token ends the text.
    pub fn is_end(&self, token: u32) -> bool {
        self.ends.contains(&token)
    }
}

/// Both configuration files.
struct Files {
    generation: Map<String, Value>,
    config: Map<String, Value>,
}

impl Files {
    /// Returns a setting that is not null, and the name of its file.
    fn get(&self, name: &str) -> Option<(&'static str, &Value)> {
        let files = [(GENERATION, &self.generation), (CONFIG, &self.config)];
        files
            .into_iter()
            .find_map(|(file, map)| map.get(name).filter(|value| !value.is_null()).map(|value| (file, value)))
    }

    fn is_multilingual(&self) -> Option<bool> {
        self.get("is_multilingual").and_then(|(_, value)| value.as_bool())
    }

    /// Reads a token id or a list of token ids. Negative ids count as none.
    fn ids(&self, name: &str) -> Result<Vec<u32>> {
        let Some((file, value)) = self.get(name) else { return Ok(Vec::new()) };
        let one = std::slice::from_ref(value);
        let list = value.as_array().map_or(one, Vec::as_slice);
        let kept = list.iter().filter(|value| value.as_i64().is_none_or(|id| id >= 0));
        let ids: Option<Vec<u32>> = kept.map(id).collect();
        ids.ok_or_else(|| setting(file, name, value, "a token id, or a list of token ids"))
    }

    /// Reads an object with token ids.
    fn table(&self, name: &str) -> Result<Vec<(String, u32)>> {
        let Some((file, value)) = self.get(name) else { return Ok(Vec::new()) };
        let entries = value.as_object().and_then(|object| {
            object.iter().map(|(key, value)| Some((key.clone(), id(value)?))).collect::<Option<Vec<_>>>()
        });
        entries.ok_or_else(|| setting(file, name, value, "an object with token ids"))
    }

    fn count(&self, name: &str) -> Result<Option<usize>> {
        let Some((file, value)) = self.get(name) else { return Ok(None) };
        let count = value.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| (1..1 << 24).contains(n));
        let supported = "whole numbers from 1 to 16777215";
        count.map(Some).ok_or_else(|| setting(file, name, value, supported))
    }

    /// Reads `forced_decoder_ids`: pairs of a position, from 1, and a token id or null.
    fn forced(&self) -> Result<Vec<u32>> {
        let name = "forced_decoder_ids";
        let Some((file, value)) = self.get(name) else { return Ok(Vec::new()) };
        let fail = || setting(file, name, value, "a list of pairs of position and token id, from position 1");
        let mut ids = Vec::new();
        for (index, pair) in value.as_array().ok_or_else(fail)?.iter().enumerate() {
            match pair.as_array().map(Vec::as_slice) {
                Some([position, token]) if position.as_u64() == Some(index as u64 + 1) => match token {
                    Value::Null => {}
                    token => ids.push(id(token).ok_or_else(fail)?),
                },
                _ => return Err(fail()),
            }
        }
        Ok(ids)
    }

    fn alignment_heads(&self) -> Result<Vec<(usize, usize)>> {
        let name = "alignment_heads";
        let Some((file, value)) = self.get(name) else { return Ok(Vec::new()) };
        let pair = |value: &Value| match value.as_array()?.as_slice() {
            [layer, head] => {
                Some((usize::try_from(layer.as_u64()?).ok()?, usize::try_from(head.as_u64()?).ok()?))
            }
            _ => None,
        };
        let pairs = value.as_array().and_then(|list| list.iter().map(pair).collect::<Option<Vec<_>>>());
        pairs.ok_or_else(|| setting(file, name, value, "a list of pairs of layer and head"))
    }
}

fn id(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|id| u32::try_from(id).ok())
}

fn setting(file: &'static str, name: &str, value: &Value, supported: &str) -> Error {
    Error::Setting { file, setting: name.into(), value: value.to_string(), supported: supported.into() }
}

/// Parses the content of a file as a JSON object. A missing file counts as an empty object.
fn object(file: &'static str, bytes: Option<&[u8]>) -> Result<Map<String, Value>> {
    serde_json::from_slice(bytes.unwrap_or(b"{}")).map_err(|e| Error::File { file, reason: e.to_string() })
}
