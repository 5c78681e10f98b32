//! A loaded variant: its buffers, pipelines and bind groups, and the submission of runs.
//!
//! Everything here is addressed by index. Names, types, shapes and symbols are the session's business.

use super::context::Context;
use super::frame::{Frame, Loaded, Shared};
use super::memory::{BOUND, Part, READ, buffer, buffers, part, views, weights, write};
use super::pipelines::Pipelines;
use crate::device::DeviceInfo;
use crate::device::backend::{Counts, Launch, Loading, Range, Replay, constant_grid};
use crate::error::{Error, Result};
use crate::format::{Dispatch, Function};
use crate::threads;
#[cfg(unix)]
use std::os::fd::OwnedFd;
use std::sync::Arc;
use wgpu::{Buffer, CommandEncoder, CommandEncoderDescriptor, ComputePassDescriptor, MapMode};

/// The most bytes of a state that are read at a time.
const WINDOW: u64 = 1 << 20;

/// A variant on its device.
pub(crate) struct Replayer {
    frames: Vec<Frame>,
    pipelines: Pipelines,
    functions: Vec<Vec<Dispatch>>,
    /// For each conversation, the states of the variant.
    states: Vec<Vec<Buffer>>,
    /// What states are read through.
    window: Option<Buffer>,
    context: Arc<Context>,
}

impl Replayer {
    /// Allocates, uploads, and creates pipelines (beside the upload) and bind groups.
    pub(crate) fn load(context: &Arc<Context>, source: &Loading<'_>) -> Result<Replayer> {
        let Loading { manifest, variant, file, frames, conversations, .. } = *source;
        let (pipelines, filled) = threads::both(
            || Pipelines::create(context, manifest, variant, file),
            || Ok((weights(context, manifest, variant, file)?, views(context, manifest, variant, file)?)),
        );
        let failed = || Error::Driver { call: "loading", code: "a thread failed".to_owned() };
        let (pipelines, filled) = (pipelines.ok_or_else(failed)??, filled.ok_or_else(failed)?);
        let (weights, views) = filled?;
        let sizes = || variant.states.iter().map(|state| state.size);
        let states = (0..conversations).map(|_| buffers(context, sizes(), BOUND, "states"));
        let states = states.collect::<Result<Vec<_>>>()?;
        let window =
            sizes().max().map(|size| buffer(context, size.min(WINDOW), READ, "the window on states"));
        let arenas = buffers(context, variant.arena_sizes().into_iter(), BOUND, "arena")?;
        let (_, places) = variant.images();
        let shared = Shared {
            context,
            variant,
            pipelines: &pipelines,
            weights: &weights,
            states: &states,
            arenas: &arenas,
            views: places.into_iter().map(|place| views.get(place)).collect(),
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

    /// Submits commands and waits for them, and so for all that was submitted before.
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

    fn has(&self, range: &Range) -> bool {
        let part = range.wgpu().and_then(part);
        part.is_some_and(|part| Arc::ptr_eq(&part.context, &self.context))
    }

    fn replay_timed(&mut self, _: usize, _: usize, _: usize, _: &Function) -> Result<Vec<f64>> {
        Err(Error::NoTimestamps)
    }

    fn input(&mut self, frame: usize, function: usize, index: usize) -> Option<&mut [u8]> {
        let function = self.frames.get_mut(frame)?.functions.get_mut(function)?;
        function.inputs.get_mut(index).map(|input| input.bytes.as_mut_slice())
    }

    fn carry(
        &mut self,
        (from, to): (usize, usize),
        (function, index): (usize, usize),
        (offset, size): (u64, u64),
    ) {
        let Ok([from, to]) = self.frames.get_disjoint_mut([from, to]) else { return };
        let from = from.functions.get(function).and_then(|function| function.inputs.get(index));
        let to = to.functions.get_mut(function).and_then(|function| function.inputs.get_mut(index));
        let (Some(from), Some(to), Some(range)) = (from, to, range(offset, size)) else { return };
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
    ) -> Option<Range> {
        let port = self.frames.get(frame)?.functions.get(function)?.outputs.get(index)?;
        let buffer = port.device.clone();
        Some(Range::Wgpu(Arc::new(Part { context: self.context.clone(), buffer, offset, size })))
    }

    fn copy(&mut self, from: &Range, to: &Range) -> Result<()> {
        let (Some(from), Some(to)) = (from.wgpu().and_then(part), to.wgpu().and_then(part)) else {
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
            let bytes = range(*offset, *size).and_then(|range| input.bytes.get(range));
            write(context, &input.device, *offset, bytes.unwrap_or_default());
        }
        for (port, offset, from) in launch.feeds {
            let (Some(input), Some(from)) = (first.inputs.get(*port), from.wgpu().and_then(part)) else {
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
            write(context, to, 0, words);
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
            // What goes wrong is found where the mapped range is asked for.
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
        for part in to.chunks_mut(usize::try_from(window.size()).unwrap_or(usize::MAX).max(1)) {
            let size = part.len() as u64;
            self.run_once(|encoder| {
                encoder.copy_buffer_to_buffer(state, offset, window, 0, size);
                encoder.map_buffer_on_submit(window, MapMode::Read, 0..size, |_| ());
            })?;
            let failed = |error: wgpu::MapRangeError| Error::Driver { call: "map", code: error.to_string() };
            part.copy_from_slice(&window.get_mapped_range(0..size).map_err(failed)?);
            window.unmap();
            offset += size;
        }
        Ok(())
    }

    fn write_state(&mut self, (conversation, state, offset): (usize, usize, u64), from: &[u8]) -> Result<()> {
        let state = self.states.get(conversation).and_then(|set| set.get(state));
        let Some(state) = state else { return Ok(()) };
        write(&self.context, state, offset, from);
        self.context.check("writing a state", 0)
    }

    #[cfg(unix)]
    fn export(&self, _: u64) -> Result<(Range, OwnedFd)> {
        Err(shares_nothing())
    }

    #[cfg(unix)]
    fn import(&self, _: u64, _: Option<u64>, _: OwnedFd) -> Result<Range> {
        Err(shares_nothing())
    }
}

/// Why memory is neither imported nor exported.
#[cfg(unix)]
fn shares_nothing() -> Error {
    let code = "wgpu shares no memory with others; load with the Vulkan backend".to_owned();
    Error::Driver { call: "shared memory", code }
}

fn encode(
    encoder: &mut CommandEncoder,
    pipelines: &Pipelines,
    dispatches: &[Dispatch],
    function: &Loaded,
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

fn range(offset: u64, size: u64) -> Option<std::ops::Range<usize>> {
    let start = usize::try_from(offset).ok()?;
    Some(start..start.checked_add(usize::try_from(size).ok()?)?)
}
