//! Comparison of decoding rules with transformers. `decoding.py` wrote the expected values.

use drift_audio::{
    DecodingSettings, LogProbabilities, LogitRules, StartRequest, Task, Window, best_token, log_softmax,
    previous_text, token_compression_ratio, window_segments,
};
use serde_json::Value;

fn cases() -> Value {
    serde_json::from_str(include_str!("decoding.json")).unwrap()
}

fn settings(cases: &Value) -> DecodingSettings {
    let file = |name: &str| serde_json::to_vec(&cases[name]).unwrap();
    DecodingSettings::from_json(Some(&file("generation_config")), Some(&file("config")), None).unwrap()
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(id).collect()
}

fn id(value: &Value) -> u32 {
    u32::try_from(value.as_u64().unwrap()).unwrap()
}

fn floats(value: &Value) -> Vec<f32> {
    value.as_array().unwrap().iter().map(|v| v.as_f64().unwrap() as f32).collect()
}

#[test]
fn rules_agree_with_transformers() {
    let cases = cases();
    let settings = settings(&cases);
    for case in cases["rules"].as_array().unwrap() {
        let written = ids(&case["written"]);
        for (name, has_timestamps) in [("timestamps", true), ("text", false)] {
            let mut logits = floats(&case["logits"]);
            LogitRules::new(&settings, has_timestamps).apply(&mut logits, &written);
            let allowed: String =
                logits.iter().map(|logit| if *logit == f32::NEG_INFINITY { '0' } else { '1' }).collect();
            assert_eq!(allowed, case[name].as_str().unwrap(), "{name} after {written:?}");
            let best = best_token(&logits).unwrap();
            assert_eq!(best, id(&case[format!("{name}_best")]), "{name} after {written:?}");
            let expected = case[format!("{name}_log_probability")].as_f64().unwrap();
            let found = f64::from(log_softmax(&logits)[best as usize]);
            assert!((found - expected).abs() < 2e-5, "{found}, expected {expected}");
        }
    }
}

#[test]
fn segments_agree_with_transformers() {
    let cases = cases();
    let settings = settings(&cases);
    for case in cases["segments"].as_array().unwrap() {
        let written = ids(&case["written"]);
        let window = Window { start: id(&case["start"]) as usize, frames: id(&case["frames"]) as usize };
        let found = window_segments(&written, window, &settings);
        let expected = case["segments"].as_array().unwrap();
        assert_eq!(found.segments.len(), expected.len(), "{written:?}");
        for (segment, expected) in found.segments.iter().zip(expected) {
            assert!((segment.start - expected[0].as_f64().unwrap()).abs() < 1e-5, "{written:?}: {segment:?}");
            assert!((segment.end - expected[1].as_f64().unwrap()).abs() < 1e-5, "{written:?}: {segment:?}");
            assert_eq!(segment.first, id(&expected[2]) as usize, "{written:?}");
            assert_eq!(segment.tokens, ids(&expected[3]), "{written:?}");
        }
        // Transformers may step after the window, or not at all.
        let advance = match id(&case["advance"]) as usize {
            0 => window.frames,
            advance => advance.min(window.frames),
        };
        assert_eq!(found.advance, advance, "{written:?}");
    }
}

#[test]
fn start_tokens_agree_with_transformers() {
    let cases = cases();
    let settings = settings(&cases);
    for case in cases["starts"].as_array().unwrap() {
        let request = StartRequest {
            language: Some(case["language"].as_str().unwrap().to_owned()),
            task: if case["task"] == "translate" { Task::Translate } else { Task::Transcribe },
            has_timestamps: case["timestamps"].as_bool().unwrap(),
        };
        let language = settings.requested_language(&request).unwrap();
        let found = settings.start_tokens(&request, language.as_deref()).unwrap();
        assert_eq!(found, ids(&case["tokens"]), "{request:?}");
    }
}

#[test]
fn prompts_agree_with_transformers() {
    let cases = cases();
    let settings = settings(&cases);
    for case in cases["prompts"].as_array().unwrap() {
        let texts: Vec<Vec<u32>> = case["texts"].as_array().unwrap().iter().map(ids).collect();
        let previous = previous_text(texts.iter().map(Vec::as_slice), settings.first_timestamp());
        let prompt = settings.prompt_tokens(&[61, 62, 68], &previous);
        assert_eq!(prompt, ids(&case["tokens"]), "{texts:?}");
        assert_eq!(settings.max_new_tokens(&prompt), 20 - prompt.len());
    }
}

#[test]
fn compression_ratios_are_close_to_transformers() {
    for case in cases()["ratios"].as_array().unwrap() {
        let expected = case["ratio"].as_f64().unwrap();
        let vocabulary = id(&case["vocabulary"]) as usize;
        let tokens = ids(&case["tokens"]);
        let found = f64::from(token_compression_ratio(&tokens, vocabulary));
        // The compressor differs from zlib.
        let bytes = tokens.len() as f64 * if vocabulary > 256 { 2.0 } else { 1.0 };
        let difference = (bytes / found - bytes / expected).abs();
        assert!(
            difference <= 12.0 || difference <= 0.08 * bytes / expected,
            "{found}, expected {expected}: {difference} bytes"
        );
    }
}

#[test]
fn mean_log_probabilities_agree_with_transformers() {
    let cases = cases();
    let case = &cases["log_probabilities"];
    let mut found = LogProbabilities::default();
    assert_eq!(found.mean(), 0.0);
    for (row, token) in case["logits"].as_array().unwrap().iter().zip(ids(&case["tokens"])) {
        found.add(&floats(row), token);
    }
    assert!((f64::from(found.mean()) - case["mean"].as_f64().unwrap()).abs() < 1e-5);
}
