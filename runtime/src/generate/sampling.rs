//! The choice of a token from logits.

use super::random::unit;
use crate::error::{Error, Result};

/// The largest `top_k` that function `sample` takes.
const CANDIDATES: usize = 64;

/// How tokens are chosen. The default takes the most likely one each time.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Logits are divided by it; 0 takes the most likely token.
    pub temperature: f32,
    /// Only so many of the most likely tokens are drawn from; 0: all.
    pub top_k: usize,
    /// Only the most likely tokens that together have this probability are drawn from; 1: all.
    pub top_p: f32,
    /// Logits of tokens that the text has are divided by it where positive, multiplied where negative; 1: nothing.
    pub repetition_penalty: f32,
    /// Equal seeds give equal texts.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Sampling {
        Sampling { temperature: 0.0, top_k: 0, top_p: 1.0, repetition_penalty: 1.0, seed: 0 }
    }
}

impl Sampling {
    /// Whether the token is the arg-max of the logits as they are.
    pub(super) fn is_plain(&self) -> bool {
        self.temperature == 0.0 && self.repetition_penalty == 1.0
    }

    /// The settings of function `sample` for the token of this index.
    pub(super) fn settings(&self, index: usize) -> [f32; 4] {
        [self.temperature, self.top_k as f32, self.top_p, unit(self.seed, index)]
    }

    /// Whether function `sample` draws so.
    pub(super) fn fits_device(&self) -> bool {
        self.temperature > 0.0 && self.top_k <= CANDIDATES && self.repetition_penalty == 1.0
    }

    /// Checks the numbers.
    ///
    /// # Errors
    /// When one is out of its range.
    pub fn check(&self) -> Result<()> {
        let wrong = |name: &'static str, value: f32, range: &'static str| {
            Err(Error::InvalidSampling { name, value: format!("{value}"), range })
        };
        if !(self.temperature.is_finite() && self.temperature >= 0.0) {
            return wrong("temperature", self.temperature, "at least 0");
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return wrong("top_p", self.top_p, "above 0 and at most 1");
        }
        if !(self.repetition_penalty.is_finite() && self.repetition_penalty > 0.0) {
            return wrong("repetition_penalty", self.repetition_penalty, "above 0");
        }
        Ok(())
    }
}

/// Draws tokens, one after the other.
pub(super) struct Sampler {
    sampling: Sampling,
    /// Reused from token to token.
    seen: Vec<bool>,
    candidates: Vec<(f32, u32)>,
}

impl Sampler {
    pub(super) fn new(sampling: &Sampling) -> Sampler {
        Sampler { sampling: sampling.clone(), seen: Vec::new(), candidates: Vec::new() }
    }

