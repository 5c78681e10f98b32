//! Speech recognition. This module is part of builds with the Cargo feature `speech`.

use crate::c_text::c_text;
use crate::errors::{Failure, Result, argument, call};
use crate::handles::Shared;
use crate::pointers::{
    bytes_mut, check, copy, elements, put, put_unless_null, text, text_of_or_none, text_or_none,
};
use crate::speech_types::{
    Segment, SpeechTask, Timestamps, Transcriber, Transcription, TranscriptionRequest, TranscriptionState,
    Word,
};
use crate::types::{Options, Status};
use drift_audio::{
    Audio, Task, Transcriber as Model, Transcript, TranscriptFormat, TranscriptionRequest as Converted,
};
use std::ffi::{CString, c_char};
use std::path::Path;
use std::ptr::null;

/// Started transcription, with the strings that C may read until the next window.
struct Started {
    /// Id of the transcriber.
    transcriber: u64,
    transcription: drift_audio::Transcription,
    /// Segments of all windows so far.
    transcript: Transcript,
    /// Index of the first segment of the last window.
    first: usize,
    /// Strings of the segments of the last window.
    texts: Vec<SegmentTexts>,
    language: Option<CString>,
    notes: Vec<CString>,
    has_ended: bool,
}

/// Text of a segment and of its words.
struct SegmentTexts {
    text: CString,
    words: Vec<CString>,
}

static TRANSCRIBERS: Shared<Model> = Shared::new();
static TRANSCRIPTIONS: Shared<Started> = Shared::new();

/// Opens the bundle of a speech recognition model. `options` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_transcriber_open(
    path: *const c_char,
    options: *const Options,
    transcriber: *mut Transcriber,
) -> Status {
    call(|| {
        check("transcriber", transcriber, 1)?;
        // SAFETY: C passes a string, and options or null.
        let (path, options) = unsafe { (text("path", path)?, crate::runs::load_options(options)?) };
        let id = TRANSCRIBERS.add(Model::open(Path::new(path), &options)?);
        // SAFETY: C passes memory for a transcriber.
        unsafe { put("transcriber", transcriber, Transcriber { id }) }
    })
}

/// Closes a transcriber. Does nothing if the id is 0 or the transcriber is closed already. Its transcriptions stay open,
/// but have no more windows to transcribe: drift_transcription_next is then an error.
#[unsafe(no_mangle)]
pub extern "C" fn drift_transcriber_close(transcriber: Transcriber) -> Status {
    call(|| {
        TRANSCRIBERS.remove(transcriber.id);
        Ok(())
    })
}

/// Returns 1 if the model has a tokenizer, else 0. Without a tokenizer, segments have token ids and no text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_transcriber_has_tokenizer(
    transcriber: Transcriber,
    has_tokenizer: *mut u8,
) -> Status {
    call(|| {
        // SAFETY: C passes memory for a number.
        TRANSCRIBERS.with(transcriber.id, "transcriber", |model| unsafe {
            put("has_tokenizer", has_tokenizer, u8::from(model.has_tokenizer()))
        })
    })
}

/// Opens an audio file, and starts its transcription. The file is a WAV, FLAC, MP3 or OGG Vorbis file. It is read window
/// by window, and must not change until the transcription ends. `request` may be null. A transcriber may have several
/// open transcriptions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_transcription_open(
    transcriber: Transcriber,
    path: *const c_char,
    request: *const TranscriptionRequest,
    transcription: *mut Transcription,
) -> Status {
    call(|| {
        // SAFETY: C passes a string; the other pointers come from C unchanged.
        unsafe {
            let audio = Audio::File(text("path", path)?.into());
            start(transcriber, &audio, request, transcription)
        }
    })
}

/// Copies `count` mono samples at 16 kHz, and starts their transcription. drift_transcription_open explains the other
/// parameters.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_transcription_open_samples(
    transcriber: Transcriber,
    samples: *const f32,
    count: usize,
    request: *const TranscriptionRequest,
    transcription: *mut Transcription,
) -> Status {
    call(|| {
        // SAFETY: C passes `count` samples; the other pointers come from C unchanged.
        unsafe {
            let audio = Audio::Samples(elements("samples", samples, count)?.into());
            start(transcriber, &audio, request, transcription)
        }
    })
}

/// Closes a transcription. Does nothing if the id is 0 or the transcription is closed already.
#[unsafe(no_mangle)]
pub extern "C" fn drift_transcription_close(transcription: Transcription) -> Status {
    call(|| {
        TRANSCRIPTIONS.remove(transcription.id);
        Ok(())
    })
}

