//! Sampling of a token from logits.

use super::random::uniform;
use crate::error::{Error, Result};

/// Maximum `top_k` that function `sample` supports.
const MAX_DEVICE_TOP_K: usize = 64;

/// Sampling parameters. The default is greedy: it selects the most likely token.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Temperature: divisor of the logits before sampling; 0 always selects the most likely token.
    pub temperature: f32,
    /// Number of most likely tokens to sample from; 0 means all tokens.
    pub top_k: usize,
    /// Probability mass of the most likely tokens to sample from (nucleus sampling); 1 means all tokens.
    pub top_p: f32,
    /// Minimum probability of a token, relative to the probability of the most likely token; less likely tokens are not
    /// sampled. 0 means no minimum.
    pub min_p: f32,
    /// Penalty factor for tokens that the sequence contains: divides their positive logits and multiplies their
    /// negative ones. 1 means no penalty.
    pub repetition_penalty: f32,
    /// Seed of the random numbers. Equal seeds give equal tokens.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Sampling {
        Sampling { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, repetition_penalty: 1.0, seed: 0 }
    }
}

impl Sampling {
    /// True if these parameters always select the arg-max of the unmodified logits.
    pub(super) fn is_greedy(&self) -> bool {
        self.temperature == 0.0 && self.repetition_penalty == 1.0
    }

    /// Returns the value of input `settings` of function `sample` for the token with index `index` of a generation.
    pub(super) fn device_settings(&self, index: usize) -> [f32; 4] {
        [self.temperature, self.top_k as f32, self.top_p, uniform(self.seed, index)]
    }

    /// True if function `sample` supports these parameters.
    pub(super) fn is_supported_on_device(&self) -> bool {
        self.temperature > 0.0
            && self.top_k <= MAX_DEVICE_TOP_K
            && self.min_p == 0.0
            && self.repetition_penalty == 1.0
    }

    /// Checks the ranges of the parameters.
    ///
    /// # Errors
    /// If a parameter is out of range.
    pub fn check(&self) -> Result<()> {
        let invalid = |name: &'static str, value: f32, range: &'static str| {
            Err(Error::InvalidSampling { name, value: format!("{value}"), range })
        };
        if !(self.temperature.is_finite() && self.temperature >= 0.0) {
            return invalid("temperature", self.temperature, "at least 0");
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return invalid("top_p", self.top_p, "above 0 and at most 1");
        }
        if !(0.0..=1.0).contains(&self.min_p) {
            return invalid("min_p", self.min_p, "at least 0 and at most 1");
        }
        if !(self.repetition_penalty.is_finite() && self.repetition_penalty > 0.0) {
            return invalid("repetition_penalty", self.repetition_penalty, "above 0");
        }
        Ok(())
    }
}

/// Samples tokens on the host.
pub(super) struct Sampler {
    sampling: Sampling,
    /// Buffers of the sampler that are reused between tokens.
    seen: Vec<bool>,
    candidates: Vec<(f32, u32)>,
}

impl Sampler {
    pub(super) fn new(sampling: &Sampling) -> Sampler {
        Sampler { sampling: sampling.clone(), seen: Vec::new(), candidates: Vec::new() }
    }

    /// Samples the token with index `index` of a generation. Among the candidates that `top_k`, `top_p` and `min_p` leave, in
    /// descending order of logits, the sampled token is the first whose cumulative probability exceeds the random
    /// number times the total probability.
    pub(super) fn sample(
        &mut self,
        tokens: &[u32],
        logits: impl ExactSizeIterator<Item = f32>,
        index: usize,
    ) -> u32 {
        let Sampling { temperature, top_k, top_p, min_p, repetition_penalty: penalty, seed } = self.sampling;
        self.seen.clear();
        self.seen.resize(if penalty == 1.0 { 0 } else { logits.len() }, false);
        for id in tokens {
            if let Some(seen) = usize::try_from(*id).ok().and_then(|id| self.seen.get_mut(id)) {
                *seen = true;
            }
        }
        let seen = self.seen.iter().copied().chain(std::iter::repeat(false));
        let penalized = logits.zip(seen).map(|(logit, seen)| match (seen, logit > 0.0) {
            _ if logit.is_nan() => f32::NEG_INFINITY,
            (false, _) => logit,
            (true, true) => logit / penalty,
            (true, false) => logit * penalty,
        });
        let list = &mut self.candidates;
        list.clear();
        list.extend(penalized.zip(0u32..));
        let best = list.iter().copied().min_by(order).unwrap_or((0.0, 0));
        if temperature == 0.0 {
            return best.1;
        }
        if top_k > 0 && top_k < list.len() {
            list.select_nth_unstable_by(top_k - 1, order);
            list.truncate(top_k);
        }
        let weight = |logit: f32| match (logit - best.0) / temperature {
            // Infinity minus infinity.
            distance if distance.is_nan() => 1.0,
            distance => f64::from(distance).exp(),
        };
        let mut total: f64 = list.iter().map(|(logit, _)| weight(*logit)).sum();
        // The most likely token has weight 1. `top_p` and `min_p` both keep the most likely tokens, so the stricter of
        // the two decides.
        let likely =
            list.iter().map(|(logit, _)| weight(*logit)).filter(|weight| *weight >= f64::from(min_p));
        let likely_total: f64 = if min_p > 0.0 { likely.sum() } else { total };
        let mut sorted = 0;
        let mut select_at = |threshold: f64| {
            let (mut sum, mut at) = (0.0, 0);
            loop {
                if at == sorted {
                    sorted = sort_next(list, sorted);
                }
                let Some((logit, id)) = list.get(at) else {
                    return (sum, list.last().map_or(0, |last| last.1));
                };
                sum += weight(*logit);
                if sum >= threshold {
                    return (sum, *id);
                }
                at += 1;
            }
        };
        if top_p < 1.0 {
            total = select_at(f64::from(top_p) * total).0;
        }
        total = total.min(likely_total);
        // The cumulative probability must exceed the threshold, not equal it.
        select_at((f64::from(uniform(seed, index)) * total).next_up()).1
    }
}

