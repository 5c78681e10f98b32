//! An open device, and what went wrong on it. wgpu reports errors beside its calls; they are kept until somebody asks.

use super::adapter;
use crate::device::DeviceInfo;
use crate::device::backend::Counts;
use crate::error::{Error, Result};
use crate::format::{Feature, Variant};
use std::sync::{Arc, Mutex, PoisonError};
use wgpu::{Adapter, Device, DeviceDescriptor, DeviceLostReason, Features, PollType, Queue, SubmissionIndex};

/// A chosen adapter that is not open yet, since what to enable depends on the variant it is chosen for.
pub(crate) struct Candidate {
    adapter: Adapter,
    pub(crate) info: DeviceInfo,
}

/// A device opened for some variants. All that is made from it holds it by `Arc`.
pub(crate) struct Context {
    pub(super) device: Device,
    pub(super) queue: Queue,
    pub(crate) info: DeviceInfo,
    pub(crate) counts: Counts,
    trouble: Arc<Mutex<Trouble>>,
}

/// What nobody has been told yet.
#[derive(Default)]
struct Trouble {
    error: Option<wgpu::Error>,
    lost: bool,
}

impl Candidate {
    pub(crate) fn choose(wanted: Option<&str>) -> Result<Candidate> {
        let (adapter, info) = adapter::choose(wanted)?;
        Ok(Candidate { adapter, info })
    }

    /// Opens the device with the features that the variants require, and with all that the adapter has of limits.
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
        let opened = adapter::wait(adapter.request_device(&described));
        let (device, queue) =
            opened.map_err(|error| Error::Driver { call: "request_device", code: error.to_string() })?;
        let trouble = Arc::new(Mutex::new(Trouble::default()));
        let kept = trouble.clone();
        device.on_uncaptured_error(Arc::new(move |error| {
            // What follows the first error is mostly its consequence.
            lock(&kept).error.get_or_insert(error);
        }));
        let kept = trouble.clone();
        device.set_device_lost_callback(move |reason, _| {
            lock(&kept).lost |= reason != DeviceLostReason::Destroyed;
        });
        Ok(Arc::new(Context { device, queue, info, counts: Counts::default(), trouble }))
    }
}

fn lock(trouble: &Mutex<Trouble>) -> std::sync::MutexGuard<'_, Trouble> {
    trouble.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Context {
    /// What went wrong since the last call; `size` is what was asked for, where that is memory.
    pub(super) fn check(&self, during: &'static str, size: u64) -> Result<()> {
        let mut trouble = lock(&self.trouble);
        if trouble.lost {
            return Err(Error::DeviceLost { during });
        }
        match trouble.error.take() {
            None => Ok(()),
            Some(wgpu::Error::OutOfMemory { .. }) => {
                Err(Error::OutOfMemory { what: during.to_owned(), size })
            }
            Some(wgpu::Error::Validation { description, .. } | wgpu::Error::Internal { description, .. }) => {
                Err(Error::Driver { call: during, code: description })
            }
        }
    }

    /// Waits for a submission; without one for all.
    pub(super) fn wait(&self, submission: Option<SubmissionIndex>) -> Result<()> {
        let poll = PollType::Wait { submission_index: submission, timeout: None };
        let polled = self.device.poll(poll);
        self.check("waiting", 0)?;
        polled.map(|_| ()).map_err(|error| Error::Driver { call: "poll", code: error.to_string() })
    }
}
