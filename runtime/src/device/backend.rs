//! The backends under one name each for what a session needs: a device that may be opened, one that is open, a loaded
//! variant on it, and memory of it. Where one backend is built, all of this is that backend.

use super::DeviceInfo;
#[cfg(feature = "vulkan")]
use super::vulkan;
#[cfg(feature = "wgpu")]
use super::webgpu;
use crate::error::Result;
use crate::format::{Dispatch, Expr, Function, Manifest, Variant};
#[cfg(unix)]
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What drives the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// Vulkan, directly: bundles for Vulkan.
    #[cfg(feature = "vulkan")]
    #[default]
    Vulkan,
    /// Whatever interface wgpu reaches: bundles for WebGPU.
    #[cfg(feature = "wgpu")]
    #[cfg_attr(not(feature = "vulkan"), default)]
    Wgpu,
}

/// A chosen device that is not open yet.
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

/// A variant on its device. Where several backends may be asked for, which one it is stays hidden, and so do wgpu's types:
/// whether they may go to another thread takes a compiler more steps than it is allowed by default.
#[cfg(not(feature = "wgpu"))]
pub(crate) type Replayer = vulkan::Replayer;
#[cfg(feature = "wgpu")]
pub(crate) type Replayer = Box<dyn Replay>;

/// Bytes of the device, which stay as long as anyone holds them.
#[derive(Clone)]
pub(crate) enum Range {
    #[cfg(feature = "vulkan")]
    Vulkan(vulkan::Range),
    #[cfg(feature = "wgpu")]
    Wgpu(webgpu::Range),
}

/// How many of each were created on a device so far.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) pipelines: AtomicU32,
    pub(crate) allocations: AtomicU32,
    pub(crate) allocated: AtomicU64,
}

/// What [`load`] needs to know.
#[derive(Clone, Copy)]
pub(crate) struct Loading<'a> {
    pub(crate) manifest: &'a Manifest,
    pub(crate) variant: &'a Variant,
    pub(crate) file: &'a [u8],
    /// Where the driver's compiled pipelines are kept, and what identifies the bundle there; for Vulkan.
    #[cfg_attr(not(feature = "vulkan"), expect(dead_code))]
    pub(crate) cache: (Option<&'a Path>, &'a [u8]),
    /// How many runs may be in flight at once.
    pub(crate) frames: usize,
    /// How many sets of states there are.
    pub(crate) conversations: usize,
}

/// A run: which function in which frame, and what is copied before and after it.
/// `uploads` and `downloads` are (port, offset, bytes) of the function `first`; the one that runs is `index`, as `described`.
pub(crate) struct Launch<'a> {
    #[cfg_attr(not(feature = "vulkan"), expect(dead_code))]
    pub(crate) described: &'a Function,
    pub(crate) frame: usize,
    pub(crate) conversation: usize,
    pub(crate) first: usize,
    pub(crate) index: usize,
    pub(crate) uploads: &'a [(usize, u64, u64)],
    /// Inputs that come from other memory of the device: (port, offset, from where).
    pub(crate) feeds: &'a [(usize, u64, &'a Range)],
    pub(crate) downloads: &'a [(usize, u64, u64)],
}

/// Whether a dispatch's grid is known when it is recorded.
pub(crate) fn constant_grid(dispatch: &Dispatch) -> Option<[u32; 3]> {
    let [x, y, z] = &dispatch.grid;
    let size = |expr: &Expr| expr.as_constant().and_then(|size| u32::try_from(size).ok());
    Some([size(x)?, size(y)?, size(z)?])
}

