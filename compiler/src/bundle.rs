//! Assembling a bundle: shaders emitted, constants packed and streamed out, plans turned into the format's records.

mod function;
mod images;
mod requirements;
mod stream;
mod types;
mod weights;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;

use drift_format::codec::{BundleWriter, Summary};
use drift_format::{ArtifactKind, BindingKind, Hash, Pipeline, Provenance, StateSlot, Variant};
use rayon::prelude::*;

use crate::emit::{self, Code, Language, Shader, spirv};
use crate::error::{Error, Result};
use crate::plan::{Dispatch, Location, Plan};
use crate::shader::resource::Resource;
use crate::target::TargetProfile;
use function::{Shared, function};
use types::device_type;
use weights::{Chunks, Weights};

/// The functions of one target, planned.
#[derive(Debug)]
pub struct Planned<'a> {
    /// The target.
    pub target: &'a TargetProfile,
    /// Functions with their names; functions of one target share weights. Several of one name are the same function for
    /// different bounds of its symbols, the first for all of them.
    pub functions: Vec<(String, &'a Plan)>,
}

/// Writes a bundle.
///
/// # Errors
/// A shader that is not valid, a limit of a target that is exceeded, or a file that cannot be written.
pub fn write(
    path: &Path,
    provenance: Provenance,
    planned: &[Planned<'_>],
    attachments: &[(String, Vec<u8>)],
    emit: spirv::Options,
) -> Result<Summary> {
    let mut writer = BundleWriter::create(path).map_err(format_error)?;
    let modules = emit_all(planned, emit)?;
    let mut variants = Vec::with_capacity(planned.len());
    let mut chunks = Chunks::new();
    for one in planned {
        variants.push(variant(&mut writer, one, &modules, &mut chunks)?);
    }
    for (name, bytes) in attachments {
        writer.attach(name, bytes).map_err(format_error)?;
    }
    writer.finish(provenance, variants).map_err(format_error)
}

fn format_error(e: drift_format::Error) -> Error {
    match e {
        drift_format::Error::Io { path, source } => Error::Io { path, reason: source.to_string() },
        other => Error::internal("bundle", other.to_string()),
    }
}

/// Emitted modules, by language and text.
type Modules<'a> = BTreeMap<(Language, &'a str), Shader>;

/// Emits every distinct module once, in parallel.
fn emit_all<'a>(planned: &[Planned<'a>], options: spirv::Options) -> Result<Modules<'a>> {
    let mut sources: BTreeMap<(Language, &'a str), &'a Dispatch> = BTreeMap::new();
    for one in planned {
        let language = Language::from(one.target.api.name);
        for step in one.functions.iter().flat_map(|(_, plan)| &plan.dispatches) {
            sources.entry((language, &step.launch.wgsl)).or_insert(step);
        }
    }
    sources
        .into_par_iter()
        .map(|((language, wgsl), step)| {
            let matrix = step.launch.matrix.as_ref().map(spirv::Matrix::from);
            let module = emit::emit(wgsl, language, spirv::Options { matrix, ..options }).map_err(|e| {
                Error::internal("emit", format!("kernel {} for `{}`: {e}", step.launch.kernel, step.label))
            })?;
            Ok(((language, wgsl), module))
        })
        .collect()
}

