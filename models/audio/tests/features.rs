//! Comparison of log-mel features with transformers. `features.py` wrote the expected values.

use std::f64::consts::PI;

use drift_audio::WhisperFeatures;
use serde_json::Value;

/// Maximum difference to transformers.
const TOLERANCE: f64 = 1e-4;
const RATE: usize = 16000;

fn signal() -> Vec<f32> {
    let mut state = 1_u32;
    let sample = |i| {
        let time = i as f64 / RATE as f64;
        let chirp = 0.4 * libm::sin(2.0 * PI * (100.0 * time + 250.0 * time * time));
        let tone = 0.05 * libm::sin(2.0 * PI * 5000.0 * time);
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let noise = 0.002 * (f64::from(state) / f64::from(1_u32 << 31) - 1.0);
        (chirp + tone + noise) as f32
    };
    (0..7 * RATE).map(sample).collect()
}

fn extractor(json: &str) -> WhisperFeatures {
    WhisperFeatures::from_json(json.as_bytes()).unwrap()
}

fn error(json: &str) -> String {
    WhisperFeatures::from_json(json.as_bytes()).err().unwrap().to_string()
}

#[test]
fn features_agree_with_transformers() {
    let cases: Value = serde_json::from_str(include_str!("features.json")).unwrap();
    for case in cases.as_array().unwrap() {
        let size = case["feature_size"].as_u64().unwrap() as usize;
        let extractor = extractor(&format!(r#"{{"feature_size": {size}, "dither": 0.0}}"#));
        let features = extractor.log_mel(&signal());
        assert_eq!((extractor.mels(), extractor.frames(), features.len()), (size, 3000, size * 3000));
        let mut worst = 0.0_f64;
        for (frame, expected) in
            case["frames"].as_array().unwrap().iter().zip(case["features"].as_array().unwrap())
        {
            let frame = frame.as_u64().unwrap() as usize;
            for (mel, expected) in expected.as_array().unwrap().iter().enumerate() {
                let found = f64::from(features[mel * 3000 + frame]);
                worst = worst.max((found - expected.as_f64().unwrap()).abs());
            }
        }
        println!("{size} mels: largest difference {worst:.1e}");
        assert!(worst <= TOLERANCE, "{size} mels: {worst}");
    }
}

#[test]
fn filters_agree_with_transformers() {
    let cases: Value = serde_json::from_str(include_str!("features.json")).unwrap();
    for case in cases.as_array().unwrap() {
        let size = case["feature_size"].as_u64().unwrap() as usize;
        let extractor = extractor(&format!(r#"{{"feature_size": {size}}}"#));
        for mel in 0..size {
            let column: Vec<f64> = extractor.filters().iter().skip(mel).step_by(size).copied().collect();
            assert_eq!(column.len(), 201);
            let expected = case["filter_sums"][mel].as_f64().unwrap();
            assert!((column.iter().sum::<f64>() - expected).abs() < 1e-7, "mel {mel}");
            let largest = case["filter_largest"][mel].as_u64().unwrap() as usize;
            assert!(column.iter().all(|weight| *weight <= column[largest]), "mel {mel}");
        }
    }
}

#[test]
fn filters_of_the_file_have_precedence() {
    let slaney = extractor(r#"{"n_fft": 8, "hop_length": 4, "feature_size": 2}"#);
    let rows =
        r#"{"n_fft": 8, "hop_length": 4, "feature_size": 2, "mel_filters": [[1,2,3,4,5],[6,7,8,9,10]]}"#;
    assert_eq!(extractor(rows).filters(), [1.0, 6.0, 2.0, 7.0, 3.0, 8.0, 4.0, 9.0, 5.0, 10.0]);
    assert_ne!(slaney.filters(), extractor(rows).filters());
    let columns = r#"{"n_fft": 4, "hop_length": 4, "feature_size": 2, "mel_filters": [[1,2],[3,4],[5,6]]}"#;
    assert_eq!(extractor(columns).filters(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let wrong = error(r#"{"n_fft": 8, "hop_length": 4, "mel_filters": [[1,2]]}"#);
    assert!(wrong.contains("`mel_filters` is [[1,2]]; supported: 5 rows of 80 numbers"), "{wrong}");
}

#[test]
fn silence_and_invalid_samples_give_the_floor() {
    let extractor = extractor("{}");
    for samples in [&[][..], &[0.0; 100], &[f32::NAN, f32::INFINITY]] {
        assert!(extractor.log_mel(samples).iter().all(|value| *value == -1.5));
    }
}

#[test]
fn samples_behind_the_window_are_ignored() {
    let extractor = extractor(r#"{"chunk_length": 1}"#);
    assert_eq!((extractor.samples(), extractor.frames()), (16000, 100));
    let samples = signal();
    assert_eq!(extractor.log_mel(&samples), extractor.log_mel(&samples[..16000]));
}

#[test]
fn unsupported_settings_are_errors() {
    assert!(error("[]").starts_with("preprocessor_config.json: "));
    assert!(error(r#"{"dither": 0.1}"#).contains("`dither` is 0.1; supported: 0, no dither"));
    assert!(error(r#"{"n_fft": 0}"#).contains("`n_fft` is 0; supported: whole numbers from 4"));
    assert!(error(r#"{"feature_size": "80"}"#).contains("`feature_size` is \"80\""));
    assert!(error(r#"{"hop_length": 401}"#).contains("from 1 to 400"));
    assert!(error(r#"{"n_fft": 60000, "chunk_length": 1}"#).contains("windows longer than the FFT"));
}
