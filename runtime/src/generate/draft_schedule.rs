//! Chooses the number of draft tokens per verify run from the acceptance rate and the times of drafting, verifying and
//! plain steps. A plain step is a decode step without draft tokens.
//!
//! If each of n draft tokens is accepted with probability a, provided that its predecessors are, a verify run yields
//! `1 + a + .. + a^n` tokens (Leviathan, Kalman and Matias 2023, "Fast Inference from Transformers via Speculative
//! Decoding", equation 1). Its cost is the time of one verify run plus the time of drafting n tokens. If no n yields
//! more tokens per second than plain steps, drafting pauses. Each consecutive pause is twice as long as the previous
//! one.

use std::time::Duration;

/// Number of verify runs before the measured acceptance rate is used, and number of draft tokens in each of these runs.
const WARMUP_RUNS: usize = 3;
const WARMUP_DRAFT: usize = 4;
/// Number of decode steps without draft tokens that run once to measure the time of such a step.
const PROBE_STEPS: usize = 8;
/// Number of decode steps in the shortest and in the longest pause of drafting.
const MIN_PAUSE: usize = 32;
const MAX_PAUSE: usize = 256;
/// Factor by which each verify run multiplies the weight of all earlier runs in the acceptance rate.
const DECAY: f64 = 0.9;
/// Fraction of the best generation rate (tokens per second) that may be lost: the smallest number of draft tokens
/// within this tolerance is selected.
const RATE_TOLERANCE: f64 = 0.05;

/// The next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Draft at most this many tokens and verify them in one run.
    Draft(usize),
    /// Generate this many tokens in decode steps without draft tokens.
    Plain(usize),
}

/// Exponential moving average of a duration, in seconds.
#[derive(Clone, Copy, Debug, Default)]
struct Mean(Option<f64>);

impl Mean {
    fn add(&mut self, time: Duration, n: usize) {
        let one = time.as_secs_f64() / n.max(1) as f64;
        self.0 = Some(self.0.map_or(one, |mean| mean + (one - mean) / 4.0));
    }
}

/// Acceptance statistics of the current generation, and time statistics over all generations.
#[derive(Clone, Debug, Default)]
pub(super) struct DraftSchedule {
    verify_runs: usize,
    /// True if any generation so far verified draft tokens.
    had_verify_run: bool,
    /// Number of draft tokens whose predecessors in the same run were accepted, and number of accepted draft tokens.
    /// Earlier verify runs count with less weight.
    tried: f64,
    accepted: f64,
    draft_time: Mean,
    verify_time: Mean,
    plain_time: Mean,
    /// Number of decode steps in the last pause of drafting.
    pause_steps: usize,
    /// True if the draft model has not yet read tokens that were generated without it.
    draft_is_behind: bool,
}

impl DraftSchedule {
    /// Starts a generation. Discards the acceptance statistics of earlier generations.
    pub(super) fn begin(&mut self) {
        (self.verify_runs, self.tried, self.accepted, self.pause_steps, self.draft_is_behind) =
            (0, 0.0, 0.0, 0, true);
    }

    /// Selects the next action: to draft and verify tokens, or to run plain steps. A verify run takes at most
    /// `max_draft` draft tokens; `max_draft` is at least 1.
    pub(super) fn next_action(&mut self, max_draft: usize) -> Action {
        if self.verify_runs < WARMUP_RUNS {
            return Action::Draft(WARMUP_DRAFT.min(max_draft));
        }
        let (Some(verify), Some(draft)) = (self.verify_time.0, self.draft_time.0) else {
            return Action::Draft(WARMUP_DRAFT.min(max_draft));
        };
        let Some(plain) = self.plain_time.0 else { return Action::Plain(PROBE_STEPS) };
        let rate = |n: usize| self.expected_tokens(n) / (verify + draft * n as f64);
        let best = (1..=max_draft).map(rate).fold(0.0, f64::max);
        let n = (1..=max_draft).find(|n| rate(*n) >= best * (1.0 - RATE_TOLERANCE)).unwrap_or(max_draft);
        if best * plain >= 1.0 {
            self.pause_steps = 0;
            return Action::Draft(n);
        }
        if self.draft_is_behind {
            return Action::Draft(n);
        }
        self.pause_steps = (self.pause_steps * 2).clamp(MIN_PAUSE, MAX_PAUSE);
        Action::Plain(self.pause_steps)
    }

    /// Returns the expected number of tokens that a verify run with `n` draft tokens yields. It assumes an acceptance
    /// rate one standard deviation above the measured rate, because a draft length that is no longer tried could not
    /// show an improvement.
    fn expected_tokens(&self, n: usize) -> f64 {
        let tried = self.tried.max(1.0);
        let seen = self.accepted / tried;
        let chance = (seen + (seen * (1.0 - seen) / tried).max(0.0).sqrt()).min(1.0);
        (0..n).fold(1.0, |tokens, _| 1.0 + chance * tokens)
    }

