//! How many guesses are worth making, from how many were right and from how long guessing, checking and plain steps take.
//!
//! Of n guesses that are right with chance a each, as long as those before them are, a run that checks them gives
//! `1 + a + .. + a^n` tokens (Leviathan, Kalman and Matias 2023, "Fast Inference from Transformers via Speculative
//! Decoding", equation 1) and costs the run and n guesses. Where no n gives more tokens in a time than steps without
//! guesses do, there are none for a while; each such pause is twice as long as the one before.

use std::time::Duration;

/// Runs that check guesses before anything is known, and guesses of each.
const FIRST_RUNS: usize = 3;
const FIRST_GUESSES: usize = 4;
/// Steps without guesses that show how long they take.
const PROBE: usize = 8;
/// Steps of the shortest pause and of the longest.
const SHORTEST: usize = 32;
const LONGEST: usize = 256;
/// What counts of earlier runs at each further one.
const KEPT: f64 = 0.9;
/// Fewer guesses are made where that loses no more than this part.
const SPARED: f64 = 0.05;

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Check at most so many guesses.
    Guess(usize),
    /// Go so many steps without guesses.
    Plain(usize),
}

/// A mean in seconds that forgets.
#[derive(Clone, Copy, Debug, Default)]
struct Mean(Option<f64>);

impl Mean {
    fn add(&mut self, time: Duration, n: usize) {
        let one = time.as_secs_f64() / n.max(1) as f64;
        self.0 = Some(self.0.map_or(one, |mean| mean + (one - mean) / 4.0));
    }
}

/// What is known of guesses so far: of those of a text, and of the time they take from text to text.
#[derive(Clone, Debug, Default)]
pub(super) struct Pace {
    runs: usize,
    /// Whether any text had such a run.
    began: bool,
    /// Guesses whose predecessors were right, and those of them that were right themselves.
    tried: f64,
    right: f64,
    guess: Mean,
    check: Mean,
    plain: Mean,
    /// Steps of the last pause.
    pause: usize,
    /// Whether the draft has yet to read what was added without it.
    resumes: bool,
}

impl Pace {
    /// Notes that a text begins, or goes on behind something new: that guesses were right says nothing of this one.
    pub(super) fn begin(&mut self) {
        (self.runs, self.tried, self.right, self.pause, self.resumes) = (0, 0.0, 0.0, 0, true);
    }

    /// What to do next, where a run takes at most so many guesses, at least one.
    pub(super) fn next(&mut self, most: usize) -> Next {
        if self.runs < FIRST_RUNS {
            return Next::Guess(FIRST_GUESSES.min(most));
        }
        let (Some(check), Some(guess)) = (self.check.0, self.guess.0) else {
            return Next::Guess(FIRST_GUESSES.min(most));
        };
        let Some(plain) = self.plain.0 else { return Next::Plain(PROBE) };
        let rate = |n: usize| self.tokens(n) / (check + guess * n as f64);
        let best = (1..=most).map(rate).fold(0.0, f64::max);
        let n = (1..=most).find(|n| rate(*n) >= best * (1.0 - SPARED)).unwrap_or(most);
        if best * plain >= 1.0 {
            self.pause = 0;
            return Next::Guess(n);
        }
        if self.resumes {
            return Next::Guess(n);
        }
        self.pause = (self.pause * 2).clamp(SHORTEST, LONGEST);
        Next::Plain(self.pause)
    }

    /// Tokens that a run with so many guesses is hoped to give: with a chance that is a standard deviation above what was
    /// seen, since what is not tried any more is not seen to be better.
    fn tokens(&self, n: usize) -> f64 {
        let tried = self.tried.max(1.0);
        let seen = self.right / tried;
        let chance = (seen + (seen * (1.0 - seen) / tried).max(0.0).sqrt()).min(1.0);
        (0..n).fold(1.0, |tokens, _| 1.0 + chance * tokens)
    }

