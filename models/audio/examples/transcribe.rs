//! Writes the text of a recording: `cargo run -p drift-audio --example transcribe -- whisper.drift talk.flac`.

use std::path::{Path, PathBuf};

use drift_audio::{Audio, Error, Transcriber, TranscriptionRequest};
use drift_runtime::Options;

fn run(bundle: &str, recording: &str) -> Result<(), Error> {
    let mut transcriber = Transcriber::open(Path::new(bundle), &Options::default())?;
    let audio = Audio::File(PathBuf::from(recording));
    let transcript = transcriber.transcribe(&audio, &TranscriptionRequest::default(), &mut |segment| {
        println!("{:6.2} to {:6.2} s {}", segment.start, segment.end, segment.text);
        true
    })?;
    println!("language: {}", transcript.language.as_deref().unwrap_or("unknown"));
    Ok(())
}

fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [bundle, recording] = arguments.as_slice() else {
        eprintln!("usage: transcribe MODEL.drift RECORDING");
        return std::process::ExitCode::FAILURE;
    };
    match run(bundle, recording) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("transcribe: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}
