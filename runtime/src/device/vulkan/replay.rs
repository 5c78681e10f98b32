//! A loaded variant: its buffers, pipelines and recorded functions, and the submission of a run.
//!
//! Everything here is addressed by index. Names, types, shapes and symbols are the session's business.

use super::context::Context;
use super::images::{self, Image};
use super::memory::{Buffer, Place};
use super::pipelines::Pipelines;
use super::record::{Commands, Indirect, Resource, Sets, barrier, constant_grid, record_function};
use super::timing::Timed;
use super::upload;
use crate::error::{Error, Result};
use crate::format::{Function, Manifest, Port, Slot, SlotKind, Variant};
use crate::threads;
use ash::vk;
use std::path::Path;
use std::sync::Arc;

/// A variant on its device. Fields are dropped in order: first what uses, then what is used.
pub(crate) struct Replayer {
    functions: Vec<Loaded>,
    pipelines: Pipelines,
    commands: Commands,
    _weights: Vec<Buffer>,
    states: Vec<Buffer>,
    _arenas: Vec<Buffer>,
    _images: Vec<Image>,
    pub(crate) context: Arc<Context>,
}

/// A function that is ready to run.
struct Loaded {
    timed: Option<Timed>,
    sets: Sets,
    main: vk::CommandBuffer,
    upload: Transfer,
    download: Transfer,
    inputs: Vec<PortMemory>,
    outputs: Vec<PortMemory>,
    /// The params slot, and behind it the grids of dispatches that depend on symbols.
    params: Option<Buffer>,
    grids_offset: u64,
}

/// The memory of a port: a buffer of the device, and one of the host where the former cannot be reached.
struct PortMemory {
    device: Buffer,
    host: Option<Buffer>,
}

/// A command buffer of copies, and what it was recorded for.
struct Transfer {
    command: vk::CommandBuffer,
    /// (port, bytes), in order.
    recorded: Vec<(usize, u64)>,
}

/// What [`Replayer::load`] needs to know.
pub(crate) struct Source<'a> {
    pub(crate) manifest: &'a Manifest,
    pub(crate) variant: &'a Variant,
    pub(crate) file: &'a [u8],
    pub(crate) cache_path: Option<&'a Path>,
    /// Identifies the bundle in the pipeline cache's key.
    pub(crate) cache_key: &'a [u8],
}

impl Replayer {
    /// Allocates, uploads, creates pipelines (beside the upload) and records.
    pub(crate) fn load(context: &Arc<Context>, source: &Source<'_>) -> Result<Replayer> {
        let Source { manifest, variant, file, cache_path, cache_key } = *source;
        let (pipelines, memory) = threads::both(
            || Pipelines::create(context, manifest, variant, file, cache_path, cache_key),
            || shared_memory(context, manifest, variant, file),
        );
        let failed = || Error::Vulkan { call: "loading", code: "a thread failed".to_owned() };
        let (pipelines, memory) = (pipelines.ok_or_else(failed)?, memory.ok_or_else(failed)?);
        let (pipelines, (weights, states, arenas, images)) = (pipelines?, memory?);
        let commands = Commands::new(context)?;
        let mut functions: Vec<Loaded> = Vec::with_capacity(variant.functions.len());
        let mut first = 0;
        let (_, places) = variant.images();
        let mut views = places.into_iter().map(|place| images.get(place).map(|image| image.view));
        for (index, function) in variant.functions.iter().enumerate() {
            first = if variant.is_special(index) { first } else { index };
            let general = functions.get(first);
            let shared = &mut Shared {
                weights: &weights,
                states: &states,
                arenas: &arenas,
                general,
                views: &mut views,
            };
            functions.push(load_function(context, variant, function, &pipelines, &commands, shared)?);
        }
        Ok(Replayer {
            functions,
            pipelines,
            commands,
            _weights: weights,
            states,
            _arenas: arenas,
            _images: images,
            context: context.clone(),
        })
    }

