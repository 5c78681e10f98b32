//! The tokenizer and chat template of a GGUF file, as the files of a Hugging Face folder.
//!
//! GGUF vocabularies of the model `gpt2` are byte-level BPE with merges; the entry `pre` names the pre-tokenizer. Vocabularies
//! of the model `llama` are SentencePiece with a score for each piece. Merging the best-scored neighbors first equals BPE with
//! all pairs that form a piece as merges, best scores first.

use std::collections::{BTreeMap, BTreeSet};

use driftc::import::gguf::Value;
use serde_json::{Value as Json, json};

/// Contents of `tokenizer.json` and `tokenizer_config.json`.
#[derive(Debug)]
pub struct TokenizerFiles {
    /// `tokenizer.json`.
    pub tokenizer: Json,
    /// `tokenizer_config.json`.
    pub config: Json,
}

/// Token types in the entry `tokenizer.ggml.token_type` of GGUF metadata.
const UNKNOWN: u64 = 2;
const CONTROL: u64 = 3;
const USER_DEFINED: u64 = 4;

/// Two parts of the pre-tokenizer's regular expression: the part before and the part after its pattern for digits. The whole
/// expression matches contractions, words, digits, other characters, line breaks and spaces. The pattern for digits is
/// inserted between the parts: Llama 3 groups up to three digits, Qwen 2 splits every digit.
const PRE_TOKENIZER: [&str; 2] = [
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
];

type Metadata = BTreeMap<String, Value>;

/// Converts the tokenizer in the metadata of a GGUF file. Returns `None` if the file has no tokenizer.
///
/// # Errors
/// If an entry of the metadata is malformed or not supported. The message names the entry.
pub fn tokenizer_files(metadata: &Metadata) -> Result<Option<TokenizerFiles>, String> {
    let Some(model) = metadata.get("tokenizer.ggml.model").and_then(Value::as_text) else { return Ok(None) };
    let vocabulary = Vocabulary::read(metadata)?;
    let mut tokenizer = match model {
        "gpt2" => vocabulary.byte_level(metadata)?,
        "llama" => vocabulary.sentence_piece(metadata)?,
        other => {
            return Err(format!(
                "`tokenizer.ggml.model` is `{other}`, which is not supported; supported: gpt2 and llama"
            ));
        }
    };
    tokenizer["version"] = json!("1.0");
    tokenizer["truncation"] = Json::Null;
    tokenizer["padding"] = Json::Null;
    tokenizer["added_tokens"] = vocabulary.added_tokens();
    let mut config = json!({"clean_up_tokenization_spaces": false});
    for (name, key) in [
        ("bos_token", "bos_token_id"),
        ("eos_token", "eos_token_id"),
        ("unk_token", "unknown_token_id"),
        ("pad_token", "padding_token_id"),
    ] {
        if let Some(token) = vocabulary.token(metadata, key) {
            config[name] = json!(token);
        }
    }
    if let Some(template) = metadata.get("tokenizer.chat_template").and_then(Value::as_text) {
        config["chat_template"] = json!(template);
    }
    Ok(Some(TokenizerFiles { tokenizer, config }))
}

struct Vocabulary<'a> {
    tokens: Vec<&'a str>,
    kinds: Vec<u64>,
}

impl<'a> Vocabulary<'a> {
    fn read(metadata: &'a Metadata) -> Result<Self, String> {
        let key = "tokenizer.ggml.tokens";
        let tokens = metadata.get(key).and_then(Value::as_list).ok_or(format!("`{key}` is missing"))?;
        let tokens: Option<Vec<&str>> = tokens.iter().map(Value::as_text).collect();
        let tokens = tokens.ok_or(format!("`{key}` is not a list of strings"))?;
        let kinds = metadata.get("tokenizer.ggml.token_type").and_then(Value::as_list).unwrap_or_default();
        let kinds: Vec<u64> = kinds.iter().map(|k| k.as_unsigned().unwrap_or(1)).collect();
        if !kinds.is_empty() && kinds.len() != tokens.len() {
            return Err(format!(
                "`tokenizer.ggml.token_type` has {} entries for {} tokens",
                kinds.len(),
                tokens.len()
            ));
        }
        Ok(Self { tokens, kinds })
    }

