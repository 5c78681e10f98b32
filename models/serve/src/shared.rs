//! State that the thread of a model shares with the requests.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::metrics::ModelMetrics;
use crate::queue::Queue;
use crate::settings::Settings;

/// State that the thread of a model shares with the requests.
pub(crate) struct Shared {
    pub(crate) queue: Arc<Queue>,
    pub(crate) metrics: ModelMetrics,
    pub(crate) client_timeout: Duration,
    failed: OnceLock<String>,
    stopping: AtomicBool,
}

impl Shared {
    /// Creates the state of a model with this number of slots.
    pub(crate) fn new(slots: usize, settings: &Settings) -> Arc<Self> {
        Arc::new(Self {
            queue: Queue::new(slots, settings.queue),
            metrics: ModelMetrics::default(),
            client_timeout: settings.client_timeout,
            failed: OnceLock::new(),
            stopping: AtomicBool::new(false),
        })
    }

    /// Marks the model as failed. The first reason stays.
    pub(crate) fn fail(&self, reason: String) {
        let _ = self.failed.set(reason);
    }

    /// True if the thread must cancel all requests, because the server ends.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Requests the thread to cancel all requests.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
    }

    /// Reason why the model cannot be used any more.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failed.get().map(String::as_str)
    }
}