    /// The memory that an input's array is written to.
    pub(crate) fn input(&mut self, function: usize, index: usize) -> Option<&mut [u8]> {
        let port = self.functions.get_mut(function)?.inputs.get_mut(index)?;
        port.host.as_mut().unwrap_or(&mut port.device).bytes_mut()
    }

    /// The memory that an output's array is read from, after a run that downloaded it.
    pub(crate) fn output(&self, function: usize, index: usize) -> Option<&[u8]> {
        let port = self.functions.get(function)?.outputs.get(index)?;
        port.host.as_ref().unwrap_or(&port.device).bytes()
    }

    /// The params slot, and the grids behind it: three words for each dispatch without a constant grid.
    pub(crate) fn params(&mut self, function: usize) -> Option<(&mut [u8], &mut [u8])> {
        let function = self.functions.get_mut(function)?;
        let split = usize::try_from(function.grids_offset).ok()?;
        function.params.as_mut()?.bytes_mut()?.split_at_mut_checked(split)
    }

    /// Copies inputs up (those that need it), runs, and copies outputs down (those that need it).
    /// `uploads` and `downloads` are (port, offset, bytes) of the function `first`; the one that runs is `index`.
    pub(crate) fn replay(
        &mut self,
        first: usize,
        index: usize,
        uploads: &[(usize, u64, u64)],
        downloads: &[(usize, u64, u64)],
    ) -> Result<()> {
        let Some(main) = self.functions.get(index).map(|function| function.main) else { return Ok(()) };
        let Some(function) = self.functions.get_mut(first) else { return Ok(()) };
        let mut commands = Vec::with_capacity(3);
        let up = function.upload.prepare(&self.context, &self.commands, &function.inputs, uploads, true)?;
        commands.extend(up);
        commands.push(main);
        let down =
            function.download.prepare(&self.context, &self.commands, &function.outputs, downloads, false)?;
        commands.extend(down);
        self.context.submit(&commands, self.commands.fence)?;
        downloads
            .iter()
            .filter_map(|(port, ..)| function.outputs.get(*port))
            .try_for_each(PortMemory::invalidate)
    }

    /// Runs once with a timestamp behind every dispatch, and returns nanoseconds since the first.
    /// The first call records a command buffer for it.
    pub(crate) fn replay_timed(&mut self, index: usize, described: &Function) -> Result<Vec<f64>> {
        let Some(function) = self.functions.get_mut(index) else { return Ok(Vec::new()) };
        if function.timed.is_none() {
            let indirect = Indirect { buffer: function.params.as_ref(), offset: function.grids_offset };
            let (context, commands) = (&self.context, &self.commands);
            let timed =
                Timed::record(context, commands, described, &self.pipelines, &function.sets, &indirect)?;
            function.timed = Some(timed);
        }
        match &function.timed {
            Some(timed) => timed.run(&self.commands),
            None => Ok(Vec::new()),
        }
    }

    pub(crate) fn reset_states(&mut self) -> Result<()> {
        upload::zero_states(&self.context, &self.commands, &self.states)
    }
}

impl Drop for Replayer {
    fn drop(&mut self) {
        // SAFETY: the device is live. After an error something may still be pending.
        let _ = unsafe { self.context.device.device_wait_idle() };
    }
}

impl PortMemory {
    fn invalidate(&self) -> Result<()> {
        self.host.as_ref().unwrap_or(&self.device).invalidate()
    }
}

