//! Prompts as token ids of CLIP text encoders.

use drift_text::Tokenizer;
use serde_json::{Map, Value, json};

use crate::{Error, Result};

/// Maximum number of token ids of a prompt, with start and end token.
const MAX_TOKENS: usize = 77;
/// Start token of CLIP.
const START: &str = "<|startoftext|>";
/// End token of CLIP, which also stands for unknown tokens.
const END: &str = "<|endoftext|>";
/// Words that the tokenizer of CLIP splits a text into.
const WORDS: &str =
    r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+";
/// Suffix of tokens at the end of a word.
const WORD_END: &str = "</w>";

const TOKENIZER: &str = "tokenizer.json";
const CONFIG: &str = "tokenizer_config.json";
const SPECIAL: &str = "special_tokens_map.json";
const VOCABULARY: &str = "vocab.json";
const MERGES: &str = "merges.txt";

/// Tokenizer of prompts, which pads and truncates to the length that the text encoder takes.
pub struct PromptEncoder {
    tokenizer: Tokenizer,
    start: u32,
    end: u32,
    pad: u32,
    length: usize,
}

/// Token ids of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// Token ids: start token, text, end token, pad tokens.
    pub ids: Vec<i32>,
    /// End of the text for which no room was left, as the tokenizer spells it.
    pub cut: Option<String>,
}

impl PromptEncoder {
    /// Parses the files of a tokenizer.
    ///
    /// # Errors
    /// If a file is malformed, or the tokenizer does not put one start token and one end token around a text.
    pub fn new(
        tokenizer_json: &[u8],
        tokenizer_config: Option<&[u8]>,
        special_tokens_map: Option<&[u8]>,
    ) -> Result<Self> {
        let config = object(CONFIG, tokenizer_config.unwrap_or(b"{}"))?;
        let special = object(SPECIAL, special_tokens_map.unwrap_or(b"{}"))?;
        let pad_token = pad_token(&config, &special);
        let tokenizer = match pad_token {
            None => Tokenizer::new(tokenizer_json, tokenizer_config, None)?,
            Some((file, ref token)) => {
                let with_pad = with_special_token(tokenizer_json, file, token)?;
                Tokenizer::new(&with_pad, tokenizer_config, None)?
            }
        };
        let &[start, end] = tokenizer.encode("", true)?.as_slice() else {
            let reason = "the post-processor does not add one start token and one end token".into();
            return Err(Error::File { file: TOKENIZER, reason });
        };
        let pad = pad_token.and_then(|(_, token)| tokenizer.id(&token)).unwrap_or(end);
        Ok(Self { tokenizer, start, end, pad, length: length(&config)? })
    }

    /// Encodes a prompt to exactly [`PromptEncoder::length`] token ids.
    ///
    /// # Errors
    /// If no token exists for a part of the text.
    pub fn encode(&self, text: &str) -> Result<Encoded> {
        let text_ids = self.tokenizer.encode(text, false)?;
        let room = self.length - 2;
        let (kept, cut) = text_ids.split_at(room.min(text_ids.len()));
        let all = [&[self.start], kept, &[self.end]].concat();
        let padded = all.into_iter().chain(std::iter::repeat(self.pad)).take(self.length);
        let ids = padded.map(|id| i32::try_from(id).unwrap_or(i32::MAX)).collect();
        let cut = if cut.is_empty() {
            None
        } else {
            Some(self.tokenizer.decode(cut)?.replace(WORD_END, " ").trim().to_owned())
        };
        Ok(Encoded { ids, cut })
    }

    /// Returns the number of token ids of an encoded prompt.
    pub fn length(&self) -> usize {
        self.length
    }
}

/// Parses the content of a file as a JSON object.
fn object(file: &'static str, bytes: &[u8]) -> Result<Map<String, Value>> {
    serde_json::from_slice(bytes).map_err(|e| Error::File { file, reason: e.to_string() })
}

/// Returns the number of token ids of an encoded prompt.
fn length(config: &Map<String, Value>) -> Result<usize> {
    let Some(value) = config.get("model_max_length").filter(|value| !value.is_null()) else {
        return Ok(MAX_TOKENS);
    };
    // Tokenizers without a limit have the number 1e30.
    match value.as_f64() {
        Some(number) if number >= 3.0 => Ok((number as usize).min(MAX_TOKENS)),
        _ => Err(Error::Setting {
            file: CONFIG,
            setting: "model_max_length".into(),
            value: value.to_string(),
            supported: "numbers from 3".into(),
        }),
    }
}

