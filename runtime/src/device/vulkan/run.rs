//! Command buffers of a run: input copies, dispatches, output copies.
//!
//! A device needs a few microseconds between command buffers. A run with the same copies as the previous run therefore
//! uses one command buffer. A run with other copies uses up to three: copies, the dispatches, which are already
//! recorded, and copies. Recording all dispatches again would take the host longer.

use super::context::Context;
use super::memory::Buffer;
use super::port_memory::PortMemory;
use super::record::{Commands, barrier};
use crate::device::backend::{DeviceRange, Launch};
use crate::error::Result;
use ash::vk;

/// Command buffers for a function's runs in one frame: the copies before and after the dispatches, and a whole run.
pub(super) struct Run {
    before: vk::CommandBuffer,
    after: vk::CommandBuffer,
    whole: vk::CommandBuffer,
    /// Conversation and copies of the last run that needed copies. `None` if that run copied inputs from other device
    /// memory, or if no run needed copies.
    last: Option<RecordedCopies>,
    /// True if the command buffer `whole` is recorded with the copies in `last`.
    recorded: bool,
}

/// Conversation and copies of a run. Two runs use the same command buffer only if these are equal.
struct RecordedCopies {
    conversation: usize,
    uploads: Vec<PortRange>,
    downloads: Vec<PortRange>,
}

/// A range of bytes of a port: the port's index, and the offset and size of the range.
type PortRange = (usize, u64, u64);

/// The parts of a function that a run needs.
pub(super) struct Runnable<'a> {
    pub(super) inputs: &'a [PortMemory],
    pub(super) outputs: &'a [PortMemory],
    /// Command buffer with the recorded dispatches of the function.
    pub(super) dispatches: vk::CommandBuffer,
    /// Closure that records the dispatches into another command buffer.
    pub(super) record: &'a dyn Fn(vk::CommandBuffer),
}

/// Command buffers of one run, in submission order.
#[derive(Default)]
pub(super) struct Submitted {
    buffers: [vk::CommandBuffer; 3],
    n: usize,
}

impl Run {
    pub(super) fn new(commands: &Commands) -> Result<Run> {
        let (before, after, whole) = (commands.allocate()?, commands.allocate()?, commands.allocate()?);
        Ok(Run { before, after, whole, last: None, recorded: false })
    }

    /// Records the copies that a run needs, and returns the command buffers of the run. The previous run of this frame
    /// must not be pending.
    pub(super) fn prepare(
        &mut self,
        context: &Context,
        commands: &Commands,
        launch: &Launch<'_>,
        function: &Runnable<'_>,
    ) -> Result<Submitted> {
        let &Launch { conversation, uploads, feeds, downloads, .. } = launch;
        let before = |command| {
            copy_staged(context, command, function.inputs, uploads, |host, device| (host, device));
            copy_feeds(context, command, function.inputs, feeds);
        };
        let after = |command| {
            copy_staged(context, command, function.outputs, downloads, |host, device| (device, host));
            barrier(context, command, barrier::TRANSFER_TO_HOST);
        };
        let copies_inputs = any_staged(function.inputs, uploads) || !feeds.is_empty();
        let copies_outputs = any_staged(function.outputs, downloads);
        let repeats = |last: &RecordedCopies| {
            last.conversation == conversation && last.uploads == uploads && last.downloads == downloads
        };
        let mut submitted = Submitted::default();
        if !copies_inputs && !copies_outputs {
            submitted.push(function.dispatches);
        } else if feeds.is_empty() && self.last.as_ref().is_some_and(repeats) {
            if !self.recorded {
                commands.record(self.whole, vk::CommandBufferUsageFlags::empty(), |command| {
                    before(command);
                    (function.record)(command);
                    if copies_outputs {
                        after(command);
                    }
                })?;
                self.recorded = true;
            }
            submitted.push(self.whole);
        } else {
            self.recorded = false;
            self.last = feeds.is_empty().then(|| RecordedCopies {
                conversation,
                uploads: uploads.to_vec(),
                downloads: downloads.to_vec(),
            });
            if copies_inputs {
                commands.record(self.before, vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT, before)?;
                submitted.push(self.before);
            }
            submitted.push(function.dispatches);
            if copies_outputs {
                commands.record(self.after, vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT, after)?;
                submitted.push(self.after);
            }
        }
        Ok(submitted)
    }
}

impl Submitted {
    fn push(&mut self, buffer: vk::CommandBuffer) {
        if let Some(place) = self.buffers.get_mut(self.n) {
            *place = buffer;
            self.n += 1;
        }
    }

    pub(super) fn as_slice(&self) -> &[vk::CommandBuffer] {
        self.buffers.get(..self.n).unwrap_or_default()
    }
}

/// Returns the port ranges that pass through a staging buffer: (device buffer, staging buffer, offset, size).
fn staged<'a>(
    ports: &'a [PortMemory],
    ranges: &'a [PortRange],
) -> impl Iterator<Item = (&'a Buffer, &'a Buffer, u64, u64)> {
    ranges.iter().filter(|(.., size)| *size > 0).filter_map(|&(port, offset, size)| {
        let PortMemory { device, host } = ports.get(port)?;
        Some((&**device, host.as_ref()?, offset, size))
    })
}

fn any_staged(ports: &[PortMemory], ranges: &[PortRange]) -> bool {
    staged(ports, ranges).next().is_some()
}

/// Records copies between device buffers and staging buffers. `order` maps (staging, device) to (source,
/// target).
fn copy_staged(
    context: &Context,
    command: vk::CommandBuffer,
    ports: &[PortMemory],
    ranges: &[PortRange],
    order: for<'a> fn(&'a Buffer, &'a Buffer) -> (&'a Buffer, &'a Buffer),
) {
    for (device, host, offset, size) in staged(ports, ranges) {
        let (from, to) = order(host, device);
        let copy = vk::BufferCopy { src_offset: offset, dst_offset: offset, size };
        // SAFETY: both buffers have the slot's size and contain the range; the command is being recorded.
        unsafe { context.device.cmd_copy_buffer(command, from.raw, to.raw, copy) };
    }
}

/// Records copies from other device memory to inputs.
fn copy_feeds(
    context: &Context,
    command: vk::CommandBuffer,
    inputs: &[PortMemory],
    feeds: &[(usize, u64, &DeviceRange)],
) {
    // Writes by runs and copies of this device are visible to copies when they end.
    let mut sources = feeds.iter().filter_map(|(.., from)| from.vulkan());
    if sources.any(|from| from.external) {
        barrier(context, command, barrier::OTHERS_TO_TRANSFER);
    }
    for (port, offset, from) in feeds {
        let (Some(port), Some(from)) = (inputs.get(*port), from.vulkan()) else { continue };
        let copy = vk::BufferCopy { src_offset: from.offset, dst_offset: *offset, size: from.size };
        // SAFETY: both ranges lie in their buffers, as was checked when they were paired. The frame keeps the
        // source alive until the run is over.
        unsafe { context.device.cmd_copy_buffer(command, from.buffer.raw, port.device.raw, copy) };
    }
}