/// Calls `work` with an open transcription, and returns the status of the call.
fn with(transcription: Transcription, work: impl FnOnce(&mut Started) -> Result<()>) -> Status {
    call(|| TRANSCRIPTIONS.with(transcription.id, "transcription", work))
}

/// Transcribes the next window of a recording. `state` receives the new state, or is null. At the end of the recording,
/// nothing is transcribed and `state.ended` is 1. The call uses the transcriber, so one thread at a time may transcribe
/// with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_transcription_next(
    transcription: Transcription,
    state: *mut TranscriptionState,
) -> Status {
    with(transcription, |started| {
        TRANSCRIBERS.with(started.transcriber, "transcriber", |model| started.next(model))?;
        // SAFETY: C passes memory for a state or null.
        unsafe { put_unless_null(state, started.state()) }
    })
}

/// Returns the state of a transcription. Before the first window, the length of the recording may be known already.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_transcription_state(
    transcription: Transcription,
    state: *mut TranscriptionState,
) -> Status {
    // SAFETY: C passes memory for a state.
    with(transcription, |started| unsafe { put("state", state, started.state()) })
}

/// Returns a segment of the last window. `index` counts the segments of the window from 0. If the index is out of range,
/// the status is DRIFT_STATUS_REQUEST.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_transcription_segment(
    transcription: Transcription,
    index: usize,
    segment: *mut Segment,
) -> Status {
    with(transcription, |started| {
        let (found, texts) = started.segment(index)?;
        let found = Segment {
            start: found.start,
            end: found.end,
            text: texts.text.as_ptr(),
            tokens: found.tokens.as_ptr(),
            token_count: found.tokens.len(),
            word_count: found.words.len(),
        };
        // SAFETY: C passes memory for a segment.
        unsafe { put("segment", segment, found) }
    })
}

/// Returns a word of a segment of the last window. `segment` and `index` count from 0. If one of them is out of range,
/// the status is DRIFT_STATUS_REQUEST.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_transcription_word(
    transcription: Transcription,
    segment: usize,
    index: usize,
    word: *mut Word,
) -> Status {
    with(transcription, |started| {
        let (segment, texts) = started.segment(segment)?;
        let found = segment.words.get(index).zip(texts.words.get(index));
        let (found, text) = found.ok_or_else(|| {
            let count = segment.words.len();
            out_of_range(&format!("the segment has {count} words with times"), index)
        })?;
        // SAFETY: C passes memory for a word.
        unsafe { put("word", word, Word { start: found.start, end: found.end, text: text.as_ptr() }) }
    })
}

/// Returns a warning about damaged or missing data in the recording. `index` counts the warnings from 0. The string is
/// valid until the next call of drift_transcription_next or drift_transcription_close. If the index is out of range, the
/// status is DRIFT_STATUS_REQUEST.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_transcription_note(
    transcription: Transcription,
    index: usize,
    note: *mut *const c_char,
) -> Status {
    with(transcription, |started| {
        let found = started.notes.get(index).ok_or_else(|| {
            out_of_range(&format!("the recording has {} warnings", started.notes.len()), index)
        })?;
        // SAFETY: C passes memory for a pointer.
        unsafe { put("note", note, found.as_ptr()) }
    })
}

/// Formats the segments of all windows so far, and copies up to `capacity` bytes of the text, which is UTF-8 without a
/// zero byte at the end. `format` is `txt`, `srt`, `vtt` or `json`. `size` receives the byte size of the whole text, or
/// is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_transcription_text(
    transcription: Transcription,
    format: *const c_char,
    bytes: *mut c_char,
    capacity: usize,
    size: *mut usize,
) -> Status {
    // SAFETY: C passes a string, memory for `capacity` bytes, and memory for a number or null.
    with(transcription, |started| unsafe {
        let format: TranscriptFormat = text("format", format)?.parse()?;
        let formatted = started.transcript.to_format(format);
        copy(formatted.as_bytes(), bytes_mut("bytes", bytes.cast(), capacity)?);
        put_unless_null(size, formatted.len())
    })
}

/// Starts a transcription.
unsafe fn start(
    transcriber: Transcriber,
    audio: &Audio,
    request: *const TranscriptionRequest,
    to: *mut Transcription,
) -> Result<()> {
    check("transcription", to, 1)?;
    // SAFETY: C passes a request or null.
    let request = unsafe { transcription_request(request) }?;
    TRANSCRIBERS.with(transcriber.id, "transcriber", |model| {
        let started = Started::new(transcriber.id, model.start(audio, &request)?);
        let id = TRANSCRIPTIONS.add(started);
        // SAFETY: C passes memory for a transcription.
        unsafe { put("transcription", to, Transcription { id }) }
    })
}

