//! Noise levels as sigmas, the standard deviation of the noise relative to the clean latent.

use super::alphas::Alphas;
use super::settings::{Settings, invalid};
use super::spacing::linspace;
use crate::Result;

/// Exponent of the curve of Karras et al.
const RHO: f64 = 7.0;

/// Distribution of the sigmas of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Curve {
    /// Sigmas of the timesteps.
    Table,
    /// Curve of Karras et al. (2022).
    Karras,
    /// Uniform logarithms.
    Exponential,
    /// Uniform logarithms, for which diffusers rounds the timesteps (Lu et al., 2022).
    Lu,
}

/// Settings of the sigmas of a run.
#[derive(Debug)]
pub(super) struct SigmaSettings {
    pub(super) curve: Curve,
    minimum: Option<f64>,
    maximum: Option<f64>,
    /// The run ends at the lowest sigma of training instead of 0.
    pub(super) ends_at_minimum: bool,
}

impl SigmaSettings {
    /// Reads the settings. Some schedulers do not have `use_lu_lambdas`.
    pub(super) fn read(settings: &Settings, lu: bool) -> Result<Self> {
        settings.refuse("use_beta_sigmas")?;
        let karras = settings.flag("use_karras_sigmas", false)?;
        let exponential = settings.flag("use_exponential_sigmas", false)?;
        if karras && exponential {
            let supported = "false, because `use_karras_sigmas` is true";
            return Err(invalid("use_exponential_sigmas", &true.into(), supported));
        }
        let lu = lu && settings.flag("use_lu_lambdas", false)?;
        let curve = match (karras, lu, exponential) {
            (true, _, _) => Curve::Karras,
            (_, true, _) => Curve::Lu,
            (_, _, true) => Curve::Exponential,
            _ => Curve::Table,
        };
        let ends = [("zero", false), ("sigma_min", true)];
        Ok(Self {
            curve,
            minimum: settings.positive("sigma_min")?,
            maximum: settings.positive("sigma_max")?,
            ends_at_minimum: settings.choice("final_sigmas_type", "zero", &ends)?,
        })
    }

    /// Distributes sigmas between the first and the last one, along any curve but `Table`.
    pub(super) fn distributed(&self, first: f64, last: f64, steps: usize) -> Vec<f64> {
        if self.curve == Curve::Lu {
            let logs = (f64::from(log_f32(first as f32)), f64::from(log_f32(last as f32)));
            return linspace(logs.0, logs.1, steps).into_iter().map(libm::exp).collect();
        }
        let (first, last) = (self.maximum.unwrap_or(first), self.minimum.unwrap_or(last));
        if self.curve == Curve::Exponential {
            let logs = linspace(libm::log(first), libm::log(last), steps);
            return logs.into_iter().map(libm::exp).collect();
        }
        let (first, last) = (libm::pow(first, 1.0 / RHO), libm::pow(last, 1.0 / RHO));
        let ramp = linspace(0.0, 1.0, steps);
        ramp.into_iter().map(|part| libm::pow(first + part * (last - first), RHO)).collect()
    }
}

/// Sigmas of the training timesteps.
#[derive(Debug)]
pub(super) struct SigmaTable {
    sigmas: Vec<f32>,
    logs: Vec<f32>,
}

impl SigmaTable {
    /// Computes the table.
    pub(super) fn new(alphas: &Alphas) -> Self {
        let sigmas: Vec<f32> = alphas.table().iter().map(|alpha| ((1.0 - alpha) / alpha).sqrt()).collect();
        let logs = sigmas.iter().copied().map(log_f32).collect();
        Self { sigmas, logs }
    }

    /// Returns the sigma of timestep 0.
    pub(super) fn minimum(&self) -> f64 {
        self.sigmas.first().copied().map_or(0.0, f64::from)
    }

    /// Returns the sigma of the last timestep.
    pub(super) fn maximum(&self) -> f64 {
        self.sigmas.last().copied().map_or(0.0, f64::from)
    }

    /// Returns the sigma of a timestep, interpolated and limited as by `numpy.interp`.
    pub(super) fn at(&self, timestep: f64) -> f64 {
        let below = timestep.max(0.0).floor();
        let index = below as usize;
        let low = self.sigmas.get(index).copied().map_or(self.maximum(), f64::from);
        let high = self.sigmas.get(index.saturating_add(1)).copied().map_or(low, f64::from);
        (high - low) * (timestep.max(0.0) - below) + low
    }

    /// Returns the timestep of a sigma, with a fraction.
    pub(super) fn timestep(&self, sigma: f64) -> f64 {
        let log = libm::log(sigma.max(1e-10));
        let last = self.logs.len().saturating_sub(2);
        let index = self.logs.iter().rposition(|low| log >= f64::from(*low)).unwrap_or(0).min(last);
        let value = |index: usize| self.logs.get(index).copied().map_or(f64::NAN, f64::from);
        let (low, high) = (value(index), value(index + 1));
        let weight = ((low - log) / (low - high)).clamp(0.0, 1.0);
        (1.0 - weight) * index as f64 + weight * (index + 1) as f64
    }
}

/// Numerator of the rational function for the logarithm, from the highest power down.
const NUMERATOR: [f32; 6] = [2.589_979e-2, 0.380_883_77, 1.480_000_6, 2.112_677_6, 1.0, 0.0];
/// Denominator of the rational function for the logarithm, from the highest power down.
const DENOMINATOR: [f32; 6] = [5.875_095_4e-3, 0.154_647_63, 0.986_494_3, 2.453_006, 2.612_677_6, 1.0];

/// Computes the logarithm in f32 as NumPy does on x86. Its rounding errors show in the timesteps of diffusers, because
/// diffusers interpolates in a table of these logarithms and then cuts off fractions.
fn log_f32(x: f32) -> f32 {
    let (mut mantissa, exponent) = libm::frexpf(x);
    let mut exponent = exponent as f32;
    if mantissa * 2.0 > std::f32::consts::SQRT_2 {
        mantissa -= 1.0;
    } else {
        mantissa = mantissa * 2.0 - 1.0;
        exponent -= 1.0;
    }
    let fused = |a: f32, b: f32, c: f32| (f64::from(a) * f64::from(b) + f64::from(c)) as f32;
    let polynomial =
        |factors: [f32; 6]| factors.into_iter().reduce(|sum, c| fused(sum, mantissa, c)).unwrap_or(0.0);
    fused(exponent, std::f32::consts::LN_2, polynomial(NUMERATOR) / polynomial(DENOMINATOR))
}
