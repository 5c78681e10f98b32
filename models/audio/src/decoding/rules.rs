//! Rules for the logits of a step: suppressed tokens and timestamps.

use super::scores::{highest, log_sum_exp};
use super::settings::DecodingSettings;

/// Rules for logits, as transformers' `SuppressTokensAtBeginLogitsProcessor`, `SuppressTokensLogitsProcessor` and
/// `WhisperTimeStampLogitsProcessor`.
#[derive(Debug, Clone, PartialEq)]
pub struct LogitRules {
    suppressed: Vec<usize>,
    suppressed_at_begin: Vec<usize>,
    timestamps: Option<Timestamps>,
}

/// Rules for timestamps.
#[derive(Debug, Clone, PartialEq)]
struct Timestamps {
    /// Index of `<|notimestamps|>`, which lies before the first timestamp.
    none: usize,
    /// Index of the end token, which lies after the text tokens.
    end: usize,
    max_initial: Option<usize>,
}

impl LogitRules {
    /// Creates the rules of a model. Without timestamps, only the suppressed tokens count.
    pub fn new(settings: &DecodingSettings, has_timestamps: bool) -> Self {
        let indices = |ids: &[u32]| ids.iter().map(|id| *id as usize).collect();
        let none = settings.no_timestamps.filter(|_| has_timestamps);
        Self {
            suppressed: indices(&settings.suppressed),
            suppressed_at_begin: indices(&settings.suppressed_at_begin),
            timestamps: none.map(|none| Timestamps {
                none: none as usize,
                end: settings.ends.first().map_or(0, |end| *end as usize),
                max_initial: settings.max_initial_timestamp.map(|index| index as usize),
            }),
        }
    }

    /// Sets the logits of forbidden tokens to minus infinity. `written` has the tokens after the prompt.
    pub fn apply(&self, logits: &mut [f32], written: &[u32]) {
        let at_begin = self.suppressed_at_begin.iter().filter(|_| written.is_empty());
        for index in at_begin.chain(&self.suppressed) {
            forbid(logits, *index..index.saturating_add(1));
        }
        if let Some(timestamps) = &self.timestamps {
            timestamps.apply(logits, written);
        }
    }
}

impl Timestamps {
    fn apply(&self, logits: &mut [f32], written: &[u32]) {
        let first = self.none + 1;
        forbid(logits, self.none..first);
        let is_timestamp = |token: &u32| *token as usize >= first;
        let last_is = written.last().is_some_and(is_timestamp);
        let previous_is = written.iter().rev().nth(1).is_none_or(is_timestamp);
        // Timestamps come in pairs, except before the end token.
        match (last_is, previous_is) {
            (true, true) => forbid(logits, first..usize::MAX),
            (true, false) => forbid(logits, 0..self.end),
            (false, _) => {}
        }
        // Timestamps do not decrease, and a segment is not empty.
        if let Some(last) = written.iter().rev().find(|token| is_timestamp(token)) {
            let opens = last_is && !previous_is;
            forbid(logits, first..*last as usize + usize::from(!opens));
        }
        if written.is_empty() {
            forbid(logits, 0..first);
            if let Some(max) = self.max_initial {
                forbid(logits, first.saturating_add(max).saturating_add(1)..usize::MAX);
            }
        }
        let (text, timestamps) = logits.split_at_mut(first.min(logits.len()));
        let best_text = highest(text);
        if log_sum_exp(timestamps) > f64::from(best_text) {
            text.fill(f32::NEG_INFINITY);
        }
    }
}

/// Sets a range of logits to minus infinity. Indices after the end are ignored.
fn forbid(logits: &mut [f32], range: std::ops::Range<usize>) {
    let end = range.end.min(logits.len());
    if let Some(logits) = logits.get_mut(range.start.min(end)..end) {
        logits.fill(f32::NEG_INFINITY);
    }
}
