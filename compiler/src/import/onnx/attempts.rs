//! Importing with what is not said: `bounds of a role -> lower -> narrower or other bounds -> Imported`.
//!
//! A model is lowered with the likeliest bounds of the symbols that nobody bounds. Where it is refused, small
//! samples become constants where that helps, and after that the other bounds of the roles are tried; the error is
//! that of the likeliest bounds. What is assumed may not make a tensor larger than every device can bind, so upper
//! bounds are lowered in the end: whatever holds for a range holds for a part of it.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::inputs::Assumed;
use super::lower::{self, Whole};
use super::roles::{ASSUMPTIONS, Role};
use super::schema::ModelProto;
use super::source::Source;
use super::{Imported, Options};
use crate::error::{Error, Result};
use crate::ir::array::Array;
use crate::ir::dim::{Bounds, Dim};
use crate::ir::graph::Graph;

/// The largest tensor that assumed bounds may lead to: what every device can bind.
const MAX_BYTES: i64 = 128 << 20;

/// The most elements of an input whose values may decide shapes or conditions.
const SMALL: usize = 64;

/// Imports a model.
pub(super) fn import(source: &Source, bytes: Bytes, options: &Options) -> Result<Imported> {
    let hash = *blake3::hash(&bytes).as_bytes();
    let model = lower::decode(source, bytes)?;
    let mut options = with_shapes(options);
    let mut constants = Vec::new();
    let mut result = lower::model(source, &model, &options, 0);
    if let Err(error) = &result {
        constants = pin(source, &model, &mut options, refused(error));
        if !constants.is_empty() {
            result = lower::model(source, &model, &options, 0);
        }
    }
    for attempt in 1..ASSUMPTIONS {
        if !matches!(result, Err(Error::Unsupported { .. } | Error::Node { .. })) {
            break;
        }
        let other = lower::model(source, &model, &options, attempt);
        if other.is_ok() {
            result = other;
        }
    }
    let Whole { mut graph, assumed, mut notes } = result?;
    let narrowed = narrow(&mut graph, &assumed);
    for Assumed { symbol, role } in &assumed {
        let (low, high) = graph.bounds.get(symbol).copied().unwrap_or_default();
        let why = match narrowed.contains_key(symbol) {
            true => {
                format!("{}; larger ones make a tensor of more than {} MiB", role.what(), MAX_BYTES >> 20)
            }
            false => role.what().to_string(),
        };
        notes.push(format!(
            "symbol `{symbol}` has no bound: {low}..={high} assumed ({why}); pass --dim {symbol}=LOW..HIGH"
        ));
    }
    for name in &constants {
        notes.push(format!(
            "the values of input `{name}` decide shapes or conditions: its sample is compiled in"
        ));
    }
    let usual = |a: &Assumed| {
        let (low, high) = graph.bounds.get(&a.symbol).copied().unwrap_or((1, 1));
        a.role.typical().first().map_or(low, |size| (*size).min(high).max(low))
    };
    let assumed = assumed.iter().map(|a| (a.symbol.clone(), usual(a))).collect();
    Ok(Imported { graph, notes, hash, external: source.files(), assumed, constants })
}

/// The options, with the samples' shapes among those of the inputs.
pub(super) fn with_shapes(options: &Options) -> Options {
    let mut options = options.clone();
    for (name, array) in &options.samples {
        let size = |d: &usize| i64::try_from(*d).unwrap_or(i64::MAX);
        let shape = || array.shape.iter().map(size).collect();
        options.input_shapes.entry(name.clone()).or_insert_with(shape);
    }
    options
}

/// How many nodes an error refuses; an error of another kind is worse than any number of them.
pub(super) fn refused(error: &Error) -> usize {
    match error {
        Error::Unsupported { nodes } => nodes.len(),
        _ => usize::MAX,
    }
}

/// Whether values of a shape are few enough to decide something rather than to be computed with.
pub(super) fn is_small(shape: &[usize]) -> bool {
    shape.len() <= 1 && crate::ir::array::count(shape) <= SMALL
}

/// Makes those small samples constants with which fewer nodes are refused; their names.
fn pin(source: &Source, model: &ModelProto, options: &mut Options, mut refusals: usize) -> Vec<String> {
    let small: Vec<(String, Array)> = options
        .samples
        .iter()
        .filter(|(name, array)| is_small(&array.shape) && !options.constants.contains_key(*name))
        .map(|(name, array)| (name.clone(), array.clone()))
        .collect();
    let mut pinned = Vec::new();
    for (name, array) in small {
        let mut with = options.clone();
        with.constants.insert(name.clone(), array);
        let left = match lower::model(source, model, &with, 0) {
            Ok(_) => 0,
            Err(error) => refused(&error),
        };
        if left < refusals {
            refusals = left;
            *options = with;
            pinned.push(name);
        }
        if refusals == 0 {
            break;
        }
    }
    pinned
}

/// Lowers upper bounds that were assumed until no tensor that they decide exceeds what every device can bind; the
/// symbols that it lowered, with their former bounds.
fn narrow(graph: &mut Graph, assumed: &[Assumed]) -> BTreeMap<String, i64> {
    let mut narrowed = BTreeMap::new();
    for id in graph.ids() {
        let tensor = graph.tensor(id);
        let shape = tensor.shape.clone();
        let bytes = tensor.dtype.on_device().bytes();
        while most(&shape, &graph.bounds).saturating_mul(bytes) > MAX_BYTES {
            let mut names = std::collections::BTreeSet::new();
            shape.iter().for_each(|d| d.symbols(&mut names));
            let open = |a: &&Assumed| {
                names.contains(&a.symbol) && graph.bounds.get(&a.symbol).is_some_and(|(low, high)| low < high)
            };
            // Batches first, then what is left of the largest role.
            let high = |a: &Assumed| graph.bounds.get(&a.symbol).map_or(0, |(_, high)| *high);
            let first = assumed.iter().filter(open).max_by_key(|a| (a.role == Role::Batch, high(a)));
            let Some(role) = first.map(|a| a.role) else { break };
            let chosen: Vec<String> =
                assumed.iter().filter(open).filter(|a| a.role == role).map(|a| a.symbol.clone()).collect();
            for symbol in chosen {
                let Some((low, high)) = graph.bounds.get_mut(&symbol) else { continue };
                narrowed.entry(symbol).or_insert(*high);
                *high = lower_bound(role, *high).max(*low);
            }
        }
    }
    narrowed
}

/// The next smaller upper bound.
fn lower_bound(role: Role, high: i64) -> i64 {
    match role {
        // In steps of what most networks divide a picture by.
        Role::Side if high > 64 => (high - high / 8) / 32 * 32,
        _ => high / 2,
    }
}

/// The most elements of a shape.
fn most(shape: &[Dim], bounds: &Bounds) -> i64 {
    shape.iter().fold(1i64, |n, d| n.saturating_mul(d.range(bounds).1.max(0)))
}
