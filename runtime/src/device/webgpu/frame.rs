//! Resources of a run in flight: inputs, outputs, parameters, and the bind groups that use them.
//!
//! A session has one frame for each run that may be in flight. All frames use the same weights, arenas and textures.
//! Functions that use states have bind groups for each conversation.

use super::context::Context;
use super::memory::{BOUND, READ, create_buffer};
use super::pipelines::Pipelines;
use crate::error::{Error, Result};
use crate::format::{Binding, Function, Port, SlotKind, Variant};
use std::collections::BTreeMap;
use wgpu::{
    BindGroup, BindGroupDescriptor, BindGroupEntry, BindingResource, Buffer, BufferBinding, BufferSize,
    BufferView, SubmissionIndex, TextureView,
};

pub(super) struct Frame {
    pub(super) functions: Vec<LoadedFunction>,
    /// Submission of this frame's run, if nobody has waited for the run yet.
    pub(super) pending: Option<SubmissionIndex>,
    /// Outputs of the submitted run that the host will read: (function, port).
    pub(super) returned: Vec<(usize, usize)>,
}

/// A function that is ready to run. Specializations have no ports; they use the ports of the general function.
pub(super) struct LoadedFunction {
    pub(super) inputs: Vec<Input>,
    pub(super) outputs: Vec<Output>,
    pub(super) params: Option<Buffer>,
    /// Bytes of the params slot, followed by the grids of dispatches that depend on symbols.
    pub(super) words: Vec<u8>,
    pub(super) grids_offset: usize,
    /// True if the device has the current parameter words.
    pub(super) written: bool,
    /// Bind groups of the dispatches for each conversation; a single entry if the function uses no state.
    groups: Vec<Vec<BindGroup>>,
}

pub(super) struct Input {
    pub(super) device: Buffer,
    /// Bytes of an input that the host wrote, uploaded at the start of a run.
    pub(super) bytes: Vec<u8>,
}

pub(super) struct Output {
    pub(super) device: Buffer,
    /// Readback buffer of an output, mapped from the end of a run to the start of the next run.
    pub(super) back: Buffer,
    pub(super) mapped: bool,
    pub(super) view: Option<BufferView>,
}

/// Resources used by the functions of all frames.
pub(super) struct FrameResources<'a> {
    pub(super) context: &'a Context,
    pub(super) variant: &'a Variant,
    pub(super) pipelines: &'a Pipelines,
    pub(super) weights: &'a [Buffer],
    /// State buffers, one list for each conversation.
    pub(super) states: &'a [Vec<Buffer>],
    pub(super) arenas: &'a [Buffer],
    /// Texture views for the image slots of all functions, in order.
    pub(super) views: Vec<Option<&'a TextureView>>,
}

/// Key of a bind group: the index of its layout, and slot, offset and size of each binding.
type BindGroupKey = (usize, Vec<(u32, u64, u64)>);

