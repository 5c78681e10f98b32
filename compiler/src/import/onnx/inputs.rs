//! Applies the user's options to the model's inputs: fixes or bounds symbolic sizes.

use std::collections::{BTreeMap, BTreeSet};

use super::declarations::Declared;
use super::roles::{Role, roles};
use super::schema::GraphProto;
use super::{DimSpec, Options};
use crate::error::{Error, Result};
use crate::ir::array::{Array, count};
use crate::ir::dim::{Atom, Bindings, Bounds, Dim};
use crate::suggest::did_you_mean;

/// Maximum number of elements of an input whose values may decide shapes or conditions.
const MAX_SMALL_ELEMENTS: usize = 64;

/// Returns true if an input of shape `shape` is small enough that its values may decide shapes or conditions.
pub(super) fn is_small(shape: &[usize]) -> bool {
    shape.len() <= 1 && count(shape) <= MAX_SMALL_ELEMENTS
}

/// Returns the options with the shapes of the sample inputs added to `input_shapes`.
pub(super) fn with_sample_shapes(options: &Options) -> Options {
    let mut options = options.clone();
    for (name, array) in &options.samples {
        let size = |d: &usize| i64::try_from(*d).unwrap_or(i64::MAX);
        let shape = || array.shape.iter().map(size).collect();
        options.input_shapes.entry(name.clone()).or_insert_with(shape);
    }
    options
}

/// Replaces the declared sizes of inputs by the sizes in the options. Returns the declared number of items of a batch and
/// the size that replaces it, if both are known and the first axis of an input changes.
///
/// # Errors
/// If the options name an unknown input, or give another number of sizes than the input has axes.
pub(super) fn replace_shapes(inputs: &mut [Declared], options: &Options) -> Result<Option<(i64, Dim)>> {
    let mut batch = None;
    for (name, shape) in &options.shapes {
        let Some(input) = inputs.iter_mut().find(|i| i.name == *name) else {
            return Err(unknown_input(name, inputs.iter().map(|i| i.name.as_str())));
        };
        if input.shape.as_ref().is_some_and(|declared| declared.len() != shape.len()) {
            return Err(Error::request(
                format!("{} sizes are given for input `{name}`", shape.len()),
                format!("the model declares {}", sizes(input.shape.as_deref().unwrap_or_default())),
            ));
        }
        let declared = input.shape.replace(shape.clone()).unwrap_or_default();
        if let (Some(old), Some(new)) = (declared.first().and_then(Dim::as_known), shape.first())
            && !new.is(old)
        {
            batch = Some((old, new.clone()));
        }
    }
    Ok(batch)
}

/// A symbol without bounds from the user.
#[derive(Debug, Clone)]
pub(super) struct Assumed {
    /// Name of the symbol.
    pub(super) symbol: String,
    /// The quantity that the symbol counts, such as tokens or items of a batch.
    pub(super) role: Role,
}

