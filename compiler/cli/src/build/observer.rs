//! Progress of a build: bars on a terminal, lines elsewhere, or events as JSON.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::build::actions::Action;
use crate::build::execute::Observer;
use crate::build::outcome::{Event, Finished, Status};
use crate::failure::Result;
use crate::output::{bytes, time};

/// Writes one line of JSON for every event to standard output.
#[derive(Debug)]
pub(crate) struct Events;

/// Writes an event. A closed standard output is ignored here; the last event reports it.
pub(crate) fn event(event: &Event<'_>) -> std::io::Result<()> {
    let text = serde_json::to_string(event)?;
    writeln!(std::io::stdout().lock(), "{text}")
}

impl Observer for Events {
    fn started(&self, action: &Action) {
        let _ = event(&Event::Started { action: &action.name });
    }

    fn stage(&self, _: &Action, _: &str) {}

    fn finished(&self, action: &Action, outcome: &Result<Finished>) {
        let _ = event(&match outcome {
            Ok(done) => Event::Finished {
                action: &action.name,
                status: done.status,
                output: &action.output,
                key: &done.keys.key,
                bundle: &done.record.bundle,
                bytes: done.record.bytes,
                seconds: done.seconds,
                notes: &done.record.notes,
            },
            Err(failure) => {
                Event::Failed { action: &action.name, error: failure.lines(), help: failure.advice() }
            }
        });
    }
}

/// Shows a bar for all actions and a line for each running action on a terminal. Without a terminal, prints a line to
/// standard error for each action that was not up to date.
#[derive(Debug)]
pub(crate) struct Bars {
    bars: MultiProgress,
    all: ProgressBar,
    running: Mutex<BTreeMap<String, ProgressBar>>,
    is_terminal: bool,
}

impl Bars {
    pub(crate) fn start(actions: usize) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        let bars = MultiProgress::new();
        let all = match is_terminal {
            true => bars.add(ProgressBar::new(actions as u64)),
            false => ProgressBar::hidden(),
        };
        if let Ok(style) = ProgressStyle::with_template("{pos}/{len} bundles {wide_bar} {elapsed}") {
            all.set_style(style);
        }
        Self { bars, all, running: Mutex::default(), is_terminal }
    }

    fn line(&self, text: &str) {
        if self.is_terminal {
            let _ = self.bars.println(text);
        } else {
            let _ = writeln!(std::io::stderr().lock(), "{text}");
        }
    }
}

impl Observer for Bars {
    fn started(&self, action: &Action) {
        if !self.is_terminal {
            return;
        }
        let bar = self.bars.insert_before(&self.all, ProgressBar::new_spinner());
        bar.set_prefix(action.name.clone());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix}: {msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(100));
        self.running.lock().unwrap_or_else(PoisonError::into_inner).insert(action.name.clone(), bar);
    }

    fn stage(&self, action: &Action, stage: &str) {
        if let Some(bar) = self.running.lock().unwrap_or_else(PoisonError::into_inner).get(&action.name) {
            bar.set_message(stage.to_owned());
        }
    }

    fn finished(&self, action: &Action, outcome: &Result<Finished>) {
        let bar = self.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&action.name);
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
        self.all.inc(1);
        match outcome {
            Ok(done) if done.status == Status::UpToDate => {}
            Ok(done) => self.line(&format!(
                "{:>10} {} ({}) in {}",
                done.status.text(),
                action.name,
                bytes(done.record.bytes),
                time(Duration::from_secs_f64(done.seconds))
            )),
            Err(failure) => self.line(&format!("{:>10} {}: {}", "failed", action.name, failure.text())),
        }
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        self.all.finish_and_clear();
    }
}
