//! Times of dispatches by the device's clock: warmed up, repeated, and the median of what was seen.

use std::time::{Duration, Instant};

use drift_runtime::Session;

/// Clocks of a device rise when it is busy; what runs before that does not count.
const WARM_UP: Duration = Duration::from_millis(100);
/// The fewest runs that make a median, and that do where they try the patience.
const MIN_RUNS: usize = 5;
const LEAST_RUNS: usize = 3;
const MAX_RUNS: usize = 100;

/// The time of each dispatch in nanoseconds, one list for each run of the function's last inputs: so many runs, or as
/// many as the patience allows.
pub(crate) fn dispatch_runs(
    session: &mut Session,
    function: &str,
    repeat: Option<usize>,
    patience: Duration,
) -> Result<Vec<Vec<f64>>, drift_runtime::Error> {
    let begin = Instant::now();
    loop {
        session.replay_timed(function)?;
        if repeat.is_some() || begin.elapsed() >= WARM_UP {
            break;
        }
    }
    let begin = Instant::now();
    let mut runs: Vec<Vec<f64>> = Vec::new();
    let more = |n: usize| match repeat {
        Some(repeat) => n < repeat.clamp(1, MAX_RUNS),
        None => {
            let impatient = begin.elapsed() >= patience;
            n < if impatient { LEAST_RUNS } else { MIN_RUNS } || (n < MAX_RUNS && !impatient)
        }
    };
    while more(runs.len()) {
        let times = session.replay_timed(function)?;
        runs.push(times.iter().map(|t| t.end - t.start).collect());
    }
    Ok(runs)
}

/// The middle of a list; 0 where there is none.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn a_median_ignores_outliers() {
        assert_eq!(median(vec![3.0, 900.0, 1.0]), 3.0);
        assert_eq!(median(Vec::new()), 0.0);
    }
}