/// Replaces symbols that the options or input shapes fix, and bounds the other symbols. Returns the bounds of the
/// symbols, and the symbols whose bounds are assumptions. `attempt` counts the import attempts from 0; each attempt may
/// assume other bounds.
///
/// # Errors
/// Fails if an option names no input or symbol of the model, or contradicts it.
pub(super) fn resolve_sizes(
    graph: &GraphProto,
    inputs: &mut [Declared],
    shapes: &BTreeMap<String, Vec<i64>>,
    options: &Options,
    attempt: usize,
) -> Result<(Bounds, Vec<Assumed>)> {
    let mut bindings = Bindings::new();
    let mut declared = symbols(inputs);
    for spec in options.dims.values() {
        if let DimSpec::Is(dim) = spec {
            dim.symbols(&mut declared);
        }
    }
    let known = |name: &String| {
        if declared.contains(name) {
            return Ok(());
        }
        let list = declared.iter().map(|s| format!("`{s}`")).collect::<Vec<_>>().join(", ");
        let similar = did_you_mean(name, declared.iter().map(String::as_str));
        Err(Error::request(
            format!("the model has no symbolic size `{name}`"),
            if list.is_empty() {
                "all sizes of the model's inputs are fixed; --shape INPUT=SIZE,.. replaces them".to_string()
            } else {
                format!("{similar}the model's symbolic sizes are {list}")
            },
        ))
    };
    for (name, spec) in &options.dims {
        known(name)?;
        match spec {
            DimSpec::Is(other) => {
                for dim in inputs.iter_mut().flat_map(|i| i.shape.iter_mut().flatten()) {
                    *dim = replace_symbol(dim, name, other);
                }
            }
            DimSpec::Fixed(value) if *value < 0 => {
                return Err(Error::request(
                    format!("the size `{name}` is set to {value}, which is negative"),
                    "give a size of 0 or more",
                ));
            }
            DimSpec::Fixed(value) => {
                bindings.insert(name.clone(), *value);
            }
            DimSpec::Range(low, high) if *low < 0 || low > high => {
                return Err(Error::request(
                    format!("the bounds {low}..{high} of the size `{name}` are empty or negative"),
                    "give a lower bound of 0 or more, and an upper bound of at least the lower one",
                ));
            }
            DimSpec::Range(..) => {}
        }
    }
    bind_input_shapes(inputs, shapes, &options.dims, &mut bindings)?;
    for input in inputs.iter_mut() {
        for dim in input.shape.iter_mut().flatten() {
            *dim = dim.substitute(&bindings);
        }
    }
    let symbols = symbols(inputs);
    let roles = roles(graph, inputs, &symbols);
    let (mut bounds, mut assumed) = (Bounds::new(), Vec::new());
    for symbol in symbols {
        let range = match options.dims.get(&symbol) {
            Some(DimSpec::Range(low, high)) => (*low, *high),
            _ => {
                let role = roles.get(&symbol).copied().unwrap_or(Role::Other);
                assumed.push(Assumed { symbol: symbol.clone(), role });
                role.assumed(attempt, options.default_range)
            }
        };
        bounds.insert(symbol, range);
    }
    Ok((bounds, assumed))
}

/// Returns the symbols that occur in the sizes of the inputs.
fn symbols(inputs: &[Declared]) -> BTreeSet<String> {
    let mut symbols = BTreeSet::new();
    for dim in inputs.iter().flat_map(|i| i.shape.iter().flatten()) {
        dim.symbols(&mut symbols);
    }
    symbols
}

/// Replaces the symbol `from` in a size by the size `to`.
fn replace_symbol(dim: &Dim, from: &str, to: &Dim) -> Dim {
    let mut sum = Dim::known(0);
    for term in dim.terms() {
        let mut product = Dim::known(term.coefficient);
        for factor in &term.factors {
            product = product.mul(&match factor {
                Atom::Symbol(name) if &**name == from => to.clone(),
                Atom::Symbol(name) => Dim::symbol(name),
                Atom::FloorDiv(inner, divisor) => replace_symbol(inner, from, to).floor_div(*divisor),
                Atom::Positive(inner) => replace_symbol(inner, from, to).positive(),
            });
        }
        sum = sum.add(&product);
    }
    sum
}

