//! A loaded variant: its buffers, pipelines and bind groups, and the submission of runs.
//!
//! Functions, inputs, outputs and states are addressed by index. Only the session knows names, types, shapes and
//! symbols.

use super::context::Context;
use super::frame::{Frame, FrameResources, LoadedFunction};
use super::memory::{
    BOUND, BufferRange, READ, buffer_range, create_buffer, create_buffers, create_views, create_weights,
    write_padded,
};
use super::pipelines::Pipelines;
use crate::device::DeviceInfo;
use crate::device::backend::{Counts, DeviceRange, Launch, LoadRequest, Replay, constant_grid};
use crate::error::{Error, Result};
use crate::format::{Dispatch, Function};
use crate::threads;
#[cfg(unix)]
use std::os::fd::OwnedFd;
use std::sync::Arc;
use wgpu::{Buffer, CommandEncoder, CommandEncoderDescriptor, ComputePassDescriptor, MapMode};

/// Maximum bytes of the readback window for states.
const WINDOW: u64 = 1 << 20;

/// A variant loaded on a device.
pub(crate) struct Replayer {
    frames: Vec<Frame>,
    pipelines: Pipelines,
    functions: Vec<Vec<Dispatch>>,
    /// State buffers, one list for each conversation.
    states: Vec<Vec<Buffer>>,
    /// Readback buffer for states.
    window: Option<Buffer>,
    context: Arc<Context>,
}

impl Replayer {
    /// Allocates memory, uploads weights, creates pipelines in parallel with the upload, and creates bind
    /// groups.
    pub(crate) fn load(context: &Arc<Context>, source: &LoadRequest<'_>) -> Result<Replayer> {
        let LoadRequest { manifest, variant, file, frames, conversations, .. } = *source;
        let (pipelines, filled) = threads::join(
            || Pipelines::create(context, source),
            || {
                Ok((
                    create_weights(context, manifest, variant, file)?,
                    create_views(context, manifest, variant, file)?,
                ))
            },
        );
        let failed = || Error::Driver { call: "loading", code: "a thread failed".to_owned() };
        let (pipelines, filled) = (pipelines.ok_or_else(failed)??, filled.ok_or_else(failed)?);
        let (weights, views) = filled?;
        let sizes = || variant.states.iter().map(|state| state.size);
        let states = (0..conversations).map(|_| create_buffers(context, sizes(), BOUND, "states"));
        let states = states.collect::<Result<Vec<_>>>()?;
        let window = sizes()
            .max()
            .map(|size| create_buffer(context, size.min(WINDOW), READ, "the readback window for states"));
        let arenas = create_buffers(context, variant.arena_sizes().into_iter(), BOUND, "arena")?;
        let (_, indices) = variant.images();
        let shared = FrameResources {
            context,
            variant,
            pipelines: &pipelines,
            weights: &weights,
            states: &states,
            arenas: &arenas,
            views: indices.into_iter().map(|index| views.get(index)).collect(),
        };
        let frames = (0..frames).map(|_| Frame::load(&shared)).collect::<Result<_>>()?;
        let functions = variant.functions.iter().map(|function| function.dispatches.clone()).collect();
        Ok(Replayer {
            frames,
            pipelines,
            functions,
            states,
            window: window.transpose()?,
            context: context.clone(),
        })
    }

    /// Submits commands and waits for them and for all earlier submissions.
    fn run_once(&self, record: impl FnOnce(&mut CommandEncoder)) -> Result<()> {
        let mut encoder = self.context.device.create_command_encoder(&CommandEncoderDescriptor::default());
        record(&mut encoder);
        let submission = self.context.queue.submit([encoder.finish()]);
        self.context.wait(Some(submission))
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
        let range = range.wgpu().and_then(buffer_range);
        range.is_some_and(|range| Arc::ptr_eq(&range.context, &self.context))
    }

    fn replay_timed(&mut self, _: usize, _: usize, _: usize, _: &Function) -> Result<Vec<f64>> {
        Err(Error::NoTimestamps)
    }