impl Transfer {
    /// Records the copies unless it already holds them; none where there is nothing to copy.
    fn prepare(
        &mut self,
        context: &Context,
        commands: &Commands,
        ports: &[PortMemory],
        wanted: &[(usize, u64, u64)],
        up: bool,
    ) -> Result<Option<vk::CommandBuffer>> {
        let staged = |(port, _, size): &&(usize, u64, u64)| {
            *size > 0 && ports.get(*port).is_some_and(|port| port.host.is_some())
        };
        let wanted: Vec<_> = wanted.iter().filter(staged).copied().collect();
        if wanted.is_empty() {
            return Ok(None);
        }
        let key: Vec<_> = wanted.iter().map(|(port, _, size)| (*port, *size)).collect();
        if self.recorded != key {
            // What is half recorded must not pass for the copies of before.
            self.recorded.clear();
            commands.record(self.command, vk::CommandBufferUsageFlags::empty(), |command| {
                for (port, offset, size) in &wanted {
                    let Some(PortMemory { device, host: Some(host) }) = ports.get(*port) else { continue };
                    let (from, to) = if up { (host, device) } else { (device, host) };
                    let copy = vk::BufferCopy { src_offset: *offset, dst_offset: *offset, size: *size };
                    // SAFETY: both buffers have the slot's size, in which the port was checked to lie.
                    unsafe { context.device.cmd_copy_buffer(command, from.raw, to.raw, copy) };
                }
                if !up {
                    barrier(context, command, barrier::TRANSFER_TO_HOST);
                }
            })?;
            self.recorded = key;
        }
        Ok(Some(self.command))
    }
}

/// The ways in which shaders may see a buffer.
const BOUND: vk::BufferUsageFlags = vk::BufferUsageFlags::from_raw(
    vk::BufferUsageFlags::STORAGE_BUFFER.as_raw()
        | vk::BufferUsageFlags::UNIFORM_BUFFER.as_raw()
        | vk::BufferUsageFlags::UNIFORM_TEXEL_BUFFER.as_raw(),
);

/// Buffers and images that functions share.
struct Shared<'a> {
    weights: &'a [Buffer],
    states: &'a [Buffer],
    arenas: &'a [Buffer],
    /// The function whose inputs and outputs this one uses.
    general: Option<&'a Loaded>,
    /// Of the image slots that are still to come.
    views: &'a mut dyn Iterator<Item = Option<vk::ImageView>>,
}

type Buffers = Vec<Buffer>;

fn shared_memory(
    context: &Arc<Context>,
    manifest: &Manifest,
    variant: &Variant,
    file: &[u8],
) -> Result<(Buffers, Buffers, Buffers, Vec<Image>)> {
    let usage = BOUND | vk::BufferUsageFlags::TRANSFER_DST;
    let place = if context.direct_writes() { Place::DeviceWritten } else { Place::Device };
    // One loop for all of them is less code than one for each.
    let make = |sizes: &mut dyn Iterator<Item = u64>, place, what| {
        let mut buffers = Buffers::new();
        for size in sizes {
            buffers.push(Buffer::new(context, size, usage, place, what)?);
        }
        Ok::<_, Error>(buffers)
    };
    let mut weights = make(&mut variant.weights.iter().map(|slot| slot.size), place, "weights")?;
    let states = make(&mut variant.states.iter().map(|slot| slot.size), Place::Device, "states")?;
    let arenas = make(&mut variant.arena_sizes().into_iter(), Place::Device, "arena")?;
    upload::fill_weights(context, manifest, variant, file, &mut weights, &states)?;
    Ok((weights, states, arenas, images::create(context, manifest, variant, file)?))
}

