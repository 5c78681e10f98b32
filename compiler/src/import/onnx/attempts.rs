//! Import with assumed bounds: tries the usual bounds of each symbol's role (batch, sequence, image side) until the
//! model can be lowered.
//!
//! The first attempt uses the most likely bounds of the symbols without bounds. If the model is refused, inputs for
//! which the user gives a small sample array become constants where that helps. Then the other usual bounds of the roles
//! are tried. If all attempts fail, the error of the first attempt is returned. In the end, assumed upper bounds are
//! lowered until every tensor fits a buffer that every device can bind. Lower upper bounds are valid, because a model
//! that works for a range of sizes works for every part of the range.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::inputs::{Assumed, is_small, with_sample_shapes};
use super::lower::{self, LoweredModel};
use super::roles::{ASSUMPTIONS, Role};
use super::schema::ModelProto;
use super::source::Source;
use super::{Imported, Options};
use crate::error::{Error, Result};
use crate::ir::array::Array;
use crate::ir::dim::{Bounds, Dim};
use crate::ir::graph::Graph;
use crate::metadata::Metadata;

/// Maximum bytes of a tensor whose size depends on assumed bounds: the size of a buffer that every device can bind.
const MAX_TENSOR_BYTES: i64 = 128 << 20;

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
    let narrowed = limit_tensor_sizes(&mut graph, &assumed);
    for Assumed { symbol, role } in &assumed {
        let (low, high) = graph.bounds.get(symbol).copied().unwrap_or_default();
        let why = match narrowed.contains_key(symbol) {
            true => {
                format!(
                    "{}; larger sizes make a tensor of more than {} MiB",
                    role.description(),
                    MAX_TENSOR_BYTES >> 20
                )
            }
            false => role.description().to_string(),
        };
        notes.push(format!(
            "symbol `{symbol}` has no bounds; assuming {low}..={high} ({why}); set bounds with --dim \
             {symbol}=LOW..HIGH"
        ));
    }
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

/// Lowers assumed upper bounds of symbols until no tensor whose size depends on them exceeds [`MAX_TENSOR_BYTES`].
/// Returns the lowered symbols with their former upper bounds.
fn limit_tensor_sizes(graph: &mut Graph, assumed: &[Assumed]) -> BTreeMap<String, i64> {
    let mut narrowed = BTreeMap::new();
    for id in graph.ids() {
        let tensor = graph.tensor(id);
        let shape = tensor.shape.clone();
        let bytes = tensor.dtype.on_device().bytes();
        while max_elements(&shape, &graph.bounds).saturating_mul(bytes) > MAX_TENSOR_BYTES {
            let mut names = BTreeSet::new();
            shape.iter().for_each(|d| d.symbols(&mut names));
            let reducible = |a: &&Assumed| {
                names.contains(&a.symbol) && graph.bounds.get(&a.symbol).is_some_and(|(low, high)| low < high)
            };
            // Lower batch sizes first, then the role with the largest upper bound.
            let high = |a: &Assumed| graph.bounds.get(&a.symbol).map_or(0, |(_, high)| *high);
            let first = assumed.iter().filter(reducible).max_by_key(|a| (a.role == Role::Batch, high(a)));
            let Some(role) = first.map(|a| a.role) else { break };
            let symbols: Vec<String> = assumed
                .iter()
                .filter(reducible)
                .filter(|a| a.role == role)
                .map(|a| a.symbol.clone())
                .collect();
            for symbol in symbols {
                let Some((low, high)) = graph.bounds.get_mut(&symbol) else { continue };
                narrowed.entry(symbol).or_insert(*high);
                *high = next_smaller(role, *high).max(*low);
            }
        }
    }
    narrowed
}

/// Returns the next smaller upper bound to try for a symbol with a role.
fn next_smaller(role: Role, high: i64) -> i64 {
    match role {
        // Image networks usually need multiples of 32.
        Role::Side if high > 64 => (high - high / 8) / 32 * 32,
        _ => high / 2,
    }
}

/// Returns the maximum number of elements of a shape within the bounds of its symbols.
fn max_elements(shape: &[Dim], bounds: &Bounds) -> i64 {
    shape.iter().fold(1i64, |n, d| n.saturating_mul(d.range(bounds).1.max(0)))
}
