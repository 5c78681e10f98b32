//! Resources of a run in flight: inputs, outputs, parameters, and the command buffers that use them.
//!
//! A session has one frame for each run that may be in flight. All frames use the same weights, arenas and images:
//! each run begins with a barrier after all earlier work. Functions that use states are recorded once per
//! conversation.

use super::context::Context;
use super::memory::{Buffer, MemoryUse};
use super::pipelines::Pipelines;
use super::port_memory::{PortMemory, port_memory};
use super::record::{Commands, Indirect, Resource, Sets, record_function};
use super::run::{Run, Runnable, Submitted};
use super::timing::Timed;
use crate::device::backend::{Launch, constant_grid};
use crate::error::{Error, Result};
use crate::format::{Function, Port, Slot, SlotKind, Variant};
use ash::vk;
use std::sync::Arc;

/// Resources of one run in flight. Fields are dropped in order, so every object is declared before the objects that it
/// uses.
pub(super) struct Frame {
    pub(super) functions: Vec<LoadedFunction>,
    /// Command buffers for the copies of inputs and outputs, for each function.
    runs: Vec<Run>,
    /// Command pool of the frame, and the fence of its runs.
    pub(super) commands: Commands,
    /// True if a run of this frame was submitted and nobody has waited for the run.
    pub(super) pending: bool,
    /// Outputs of the submitted run that the host will read: (function, port).
    pub(super) returned: Vec<(usize, usize)>,
    /// Device buffers that inputs of the submitted run are copied from.
    pub(super) sources: Vec<Arc<Buffer>>,
}

/// A function that is ready to run.
pub(super) struct LoadedFunction {
    /// Recorded dispatches of the function for each conversation; a single entry if the function uses no state.
    recorded: Vec<Recorded>,
    pub(super) inputs: Vec<PortMemory>,
    pub(super) outputs: Vec<PortMemory>,
    /// Buffer with the params slot, followed by the grids of dispatches that depend on symbols.
    pub(super) params: Option<Buffer>,
    pub(super) grids_offset: u64,
}

/// Dispatches of a function, recorded with the states of one conversation.
pub(super) struct Recorded {
    pub(super) timed: Option<Timed>,
    pub(super) sets: Sets,
    dispatches: vk::CommandBuffer,
}

/// Resources used by the functions of all frames.
pub(super) struct FrameResources<'a> {
    pub(super) context: &'a Arc<Context>,
    pub(super) variant: &'a Variant,
    pub(super) pipelines: &'a Pipelines,
    pub(super) weights: &'a [vk::Buffer],
    /// State buffers, one list for each conversation.
    pub(super) states: &'a [Vec<Buffer>],
    pub(super) arenas: &'a [Buffer],
    /// Image views for the image slots of all functions, in order.
    pub(super) views: &'a [Option<vk::ImageView>],
}

impl Frame {
    pub(super) fn load(shared: &FrameResources<'_>) -> Result<Frame> {
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
            first = if shared.variant.is_specialization(index) { first } else { index };
            let n_views = function.slots.iter().filter(|slot| is_image(slot)).count();
            let (function_views, rest) = views.split_at_checked(n_views).unwrap_or((views, &[]));
            views = rest;
            let loaded =
                load_function(shared, function, frame.functions.get(first), function_views, &frame.commands)?;
            frame.functions.push(loaded);
            frame.runs.push(Run::new(&frame.commands)?);
        }
        Ok(frame)
    }

    /// Prepares the command buffers of a run. Returns an empty list if the launch names a function that does not exist.
    pub(super) fn prepare(
        &mut self,
        context: &Context,
        pipelines: &Pipelines,
        launch: &Launch<'_>,
    ) -> Result<Submitted> {
        let function = self.functions.get(launch.index);
        let found = function.zip(self.functions.get(launch.first)).zip(self.runs.get_mut(launch.index));
        let Some(((function, ports), run)) = found else { return Ok(Submitted::default()) };
        let Some(recorded) = function.recorded(launch.conversation) else { return Ok(Submitted::default()) };
        let indirect = Indirect { buffer: function.params.as_ref(), offset: function.grids_offset };
        let record = |command| {
            record_function(context, command, launch.described, pipelines, &recorded.sets, &indirect, |_| ());
        };
        let runnable = Runnable {
            inputs: &ports.inputs,
            outputs: &ports.outputs,
            dispatches: recorded.dispatches,
            record: &record,
        };
        run.prepare(context, &self.commands, launch, &runnable)
    }
}

impl LoadedFunction {
    /// Returns the dispatches of the function that are recorded for a conversation.
    fn recorded(&self, conversation: usize) -> Option<&Recorded> {
        let last = self.recorded.len().checked_sub(1)?;
        self.recorded.get(conversation.min(last))
    }

    /// Runs the function with a timestamp after every dispatch. The first call for a conversation records a command
    /// buffer.
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

/// Creates the resources of a function. If the function is a specialization, `general` is the function whose ports it
/// uses. `views` are the image views of the function's image slots.
fn load_function(
    shared: &FrameResources<'_>,
    function: &Function,
    general: Option<&LoadedFunction>,
    views: &[Option<vk::ImageView>],
    commands: &Commands,
) -> Result<LoadedFunction> {
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
            Some(Buffer::new(context, size, usage, MemoryUse::Params, "parameters")?)
        }
    };
    let create_ports = |ports: &[Port], input: bool| {
        let mut memories = Vec::new();
        for port in ports.iter().filter(|_| general.is_none()) {
            let slot = usize::try_from(port.slot).ok().and_then(|index| function.slots.get(index));
            memories.push(port_memory(context, slot, input)?);
        }
        Ok::<_, Error>(memories)
    };
    let mut loaded = LoadedFunction {
        recorded: Vec::new(),
        inputs: create_ports(&function.inputs, true)?,
        outputs: create_ports(&function.outputs, false)?,
        params,
        grids_offset,
    };
    let stateful = function.slots.iter().any(|slot| matches!(slot.kind, SlotKind::State(_)));
    for states in shared.states.iter().take(if stateful { usize::MAX } else { 1 }) {
        let slots = slot_resources(shared, function, general.unwrap_or(&loaded), &loaded, states, views)?;
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

/// Returns the Vulkan resource of each slot of a function. The buffers of inputs and outputs are fields of `ports`; the
/// buffer of the params slot is a field of `loaded`.
fn slot_resources(
    shared: &FrameResources<'_>,
    function: &Function,
    ports: &LoadedFunction,
    loaded: &LoadedFunction,
    states: &[Buffer],
    views: &[Option<vk::ImageView>],
) -> Result<Vec<Resource>> {
    let buffer_at = |buffers: &[Buffer], index: u32| {
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
            SlotKind::State(index) => buffer_at(states, index),
            SlotKind::Arena => {
                n_arenas += 1;
                buffer_at(shared.arenas, n_arenas - 1)
            }
            SlotKind::Input(index) => port(&ports.inputs, index),
            SlotKind::Output(index) => port(&ports.outputs, index),
            SlotKind::Params => loaded.params.as_ref().map(|buffer| buffer.raw),
        };
        let buffer = buffer
            .ok_or_else(|| Error::invalid(&function.name, "a slot refers to an item that does not exist"))?;
        slots.push(Resource::Buffer(buffer));
    }
    Ok(slots)
}

fn is_image(slot: &Slot) -> bool {
    matches!(slot.kind, SlotKind::Image(_))
}
