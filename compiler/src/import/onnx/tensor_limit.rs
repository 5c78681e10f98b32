//! Lowers assumed upper bounds of symbolic sizes until every tensor fits a buffer that every device can bind.
//!
//! Lower upper bounds are valid, because a model that works for a range of sizes works for every part of the range.
//! Bounds from the user do not change. If they leave only one value for another symbol, the import fails, because a
//! model for that value is rarely what the user wants.

use std::collections::BTreeSet;

use super::inputs::Assumed;
use super::roles::Role;
use super::{DimSpec, Options};
use crate::error::{Error, Result, Within};
use crate::ir::dim::{Bounds, Dim};
use crate::ir::graph::{Graph, NodeId};

/// Maximum bytes of a tensor whose size depends on assumed bounds: the size of a buffer that every device can bind.
pub(super) const MAX_TENSOR_BYTES: i64 = 128 << 20;

/// A symbol whose bounds were lowered to one value, and the tensor that required it.
struct Squeezed {
    symbol: String,
    tensor: NodeId,
}

/// Lowers assumed upper bounds until no tensor whose size depends on them exceeds [`MAX_TENSOR_BYTES`]. Returns the
/// symbols whose bounds were lowered.
///
/// # Errors
/// If bounds from the user leave only one value for a symbol without bounds, other than a batch size.
pub(super) fn limit_tensor_sizes(
    graph: &mut Graph,
    assumed: &[Assumed],
    options: &Options,
) -> Result<BTreeSet<String>> {
    let given: BTreeSet<&String> = options
        .dims
        .iter()
        .filter(|(_, spec)| matches!(spec, DimSpec::Range(..)))
        .map(|(name, _)| name)
        .collect();
    let before = graph.bounds.clone();
    let (lowered, squeezed) = lower_bounds(graph, assumed, &given);
    let Some(squeezed) = squeezed else { return Ok(lowered) };
    Err(refusal(graph, &before, assumed, &given, &squeezed))
}

fn lower_bounds(
    graph: &mut Graph,
    assumed: &[Assumed],
    given: &BTreeSet<&String>,
) -> (BTreeSet<String>, Option<Squeezed>) {
    let mut lowered = BTreeSet::new();
    for id in graph.ids() {
        let tensor = graph.tensor(id);
        let shape = tensor.shape.clone();
        let bytes = tensor.dtype.on_device().bytes();
        let mut names = BTreeSet::new();
        shape.iter().for_each(|d| d.symbols(&mut names));
        while max_elements(&shape, &graph.bounds).saturating_mul(bytes) > MAX_TENSOR_BYTES {
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
                *high = next_smaller(role, *high).max(*low);
                let single = low == high && role != Role::Batch;
                lowered.insert(symbol.clone());
                if single && names.iter().any(|name| given.contains(name)) {
                    return (lowered, Some(Squeezed { symbol, tensor: id }));
                }
            }
        }
    }
    (lowered, None)
}

/// Returns the error for bounds that leave only one value for a symbol. The help has bounds for all symbols with which
/// every tensor fits.
fn refusal(
    graph: &Graph,
    before: &Bounds,
    assumed: &[Assumed],
    given: &BTreeSet<&String>,
    squeezed: &Squeezed,
) -> Error {
    let Squeezed { symbol, tensor } = squeezed;
    let mut names = BTreeSet::new();
    graph.tensor(*tensor).shape.iter().for_each(|d| d.symbols(&mut names));
    let within = |bounds: &Bounds, symbol: &String| {
        let (low, high) = bounds.get(symbol).copied().unwrap_or_default();
        Within { symbol: symbol.clone(), low, high }.to_string()
    };
    let wide: Vec<String> =
        names.iter().filter(|name| given.contains(name)).map(|name| within(before, name)).collect();
    let role = assumed.iter().find(|a| a.symbol == *symbol).map_or(Role::Other, |a| a.role);
    let most = before.get(symbol).map_or(i64::MAX, |(_, high)| *high);
    let mut all = assumed.to_vec();
    all.extend(given.iter().map(|symbol| Assumed { symbol: (*symbol).clone(), role }));
    let mut fitting = graph.clone();
    fitting.bounds = before.clone();
    // Start from equal upper bounds, so that no symbol is lowered much more than another.
    for name in given {
        if let Some((low, high)) = fitting.bounds.get_mut(*name) {
            *high = most.min(*high).max(*low);
        }
    }
    lower_bounds(&mut fitting, &all, &BTreeSet::new());
    let options: Vec<String> = fitting
        .bounds
        .keys()
        .filter(|name| given.contains(name) || names.contains(*name))
        .map(|name| within(&fitting.bounds, name))
        .collect();
    Error::request(
        format!(
            "{} leaves only one value for `{symbol}`, which has no bounds: larger values make the tensor {} of node \
             `{}` exceed {} MiB",
            wide.join(" "),
            graph.tensor(*tensor),
            graph.node(*tensor).name,
            MAX_TENSOR_BYTES >> 20
        ),
        format!(
            "every tensor fits with {}; or set the bounds of `{symbol}` too, and the limit is the target's",
            options.join(" ")
        ),
    )
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