impl Started {
    fn new(transcriber: u64, transcription: drift_audio::Transcription) -> Started {
        let mut started = Started {
            transcriber,
            transcription,
            transcript: Transcript::default(),
            first: 0,
            texts: Vec::new(),
            language: None,
            notes: Vec::new(),
            has_ended: false,
        };
        started.keep();
        started
    }

    /// Transcribes the next window. If this fails, the last window has no segments, and the next call tries again.
    fn next(&mut self, model: &mut Model) -> Result<()> {
        self.first = self.transcript.segments.len();
        self.texts.clear();
        let segments = model.next(&mut self.transcription)?;
        self.has_ended = segments.is_none();
        self.transcript.segments.extend(segments.unwrap_or_default());
        self.transcript.language = self.transcription.language().map(str::to_owned);
        self.keep();
        Ok(())
    }

    /// Keeps the strings of the last window, the language and the warnings.
    fn keep(&mut self) {
        let window = self.transcript.segments.iter().skip(self.first);
        self.texts = window
            .map(|segment| SegmentTexts {
                text: c_text(&segment.text),
                words: segment.words.iter().map(|word| c_text(&word.text)).collect(),
            })
            .collect();
        self.language = self.transcription.language().map(c_text);
        self.notes = self.transcription.notes().iter().map(|note| c_text(note)).collect();
    }

    fn state(&self) -> TranscriptionState {
        let seconds = self.transcription.seconds();
        TranscriptionState {
            language: self.language.as_ref().map_or(null(), |language| language.as_ptr()),
            segment_count: self.texts.len(),
            note_count: self.notes.len(),
            seconds_done: self.transcription.seconds_done(),
            seconds: seconds.unwrap_or(0.0),
            has_seconds: u8::from(seconds.is_some()),
            ended: u8::from(self.has_ended),
        }
    }

    /// Returns a segment of the last window, with its strings.
    fn segment(&self, index: usize) -> Result<(&drift_audio::Segment, &SegmentTexts)> {
        let segment = self.transcript.segments.iter().skip(self.first).nth(index);
        segment
            .zip(self.texts.get(index))
            .ok_or_else(|| out_of_range(&format!("the last window has {} segments", self.texts.len()), index))
    }
}

/// Creates a failure of an index. `counted` says how many items there are.
fn out_of_range(counted: &str, index: usize) -> Failure {
    Failure::new(Status::Request, format!("{counted}; index {index} is out of range"))
}

/// Converts a request. Null becomes the default request.
unsafe fn transcription_request(request: *const TranscriptionRequest) -> Result<Converted> {
    // SAFETY: C passes a request or null.
    let request = unsafe { elements("request", request, usize::from(!request.is_null())) }?;
    let default = Converted::default();
    let Some(request) = request.first() else { return Ok(default) };
    // SAFETY: C passes a string or null, and a text of the stated size or null.
    let (language, prompt) = unsafe {
        (
            text_or_none("language", request.language)?,
            text_of_or_none("prompt", request.prompt, request.prompt_size)?,
        )
    };
    Ok(Converted {
        language: language.map(str::to_owned),
        task: task(request.task)?,
        timestamps: timestamps(request.timestamps)?,
        prompt: prompt.map(str::to_owned),
        keeps_previous_text: request.no_previous_text == 0,
        temperatures: match request.has_temperature {
            0 => default.temperatures,
            _ => vec![request.temperature],
        },
        thresholds: default.thresholds,
        seed: request.seed,
    })
}

fn task(number: u32) -> Result<Task> {
    match number {
        task if task == SpeechTask::Transcribe as u32 => Ok(Task::Transcribe),
        task if task == SpeechTask::Translate as u32 => Ok(Task::Translate),
        other => Err(argument(format!("{other} is not a drift_SpeechTask"))),
    }
}

fn timestamps(number: u32) -> Result<Option<drift_audio::Timestamps>> {
    use drift_audio::Timestamps as Converted;
    match number {
        times if times == Timestamps::Default as u32 => Ok(None),
        times if times == Timestamps::None as u32 => Ok(Some(Converted::None)),
        times if times == Timestamps::Segment as u32 => Ok(Some(Converted::Segments)),
        times if times == Timestamps::Word as u32 => Ok(Some(Converted::Words)),
        other => Err(argument(format!("{other} is not a drift_Timestamps"))),
    }
}
