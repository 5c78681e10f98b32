//! Checks that a manifest is consistent, so later code can rely on it.
//!
//! The invariants of every variant:
//! - every index is in range and refers to an item of the right kind;
//! - offsets and sizes are aligned, lie inside their slot, and do not overflow;
//! - weight placements do not overlap; parameter words overlap only if they are equal;
//! - expressions are well-formed and refer to existing symbols;
//! - ports, pipelines and bindings stay within the declared limits, which the runtime compares with the device;
//! - nothing writes to weights, inputs or parameters.
//!
//! The writer runs these checks too, so a compiler cannot write a bundle that readers reject.

use super::{
    ArtifactKind, Binding, BindingKind, Dispatch, Expr, ExprError, Feature, Function, Limits, Manifest,
    Pipeline, Port, Requirements, Slot, SlotKind, Variant,
};
use crate::{Error, order};

/// Maximum length of a list in a variant or function, such as its pipelines, slots or symbols.
const MAX_COUNT: usize = 1 << 20;
/// Maximum bindings per pipeline.
const MAX_BINDINGS: usize = 64;
/// Maximum number of image slots of a variant, summed over its functions. No driver allows more allocations.
const MAX_IMAGES: usize = 4096;
/// Maximum dimensions of a port.
const MAX_RANK: usize = 16;

/// A violation of the bundle format: its place in the manifest, as path components from the outermost inward, and its reason.
struct Fault {
    place: Vec<String>,
    reason: String,
}

type Check<T = ()> = Result<T, Fault>;

fn fault<T>(reason: impl Into<String>) -> Check<T> {
    Err(Fault { place: Vec::new(), reason: reason.into() })
}

/// Adds a path component to the fault of a failed check. The component is computed only on failure.
trait At<T> {
    fn at(self, place: impl FnOnce() -> String) -> Check<T>;
}

impl<T> At<T> for Check<T> {
    fn at(self, place: impl FnOnce() -> String) -> Check<T> {
        self.map_err(|mut fault| {
            fault.place.insert(0, place());
            fault
        })
    }
}

impl<T> At<T> for Result<T, ExprError> {
    fn at(self, place: impl FnOnce() -> String) -> Check<T> {
        self.map_err(|error| Fault { place: vec![place()], reason: error.to_string() })
    }
}

/// Checks everything about a manifest that can be checked without the file.
pub fn validate(manifest: &Manifest) -> Result<(), Error> {
    check_manifest(manifest).map_err(|Fault { place, reason }| Error::Invalid {
        place: match place.is_empty() {
            true => "manifest".to_owned(),
            false => place.join("."),
        },
        reason,
    })
}

fn check_manifest(manifest: &Manifest) -> Check {
    if manifest.variants.is_empty() {
        return fault("the bundle has no variant");
    }
    for (index, chunk) in manifest.chunks.iter().enumerate() {
        if chunk.size == 0 || chunk.offset % 256 != 0 {
            return fault("the chunk is empty, or its offset is not a multiple of 256")
                .at(|| format!("chunks[{index}]"));
        }
    }
    for (index, artifact) in manifest.artifacts.iter().enumerate() {
        let place = || format!("artifacts[{index}]");
        if artifact.size == 0 || artifact.offset % 16 != 0 {
            return fault("the artifact is empty, or its offset is not a multiple of 16").at(place);
        }
        // A SPIR-V module has a header of five words.
        if artifact.kind == ArtifactKind::Spirv && (artifact.size % 4 != 0 || artifact.size < 20) {
            return fault("a SPIR-V module cannot have this size").at(place);
        }
    }
    let mut names = Vec::new();
    for (index, attachment) in manifest.attachments.iter().enumerate() {
        let artifact = lookup(&manifest.artifacts, attachment.artifact, "artifact");
        let artifact = artifact.at(|| format!("attachments[{index}]"))?;
        if artifact.kind != ArtifactKind::Data {
            return fault("the attachment's artifact is a shader, not data")
                .at(|| format!("attachments[{index}]"));
        }
        names.push(attachment.name.as_str());
    }
    check_unique(names.into_iter(), "attachments")?;
    for (index, variant) in manifest.variants.iter().enumerate() {
        check_variant(manifest, variant).at(|| format!("variants[{index}]"))?;
    }
    Ok(())
}