    /// Records a verify run: the numbers of proposed and accepted draft tokens, and the times of drafting and
    /// verifying.
    pub(super) fn record_verify(
        &mut self,
        (proposed, accepted): (usize, usize),
        draft_time: Duration,
        verify_time: Duration,
    ) {
        self.verify_runs += 1;
        self.tried = self.tried * DECAY + (accepted + usize::from(accepted < proposed)) as f64;
        self.accepted = self.accepted * DECAY + accepted as f64;
        // The first run may include one-time work of the driver.
        if std::mem::replace(&mut self.had_verify_run, true) {
            self.verify_time.add(verify_time, 1);
        }
        if !std::mem::take(&mut self.draft_is_behind) {
            self.draft_time.add(draft_time, proposed);
        }
    }

    /// Records plain steps.
    pub(super) fn record_plain(&mut self, steps: usize, time: Duration) {
        self.plain_time.add(time, steps);
        self.draft_is_behind = true;
    }
}

#[cfg(test)]
mod tests {
    use super::{Action, DraftSchedule, MAX_PAUSE, MIN_PAUSE, PROBE_STEPS, WARMUP_RUNS};
    use std::time::Duration;

    const MS: Duration = Duration::from_millis(1);

    /// Simulates `steps` actions that the schedule selects. Returns the number of draft tokens, the number of generated
    /// tokens, and the simulated time. In each verify run the first `good` draft tokens are accepted. A draft token
    /// takes `draft_ms` milliseconds, a verify run 2 ms and a plain step 1 ms.
    fn run(
        schedule: &mut DraftSchedule,
        steps: usize,
        good: usize,
        draft_ms: u32,
    ) -> (usize, usize, Duration) {
        let (mut drafted, mut tokens, mut time) = (0, 0, Duration::ZERO);
        for _ in 0..steps {
            match schedule.next_action(15) {
                Action::Draft(n) => {
                    let accepted = good.min(n);
                    schedule.record_verify((n, accepted), MS * draft_ms * n as u32, MS * 2);
                    (drafted, tokens, time) =
                        (drafted + n, tokens + accepted + 1, time + MS * (draft_ms * n as u32 + 2));
                }
                Action::Plain(n) => {
                    schedule.record_plain(n, MS * n as u32);
                    (tokens, time) = (tokens + n, time + MS * n as u32);
                }
            }
        }
        (drafted, tokens, time)
    }

    #[test]
    fn accepted_drafts_continue() {
        let mut schedule = DraftSchedule::default();
        run(&mut schedule, 10, 15, 0);
        assert_eq!(schedule.next_action(15), Action::Draft(15));
        assert_eq!(schedule.next_action(4), Action::Draft(4));
        // Drafts get shorter if one of four draft tokens is rejected.
        run(&mut schedule, 40, 3, 0);
        assert!(matches!(schedule.next_action(15), Action::Draft(4..15)), "{:?}", schedule.next_action(15));
        // A draft model that is as slow as plain steps gains nothing, even if all its tokens are accepted.
        let (drafted, tokens, _) = run(&mut DraftSchedule::default(), 16, 15, 1);
        assert!(drafted < tokens / 4, "{drafted} {tokens}");
    }

    #[test]
    fn rejected_drafts_pause() {
        let mut schedule = DraftSchedule::default();
        run(&mut schedule, WARMUP_RUNS, 0, 1);
        assert_eq!(schedule.next_action(15), Action::Plain(PROBE_STEPS));
        schedule.record_plain(PROBE_STEPS, MS * 8);
        let (drafted, tokens, time) = run(&mut schedule, 20, 0, 1);
        assert!(drafted < 20 && time < MS * (tokens as u32 * 21 / 20), "{drafted} {tokens} {time:?}");
        assert!(matches!(schedule.next_action(15), Action::Plain(MAX_PAUSE) | Action::Draft(1)));
        // Drafting resumes once draft tokens are accepted again.
        run(&mut schedule, 20, 15, 0);
        assert!(matches!(schedule.next_action(15), Action::Draft(_)));
        let mut pauses = Vec::new();
        let mut fresh = DraftSchedule::default();
        for _ in 0..16 {
            match fresh.next_action(15) {
                Action::Plain(n) => {
                    pauses.push(n);
                    fresh.record_plain(n, MS * n as u32);
                }
                Action::Draft(n) => fresh.record_verify((n, 0), MS * n as u32, MS * 2),
            }
        }
        assert_eq!(pauses[..4], [PROBE_STEPS, MIN_PAUSE, 2 * MIN_PAUSE, 4 * MIN_PAUSE]);
    }
}
