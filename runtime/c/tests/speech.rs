//! Speech recognition through C, with small Whisper models. The crate `drift-audio` gives the expected results;
//! `tests/whisper.rs` compares that crate with transformers.

#![allow(unsafe_code)]

use drift::{
    Segment, SpeechTask, Status, Timestamps, Transcriber, Transcription, TranscriptionRequest,
    TranscriptionState, Word, drift_last_error, drift_last_help, drift_transcriber_close,
    drift_transcriber_has_tokenizer, drift_transcriber_open, drift_transcription_close,
    drift_transcription_next, drift_transcription_note, drift_transcription_open,
    drift_transcription_open_samples, drift_transcription_segment, drift_transcription_state,
    drift_transcription_text, drift_transcription_word,
};
use drift_audio::{Audio, Transcript, TranscriptFormat};
use driftc::compile::{Options, compile};
use driftc::pass::Precision;
use driftc::target::TargetProfile;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char};
use std::path::Path;
use std::ptr::{null, null_mut};

const RATE: usize = 16_000;

fn string(text: *const c_char) -> String {
    // SAFETY: the library returns a string that stays valid during the call.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned()
}

fn message() -> String {
    string(drift_last_error())
}

/// Compiles a model into `folder`, and returns the bundle's path.
fn bundle(name: &str, folder: &Path) -> CString {
    let target = std::env::var("DRIFT_TEST_TARGET").unwrap_or_else(|_| "lavapipe".to_owned());
    let target = TargetProfile::load(&target).unwrap();
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/whisper").join(name);
    let (model, _) = drift_models::load(&model, &BTreeMap::new()).unwrap();
    let path = folder.join(format!("{name}.drift"));
    let mut options = Options { finish: Some(drift_spirv_tools::validate), ..Options::default() };
    options.precision = Precision::F32;
    compile(&model, &[target], &options, &path).unwrap();
    CString::new(path.to_str().unwrap()).unwrap()
}

fn open(path: &CStr) -> Transcriber {
    let mut transcriber = Transcriber { id: 0 };
    // SAFETY: a string, and memory for a transcriber.
    let status = unsafe { drift_transcriber_open(path.as_ptr(), null(), &raw mut transcriber) };
    assert_eq!(status, Status::Ok, "{}", message());
    transcriber
}

fn has_tokenizer(transcriber: Transcriber) -> bool {
    let mut has_tokenizer = 2;
    // SAFETY: memory for a number.
    let status = unsafe { drift_transcriber_has_tokenizer(transcriber, &raw mut has_tokenizer) };
    assert!(status == Status::Ok && has_tokenizer < 2, "{}", message());
    has_tokenizer == 1
}

/// Samples of a few tones, rounded to 16 bits.
fn signal(seconds: usize) -> Vec<f32> {
    let sample = |i: usize| {
        let t = i as f32 / RATE as f32;
        let low = (880.0 * t + 190.0 * (1.7 * t).sin()).sin();
        (0.4 * low * (0.6 + 0.4 * (3.1 * t).sin()) * 32768.0).round() / 32768.0
    };
    (0..seconds * RATE).map(sample).collect()
}

/// Writes a WAV file with samples of 16 bits.
fn write_wav(path: &Path, samples: &[f32]) {
    let rate = u32::try_from(RATE).unwrap();
    let size = u32::try_from(2 * samples.len()).unwrap();
    let mut file =
        [b"RIFF".as_slice(), &(size + 36).to_le_bytes(), b"WAVEfmt ", &16u32.to_le_bytes()].concat();
    file.extend([1u16, 1].iter().flat_map(|value| value.to_le_bytes()));
    file.extend([rate, 2 * rate].iter().flat_map(|value| value.to_le_bytes()));
    file.extend([2u16, 16].iter().flat_map(|value| value.to_le_bytes()));
    file.extend([b"data".as_slice(), &size.to_le_bytes()].concat());
    file.extend(samples.iter().flat_map(|sample| ((sample * 32768.0) as i16).to_le_bytes()));
    std::fs::write(path, file).unwrap();
}

fn default_request() -> TranscriptionRequest {
    // SAFETY: all zeros are a valid request.
    unsafe { std::mem::zeroed() }
}

/// Request for the most likely tokens, with times of words.
fn greedy() -> TranscriptionRequest {
    TranscriptionRequest { timestamps: Timestamps::Word as u32, has_temperature: 1, ..default_request() }
}

fn start(
    transcriber: Transcriber,
    samples: &[f32],
    request: &TranscriptionRequest,
) -> (Status, Transcription) {
    let mut transcription = Transcription { id: 0 };
    let (first, count) = (samples.as_ptr(), samples.len());
    // SAFETY: samples, a request, and memory for a transcription.
    let status = unsafe {
        drift_transcription_open_samples(transcriber, first, count, request, &raw mut transcription)
    };
    (status, transcription)
}

