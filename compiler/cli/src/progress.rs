//! Progress line on standard error, shown only on a terminal.

use std::io::IsTerminal;
use std::time::Duration;

use drift_runtime::OnProgress;
use indicatif::{ProgressBar, ProgressStyle};

/// Progress line on a terminal. Dropping this object clears the line.
#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Starts a spinner with a message.
    pub(crate) fn start(what: &str) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::new_spinner();
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(100));
        Self(bar)
    }

    /// Starts a progress bar for `n` steps.
    pub(crate) fn steps(what: &str, n: usize) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::new(n as u64);
        if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len}") {
            bar.set_style(style);
        }
        bar.set_message(what.to_owned());
        Self(bar)
    }

    /// Returns a callback that shows how many shaders the driver has compiled. Without a terminal, there is no callback.
    pub(crate) fn on_progress(&self) -> Option<OnProgress> {
        if self.0.is_hidden() {
            return None;
        }
        let bar = self.0.clone();
        Some(OnProgress::new(move |loading| {
            bar.set_message(format!("compiling shaders {}/{}", loading.pipelines, loading.total));
        }))
    }

    /// Replaces the message.
    pub(crate) fn stage(&self, what: &str) {
        self.0.set_message(what.to_owned());
    }

    /// Prints a text above the progress bar.
    pub(crate) fn print(&self, text: &str) {
        self.0.println(text);
    }

    /// Advances the progress bar by one step.
    pub(crate) fn step(&self) {
        self.0.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
