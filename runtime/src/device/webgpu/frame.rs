//! What a run in flight has for itself: inputs, outputs, parameters, and the bind groups that refer to them.
//!
//! A session has as many frames as runs may be in flight at once. Weights, arenas and textures are shared by all of them.
//! States come in sets, one for each conversation; so do the bind groups of functions that use states.

use super::context::Context;
use super::memory::{BOUND, READ, buffer};
use super::pipelines::Pipelines;
use crate::error::{Error, Result};
use crate::format::{Binding, Function, Port, SlotKind, Variant};
use std::collections::BTreeMap;
use wgpu::{
    BindGroup, BindGroupDescriptor, BindGroupEntry, BindingResource, Buffer, BufferBinding, BufferSize,
    BufferView, SubmissionIndex, TextureView,
};

pub(super) struct Frame {
    pub(super) functions: Vec<Loaded>,
    /// A run that was submitted and that nobody has waited for.
    pub(super) pending: Option<SubmissionIndex>,
    /// Outputs that the host will read of that run: (function, port).
    pub(super) returned: Vec<(usize, usize)>,
}

/// A function that is ready to run. Of functions of one name the first has the ports of all.
pub(super) struct Loaded {
    pub(super) inputs: Vec<Input>,
    pub(super) outputs: Vec<Output>,
    pub(super) params: Option<Buffer>,
    /// The params slot, and behind it the grids of dispatches that depend on symbols.
    pub(super) words: Vec<u8>,
    pub(super) grids_offset: usize,
    /// Whether the device has the words as they are.
    pub(super) written: bool,
    /// For each conversation, or one where the function uses no state: for each dispatch.
    groups: Vec<Vec<BindGroup>>,
}

pub(super) struct Input {
    pub(super) device: Buffer,
    /// What the host writes, for the device to get when a run starts.
    pub(super) bytes: Vec<u8>,
}

pub(super) struct Output {
    pub(super) device: Buffer,
    /// What the host reads, mapped from the end of a run to the start of the next.
    pub(super) back: Buffer,
    pub(super) mapped: bool,
    pub(super) view: Option<BufferView>,
}

/// What the functions of all frames share.
pub(super) struct Shared<'a> {
    pub(super) context: &'a Context,
    pub(super) variant: &'a Variant,
    pub(super) pipelines: &'a Pipelines,
    pub(super) weights: &'a [Buffer],
    /// For each conversation.
    pub(super) states: &'a [Vec<Buffer>],
    pub(super) arenas: &'a [Buffer],
    /// Of the image slots of all functions, in order.
    pub(super) views: Vec<Option<&'a TextureView>>,
}

/// What a bind group is made of: the index of its layout, and for each binding its slot, offset and size.
type Bound = (usize, Vec<(u32, u64, u64)>);