fn load_function(
    context: &Arc<Context>,
    variant: &Variant,
    function: &Function,
    pipelines: &Pipelines,
    commands: &Commands,
    shared: &mut Shared<'_>,
) -> Result<Loaded> {
    let n_grids =
        function.dispatches.iter().filter(|dispatch| constant_grid(dispatch).is_none()).count() as u64;
    let grids_offset =
        function.slots.iter().find(|slot| slot.kind == SlotKind::Params).map_or(0, |slot| slot.size);
    let params = match grids_offset + 12 * n_grids {
        0 => None,
        size => {
            let usage = vk::BufferUsageFlags::UNIFORM_BUFFER
                | vk::BufferUsageFlags::STORAGE_BUFFER
                | vk::BufferUsageFlags::INDIRECT_BUFFER;
            Some(Buffer::new(context, size, usage, Place::Params, "parameters")?)
        }
    };
    let own = |ports: &[Port], input: bool| {
        let mut own = Vec::new();
        for port in ports.iter().filter(|_| shared.general.is_none()) {
            let slot = usize::try_from(port.slot).ok().and_then(|index| function.slots.get(index));
            own.push(port_memory(context, slot, input)?);
        }
        Ok::<_, Error>(own)
    };
    let (inputs, outputs) = (own(&function.inputs, true)?, own(&function.outputs, false)?);
    let mut n_arenas = 0;
    let mut slots = Vec::with_capacity(function.slots.len());
    for slot in &function.slots {
        let at = |buffers: &[Buffer], index: u32| {
            usize::try_from(index).ok().and_then(|index| buffers.get(index)).map(|buffer| buffer.raw)
        };
        let port = |ports: &[PortMemory], index: u32| {
            usize::try_from(index).ok().and_then(|index| ports.get(index)).map(|port| port.device.raw)
        };
        let buffer = match slot.kind {
            SlotKind::Image(_) => {
                let view = shared.views.next().flatten();
                slots.push(Resource::Image(view.unwrap_or_default()));
                continue;
            }
            SlotKind::Weights(index) => at(shared.weights, index),
            SlotKind::State(index) => at(shared.states, index),
            SlotKind::Arena => {
                n_arenas += 1;
                at(shared.arenas, n_arenas - 1)
            }
            SlotKind::Input(index) => port(shared.general.map_or(&inputs, |general| &general.inputs), index),
            SlotKind::Output(index) => {
                port(shared.general.map_or(&outputs, |general| &general.outputs), index)
            }
            SlotKind::Params => params.as_ref().map(|buffer| buffer.raw),
        };
        let buffer = buffer.ok_or_else(|| Error::invalid(&function.name, "a slot refers to nothing"))?;
        slots.push(Resource::Buffer(buffer));
    }
    let sets = Sets::new(context, variant, function, pipelines, &slots)?;
    let main = commands.allocate()?;
    let indirect = Indirect { buffer: params.as_ref(), offset: grids_offset };
    commands.record(main, vk::CommandBufferUsageFlags::empty(), |command| {
        record_function(context, command, function, pipelines, &sets, &indirect, |_| ());
    })?;
    let transfer = || Ok(Transfer { command: commands.allocate()?, recorded: Vec::new() });
    Ok(Loaded {
        timed: None,
        sets,
        main,
        upload: transfer()?,
        download: transfer()?,
        inputs,
        outputs,
        params,
        grids_offset,
    })
}

/// A port's buffer, reachable for the host where reaching it directly is fast, else with a staging buffer.
fn port_memory(context: &Arc<Context>, slot: Option<&Slot>, input: bool) -> Result<PortMemory> {
    let size = slot.map_or(0, |slot| slot.size);
    let usage = BOUND | vk::BufferUsageFlags::TRANSFER_SRC | vk::BufferUsageFlags::TRANSFER_DST;
    let (direct, place, staging, what) = match input {
        true => (context.direct_writes(), Place::DeviceWritten, Place::Upload, "an input"),
        false => (context.direct_reads(), Place::DeviceRead, Place::Download, "an output"),
    };
    let device = Buffer::new(context, size, usage, if direct { place } else { Place::Device }, what)?;
    if device.bytes().is_some() {
        return Ok(PortMemory { device, host: None });
    }
    let usage = vk::BufferUsageFlags::TRANSFER_SRC | vk::BufferUsageFlags::TRANSFER_DST;
    let host = Buffer::new(context, size, usage, staging, what)?;
    Ok(PortMemory { device, host: Some(host) })
}
