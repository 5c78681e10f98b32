//! Compute pipelines of a bundle's variant. Dispatches with equal WGSL and equal kinds of bindings use one pipeline.

use std::collections::BTreeMap;

use drift_format::{BindingKind, Pipeline};

use super::images;
use super::types::device_type;
use crate::plan::{Dispatch, Location};
use crate::shader::resource::Resource;

/// Index of each pipeline, by its WGSL and the kinds of its bindings. The kinds are part of the key because WGSL does
/// not distinguish f16 and f32 textures.
pub(super) type Pipelines<'a> = BTreeMap<(&'a str, Vec<(Resource, bool)>), u32>;

/// Returns the key of a dispatch's pipeline in [`Pipelines`]: its WGSL and the kinds of its bindings.
pub(super) fn key(step: &Dispatch) -> (&str, Vec<(Resource, bool)>) {
    (&step.launch.wgsl, step.launch.bindings.iter().map(|b| (b.resource, b.writable)).collect())
}

/// Returns the bundle format's description of a dispatch's pipeline. `artifact` is the index of the emitted shader
/// among the artifacts of the bundle, `entry` the name of its entry point.
pub(super) fn pipeline(step: &Dispatch, artifact: u32, entry: &str) -> Pipeline {
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
