//! Outcomes of actions, and their events for programs.

use serde::Serialize;

use crate::build::keys::Keys;
use crate::build::record::Record;
use crate::failure::Failure;

/// Origin of a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Status {
    /// The output folder had it.
    UpToDate,
    /// The local cache had it.
    Cached,
    /// The shared cache had it.
    Fetched,
    /// It was compiled.
    Built,
}

impl Status {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::UpToDate => "up to date",
            Self::Cached => "cached",
            Self::Fetched => "fetched",
            Self::Built => "built",
        }
    }
}

/// Finished action.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) status: Status,
    pub(crate) keys: Keys,
    pub(crate) record: Record,
    /// Wall time in seconds.
    pub(crate) seconds: f64,
}

/// Event of a build: one line of JSON.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(crate) enum Event<'a> {
    Started {
        action: &'a str,
    },
    Finished {
        action: &'a str,
        status: Status,
        output: &'a std::path::Path,
        key: &'a str,
        bundle: &'a str,
        bytes: u64,
        seconds: f64,
        notes: &'a [String],
    },
    Failed {
        action: &'a str,
        error: Vec<String>,
        help: Option<&'a str>,
    },
    Done(Totals),
}

/// Numbers of actions by outcome.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Totals {
    pub(crate) up_to_date: usize,
    pub(crate) cached: usize,
    pub(crate) fetched: usize,
    pub(crate) built: usize,
    pub(crate) failed: usize,
}

impl Totals {
    /// Counts outcomes.
    pub(crate) fn of<'a>(outcomes: impl IntoIterator<Item = &'a Result<Finished, Failure>>) -> Self {
        let mut totals = Self::default();
        for outcome in outcomes {
            *match outcome {
                Err(_) => &mut totals.failed,
                Ok(finished) => match finished.status {
                    Status::UpToDate => &mut totals.up_to_date,
                    Status::Cached => &mut totals.cached,
                    Status::Fetched => &mut totals.fetched,
                    Status::Built => &mut totals.built,
                },
            } += 1;
        }
        totals
    }
}

impl std::fmt::Display for Totals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts = [
            (self.built, Status::Built.text()),
            (self.fetched, Status::Fetched.text()),
            (self.cached, Status::Cached.text()),
            (self.up_to_date, Status::UpToDate.text()),
            (self.failed, "failed"),
        ];
        let parts: Vec<String> =
            parts.into_iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
        f.write_str(&parts.join(", "))
    }
}
