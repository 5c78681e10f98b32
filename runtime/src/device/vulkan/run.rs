//! What a run of a function submits: copies of inputs, its dispatches, copies of outputs.
//!
//! A device takes a few microseconds from one command buffer to the next. So a run that is as the one before it is one
//! command buffer. A run that differs takes up to three, of which the dispatches are recorded already: recording all of
//! them again would take the host longer than that.

use super::context::Context;
use super::frame::PortMemory;
use super::memory::Buffer;
use super::record::{Commands, barrier};
use crate::device::backend::{Launch, Range};
use crate::error::Result;
use ash::vk;

/// The command buffers of a function's runs, beside its dispatches.
pub(super) struct Run {
    before: vk::CommandBuffer,
    after: vk::CommandBuffer,
    whole: vk::CommandBuffer,
    /// The last run, unless it took anything from other memory of the device.
    last: Option<Copies>,
    /// Whether `whole` was recorded for runs like the last.
    recorded: bool,
}

/// What runs that are alike have in common.
struct Copies {
    conversation: usize,
    uploads: Vec<Part>,
    downloads: Vec<Part>,
}

/// Part of a port: its index, offset and bytes.
type Part = (usize, u64, u64);

/// A function as a run sees it.
pub(super) struct Runnable<'a> {
    pub(super) inputs: &'a [PortMemory],
    pub(super) outputs: &'a [PortMemory],
    /// The dispatches as they are recorded.
    pub(super) dispatches: vk::CommandBuffer,
    /// Records them into another command buffer.
    pub(super) record: &'a dyn Fn(vk::CommandBuffer),
}

/// Command buffers in the order in which they are submitted.
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

    /// Records what the run needs beyond what is recorded. The run before must not be pending.
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
        let copies_in = any_staged(function.inputs, uploads) || !feeds.is_empty();
        let copies_out = any_staged(function.outputs, downloads);
        let again = |last: &Copies| {
            last.conversation == conversation && last.uploads == uploads && last.downloads == downloads
        };
        let mut submitted = Submitted::default();
        if !copies_in && !copies_out {
            submitted.push(function.dispatches);
        } else if feeds.is_empty() && self.last.as_ref().is_some_and(again) {
            if !self.recorded {
                commands.record(self.whole, vk::CommandBufferUsageFlags::empty(), |command| {
                    before(command);
                    (function.record)(command);
                    if copies_out {
                        after(command);
                    }
                })?;
                self.recorded = true;
            }
            submitted.push(self.whole);
        } else {
            self.recorded = false;
            self.last = feeds.is_empty().then(|| Copies {
                conversation,
                uploads: uploads.to_vec(),
                downloads: downloads.to_vec(),
            });
            if copies_in {
                commands.record(self.before, vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT, before)?;
                submitted.push(self.before);
            }
            submitted.push(function.dispatches);
            if copies_out {
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

/// The parts that pass through a staging buffer: the device's buffer, the host's, offset and bytes.
fn staged<'a>(
    ports: &'a [PortMemory],
    parts: &'a [Part],
) -> impl Iterator<Item = (&'a Buffer, &'a Buffer, u64, u64)> {
    parts.iter().filter(|(.., size)| *size > 0).filter_map(|&(port, offset, size)| {
        let PortMemory { device, host } = ports.get(port)?;
        Some((&**device, host.as_ref()?, offset, size))
    })
}

fn any_staged(ports: &[PortMemory], parts: &[Part]) -> bool {
    staged(ports, parts).next().is_some()
}

/// Records copies between ports and their staging buffers, from the first to the second of what `order` makes of the host's
/// and the device's buffer.
fn copy_staged(
    context: &Context,
    command: vk::CommandBuffer,
    ports: &[PortMemory],
    parts: &[Part],
    order: for<'a> fn(&'a Buffer, &'a Buffer) -> (&'a Buffer, &'a Buffer),
) {
    for (device, host, offset, size) in staged(ports, parts) {
        let (from, to) = order(host, device);
        let copy = vk::BufferCopy { src_offset: offset, dst_offset: offset, size };
        // SAFETY: both buffers have the slot's size, in which the part was checked to lie; the command is being recorded.
        unsafe { context.device.cmd_copy_buffer(command, from.raw, to.raw, copy) };
    }
}

/// Records copies of inputs from elsewhere on the device.
fn copy_feeds(
    context: &Context,
    command: vk::CommandBuffer,
    inputs: &[PortMemory],
    feeds: &[(usize, u64, &Range)],
) {
    // What runs and copies on this device wrote is visible to copies when they end.
    let mut sources = feeds.iter().filter_map(|(.., from)| from.vulkan());
    if sources.any(|from| from.external) {
        barrier(context, command, barrier::OTHERS_TO_TRANSFER);
    }
    for (port, offset, from) in feeds {
        let (Some(port), Some(from)) = (inputs.get(*port), from.vulkan()) else { continue };
        let copy = vk::BufferCopy { src_offset: from.offset, dst_offset: *offset, size: from.size };
        // SAFETY: both ranges lie in their buffers, as was checked when they were paired; the frame keeps the source
        // until the run is over.
        unsafe { context.device.cmd_copy_buffer(command, from.buffer.raw, port.device.raw, copy) };
    }
}