    /// Notes a run that checked some guesses, of which the first ones were right.
    pub(super) fn checked(&mut self, (made, right): (usize, usize), guessing: Duration, checking: Duration) {
        self.runs += 1;
        self.tried = self.tried * KEPT + (right + usize::from(right < made)) as f64;
        self.right = self.right * KEPT + right as f64;
        // The first run may wait for what a driver leaves until then.
        if std::mem::replace(&mut self.began, true) {
            self.check.add(checking, 1);
        }
        if !std::mem::take(&mut self.resumes) {
            self.guess.add(guessing, made);
        }
    }

    /// Notes steps without guesses.
    pub(super) fn plain(&mut self, steps: usize, time: Duration) {
        self.plain.add(time, steps);
        self.resumes = true;
    }
}

#[cfg(test)]
mod tests {
    use super::{FIRST_RUNS, LONGEST, Next, PROBE, Pace, SHORTEST};
    use std::time::Duration;

    const MS: Duration = Duration::from_millis(1);

    /// Of `steps` decisions, how many guesses there were, tokens and milliseconds; the first `good` guesses of each run are
    /// right, a guess takes `guess` milliseconds, a run 2 and a plain step 1.
    fn run(pace: &mut Pace, steps: usize, good: usize, guess: u32) -> (usize, usize, Duration) {
        let (mut made, mut tokens, mut time) = (0, 0, Duration::ZERO);
        for _ in 0..steps {
            match pace.next(15) {
                Next::Guess(n) => {
                    let right = good.min(n);
                    pace.checked((n, right), MS * guess * n as u32, MS * 2);
                    (made, tokens, time) = (made + n, tokens + right + 1, time + MS * (guess * n as u32 + 2));
                }
                Next::Plain(n) => {
                    pace.plain(n, MS * n as u32);
                    (tokens, time) = (tokens + n, time + MS * n as u32);
                }
            }
        }
        (made, tokens, time)
    }

    #[test]
    fn guesses_that_are_right_are_made() {
        let mut pace = Pace::default();
        run(&mut pace, 10, 15, 0);
        assert_eq!(pace.next(15), Next::Guess(15));
        assert_eq!(pace.next(4), Next::Guess(4));
        // Where one of four is wrong there are fewer.
        run(&mut pace, 40, 3, 0);
        assert!(matches!(pace.next(15), Next::Guess(4..15)), "{:?}", pace.next(15));
        // As many as the draft makes in the time of a plain step gain nothing, though all are right.
        let (made, tokens, _) = run(&mut Pace::default(), 16, 15, 1);
        assert!(made < tokens / 4, "{made} {tokens}");
    }

    #[test]
    fn guesses_that_do_not_pay_are_rare() {
        let mut pace = Pace::default();
        run(&mut pace, FIRST_RUNS, 0, 1);
        assert_eq!(pace.next(15), Next::Plain(PROBE));
        pace.plain(PROBE, MS * 8);
        let (made, tokens, time) = run(&mut pace, 20, 0, 1);
        assert!(made < 20 && time < MS * (tokens as u32 * 21 / 20), "{made} {tokens} {time:?}");
        assert!(matches!(pace.next(15), Next::Plain(LONGEST) | Next::Guess(1)));
        // They come back where they are right again.
        run(&mut pace, 20, 15, 0);
        assert!(matches!(pace.next(15), Next::Guess(_)));
        let mut pauses = Vec::new();
        let mut fresh = Pace::default();
        for _ in 0..16 {
            match fresh.next(15) {
                Next::Plain(n) => {
                    pauses.push(n);
                    fresh.plain(n, MS * n as u32);
                }
                Next::Guess(n) => fresh.checked((n, 0), MS * n as u32, MS * 2),
            }
        }
        assert_eq!(pauses[..4], [PROBE, SHORTEST, 2 * SHORTEST, 4 * SHORTEST]);
    }
}
