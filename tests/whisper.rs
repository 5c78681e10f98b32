//! Tests of speech recognition: small Whisper models give the results of transformers, and malformed folders are errors.
//!
//! `tests/whisper/make.py` makes the folders and the expected results.

use std::collections::BTreeMap;
use std::f64::consts::PI;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use drift_audio::{Audio, Segment, Task, Timestamps, Transcriber, TranscriptionRequest};
use drift_runtime::{Array, Session};
use drift_tests::device;
use driftc::compile::{Options, compile};
use driftc::pass::Precision;
use serde::Deserialize;

const RATE: usize = 16_000;
/// Number of samples of a window of the small models.
const WINDOW: usize = 5 * RATE;
/// Half of the FFT's size.
const MARGIN: usize = 200;
/// Largest difference of log-mel features to transformers.
const FEATURE_TOLERANCE: f32 = 1e-4;
/// Largest difference of hidden states and logits to transformers.
const TOLERANCE: f32 = 2e-4;
/// Largest difference of logits in f16.
const F16_TOLERANCE: f32 = 1e-2;

#[derive(Debug, Deserialize)]
struct Expected {
    multilingual: Network,
    english: Network,
    runs: Vec<Run>,
    greedy: Vec<u32>,
}

/// Results of a network for one window, thinned out.
#[derive(Debug, Deserialize)]
struct Network {
    features: Vec<f32>,
    encoder: Vec<f32>,
    ids: Vec<i64>,
    logits: Vec<f32>,
}

/// Transcription of a recording.
#[derive(Debug, Deserialize)]
struct Run {
    seconds: f64,
    language: Option<String>,
    task: String,
    previous: bool,
    segments: Vec<ExpectedSegment>,
}

#[derive(Debug, Deserialize)]
struct ExpectedSegment {
    start: f64,
    end: f64,
    tokens: Vec<u32>,
    /// Start of each token in seconds.
    times: Vec<f64>,
}

fn place() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("whisper")
}

fn expected() -> Expected {
    serde_json::from_str(&std::fs::read_to_string(place().join("expected.json")).unwrap()).unwrap()
}

/// The recording that `make.py` computes, too.
fn signal(seconds: f64) -> Vec<f32> {
    let sample = |i: usize| {
        let t = i as f64 / RATE as f64;
        let low = 0.4 * libm::sin(2.0 * PI * (140.0 * t + 30.0 * libm::sin(1.7 * t)));
        let high = 0.1 * libm::sin(2.0 * PI * 900.0 * t) * libm::sin(2.0 * PI * 0.8 * t);
        ((low + high) * (0.6 + 0.4 * libm::sin(3.1 * t))) as f32
    };
    (0..(seconds * RATE as f64) as usize).map(sample).collect()
}

/// Compiles a folder into `to` and opens it on the device.
fn open(folder: &Path, precision: Precision, dims: &[(&str, i64)], to: &Path) -> Session {
    let dims: BTreeMap<_, _> = dims.iter().map(|(name, n)| ((*name).to_owned(), (*n, *n))).collect();
    let (model, _) = drift_models::load(folder, &dims).unwrap_or_else(|e| panic!("{e}"));
    let options = device::validated(&Options { precision, ..Options::default() });
    let path = to.join("model.drift");
    compile(&model, &[device::target()], &options, &path).unwrap_or_else(|e| panic!("{e}"));
    Session::load(&path, &drift_runtime::Options::default()).unwrap_or_else(|e| panic!("{e}"))
}

fn transcriber(name: &str, to: &Path) -> Transcriber {
    Transcriber::new(open(&place().join(name), Precision::F32, &[], to)).unwrap_or_else(|e| panic!("{e}"))
}

fn floats(array: &Array) -> Vec<f32> {
    array.to_f64().into_iter().map(|value| value as f32).collect()
}

