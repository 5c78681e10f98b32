//! Compiles an imported model into a bundle on disk.

use std::path::Path;

use drift_format::codec::Summary;
use drift_format::{Hash, METADATA_PREFIX, Manifest, Provenance};

use crate::bundle::{self, Planned};
use crate::emit::spirv;
pub use crate::entry_points::{EntryPoint, Lowered, Model, Options};
use crate::error::Result;
pub use crate::lowering::lower;
use crate::lowering::lower_model;
use crate::target::TargetProfile;

/// Result of [`compile`].
#[derive(Debug)]
pub struct Report {
    /// Compiled functions of each target, in the order of [`lower_model`].
    pub lowered: Vec<Vec<Lowered>>,
    /// Byte sizes of the written bundle and its parts.
    pub summary: Summary,
}

/// Compiles a model for every target into one bundle.
///
/// # Errors
/// If [`lower_model`] fails for a target, or [`write()`] fails.
pub fn compile(model: &Model, targets: &[TargetProfile], options: &Options, path: &Path) -> Result<Report> {
    let lowered = targets
        .iter()
        .map(|target| lower_model(model, target, options))
        .collect::<Result<Vec<Vec<Lowered>>>>()?;
    let functions: Vec<&[Lowered]> = lowered.iter().map(Vec::as_slice).collect();
    let summary = write(model, targets, &functions, options, path)?;
    Ok(Report { lowered, summary })
}

/// Emits the shaders of a lowered model and writes its bundle. `lowered` has the functions of each target.
///
/// # Errors
/// If a shader is not valid, a limit of a target is exceeded, or the file cannot be written.
pub fn write(
    model: &Model,
    targets: &[TargetProfile],
    lowered: &[&[Lowered]],
    options: &Options,
    path: &Path,
) -> Result<Summary> {
    let planned = planned(targets, lowered);
    let metadata = model.metadata.iter();
    let mut notes: Vec<(String, String)> =
        metadata.map(|(key, value)| (format!("{METADATA_PREFIX}{key}"), value.clone())).collect();
    notes.extend(options.plan.tuning.iter().map(|t| ("tuning".to_string(), t.hash())));
    notes.sort();
    let provenance = Provenance {
        compiler_version: env!("CARGO_PKG_VERSION").to_string(),
        flags: options.flags.clone(),
        model_name: model.name.clone(),
        model_hash: Hash(model.hash),
        notes,
    };
    let emit = spirv::Options { finish: options.finish, matrix: None };
    bundle::write(path, provenance, &planned, &model.attachments, emit)
}

/// Returns the manifest that a lowered model's bundle would have, with the requirements of each variant but without
/// weight data, shaders and provenance. `lowered` has the functions of each target.
///
/// # Errors
/// If a limit of a target is exceeded.
pub fn outline(targets: &[TargetProfile], lowered: &[&[Lowered]]) -> Result<Manifest> {
    bundle::outline(&planned(targets, lowered))
}

fn planned<'a>(targets: &'a [TargetProfile], lowered: &[&'a [Lowered]]) -> Vec<Planned<'a>> {
    let one = |(target, functions): (&'a TargetProfile, &&'a [Lowered])| Planned {
        target,
        functions: functions.iter().map(|f| (f.name.clone(), &f.plan)).collect(),
    };
    targets.iter().zip(lowered).map(one).collect()
}
