//! A loaded variant: its buffers, pipelines and recorded functions, and the submission of runs.
//!
//! Functions, inputs, outputs and states are addressed by index. Only the session knows names, types, shapes and
//! symbols.

use super::context::Context;
use super::frame::Frame;
use super::images::Image;
use super::memory::Buffer;
use super::pipelines::Pipelines;
use super::record::{Commands, barrier};
use super::states::States;
use crate::device::DeviceInfo;
use crate::device::backend::{Counts, DeviceRange, Launch, Replay};
use crate::error::Result;
use crate::format::Function;
use ash::vk;
#[cfg(unix)]
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A variant loaded on a device. Fields are dropped in order, so every object is declared before the objects that it
/// uses.
pub(crate) struct Replayer {
    pub(super) frames: Vec<Frame>,
    pub(super) pipelines: Pipelines,
    pub(super) commands: Commands,
    pub(super) _weights: Vec<Buffer>,
    pub(super) states: States,
    pub(super) _arenas: Vec<Buffer>,
    pub(super) _images: Vec<Image>,
    pub(crate) context: Arc<Context>,
}

impl Replayer {
    fn wait_all(&mut self) -> Result<()> {
        (0..self.frames.len()).try_for_each(|frame| self.wait(frame))
    }
}

impl Replay for Replayer {
    fn info(&self) -> &DeviceInfo {
        &self.context.info
    }

    fn counts(&self) -> &Counts {
        &self.context.counts
    }

    fn owns(&self, range: &DeviceRange) -> bool {
        range.vulkan().is_some_and(|range| range.belongs_to(&self.context))
    }

    fn input(&mut self, frame: usize, function: usize, index: usize) -> Option<&mut [u8]> {
        let function = self.frames.get_mut(frame)?.functions.get_mut(function)?;
        function.inputs.get_mut(index)?.bytes_mut()
    }

    fn copy_input(
        &mut self,
        (from, to): (usize, usize),
        (function, index): (usize, usize),
        (offset, size): (u64, u64),
    ) {
        let Ok([from, to]) = self.frames.get_disjoint_mut([from, to]) else { return };
        let from = from.functions.get(function).and_then(|function| function.inputs.get(index));
        let to = to.functions.get_mut(function).and_then(|function| function.inputs.get_mut(index));
        let (Some(from), Some(to)) = (from, to) else { return };
        let (Ok(start), Ok(size)) = (usize::try_from(offset), usize::try_from(size)) else { return };
        let range = start..start.saturating_add(size);
        let source = from.host().bytes().and_then(|bytes| bytes.get(range.clone()));
        let target = to.bytes_mut().and_then(|bytes| bytes.get_mut(range));
        if let (Some(source), Some(target)) = (source, target) {
            target.copy_from_slice(source);
        }
    }

    fn output(&self, frame: usize, function: usize, index: usize) -> Option<&[u8]> {
        self.frames.get(frame)?.functions.get(function)?.outputs.get(index)?.host().bytes()
    }

    fn device_output(
        &self,
        frame: usize,
        function: usize,
        index: usize,
        (offset, size): (u64, u64),
    ) -> Option<DeviceRange> {
        let port = self.frames.get(frame)?.functions.get(function)?.outputs.get(index)?;
        let buffer = port.device.clone();
        Some(DeviceRange::Vulkan(super::memory::BufferRange { buffer, offset, size, external: false }))
    }

    fn copy(&mut self, from: &DeviceRange, to: &DeviceRange) -> Result<()> {
        let (Some(from), Some(to)) = (from.vulkan(), to.vulkan()) else { return Ok(()) };
        let size = from.size.min(to.size);
        self.commands.run_once(&mut |command| {
            let copy = vk::BufferCopy { src_offset: from.offset, dst_offset: to.offset, size };
            barrier(&self.context, command, barrier::OTHERS_TO_TRANSFER);
            // SAFETY: both ranges lie in their buffers; the command is being recorded.
            unsafe { self.context.device.cmd_copy_buffer(command, from.buffer.raw, to.buffer.raw, copy) };
            barrier(&self.context, command, barrier::TRANSFER_TO_ALL);
        })
    }

    fn params(&mut self, frame: usize, function: usize) -> Option<(&mut [u8], &mut [u8])> {
        let function = self.frames.get_mut(frame)?.functions.get_mut(function)?;
        let split = usize::try_from(function.grids_offset).ok()?;
        function.params.as_mut()?.bytes_mut()?.split_at_mut_checked(split)
    }

    fn submit(&mut self, launch: &Launch<'_>) -> Result<()> {
        let Some(frame) = self.frames.get_mut(launch.frame) else { return Ok(()) };
        let submitted = frame.prepare(&self.context, &self.pipelines, launch)?;
        frame.sources.clear();
        let sources = launch.feeds.iter().filter_map(|(.., from)| from.vulkan());
        frame.sources.extend(sources.map(|from| from.buffer.clone()));
        frame.returned.clear();
        frame.returned.extend(launch.downloads.iter().map(|(port, ..)| (launch.first, *port)));
        self.context.start(submitted.as_slice(), frame.commands.fence)?;
        frame.pending = true;
        Ok(())
    }

    fn wait(&mut self, frame: usize) -> Result<()> {
        let Some(frame) = self.frames.get_mut(frame).filter(|frame| frame.pending) else { return Ok(()) };
        self.context.wait(frame.commands.fence)?;
        frame.pending = false;
        let port = |(function, port): &(usize, usize)| frame.functions.get(*function)?.outputs.get(*port);
        frame.returned.iter().filter_map(port).try_for_each(|port| port.host().invalidate())
    }

    fn pending(&self, frame: usize) -> bool {
        self.frames.get(frame).is_some_and(|frame| frame.pending)
    }

    fn replay_timed(
        &mut self,
        frame: usize,
        conversation: usize,
        index: usize,
        described: &Function,
    ) -> Result<Vec<f64>> {
        self.wait_all()?;
        let Some(Frame { functions, commands, .. }) = self.frames.get_mut(frame) else {
            return Ok(Vec::new());
        };
        let Some(function) = functions.get_mut(index) else { return Ok(Vec::new()) };
        function.timed(conversation, &self.context, commands, &self.pipelines, described)
    }

    fn reset_states(&mut self, conversation: usize) -> Result<()> {
        self.wait_all()?;
        self.states.zero(&self.context, &self.commands, Some(conversation))
    }

    fn read_state(&mut self, place: (usize, usize, u64), to: &mut [u8]) -> Result<()> {
        self.wait_all()?;
        self.states.read(&self.context, &self.commands, place, to)
    }

    fn write_state(&mut self, place: (usize, usize, u64), from: &[u8]) -> Result<()> {
        self.wait_all()?;
        self.states.write(&self.context, &self.commands, place, from)
    }

    #[cfg(unix)]
    fn export(&self, size: u64) -> Result<(DeviceRange, OwnedFd)> {
        let (range, descriptor) = super::memory::BufferRange::export(&self.context, size)?;
        Ok((DeviceRange::Vulkan(range), descriptor))
    }

    #[cfg(unix)]
    fn import(&self, size: u64, allocation: Option<u64>, descriptor: OwnedFd) -> Result<DeviceRange> {
        super::memory::BufferRange::import(&self.context, size, allocation, descriptor)
            .map(DeviceRange::Vulkan)
    }
}

impl Drop for Replayer {
    fn drop(&mut self) {
        // After an error, work may still be pending.
        self.context.wait_idle();
    }
}