fn start_file(transcriber: Transcriber, path: &Path) -> (Status, Transcription) {
    let mut transcription = Transcription { id: 0 };
    let (path, request) = (CString::new(path.to_str().unwrap()).unwrap(), greedy());
    // SAFETY: a string, a request, and memory for a transcription.
    let status = unsafe {
        drift_transcription_open(transcriber, path.as_ptr(), &raw const request, &raw mut transcription)
    };
    (status, transcription)
}

fn next(transcription: Transcription) -> TranscriptionState {
    // SAFETY: memory for a state, which may have all zeros.
    unsafe {
        let mut state = std::mem::zeroed();
        let status = drift_transcription_next(transcription, &raw mut state);
        assert_eq!(status, Status::Ok, "{}", message());
        state
    }
}

/// Returns a segment of the last window as a segment of `drift-audio`.
fn segment(transcription: Transcription, index: usize) -> drift_audio::Segment {
    // SAFETY: memory for a segment and words, which may have all zeros. The library returns the stated number of tokens.
    unsafe {
        let mut found = std::mem::zeroed::<Segment>();
        let status = drift_transcription_segment(transcription, index, &raw mut found);
        assert_eq!(status, Status::Ok, "{}", message());
        let words = (0..found.word_count).map(|word| {
            let mut found = std::mem::zeroed::<Word>();
            let status = drift_transcription_word(transcription, index, word, &raw mut found);
            assert_eq!(status, Status::Ok, "{}", message());
            drift_audio::Word { start: found.start, end: found.end, text: string(found.text) }
        });
        let words = words.collect();
        let tokens = std::slice::from_raw_parts(found.tokens, found.token_count).to_vec();
        drift_audio::Segment { start: found.start, end: found.end, text: string(found.text), tokens, words }
    }
}

/// Transcribes the next window. Returns its segments, or `None` at the end.
fn next_segments(transcription: Transcription) -> Option<Vec<drift_audio::Segment>> {
    let state = next(transcription);
    assert!(state.ended == 0 || state.segment_count == 0);
    (state.ended == 0).then(|| (0..state.segment_count).map(|index| segment(transcription, index)).collect())
}

/// Transcribes the rest of a recording. Returns the segments of each window.
fn windows(transcription: Transcription) -> Vec<Vec<drift_audio::Segment>> {
    std::iter::from_fn(|| next_segments(transcription)).collect()
}

fn text(transcription: Transcription, format: &CStr) -> String {
    let (mut text, mut size) = (vec![0u8; 1 << 16], 0);
    let first = text.as_mut_ptr().cast();
    // SAFETY: a string, and memory for the stated number of bytes and a number.
    let status =
        unsafe { drift_transcription_text(transcription, format.as_ptr(), first, text.len(), &raw mut size) };
    assert_eq!(status, Status::Ok, "{}", message());
    text.truncate(size);
    String::from_utf8(text).unwrap()
}

/// Transcribes samples with the crate `drift-audio`.
fn reference(path: &CStr, samples: &[f32]) -> Transcript {
    let options = drift_runtime::Options::default();
    let mut model = drift_audio::Transcriber::open(Path::new(path.to_str().unwrap()), &options).unwrap();
    let request = drift_audio::TranscriptionRequest {
        timestamps: Some(drift_audio::Timestamps::Words),
        temperatures: vec![0.0],
        ..drift_audio::TranscriptionRequest::default()
    };
    model.transcribe(&Audio::Samples(samples.into()), &request, &mut |_| true).unwrap()
}

/// C strings cannot contain zero bytes, which become spaces.
fn without_zero_bytes(mut segments: Vec<drift_audio::Segment>) -> Vec<drift_audio::Segment> {
    for segment in &mut segments {
        segment.text = segment.text.replace('\0', " ");
        segment.words.iter_mut().for_each(|word| word.text = word.text.replace('\0', " "));
    }
    segments
}

