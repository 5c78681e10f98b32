//! Common interface of the backends: a selected device, an open device, a loaded variant, and device memory. If only
//! one backend is built, these types are the types of that backend.

use super::DeviceInfo;
#[cfg(feature = "vulkan")]
use super::vulkan;
#[cfg(feature = "wgpu")]
use super::webgpu;
use crate::error::Result;
use crate::format::{Dispatch, Expr, Function, Manifest, Variant};
use crate::progress::PipelineCounter;
#[cfg(unix)]
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Backend that drives the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// Vulkan. Runs bundles for Vulkan.
    #[cfg(feature = "vulkan")]
    #[default]
    Vulkan,
    /// Any API that wgpu supports. Runs bundles for WebGPU.
    #[cfg(feature = "wgpu")]
    #[cfg_attr(not(feature = "vulkan"), default)]
    Wgpu,
}

/// A selected device that is not open yet.
pub(crate) enum Candidate {
    #[cfg(feature = "vulkan")]
    Vulkan(vulkan::Candidate),
    #[cfg(feature = "wgpu")]
    Wgpu(webgpu::Candidate),
}

/// An open device.
#[derive(Clone)]
pub(crate) enum Context {
    #[cfg(feature = "vulkan")]
    Vulkan(Arc<vulkan::Context>),
    #[cfg(feature = "wgpu")]
    Wgpu(Arc<webgpu::Context>),
}

/// A variant loaded on a device. With wgpu it is a trait object: the concrete types would exceed the compiler's
/// default recursion limit when auto traits such as `Send` are checked.
#[cfg(not(feature = "wgpu"))]
pub(crate) type Replayer = vulkan::Replayer;
#[cfg(feature = "wgpu")]
pub(crate) type Replayer = Box<dyn Replay>;

/// A range of device memory, which stays allocated as long as a clone exists.
#[derive(Clone)]
pub(crate) enum DeviceRange {
    #[cfg(feature = "vulkan")]
    Vulkan(vulkan::BufferRange),
    #[cfg(feature = "wgpu")]
    Wgpu(webgpu::ErasedRange),
}

/// Counts of pipelines, memory allocations and allocated bytes of a device.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) pipelines: AtomicU32,
    pub(crate) allocations: AtomicU32,
    pub(crate) allocated: AtomicU64,
}

/// Arguments of [`load`].
#[derive(Clone, Copy)]
pub(crate) struct LoadRequest<'a> {
    pub(crate) manifest: &'a Manifest,
    pub(crate) variant: &'a Variant,
    pub(crate) file: &'a [u8],
    /// File of the driver's pipeline cache, and a key that identifies the bundle; Vulkan only.
    #[cfg_attr(not(feature = "vulkan"), expect(dead_code))]
    pub(crate) cache: (Option<&'a Path>, &'a [u8]),
    /// Number of frames.
    pub(crate) frames: usize,
    /// Number of conversations.
    pub(crate) conversations: usize,
    /// Counter to step for every created pipeline.
    pub(crate) progress: &'a PipelineCounter<'a>,
}

/// A run to submit: the function, its frame, and the copies before and after the dispatches. The function with index `first`
/// owns the ports. The function with index `index` is executed; `described` is its description in the bundle. `uploads` and
/// `downloads` are (port, offset, size) of ports of `first`.
pub(crate) struct Launch<'a> {
    #[cfg_attr(not(feature = "vulkan"), expect(dead_code))]
    pub(crate) described: &'a Function,
    pub(crate) frame: usize,
    pub(crate) conversation: usize,
    pub(crate) first: usize,
    pub(crate) index: usize,
    pub(crate) uploads: &'a [(usize, u64, u64)],
    /// Inputs copied from other device memory: (port, offset, source).
    pub(crate) feeds: &'a [(usize, u64, &'a DeviceRange)],
    pub(crate) downloads: &'a [(usize, u64, u64)],
}

/// Returns the grid of a dispatch if it is constant.
pub(crate) fn constant_grid(dispatch: &Dispatch) -> Option<[u32; 3]> {
    let [x, y, z] = &dispatch.grid;
    let size = |expr: &Expr| expr.as_constant().and_then(|size| u32::try_from(size).ok());
    Some([size(x)?, size(y)?, size(z)?])
}

