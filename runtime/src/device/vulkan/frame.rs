//! What a run in flight has for itself: inputs, outputs, parameters, and command buffers that refer to them.
//!
//! A session has as many frames as runs may be in flight at once. Weights, arenas and images are shared by all of them:
//! each run begins with a barrier behind everything before it. States come in sets, one for each conversation; functions
//! that use states are recorded for each set.

use super::context::Context;
use super::memory::{Buffer, Place};
use super::pipelines::Pipelines;
use super::record::{Commands, Indirect, Resource, Sets, record_function};
use super::run::{Run, Runnable, Submitted};
use super::timing::Timed;
use crate::device::backend::{Launch, constant_grid};
use crate::error::{Error, Result};
use crate::format::{Function, Port, Slot, SlotKind, Variant};
use ash::vk;
use std::sync::Arc;

/// Fields are dropped in order: first what uses, then what is used.
pub(super) struct Frame {
    pub(super) functions: Vec<Loaded>,
    /// For each function.
    runs: Vec<Run>,
    /// Where the frame's command buffers come from, and the fence of its runs.
    pub(super) commands: Commands,
    /// Whether a run was submitted that nobody has waited for.
    pub(super) pending: bool,
    /// Outputs that the host will read of that run: (function, port).
    pub(super) returned: Vec<(usize, usize)>,
    /// What that run takes its inputs from on the device.
    pub(super) sources: Vec<Arc<Buffer>>,
}

/// A function that is ready to run.
pub(super) struct Loaded {
    /// For each conversation; one where the function uses no state.
    recorded: Vec<Recorded>,
    pub(super) inputs: Vec<PortMemory>,
    pub(super) outputs: Vec<PortMemory>,
    /// The params slot, and behind it the grids of dispatches that depend on symbols.
    pub(super) params: Option<Buffer>,
    pub(super) grids_offset: u64,
}

/// A function's dispatches, recorded with the states of one conversation.
pub(super) struct Recorded {
    pub(super) timed: Option<Timed>,
    pub(super) sets: Sets,
    dispatches: vk::CommandBuffer,
}

/// The memory of a port: a buffer of the device, and one of the host where the former cannot be reached.
pub(super) struct PortMemory {
    pub(super) device: Arc<Buffer>,
    pub(super) host: Option<Buffer>,
}

/// What the functions of all frames share.
pub(super) struct Shared<'a> {
    pub(super) context: &'a Arc<Context>,
    pub(super) variant: &'a Variant,
    pub(super) pipelines: &'a Pipelines,
    pub(super) weights: &'a [vk::Buffer],
    /// For each conversation.
    pub(super) states: &'a [Vec<Buffer>],
    pub(super) arenas: &'a [Buffer],
    /// Of the image slots of all functions, in order.
    pub(super) views: &'a [Option<vk::ImageView>],
}

impl Frame {
    pub(super) fn load(shared: &Shared<'_>) -> Result<Frame> {
        let mut frame = Frame {
            functions: Vec::with_capacity(shared.variant.functions.len()),
            runs: Vec::with_capacity(shared.variant.functions.len()),
            commands: Commands::new(shared.context)?,
            pending: false,
            returned: Vec::new(),
            sources: Vec::new(),
        };
        let mut first = 0;
        let mut views = shared.views;
        for (index, function) in shared.variant.functions.iter().enumerate() {
            first = if shared.variant.is_special(index) { first } else { index };
            let n_views = function.slots.iter().filter(|slot| is_image(slot)).count();
            let (own, rest) = views.split_at_checked(n_views).unwrap_or((views, &[]));
            views = rest;
            let loaded = load_function(shared, function, frame.functions.get(first), own, &frame.commands)?;
            frame.functions.push(loaded);
            frame.runs.push(Run::new(&frame.commands)?);
        }
        Ok(frame)
    }

    /// What a run submits; nothing where the launch names a function that does not exist.
    pub(super) fn prepare(
        &mut self,
        context: &Context,
        pipelines: &Pipelines,
        launch: &Launch<'_>,
    ) -> Result<Submitted> {
        let own = self.functions.get(launch.index);
        let parts = own.zip(self.functions.get(launch.first)).zip(self.runs.get_mut(launch.index));
        let Some(((own, ports), run)) = parts else { return Ok(Submitted::default()) };
        let Some(recorded) = own.recorded(launch.conversation) else { return Ok(Submitted::default()) };
        let indirect = Indirect { buffer: own.params.as_ref(), offset: own.grids_offset };
        let record = |command| {
            record_function(context, command, launch.described, pipelines, &recorded.sets, &indirect, |_| ());
        };
        let function = Runnable {
            inputs: &ports.inputs,
            outputs: &ports.outputs,
            dispatches: recorded.dispatches,
            record: &record,
        };
        run.prepare(context, &self.commands, launch, &function)
    }
}

impl Loaded {
    /// What is recorded for a conversation.
    fn recorded(&self, conversation: usize) -> Option<&Recorded> {
        let last = self.recorded.len().checked_sub(1)?;
        self.recorded.get(conversation.min(last))
    }

    /// Runs with a timestamp behind every dispatch. The first call records a command buffer for it.
    pub(super) fn timed(
        &mut self,
        conversation: usize,
        context: &Arc<Context>,
        commands: &Commands,
        pipelines: &Pipelines,
        described: &Function,
    ) -> Result<Vec<f64>> {
        let indirect = Indirect { buffer: self.params.as_ref(), offset: self.grids_offset };
        let last = self.recorded.len().saturating_sub(1);
        let Some(recorded) = self.recorded.get_mut(conversation.min(last)) else { return Ok(Vec::new()) };
        if recorded.timed.is_none() {
            let timed = Timed::record(context, commands, described, pipelines, &recorded.sets, &indirect)?;
            recorded.timed = Some(timed);
        }
        recorded.timed.as_ref().map_or(Ok(Vec::new()), |timed| timed.run(commands))
    }
}