#[test]
fn transcripts_equal_the_reference() {
    let folder = tempfile::tempdir().unwrap();
    let path = bundle("multilingual", folder.path());
    let samples = signal(12);
    let expected = reference(&path, &samples);
    let transcriber = open(&path);
    assert!(has_tokenizer(transcriber));

    let wav = folder.path().join("signal.wav");
    write_wav(&wav, &samples);
    let (status, from_file) = start_file(transcriber, &wav);
    assert_eq!(status, Status::Ok, "{}", message());
    let (status, from_samples) = start(transcriber, &samples, &greedy());
    assert_eq!(status, Status::Ok, "{}", message());
    // SAFETY: memory for a state, which may have all zeros.
    let state = unsafe {
        let mut state = std::mem::zeroed::<TranscriptionState>();
        assert_eq!(drift_transcription_state(from_samples, &raw mut state), Status::Ok);
        state
    };
    assert!(state.language.is_null());
    assert_eq!((state.segment_count, state.seconds_done, state.seconds), (0, 0.0, 12.0));
    // Windows of two transcriptions may alternate.
    let state = next(from_samples);
    let mut of_file = vec![next_segments(from_file).unwrap()];
    assert_eq!(Some(string(state.language)), expected.language);
    assert!(state.seconds_done > 0.0 && state.seconds_done < 6.0 && state.has_seconds == 1);
    let mut all: Vec<Vec<_>> =
        vec![(0..state.segment_count).map(|index| segment(from_samples, index)).collect()];
    all.extend(windows(from_samples));
    of_file.extend(windows(from_file));
    assert!(all.len() > 2, "{} windows", all.len());
    assert_eq!(all, of_file);
    assert_eq!(all.concat(), without_zero_bytes(expected.segments.clone()));
    assert!(all.concat().iter().any(|segment| !segment.words.is_empty()));
    for format in TranscriptFormat::ALL {
        let name = CString::new(format.name()).unwrap();
        assert_eq!(text(from_samples, &name), expected.to_format(format));
    }
    let state = next(from_samples);
    assert_eq!((state.ended, state.segment_count, state.seconds_done), (1, 0, 12.0));
    assert_eq!(drift_transcription_close(from_samples), Status::Ok);
    assert_eq!(drift_transcription_close(from_samples), Status::Ok);
    assert_eq!(drift_transcriber_close(transcriber), Status::Ok);
}

#[test]
fn requests_change_the_transcript() {
    let folder = tempfile::tempdir().unwrap();
    let transcriber = open(&bundle("multilingual", folder.path()));
    let samples = signal(8);
    let prompt = "the red";
    let transcribe = |request: TranscriptionRequest| {
        let (status, transcription) = start(transcriber, &samples, &request);
        assert_eq!(status, Status::Ok, "{}", message());
        let segments = windows(transcription);
        drift_transcription_close(transcription);
        segments
    };
    let plain = transcribe(greedy());
    let changes = [
        TranscriptionRequest { task: SpeechTask::Translate as u32, ..greedy() },
        TranscriptionRequest { timestamps: Timestamps::None as u32, ..greedy() },
        TranscriptionRequest { prompt: prompt.as_ptr().cast(), prompt_size: prompt.len(), ..greedy() },
        TranscriptionRequest { no_previous_text: 1, ..greedy() },
        TranscriptionRequest { temperature: 1.0, seed: 3, ..greedy() },
        TranscriptionRequest { has_temperature: 0, ..greedy() },
    ];
    for request in changes {
        assert_ne!(transcribe(request), plain, "{request:?}");
    }
    let segments = transcribe(TranscriptionRequest { timestamps: Timestamps::None as u32, ..greedy() });
    let times: Vec<_> = segments.concat().iter().map(|segment| (segment.start, segment.end)).collect();
    assert_eq!(times, [(0.0, 5.0), (5.0, 8.0)]);
    drift_transcriber_close(transcriber);
}

#[test]
fn refused_requests_name_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let (multilingual, english) =
        (open(&bundle("multilingual", folder.path())), open(&bundle("english", folder.path())));
    let base = default_request;
    let (request, argument) = (Status::Request, Status::Argument);
    let (prompt, prompt_size) = ("Drift".as_ptr().cast(), 5);
    let (negative, has_temperature) = (-1.0, 1);
    let cases = [
        (TranscriptionRequest { language: c"ja".as_ptr(), ..base() }, request, "supported: de, en, fr"),
        (TranscriptionRequest { language: c"\xff".as_ptr(), ..base() }, argument, "language is not UTF-8"),
        (
            TranscriptionRequest { temperature: negative, has_temperature, ..base() },
            request,
            "temperature is -1",
        ),
        (TranscriptionRequest { task: 2, ..base() }, argument, "2 is not a drift_SpeechTask"),
        (TranscriptionRequest { timestamps: 4, ..base() }, argument, "4 is not a drift_Timestamps"),
        (TranscriptionRequest { task: 1, ..base() }, request, "does not translate"),
        (TranscriptionRequest { timestamps: 3, ..base() }, request, "cannot time words"),
        (TranscriptionRequest { prompt, prompt_size, ..base() }, request, "no tokenizer"),
    ];
    for (index, (request, wanted, reason)) in cases.into_iter().enumerate() {
        let transcriber = if index < 5 { multilingual } else { english };
        let (status, transcription) = start(transcriber, &signal(1), &request);
        assert_eq!((status, transcription.id), (wanted, 0), "{reason}: {}", message());
        assert!(message().contains(reason), "{}", message());
    }
    let no_audio = folder.path().join("english.drift");
    assert_eq!(start_file(multilingual, &no_audio).0, Status::Request);
    assert!(message().contains("not a known audio file"), "{}", message());
    assert!(string(drift_last_help()).contains("convert the file"));
    assert_eq!(start_file(multilingual, &folder.path().join("no.wav")).0, Status::Io);
}

