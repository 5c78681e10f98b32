//! Progress of loading: the number of pipelines that the driver has created.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Progress of loading. The driver compiles a shader for each pipeline, which takes most of the time of a first start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadProgress {
    /// Number of pipelines that are created.
    pub pipelines: u32,
    /// Number of pipelines to create: of all bundles that are loaded together.
    pub total: u32,
}

/// Callback for the progress of loading.
#[derive(Clone)]
pub struct OnProgress(Arc<dyn Fn(LoadProgress) + Send + Sync>);

impl OnProgress {
    /// Wraps a callback. Several threads call it, one at a time, with numbers of pipelines from 0 to the total. The
    /// callback must not panic.
    pub fn new(callback: impl Fn(LoadProgress) + Send + Sync + 'static) -> OnProgress {
        OnProgress(Arc::new(callback))
    }
}

impl fmt::Debug for OnProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnProgress")
    }
}

/// Counter of the pipelines of a load.
pub(crate) struct PipelineCounter<'a> {
    callback: Option<&'a OnProgress>,
    created: Mutex<u32>,
    total: u32,
}

impl<'a> PipelineCounter<'a> {
    /// Creates a counter and reports that no pipeline is created yet.
    pub(crate) fn new(callback: Option<&'a OnProgress>, total: usize) -> PipelineCounter<'a> {
        let counter = PipelineCounter {
            callback,
            created: Mutex::new(0),
            total: u32::try_from(total).unwrap_or(u32::MAX),
        };
        counter.add(0);
        counter
    }

    /// Counts one more pipeline and reports the new number.
    pub(crate) fn step(&self) {
        self.add(1);
    }

    fn add(&self, pipelines: u32) {
        let Some(OnProgress(callback)) = self.callback else { return };
        // The lock is held during the callback, so that calls are in order.
        let mut created = self.created.lock().unwrap_or_else(PoisonError::into_inner);
        *created += pipelines;
        callback(LoadProgress { pipelines: *created, total: self.total });
    }
}
