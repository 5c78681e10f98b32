//! An open device and its errors. wgpu reports errors asynchronously; they are kept until a call of [`Context::check`].

use super::adapter;
use crate::device::DeviceInfo;
use crate::device::backend::Counts;
use crate::error::{Error, Result};
use crate::format::{Feature, Variant};
use std::sync::{Arc, Mutex, PoisonError};
use wgpu::{Adapter, Device, DeviceDescriptor, DeviceLostReason, Features, PollType, Queue, SubmissionIndex};

/// A selected adapter that is not open yet. The enabled features depend on the variants to load.
pub(crate) struct Candidate {
    adapter: Adapter,
    pub(crate) info: DeviceInfo,
}

/// An open device. Every object that is created on the device keeps it alive through an `Arc`.
pub(crate) struct Context {
    pub(super) device: Device,
    pub(super) queue: Queue,
    pub(crate) info: DeviceInfo,
    pub(crate) counts: Counts,
    errors: Arc<Mutex<PendingErrors>>,
}

/// Errors of wgpu that were not reported to a caller yet.
#[derive(Default)]
struct PendingErrors {
    error: Option<wgpu::Error>,
    lost: bool,
}

impl Candidate {
    pub(crate) fn select(wanted: Option<&str>) -> Result<Candidate> {
        let (adapter, info) = adapter::select_adapter(wanted)?;
        Ok(Candidate { adapter, info })
    }

    /// Opens the device with the features that the variants require, and with all limits of the adapter.
    pub(crate) fn open(self, variants: &[&Variant]) -> Result<Arc<Context>> {
        let Candidate { adapter, info } = self;
        let needs = |feature| variants.iter().any(|v| v.requirements.features.contains(feature));
        let required_features = match needs(Feature::ShaderF16) {
            true => Features::SHADER_F16,
            false => Features::empty(),
        };
        let described = DeviceDescriptor {
            required_features,
            required_limits: adapter.limits(),
            ..DeviceDescriptor::default()
        };
        let opened = adapter::block_on(adapter.request_device(&described));
        let (device, queue) =
            opened.map_err(|error| Error::Driver { call: "request_device", code: error.to_string() })?;
        let errors = Arc::new(Mutex::new(PendingErrors::default()));
        let callback_errors = errors.clone();
        device.on_uncaptured_error(Arc::new(move |error| {
            // Errors after the first one are mostly its consequences.
            lock(&callback_errors).error.get_or_insert(error);
        }));
        let callback_errors = errors.clone();
        device.set_device_lost_callback(move |reason, _| {
            lock(&callback_errors).lost |= reason != DeviceLostReason::Destroyed;
        });
        Ok(Arc::new(Context { device, queue, info, counts: Counts::default(), errors }))
    }
}

fn lock(errors: &Mutex<PendingErrors>) -> std::sync::MutexGuard<'_, PendingErrors> {
    errors.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Context {
    /// Returns the error that wgpu reported since the last call of this function. `size` is the requested byte size if
    /// memory was allocated.
    pub(super) fn check(&self, during: &'static str, size: u64) -> Result<()> {
        let mut errors = lock(&self.errors);
        if errors.lost {
            return Err(Error::DeviceLost { during });
        }
        match errors.error.take() {
            None => Ok(()),
            Some(wgpu::Error::OutOfMemory { .. }) => {
                Err(Error::OutOfMemory { what: during.to_owned(), size })
            }
            Some(wgpu::Error::Validation { description, .. } | wgpu::Error::Internal { description, .. }) => {
                Err(Error::Driver { call: during, code: description })
            }
        }
    }

    /// Waits for a submission; `None` means all submissions.
    pub(super) fn wait(&self, submission: Option<SubmissionIndex>) -> Result<()> {
        let poll = PollType::Wait { submission_index: submission, timeout: None };
        let polled = self.device.poll(poll);
        self.check("waiting", 0)?;
        polled.map(|_| ()).map_err(|error| Error::Driver { call: "poll", code: error.to_string() })
    }
}