impl Counts {
    /// Notes an allocation of so many bytes.
    pub(crate) fn add(&self, bytes: u64) {
        self.allocations.fetch_add(1, Ordering::Relaxed);
        self.allocated.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Candidate {
    pub(crate) fn choose(backend: Backend, wanted: Option<&str>) -> Result<Candidate> {
        match backend {
            #[cfg(feature = "vulkan")]
            Backend::Vulkan => vulkan::Candidate::choose(wanted).map(Candidate::Vulkan),
            #[cfg(feature = "wgpu")]
            Backend::Wgpu => webgpu::Candidate::choose(wanted).map(Candidate::Wgpu),
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

    /// Opens the device for these variants. `always_stage`: as if the host could not reach its memory; what wgpu copies, and
    /// through what, is its own business.
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
pub(crate) fn load(context: &Context, source: &Loading<'_>) -> Result<Replayer> {
    match context {
        #[cfg(not(feature = "wgpu"))]
        Context::Vulkan(context) => vulkan::Replayer::load(context, source),
        #[cfg(all(feature = "vulkan", feature = "wgpu"))]
        Context::Vulkan(context) => Ok(Box::new(vulkan::Replayer::load(context, source)?)),
        #[cfg(feature = "wgpu")]
        Context::Wgpu(context) => Ok(Box::new(webgpu::Replayer::load(context, source)?)),
    }
}

/// What a backend does with a loaded variant. Everything is addressed by index: names, types, shapes and symbols are the
/// session's business.
pub(crate) trait Replay: Send + Sync {
    fn info(&self) -> &DeviceInfo;

    fn counts(&self) -> &Counts;

    /// The memory that an input's array is written to; the frame must not be in flight.
    fn input(&mut self, frame: usize, function: usize, index: usize) -> Option<&mut [u8]>;

    /// Gives an input, as (function, index), of one frame what another one has, as (offset, size).
    fn carry(&mut self, frames: (usize, usize), input: (usize, usize), place: (u64, u64));

    /// The memory that an output's array is read from, after a run that downloaded it.
    fn output(&self, frame: usize, function: usize, index: usize) -> Option<&[u8]>;

    /// The memory of an output on the device, of which `place` is (offset, size).
    fn device_output(&self, frame: usize, function: usize, index: usize, place: (u64, u64)) -> Option<Range>;

    /// Copies on the device, behind all runs that were submitted, and waits. Both are ranges of this device.
    fn copy(&mut self, from: &Range, to: &Range) -> Result<()>;

    /// Whether bytes belong to this device as it was opened for others.
    fn has(&self, range: &Range) -> bool;

    /// The params slot, and the grids behind it: three words for each dispatch without a constant grid.
    fn params(&mut self, frame: usize, function: usize) -> Option<(&mut [u8], &mut [u8])>;

    /// Copies inputs up (those that need it), runs, and copies outputs down (those that need it). The frame must not be
    /// in flight; it is afterwards.
    fn submit(&mut self, launch: &Launch<'_>) -> Result<()>;

    /// Waits for the run of a frame, if there is one in flight, and makes its outputs visible to the host.
    fn wait(&mut self, frame: usize) -> Result<()>;

    /// Whether the host would have to wait for a frame's outputs.
    fn pending(&self, frame: usize) -> bool;

    /// Runs once with a timestamp behind every dispatch, and returns nanoseconds since the first. The first call makes what
    /// that needs.
    fn replay_timed(
        &mut self,
        frame: usize,
        conversation: usize,
        index: usize,
        described: &Function,
    ) -> Result<Vec<f64>>;

    /// Sets the states of a conversation to zero.
    fn reset_states(&mut self, conversation: usize) -> Result<()>;

    /// Reads a state, given as (conversation, index, offset); the bytes must lie in it.
    fn read_state(&mut self, place: (usize, usize, u64), to: &mut [u8]) -> Result<()>;

    /// Writes a state, given as (conversation, index, offset); the bytes must lie in it.
    fn write_state(&mut self, place: (usize, usize, u64), from: &[u8]) -> Result<()>;

    /// New memory, and a descriptor that stands for it.
    #[cfg(unix)]
    fn export(&self, size: u64) -> Result<(Range, OwnedFd)>;

    /// Memory that a descriptor stands for.
    #[cfg(unix)]
    fn import(&self, size: u64, allocation: Option<u64>, descriptor: OwnedFd) -> Result<Range>;
}

#[cfg(feature = "vulkan")]
impl Range {
    /// The memory, where it is Vulkan's.
    pub(crate) fn vulkan(&self) -> Option<&vulkan::Range> {
        match self {
            Range::Vulkan(range) => Some(range),
            #[cfg(feature = "wgpu")]
            Range::Wgpu(_) => None,
        }
    }
}

#[cfg(feature = "wgpu")]
impl Range {
    /// The memory, where it is wgpu's.
    pub(crate) fn wgpu(&self) -> Option<&webgpu::Range> {
        match self {
            #[cfg(feature = "vulkan")]
            Range::Vulkan(_) => None,
            Range::Wgpu(range) => Some(range),
        }
    }
}
