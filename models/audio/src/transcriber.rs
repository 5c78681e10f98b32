//! Transcribes recordings with a bundle on a device.
//!
//! Each window of 30 seconds is encoded, then decoded at rising temperatures until the text is good. The times of the last
//! segment decide where the next window starts.

use std::path::Path;

use drift_runtime::{Bundle, Options, Session};
use drift_text::Tokenizer;

use crate::decoder::{Decoded, Decoder, Run};
use crate::model::{settings, tokenizer};
use crate::transcription::FRAME_SECONDS;
use crate::windows::{WindowSamples, Windows};
use crate::{
    AttentionShape, Audio, DecodingSettings, Error, LogitRules, Quality, Result, Sampler, Segment,
    StartRequest, Thresholds, Timestamps, Transcript, Transcription, TranscriptionRequest, Verdict, Window,
    WindowSegments, compression_ratio, detect_language, previous_text, probability, timed_words,
    token_frames, window_segments,
};

/// Whisper model on a device, with its tokenizer.
pub struct Transcriber {
    decoder: Decoder,
    settings: DecodingSettings,
    tokenizer: Option<Tokenizer>,
}

/// Function that is told about each segment. It returns false to end the transcription.
pub type SegmentListener<'a> = dyn FnMut(&Segment) -> bool + 'a;

impl Transcriber {
    /// Opens a bundle on a device.
    ///
    /// # Errors
    /// If the bundle cannot be loaded or has no Whisper model.
    pub fn open(path: &Path, options: &Options) -> Result<Self> {
        Self::new(Session::from_bundle(Bundle::open(path)?, options)?)
    }

    /// Creates a transcriber from a session.
    ///
    /// # Errors
    /// If the bundle has no Whisper model, or a file that it carries is malformed.
    pub fn new(session: Session) -> Result<Self> {
        // Bundles of other models fail here, before files of a Whisper model are missed.
        let decoder = Decoder::new(session)?;
        let tokenizer = tokenizer(&decoder.session)?;
        let settings = settings(&decoder.session, tokenizer.as_ref())?;
        Ok(Self { decoder, settings, tokenizer })
    }

    /// Returns the session of the model.
    pub fn session(&self) -> &Session {
        &self.decoder.session
    }

    /// Settings of decoding, such as the languages of the model.
    pub fn settings(&self) -> &DecodingSettings {
        &self.settings
    }

    /// Returns true if the model has a tokenizer. Without one, transcripts have token ids and no text.
    pub fn has_tokenizer(&self) -> bool {
        self.tokenizer.is_some()
    }

    /// Opens a recording and checks the request. [`Self::next`] transcribes its windows.
    ///
    /// # Errors
    /// If the recording cannot be read, or the model does not support the request.
    pub fn start(&self, audio: &Audio, request: &TranscriptionRequest) -> Result<Transcription> {
        let has_timestamps = self.settings.no_timestamps.is_some();
        let default = if has_timestamps { Timestamps::Segments } else { Timestamps::None };
        let timestamps = request.timestamps.unwrap_or(default);
        let times_words = timestamps == Timestamps::Words;
        if times_words && (self.decoder.model.align.is_none() || self.tokenizer.is_none()) {
            return Err(Error::Request(
                "the model has no alignment heads or no tokenizer, so it cannot time words; use the times of segments, or add `alignment_heads` to generation_config.json and compile the model again".into(),
            ));
        }
        let start = StartRequest {
            language: request.language.clone(),
            task: request.task,
            has_timestamps: timestamps != Timestamps::None,
        };
        let language = self.settings.requested_language(&start)?;
        // Without a language, this checks the other settings.
        self.settings.start_tokens(&start, language.as_deref())?;
        let temperatures = self.temperatures(request)?;
        let previous = match (request.prompt.as_deref().map(str::trim), &self.tokenizer) {
            (None | Some(""), _) => Vec::new(),
            (Some(prompt), Some(tokenizer)) => tokenizer.encode(&format!(" {prompt}"), false)?,
            (Some(_), None) => {
                return Err(Error::Request("the model has no tokenizer, so it cannot read a prompt".into()));
            }
        };
        Ok(Transcription {
            windows: Windows::open(audio, self.decoder.model.window)?,
            audio: audio.clone(),
            rules: LogitRules::new(&self.settings, start.has_timestamps),
            start,
            times_words,
            keeps_previous_text: request.keeps_previous_text,
            temperatures,
            thresholds: request.thresholds,
            sampler: Sampler::new(request.seed),
            language,
            position: 0,
            largest: f32::NEG_INFINITY,
            previous,
        })
    }