/// Fails if a thinned-out array differs from the expected numbers.
#[track_caller]
fn check_close(what: &str, got: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(got.len(), expected.len(), "{what}");
    let error = got.iter().zip(expected).fold(0.0f32, |error, (a, b)| error.max((a - b).abs()));
    println!("{what}: largest difference {error:.1e}");
    assert!(error <= tolerance, "{what} differs by {error}");
}

/// Every `step`th element of each row.
fn thinned(values: &[f32], row: usize, step: usize) -> Vec<f32> {
    values.chunks(row).flat_map(|row| row.iter().step_by(step).copied()).collect()
}

/// Compares features, hidden states and logits with transformers.
fn check_network(name: &str, expected: &Network, precision: Precision, tolerance: f32) {
    let to = tempfile::tempdir().unwrap();
    let mut session = open(&place().join(name), precision, &[], to.path());
    let mut window = signal(3.2);
    window.resize(WINDOW, 0.0);
    let before = window[1..=MARGIN].iter().rev().copied();
    let after = window[WINDOW - 1 - MARGIN..WINDOW - 1].iter().rev().copied();
    let samples: Vec<f32> = before.chain(window.iter().copied()).chain(after).collect();
    let samples = Array::from_f32(&[1, samples.len()], &samples);
    let largest = Array::from_f32(&[1], &[f32::NEG_INFINITY]);
    let valid = Array::from_i32(&[1], &[i32::MAX]);
    let inputs = [("samples", samples.as_ref()), ("largest", largest.as_ref()), ("valid", valid.as_ref())];
    let outputs = session.run("features", &inputs).unwrap_or_else(|e| panic!("{e}"));
    let features = &outputs[0];
    let frames = features.shape[2];
    check_close(
        &format!("features of {name}"),
        &thinned(&floats(features), frames, 31),
        &expected.features,
        FEATURE_TOLERANCE,
    );
    let length = expected.ids.len();
    let mut session =
        open(&place().join(name), precision, &[("seq", i64::try_from(length).unwrap())], to.path());
    let ids = Array::from_i64(&[1, length], &expected.ids);
    let inputs = [("input_features", features.as_ref()), ("decoder_input_ids", ids.as_ref())];
    let outputs = session.run("main", &inputs).unwrap_or_else(|e| panic!("{e}"));
    let (logits, hidden) = (&outputs[0], &outputs[1]);
    let row = hidden.shape[2];
    let rows: Vec<f32> = floats(hidden).chunks(row).step_by(25).flatten().copied().collect();
    check_close(&format!("encoder of {name}"), &rows, &expected.encoder, tolerance);
    let vocabulary = logits.shape[2];
    let thin = thinned(&floats(logits), vocabulary, 9);
    check_close(&format!("logits of {name}"), &thin, &expected.logits, tolerance);
}

#[test]
fn networks_agree_with_transformers() {
    let expected = expected();
    check_network("multilingual", &expected.multilingual, Precision::F32, TOLERANCE);
    check_network("english", &expected.english, Precision::F32, TOLERANCE);
}

#[test]
fn f16_networks_are_close() {
    check_network("english", &expected().english, Precision::F16, F16_TOLERANCE);
}

/// Request for the most likely tokens.
fn greedy() -> TranscriptionRequest {
    TranscriptionRequest { temperatures: vec![0.0], ..TranscriptionRequest::default() }
}

fn transcribe(transcriber: &mut Transcriber, seconds: f64, request: &TranscriptionRequest) -> Vec<Segment> {
    let audio = Audio::Samples(signal(seconds).into());
    let transcript = transcriber.transcribe(&audio, request, &mut |_| true);
    transcript.unwrap_or_else(|e| panic!("{e}")).segments
}

