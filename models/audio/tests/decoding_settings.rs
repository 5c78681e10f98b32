//! Settings, languages, sampling and fallback of decoding.

use drift_audio::{
    DecodingSettings, LogitRules, Quality, Sampler, StartRequest, TEMPERATURES, Task, Thresholds, Verdict,
    Window, best_token, compression_ratio, detect_language, language_code, language_name, probability,
    window_segments,
};
use drift_text::Tokenizer;

const MULTILINGUAL: &str = r#"{
    "decoder_start_token_id": 3, "eos_token_id": 2, "is_multilingual": true,
    "lang_to_id": {"<|en|>": 4, "<|de|>": 5}, "task_to_id": {"translate": 6, "transcribe": 7},
    "no_timestamps_token_id": 10, "suppress_tokens": [1, 8, 9], "begin_suppress_tokens": [2]
}"#;

fn settings(generation: &str, config: &str) -> drift_audio::Result<DecodingSettings> {
    DecodingSettings::from_json(Some(generation.as_bytes()), Some(config.as_bytes()), None)
}

fn request(language: Option<&str>, task: Task, has_timestamps: bool) -> StartRequest {
    StartRequest { language: language.map(str::to_owned), task, has_timestamps }
}

#[test]
fn models_without_generation_config_decode_greedily() {
    let config =
        br#"{"decoder_start_token_id": 3, "eos_token_id": 2, "vocab_size": 16, "max_target_positions": 8}"#;
    let settings = DecodingSettings::from_json(None, Some(config), None).unwrap();
    let request = StartRequest::default();
    assert_eq!(settings.requested_language(&request).unwrap(), None);
    assert!(!settings.detects_language(&request));
    let start = settings.start_tokens(&request, None).unwrap();
    assert_eq!(start, [3]);
    assert_eq!(settings.prompt_tokens(&start, &[1, 2, 3]), [3]);
    assert_eq!(
        (settings.max_new_tokens(&start), settings.window_frames, settings.no_speech()),
        (7, 3000, None)
    );
    let mut logits = vec![0.5, 2.0, 1.0];
    LogitRules::new(&settings, true).apply(&mut logits, &[]);
    assert_eq!(logits, [0.5, 2.0, 1.0]);
    assert_eq!(Sampler::new(0).select(&logits, 0.0), Some(1));
    assert!(settings.is_end(2) && !settings.is_end(1));
    let found = window_segments(&[1, 1], Window { start: 100, frames: 50 }, &settings);
    assert_eq!((found.segments[0].start, found.segments[0].end, found.advance), (1.0, 1.5, 50));
}

