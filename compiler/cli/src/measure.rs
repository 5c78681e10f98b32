//! Dispatch times by the device's clock: warm-up, repeated runs and the median.

use std::time::{Duration, Instant};

use drift_runtime::Session;

/// Minimum warm-up time. A device raises its clock rates under load; runs during the warm-up are not measured.
const WARM_UP: Duration = Duration::from_millis(100);
/// Minimum number of runs to take a median of, if they end within the time limit.
const MIN_RUNS: usize = 5;
/// Minimum number of runs to take a median of, even if they exceed the time limit.
const MIN_SLOW_RUNS: usize = 3;
const MAX_RUNS: usize = 100;

/// Returns the time of each dispatch in nanoseconds, one list for each run. Each run repeats the function with its last
/// inputs. Without `repeat`, the number of runs depends on `time_limit`.
pub(crate) fn dispatch_runs(
    session: &mut Session,
    function: &str,
    repeat: Option<usize>,
    time_limit: Duration,
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
            let late = begin.elapsed() >= time_limit;
            n < if late { MIN_SLOW_RUNS } else { MIN_RUNS } || (n < MAX_RUNS && !late)
        }
    };
    while more(runs.len()) {
        let times = session.replay_timed(function)?;
        runs.push(times.iter().map(|t| t.end - t.start).collect());
    }
    Ok(runs)
}

/// Median of a list. Returns 0 for an empty list.
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