fn check_variant(manifest: &Manifest, variant: &Variant) -> Check {
    for length in
        [variant.pipelines.len(), variant.weights.len(), variant.states.len(), variant.functions.len()]
    {
        if length > MAX_COUNT {
            return fault(format!("a list of the variant has more than {MAX_COUNT} elements"));
        }
    }
    check_requirements(&variant.requirements).at(|| "requirements".to_owned())?;
    for (index, pipeline) in variant.pipelines.iter().enumerate() {
        check_pipeline(manifest, variant, pipeline).at(|| format!("pipelines[{index}]"))?;
    }
    let sizes =
        variant.weights.iter().map(|slot| slot.size).chain(variant.states.iter().map(|slot| slot.size));
    for size in sizes {
        check_slot_size(size).at(|| "weights or states".to_owned())?;
    }
    check_placements(manifest, variant).at(|| "placements".to_owned())?;
    let entry_points =
        variant.functions.iter().enumerate().filter(|(index, _)| !variant.is_specialization(*index));
    check_unique(entry_points.map(|(_, function)| function.name.as_str()), "functions")?;
    let slots = variant.functions.iter().flat_map(|function| &function.slots);
    if slots.filter(|slot| matches!(slot.kind, SlotKind::Image(_))).count() > MAX_IMAGES {
        return fault(format!("the variant has more than {MAX_IMAGES} images"));
    }
    let mut general = None;
    for (index, function) in variant.functions.iter().enumerate() {
        let first = general.filter(|_| variant.is_specialization(index));
        general = Some(first.unwrap_or(function));
        first
            .map_or(Ok(()), |first| check_specialization(first, function))
            .and_then(|()| check_function(manifest, variant, function))
            .at(|| format!("functions[{index}]"))?;
    }
    check_limits(&variant.needed_limits(), &variant.requirements.limits)
        .at(|| "requirements.limits".to_owned())
}

fn check_requirements(requirements: &Requirements) -> Check {
    let Limits { storage_alignment, uniform_alignment, .. } = requirements.limits;
    for alignment in [storage_alignment, uniform_alignment] {
        if !alignment.is_power_of_two() || !(4..=256).contains(&alignment) {
            return fault(format!("alignment {alignment} is not a power of two in 4..256"));
        }
    }
    if requirements.subgroup_sizes.iter().any(|size| !size.is_power_of_two() || *size > 128) {
        return fault("a subgroup size is not a power of two up to 128");
    }
    if !requirements.matrix_shapes.is_empty() && !requirements.features.contains(Feature::CooperativeMatrix) {
        return fault("matrix shapes need the feature cooperative_matrix");
    }
    Ok(())
}

fn check_pipeline(manifest: &Manifest, variant: &Variant, pipeline: &Pipeline) -> Check {
    let artifact = lookup(&manifest.artifacts, pipeline.artifact, "artifact")?;
    if artifact.kind.api_name().is_none() {
        return fault("the pipeline's artifact is not a shader");
    }
    if artifact.kind != manifest.language(variant) {
        return fault("the pipeline's shader is in another language than the first pipeline's shader");
    }
    let texels = pipeline.bindings.iter().any(|kind| matches!(kind, BindingKind::Texels(_)));
    if texels && artifact.kind != ArtifactKind::Spirv {
        return fault("texel buffers need a SPIR-V shader");
    }
    if pipeline.entry.is_empty() || pipeline.entry.contains('\0') {
        return fault("the entry point's name is empty or contains a zero byte");
    }
    if pipeline.bindings.len() > MAX_BINDINGS {
        return fault(format!("the pipeline has more than {MAX_BINDINGS} bindings"));
    }
    if pipeline.workgroup_size.contains(&0) {
        return fault("a workgroup size is zero");
    }
    if let Some(size) = pipeline.required_subgroup_size {
        if !size.is_power_of_two() || size > 128 {
            return fault(format!("required subgroup size {size} is not a power of two up to 128"));
        }
        if !variant.requirements.features.contains(Feature::SubgroupSizeControl) {
            return fault("a required subgroup size needs the feature subgroup_size_control");
        }
    }
    Ok(())
}

fn check_placements(manifest: &Manifest, variant: &Variant) -> Check {
    let mut ranges = Vec::with_capacity(variant.placements.len().min(MAX_COUNT));
    for (index, placement) in variant.placements.iter().enumerate() {
        let place = || format!("[{index}]");
        let chunk = lookup(&manifest.chunks, placement.chunk, "chunk").at(place)?;
        let slot = lookup(&variant.weights, placement.slot, "weight slot").at(place)?;
        if placement.offset % 4 != 0 {
            return fault("the offset in the slot is not a multiple of 4").at(place);
        }
        check_inside(placement.offset, chunk.size, slot.size).at(place)?;
        ranges.push((placement.slot, placement.offset, placement.offset.saturating_add(chunk.size)));
    }
    let sorted: Vec<_> =
        order::sorted_indices(ranges.iter().map(|(slot, start, _)| (u64::from(*slot), *start)))
            .into_iter()
            .filter_map(|index| ranges.get(index))
            .collect();
    match sorted.windows(2).any(|pair| matches!(pair, [a, b] if a.0 == b.0 && b.1 < a.2)) {
        true => fault("two placements overlap"),
        false => Ok(()),
    }
}

