//! Tests of the embeddings of `driftc serve`.

use serde_json::{Value, json};

use crate::place::Server;

const EMBEDDINGS: &str = "/v1/embeddings";

/// Returns the vectors of an answer.
fn vectors(answer: &Value) -> Vec<Vec<f32>> {
    let data = answer["data"].as_array().unwrap();
    for (index, entry) in data.iter().enumerate() {
        assert_eq!((&entry["object"], &entry["index"]), (&json!("embedding"), &json!(index)));
    }
    let numbers = |entry: &Value| -> Vec<f32> {
        entry["embedding"].as_array().unwrap().iter().map(|value| value.as_f64().unwrap() as f32).collect()
    };
    data.iter().map(numbers).collect()
}

#[test]
fn texts_have_embeddings() {
    let server = Server::start(&["bert.drift"], &[]);
    let embed = |input: Value| server.done(EMBEDDINGS, &json!({"model": "bert", "input": input}));
    let answer = embed(json!(["one two three", "zig zag", "one two three"]));
    assert_eq!(answer["usage"], json!({"prompt_tokens": 11, "total_tokens": 11}));
    let all = vectors(&answer);
    assert!(all.iter().all(|vector| vector.len() == 32));
    for vector in &all {
        let length = vector.iter().map(|value| value * value).sum::<f32>();
        assert!((length - 1.0).abs() < 1e-5, "{length}");
    }
    assert_eq!(all[0], all[2]);
    assert_ne!(all[0], all[1]);
    // One text, and token ids in place of the text.
    assert_eq!(vectors(&embed(json!("zig zag"))), [all[1].clone()]);
    assert_eq!(vectors(&embed(json!([0, 18, 19]))), [all[1].clone()]);
    assert_eq!(vectors(&embed(json!([[0, 18, 19], [0, 1, 2, 3]]))), [all[1].clone(), all[0].clone()]);
    let request = json!({"input": "zig zag", "encoding_format": "base64"});
    let answer = server.done(EMBEDDINGS, &request);
    assert_eq!(decode(answer["data"][0]["embedding"].as_str().unwrap()), all[1]);
}

/// Decodes base64 of little-endian floats.
fn decode(text: &str) -> Vec<f32> {
    let digit = |c: u8| match c {
        b'A'..=b'Z' => u32::from(c - b'A'),
        b'a'..=b'z' => u32::from(c - b'a') + 26,
        b'0'..=b'9' => u32::from(c - b'0') + 52,
        b'+' => 62,
        b'/' => 63,
        _ => 0,
    };
    let word = |chunk: &[u8]| chunk.iter().fold(0, |word, c| word << 6 | digit(*c)).to_be_bytes();
    let bytes: Vec<u8> = text.as_bytes().chunks(4).flat_map(|chunk| word(chunk)[1..].to_vec()).collect();
    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

#[test]
fn wrong_requests_are_refused() {
    let server = Server::start(&["bert.drift", "word.drift"], &[]);
    let refused = |body: Value, says: &str| {
        let mut body = body;
        body["model"] = json!("bert");
        server.refused(EMBEDDINGS, &body, 400, says)
    };
    refused(json!({}), "missing");
    refused(json!({"input": 7}), "must be");
    refused(json!({"input": []}), "empty");
    refused(json!({"input": ["one", 7]}), "must be");
    refused(json!({"input": [7, "one"]}), "must be");
    refused(json!({"input": vec!["one"; 2049]}), "2048");
    refused(json!({"input": "one", "dimensions": 8}), "dimensions");
    refused(json!({"input": "one", "encoding_format": "hex"}), "base64");
    refused(json!({"input": [0, 20]}), "20");
    refused(json!({"input": [-1]}), "must be");
    refused(json!({"input": [[]]}), "empty");
    let error = refused(json!({"input": "one ".repeat(16)}), "17 tokens");
    assert_eq!(error["code"], "context_length_exceeded");
    server.refused(EMBEDDINGS, &json!({"model": "word", "input": "one"}), 400, "language model");
    let chat = json!({"model": "bert", "messages": [{"role": "user", "content": "one"}]});
    server.refused("/v1/chat/completions", &chat, 400, "embedding model");
}
