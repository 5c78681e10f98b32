//! Import with assumed bounds: tries the usual bounds of each symbol's role (batch, sequence, image side) until the
//! model can be lowered.
//!
//! The first attempt uses the most likely bounds of the symbols without bounds. If the model is refused, inputs for
//! which the user gives a small sample array become constants where that helps. Then the other usual bounds of the roles
//! are tried. If all attempts fail, the error of the first attempt is returned. In the end, assumed upper bounds are
//! lowered until every tensor fits ([`super::tensor_limit`]).

use bytes::Bytes;

use super::inputs::{Assumed, is_small, with_sample_shapes};
use super::lower::{self, LoweredModel};
use super::roles::ASSUMPTIONS;
use super::schema::ModelProto;
use super::source::Source;
use super::tensor_limit::{MAX_TENSOR_BYTES, limit_tensor_sizes};
use super::{Imported, Options};
use crate::assumed_bounds::{self, AssumedBounds};
use crate::error::{Error, Result, Within};
use crate::ir::array::Array;
use crate::metadata::Metadata;

/// Imports the bytes of a model file.
pub(super) fn import(source: &Source, bytes: Bytes, options: &Options) -> Result<Imported> {
    let hash = *blake3::hash(&bytes).as_bytes();
    let model = lower::decode_model(source, bytes)?;
    Ok(Imported { hash, ..import_model(source, &model, options)? })
}

/// Imports a decoded model. If necessary, tries several assumptions about the bounds of symbolic sizes. The hash of the
/// result is zero.
pub(super) fn import_model(source: &Source, model: &ModelProto, options: &Options) -> Result<Imported> {
    let mut options = with_sample_shapes(options);
    let mut constants = Vec::new();
    let mut result = lower::lower_model(source, model, &options, 0);
    if let Err(error) = &result {
        constants = fix_samples(source, model, &mut options, count_refused(error));
        if !constants.is_empty() {
            result = lower::lower_model(source, model, &options, 0);
        }
    }
    for attempt in 1..ASSUMPTIONS {
        if !matches!(result, Err(Error::Unsupported { .. } | Error::Node { .. })) {
            break;
        }
        let other = lower::lower_model(source, model, &options, attempt);
        if other.is_ok() {
            result = other;
        }
    }
    let LoweredModel { mut graph, assumed, mut notes } = result?;
    let lowered = limit_tensor_sizes(&mut graph, &assumed, &options)?;
    let bounds = |a: &Assumed| {
        let (low, high) = graph.bounds.get(&a.symbol).copied().unwrap_or_default();
        let within = Within { symbol: a.symbol.clone(), low, high };
        AssumedBounds { within, role: Some(a.role.description()) }
    };
    let mut note = assumed_bounds::note(&assumed.iter().map(bounds).collect::<Vec<_>>());
    if let Some(note) = note.as_mut().filter(|_| !lowered.is_empty()) {
        let symbols = lowered.iter().map(|symbol| format!("`{symbol}`")).collect::<Vec<_>>().join(", ");
        note.push_str(&format!(
            "; larger sizes of {symbols} make a tensor of more than {} MiB",
            MAX_TENSOR_BYTES >> 20
        ));
    }
    notes.extend(note);
    for name in &constants {
        notes.push(format!(
            "the values of input `{name}` decide shapes or conditions; its sample becomes a constant"
        ));
    }
    let usual = |a: &Assumed| {
        let (low, high) = graph.bounds.get(&a.symbol).copied().unwrap_or((1, 1));
        a.role.typical().first().map_or(low, |size| (*size).min(high).max(low))
    };
    let assumed = assumed.iter().map(|a| (a.symbol.clone(), usual(a))).collect();
    let entries = model.metadata_props.iter().map(|entry| (entry.key(), entry.value()));
    let metadata: Metadata = entries.collect();
    notes.extend(metadata.notes);
    let metadata = metadata.entries;
    Ok(Imported { graph, notes, hash: [0; 32], external: source.files(), assumed, constants, metadata })
}

/// Returns the number of refused nodes in an import error; `usize::MAX` for an error that refuses no nodes.
fn count_refused(error: &Error) -> usize {
    match error {
        Error::Unsupported { nodes } => nodes.len(),
        _ => usize::MAX,
    }
}

/// Replaces each input that has a small sample by this sample as a constant, if fewer nodes are refused then. Returns the
/// names of the replaced inputs.
fn fix_samples(
    source: &Source,
    model: &ModelProto,
    options: &mut Options,
    mut refusals: usize,
) -> Vec<String> {
    let small: Vec<(String, Array)> = options
        .samples
        .iter()
        .filter(|(name, array)| is_small(&array.shape) && !options.constants.contains_key(*name))
        .map(|(name, array)| (name.clone(), array.clone()))
        .collect();
    let mut fixed = Vec::new();
    for (name, array) in small {
        let mut with = options.clone();
        with.constants.insert(name.clone(), array);
        let left = match lower::lower_model(source, model, &with, 0) {
            Ok(_) => 0,
            Err(error) => count_refused(&error),
        };
        if left < refusals {
            refusals = left;
            *options = with;
            fixed.push(name);
        }
        if refusals == 0 {
            break;
        }
    }
    fixed
}