/// One variant: its weights written, its shaders added.
fn variant(
    writer: &mut BundleWriter,
    planned: &Planned<'_>,
    modules: &Modules<'_>,
    chunks: &mut Chunks,
) -> Result<Variant> {
    let target = planned.target;
    // Functions name weight slots with their sizes, so all of them are filled first.
    let mut weights = Weights::new(target);
    let plans = planned.functions.iter().map(|(_, plan)| *plan);
    let places = plans.map(|plan| weights.add(writer, plan, chunks)).collect::<Result<Vec<_>>>()?;
    let mut pipelines: Vec<Pipeline> = Vec::new();
    let mut known: Pipelines<'_> = BTreeMap::new();
    for step in planned.functions.iter().flat_map(|(_, plan)| &plan.dispatches) {
        let wgsl = step.launch.wgsl.as_str();
        if let Entry::Vacant(place) = known.entry(key(step)) {
            let shader = modules.get(&(Language::from(target.api.name), wgsl));
            let shader = shader.ok_or_else(|| Error::internal("bundle", "a module was not emitted"))?;
            let artifact = match &shader.code {
                Code::Spirv(words) => writer.spirv(words),
                Code::Wgsl(text) => writer.artifact(ArtifactKind::Wgsl, text.as_bytes()),
                Code::Msl(text) => writer.artifact(ArtifactKind::Msl, text.as_bytes()),
                Code::Hlsl(text) => writer.artifact(ArtifactKind::Hlsl, text.as_bytes()),
            };
            let artifact = artifact.map_err(format_error)?;
            place.insert(index(pipelines.len())?);
            pipelines.push(pipeline(step, artifact, &shader.entry));
        }
    }
    let states = states(planned)?;
    let shared = Shared { target, weights: &weights.slots, states: &states, pipelines: &known };
    let mut functions = Vec::with_capacity(places.len());
    for ((name, plan), places) in planned.functions.iter().zip(&places) {
        let general =
            planned.functions.iter().find(|(first, _)| first == name).map_or(*plan, |(_, plan)| *plan);
        functions.push(function((name, &general.bounds), plan, places, &shared)?);
    }
    let mut variant = Variant {
        target: target.name.clone(),
        profile_hash: Hash(target.hash()?),
        pipelines,
        weights: weights.slots,
        placements: weights.placements,
        states,
        functions,
        ..Variant::default()
    };
    requirements::declare(&mut variant, planned);
    Ok(variant)
}

/// The states of all functions, each once.
fn states(planned: &Planned<'_>) -> Result<Vec<StateSlot>> {
    let mut states: Vec<StateSlot> = Vec::new();
    for state in planned.functions.iter().flat_map(|(_, plan)| &plan.states) {
        match states.iter().find(|slot| slot.name == state.name) {
            None => states.push(StateSlot { name: state.name.clone(), size: state.bytes }),
            Some(slot) if slot.size == state.bytes => {}
            Some(_) => {
                let reason = format!("functions disagree on the size of the state `{}`", state.name);
                return Err(Error::internal("bundle", reason));
            }
        }
    }
    Ok(states)
}

fn index(n: usize) -> Result<u32> {
    u32::try_from(n).map_err(|e| Error::internal("bundle", e.to_string()))
}

fn pipeline(step: &Dispatch, artifact: u32, entry: &str) -> Pipeline {
    let launch = &step.launch;
    let bindings = launch
        .bindings
        .iter()
        .zip(&step.locations)
        .map(|(b, location)| match (location, b.resource, b.writable) {
            (Location::Params, _, _) | (_, Resource::Uniform(_), _) => BindingKind::Uniform,
            (_, Resource::Texels(device), _) => BindingKind::Texels(device_type(device)),
            (_, Resource::Texture(storage, device), true) => {
                BindingKind::ImageWrite(images::texture(storage, device))
            }
            (_, Resource::Texture(storage, device), false) => {
                BindingKind::ImageRead(images::texture(storage, device))
            }
            (_, Resource::Buffer, true) => BindingKind::StorageReadWrite,
            (_, Resource::Buffer, false) => BindingKind::StorageRead,
        })
        .collect();
    Pipeline {
        name: launch.kernel.to_string(),
        artifact,
        entry: entry.to_owned(),
        bindings,
        required_subgroup_size: launch.subgroup_size,
        workgroup_size: launch.workgroup,
        workgroup_memory: launch.workgroup_memory,
    }
}

/// Pipelines by module and bindings: a module declares textures of f16 and of f32 alike.
type Pipelines<'a> = BTreeMap<(&'a str, Vec<(Resource, bool)>), u32>;

fn key(step: &Dispatch) -> (&str, Vec<(Resource, bool)>) {
    (&step.launch.wgsl, step.launch.bindings.iter().map(|b| (b.resource, b.writable)).collect())
}