    fn temperatures(&self, request: &TranscriptionRequest) -> Result<Vec<f32>> {
        let mut temperatures = request.temperatures.clone();
        if let Some(wrong) = temperatures.iter().find(|t| !t.is_finite() || **t < 0.0) {
            return Err(Error::Request(format!("the temperature is {wrong}; give finite numbers from 0")));
        }
        if self.tokenizer.is_none() {
            temperatures.truncate(1);
        }
        if temperatures.is_empty() {
            temperatures.push(0.0);
        }
        Ok(temperatures)
    }

    /// Transcribes the next window. Returns its segments, or `None` at the end of the recording.
    ///
    /// # Errors
    /// If the recording cannot be read, the device fails, or no logit is finite.
    pub fn next(&mut self, transcription: &mut Transcription) -> Result<Option<Vec<Segment>>> {
        let Some(window) = transcription.windows.window(transcription.position)? else { return Ok(None) };
        if transcription.position == 0 && transcription.windows.is_long() {
            transcription.largest = self.largest(&transcription.audio)?;
        }
        self.decoder.features(&window, transcription.largest)?;
        self.decoder.encode()?;
        self.choose_language(transcription)?;
        let start_tokens =
            self.settings.start_tokens(&transcription.start, transcription.language.as_deref())?;
        let prompt = self.settings.prompt_tokens(&start_tokens, &transcription.previous);
        let start = prompt.len() - start_tokens.len();
        let Some((decoded, temperature)) = self.decode(&prompt, start, transcription)? else {
            transcription.position += window.recorded;
            return Ok(Some(Vec::new()));
        };
        let segments = self.segments(&window, &prompt, &decoded, transcription)?;
        if !(transcription.keeps_previous_text && Thresholds::keeps_previous_text(temperature)) {
            transcription.previous.clear();
        } else {
            let all = segments.iter().map(|segment| segment.tokens.as_slice());
            transcription.previous.extend(previous_text(all, self.settings.first_timestamp()));
            let unused = transcription.previous.len().saturating_sub(self.settings.max_positions);
            transcription.previous.drain(..unused);
        }
        Ok(Some(segments))
    }

    /// Transcribes a recording. The listener is told about each segment.
    ///
    /// # Errors
    /// As for [`Self::start`] and [`Self::next`].
    pub fn transcribe(
        &mut self,
        audio: &Audio,
        request: &TranscriptionRequest,
        listener: &mut SegmentListener<'_>,
    ) -> Result<Transcript> {
        let mut transcription = self.start(audio, request)?;
        let mut segments = Vec::new();
        while let Some(new) = self.next(&mut transcription)? {
            let goes_on = new.iter().all(&mut *listener);
            segments.extend(new);
            if !goes_on {
                break;
            }
        }
        Ok(Transcript { language: transcription.language, segments })
    }

    /// Returns the largest logarithm of an energy of a whole recording.
    fn largest(&mut self, audio: &Audio) -> Result<f32> {
        let mut windows = Windows::open(audio, self.decoder.model.window)?;
        let (mut position, mut largest) = (0, f32::NEG_INFINITY);
        while let Some(window) = windows.window(position)? {
            largest = self.decoder.features(&window, largest)?;
            position += self.decoder.model.window.frames;
        }
        Ok(largest)
    }

    /// Detects the language of the encoded window, unless it is known.
    fn choose_language(&mut self, transcription: &mut Transcription) -> Result<()> {
        if transcription.language.is_none() && self.settings.detects_language(&transcription.start) {
            let logits = self.decoder.evaluate(&[self.settings.start], 0)?;
            let language = detect_language(logits, &self.settings.languages);
            transcription.language = language.map(|(code, _)| code.to_owned());
        }
        Ok(())
    }