/// Sets symbols to the sizes of concrete input shapes. A symbol with a range in `dims` stays a symbol; its size must
/// lie in the range.
fn bind_input_shapes(
    inputs: &mut [Declared],
    shapes: &BTreeMap<String, Vec<i64>>,
    dims: &BTreeMap<String, DimSpec>,
    bindings: &mut Bindings,
) -> Result<()> {
    let ranges: Bounds = dims
        .iter()
        .filter_map(|(name, spec)| match spec {
            DimSpec::Range(low, high) => Some((name.clone(), (*low, *high))),
            DimSpec::Fixed(_) | DimSpec::Is(_) => None,
        })
        .collect();
    for (name, shape) in shapes {
        let given = || format!("{shape:?} for input `{name}`");
        let Some(input) = inputs.iter_mut().find(|i| i.name == *name) else {
            return Err(unknown_input(name, inputs.iter().map(|i| i.name.as_str())));
        };
        if shape.iter().any(|d| *d < 0) {
            return Err(Error::request(
                format!("the shape {} has a negative size", given()),
                "give sizes of 0 or more",
            ));
        }
        let declared =
            input.shape.get_or_insert_with(|| shape.iter().map(|d| Dim::known(*d)).collect()).clone();
        if declared.len() != shape.len() {
            return Err(Error::request(
                format!("the shape {} has the wrong rank", given()),
                format!("the model declares {}", sizes(&declared)),
            ));
        }
        // Bind plain symbols first, so that expressions are mostly known.
        for (dim, value) in declared.iter().zip(shape) {
            if let Some(symbol) = dim.as_symbol().filter(|s| !ranges.contains_key(*s)) {
                bindings.entry(symbol.to_string()).or_insert(*value);
            }
        }
    }
    for (name, shape) in shapes {
        let Some(declared) = inputs.iter().find(|i| i.name == *name).and_then(|i| i.shape.as_ref()) else {
            continue;
        };
        for (dim, value) in declared.iter().zip(shape) {
            let known = dim.substitute(bindings);
            solve_for_symbol(&known, *value, &ranges, bindings);
            let known = known.substitute(bindings);
            let (low, high) = known.range(&ranges);
            let ranged = known.as_known().is_none() && (low..=high).contains(value);
            if known.as_known() != Some(*value) && !ranged {
                let what = match (dim.as_symbol(), bindings.get(&dim.to_string())) {
                    (Some(_), Some(bound)) => format!("{dim}, which is {bound}"),
                    (Some(_), None) => format!("{dim} in {low}..{high}"),
                    (None, _) => dim.to_string(),
                };
                return Err(Error::request(
                    format!("size {value} of the shape {shape:?} for input `{name}` is not {what}"),
                    format!(
                        "the model declares {}; give shapes and sizes that match the declaration",
                        sizes(declared)
                    ),
                ));
            }
        }
    }
    Ok(())
}

/// Checks the type of a value that is given for an input.
///
/// # Errors
/// Fails if the value does not have the type of the input.
pub(super) fn check_value_type(input: &Declared, array: &Array) -> Result<()> {
    let wrong = |want: &str| {
        Err(Error::request(
            format!(
                "the value given for input `{}` has type {}, but the input is {want}",
                input.name,
                array.dtype.name()
            ),
            format!("give {want}"),
        ))
    };
    match &input.dtype {
        Ok(dtype) if *dtype != array.dtype => wrong(dtype.name()),
        Ok(_) => Ok(()),
        Err(reason) => wrong(&format!("an unsupported type ({})", reason.reason)),
    }
}

/// Returns the error for an input that the model does not have.
pub(super) fn unknown_input<'a>(name: &str, inputs: impl Iterator<Item = &'a str>) -> Error {
    let names = inputs.map(|i| format!("`{i}`")).collect::<Vec<_>>().join(", ");
    Error::request(format!("the model has no input `{name}`"), format!("its inputs are {names}"))
}

fn sizes(shape: &[Dim]) -> String {
    format!("[{}]", shape.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
}

/// If `dim` is one symbol plus a number, sets the symbol so that `dim` equals `value`. Symbols with a range are not
/// set.
fn solve_for_symbol(dim: &Dim, value: i64, ranges: &Bounds, bindings: &mut Bindings) {
    let mut symbols = BTreeSet::new();
    dim.symbols(&mut symbols);
    let Some(symbol) = symbols.pop_first().filter(|s| symbols.is_empty() && !ranges.contains_key(s)) else {
        return;
    };
    let rest = dim.sub(&Dim::symbol(&symbol));
    if let Some(rest) = rest.as_known() {
        bindings.insert(symbol, value.saturating_sub(rest));
    }
}