fn order(a: &(f32, u32), b: &(f32, u32)) -> std::cmp::Ordering {
    b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
}

/// Extends the sorted beginning of a list of candidates, whose first `sorted` elements are already in order. Returns
/// the new number of sorted elements.
fn sort_next(list: &mut [(f32, u32)], sorted: usize) -> usize {
    let until = list.len().min(sorted * 4 + 64);
    let rest = list.get_mut(sorted..).unwrap_or_default();
    if until - sorted < rest.len() {
        rest.select_nth_unstable_by(until - sorted, order);
    }
    rest.get_mut(..until - sorted).unwrap_or_default().sort_unstable_by(order);
    until
}

#[cfg(test)]
mod tests {
    use super::{Sampler, Sampling};

    const LOGITS: [f32; 6] = [1.0, 3.0, -1.0, 3.0, 2.0, f32::NAN];

    fn sample_counts(sampling: &Sampling, tokens: &[u32]) -> Vec<usize> {
        let mut sampler = Sampler::new(sampling);
        let mut counts = vec![0; LOGITS.len()];
        for index in 0..4000 {
            counts[sampler.sample(tokens, LOGITS.into_iter(), index) as usize] += 1;
        }
        counts
    }

    #[test]
    fn ties_select_the_first_token() {
        assert_eq!(sample_counts(&Sampling::default(), &[]), [0, 4000, 0, 0, 0, 0]);
        let penalty = Sampling { repetition_penalty: 2.0, ..Sampling::default() };
        assert_eq!(sample_counts(&penalty, &[1, 1, 77]), [0, 0, 0, 4000, 0, 0]);
        // A repeated token is penalized once, and a negative logit is multiplied.
        assert_eq!(sample_counts(&penalty, &[1, 3, 3]), [0, 0, 0, 0, 4000, 0]);
        let mut sampler = Sampler::new(&penalty);
        assert_eq!(sampler.sample(&[0], [-1.0, -1.5].into_iter(), 0), 1);
    }

    #[test]
    fn samples_follow_the_probabilities() {
        let warm = Sampling { temperature: 1.0, seed: 5, ..Sampling::default() };
        let weights: Vec<f64> = LOGITS.map(|l| if l.is_nan() { 0.0 } else { f64::from(l).exp() }).to_vec();
        let total: f64 = weights.iter().sum();
        for (count, weight) in sample_counts(&warm, &[]).iter().zip(&weights) {
            assert!((*count as f64 - 4000.0 * weight / total).abs() < 120.0, "{count} for {weight}");
        }
        let cold = sample_counts(&Sampling { temperature: 0.2, ..warm.clone() }, &[]);
        assert!(cold[1] + cold[3] > 3900 && cold[1] > 1800 && cold[3] > 1800, "{cold:?}");
        assert_eq!(sample_counts(&warm, &[]), sample_counts(&warm, &[]));
        assert_ne!(sample_counts(&warm, &[]), sample_counts(&Sampling { seed: 6, ..warm }, &[]));
    }

    #[test]
    fn top_k_and_top_p_limit_the_candidates() {
        let warm = Sampling { temperature: 1.0, ..Sampling::default() };
        let used = |sampling: &Sampling| -> Vec<bool> {
            sample_counts(sampling, &[]).iter().map(|count| *count > 0).collect()
        };
        assert_eq!(used(&Sampling { top_k: 1, ..warm.clone() }), [false, true, false, false, false, false]);
        assert_eq!(used(&Sampling { top_k: 3, ..warm.clone() }), [false, true, false, true, true, false]);
        assert_eq!(used(&Sampling { top_k: 99, ..warm.clone() })[..5], [true; 5]);
        assert_eq!(
            used(&Sampling { top_p: 0.01, ..warm.clone() }),
            [false, true, false, false, false, false]
        );
        assert_eq!(used(&Sampling { top_p: 0.75, ..warm.clone() }), [false, true, false, true, false, false]);
        // Two tokens are equally likely.
        assert_eq!(used(&Sampling { min_p: 1.0, ..warm.clone() }), [false, true, false, true, false, false]);
        assert_eq!(used(&Sampling { min_p: 1e-9, ..warm.clone() })[..5], [true; 5]);
        assert_eq!(used(&Sampling { top_p: 0.85, ..warm }), [false, true, false, true, true, false]);
    }

    #[test]
    fn parameters_out_of_range_are_errors() {
        let invalid = |sampling: Sampling| sampling.check().unwrap_err().to_string();
        assert!(invalid(Sampling { temperature: -1.0, ..Sampling::default() }).contains("at least 0"));
        assert!(invalid(Sampling { temperature: f32::NAN, ..Sampling::default() }).contains("NaN"));
        assert!(invalid(Sampling { top_p: 0.0, ..Sampling::default() }).contains("top_p"));
        assert!(invalid(Sampling { repetition_penalty: 0.0, ..Sampling::default() }).contains("above 0"));
        assert!(Sampling::default().check().is_ok());
    }
}
