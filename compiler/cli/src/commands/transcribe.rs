//! `driftc transcribe`: writes the text of a recording with a speech recognition model.

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use drift_audio::{
    Audio, Segment, Task, Timestamps, Transcriber, Transcript, TranscriptFormat, Transcription,
    TranscriptionRequest,
};

use crate::cli_help::SPEECH_OPTIONS;
use crate::failure::Result;
use crate::language::LoadArgs;
use crate::output::{Out, note, time, write_file};
use crate::progress::Progress;

#[derive(Debug, Args)]
pub(crate) struct TranscribeArgs {
    /// Speech recognition model: a bundle or a Hugging Face folder of Whisper; driftc caches compiled models
    #[arg(value_name = "OUT.drift | MODEL")]
    path: PathBuf,
    /// Recording: a WAV, FLAC, MP3 or OGG file
    #[arg(value_name = "AUDIO")]
    audio: PathBuf,
    #[command(flatten)]
    load: LoadArgs,
    /// Write the transcript to this file (default: the standard output)
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write the transcript in this format (default: by the name of the output file, else text)
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    #[command(flatten)]
    speech: SpeechArgs,
}

/// Options of speech recognition.
#[derive(Debug, Args)]
struct SpeechArgs {
    /// Expect this language, by code or English name (default: detect it)
    #[arg(long, value_name = "LANGUAGE", help_heading = SPEECH_OPTIONS)]
    language: Option<String>,
    /// Write the text in the language of the recording, or translate it to English
    #[arg(long, value_name = "TASK", default_value = "transcribe", help_heading = SPEECH_OPTIONS)]
    task: TaskArg,
    /// Write times of segments or also of words (default: segment, if the model writes times)
    #[arg(long, value_name = "DETAIL", help_heading = SPEECH_OPTIONS)]
    timestamps: Option<TimestampsArg>,
    /// Show the model names and style with this text, as if it came before the recording
    #[arg(long, value_name = "TEXT", help_heading = SPEECH_OPTIONS)]
    prompt: Option<String>,
    /// Decode each window without the text of the previous window
    #[arg(long, help_heading = SPEECH_OPTIONS)]
    no_previous_text: bool,
    /// Decode with this temperature only (default: 0; windows with bad text again with 0.2 to 1)
    #[arg(long, value_name = "T", allow_negative_numbers = true, help_heading = SPEECH_OPTIONS)]
    temperature: Option<f32>,
    /// Set the seed of the random numbers for temperatures above 0
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = SPEECH_OPTIONS)]
    seed: u64,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    Text,
    Srt,
    Vtt,
    Json,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum TaskArg {
    Transcribe,
    Translate,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum TimestampsArg {
    None,
    Segment,
    Word,
}

pub(crate) fn run(args: &TranscribeArgs, out: &mut Out) -> Result<()> {
    let start = Instant::now();
    let mut transcriber = Transcriber::new(args.load.open(&args.path)?.load_session()?)?;
    let load = start.elapsed();
    let format = args.format();
    let audio = Audio::File(args.audio.clone());
    let start = Instant::now();
    let mut transcription = transcriber.start(&audio, &args.speech.request())?;
    if !transcriber.has_tokenizer() {
        note("the model has no tokenizer, so the transcript has token ids instead of text");
    }
    // Text on the standard output appears as soon as a window is done.
    let streams = args.output.is_none() && format == TranscriptFormat::Text;
    let mut transcript = Transcript::default();
    let progress = Progress::start("transcribing");
    while let Some(segments) = transcriber.next(&mut transcription)? {
        progress.stage(&stage(&transcription));
        if streams {
            for segment in &segments {
                write!(out, "{}", line(segment, &transcriber))?;
            }
            out.flush()?;
        }
        transcript.segments.extend(segments);
    }
    drop(progress);
    transcript.language = transcription.language().map(str::to_owned);
    let text = match (format, transcriber.has_tokenizer()) {
        (TranscriptFormat::Text, false) => {
            transcript.segments.iter().map(|s| line(s, &transcriber)).collect()
        }
        _ => transcript.to_format(format),
    };
    match &args.output {
        Some(path) => write_file(path, |file| file.write_all(text.as_bytes()))?,
        None if streams => {}
        None => write!(out, "{text}")?,
    }
    for warning in transcription.notes() {
        note(&warning);
    }
    report(&transcription, start.elapsed(), load);
    Ok(())
}

/// Text of a segment as a line: its words, or its token ids if the model has no tokenizer. Segments without text have no line.
fn line(segment: &Segment, transcriber: &Transcriber) -> String {
    if !transcriber.has_tokenizer() {
        let ids: Vec<String> = segment.tokens.iter().map(u32::to_string).collect();
        return ids.join(" ") + "\n";
    }
    Transcript { language: None, segments: vec![segment.clone()] }.to_format(TranscriptFormat::Text)
}

/// Message of the progress line.
fn stage(transcription: &Transcription) -> String {
    let done = transcription.seconds_done();
    match transcription.seconds() {
        Some(all) => format!("transcribing, {done:.0} of {all:.0} s"),
        None => format!("transcribing, {done:.0} s"),
    }
}

/// Prints the times as a note.
fn report(transcription: &Transcription, took: Duration, load: Duration) {
    let seconds = transcription.seconds_done();
    let language = transcription.language().map(|code| format!(", language {code}")).unwrap_or_default();
    note(&format!(
        "{seconds:.1} s of audio in {} ({:.1} times real time), loading in {}{language}",
        time(took),
        seconds / took.as_secs_f64().max(1e-9),
        time(load),
    ));
}

impl TranscribeArgs {
    /// Format of the transcript: the requested one, or the one of the output file's extension, or text.
    fn format(&self) -> TranscriptFormat {
        if let Some(format) = self.format {
            return match format {
                Format::Text => TranscriptFormat::Text,
                Format::Srt => TranscriptFormat::Srt,
                Format::Vtt => TranscriptFormat::Vtt,
                Format::Json => TranscriptFormat::Json,
            };
        }
        let extension = self.output.as_deref().and_then(|path| path.extension()?.to_str());
        extension.and_then(|name| name.parse().ok()).unwrap_or(TranscriptFormat::Text)
    }
}

impl SpeechArgs {
    fn request(&self) -> TranscriptionRequest {
        let default = TranscriptionRequest::default();
        TranscriptionRequest {
            language: self.language.clone(),
            task: match self.task {
                TaskArg::Transcribe => Task::Transcribe,
                TaskArg::Translate => Task::Translate,
            },
            timestamps: self.timestamps.map(|timestamps| match timestamps {
                TimestampsArg::None => Timestamps::None,
                TimestampsArg::Segment => Timestamps::Segments,
                TimestampsArg::Word => Timestamps::Words,
            }),
            prompt: self.prompt.clone(),
            keeps_previous_text: !self.no_previous_text,
            temperatures: self.temperature.map_or(default.temperatures, |temperature| vec![temperature]),
            thresholds: default.thresholds,
            seed: self.seed,
        }
    }
}
