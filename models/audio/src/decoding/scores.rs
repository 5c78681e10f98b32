//! Probabilities of tokens.

use std::collections::BTreeMap;

/// Returns the logarithms of the probabilities. Logits of minus infinity stay minus infinity.
pub fn log_softmax(logits: &[f32]) -> Vec<f32> {
    let offset = log_sum_exp(logits);
    logits.iter().map(|logit| (f64::from(*logit) - offset) as f32).collect()
}

/// Returns the logarithm of the sum of the exponentials, or minus infinity if all logits are.
pub(super) fn log_sum_exp(logits: &[f32]) -> f64 {
    let max = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    if max == f64::NEG_INFINITY {
        return max;
    }
    let sum: f64 = logits.iter().map(|logit| libm::exp(f64::from(*logit) - max)).sum();
    max + libm::log(sum)
}

/// Returns the probability of a token, or 0 if the logits do not have the token.
///
/// The probability that a window has no speech is the one of [`super::DecodingSettings::no_speech`] in the unprocessed
/// logits at the position of the start token.
pub fn probability(logits: &[f32], token: u32) -> f32 {
    let logit = usize::try_from(token).ok().and_then(|index| logits.get(index));
    logit.map_or(0.0, |logit| libm::exp(f64::from(*logit) - log_sum_exp(logits)) as f32)
}

/// Returns the token with the highest logit; the first one of equals. Returns `None` if no logit is above minus infinity.
pub fn best_token(logits: &[f32]) -> Option<u32> {
    let mut best = None;
    let mut highest = f32::NEG_INFINITY;
    for (index, logit) in logits.iter().enumerate() {
        if *logit > highest {
            highest = *logit;
            best = u32::try_from(index).ok();
        }
    }
    best
}

/// Detects the language from the logits that follow the start token alone. Returns the code of the language and its
/// probability among the languages, or `None` if the logits have none of the languages.
pub fn detect_language<'a>(logits: &[f32], languages: &'a BTreeMap<String, u32>) -> Option<(&'a str, f32)> {
    let mut found: Vec<(u32, &str, f32)> = languages
        .iter()
        .filter_map(|(code, id)| {
            let logit = logits.get(usize::try_from(*id).ok()?)?;
            Some((*id, code.as_str(), *logit))
        })
        .collect();
    found.sort_unstable_by_key(|(id, _, _)| *id);
    let logits: Vec<f32> = found.iter().map(|(_, _, logit)| *logit).collect();
    let best = best_token(&logits)?;
    let (_, code, _) = found.get(usize::try_from(best).ok()?)?;
    Some((code, probability(&logits, best)))
}

/// Mean logarithm of the probabilities of the written tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LogProbabilities {
    sum: f64,
    count: usize,
}

impl LogProbabilities {
    /// Adds a token that was selected from logits after [`super::LogitRules::apply`]. The end token counts too.
    pub fn add(&mut self, logits: &[f32], token: u32) {
        let logit = usize::try_from(token).ok().and_then(|index| logits.get(index));
        let logit = logit.copied().map_or(f64::NEG_INFINITY, f64::from);
        self.sum += logit - log_sum_exp(logits);
        self.count += 1;
    }

    /// Returns the mean, or 0 before the first token.
    pub fn mean(&self) -> f32 {
        if self.count == 0 { 0.0 } else { (self.sum / self.count as f64) as f32 }
    }
}