    /// The token of a text that its logits and the random number of this index decide: the first one in the order of
    /// logits whose running sum of probabilities passes the random number's share of what is drawn from.
    pub(super) fn pick(
        &mut self,
        text: &[u32],
        logits: impl ExactSizeIterator<Item = f32>,
        index: usize,
    ) -> u32 {
        let Sampling { temperature, top_k, top_p, repetition_penalty: penalty, seed } = self.sampling;
        self.seen.clear();
        self.seen.resize(if penalty == 1.0 { 0 } else { logits.len() }, false);
        for id in text {
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
        let most = list.iter().copied().min_by(order).unwrap_or((0.0, 0));
        if temperature == 0.0 {
            return most.1;
        }
        if top_k > 0 && top_k < list.len() {
            list.select_nth_unstable_by(top_k - 1, order);
            list.truncate(top_k);
        }
        let weight = |logit: f32| match (logit - most.0) / temperature {
            // Infinity less infinity.
            distance if distance.is_nan() => 1.0,
            distance => f64::from(distance).exp(),
        };
        let mut kept: f64 = list.iter().map(|(logit, _)| weight(*logit)).sum();
        let mut sorted = 0;
        let mut first = |n: f64| {
            let (mut sum, mut at) = (0.0, 0);
            loop {
                if at == sorted {
                    sorted = sort_more(list, sorted);
                }
                let Some((logit, id)) = list.get(at) else {
                    return (sum, list.last().map_or(0, |last| last.1));
                };
                sum += weight(*logit);
                if sum >= n {
                    return (sum, *id);
                }
                at += 1;
            }
        };
        if top_p < 1.0 {
            kept = first(f64::from(top_p) * kept).0;
        }
        // Beyond the share, however little.
        first((f64::from(unit(seed, index)) * kept).next_up()).1
    }
}

fn order(a: &(f32, u32), b: &(f32, u32)) -> std::cmp::Ordering {
    b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
}

/// Brings further elements of a list, whose first `sorted` are in order, into theirs, and returns how many are now.
fn sort_more(list: &mut [(f32, u32)], sorted: usize) -> usize {
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

    fn draw(sampling: &Sampling, text: &[u32]) -> Vec<usize> {
        let mut sampler = Sampler::new(sampling);
        let mut counts = vec![0; LOGITS.len()];
        for index in 0..4000 {
            counts[sampler.pick(text, LOGITS.into_iter(), index) as usize] += 1;
        }
        counts
    }

    #[test]
    fn the_most_likely_token_is_the_first_of_equals() {
        assert_eq!(draw(&Sampling::default(), &[]), [0, 4000, 0, 0, 0, 0]);
        let penalty = Sampling { repetition_penalty: 2.0, ..Sampling::default() };
        assert_eq!(draw(&penalty, &[1, 1, 77]), [0, 0, 0, 4000, 0, 0]);
        // Dividing once, however often the text has it, and multiplying what is negative.
        assert_eq!(draw(&penalty, &[1, 3, 3]), [0, 0, 0, 0, 4000, 0]);
        let mut sampler = Sampler::new(&penalty);
        assert_eq!(sampler.pick(&[0], [-1.0, -1.5].into_iter(), 0), 1);
    }

    #[test]
    fn draws_follow_the_probabilities() {
        let warm = Sampling { temperature: 1.0, seed: 5, ..Sampling::default() };
        let weights: Vec<f64> = LOGITS.map(|l| if l.is_nan() { 0.0 } else { f64::from(l).exp() }).to_vec();
        let total: f64 = weights.iter().sum();
        for (count, weight) in draw(&warm, &[]).iter().zip(&weights) {
            assert!((*count as f64 - 4000.0 * weight / total).abs() < 120.0, "{count} for {weight}");
        }
        let cold = draw(&Sampling { temperature: 0.2, ..warm.clone() }, &[]);
        assert!(cold[1] + cold[3] > 3900 && cold[1] > 1800 && cold[3] > 1800, "{cold:?}");
        assert_eq!(draw(&warm, &[]), draw(&warm, &[]));
        assert_ne!(draw(&warm, &[]), draw(&Sampling { seed: 6, ..warm }, &[]));
    }

    #[test]
    fn few_tokens_are_drawn_from() {
        let warm = Sampling { temperature: 1.0, ..Sampling::default() };
        let used = |sampling: &Sampling| -> Vec<bool> {
            draw(sampling, &[]).iter().map(|count| *count > 0).collect()
        };
        assert_eq!(used(&Sampling { top_k: 1, ..warm.clone() }), [false, true, false, false, false, false]);
        assert_eq!(used(&Sampling { top_k: 3, ..warm.clone() }), [false, true, false, true, true, false]);
        assert_eq!(used(&Sampling { top_k: 99, ..warm.clone() })[..5], [true; 5]);
        assert_eq!(
            used(&Sampling { top_p: 0.01, ..warm.clone() }),
            [false, true, false, false, false, false]
        );
        assert_eq!(used(&Sampling { top_p: 0.75, ..warm.clone() }), [false, true, false, true, false, false]);
        assert_eq!(used(&Sampling { top_p: 0.85, ..warm }), [false, true, false, true, true, false]);
    }

    #[test]
    fn numbers_have_ranges() {
        let wrong = |sampling: Sampling| sampling.check().unwrap_err().to_string();
        assert!(wrong(Sampling { temperature: -1.0, ..Sampling::default() }).contains("at least 0"));
        assert!(wrong(Sampling { temperature: f32::NAN, ..Sampling::default() }).contains("NaN"));
        assert!(wrong(Sampling { top_p: 0.0, ..Sampling::default() }).contains("top_p"));
        assert!(wrong(Sampling { repetition_penalty: 0.0, ..Sampling::default() }).contains("above 0"));
        assert!(Sampling::default().check().is_ok());
    }
}