/// wgpu resource that a slot of a function stands for.
enum Resource<'a> {
    Buffer(&'a Buffer),
    View(&'a TextureView),
    /// Index of a state, whose buffer depends on the conversation.
    State(usize),
}

impl Frame {
    pub(super) fn load(shared: &FrameResources<'_>) -> Result<Frame> {
        let mut functions: Vec<LoadedFunction> = Vec::with_capacity(shared.variant.functions.len());
        let mut views = shared.views.iter().copied();
        let mut first = 0;
        for (index, function) in shared.variant.functions.iter().enumerate() {
            first = if shared.variant.is_specialization(index) { first } else { index };
            let mut loaded = LoadedFunction::new(shared.context, function, first == index)?;
            let ports = functions.get(first).unwrap_or(&loaded);
            let groups = bind_groups(shared, function, ports, loaded.params.as_ref(), &mut views)?;
            loaded.groups = groups;
            functions.push(loaded);
        }
        Ok(Frame { functions, pending: None, returned: Vec::new() })
    }
}

impl LoadedFunction {
    fn new(context: &Context, function: &Function, has_ports: bool) -> Result<LoadedFunction> {
        let size = |port: &Port| {
            let slot = usize::try_from(port.slot).ok().and_then(|index| function.slots.get(index));
            slot.map(|slot| slot.size).ok_or_else(|| missing_slot(function))
        };
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        let (from, to) = (function.inputs.as_slice(), function.outputs.as_slice());
        for port in from.iter().filter(|_| has_ports) {
            let size = size(port)?;
            let bytes = vec![0; usize::try_from(size).map_err(|_| missing_slot(function))?];
            inputs.push(Input { device: create_buffer(context, size, BOUND, "input")?, bytes });
        }
        for port in to.iter().filter(|_| has_ports) {
            let device = create_buffer(context, size(port)?, BOUND, "output")?;
            let back = create_buffer(context, size(port)?, READ, "output, read")?;
            outputs.push(Output { device, back, mapped: false, view: None });
        }
        let params = function.slots.iter().find(|slot| slot.kind == SlotKind::Params);
        let params = params.map(|slot| create_buffer(context, slot.size, BOUND, "params")).transpose()?;
        let grids_offset =
            params.as_ref().and_then(|params| usize::try_from(params.size()).ok()).unwrap_or(0);
        let dynamic_grids =
            function.dispatches.iter().filter(|d| d.grid.iter().any(|size| size.as_constant().is_none()));
        let words = vec![0; grids_offset + 12 * dynamic_grids.count()];
        Ok(LoadedFunction {
            inputs,
            outputs,
            params,
            words,
            grids_offset,
            written: false,
            groups: Vec::new(),
        })
    }

    /// Returns the bind groups of the function's dispatches for a conversation.
    pub(super) fn groups(&self, conversation: usize) -> &[BindGroup] {
        let groups = self.groups.get(conversation).or(self.groups.last());
        groups.map(Vec::as_slice).unwrap_or_default()
    }
}

fn missing_slot(function: &Function) -> Error {
    Error::invalid(format!("function `{}`", function.name), "a slot does not exist")
}

/// Creates the bind groups of a function for every conversation. Equal bind groups are created once.
fn bind_groups<'a, 'v: 'a>(
    shared: &'a FrameResources<'v>,
    function: &Function,
    ports: &'a LoadedFunction,
    params: Option<&'a Buffer>,
    views: &mut impl Iterator<Item = Option<&'v TextureView>>,
) -> Result<Vec<Vec<BindGroup>>> {
    let buffer_at = |list: &'a [Buffer], index: u32| {
        usize::try_from(index).ok().and_then(|index| list.get(index)).map(Resource::Buffer)
    };
    let mut arenas = shared.arenas.iter();
    let mut resources = Vec::with_capacity(function.slots.len());
    let mut has_states = false;
    for slot in &function.slots {
        let resource = match slot.kind {
            SlotKind::Weights(index) => buffer_at(shared.weights, index),
            SlotKind::Arena => arenas.next().map(Resource::Buffer),
            SlotKind::Input(index) => {
                let port = usize::try_from(index).ok().and_then(|index| ports.inputs.get(index));
                port.map(|port| Resource::Buffer(&port.device))
            }
            SlotKind::Output(index) => {
                let port = usize::try_from(index).ok().and_then(|index| ports.outputs.get(index));
                port.map(|port| Resource::Buffer(&port.device))
            }
            SlotKind::Params => params.map(Resource::Buffer),
            SlotKind::State(index) => {
                has_states = true;
                usize::try_from(index).ok().map(Resource::State)
            }
            SlotKind::Image(_) => views.next().flatten().map(Resource::View),
        };
        resources.push(resource.ok_or_else(|| missing_slot(function))?);
    }
    let sets = if has_states { shared.states } else { shared.states.get(..1).unwrap_or_default() };
    sets.iter().map(|states| bind_groups_for_states(shared, function, &resources, states)).collect()
}

/// Creates the bind groups of a function with the states of one conversation.
fn bind_groups_for_states(
    shared: &FrameResources<'_>,
    function: &Function,
    resources: &[Resource<'_>],
    states: &[Buffer],
) -> Result<Vec<BindGroup>> {
    let mut known: BTreeMap<BindGroupKey, BindGroup> = BTreeMap::new();
    let mut groups = Vec::with_capacity(function.dispatches.len());
    for dispatch in &function.dispatches {
        let (_, layout, index) =
            shared.pipelines.get(dispatch.pipeline).ok_or_else(|| missing_slot(function))?;
        let key = (index, dispatch.bindings.iter().map(|b| (b.slot, b.offset, b.size)).collect());
        if let Some(group) = known.get(&key) {
            groups.push(group.clone());
            continue;
        }
        let mut entries = Vec::with_capacity(dispatch.bindings.len());
        for (number, binding) in (0u32..).zip(&dispatch.bindings) {
            let resource = usize::try_from(binding.slot).ok().and_then(|slot| resources.get(slot));
            let resource = match resource {
                Some(Resource::Buffer(buffer)) => buffer_binding(buffer, binding),
                Some(Resource::State(state)) => {
                    buffer_binding(states.get(*state).ok_or_else(|| missing_slot(function))?, binding)
                }
                Some(Resource::View(view)) => BindingResource::TextureView(view),
                None => return Err(missing_slot(function)),
            };
            entries.push(BindGroupEntry { binding: number, resource });
        }
        let label = Some(dispatch.label.as_str());
        let described = BindGroupDescriptor { label, layout, entries: &entries };
        let group = shared.context.device.create_bind_group(&described);
        groups.push(group.clone());
        known.insert(key, group);
    }
    shared.context.check("creating bind groups", 0)?;
    Ok(groups)
}

fn buffer_binding<'a>(buffer: &'a Buffer, binding: &Binding) -> BindingResource<'a> {
    let size = BufferSize::new(binding.size);
    BindingResource::Buffer(BufferBinding { buffer, offset: binding.offset, size })
}
