//! Probabilities of tokens.

use std::collections::BTreeMap;

/// Number of logits that are processed at once.
const LANES: usize = 8;

/// Returns the logarithms of the probabilities. Logits of minus infinity stay minus infinity.
pub fn log_softmax(logits: &[f32]) -> Vec<f32> {
    let offset = log_sum_exp(logits);
    logits.iter().map(|logit| (f64::from(*logit) - offset) as f32).collect()
}

/// Returns the logarithm of the sum of the exponentials, or minus infinity if all logits are. The error is a few units of f32.
pub(super) fn log_sum_exp(logits: &[f32]) -> f64 {
    let max = highest(logits);
    if max == f32::NEG_INFINITY {
        return f64::from(max);
    }
    // Lanes let the compiler use vector instructions.
    let (blocks, rest) = logits.as_chunks::<LANES>();
    let mut sums = [0.0_f32; LANES];
    for block in blocks {
        for (sum, logit) in sums.iter_mut().zip(block) {
            *sum += exp(logit - max);
        }
    }
    let rest: f64 = rest.iter().map(|logit| f64::from(exp(logit - max))).sum();
    let sum = sums.into_iter().map(f64::from).sum::<f64>() + rest;
    f64::from(max) + libm::log(sum)
}

/// Returns the largest logit, or minus infinity without logits.
pub(super) fn highest(logits: &[f32]) -> f32 {
    let (blocks, rest) = logits.as_chunks::<LANES>();
    let mut largest = [f32::NEG_INFINITY; LANES];
    for block in blocks {
        for (largest, logit) in largest.iter_mut().zip(block) {
            *largest = largest.max(*logit);
        }
    }
    largest.iter().chain(rest).copied().fold(f32::NEG_INFINITY, f32::max)
}

/// Returns the exponential of a number that is not above 0. Results below 2^-126 become about 2^-126.
fn exp(x: f32) -> f32 {
    /// 1.5 * 2^23: after adding it, the lowest bits of a float are an integer.
    const ROUND: f32 = 12_582_912.0;
    let exponent = (x * std::f32::consts::LOG2_E).max(-126.0);
    let rounded = exponent + ROUND;
    let fraction = (exponent - (rounded - ROUND)) * std::f32::consts::LN_2;
    // Taylor series of the exponential from -ln(2) / 2 to ln(2) / 2. Its error is below 2e-8.
    let series = [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0];
    let power = series.into_iter().fold(0.0, |sum, term| sum * fraction + term);
    power * f32::from_bits((rounded.to_bits().wrapping_add(127)) << 23)
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
    let highest = highest(logits);
    if highest == f32::NEG_INFINITY {
        return None;
    }
    logits.iter().position(|logit| *logit == highest).and_then(|index| u32::try_from(index).ok())
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
