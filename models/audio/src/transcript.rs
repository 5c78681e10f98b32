//! Transcripts and their file formats.

use std::fmt::Write as _;
use std::str::FromStr;

use serde_json::{Value, json};

use crate::Error;

/// Text of a recording with times.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Transcript {
    /// Code of the language, such as `en`.
    pub language: Option<String>,
    /// Segments in order of time.
    pub segments: Vec<Segment>,
}

/// Segment of a transcript.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Segment {
    /// Start in seconds.
    pub start: f64,
    /// End in seconds.
    pub end: f64,
    /// Text, usually with a leading space.
    pub text: String,
    /// Token ids, with timestamps.
    pub tokens: Vec<u32>,
    /// Words with times. Empty without word timestamps.
    pub words: Vec<Word>,
}

/// Word of a segment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Word {
    /// Start in seconds.
    pub start: f64,
    /// End in seconds.
    pub end: f64,
    /// Text, usually with a leading space.
    pub text: String,
}

/// File format of a transcript.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TranscriptFormat {
    /// Text, one line for each segment.
    Text,
    /// SubRip subtitles.
    Srt,
    /// WebVTT subtitles.
    Vtt,
    /// JSON with segments, token ids and words.
    Json,
}

impl TranscriptFormat {
    /// All formats.
    pub const ALL: [Self; 4] = [Self::Text, Self::Srt, Self::Vtt, Self::Json];

    /// Returns the name of the format, which is also the extension of its files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "txt",
            Self::Srt => "srt",
            Self::Vtt => "vtt",
            Self::Json => "json",
        }
    }
}

impl FromStr for TranscriptFormat {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let lower = name.to_ascii_lowercase();
        let format = if lower == "text" { Some(Self::Text) } else { None };
        format.or_else(|| Self::ALL.into_iter().find(|format| format.name() == lower)).ok_or_else(|| {
            Error::Request(format!("the transcript format `{name}` is unknown; use txt, srt, vtt or json"))
        })
    }
}

impl Transcript {
    /// Returns the whole text without line breaks.
    pub fn text(&self) -> String {
        let text: String = self.segments.iter().map(|segment| segment.text.as_str()).collect();
        text.trim().to_owned()
    }

    /// Returns the content of a file in a format.
    pub fn to_format(&self, format: TranscriptFormat) -> String {
        match format {
            TranscriptFormat::Text => self.to_lines(),
            TranscriptFormat::Srt => self.to_srt(),
            TranscriptFormat::Vtt => self.to_vtt(),
            TranscriptFormat::Json => self.to_json(),
        }
    }

    fn to_lines(&self) -> String {
        self.spoken().fold(String::new(), |text, segment| text + &one_line(&segment.text) + "\n")
    }

    fn to_srt(&self) -> String {
        let mut text = String::new();
        for (index, segment) in self.spoken().enumerate() {
            let (start, end) = (clock(segment.start, ','), clock(segment.end, ','));
            // Writing to a string does not fail.
            let _ = write!(text, "{}\n{start} --> {end}\n{}\n\n", index + 1, cue(&segment.text));
        }
        text
    }

    fn to_vtt(&self) -> String {
        let mut text = String::from("WEBVTT\n\n");
        for segment in self.spoken() {
            let (start, end) = (clock(segment.start, '.'), clock(segment.end, '.'));
            let escaped = segment.text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            let _ = write!(text, "{start} --> {end}\n{}\n\n", one_line(&escaped));
        }
        text
    }

    fn to_json(&self) -> String {
        let segments: Vec<Value> = self.segments.iter().enumerate().map(|(id, s)| s.to_value(id)).collect();
        let value = json!({ "language": self.language, "segments": segments, "text": self.text() });
        // `{:#}` indents.
        format!("{value:#}\n")
    }

    /// Returns the segments with text.
    fn spoken(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter(|segment| !segment.text.trim().is_empty())
    }
}

impl Segment {
    fn to_value(&self, id: usize) -> Value {
        let word =
            |word: &Word| json!({ "end": round(word.end), "start": round(word.start), "word": word.text });
        // Sorted, because the order of keys depends on features of serde_json.
        let mut value = json!({
            "end": round(self.end),
            "id": id,
            "start": round(self.start),
            "text": self.text,
            "tokens": self.tokens,
        });
        if let Some(object) = value.as_object_mut().filter(|_| !self.words.is_empty()) {
            object.insert("words".into(), self.words.iter().map(word).collect());
        }
        value
    }
}

