//! Drivers that run in an emulator: the child process is a small program (`tests/drivers/worker.c`) that reads pipelines from
//! files instead of a bundle.

use std::path::Path;
use std::process::Command;

use drift_runtime::Bundle;
use drift_runtime::codec::section;
use drift_runtime::format::{BindingKind, Feature, Pipeline, Variant};
use tempfile::TempDir;

use super::DistinctPipeline;
use crate::drivers::{DriverDevice, run_with_driver};
use crate::failure::{Failure, Result};

/// Returns the command of a child process that compiles the pipelines in a folder.
pub(super) fn worker_command(device: &DriverDevice, folder: &Path) -> Result<Command> {
    let mut command = run_with_driver(device)?;
    command.arg("worker").arg(folder);
    Ok(command)
}

/// Writes the modules and the descriptions of a variant's pipelines into a temporary folder, which is deleted when it is
/// dropped.
pub(super) fn write_pipelines(
    path: &Path,
    variant: usize,
    pipelines: &[DistinctPipeline],
) -> Result<TempDir> {
    let bundle = Bundle::open(path)?;
    let missing = || Failure::input(format!("{} lacks a pipeline", path.display()));
    let variant = bundle.manifest().variants.get(variant).ok_or_else(missing)?;
    let folder = tempfile::tempdir()?;
    for DistinctPipeline { index, .. } in pipelines {
        let pipeline = variant.pipelines.get(*index).ok_or_else(missing)?;
        let artifact = bundle.manifest().artifacts.get(pipeline.artifact as usize).ok_or_else(missing)?;
        let module = section(bundle.bytes(), artifact.offset, artifact.size)?;
        std::fs::write(folder.path().join(format!("{index}.spv")), module)?;
        std::fs::write(folder.path().join(format!("{index}.txt")), description(pipeline, variant))?;
    }
    Ok(folder)
}

/// Returns the line that describes a pipeline: entry point, required subgroup size (0: none), 1 if subgroups are full, and a
/// letter for each binding.
fn description(pipeline: &Pipeline, variant: &Variant) -> String {
    let letter = |kind: &BindingKind| match kind {
        BindingKind::StorageRead | BindingKind::StorageReadWrite => 's',
        BindingKind::Uniform => 'u',
        BindingKind::Texels(_) => 't',
        BindingKind::ImageRead(_) => 'i',
        BindingKind::ImageWrite(_) => 'o',
    };
    let letters: String = pipeline.bindings.iter().map(letter).collect();
    let divides = |size: u32| pipeline.workgroup_size[0].is_multiple_of(size);
    let full = variant.requirements.features.contains(Feature::FullSubgroups)
        && pipeline.required_subgroup_size.is_some_and(divides);
    let subgroup_size = pipeline.required_subgroup_size.unwrap_or_default();
    format!("{} {subgroup_size} {} {letters}\n", pipeline.entry, u8::from(full))
}