    fn input(&mut self, frame: usize, function: usize, index: usize) -> Option<&mut [u8]> {
        let function = self.frames.get_mut(frame)?.functions.get_mut(function)?;
        function.inputs.get_mut(index).map(|input| input.bytes.as_mut_slice())
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
        let (Some(from), Some(to), Some(range)) = (from, to, byte_range(offset, size)) else { return };
        if let (Some(from), Some(to)) = (from.bytes.get(range.clone()), to.bytes.get_mut(range)) {
            to.copy_from_slice(from);
        }
    }

    fn output(&self, frame: usize, function: usize, index: usize) -> Option<&[u8]> {
        self.frames.get(frame)?.functions.get(function)?.outputs.get(index)?.view.as_deref()
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
        Some(DeviceRange::Wgpu(Arc::new(BufferRange { context: self.context.clone(), buffer, offset, size })))
    }

    fn copy(&mut self, from: &DeviceRange, to: &DeviceRange) -> Result<()> {
        let (Some(from), Some(to)) = (from.wgpu().and_then(buffer_range), to.wgpu().and_then(buffer_range))
        else {
            return Ok(());
        };
        let size = from.size.min(to.size);
        self.run_once(|encoder| {
            encoder.copy_buffer_to_buffer(&from.buffer, from.offset, &to.buffer, to.offset, size);
        })
    }

    fn params(&mut self, frame: usize, function: usize) -> Option<(&mut [u8], &mut [u8])> {
        let function = self.frames.get_mut(frame)?.functions.get_mut(function)?;
        function.written = false;
        function.words.split_at_mut_checked(function.grids_offset)
    }

    fn submit(&mut self, launch: &Launch<'_>) -> Result<()> {
        let Replayer { frames, pipelines, functions, context, .. } = self;
        let Some(frame) = frames.get_mut(launch.frame) else { return Ok(()) };
        let Some(first) = frame.functions.get_mut(launch.first) else { return Ok(()) };
        let mut encoder = context.device.create_command_encoder(&CommandEncoderDescriptor::default());
        for (port, offset, size) in launch.uploads {
            let Some(input) = first.inputs.get(*port) else { continue };
            let bytes = byte_range(*offset, *size).and_then(|range| input.bytes.get(range));
            write_padded(context, &input.device, *offset, bytes.unwrap_or_default());
        }
        for (port, offset, from) in launch.feeds {
            let (Some(input), Some(from)) = (first.inputs.get(*port), from.wgpu().and_then(buffer_range))
            else {
                continue;
            };
            encoder.copy_buffer_to_buffer(&from.buffer, from.offset, &input.device, *offset, from.size);
        }
        for output in &mut first.outputs {
            output.view = None;
            if std::mem::take(&mut output.mapped) {
                output.back.unmap();
            }
        }
        let Some(function) = frame.functions.get_mut(launch.index) else { return Ok(()) };
        if !std::mem::replace(&mut function.written, true)
            && let (Some(to), Some(words)) = (&function.params, function.words.get(..function.grids_offset))
        {
            write_padded(context, to, 0, words);
        }
        let dispatches = functions.get(launch.index).map(Vec::as_slice).unwrap_or_default();
        encode(&mut encoder, pipelines, dispatches, function, launch.conversation);
        let Some(first) = frame.functions.get_mut(launch.first) else { return Ok(()) };
        for (port, offset, size) in launch.downloads.iter().filter(|(.., size)| *size > 0) {
            let Some(output) = first.outputs.get(*port) else { continue };
            encoder.copy_buffer_to_buffer(&output.device, *offset, &output.back, *offset, *size);
        }
        frame.pending = Some(context.queue.submit([encoder.finish()]));
        frame.returned.clear();
        for (port, ..) in launch.downloads {
            let Some(output) = first.outputs.get_mut(*port) else { continue };
            // A failed mapping is reported when the mapped range is requested.
            output.back.map_async(MapMode::Read, .., |_| ());
            output.mapped = true;
            frame.returned.push((launch.first, *port));
        }
        context.check("a run", 0)
    }