#[test]
fn models_without_tokenizer_give_token_ids() {
    let folder = tempfile::tempdir().unwrap();
    let transcriber = open(&bundle("english", folder.path()));
    assert!(!has_tokenizer(transcriber));
    let mut transcription = Transcription { id: 0 };
    let samples = signal(11);
    // SAFETY: samples, no request, and memory for a transcription.
    let status = unsafe {
        let (first, to) = (samples.as_ptr(), &raw mut transcription);
        drift_transcription_open_samples(transcriber, first, samples.len(), null(), to)
    };
    assert_eq!(status, Status::Ok, "{}", message());
    let segments = windows(transcription).concat();
    let times: Vec<_> = segments.iter().map(|segment| (segment.start, segment.end)).collect();
    assert_eq!(times, [(0.0, 5.0), (5.0, 10.0), (10.0, 11.0)]);
    assert!(segments.iter().all(|segment| segment.text.is_empty() && !segment.tokens.is_empty()));
    // Empty recordings have no windows.
    let (status, empty) = start(transcriber, &[], &default_request());
    assert_eq!((status, next(empty).ended), (Status::Ok, 1));
}

#[test]
fn damaged_files_give_notes() {
    let folder = tempfile::tempdir().unwrap();
    let transcriber = open(&bundle("multilingual", folder.path()));
    let wav = folder.path().join("cut.wav");
    write_wav(&wav, &signal(3));
    let file = std::fs::read(&wav).unwrap();
    std::fs::write(&wav, file.get(..file.len() / 2).unwrap()).unwrap();
    let (status, transcription) = start_file(transcriber, &wav);
    assert_eq!(status, Status::Ok, "{}", message());
    let state = next(transcription);
    assert_eq!(state.note_count, 1);
    let mut note = null();
    // SAFETY: memory for a pointer.
    unsafe {
        assert_eq!(drift_transcription_note(transcription, 0, &raw mut note), Status::Ok);
        assert!(string(note).contains("cut.wav: the file is truncated"), "{}", string(note));
        assert_eq!(drift_transcription_note(transcription, 1, &raw mut note), Status::Request);
    }
}

#[test]
fn wrong_arguments_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = bundle("multilingual", folder.path());
    let transcriber = open(&path);
    let (_, transcription) = start(transcriber, &signal(1), &greedy());
    let count = next(transcription).segment_count;
    // SAFETY: pointers are null, or lead to strings or memory.
    unsafe {
        let mut found = std::mem::zeroed::<Segment>();
        let mut word = std::mem::zeroed::<Word>();
        assert_eq!(drift_transcription_segment(transcription, count, &raw mut found), Status::Request);
        assert!(message().contains(&format!("{count} segments; index {count} is out of range")));
        assert_eq!(drift_transcription_segment(transcription, 0, null_mut()), Status::Argument);
        assert_eq!(drift_transcription_word(transcription, count, 0, &raw mut word), Status::Request);
        assert_eq!(drift_transcription_word(transcription, 0, 1000, &raw mut word), Status::Request);
        assert!(message().contains("words with times; index 1000"), "{}", message());
        assert_eq!(drift_transcription_state(transcription, null_mut()), Status::Argument);
        let docx = c"docx".as_ptr();
        assert_eq!(drift_transcription_text(transcription, docx, null_mut(), 0, null_mut()), Status::Request);
        assert!(message().contains("use txt, srt, vtt or json"), "{}", message());
        let status = drift_transcription_open(transcriber, null(), null(), null_mut());
        assert_eq!(status, Status::Argument);
        let mut other = Transcription { id: 0 };
        let status = drift_transcription_open_samples(transcriber, null(), 5, null(), &raw mut other);
        assert_eq!(status, Status::Argument);
        assert!(message().contains("samples is null"), "{}", message());
        assert_eq!(drift_transcriber_open(path.as_ptr(), null(), null_mut()), Status::Argument);
        assert_eq!(drift_transcriber_close(transcriber), Status::Ok);
        assert_eq!(drift_transcriber_close(transcriber), Status::Ok);
        assert_eq!(drift_transcription_next(transcription, null_mut()), Status::Argument);
        assert!(message().contains("the transcriber was closed"), "{}", message());
        drift_transcription_close(transcription);
        assert_eq!(drift_transcription_next(transcription, null_mut()), Status::Argument);
        assert!(message().contains("the transcription was closed"), "{}", message());
    }
}