    /// Decodes the encoded window. `start` is the index of the start token in the prompt. Returns the tokens and their
    /// temperature, or `None` if the window has no speech.
    fn decode(
        &mut self,
        prompt: &[u32],
        start: usize,
        transcription: &mut Transcription,
    ) -> Result<Option<(Decoded, f32)>> {
        let seconds = transcription.position as f64 * FRAME_SECONDS;
        let (before, after) = prompt.split_at(start + 1);
        let mut logits = self.decoder.evaluate(before, 0)?.to_vec();
        let no_speech = self.settings.no_speech().map_or(0.0, |token| probability(&logits, token));
        if !after.is_empty() {
            logits = self.decoder.evaluate(after, before.len())?.to_vec();
        }
        let temperatures = transcription.temperatures.clone();
        let scores = temperatures.len() > 1;
        let mut last = None;
        for temperature in temperatures {
            let run = Run { settings: &self.settings, rules: &transcription.rules, temperature, scores };
            let decoded = self.decoder.decode(&logits, prompt.len(), &run, &mut transcription.sampler)?;
            let decoded = decoded.ok_or(Error::NotFinite { seconds })?;
            let verdict = match scores {
                false => Verdict::Accept,
                true => transcription.thresholds.verdict(&Quality {
                    compression_ratio: compression_ratio(&self.text(&decoded.tokens)?),
                    log_probability: decoded.log_probability,
                    no_speech_probability: no_speech,
                }),
            };
            match verdict {
                Verdict::Accept => return Ok(Some((decoded, temperature))),
                Verdict::Skip => return Ok(None),
                Verdict::Retry => last = Some((decoded, temperature)),
            }
        }
        Ok(last)
    }

    /// Splits the tokens of a window into segments with text, and moves to the next window.
    fn segments(
        &mut self,
        window: &WindowSamples,
        prompt: &[u32],
        decoded: &Decoded,
        transcription: &mut Transcription,
    ) -> Result<Vec<Segment>> {
        let start = transcription.position;
        let place = Window { start, frames: window.recorded };
        let found = match transcription.start.has_timestamps {
            true => window_segments(&decoded.tokens, place, &self.settings),
            false => WindowSegments::whole(&decoded.tokens, place),
        };
        transcription.position += found.advance.max(1);
        let frames = match transcription.times_words && !decoded.tokens.is_empty() {
            true => self.token_frames(window, prompt, &decoded.tokens)?,
            false => Vec::new(),
        };
        let mut segments = Vec::new();
        for segment in found.segments {
            let mut words = Vec::new();
            if let (false, Some(tokenizer)) = (frames.is_empty(), &self.tokenizer) {
                words = timed_words(
                    &segment.tokens,
                    frames.get(segment.first..).unwrap_or_default(),
                    start as f64 * FRAME_SECONDS,
                    self.first_special(),
                    tokenizer,
                    transcription.language.as_deref(),
                )?;
            }
            segments.push(Segment {
                start: segment.start,
                end: segment.end,
                text: self.text(&segment.tokens)?,
                tokens: segment.tokens,
                words,
            });
        }
        Ok(segments)
    }

    /// Returns the frame of the encoder at which each token of a window begins.
    fn token_frames(&mut self, window: &WindowSamples, prompt: &[u32], tokens: &[u32]) -> Result<Vec<usize>> {
        let ids = [prompt, tokens].concat();
        let frames = (window.recorded / 2).clamp(1, self.decoder.model.encoder_frames.max(1));
        let (weights, heads) = self.decoder.align(&ids, prompt.len(), frames)?;
        let shape = AttentionShape { heads, tokens: tokens.len(), frames };
        token_frames(&weights, shape, self.settings.median_width)
    }

    /// Lowest id of the timestamps. The tokenizer leaves out other special tokens.
    fn first_special(&self) -> u32 {
        self.settings.first_timestamp().unwrap_or(u32::MAX)
    }

    /// Returns the text of tokens, without timestamps and other special tokens.
    fn text(&self, tokens: &[u32]) -> Result<String> {
        let Some(tokenizer) = &self.tokenizer else { return Ok(String::new()) };
        let text: Vec<u32> = tokens.iter().copied().filter(|token| *token < self.first_special()).collect();
        Ok(tokenizer.decode(&text)?)
    }
}