/// What a slot is on the device.
enum Resource<'a> {
    Buffer(&'a Buffer),
    View(&'a TextureView),
    /// A state, of whichever conversation.
    State(usize),
}

impl Frame {
    pub(super) fn load(shared: &Shared<'_>) -> Result<Frame> {
        let mut functions: Vec<Loaded> = Vec::with_capacity(shared.variant.functions.len());
        let mut views = shared.views.iter().copied();
        let mut first = 0;
        for (index, function) in shared.variant.functions.iter().enumerate() {
            first = if shared.variant.is_special(index) { first } else { index };
            let mut own = Loaded::new(shared.context, function, first == index)?;
            let ports = functions.get(first).unwrap_or(&own);
            let groups = groups(shared, function, ports, own.params.as_ref(), &mut views)?;
            own.groups = groups;
            functions.push(own);
        }
        Ok(Frame { functions, pending: None, returned: Vec::new() })
    }
}

impl Loaded {
    fn new(context: &Context, function: &Function, has_ports: bool) -> Result<Loaded> {
        let size = |port: &Port| {
            let slot = usize::try_from(port.slot).ok().and_then(|index| function.slots.get(index));
            slot.map(|slot| slot.size).ok_or_else(|| missing(function))
        };
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        let (from, to) = (function.inputs.as_slice(), function.outputs.as_slice());
        for port in from.iter().filter(|_| has_ports) {
            let size = size(port)?;
            let bytes = vec![0; usize::try_from(size).map_err(|_| missing(function))?];
            inputs.push(Input { device: buffer(context, size, BOUND, "input")?, bytes });
        }
        for port in to.iter().filter(|_| has_ports) {
            let device = buffer(context, size(port)?, BOUND, "output")?;
            let back = buffer(context, size(port)?, READ, "output, read")?;
            outputs.push(Output { device, back, mapped: false, view: None });
        }
        let params = function.slots.iter().find(|slot| slot.kind == SlotKind::Params);
        let params = params.map(|slot| buffer(context, slot.size, BOUND, "params")).transpose()?;
        let grids_offset =
            params.as_ref().and_then(|params| usize::try_from(params.size()).ok()).unwrap_or(0);
        let open =
            function.dispatches.iter().filter(|d| d.grid.iter().any(|size| size.as_constant().is_none()));
        let words = vec![0; grids_offset + 12 * open.count()];
        Ok(Loaded { inputs, outputs, params, words, grids_offset, written: false, groups: Vec::new() })
    }

    /// The bind groups of dispatches with the states of a conversation.
    pub(super) fn groups(&self, conversation: usize) -> &[BindGroup] {
        let own = self.groups.get(conversation).or(self.groups.last());
        own.map(Vec::as_slice).unwrap_or_default()
    }
}

fn missing(function: &Function) -> Error {
    Error::invalid(format!("function `{}`", function.name), "a slot does not exist")
}

/// The bind groups of a function; those that bind the same are one.
fn groups<'a, 'v: 'a>(
    shared: &'a Shared<'v>,
    function: &Function,
    ports: &'a Loaded,
    params: Option<&'a Buffer>,
    views: &mut impl Iterator<Item = Option<&'v TextureView>>,
) -> Result<Vec<Vec<BindGroup>>> {
    let at = |list: &'a [Buffer], index: u32| {
        usize::try_from(index).ok().and_then(|index| list.get(index)).map(Resource::Buffer)
    };
    let mut arenas = shared.arenas.iter();
    let mut resources = Vec::with_capacity(function.slots.len());
    let mut has_states = false;
    for slot in &function.slots {
        let resource = match slot.kind {
            SlotKind::Weights(index) => at(shared.weights, index),
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
        resources.push(resource.ok_or_else(|| missing(function))?);
    }
    let sets = if has_states { shared.states } else { shared.states.get(..1).unwrap_or_default() };
    sets.iter().map(|states| set(shared, function, &resources, states)).collect()
}

/// The bind groups with the states of one conversation.
fn set(
    shared: &Shared<'_>,
    function: &Function,
    resources: &[Resource<'_>],
    states: &[Buffer],
) -> Result<Vec<BindGroup>> {
    let mut known: BTreeMap<Bound, BindGroup> = BTreeMap::new();
    let mut groups = Vec::with_capacity(function.dispatches.len());
    for dispatch in &function.dispatches {
        let (_, layout, index) = shared.pipelines.get(dispatch.pipeline).ok_or_else(|| missing(function))?;
        let key = (index, dispatch.bindings.iter().map(|b| (b.slot, b.offset, b.size)).collect());
        if let Some(group) = known.get(&key) {
            groups.push(group.clone());
            continue;
        }
        let mut entries = Vec::with_capacity(dispatch.bindings.len());
        for (number, binding) in (0u32..).zip(&dispatch.bindings) {
            let resource = usize::try_from(binding.slot).ok().and_then(|slot| resources.get(slot));
            let resource = match resource {
                Some(Resource::Buffer(buffer)) => part(buffer, binding),
                Some(Resource::State(state)) => {
                    part(states.get(*state).ok_or_else(|| missing(function))?, binding)
                }
                Some(Resource::View(view)) => BindingResource::TextureView(view),
                None => return Err(missing(function)),
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

fn part<'a>(buffer: &'a Buffer, binding: &Binding) -> BindingResource<'a> {
    let size = BufferSize::new(binding.size);
    BindingResource::Buffer(BufferBinding { buffer, offset: binding.offset, size })
}