fn check_function(manifest: &Manifest, variant: &Variant, function: &Function) -> Check {
    if function.slots.len() > MAX_COUNT || function.symbols.len() > MAX_COUNT {
        return fault(format!("a list of the function has more than {MAX_COUNT} elements"));
    }
    for symbol in &function.symbols {
        if symbol.min > symbol.max || symbol.min < 0 {
            return fault(format!(
                "symbol `{}` has the empty or negative range {}..{}",
                symbol.name, symbol.min, symbol.max
            ));
        }
    }
    check_unique(function.symbols.iter().map(|symbol| symbol.name.as_str()), "symbols")?;
    check_unique(function.inputs.iter().map(|port| port.name.as_str()), "inputs")?;
    check_unique(function.outputs.iter().map(|port| port.name.as_str()), "outputs")?;
    let mut n_params = 0;
    for (index, slot) in function.slots.iter().enumerate() {
        check_slot(manifest, variant, function, index, slot).at(|| format!("slots[{index}]"))?;
        n_params += usize::from(slot.kind == SlotKind::Params);
    }
    if n_params > 1 {
        return fault("the function has more than one params slot");
    }
    for (index, port) in function.inputs.iter().enumerate() {
        check_port(function, port, index, SlotKind::Input).at(|| format!("inputs[{index}]"))?;
    }
    for (index, port) in function.outputs.iter().enumerate() {
        check_port(function, port, index, SlotKind::Output).at(|| format!("outputs[{index}]"))?;
    }
    let language = manifest.language(variant);
    let forbids_aliases = matches!(language, ArtifactKind::Wgsl | ArtifactKind::Hlsl);
    for (index, dispatch) in function.dispatches.iter().enumerate() {
        let place = || format!("dispatches[{index}]");
        check_dispatch(variant, function, dispatch).at(place)?;
        if forbids_aliases && binds_for_reading_and_writing(variant, function, dispatch) {
            return fault("the dispatch binds the same buffer or image both for reading and for writing")
                .at(place);
        }
    }
    check_params(function)
}

/// Checks that `specialization` can run instead of `general` for some symbol values: it needs symbols with
/// equal names and with bounds inside the bounds of `general`, and equal inputs and outputs in slots of equal size.
fn check_specialization(general: &Function, specialization: &Function) -> Check {
    let symbols = general.symbols.iter().zip(&specialization.symbols);
    let narrower = symbols.into_iter().all(|(a, b)| a.name == b.name && a.min <= b.min && b.max <= a.max);
    let slot = |function: &'_ Function, slot: u32| {
        usize::try_from(slot).ok().and_then(|slot| function.slots.get(slot)).map(|slot| slot.size)
    };
    let mut ports = general.inputs.iter().chain(&general.outputs);
    let same = general.symbols.len() == specialization.symbols.len()
        && general.inputs == specialization.inputs
        && general.outputs == specialization.outputs
        && ports.all(|port| slot(general, port.slot) == slot(specialization, port.slot));
    match narrower && same {
        true => Ok(()),
        false => {
            fault("the specialization's symbols or ports do not match the first function of the same name")
        }
    }
}

fn check_slot(
    manifest: &Manifest,
    variant: &Variant,
    function: &Function,
    slot_index: usize,
    slot: &Slot,
) -> Check {
    check_slot_size(slot.size)?;
    let same_size = |size: u64| match size == slot.size {
        true => Ok(()),
        false => {
            fault(format!("the slot has size {}, but the item that it refers to has size {size}", slot.size))
        }
    };
    let same_slot = |slot: u32| match usize::try_from(slot) == Ok(slot_index) {
        true => Ok(()),
        false => fault(format!("the port of this slot names slot {slot}")),
    };
    match slot.kind {
        SlotKind::Weights(index) => same_size(lookup(&variant.weights, index, "weight slot")?.size),
        SlotKind::State(index) => same_size(lookup(&variant.states, index, "state")?.size),
        SlotKind::Input(index) => same_slot(lookup(&function.inputs, index, "input")?.slot),
        SlotKind::Output(index) => same_slot(lookup(&function.outputs, index, "output")?.slot),
        SlotKind::Image(image) => {
            same_size(image.size().unwrap_or(0))?;
            match image.chunk {
                Some(chunk) => same_size(lookup(&manifest.chunks, chunk, "chunk")?.size),
                None => Ok(()),
            }
        }
        SlotKind::Arena | SlotKind::Params => Ok(()),
    }
}

