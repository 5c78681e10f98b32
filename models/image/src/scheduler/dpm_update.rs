//! Update formulas of DPM-Solver, by algorithm and order.

use super::settings::Settings;
use crate::Result;

/// Algorithm of DPM-Solver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    /// DPM-Solver++: ODE with predicted clean latents.
    Original,
    /// DPM-Solver: ODE with predicted noises.
    Noise,
    /// DPM-Solver++: SDE with predicted clean latents.
    StochasticOriginal,
    /// DPM-Solver: SDE with predicted noises.
    StochasticNoise,
}

impl Algorithm {
    /// Reads the setting.
    pub(super) fn read(settings: &Settings) -> Result<Self> {
        let choices = [
            ("dpmsolver++", Self::Original),
            ("dpmsolver", Self::Noise),
            ("sde-dpmsolver++", Self::StochasticOriginal),
            ("sde-dpmsolver", Self::StochasticNoise),
            ("deis", Self::Original),
        ];
        settings.choice("algorithm_type", "dpmsolver++", &choices)
    }

    /// Returns true if the history holds predicted clean latents instead of predicted noises.
    pub(super) fn predicts_original(self) -> bool {
        matches!(self, Self::Original | Self::StochasticOriginal)
    }

    /// Returns true if each step adds noise.
    pub(super) fn is_stochastic(self) -> bool {
        matches!(self, Self::StochasticOriginal | Self::StochasticNoise)
    }
}

/// Weights of one update.
#[derive(Debug)]
pub(super) struct Update {
    pub(super) latent: f64,
    /// Weights of h0, h1 and h2.
    pub(super) history: [f64; 3],
    pub(super) noise: f64,
}

/// Weights of an update in the terms of the papers: the latest prediction D0 and its differences D1 and D2.
struct Terms {
    latent: f64,
    d0: f64,
    /// Weight of D1, by the midpoint method.
    d1_midpoint: f64,
    /// Weight of D1, by Heun's method and in third order.
    d1_heun: f64,
    d2: f64,
    noise: f64,
}

impl Update {
    /// Computes the update of an order. `sigmas` holds the next sigma, the present one, and the earlier ones.
    pub(super) fn new(algorithm: Algorithm, heun: bool, order: usize, sigmas: [f64; 4]) -> Self {
        let [lambda, lambda0, lambda1, lambda2] = sigmas.map(|sigma| -libm::log(sigma));
        let h = lambda - lambda0;
        let terms = Terms::new(algorithm, h, sigmas[0], sigmas[1]);
        let (r0, r1) = ((lambda0 - lambda1) / h, (lambda1 - lambda2) / h);
        // Each difference as weights of h0, h1 and h2.
        let near = [1.0 / r0, -1.0 / r0, 0.0];
        let history = match order {
            1 => [terms.d0, 0.0, 0.0],
            2 => {
                let d1 = if heun { terms.d1_heun } else { terms.d1_midpoint };
                [terms.d0 + d1 * near[0], d1 * near[1], 0.0]
            }
            _ => {
                let far = [0.0, 1.0 / r1, -1.0 / r1];
                let mut history = [terms.d0, 0.0, 0.0];
                for (weight, (near, far)) in history.iter_mut().zip(near.into_iter().zip(far)) {
                    let difference = (near - far) / (r0 + r1);
                    *weight += terms.d1_heun * (near + r0 * difference) + terms.d2 * difference;
                }
                history
            }
        };
        Self { latent: terms.latent, history, noise: terms.noise }
    }
}

impl Terms {
    /// Computes the weights for a step of `h` in lambda, from `sigma0` to `sigma`.
    fn new(algorithm: Algorithm, h: f64, sigma: f64, sigma0: f64) -> Self {
        let scale = |sigma: f64| 1.0 / (sigma * sigma + 1.0).sqrt();
        let (alpha, alpha0) = (scale(sigma), scale(sigma0));
        let (s, s0) = (sigma * alpha, sigma0 * alpha0);
        match algorithm {
            Algorithm::Original => {
                let e = libm::expm1(-h);
                Self {
                    latent: s / s0,
                    d0: -alpha * e,
                    d1_midpoint: -0.5 * alpha * e,
                    d1_heun: alpha * (e / h + 1.0),
                    d2: -alpha * ((e + h) / (h * h) - 0.5),
                    noise: 0.0,
                }
            }
            Algorithm::Noise => {
                let e = libm::expm1(h);
                Self {
                    latent: alpha / alpha0,
                    d0: -s * e,
                    d1_midpoint: -0.5 * s * e,
                    d1_heun: -s * (e / h - 1.0),
                    d2: -s * ((e - h) / (h * h) - 0.5),
                    noise: 0.0,
                }
            }
            Algorithm::StochasticOriginal => {
                let e = -libm::expm1(-2.0 * h);
                Self {
                    latent: s / s0 * libm::exp(-h),
                    d0: alpha * e,
                    d1_midpoint: 0.5 * alpha * e,
                    d1_heun: alpha * (e / (-2.0 * h) + 1.0),
                    d2: alpha * ((e - 2.0 * h) / (4.0 * h * h) - 0.5),
                    noise: s * e.sqrt(),
                }
            }
            Algorithm::StochasticNoise => {
                let e = libm::expm1(h);
                Self {
                    latent: alpha / alpha0,
                    d0: -2.0 * s * e,
                    d1_midpoint: -s * e,
                    d1_heun: -2.0 * s * (e / h - 1.0),
                    d2: 0.0,
                    noise: s * libm::expm1(2.0 * h).sqrt(),
                }
            }
        }
    }
}