#[test]
fn transcripts_agree_with_transformers() {
    let to = tempfile::tempdir().unwrap();
    let mut transcriber = transcriber("multilingual", to.path());
    let first_timestamp = transcriber.settings().first_timestamp().unwrap();
    for run in expected().runs {
        let request = TranscriptionRequest {
            language: run.language.clone(),
            task: if run.task == "translate" { Task::Translate } else { Task::Transcribe },
            timestamps: Some(Timestamps::Words),
            keeps_previous_text: run.previous,
            ..greedy()
        };
        let segments = transcribe(&mut transcriber, run.seconds, &request);
        let times = |start: f64, end: f64| [start, end].map(|time| (time * 100.0).round() as i64);
        let got: Vec<_> = segments.iter().map(|s| (times(s.start, s.end), s.tokens.clone())).collect();
        let wanted: Vec<_> = run.segments.iter().map(|s| (times(s.start, s.end), s.tokens.clone())).collect();
        assert_eq!(got, wanted, "{} s, {:?}", run.seconds, run.language);
        for (segment, wanted) in segments.iter().zip(&run.segments) {
            let tokens = wanted.tokens.iter().zip(&wanted.times);
            let mut times = tokens.filter(|(token, _)| **token < first_timestamp).map(|(_, time)| *time);
            for word in &segment.words {
                let found = times.any(|time| (time - word.start).abs() < 0.011);
                assert!(found, "{word:?} starts at no token of {wanted:?}");
            }
        }
        assert!(segments.iter().any(|segment| !segment.words.is_empty()));
    }
}

#[test]
fn models_without_tokenizer_give_token_ids() {
    let to = tempfile::tempdir().unwrap();
    let mut transcriber = transcriber("english", to.path());
    assert!(!transcriber.has_tokenizer());
    let segments = transcribe(&mut transcriber, 3.2, &TranscriptionRequest::default());
    let [segment] = segments.as_slice() else { panic!("{segments:?}") };
    assert_eq!((segment.start, segment.end, segment.text.as_str()), (0.0, 3.2, ""));
    assert_eq!(segment.tokens, expected().greedy);
    // Each window of a longer recording is one segment.
    let segments = transcribe(&mut transcriber, 11.0, &TranscriptionRequest::default());
    let times: Vec<_> = segments.iter().map(|segment| (segment.start, segment.end)).collect();
    assert_eq!(times, [(0.0, 5.0), (5.0, 10.0), (10.0, 11.0)]);
}

#[test]
fn bad_text_is_decoded_again() {
    let to = tempfile::tempdir().unwrap();
    let mut transcriber = transcriber("multilingual", to.path());
    let with_seed =
        |seed| TranscriptionRequest { language: Some("en".into()), seed, ..TranscriptionRequest::default() };
    let plain = TranscriptionRequest { language: Some("en".into()), ..greedy() };
    let plain = transcribe(&mut transcriber, 5.0, &plain);
    // Random weights give unlikely text at all temperatures, so the last temperature is used.
    let first = transcribe(&mut transcriber, 5.0, &with_seed(1));
    assert_ne!(first, plain);
    assert_eq!(first, transcribe(&mut transcriber, 5.0, &with_seed(1)));
    assert_ne!(first, transcribe(&mut transcriber, 5.0, &with_seed(2)));
}

#[test]
fn a_listener_ends_the_transcription() {
    let to = tempfile::tempdir().unwrap();
    let mut transcriber = transcriber("english", to.path());
    let audio = Audio::Samples(signal(11.0).into());
    let transcript = transcriber.transcribe(&audio, &greedy(), &mut |_| false).unwrap();
    assert_eq!(transcript.segments.len(), 1);
}