    fn wait(&mut self, frame: usize) -> Result<()> {
        let Some(frame) = self.frames.get_mut(frame) else { return Ok(()) };
        let Some(submission) = frame.pending.take() else { return Ok(()) };
        self.context.wait(Some(submission))?;
        for (function, port) in &frame.returned {
            let function = frame.functions.get_mut(*function);
            let Some(output) = function.and_then(|function| function.outputs.get_mut(*port)) else {
                continue;
            };
            let mapped = output.back.get_mapped_range(..);
            let failed = |error: wgpu::MapRangeError| Error::Driver { call: "map", code: error.to_string() };
            output.view = Some(mapped.map_err(failed)?);
        }
        Ok(())
    }

    fn pending(&self, frame: usize) -> bool {
        self.frames.get(frame).is_some_and(|frame| frame.pending.is_some())
    }

    fn reset_states(&mut self, conversation: usize) -> Result<()> {
        let states = self.states.get(conversation).map(Vec::as_slice).unwrap_or_default();
        self.run_once(|encoder| states.iter().for_each(|state| encoder.clear_buffer(state, 0, None)))
    }

    fn read_state(
        &mut self,
        (conversation, state, offset): (usize, usize, u64),
        to: &mut [u8],
    ) -> Result<()> {
        let state = self.states.get(conversation).and_then(|set| set.get(state));
        let (Some(state), Some(window)) = (state, &self.window) else { return Ok(()) };
        let mut offset = offset;
        for chunk in to.chunks_mut(usize::try_from(window.size()).unwrap_or(usize::MAX).max(1)) {
            let size = chunk.len() as u64;
            self.run_once(|encoder| {
                encoder.copy_buffer_to_buffer(state, offset, window, 0, size);
                encoder.map_buffer_on_submit(window, MapMode::Read, 0..size, |_| ());
            })?;
            let failed = |error: wgpu::MapRangeError| Error::Driver { call: "map", code: error.to_string() };
            chunk.copy_from_slice(&window.get_mapped_range(0..size).map_err(failed)?);
            window.unmap();
            offset += size;
        }
        Ok(())
    }

    fn write_state(&mut self, (conversation, state, offset): (usize, usize, u64), from: &[u8]) -> Result<()> {
        let state = self.states.get(conversation).and_then(|set| set.get(state));
        let Some(state) = state else { return Ok(()) };
        write_padded(&self.context, state, offset, from);
        self.context.check("writing a state", 0)
    }

    #[cfg(unix)]
    fn export(&self, _: u64) -> Result<(DeviceRange, OwnedFd)> {
        Err(no_external_memory())
    }

    #[cfg(unix)]
    fn import(&self, _: u64, _: Option<u64>, _: OwnedFd) -> Result<DeviceRange> {
        Err(no_external_memory())
    }
}

/// Returns the error for the import or export of memory, which wgpu does not support.
#[cfg(unix)]
fn no_external_memory() -> Error {
    let code = "wgpu does not support external memory; load with the Vulkan backend".to_owned();
    Error::Driver { call: "external memory", code }
}

fn encode(
    encoder: &mut CommandEncoder,
    pipelines: &Pipelines,
    dispatches: &[Dispatch],
    function: &LoadedFunction,
    conversation: usize,
) {
    let grids = function.words.get(function.grids_offset..).unwrap_or_default();
    let mut grids = grids.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
    let mut pass = encoder.begin_compute_pass(&ComputePassDescriptor::default());
    for (dispatch, group) in dispatches.iter().zip(function.groups(conversation)) {
        let Some((pipeline, ..)) = pipelines.get(dispatch.pipeline) else { continue };
        let [x, y, z] =
            constant_grid(dispatch).unwrap_or_else(|| [0; 3].map(|_: u32| grids.next().unwrap_or(0)));
        if x == 0 || y == 0 || z == 0 {
            continue;
        }
        pass.set_pipeline(pipeline);
        pass.set_bind_group(0, group, &[]);
        pass.dispatch_workgroups(x, y, z);
    }
}

fn byte_range(offset: u64, size: u64) -> Option<std::ops::Range<usize>> {
    let start = usize::try_from(offset).ok()?;
    Some(start..start.checked_add(usize::try_from(size).ok()?)?)
}
