//! Decoding of several windows, compared with transformers' `generate`. `windows.py` wrote the logits and the results.

use drift_audio::{
    DecodingSettings, LogitRules, Sampler, StartRequest, Task, Window, WindowSegment, previous_text,
    window_segments,
};
use serde_json::Value;

fn ids(value: &Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).unwrap()
}

/// Decodes a window from its recorded logits.
fn decode(settings: &DecodingSettings, window: &Value, prompt: &[u32]) -> Vec<u32> {
    let rules = LogitRules::new(settings, true);
    let mut sampler = Sampler::new(0);
    let mut written = Vec::new();
    let steps = window["logits"].as_array().unwrap();
    for logits in steps {
        assert!(written.len() < settings.max_new_tokens(prompt));
        let mut logits: Vec<f32> = serde_json::from_value(logits.clone()).unwrap();
        rules.apply(&mut logits, &written);
        let token = sampler.select(&logits, 0.0).unwrap();
        if settings.is_end(token) {
            break;
        }
        written.push(token);
    }
    assert!(written.len() + 1 >= steps.len(), "transformers wrote more tokens than {written:?}");
    written
}

#[test]
fn windows_of_a_recording_agree_with_transformers() {
    let file: Value = serde_json::from_str(include_str!("windows.json")).unwrap();
    let json = |name: &str| serde_json::to_vec(&file[name]).unwrap();
    let settings =
        DecodingSettings::from_json(Some(&json("generation_config")), Some(&json("config")), None).unwrap();
    assert_eq!(settings.window_frames, 60);
    let frames = file["frames"].as_u64().unwrap() as usize;
    let request = StartRequest { language: Some("en".into()), task: Task::Transcribe, has_timestamps: true };
    let language = settings.requested_language(&request).unwrap();
    let start_tokens = settings.start_tokens(&request, language.as_deref()).unwrap();
    for run in file["runs"].as_array().unwrap() {
        let mut segments: Vec<WindowSegment> = Vec::new();
        let mut windows = run["windows"].as_array().unwrap().iter();
        let mut start = 0;
        while start < frames {
            let recorded = windows.next().unwrap();
            let texts = segments.iter().map(|segment| segment.tokens.as_slice());
            let prompt =
                settings.prompt_tokens(&start_tokens, &previous_text(texts, settings.first_timestamp()));
            assert_eq!(prompt, ids(&recorded["prompt"]));
            let written = decode(&settings, recorded, &prompt);
            let window = Window { start, frames: settings.window_frames.min(frames - start) };
            let found = window_segments(&written, window, &settings);
            segments.extend(found.segments);
            start += found.advance;
        }
        assert!(windows.next().is_none());
        let expected = run["segments"].as_array().unwrap();
        assert_eq!(segments.len(), expected.len());
        for (segment, expected) in segments.iter().zip(expected) {
            assert!((segment.start - expected[0].as_f64().unwrap()).abs() < 1e-4, "{segment:?}");
            assert!((segment.end - expected[1].as_f64().unwrap()).abs() < 1e-4, "{segment:?}");
            assert_eq!(segment.tokens, ids(&expected[2]));
        }
    }
}