/// Returns a text as one line without `-->`, which ends the text of a subtitle.
fn cue(text: &str) -> String {
    one_line(text).replace("-->", "->")
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns a time as whole milliseconds. Times that are negative or NaN count as 0.
fn milliseconds(seconds: f64) -> u64 {
    (seconds * 1000.0).round().max(0.0) as u64
}

/// Returns a time in seconds with at most three decimal places.
fn round(seconds: f64) -> f64 {
    milliseconds(seconds) as f64 / 1000.0
}

/// Returns a time as hours, minutes, seconds and milliseconds: `01:02:03.456`.
fn clock(seconds: f64, separator: char) -> String {
    let total = milliseconds(seconds);
    let (hours, minutes) = (total / 3_600_000, total / 60_000 % 60);
    let (seconds, milliseconds) = (total / 1000 % 60, total % 1000);
    format!("{hours:02}:{minutes:02}:{seconds:02}{separator}{milliseconds:03}")
}

#[cfg(test)]
mod tests {
    use super::{Segment, Transcript, TranscriptFormat, Word, clock};

    fn transcript() -> Transcript {
        let word = |start, end, text: &str| Word { start, end, text: text.into() };
        let segment =
            |start, end, text: &str| Segment { start, end, text: text.into(), ..Segment::default() };
        let first = Segment {
            tokens: vec![50364, 5],
            words: vec![word(0.0, 0.5, " Good"), word(0.5, 1.9996, " day.")],
            ..segment(0.0, 1.9996, " Good day.")
        };
        let segments = vec![
            first,
            segment(2.0, 2.5, " "),
            segment(3599.9994, 3599.9996, " a <b> & c --> d\n e"),
            segment(36_000.0, 360_001.25, " End"),
        ];
        Transcript { language: Some("en".into()), segments }
    }

    #[test]
    fn text_has_one_line_per_segment() {
        assert_eq!(transcript().to_format(TranscriptFormat::Text), "Good day.\na <b> & c --> d e\nEnd\n");
        assert_eq!(transcript().text(), "Good day.  a <b> & c --> d\n e End");
    }

    #[test]
    fn srt_is_exact() {
        let expected = "1\n00:00:00,000 --> 00:00:02,000\nGood day.\n\n\
            2\n00:59:59,999 --> 01:00:00,000\na <b> & c -> d e\n\n\
            3\n10:00:00,000 --> 100:00:01,250\nEnd\n\n";
        assert_eq!(transcript().to_format(TranscriptFormat::Srt), expected);
    }

    #[test]
    fn vtt_is_exact() {
        let expected = "WEBVTT\n\n00:00:00.000 --> 00:00:02.000\nGood day.\n\n\
            00:59:59.999 --> 01:00:00.000\na &lt;b&gt; &amp; c --&gt; d e\n\n\
            10:00:00.000 --> 100:00:01.250\nEnd\n\n";
        assert_eq!(transcript().to_format(TranscriptFormat::Vtt), expected);
        assert_eq!(Transcript::default().to_format(TranscriptFormat::Vtt), "WEBVTT\n\n");
    }

    #[test]
    fn json_is_exact() {
        let mut short = transcript();
        short.segments.truncate(1);
        let expected = r#"{
  "language": "en",
  "segments": [
    {
      "end": 2.0,
      "id": 0,
      "start": 0.0,
      "text": " Good day.",
      "tokens": [
        50364,
        5
      ],
      "words": [
        {
          "end": 0.5,
          "start": 0.0,
          "word": " Good"
        },
        {
          "end": 2.0,
          "start": 0.5,
          "word": " day."
        }
      ]
    }
  ],
  "text": "Good day."
}
"#;
        assert_eq!(short.to_format(TranscriptFormat::Json), expected);
    }

    #[test]
    fn formats_have_names() {
        for format in TranscriptFormat::ALL {
            assert_eq!(format.name().parse::<TranscriptFormat>().unwrap(), format);
        }
        let error = "docx".parse::<TranscriptFormat>().unwrap_err();
        assert_eq!(error.to_string(), "the transcript format `docx` is unknown; use txt, srt, vtt or json");
    }

    #[test]
    fn impossible_times_are_zero() {
        assert_eq!(clock(-1.0, '.'), "00:00:00.000");
        assert_eq!(clock(f64::NAN, '.'), "00:00:00.000");
    }
}