fn check_slot_size(size: u64) -> Check {
    match size == 0 || !size.is_multiple_of(4) || size > i64::MAX as u64 {
        true => fault(format!("buffer size {size} is not a positive multiple of 4")),
        false => Ok(()),
    }
}

fn check_port(function: &Function, port: &Port, index: usize, kind: fn(u32) -> SlotKind) -> Check {
    let slot = lookup(&function.slots, port.slot, "slot")?;
    if u32::try_from(index).map(kind) != Ok(slot.kind) {
        return fault("the port's slot belongs to another port");
    }
    if !port.host_type.fits(port.device_type) {
        return fault(format!("{} cannot be stored as {}", port.host_type, port.device_type));
    }
    if port.shape.len() > MAX_RANK {
        return fault(format!("the port has more than {MAX_RANK} dimensions"));
    }
    if !port.offset.is_multiple_of(4) {
        return fault("the offset in the slot is not a multiple of 4");
    }
    check_exprs(&port.shape, function)?;
    for symbols in symbol_extremes(function) {
        let shape = port.shape_at(&symbols).at(|| "shape".to_owned())?;
        let Some(size) = port.device_size(&shape) else {
            return fault(format!("shape {shape:?} is negative or too large"));
        };
        check_inside(port.offset, size, slot.size)?;
    }
    Ok(())
}

fn check_dispatch(variant: &Variant, function: &Function, dispatch: &Dispatch) -> Check {
    let pipeline = lookup(&variant.pipelines, dispatch.pipeline, "pipeline")?;
    if pipeline.bindings.len() != dispatch.bindings.len() {
        return fault(format!(
            "the dispatch has {} bindings, but its pipeline has {}",
            dispatch.bindings.len(),
            pipeline.bindings.len()
        ));
    }
    for (index, (binding, kind)) in dispatch.bindings.iter().zip(&pipeline.bindings).enumerate() {
        check_binding(variant, function, binding, *kind).at(|| format!("bindings[{index}]"))?;
    }
    check_exprs(&dispatch.grid, function)?;
    check_exprs(&dispatch.params, function)?;
    check_exprs([&dispatch.flops, &dispatch.bytes], function)?;
    for size in dispatch.grid.iter().filter_map(Expr::as_constant) {
        if u32::try_from(size).is_err() {
            return fault(format!("grid size {size} does not fit 32 bits"));
        }
    }
    if dispatch.params.is_empty() {
        return Ok(());
    }
    let Some(slot) = function.slots.iter().find(|slot| slot.kind == SlotKind::Params) else {
        return fault("the dispatch has parameters, but the function has no params slot");
    };
    if !dispatch.params_offset.is_multiple_of(4) {
        return fault("params_offset is not a multiple of 4");
    }
    check_inside(dispatch.params_offset, params_size(dispatch), slot.size)
}

fn check_binding(variant: &Variant, function: &Function, binding: &Binding, kind: BindingKind) -> Check {
    let slot = lookup(&function.slots, binding.slot, "slot")?;
    let limits = &variant.requirements.limits;
    let alignment = match kind {
        BindingKind::Uniform => limits.uniform_alignment,
        _ => limits.storage_alignment,
    };
    let bound = match kind {
        BindingKind::ImageRead(texture) | BindingKind::ImageWrite(texture) => Some(texture),
        _ => None,
    };
    let image = match slot.kind {
        SlotKind::Image(image) => Some(image),
        _ => None,
    };
    if bound != image.map(|image| image.texture) || image.is_some() && binding.size != slot.size {
        return fault(
            "the pipeline needs a buffer instead of an image, an image instead of a buffer, another kind of image, or a whole image",
        );
    }
    if !binding.offset.is_multiple_of(u64::from(alignment)) {
        return fault(format!(
            "the bound range's offset {} is not a multiple of {alignment}",
            binding.offset
        ));
    }
    if binding.size == 0 || !binding.size.is_multiple_of(4) {
        return fault(format!("the bound range's size {} is not a positive multiple of 4", binding.size));
    }
    let constant = match slot.kind {
        SlotKind::Weights(_) | SlotKind::Input(_) | SlotKind::Params => true,
        SlotKind::Image(image) => image.chunk.is_some(),
        _ => false,
    };
    if constant && matches!(kind, BindingKind::StorageReadWrite | BindingKind::ImageWrite(_)) {
        return fault("the dispatch writes to weights, to an input or to the parameters");
    }
    check_inside(binding.offset, binding.size, slot.size)
}

