//! Writing of a bundle: emits shaders and builds one variant per target.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;

use drift_format::codec::{BundleWriter, Summary};
use drift_format::{ArtifactKind, Hash, Pipeline, Provenance, StateSlot, Variant};
use rayon::prelude::*;

use super::convert::{format_error, index};
use super::function::{Shared, function};
use super::pipelines::{Pipelines, key, pipeline};
use super::planned::Planned;
use super::requirements;
use super::weights::{Chunks, Weights};
use crate::emit::{self, Code, Language, Shader, spirv};
use crate::error::{Error, Result};
use crate::plan::Dispatch;

/// Writes a bundle.
///
/// # Errors
/// If a shader is not valid, a limit of a target is exceeded, or the file cannot be written.
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

/// Emitted shader modules, by shader language and WGSL source.
type Modules<'a> = BTreeMap<(Language, &'a str), Shader>;

/// Emits the shader module of each distinct WGSL source once per shader language, in parallel.
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

/// Builds the variant of one target: writes its weights and shaders to the bundle.
fn variant(
    writer: &mut BundleWriter,
    planned: &Planned<'_>,
    modules: &Modules<'_>,
    chunks: &mut Chunks,
) -> Result<Variant> {
    let target = planned.target;
    // Functions refer to weight slots and their final sizes, so all slots are filled first.
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

/// Returns the states of all functions of a target, without duplicates.
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
