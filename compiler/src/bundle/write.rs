//! Writing of a bundle: emits shaders and builds one variant per target.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;

use drift_format::codec::{BundleWriter, Summary};
use drift_format::{Hash, Manifest, Pipeline, Provenance, StateSlot, Variant};
use rayon::prelude::*;

use super::convert::{format_error, index};
use super::function::{Shared, function};
use super::pipelines::{Pipelines, key, pipeline};
use super::planned::Planned;
use super::requirements;
use super::store::{EmptyStore, FileStore, Modules, Store};
use super::weights::{Chunks, Weights};
use crate::emit::{self, Language, spirv};
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
    let writer = BundleWriter::create(path).map_err(format_error)?;
    let mut store = FileStore { writer, modules: emit_all(planned, emit)? };
    let variants = variants(planned, &mut store)?;
    let mut writer = store.writer;
    for (name, bytes) in attachments {
        writer.attach(name, bytes).map_err(format_error)?;
    }
    writer.finish(provenance, variants).map_err(format_error)
}

/// Returns the manifest that a bundle would have, without its contents: variants with their requirements, but empty
/// shaders and no weight data. No constant is packed and no file is written. Equal constants, which a file stores once,
/// count separately, so the requirements may be slightly higher.
///
/// # Errors
/// If a limit of a target is exceeded.
pub fn outline(planned: &[Planned<'_>]) -> Result<Manifest> {
    let mut store = EmptyStore::default();
    let variants = variants(planned, &mut store)?;
    Ok(Manifest { artifacts: store.artifacts, variants, ..Manifest::default() })
}

/// Builds the variants of all targets, which share chunks.
fn variants(planned: &[Planned<'_>], store: &mut dyn Store) -> Result<Vec<Variant>> {
    let mut chunks = Chunks::new();
    planned.iter().map(|one| variant(store, one, &mut chunks)).collect()
}

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

/// Builds the variant of one target: adds its weights and shaders to the store.
fn variant(store: &mut dyn Store, planned: &Planned<'_>, chunks: &mut Chunks) -> Result<Variant> {
    let target = planned.target;
    // Functions refer to weight slots and their final sizes, so all slots are filled first.
    let mut weights = Weights::new(target);
    let plans = planned.functions.iter().map(|(_, plan)| *plan);
    let places = plans.map(|plan| weights.add(store, plan, chunks)).collect::<Result<Vec<_>>>()?;
    let mut pipelines: Vec<Pipeline> = Vec::new();
    let mut known: Pipelines<'_> = BTreeMap::new();
    for step in planned.functions.iter().flat_map(|(_, plan)| &plan.dispatches) {
        let wgsl = step.launch.wgsl.as_str();
        if let Entry::Vacant(place) = known.entry(key(step)) {
            let (artifact, entry) = store.add_shader(Language::from(target.api.name), wgsl)?;
            place.insert(index(pipelines.len())?);
            pipelines.push(pipeline(step, artifact, &entry));
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
