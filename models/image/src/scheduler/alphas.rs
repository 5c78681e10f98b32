//! Table of the noise levels of training. It uses the f32 operations of diffusers in the same order.

use serde_json::Value;

use super::settings::{FILE, Settings, invalid};
use crate::{Error, Result};

/// Curve of the betas.
#[derive(Debug, Clone, Copy)]
enum Curve {
    Linear,
    ScaledLinear,
    Cosine,
}

/// Default values of the betas.
#[derive(Debug, Clone, Copy)]
pub(super) struct Defaults {
    pub(super) start: f64,
    pub(super) end: f64,
    pub(super) schedule: &'static str,
}

/// Default values of the betas in most schedulers.
pub(super) const DEFAULTS: Defaults = Defaults { start: 0.0001, end: 0.02, schedule: "linear" };

/// Treatment of the last noise level, which the setting `rescale_betas_zero_snr` makes pure noise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ZeroSnr {
    /// The scheduler does not have the setting.
    Ignored,
    /// The last noise level is pure noise.
    Exact,
    /// The last noise level is close to pure noise, so that its sigma is finite.
    Finite,
}

/// Part of the clean latent in the variance of the latent, for each training timestep (`alphas_cumprod` of diffusers).
#[derive(Debug)]
pub(super) struct Alphas(Vec<f32>);

impl Alphas {
    /// Computes the table.
    pub(super) fn read(settings: &Settings, defaults: Defaults, zero_snr: ZeroSnr) -> Result<Self> {
        let mut betas = betas(settings, defaults)?;
        let rescale = zero_snr != ZeroSnr::Ignored && settings.flag("rescale_betas_zero_snr", false)?;
        if rescale {
            betas = rescaled(&betas);
        }
        let mut alphas = cumulative(&betas);
        if let (true, ZeroSnr::Finite, Some(last)) = (rescale, zero_snr, alphas.last_mut()) {
            *last = 1.0 / 16_777_216.0;
        }
        Ok(Self(alphas))
    }

    /// Returns the number of training timesteps.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the table.
    pub(super) fn table(&self) -> &[f32] {
        &self.0
    }

    /// Returns the value of training timestep 0.
    pub(super) fn first(&self) -> f64 {
        self.0.first().copied().map_or(1.0, f64::from)
    }

    /// Returns the value of a training timestep.
    pub(super) fn at(&self, timestep: i64) -> Result<f64> {
        let value = usize::try_from(timestep).ok().and_then(|index| self.0.get(index));
        value.copied().map(f64::from).ok_or_else(|| {
            Error::Request(format!(
                "{FILE}: a step uses timestep {timestep}, but the model has training timesteps 0 to {}; use fewer steps or reduce `steps_offset`",
                self.0.len().saturating_sub(1)
            ))
        })
    }

    /// Returns the value of an earlier training timestep, or `last` for timesteps below 0.
    pub(super) fn before(&self, timestep: i64, last: f64) -> Result<f64> {
        if timestep < 0 { Ok(last) } else { self.at(timestep) }
    }

    /// Returns the noise level after the last step, `final_alpha_cumprod` of diffusers.
    pub(super) fn last(&self, settings: &Settings, default_one: bool) -> Result<f64> {
        Ok(if settings.flag("set_alpha_to_one", default_one)? { 1.0 } else { self.first() })
    }
}

/// Returns an error if a run has more steps than the model has training timesteps.
pub(super) fn check_steps(steps: usize, train: usize) -> Result<()> {
    if steps <= train {
        return Ok(());
    }
    Err(Error::Request(format!(
        "{steps} denoising steps were requested, but the model has only {train} training timesteps; request at most {train} steps"
    )))
}

/// Computes the betas.
fn betas(settings: &Settings, defaults: Defaults) -> Result<Vec<f32>> {
    let count = settings.train_timesteps()?;
    if let Some(betas) = settings.numbers("trained_betas")? {
        let valid = betas.len() == count && betas.iter().all(|beta| (0.0..=1.0).contains(beta));
        let supported = || format!("{count} numbers from 0 to 1");
        return match valid {
            true => Ok(betas.iter().map(|beta| *beta as f32).collect()),
            false => {
                Err(invalid("trained_betas", &Value::from(format!("{} numbers", betas.len())), &supported()))
            }
        };
    }
    let choices = [
        ("linear", Curve::Linear),
        ("scaled_linear", Curve::ScaledLinear),
        ("squaredcos_cap_v2", Curve::Cosine),
    ];
    let curve = settings.choice("beta_schedule", defaults.schedule, &choices)?;
    let end = |key, default| {
        let beta = settings.number(key, default)?;
        let valid = (0.0..=1.0).contains(&beta);
        if valid { Ok(beta) } else { Err(invalid(key, &Value::from(beta), "numbers from 0 to 1")) }
    };
    let (start, stop) = (end("beta_start", defaults.start)?, end("beta_end", defaults.end)?);
    Ok(match curve {
        Curve::Linear => linspace(start, stop, count),
        Curve::ScaledLinear => {
            let roots = linspace(start.sqrt(), stop.sqrt(), count);
            roots.into_iter().map(|root| root * root).collect()
        }
        Curve::Cosine => (0..count).map(|i| cosine_beta(i, count)).collect(),
    })
}

/// Computes `torch.linspace` in f32. PyTorch fuses multiplication and addition.
fn linspace(start: f64, stop: f64, count: usize) -> Vec<f32> {
    let (start, stop) = (start as f32, stop as f32);
    let step = f64::from(if count > 1 { (stop - start) / (count - 1) as f32 } else { 0.0 });
    let value = |i: usize| {
        let exact = if i < count / 2 {
            f64::from(start) + step * i as f64
        } else {
            f64::from(stop) - step * (count - 1 - i) as f64
        };
        exact as f32
    };
    match count {
        1 => vec![start],
        _ => (0..count).map(value).collect(),
    }
}

/// Computes one beta of the cosine curve.
fn cosine_beta(index: usize, count: usize) -> f32 {
    let level = |t: f64| {
        let cos = libm::cos((t + 0.008) / 1.008 * std::f64::consts::PI / 2.0);
        cos * cos
    };
    let (from, to) = (index as f64 / count as f64, (index + 1) as f64 / count as f64);
    (1.0 - level(to) / level(from)).min(0.999) as f32
}

/// Returns the cumulative products of 1 - beta. PyTorch multiplies in f64 and rounds each product.
fn cumulative(betas: &[f32]) -> Vec<f32> {
    let mut product = 1.0_f64;
    let next = |beta: &f32| {
        product *= f64::from(1.0 - beta);
        product as f32
    };
    betas.iter().map(next).collect()
}

/// Rescales the betas so that the last noise level is pure noise (`rescale_zero_terminal_snr` of diffusers).
fn rescaled(betas: &[f32]) -> Vec<f32> {
    let roots: Vec<f32> = cumulative(betas).into_iter().map(f32::sqrt).collect();
    let (first, last) = (roots.first().copied().unwrap_or(1.0), roots.last().copied().unwrap_or(0.0));
    let scale = first / (first - last);
    let levels = roots.into_iter().map(|root| {
        let scaled = (root - last) * scale;
        scaled * scaled
    });
    let mut before = None;
    let beta = |level: f32| 1.0 - before.replace(level).map_or(level, |before| level / before);
    levels.map(beta).collect()
}