#[test]
fn requests_that_cannot_be_met_are_errors() {
    let to = tempfile::tempdir().unwrap();
    let mut english = transcriber("english", to.path());
    let to = tempfile::tempdir().unwrap();
    let mut multilingual = transcriber("multilingual", to.path());
    let request = TranscriptionRequest::default;
    let cases = [
        (true, TranscriptionRequest { language: Some("de".into()), ..request() }, "no language tokens"),
        (true, TranscriptionRequest { task: Task::Translate, ..request() }, "does not translate"),
        (
            true,
            TranscriptionRequest { timestamps: Some(Timestamps::Segments), ..request() },
            "writes no timestamps",
        ),
        (true, TranscriptionRequest { timestamps: Some(Timestamps::Words), ..request() }, "alignment heads"),
        (true, TranscriptionRequest { prompt: Some("Drift".into()), ..request() }, "no tokenizer"),
        (false, TranscriptionRequest { language: Some("ja".into()), ..request() }, "supported: de, en, fr"),
        (false, TranscriptionRequest { temperatures: vec![-1.0], ..request() }, "temperature is -1"),
    ];
    let audio = Audio::Samples(Arc::from(signal(1.0)));
    for (is_english, request, reason) in cases {
        let model = if is_english { &mut english } else { &mut multilingual };
        let error = model.transcribe(&audio, &request, &mut |_| true).expect_err(reason).to_string();
        assert!(error.contains(reason), "{error}");
    }
    let missing = Audio::File(place().join("no.wav"));
    let error = english.transcribe(&missing, &request(), &mut |_| true).expect_err("no file").to_string();
    assert!(error.contains("no.wav"), "{error}");
    let empty = Audio::Samples(Arc::from([]));
    assert!(english.transcribe(&empty, &request(), &mut |_| true).unwrap().segments.is_empty());
    let broken = Audio::Samples(Arc::from([f32::NAN; 2000]));
    assert_eq!(english.transcribe(&broken, &request(), &mut |_| true).unwrap().segments.len(), 1);
}

#[test]
fn other_models_are_errors() {
    let to = tempfile::tempdir().unwrap();
    let session = open(&place().with_file_name("language").join("llama"), Precision::F32, &[], to.path());
    let error = Transcriber::new(session).err().unwrap();
    assert_eq!(error.to_string(), "the model transcribes no recordings: it has no function `features`");
    assert!(error.help().is_some_and(|help| help.contains("compile a Whisper folder")));
}

/// Copies a folder and changes a file.
fn edited(to: &Path, file: &str, from: &str, with: &str) -> PathBuf {
    let folder = to.join("model");
    std::fs::create_dir_all(&folder).unwrap();
    for entry in std::fs::read_dir(place().join("multilingual")).unwrap().map(Result::unwrap) {
        std::fs::copy(entry.path(), folder.join(entry.file_name())).unwrap();
    }
    let text = std::fs::read_to_string(folder.join(file)).unwrap();
    assert!(text.contains(from), "{file} has no {from}");
    std::fs::write(folder.join(file), text.replacen(from, with, 1)).unwrap();
    folder
}

#[test]
fn malformed_folders_are_errors() {
    let (config, front_end) = ("config.json", "preprocessor_config.json");
    let cases = [
        (config, "\"d_model\": 16", "\"d_model\": 15", "not a multiple"),
        (config, "\"decoder_layers\": 2", "\"decoder_layers\": 1", "more layers"),
        (config, "\"encoder_layers\": 2", "\"encoder_layers\": 3", "encoder.layers.2"),
        (config, "\"vocab_size\": ", "\"vocab_size\": 1", "shape"),
        (config, "\"max_source_positions\": 250", "\"max_source_positions\": 0", "supported: 1 to"),
        (config, "\"activation_function\": \"gelu\"", "\"activation_function\": \"selu\"", "`selu`"),
        (front_end, "\"hop_length\": 160", "\"hop_length\": 80", "80 is not supported"),
        (front_end, "\"n_fft\": 400", "\"n_fft\": 401", "401 is not supported"),
        (front_end, "\"feature_size\": 80", "\"feature_size\": 64", "64 is not supported"),
        (front_end, "\"sampling_rate\": 16000", "\"sampling_rate\": 8000", "8000 is not supported"),
        ("generation_config.json", "\"alignment_heads\": [", "\"alignment_heads\": [[7, 0],", "layer 7"),
    ];
    for (file, from, with, reason) in cases {
        let to = tempfile::tempdir().unwrap();
        let folder = edited(to.path(), file, from, with);
        let error = drift_models::load(&folder, &BTreeMap::new()).expect_err(reason).to_string();
        assert!(error.contains(reason), "{with}: {error}");
    }
}
