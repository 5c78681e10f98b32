//! Timesteps of a run. It uses the f64 operations of NumPy in the same order.

use super::settings::Settings;
use crate::Result;

/// Distribution of the timesteps of a run over the training timesteps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spacing {
    Linspace,
    Leading,
    Trailing,
}

impl Spacing {
    /// Reads the setting.
    pub(super) fn read(settings: &Settings, default: &str) -> Result<Self> {
        let choices =
            [("linspace", Self::Linspace), ("leading", Self::Leading), ("trailing", Self::Trailing)];
        settings.choice("timestep_spacing", default, &choices)
    }
}

/// Returns the timesteps of a run in descending order. With the spacing `linspace` they may have fractions.
pub(super) fn timesteps(spacing: Spacing, train: usize, steps: usize, offset: i64) -> Vec<f64> {
    match spacing {
        Spacing::Linspace => {
            let mut all = linspace(0.0, train as f64 - 1.0, steps);
            all.reverse();
            all
        }
        Spacing::Leading => {
            let ratio = train / steps.max(1);
            (0..steps).rev().map(|i| (i * ratio) as f64 + offset as f64).collect()
        }
        Spacing::Trailing => trailing(train, train, steps),
    }
}

/// Returns the timesteps of a run in descending order, rounded to integers.
pub(super) fn whole_timesteps(spacing: Spacing, train: usize, steps: usize, offset: i64) -> Vec<i64> {
    timesteps(spacing, train, steps, offset).into_iter().map(|t| t.round_ties_even() as i64).collect()
}

/// Returns timesteps from `last - 1` downwards. For some numbers of steps, diffusers adds a timestep -1, which no model
/// has. This function does not add it.
pub(super) fn trailing(last: usize, train: usize, steps: usize) -> Vec<f64> {
    let last = last as f64;
    let ratio = train as f64 / steps.max(1) as f64;
    let step = (last - ratio) - last;
    let all = (0..steps).map(|i| (last + i as f64 * step).round_ties_even() - 1.0);
    all.take_while(|t| *t >= 0.0).collect()
}

/// Computes `numpy.linspace`.
pub(super) fn linspace(start: f64, stop: f64, count: usize) -> Vec<f64> {
    let step = (stop - start) / count.saturating_sub(1).max(1) as f64;
    let value = |i: usize| if i > 0 && i + 1 == count { stop } else { i as f64 * step + start };
    (0..count).map(value).collect()
}