/// Returns the pad token and its file. Files with `added_tokens_decoder` do not use `special_tokens_map.json`.
fn pad_token(config: &Map<String, Value>, special: &Map<String, Value>) -> Option<(&'static str, String)> {
    let token = |file, map: &Map<String, Value>| {
        let value = map.get("pad_token")?;
        let text = value.as_str().or_else(|| value.get("content")?.as_str())?;
        Some((file, text.to_owned()))
    };
    let (config_token, special_token) = (token(CONFIG, config), token(SPECIAL, special));
    if config.contains_key("added_tokens_decoder") {
        config_token.or(special_token)
    } else {
        special_token.or(config_token)
    }
}

/// Makes a token of the vocabulary a special token, which transformers does with the pad token. A special token is found in a
/// text before the text is split into words. So with the pad token `!` of Stable Diffusion 2, `dog!` ends with that token.
fn with_special_token(tokenizer_json: &[u8], file: &'static str, token: &str) -> Result<Vec<u8>> {
    let mut tokenizer = object(TOKENIZER, tokenizer_json)?;
    let id = tokenizer.get("model").and_then(|model| model.get("vocab")?.get(token)?.as_u64());
    let added = tokenizer.entry("added_tokens").or_insert_with(|| Value::Array(Vec::new()));
    let added = added
        .as_array_mut()
        .ok_or_else(|| Error::File { file: TOKENIZER, reason: "`added_tokens` is not a list".into() })?;
    if !added.iter().any(|one| one.get("content").and_then(Value::as_str) == Some(token)) {
        let missing = || Error::File {
            file,
            reason: format!("the pad token {token:?} is not in the vocabulary of {TOKENIZER}"),
        };
        added.push(special_token(id.ok_or_else(missing)?, token));
    }
    serde_json::to_vec(&tokenizer).map_err(|e| Error::File { file: TOKENIZER, reason: e.to_string() })
}

/// Returns the entry of a special token in `tokenizer.json`.
fn special_token(id: u64, token: &str) -> Value {
    json!({
        "id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
        "special": true,
    })
}

/// Builds the `tokenizer.json` of a CLIP tokenizer from `vocab.json` and `merges.txt`.
///
/// # Errors
/// If a file is malformed or the vocabulary has no start or end token.
pub fn clip_tokenizer_json(vocab: &[u8], merges: &[u8]) -> Result<Vec<u8>> {
    let vocabulary = object(VOCABULARY, vocab)?;
    let id = |token: &str| {
        let missing = || Error::File { file: VOCABULARY, reason: format!("the token {token} is missing") };
        vocabulary.get(token).and_then(Value::as_u64).ok_or_else(missing)
    };
    let (start, end) = (id(START)?, id(END)?);
    let mut added_tokens = [(start, START), (end, END)];
    added_tokens.sort_unstable();
    let byte_level = |prefix: bool| json!({"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": true, "use_regex": true});
    let whitespace = json!({"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "});
    let split = json!({"type": "Split", "pattern": {"Regex": WORDS}, "behavior": "Removed", "invert": true});
    let tokenizer = json!({
        "version": "1.0",
        "added_tokens": added_tokens.map(|(id, token)| special_token(id, token)),
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, whitespace, {"type": "Lowercase"}]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level(false)]},
        "post_processor": {
            "type": "RobertaProcessing",
            "sep": [END, end],
            "cls": [START, start],
            "trim_offsets": false,
            "add_prefix_space": false,
        },
        "decoder": byte_level(true),
        "model": {
            "type": "BPE",
            "unk_token": END,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": WORD_END,
            "fuse_unk": false,
            "merges": merge_pairs(merges)?,
            "vocab": vocabulary,
        },
    });
    serde_json::to_vec(&tokenizer).map_err(|e| Error::File { file: VOCABULARY, reason: e.to_string() })
}

/// Parses the merges, one pair of tokens a line. A first line may hold a version.
fn merge_pairs(merges: &[u8]) -> Result<Vec<[&str; 2]>> {
    let file = |reason: String| Error::File { file: MERGES, reason };
    let text = std::str::from_utf8(merges).map_err(|e| file(e.to_string()))?;
    let mut pairs = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() || (index == 0 && line.starts_with("#version")) {
            continue;
        }
        let pair = line.trim_end().split_once(' ').filter(|(_, right)| !right.contains(' '));
        let (left, right) =
            pair.ok_or_else(|| file(format!("line {} does not hold two tokens", index + 1)))?;
        pairs.push([left, right]);
    }
    Ok(pairs)
}
