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
use crate::ir::dim::Dim;
use crate::plan::{Dispatch, Location, Plan};
use crate::shader::{Bound, Launch};
use crate::target::TargetProfile;

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

/// Writes a bundle that has only the pipelines of some launches, for drivers to compile: no functions and no weights. Returns
/// the index of each launch's pipeline. Launches with equal shaders and kinds of bindings share a pipeline.
///
/// # Errors
/// If a shader is not valid, or the file cannot be written.
pub fn write_pipelines(
    path: &Path,
    target: &TargetProfile,
    launches: &[Launch],
    emit: spirv::Options,
) -> Result<Vec<usize>> {
    let plan = pipelines_plan(launches);
    let planned = Planned { target, functions: vec![("pipelines".to_owned(), &plan)] };
    let writer = BundleWriter::create(path).map_err(format_error)?;
    let mut store = FileStore { writer, modules: emit_all(std::slice::from_ref(&planned), emit)? };
    let (pipelines, known) = pipelines(&mut store, &planned)?;
    let place = |step: &Dispatch| known.get(&key(step)).and_then(|index| usize::try_from(*index).ok());
    let places: Option<Vec<usize>> = plan.dispatches.iter().map(place).collect();
    let mut variant = Variant {
        target: target.name.clone(),
        profile_hash: Hash(target.hash()?),
        pipelines,
        ..Variant::default()
    };
    requirements::declare(&mut variant, &planned);
    store.writer.finish(Provenance::default(), vec![variant]).map_err(format_error)?;
    places.ok_or_else(|| Error::internal("bundle", "a pipeline was not written"))
}

/// Returns a plan of launches without tensors, which cannot run.
fn pipelines_plan(launches: &[Launch]) -> Plan {
    let dispatch = |launch: &Launch| Dispatch {
        launch: Launch { grid: std::array::from_fn(|_| Dim::known(1)), ..launch.clone() },
        locations: launch
            .bindings
            .iter()
            .map(|binding| match binding.bound {
                Bound::Params => Location::Params,
                Bound::Operand(_) | Bound::Packed(_) | Bound::Result | Bound::Scratch(_) => {
                    Location::Arena(0)
                }
            })
            .collect(),
        barrier: true,
        label: launch.kernel.to_owned(),
        is_copy: false,
        bytes: Dim::known(0),
    };
    Plan { dispatches: launches.iter().map(dispatch).collect(), ..Plan::empty() }
}

/// Adds the shader of each distinct pipeline of a target to the store. Returns the pipelines and their indices.
fn pipelines<'a>(store: &mut dyn Store, planned: &Planned<'a>) -> Result<(Vec<Pipeline>, Pipelines<'a>)> {
    let language = Language::from(planned.target.api.name);
    let (mut pipelines, mut known): (Vec<Pipeline>, Pipelines<'_>) = (Vec::new(), BTreeMap::new());
    for step in planned.functions.iter().flat_map(|(_, plan)| &plan.dispatches) {
        if let Entry::Vacant(place) = known.entry(key(step)) {
            let (artifact, entry) = store.add_shader(language, step.launch.wgsl.as_str())?;
            place.insert(index(pipelines.len())?);
            pipelines.push(pipeline(step, artifact, &entry));
        }
    }
    Ok((pipelines, known))
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
            let matrix = spirv::Matrix::from_launch(&step.launch);
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
    let (pipelines, known) = pipelines(store, planned)?;
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
