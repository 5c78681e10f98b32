//! Bounded admission of requests to a model.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::http::StatusCode;

use crate::api_error::{ApiError, ApiResult};

/// Counter of the requests that a model admitted and has not finished.
#[derive(Debug)]
pub(crate) struct Queue {
    admitted: AtomicUsize,
    running: AtomicUsize,
    /// Number of requests sent to the thread of the model and not received by it.
    arrivals: AtomicUsize,
    slots: usize,
    waiting: usize,
}

/// Place of a request. Dropping it frees the place.
#[derive(Debug)]
pub(crate) struct Permit(Arc<Queue>);

/// Place of a request that runs. Dropping it frees the place.
#[derive(Debug)]
pub(crate) struct RunningPermit(Permit);

impl Queue {
    /// Creates a queue for a model that runs `slots` requests at once, with at most `waiting` further requests.
    pub(crate) fn new(slots: usize, waiting: usize) -> Arc<Self> {
        let zero = || AtomicUsize::new(0);
        Arc::new(Self { admitted: zero(), running: zero(), arrivals: zero(), slots, waiting })
    }

    /// Admits a request.
    ///
    /// # Errors
    /// If the queue is full.
    pub(crate) fn admit(self: &Arc<Self>) -> ApiResult<Permit> {
        let limit = self.slots.saturating_add(self.waiting);
        let more = |count: usize| (count < limit).then_some(count + 1);
        match self.admitted.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more) {
            Ok(_) => Ok(Permit(self.clone())),
            Err(_) => {
                let message = format!("{limit} requests are running or waiting; try again later");
                Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, message).code("queue_full"))
            }
        }
    }

    /// Number of requests that run at once.
    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    /// Number of requests that run.
    pub(crate) fn running(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }

    /// Number of admitted requests that do not run yet.
    pub(crate) fn waiting(&self) -> usize {
        self.admitted.load(Ordering::SeqCst).saturating_sub(self.running())
    }

    /// Counts a request that is sent to the thread of the model.
    pub(crate) fn sent(&self) {
        self.arrivals.fetch_add(1, Ordering::SeqCst);
    }

    /// Counts a request that the thread of the model received.
    pub(crate) fn received(&self) {
        self.arrivals.fetch_sub(1, Ordering::SeqCst);
    }

    /// True if the thread of the model has not received all requests.
    pub(crate) fn has_arrivals(&self) -> bool {
        self.arrivals.load(Ordering::SeqCst) > 0
    }
}

impl Permit {
    /// Counts the request as running.
    pub(crate) fn run(self) -> RunningPermit {
        self.0.running.fetch_add(1, Ordering::SeqCst);
        RunningPermit(self)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.admitted.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for RunningPermit {
    fn drop(&mut self) {
        self.0.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}
