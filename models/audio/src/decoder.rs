//! Runs of the functions of a Whisper model.
//!
//! ```text
//! features -> encode -> verify, prefill, decode -> logits
//!                    -> align -> cross-attention weights
//! ```

use drift_runtime::{Array, ArrayRef, Session};

use crate::model::{Model, TokenFunction};
use crate::windows::WindowSamples;
use crate::{DecodingSettings, Error, LogProbabilities, LogitRules, Result, Sampler};

/// Whisper model on a device.
pub(crate) struct Decoder {
    pub(crate) session: Session,
    pub(crate) model: Model,
    /// Logits of the last evaluated token.
    logits: Vec<f32>,
}

/// Tokens of a window at one temperature, without the end token.
pub(crate) struct Decoded {
    pub(crate) tokens: Vec<u32>,
    /// Mean logarithm of the probabilities of the tokens.
    pub(crate) log_probability: f32,
}

/// Settings of decoding a window at one temperature.
pub(crate) struct Run<'a> {
    pub(crate) settings: &'a DecodingSettings,
    pub(crate) rules: &'a LogitRules,
    pub(crate) temperature: f32,
    /// True if the log probability of the tokens is needed.
    pub(crate) scores: bool,
}

impl Decoder {
    pub(crate) fn new(session: Session) -> Result<Self> {
        let model = Model::new(&session)?;
        Ok(Self { session, model, logits: Vec::new() })
    }

    /// Computes the features of a window. Returns the largest logarithm of an energy, at least `largest`.
    pub(crate) fn features(&mut self, window: &WindowSamples, largest: f32) -> Result<f32> {
        let samples = Array::from_f32(&[1, window.samples.len()], &window.samples);
        let largest = Array::from_f32(&[1], &[largest]);
        let valid = Array::from_i32(&[1], &[i32::try_from(window.valid).unwrap_or(i32::MAX)]);
        let inputs =
            [("samples", samples.as_ref()), ("largest", largest.as_ref()), ("valid", valid.as_ref())];
        let outputs = self.session.run_for("features", &inputs, &["largest"])?;
        let value = outputs.first().and_then(|array| array.to_f64().first().copied());
        Ok(value.map_or(f32::NEG_INFINITY, |value| value as f32))
    }

    /// Encodes the features that were computed last, which stay on the device.
    pub(crate) fn encode(&mut self) -> Result<()> {
        let features = self.session.device_output("features", "input_features")?;
        self.session.feed("encode", "input_features", &features)?;
        Ok(self.session.replay_on_device("encode")?)
    }

    /// Evaluates tokens after `past` cached tokens. Returns the logits of the last token.
    pub(crate) fn evaluate(&mut self, ids: &[u32], past: usize) -> Result<&[f32]> {
        let mut done = 0;
        while done < ids.len() {
            let Some((function, count)) = self.model.select(past + done, ids.len() - done) else {
                return Err(Error::Request(format!(
                    "the decoder has no room for {} tokens; use a shorter prompt",
                    past + ids.len()
                )));
            };
            let now = ids.get(done..done + count).unwrap_or_default();
            self.run(function, now, past + done)?;
            done += count;
        }
        Ok(&self.logits)
    }

    fn run(&mut self, function: TokenFunction, ids: &[u32], past: usize) -> Result<()> {
        let TokenFunction { name, chunk, has_count, .. } = function;
        let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        self.session.set_symbol(name, "past", number(past))?;
        if has_count {
            self.session.set_symbol(name, "count", number(ids.len()))?;
        }
        self.session.write_input(name, "ids", padded(ids, chunk).as_ref())?;
        self.session.replay_for(name, &["logits"])?;
        let view = self.session.output(name, "logits")?;
        let vocabulary = view.shape.last().copied().unwrap_or(0);
        let (values, _) = view.bytes.as_chunks::<4>();
        let last = values.len().saturating_sub(vocabulary);
        let last = values.get(last..).unwrap_or_default();
        self.logits.clear();
        self.logits.extend(last.iter().map(|bytes| f32::from_le_bytes(*bytes)));
        Ok(())
    }

    /// Decodes a window whose prompt of `past` tokens was evaluated. `logits` are the logits of the last token of the prompt.
    /// Returns `None` if no token has a finite logit.
    pub(crate) fn decode(
        &mut self,
        logits: &[f32],
        past: usize,
        run: &Run<'_>,
        sampler: &mut Sampler,
    ) -> Result<Option<Decoded>> {
        let mut logits = logits.to_vec();
        let mut tokens = Vec::new();
        let mut scores = LogProbabilities::default();
        let max_tokens = run.settings.max_positions.saturating_sub(past);
        while tokens.len() < max_tokens {
            run.rules.apply(&mut logits, &tokens);
            let Some(token) = sampler.select(&logits, run.temperature) else { return Ok(None) };
            if run.scores {
                scores.add(&logits, token);
            }
            if run.settings.is_end(token) {
                break;
            }
            tokens.push(token);
            if tokens.len() < max_tokens {
                self.evaluate(&[token], past + tokens.len() - 1)?;
                std::mem::swap(&mut logits, &mut self.logits);
            }
        }
        Ok(Some(Decoded { tokens, log_probability: scores.mean() }))
    }

    /// Returns the cross-attention weights `[heads, ids, frames]` of the alignment heads, and the number of heads. `frames` is
    /// the number of frames of the encoder that the recording has.
    pub(crate) fn align(&mut self, ids: &[u32], skipped: usize, frames: usize) -> Result<(Vec<f32>, usize)> {
        let Some((chunk, heads)) = self.model.align else { return Ok((Vec::new(), 0)) };
        self.session.set_symbol("align", "count", i64::try_from(ids.len()).unwrap_or(i64::MAX))?;
        let padded = padded(ids, chunk);
        let inputs: [(&str, ArrayRef<'_>); 1] = [("ids", padded.as_ref())];
        let outputs = self.session.run_for("align", &inputs, &["weights"])?;
        let all = outputs.first().map(Array::to_f64).unwrap_or_default();
        let row = self.model.encoder_frames.max(1);
        let rows = all.chunks_exact(row).enumerate().filter(|(index, _)| index % ids.len() >= skipped);
        let weights = rows.flat_map(|(_, row)| row.iter().take(frames).map(|weight| *weight as f32));
        Ok((weights.collect(), heads))
    }
}

/// Creates the array `[1, length]` of token ids, padded with zeros.
fn padded(ids: &[u32], length: usize) -> Array {
    let mut all: Vec<i32> = ids.iter().map(|id| i32::try_from(*id).unwrap_or(i32::MAX)).collect();
    all.resize(length, 0);
    Array::from_i32(&[1, length], &all)
}
