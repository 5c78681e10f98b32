//! Comparison of token times and words with transformers. `alignment.py` wrote the expected values.

use drift_audio::{AttentionShape, Word, median_filter, timed_words, token_frames, warp, word_spans};
use drift_text::Tokenizer;
use serde_json::Value;

fn cases() -> Value {
    serde_json::from_str(include_str!("alignment.json")).unwrap()
}

fn floats(value: &Value) -> Vec<f32> {
    value.as_array().unwrap().iter().map(|v| v.as_f64().unwrap() as f32).collect()
}

fn counts(value: &Value) -> Vec<usize> {
    value.as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as usize).collect()
}

#[test]
fn token_frames_agree_with_transformers() {
    for case in cases()["attention"].as_array().unwrap() {
        let &[heads, tokens, frames] = counts(&case["shape"]).as_slice() else { panic!("{case}") };
        let shape = AttentionShape { heads, tokens, frames };
        let found = token_frames(&floats(&case["weights"]), shape, 7).unwrap();
        assert_eq!(found, counts(&case["frames"]), "{shape:?}");
    }
}

#[test]
fn paths_agree_with_transformers() {
    for case in cases()["warps"].as_array().unwrap() {
        let costs: Vec<f64> = floats(&case["costs"]).into_iter().map(f64::from).collect();
        let found = warp(&costs, case["frames"].as_u64().unwrap() as usize).unwrap();
        let expected: Vec<(usize, usize)> =
            case["path"].as_array().unwrap().iter().map(|pair| (counts(pair)[0], counts(pair)[1])).collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn medians_agree_with_transformers() {
    for case in cases()["medians"].as_array().unwrap() {
        let width = case["width"].as_u64().unwrap() as usize;
        assert_eq!(median_filter(&floats(&case["row"]), width).unwrap(), floats(&case["filtered"]));
    }
}

#[test]
fn words_agree_with_transformers() {
    let cases = cases();
    let tokenizer = Tokenizer::new(cases["tokenizer"].as_str().unwrap().as_bytes(), None, None).unwrap();
    for case in cases["words"].as_array().unwrap() {
        let tokens: Vec<u32> = counts(&case["tokens"]).into_iter().map(|id| id as u32).collect();
        let found = word_spans(&tokens, &tokenizer, case["language"].as_str()).unwrap();
        let found: Vec<(String, usize, usize)> =
            found.into_iter().map(|word| (word.text, word.tokens.start, word.tokens.end)).collect();
        let expected: Vec<(String, usize, usize)> = serde_json::from_value(case["words"].clone()).unwrap();
        assert_eq!(found, expected);
    }
}

#[test]
fn words_begin_and_end_with_their_tokens() {
    let cases = cases();
    let tokenizer = Tokenizer::new(cases["tokenizer"].as_str().unwrap().as_bytes(), None, None).unwrap();
    let text = tokenizer.encode(" is it.", false).unwrap();
    let end = tokenizer.id("<|endoftext|>").unwrap();
    let tokens = [&[end + 1], text.as_slice(), &[end + 2]].concat();
    let frames: Vec<usize> = (0..tokens.len()).map(|index| 5 * index).collect();
    let words = |frames: &[usize]| timed_words(&tokens, frames, 30.0, end, &tokenizer, Some("en"));
    let word = |start, end, text: &str| Word { start, end, text: text.into() };
    assert_eq!(tokens.len(), 8);
    assert_eq!(words(&frames).unwrap(), [word(30.1, 30.3, " is"), word(30.3, 30.7, " it.")]);
    let error = words(&frames[1..]).unwrap_err().to_string();
    assert_eq!(error, "7 frames do not cover 8 tokens; pass the frame of every token");
    assert_eq!(timed_words(&[], &[], 0.0, end, &tokenizer, None).unwrap(), []);
}

#[test]
fn wrong_sizes_are_errors() {
    let shape = AttentionShape { heads: 1, tokens: 2, frames: 3 };
    let error = token_frames(&[0.0; 5], shape, 7).unwrap_err().to_string();
    assert!(error.starts_with("5 cross-attention weights do not have the shape [1, 2, 3]"), "{error}");
    let huge = AttentionShape { heads: usize::MAX, tokens: 2, frames: 3 };
    assert!(token_frames(&[], huge, 7).is_err());
    assert!(
        token_frames(&[0.0; 6], shape, 4)
            .unwrap_err()
            .to_string()
            .contains("width of the median filter is 4")
    );
    assert!(median_filter(&[0.0], 0).is_err());
    assert!(warp(&[], 1).is_err() && warp(&[0.0], 0).is_err() && warp(&[0.0; 5], 2).is_err());
    assert_eq!(token_frames(&[0.0; 6], shape, 7).unwrap().len(), 2);
    assert_eq!(token_frames(&[f32::NAN; 6], shape, 7).unwrap().len(), 2);
}