#[test]
fn files_without_start_token_or_with_wrong_types_are_errors() {
    let text = |generation| settings(generation, "{}").unwrap_err().to_string();
    assert!(text("{}").contains("`decoder_start_token_id` is missing, also in config.json"));
    assert!(text("[1]").starts_with("generation_config.json: "));
    let wrong = text(r#"{"decoder_start_token_id": 1, "suppress_tokens": ["a"]}"#);
    assert_eq!(
        wrong,
        "generation_config.json: the setting `suppress_tokens` is [\"a\"]; supported: a token id, or a list of token ids"
    );
    assert!(text(r#"{"decoder_start_token_id": 1, "lang_to_id": [1]}"#).contains("`lang_to_id`"));
    assert!(text(r#"{"decoder_start_token_id": 1, "alignment_heads": [[1]]}"#).contains("`alignment_heads`"));
    assert!(text(r#"{"decoder_start_token_id": 1, "forced_decoder_ids": [[2, 5]]}"#).contains("position 1"));
    let config = settings(r#"{"decoder_start_token_id": 1}"#, r#"{"max_target_positions": 0}"#).unwrap_err();
    assert!(config.to_string().starts_with("config.json: the setting `max_target_positions` is 0"));
}

#[test]
fn suppressed_tokens_of_config_count_only_without_generation_config() {
    let config = r#"{"decoder_start_token_id": 3, "suppress_tokens": [1, -1], "forced_decoder_ids": [[1, null], [2, 7]]}"#;
    assert_eq!(settings(r#"{"eos_token_id": [2, 5]}"#, config).unwrap().suppressed, Vec::<u32>::new());
    let plain = DecodingSettings::from_json(None, Some(config.as_bytes()), None).unwrap();
    assert_eq!(plain.suppressed, [1]);
    assert_eq!(plain.start_tokens(&StartRequest::default(), None).unwrap(), [3, 7]);
}

#[test]
fn english_models_have_no_language_and_task() {
    let english = settings(
        r#"{"decoder_start_token_id": 3, "eos_token_id": 2, "is_multilingual": false, "no_timestamps_token_id": 10,
            "forced_decoder_ids": [[1, 10]]}"#,
        "{}",
    )
    .unwrap();
    for language in [None, Some("en"), Some("English")] {
        let plain = request(language, Task::Transcribe, false);
        assert_eq!(english.requested_language(&plain).unwrap(), None);
        assert_eq!(english.start_tokens(&plain, None).unwrap(), [3, 10]);
        assert_eq!(english.start_tokens(&request(language, Task::Transcribe, true), None).unwrap(), [3]);
    }
    let german = english.requested_language(&request(Some("de"), Task::Transcribe, false)).unwrap_err();
    assert!(german.to_string().contains("use a multilingual model, or give no language"), "{german}");
    let translate = request(None, Task::Translate, false);
    assert!(
        english.requested_language(&translate).is_err() && english.start_tokens(&translate, None).is_err()
    );
}

#[test]
fn languages_are_detected_or_requested() {
    let model = settings(MULTILINGUAL, "{}").unwrap();
    assert_eq!((model.first_timestamp(), model.no_speech(), model.previous), (Some(11), Some(9), Some(8)));
    let mut logits = vec![0.0; 12];
    logits[2] = 9.0;
    logits[5] = 1.0;
    let (code, probability) = detect_language(&logits, &model.languages).unwrap();
    assert_eq!(code, "de");
    assert!((probability - 0.731_058_6).abs() < 1e-6);
    assert_eq!(detect_language(&[0.0; 2], &model.languages), None);
    let detect = request(None, Task::Transcribe, false);
    assert!(model.detects_language(&detect));
    assert_eq!(model.start_tokens(&detect, Some("de")).unwrap(), [3, 5, 7, 10]);
    let unknown = model.requested_language(&request(Some("French"), Task::Transcribe, false)).unwrap_err();
    assert_eq!(unknown.to_string(), "the model does not support the language `French`; supported: de, en");
    assert_eq!(
        (language_code("Mandarin"), language_code("<|DE|>"), language_code("xx")),
        (Some("zh"), Some("de"), None)
    );
    assert_eq!((language_name("yue"), language_name("xx")), (Some("cantonese"), None));
}

#[test]
fn missing_ids_come_from_the_tokenizer() {
    let vocabulary = r#"{"type": "BPE", "vocab": {"a": 0}, "merges": []}"#;
    let names = [
        "<|endoftext|>",
        "<|startoftranscript|>",
        "<|en|>",
        "<|de|>",
        "<|translate|>",
        "<|transcribe|>",
        "<|startofprev|>",
        "<|notimestamps|>",
    ];
    let added: Vec<String> = names
        .iter()
        .zip(1..)
        .map(|(name, id)| {
            format!(r#"{{"id": {id}, "content": "{name}", "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false}}"#)
        })
        .collect();
    let json =
        format!(r#"{{"version": "1.0", "added_tokens": [{}], "model": {vocabulary}}}"#, added.join(","));
    let tokenizer = Tokenizer::new(json.as_bytes(), None, None).unwrap();
    let generation = br#"{"decoder_start_token_id": 2, "eos_token_id": 1, "is_multilingual": true}"#;
    let model = DecodingSettings::from_json(Some(generation), None, Some(&tokenizer)).unwrap();
    assert_eq!(
        model.languages.iter().map(|(code, id)| (code.as_str(), *id)).collect::<Vec<_>>(),
        [("de", 4), ("en", 3)]
    );
    assert_eq!(
        (model.translate, model.transcribe, model.previous, model.no_timestamps),
        (Some(5), Some(6), Some(7), Some(8))
    );
}

#[test]
fn sampling_follows_probabilities_and_seed() {
    let logits = [0.0, f32::NEG_INFINITY, 2.0, 1.0];
    let draw = |seed, temperature| {
        let mut sampler = Sampler::new(seed);
        (0..4000).map(|_| sampler.select(&logits, temperature).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(draw(1, 1.0), draw(1, 1.0));
    assert_ne!(draw(1, 1.0), draw(2, 1.0));
    assert!(draw(1, 0.0).iter().all(|token| *token == 2));
    for temperature in [0.5, 1.0, 2.0] {
        let scaled: Vec<f32> = logits.iter().map(|logit| logit / temperature).collect();
        let drawn = draw(7, temperature);
        for token in 0..4 {
            let share = drawn.iter().filter(|drawn| **drawn == token).count() as f32 / 4000.0;
            assert!((share - probability(&scaled, token)).abs() < 0.03, "token {token}: {share}");
        }
    }
    assert_eq!(Sampler::new(0).select(&[f32::NEG_INFINITY; 3], 1.0), None);
    assert_eq!(Sampler::new(0).select(&logits, f32::NAN), Some(2));
    assert_eq!(best_token(&[1.0, 3.0, 3.0, f32::NAN]), Some(1));
    assert_eq!((best_token(&[]), probability(&[], 0)), (None, 0.0));
}

#[test]
fn windows_of_low_quality_are_decoded_again_or_skipped() {
    let good = Quality { compression_ratio: 1.5, log_probability: -0.3, no_speech_probability: 0.9 };
    let limits = Thresholds::default();
    assert_eq!(limits.verdict(&good), Verdict::Accept);
    assert_eq!(limits.verdict(&Quality { compression_ratio: 2.5, ..good }), Verdict::Retry);
    let unlikely = Quality { log_probability: -1.1, no_speech_probability: 0.1, ..good };
    assert_eq!(limits.verdict(&unlikely), Verdict::Retry);
    assert_eq!(limits.verdict(&Quality { no_speech_probability: 0.7, ..unlikely }), Verdict::Skip);
    let off = Thresholds { compression_ratio: None, log_probability: None, no_speech: None };
    assert_eq!(off.verdict(&Quality { compression_ratio: 9.0, ..unlikely }), Verdict::Accept);
    let kept: Vec<f32> = TEMPERATURES.into_iter().filter(|t| Thresholds::keeps_previous_text(*t)).collect();
    assert_eq!(kept, [0.0, 0.2, 0.4]);
    assert!(compression_ratio(&"again and ".repeat(20)) > 2.4);
    assert!(compression_ratio("The quick brown fox jumps over the lazy dog.") < 1.5);
    assert_eq!(compression_ratio(""), 0.0);
}