impl PortMemory {
    /// What the host reads and writes.
    pub(super) fn host(&self) -> &Buffer {
        self.host.as_ref().unwrap_or(&self.device)
    }

    /// The bytes that the host writes; none while anything else refers to them.
    pub(super) fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        self.host.as_mut().or_else(|| Arc::get_mut(&mut self.device))?.bytes_mut()
    }
}

/// The ways in which shaders may see a buffer.
pub(super) const BOUND: vk::BufferUsageFlags = vk::BufferUsageFlags::from_raw(
    vk::BufferUsageFlags::STORAGE_BUFFER.as_raw()
        | vk::BufferUsageFlags::UNIFORM_BUFFER.as_raw()
        | vk::BufferUsageFlags::UNIFORM_TEXEL_BUFFER.as_raw(),
);

/// `general` is the function whose inputs and outputs this one uses, `views` are those of its image slots.
fn load_function(
    shared: &Shared<'_>,
    function: &Function,
    general: Option<&Loaded>,
    views: &[Option<vk::ImageView>],
    commands: &Commands,
) -> Result<Loaded> {
    let context = shared.context;
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
        for port in ports.iter().filter(|_| general.is_none()) {
            let slot = usize::try_from(port.slot).ok().and_then(|index| function.slots.get(index));
            own.push(port_memory(context, slot, input)?);
        }
        Ok::<_, Error>(own)
    };
    let mut loaded = Loaded {
        recorded: Vec::new(),
        inputs: own(&function.inputs, true)?,
        outputs: own(&function.outputs, false)?,
        params,
        grids_offset,
    };
    let stateful = function.slots.iter().any(|slot| matches!(slot.kind, SlotKind::State(_)));
    for states in shared.states.iter().take(if stateful { usize::MAX } else { 1 }) {
        let slots = resources(shared, function, general.unwrap_or(&loaded), &loaded, states, views)?;
        let sets = Sets::new(context, shared.variant, function, shared.pipelines, &slots)?;
        let dispatches = commands.allocate()?;
        let indirect = Indirect { buffer: loaded.params.as_ref(), offset: grids_offset };
        commands.record(dispatches, vk::CommandBufferUsageFlags::empty(), |command| {
            record_function(context, command, function, shared.pipelines, &sets, &indirect, |_| ());
        })?;
        loaded.recorded.push(Recorded { timed: None, sets, dispatches });
    }
    Ok(loaded)
}

/// What each slot of a function is. `ports` has the inputs and outputs, `own` the parameters.
fn resources(
    shared: &Shared<'_>,
    function: &Function,
    ports: &Loaded,
    own: &Loaded,
    states: &[Buffer],
    views: &[Option<vk::ImageView>],
) -> Result<Vec<Resource>> {
    let at = |buffers: &[Buffer], index: u32| {
        usize::try_from(index).ok().and_then(|index| buffers.get(index)).map(|buffer| buffer.raw)
    };
    let port = |ports: &[PortMemory], index: u32| {
        usize::try_from(index).ok().and_then(|index| ports.get(index)).map(|port| port.device.raw)
    };
    let mut n_arenas = 0;
    let mut views = views.iter();
    let mut slots = Vec::with_capacity(function.slots.len());
    for slot in &function.slots {
        let buffer = match slot.kind {
            SlotKind::Image(_) => {
                let view = views.next().copied().flatten();
                slots.push(Resource::Image(view.unwrap_or_default()));
                continue;
            }
            SlotKind::Weights(index) => {
                usize::try_from(index).ok().and_then(|index| shared.weights.get(index)).copied()
            }
            SlotKind::State(index) => at(states, index),
            SlotKind::Arena => {
                n_arenas += 1;
                at(shared.arenas, n_arenas - 1)
            }
            SlotKind::Input(index) => port(&ports.inputs, index),
            SlotKind::Output(index) => port(&ports.outputs, index),
            SlotKind::Params => own.params.as_ref().map(|buffer| buffer.raw),
        };
        let buffer = buffer.ok_or_else(|| Error::invalid(&function.name, "a slot refers to nothing"))?;
        slots.push(Resource::Buffer(buffer));
    }
    Ok(slots)
}

fn is_image(slot: &Slot) -> bool {
    matches!(slot.kind, SlotKind::Image(_))
}

/// A port's buffer, reachable for the host where reaching it directly is fast, else with a staging buffer.
fn port_memory(context: &Arc<Context>, slot: Option<&Slot>, input: bool) -> Result<PortMemory> {
    let size = slot.map_or(0, |slot| slot.size);
    let usage = BOUND | vk::BufferUsageFlags::TRANSFER_SRC | vk::BufferUsageFlags::TRANSFER_DST;
    let (direct, place, staging, what) = match input {
        true => (context.direct_input(size), Place::DeviceWritten, Place::Upload, "an input"),
        false => (context.direct_reads(), Place::DeviceRead, Place::Download, "an output"),
    };
    let device = Buffer::new(context, size, usage, if direct { place } else { Place::Device }, what)?;
    let device = Arc::new(device);
    if device.bytes().is_some() {
        return Ok(PortMemory { device, host: None });
    }
    let usage = vk::BufferUsageFlags::TRANSFER_SRC | vk::BufferUsageFlags::TRANSFER_DST;
    let host = Buffer::new(context, size, usage, staging, what)?;
    Ok(PortMemory { device, host: Some(host) })
}