    fn kind(&self, id: usize) -> u64 {
        self.kinds.get(id).copied().unwrap_or(1)
    }

    fn token(&self, metadata: &Metadata, key: &str) -> Option<&'a str> {
        let id = metadata.get(&format!("tokenizer.ggml.{key}"))?.as_unsigned()?;
        self.tokens.get(usize::try_from(id).ok()?).copied()
    }

    /// Returns a map from each token of the vocabulary to its id. A token that occurs twice gets its lowest id.
    fn ids(&self) -> BTreeMap<&'a str, usize> {
        let mut ids = BTreeMap::new();
        for (id, token) in self.tokens.iter().enumerate() {
            ids.entry(*token).or_insert(id);
        }
        ids
    }

    /// Returns the added tokens (unknown, control and user-defined), which the tokenizer matches before it splits a text.
    fn added_tokens(&self) -> Json {
        let added =
            (0..self.tokens.len()).filter(|id| matches!(self.kind(*id), UNKNOWN | CONTROL | USER_DEFINED));
        added
            .map(|id| {
                json!({
                    "id": id, "content": self.tokens.get(id), "special": self.kind(id) != USER_DEFINED,
                    "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
                })
            })
            .collect()
    }

    /// Returns the post-processor that adds start and end tokens to a text, or `None` if none are added. `bos_default` is the
    /// default of the entry `add_bos_token`.
    fn template_processing(&self, metadata: &Metadata, bos_default: bool) -> Option<Json> {
        let add = |key: &str, default: bool| {
            metadata.get(&format!("tokenizer.ggml.{key}")).and_then(Value::as_bool).unwrap_or(default)
        };
        let mut single = vec![json!({"Sequence": {"id": "A", "type_id": 0}})];
        let mut tokens = serde_json::Map::new();
        let mut token = |key: &str| {
            let token = self.token(metadata, key)?;
            let id = metadata.get(&format!("tokenizer.ggml.{key}"))?.as_unsigned()?;
            tokens.insert(token.to_owned(), json!({"id": token, "ids": [id], "tokens": [token]}));
            Some(json!({"SpecialToken": {"id": token, "type_id": 0}}))
        };
        let first = if add("add_bos_token", bos_default) { token("bos_token_id") } else { None };
        let last = if add("add_eos_token", false) { token("eos_token_id") } else { None };
        if first.is_none() && last.is_none() {
            return None;
        }
        single.splice(0..0, first);
        single.extend(last);
        let mut pair = single.clone();
        pair.push(json!({"Sequence": {"id": "B", "type_id": 1}}));
        Some(json!({"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": tokens}))
    }

    fn byte_level(&self, metadata: &Metadata) -> Result<Json, String> {
        let pre = metadata.get("tokenizer.ggml.pre").and_then(Value::as_text).unwrap_or("gpt-2");
        let bytes = |regex: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": regex});
        let split = |digits: &str| {
            let pattern = [PRE_TOKENIZER[0], digits, PRE_TOKENIZER[1]].concat();
            let split = json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
            json!({"type": "Sequence", "pretokenizers": [split, bytes(false)]})
        };
        let digits = json!({"type": "Digits", "individual_digits": true});
        let (pre_tokenizer, is_llama3, normalize_nfc) = match pre {
            "llama-bpe" | "llama3" | "llama-v3" => (split(r"\p{N}{1,3}"), true, false),
            "qwen2" => (split(r"\p{N}"), false, true),
            "smollm" => (json!({"type": "Sequence", "pretokenizers": [digits, bytes(true)]}), false, false),
            "gpt-2" => (bytes(true), false, false),
            other => {
                return Err(format!(
                    "`tokenizer.ggml.pre` is `{other}`, which is not supported; supported: gpt-2, llama-bpe, qwen2 and smollm"
                ));
            }
        };
        let key = "tokenizer.ggml.merges";
        let merges = metadata.get(key).and_then(Value::as_list).ok_or(format!("`{key}` is missing"))?;
        // A space separates the two tokens of a merge. Tokens write their own spaces as other characters.
        let merges: Option<Vec<[&str; 2]>> =
            merges.iter().map(|m| m.as_text()?.split_once(' ').map(|(a, b)| [a, b])).collect();
        let merges =
            merges.ok_or(format!("`{key}` is not a list of two tokens with a space between them"))?;
        let model = json!({
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "ignore_merges": is_llama3, "vocab": self.ids(), "merges": merges,
        });
        let byte_level = bytes(true);
        let processor = match self.template_processing(metadata, is_llama3) {
            Some(template) => json!({"type": "Sequence", "processors": [byte_level, template]}),
            None => byte_level.clone(),
        };
        Ok(json!({
            "normalizer": if normalize_nfc { json!({"type": "NFC"}) } else { Json::Null },
            "pre_tokenizer": pre_tokenizer, "post_processor": processor, "decoder": byte_level, "model": model,
        }))
    }

    fn sentence_piece(&self, metadata: &Metadata) -> Result<Json, String> {
        let key = "tokenizer.ggml.scores";
        let scores = metadata.get(key).and_then(Value::as_list).ok_or(format!("`{key}` is missing"))?;
        if scores.len() != self.tokens.len() {
            return Err(format!("`{key}` has {} entries for {} tokens", scores.len(), self.tokens.len()));
        }
        let prefix = metadata.get("tokenizer.ggml.add_space_prefix").and_then(Value::as_bool).unwrap_or(true);
        let replace = json!({"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"});
        let mut normalizers = vec![json!({"type": "Prepend", "prepend": "\u{2581}"}), replace];
        let mut decoders = vec![
            json!({"type": "Replace", "pattern": {"String": "\u{2581}"}, "content": " "}),
            json!({"type": "ByteFallback"}),
            json!({"type": "Fuse"}),
            json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}),
        ];
        if !prefix {
            normalizers.remove(0);
            decoders.pop();
        }
        let unknown = self.token(metadata, "unknown_token_id");
        let model = json!({
            "type": "BPE", "dropout": null, "unk_token": unknown, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
            "vocab": self.ids(), "merges": self.merges(scores),
        });
        Ok(json!({
            "normalizer": {"type": "Sequence", "normalizers": normalizers},
            "pre_tokenizer": null, "post_processor": self.template_processing(metadata, true),
            "decoder": {"type": "Sequence", "decoders": decoders}, "model": model,
        }))
    }

    /// Returns BPE merges for a SentencePiece vocabulary: all pairs of pieces that together form a piece, by descending score
    /// and then by ascending id of that piece.
    fn merges(&self, scores: &[Value]) -> Vec<[&'a str; 2]> {
        let ordinary = |id: usize| matches!(self.kind(id), 1 | USER_DEFINED);
        let pieces: BTreeSet<&str> =
            self.tokens.iter().enumerate().filter(|(id, _)| ordinary(*id)).map(|(_, token)| *token).collect();
        let mut merges = Vec::new();
        for (id, token) in self.tokens.iter().enumerate().filter(|(id, _)| ordinary(*id)) {
            let score = scores.get(id).and_then(Value::as_float).unwrap_or(0.0);
            for (at, _) in token.char_indices().skip(1) {
                let (a, b) = token.split_at(at);
                if pieces.contains(a) && pieces.contains(b) {
                    merges.push((score, id, [a, b]));
                }
            }
        }
        merges.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        merges.into_iter().map(|(_, _, pair)| pair).collect()
    }
}