/// True if the dispatch binds one buffer or image both for reading and for writing.
fn binds_for_reading_and_writing(variant: &Variant, function: &Function, dispatch: &Dispatch) -> bool {
    let kinds =
        lookup(&variant.pipelines, dispatch.pipeline, "").map_or(&[][..], |pipeline| &pipeline.bindings);
    let side = |writes: bool| {
        let on_side = move |kind: &BindingKind| {
            matches!(kind, BindingKind::StorageReadWrite | BindingKind::ImageWrite(_)) == writes
        };
        dispatch
            .bindings
            .iter()
            .zip(kinds)
            .filter(move |(_, kind)| on_side(kind))
            .map(|(binding, _)| binding.slot)
    };
    // Two slots are the same buffer if both refer to the same state.
    let state = |slot: u32| match lookup(&function.slots, slot, "").map(|slot| slot.kind) {
        Ok(SlotKind::State(index)) => Some(index),
        _ => None,
    };
    side(true).any(|w| side(false).any(|r| r == w || state(w).is_some() && state(w) == state(r)))
}

/// Checks that dispatches use overlapping parameter words only if the words are equal.
fn check_params(function: &Function) -> Check {
    let owners: Vec<&Dispatch> =
        function.dispatches.iter().filter(|dispatch| !dispatch.params.is_empty()).collect();
    let sorted =
        order::sorted_indices(owners.iter().map(|dispatch| (dispatch.params_offset, params_size(dispatch))));
    let owners: Vec<_> = sorted.into_iter().filter_map(|index| owners.get(index)).collect();
    for pair in owners.windows(2) {
        let [first, second] = pair else { continue };
        let apart = first.params_offset.saturating_add(params_size(first)) <= second.params_offset;
        let same = first.params_offset == second.params_offset && first.params == second.params;
        if !apart && !same {
            return fault(format!(
                "the parameters of the dispatches `{}` and `{}` overlap",
                first.label, second.label
            ));
        }
    }
    Ok(())
}

/// Checks that the needed limits are within the declared limits.
fn check_limits(needed: &Limits, declared: &Limits) -> Check {
    let used = needed.named();
    match used.iter().zip(declared.named()).find(|((_, needed), (_, declared))| needed > declared) {
        Some(((name, needed), (_, declared))) => {
            fault(format!("the limit {name} is declared as {declared}, but {needed} is used"))
        }
        None => Ok(()),
    }
}

/// Returns the symbol values with every symbol at its minimum, and with every symbol at its maximum.
pub(super) fn symbol_extremes(function: &Function) -> [Vec<i64>; 2] {
    [
        function.symbols.iter().map(|symbol| symbol.min).collect(),
        function.symbols.iter().map(|symbol| symbol.max).collect(),
    ]
}

fn check_exprs<'a>(exprs: impl IntoIterator<Item = &'a Expr>, function: &Function) -> Check {
    exprs.into_iter().try_for_each(|expr| expr.check(function.symbols.len())).at(|| "expression".to_owned())
}

fn params_size(dispatch: &Dispatch) -> u64 {
    (dispatch.params.len() as u64).saturating_mul(4)
}

fn lookup<'a, T>(list: &'a [T], index: u32, what: &str) -> Check<&'a T> {
    match usize::try_from(index).ok().and_then(|index| list.get(index)) {
        Some(item) => Ok(item),
        None => fault(format!("{what} {index} does not exist; there are {}", list.len())),
    }
}

fn check_inside(offset: u64, size: u64, total: u64) -> Check {
    match offset.checked_add(size).is_some_and(|end| end <= total) {
        true => Ok(()),
        false => {
            fault(format!("a range of {size} bytes at offset {offset} exceeds its slot of {total} bytes"))
        }
    }
}

fn check_unique<'a>(names: impl Iterator<Item = &'a str>, what: &str) -> Check {
    let names: Vec<&str> = names.collect();
    let sorted = order::sorted_string_indices(&names);
    let sorted: Vec<_> = sorted.into_iter().filter_map(|index| names.get(index)).collect();
    match sorted.windows(2).find(|pair| matches!(pair, [a, b] if a == b)).and_then(|pair| pair.first()) {
        Some(name) => fault(format!("two items have the name `{name}`")).at(|| what.to_owned()),
        None => Ok(()),
    }
}
