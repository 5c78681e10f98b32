//! Errors of speech recognition.

/// Error of reading recordings or model files, or of a request that a model does not support.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of the model is malformed.
    #[error("{file}: {reason}")]
    File {
        /// Name of the malformed file.
        file: &'static str,
        /// Reason.
        reason: String,
    },
    /// A setting of a file of the model has an unsupported or invalid value.
    #[error("{file}: the setting `{setting}` is {value}; supported: {supported}")]
    Setting {
        /// Name of the file.
        file: &'static str,
        /// Name of the setting.
        setting: String,
        /// Value in the file, as JSON.
        value: String,
        /// Supported values.
        supported: String,
    },
    /// The requested language, task or format is not possible, or an argument has a wrong size.
    #[error("{0}")]
    Request(String),
    /// A recording cannot be read.
    #[error("{path}: {fault}")]
    Recording {
        /// Path of the file.
        path: String,
        /// Fault of the file.
        fault: RecordingFault,
    },
    /// A tokenizer file is malformed, or token ids cannot be decoded.
    #[error(transparent)]
    Text(#[from] drift_text::Error),
    /// The bundle or the device is at fault.
    #[error(transparent)]
    Runtime(#[from] drift_runtime::Error),
    /// The bundle transcribes no recordings.
    #[error("the model transcribes no recordings: {reason}")]
    NotASpeechModel {
        /// Reason.
        reason: String,
    },
    /// No token has a finite logit.
    #[error("no logit of the model is finite {seconds:.1} seconds after the start of the recording")]
    NotFinite {
        /// Start of the window in seconds.
        seconds: f64,
    },
}

/// Fault of a recording.
#[derive(Debug, thiserror::Error)]
pub enum RecordingFault {
    /// The file cannot be opened or read.
    #[error("the file cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// The file has no bytes.
    #[error("the file is empty")]
    Empty,
    /// No reader knows the file's format.
    #[error("the file is not a known audio file: {0}")]
    NotAudio(String),
    /// The file has no audio track.
    #[error("the file has no audio track")]
    NoTrack,
    /// The codec of the audio track is not supported.
    #[error("the codec {0} is not supported")]
    Codec(String),
    /// The sample rate is missing or out of range.
    #[error("the sample rate is {0} Hz; supported: 1000 to 768000 Hz")]
    Rate(u32),
    /// The audio track has no samples.
    #[error("the file has no audio samples")]
    NoSamples,
}

impl Error {
    /// Advice for the user, in terms of the program `driftc`.
    pub fn help(&self) -> Option<&'static str> {
        match self {
            Error::File { .. } => Some("download this file of the model again, then compile the model again"),
            Error::Setting { .. } => {
                Some("change the setting in the model's folder and compile the model again")
            }
            Error::Recording { fault, .. } => Some(match fault {
                RecordingFault::Io(_) => "check the path and the permissions of the file",
                RecordingFault::Empty | RecordingFault::NoTrack | RecordingFault::NoSamples => {
                    "record or download the file again, or use another file"
                }
                RecordingFault::NotAudio(_) | RecordingFault::Codec(_) => {
                    "convert the file to one of these formats: WAV (PCM of 8, 16, 24 or 32 bits, or float), FLAC, MP3, OGG Vorbis"
                }
                RecordingFault::Rate(_) => "convert the file to a sample rate of 16000 Hz",
            }),
            Error::Text(error) => error.help(),
            Error::NotASpeechModel { .. } => {
                Some("compile a Whisper folder: one whose config.json names WhisperForConditionalGeneration")
            }
            Error::NotFinite { .. } => Some("compile the model with --precision f32"),
            // The runtime's errors compute their advice.
            Error::Runtime(_) | Error::Request(_) => None,
        }
    }
}

/// Result type of the functions of `drift-audio`.
pub type Result<T> = std::result::Result<T, Error>;
