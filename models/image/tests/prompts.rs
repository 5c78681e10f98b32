//! Comparison of token ids of prompts with the CLIP tokenizer of transformers. `prompts.py` wrote the expected values.

use drift_image::{Error, PromptEncoder, clip_tokenizer_json};
use serde_json::{Value, json};

fn reference() -> Value {
    serde_json::from_str(include_str!("prompts.json")).unwrap()
}

/// Builds the tokenizer of the reference.
fn tokenizer(reference: &Value) -> Vec<u8> {
    let vocabulary = serde_json::to_vec(&reference["vocabulary"]).unwrap();
    clip_tokenizer_json(&vocabulary, reference["merges"].as_str().unwrap().as_bytes()).unwrap()
}

/// Creates an encoder with a configuration and a special tokens map.
fn encoder(config: &Value, special: &Value) -> Result<PromptEncoder, Error> {
    let (config, special) = (config.to_string(), special.to_string());
    PromptEncoder::new(&tokenizer(&reference()), Some(config.as_bytes()), Some(special.as_bytes()))
}

/// Returns the only pad token id that a prompt ends with.
fn last_id(encoder: &PromptEncoder) -> i32 {
    encoder.encode("cat").unwrap().ids.last().copied().unwrap()
}

#[test]
fn token_ids_agree_with_transformers() {
    let reference = reference();
    for case in reference["cases"].as_array().unwrap() {
        let encoder = encoder(&json!({}), &json!({"pad_token": case["pad_token"]})).unwrap();
        let pad = case["pad_id"].as_i64().unwrap();
        for text in case["texts"].as_array().unwrap() {
            let mut expected: Vec<i64> =
                text["ids"].as_array().unwrap().iter().map(|v| v.as_i64().unwrap()).collect();
            expected.resize(77, pad);
            let found = encoder.encode(text["text"].as_str().unwrap()).unwrap();
            let ids: Vec<i64> = found.ids.into_iter().map(i64::from).collect();
            assert_eq!(ids, expected, "{}", text["text"]);
        }
    }
}

#[test]
fn tokenizer_file_is_that_of_transformers() {
    let reference = reference();
    let mut built: Value = serde_json::from_slice(&tokenizer(&reference)).unwrap();
    assert_eq!(built["model"]["vocab"], reference["vocabulary"]);
    built["model"]["vocab"] = json!({});
    let mut expected = reference["tokenizer"].clone();
    // These settings have their default values.
    for key in ["dropout", "byte_fallback", "ignore_merges"] {
        let setting = expected["model"].as_object_mut().unwrap().remove(key);
        assert!(setting.is_some_and(|value| value.is_null() || value == json!(false)));
    }
    assert_eq!(built, expected);
}

#[test]
fn long_prompts_are_cut() {
    let encoder = encoder(&json!({}), &json!({})).unwrap();
    assert_eq!(encoder.encode(&"the ".repeat(75)).unwrap().cut, None);
    let words = format!("{}Red dog!", "the ".repeat(75));
    assert_eq!(encoder.encode(&words).unwrap().cut.as_deref(), Some("red dog !"));
    let short = self::encoder(&json!({"model_max_length": 4}), &json!({})).unwrap();
    let encoded = short.encode("the red dog").unwrap();
    assert_eq!((encoded.ids.len(), encoded.cut.as_deref()), (4, Some("dog")));
}

#[test]
fn pad_token_comes_from_the_file_that_transformers_uses() {
    let end = last_id(&encoder(&json!({}), &json!({})).unwrap());
    let (end_token, exclamation) = (json!("<|endoftext|>"), json!({"content": "!", "lstrip": false}));
    let cases = [
        (json!({"pad_token": end_token, "model_max_length": 1e30}), json!({"pad_token": exclamation}), 0),
        (json!({"pad_token": "!"}), json!({"pad_token": null}), 0),
        (json!({"pad_token": "!", "added_tokens_decoder": {}}), json!({"pad_token": end_token}), 0),
        (json!({"pad_token": end_token, "model_max_length": null}), json!({}), end),
    ];
    for (config, special, expected) in cases {
        let encoder = encoder(&config, &special).unwrap();
        assert_eq!(last_id(&encoder), expected, "{config} {special}");
        assert_eq!(encoder.length(), 77);
    }
}

#[test]
fn malformed_files_are_errors() {
    let message =
        |error: Result<PromptEncoder, Error>| error.err().map(|e| e.to_string()).unwrap_or_default();
    let unknown = message(encoder(&json!({}), &json!({"pad_token": "<pad>"})));
    assert!(unknown.starts_with("special_tokens_map.json: the pad token \"<pad>\""), "{unknown}");
    let short = message(encoder(&json!({"model_max_length": 2}), &json!({})));
    assert!(short.contains("`model_max_length` is 2"), "{short}");
    let list = message(encoder(&json!([]), &json!({})));
    assert!(list.starts_with("tokenizer_config.json: "), "{list}");
    assert!(PromptEncoder::new(b"{}", None, None).is_err());
    let start = r#"{"<|startoftext|>": 0}"#;
    let missing = clip_tokenizer_json(start.as_bytes(), b"").unwrap_err().to_string();
    assert_eq!(missing, "vocab.json: the token <|endoftext|> is missing");
    let both = r#"{"<|startoftext|>": 0, "<|endoftext|>": 1}"#;
    for merges in [&b"#version: 0.2\na b c\n"[..], b"abc", b"\xff"] {
        let error = clip_tokenizer_json(both.as_bytes(), merges).unwrap_err().to_string();
        assert!(error.starts_with("merges.txt: "), "{error}");
    }
}