impl Counts {
    /// Counts an allocation.
    pub(crate) fn count_allocation(&self, bytes: u64) {
        self.allocations.fetch_add(1, Ordering::Relaxed);
        self.allocated.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Candidate {
    pub(crate) fn select(backend: Backend, wanted: Option<&str>) -> Result<Candidate> {
        match backend {
            #[cfg(feature = "vulkan")]
            Backend::Vulkan => vulkan::Candidate::select(wanted).map(Candidate::Vulkan),
            #[cfg(feature = "wgpu")]
            Backend::Wgpu => webgpu::Candidate::select(wanted).map(Candidate::Wgpu),
        }
    }

    pub(crate) fn info(&self) -> &DeviceInfo {
        match self {
            #[cfg(feature = "vulkan")]
            Candidate::Vulkan(candidate) => &candidate.info,
            #[cfg(feature = "wgpu")]
            Candidate::Wgpu(candidate) => &candidate.info,
        }
    }

    /// Opens the device for these variants. `always_stage` disables direct host access to device memory. The wgpu
    /// backend ignores this flag, because wgpu manages staging itself.
    #[cfg_attr(not(feature = "vulkan"), expect(unused_variables))]
    pub(crate) fn open(self, variants: &[&Variant], always_stage: bool) -> Result<Context> {
        match self {
            #[cfg(feature = "vulkan")]
            Candidate::Vulkan(candidate) => candidate.open(variants, always_stage).map(Context::Vulkan),
            #[cfg(feature = "wgpu")]
            Candidate::Wgpu(candidate) => candidate.open(variants).map(Context::Wgpu),
        }
    }
}

/// Loads a variant onto an open device.
pub(crate) fn load(context: &Context, source: &LoadRequest<'_>) -> Result<Replayer> {
    match context {
        #[cfg(not(feature = "wgpu"))]
        Context::Vulkan(context) => vulkan::Replayer::load(context, source),
        #[cfg(all(feature = "vulkan", feature = "wgpu"))]
        Context::Vulkan(context) => Ok(Box::new(vulkan::Replayer::load(context, source)?)),
        #[cfg(feature = "wgpu")]
        Context::Wgpu(context) => Ok(Box::new(webgpu::Replayer::load(context, source)?)),
    }
}

/// Operations on a loaded variant. Functions, inputs, outputs and states are addressed by index. Only the session knows
/// names, types, shapes and symbols.
pub(crate) trait Replay: Send + Sync {
    fn info(&self) -> &DeviceInfo;

    fn counts(&self) -> &Counts;

    /// Returns the memory of an input that the host writes the input's array to. The frame must not be in flight.
    fn input(&mut self, frame: usize, function: usize, index: usize) -> Option<&mut [u8]>;

    /// Copies the bytes of an input, given as (function, index), from one frame to another. `place` is the (offset,
    /// size) of the bytes.
    fn copy_input(&mut self, frames: (usize, usize), input: (usize, usize), place: (u64, u64));

    /// Returns the memory of an output that the host reads the output's array from, after a run that downloaded the
    /// output.
    fn output(&self, frame: usize, function: usize, index: usize) -> Option<&[u8]>;

    /// Returns the device memory of an output. `place` is the (offset, size) of the array in the output's slot.
    fn device_output(
        &self,
        frame: usize,
        function: usize,
        index: usize,
        place: (u64, u64),
    ) -> Option<DeviceRange>;

    /// Copies between two ranges of device memory after all submitted runs, and waits for the copy. Both ranges belong
    /// to this device.
    fn copy(&mut self, from: &DeviceRange, to: &DeviceRange) -> Result<()>;

    /// True if the range belongs to this device context.
    fn owns(&self, range: &DeviceRange) -> bool;

    /// Returns the memory of the params slot, and of the grids stored after it: three words for each dispatch without a
    /// constant grid.
    fn params(&mut self, frame: usize, function: usize) -> Option<(&mut [u8], &mut [u8])>;

    /// Submits a run, which uploads inputs, runs the function and downloads outputs. The frame must not be in flight
    /// before this call, and is in flight after it.
    fn submit(&mut self, launch: &Launch<'_>) -> Result<()>;

    /// Waits for the run of a frame if it is in flight, and makes its outputs visible to the host.
    fn wait(&mut self, frame: usize) -> Result<()>;

    /// True if the frame is in flight.
    fn pending(&self, frame: usize) -> bool;

    /// Runs a function once with a timestamp after every dispatch. Returns the timestamps in nanoseconds since the
    /// start of the run. The first call for a function takes longer, because it prepares the measurement.
    fn replay_timed(
        &mut self,
        frame: usize,
        conversation: usize,
        index: usize,
        described: &Function,
    ) -> Result<Vec<f64>>;

    /// Sets the states of a conversation to zero.
    fn reset_states(&mut self, conversation: usize) -> Result<()>;

    /// Reads part of a state, given as (conversation, index, offset). The range must lie inside the state.
    fn read_state(&mut self, place: (usize, usize, u64), to: &mut [u8]) -> Result<()>;

    /// Writes part of a state, given as (conversation, index, offset). The range must lie inside the state.
    fn write_state(&mut self, place: (usize, usize, u64), from: &[u8]) -> Result<()>;

    /// Allocates device memory for export to other APIs, and returns the memory with its file descriptor.
    #[cfg(unix)]
    fn export(&self, size: u64) -> Result<(DeviceRange, OwnedFd)>;

    /// Imports device memory of another API or process by a file descriptor.
    #[cfg(unix)]
    fn import(&self, size: u64, allocation: Option<u64>, descriptor: OwnedFd) -> Result<DeviceRange>;
}

#[cfg(feature = "vulkan")]
impl DeviceRange {
    /// Returns the range of Vulkan memory, or `None` if the range is in wgpu memory.
    pub(crate) fn vulkan(&self) -> Option<&vulkan::BufferRange> {
        match self {
            DeviceRange::Vulkan(range) => Some(range),
            #[cfg(feature = "wgpu")]
            DeviceRange::Wgpu(_) => None,
        }
    }
}

#[cfg(feature = "wgpu")]
impl DeviceRange {
    /// Returns the range of wgpu memory, or `None` if the range is in Vulkan memory.
    pub(crate) fn wgpu(&self) -> Option<&webgpu::ErasedRange> {
        match self {
            #[cfg(feature = "vulkan")]
            DeviceRange::Vulkan(_) => None,
            DeviceRange::Wgpu(range) => Some(range),
        }
    }
}
