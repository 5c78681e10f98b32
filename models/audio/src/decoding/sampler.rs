//! Choice of tokens.

use rand_mt::Mt64;

use super::scores::best_token;

/// Selects tokens by a temperature, with random numbers from a seed.
#[derive(Debug, Clone)]
pub struct Sampler {
    engine: Mt64,
}

impl Sampler {
    /// Creates a sampler. Equal seeds give equal tokens.
    pub fn new(seed: u64) -> Self {
        Self { engine: Mt64::new(seed) }
    }

    /// Selects a token from logits after [`super::LogitRules::apply`]. The temperature 0 selects the token with the highest
    /// logit. Returns `None` if all tokens are forbidden.
    pub fn select(&mut self, logits: &[f32], temperature: f32) -> Option<u32> {
        let best = best_token(logits)?;
        // Also false for NaN.
        let is_random = temperature > 0.0 && temperature.is_finite();
        if !is_random {
            return Some(best);
        }
        let highest = f64::from(*logits.get(best as usize)?);
        let weight = |logit: f32| libm::exp((f64::from(logit) - highest) / f64::from(temperature));
        let total: f64 = logits.iter().map(|logit| weight(*logit)).filter(|w| w.is_finite()).sum();
        let mut rest = self.uniform() * total;
        for (index, logit) in logits.iter().enumerate() {
            let weight = weight(*logit);
            if weight.is_finite() && weight > 0.0 {
                if rest < weight {
                    return u32::try_from(index).ok();
                }
                rest -= weight;
            }
        }
        Some(best)
    }

    /// Returns a uniform number of 53 random bits, at least 0 and below 1.
    fn uniform(&mut self) -> f64 {
        (self.engine.next_u64() >> 11) as f64 / 9_007_199_254_740_992.0
    }
}
