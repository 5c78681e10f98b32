//! The model's inputs: their types, and their sizes as numbers or bounded symbols.

use std::collections::{BTreeMap, BTreeSet};

use super::Options;
use super::lowering::{Lowered, Refused};
use super::roles::{Role, roles};
use super::schema::tensor_shape_proto::dimension::Value as DimValue;
use super::schema::type_proto::Value as TypeValue;
use super::schema::{GraphProto, ValueInfoProto, type_proto};
use super::{DimSpec, tensors};
use crate::error::{Error, Result};
use crate::ir::array::Array;
use crate::ir::dim::{Atom, Bindings, Bounds, Dim};
use crate::ir::tensor::DType;

/// An input as declared.
#[derive(Debug)]
pub(super) struct Declared {
    /// Name.
    pub(super) name: String,
    /// Element type, or why the graph cannot hold it.
    pub(super) dtype: Lowered<DType>,
    /// Sizes; `None` when not even the rank is declared.
    pub(super) shape: Option<Vec<Dim>>,
}

/// Reads a declaration.
pub(super) fn declared(info: &ValueInfoProto) -> Lowered<Declared> {
    let name = info.name().to_string();
    let tensor = match info.r#type.as_ref().and_then(|t| t.value.as_ref()) {
        Some(TypeValue::TensorType(tensor)) => tensor,
        None => return Err(Refused::new("it has no type")),
        Some(_) => {
            let reason = Refused::new("only tensors are supported, not sequences, maps or optional values");
            return Ok(Declared { name, dtype: Err(reason), shape: None });
        }
    };
    let dtype = tensors::dtype(tensor.elem_type.unwrap_or(0));
    let shape = shape(&name, tensor)?;
    Ok(Declared { name, dtype, shape })
}

/// The element type that is declared, where one is.
pub(super) fn dtype(info: &ValueInfoProto) -> Option<DType> {
    match info.r#type.as_ref()?.value.as_ref()? {
        TypeValue::TensorType(tensor) => tensors::dtype(tensor.elem_type?).ok(),
        _ => None,
    }
}

fn shape(name: &str, tensor: &type_proto::Tensor) -> Lowered<Option<Vec<Dim>>> {
    let Some(shape) = &tensor.shape else { return Ok(None) };
    let dim = |(axis, dim): (usize, &super::schema::tensor_shape_proto::Dimension)| match &dim.value {
        Some(DimValue::DimValue(-1)) | None => Ok(Dim::symbol(&unnamed(name, axis))),
        Some(DimValue::DimValue(value)) if *value < 0 => {
            Err(Refused::new(format!("its size {value} is negative")))
        }
        Some(DimValue::DimValue(value)) => Ok(Dim::known(*value)),
        Some(DimValue::DimParam(text)) => {
            Ok(parameter(text).unwrap_or_else(|| Dim::symbol(&unnamed(name, axis))))
        }
    };
    shape.dim.iter().enumerate().map(dim).collect::<Lowered<Vec<_>>>().map(Some)
}

/// The size that a dim_param names: a symbol or a sum of products such as `past + 1`.
fn parameter(text: &str) -> Option<Dim> {
    let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    if text.is_empty() || text == "?" {
        return None;
    }
    let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "_.+-*/()".contains(c));
    if plain && let Some(dim) = Dim::parse(&text) {
        // A number is a name that happens to look like one.
        if dim.as_known().is_none() {
            return Some(dim);
        }
    }
    Some(Dim::symbol(&symbol(&text)))
}

/// The symbol of an axis that the model gives no name.
pub(super) fn unnamed(input: &str, axis: usize) -> String {
    symbol(&format!("{input}_{axis}"))
}

/// A name that can be a symbol.
fn symbol(name: &str) -> String {
    let mut out: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '.' { c } else { '_' })
        .collect();
    if out.chars().next().is_none_or(|c| c.is_ascii_digit()) {
        out.insert(0, '_');
    }
    out
}

/// A symbol that nobody bounds.
#[derive(Debug, Clone)]
pub(super) struct Assumed {
    /// Its name.
    pub(super) symbol: String,
    /// What it counts.
    pub(super) role: Role,
}

/// Replaces symbols that the options or the shapes of inputs fix, and bounds the others; also says which bounds are
/// assumed, those of the given attempt.
///
/// # Errors
/// When an option names no input or symbol of the model, or contradicts it.
pub(super) fn resolve(
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
        Err(Error::request(
            format!("the model has no symbolic size `{name}`"),
            if list.is_empty() { "all its sizes are fixed".to_string() } else { format!("it has {list}") },
        ))
    };
    for (name, spec) in &options.dims {
        known(name)?;
        match spec {
            DimSpec::Is(other) => {
                for dim in inputs.iter_mut().flat_map(|i| i.shape.iter_mut().flatten()) {
                    *dim = replaced(dim, name, other);
                }
            }
            DimSpec::Fixed(value) if *value < 0 => {
                return Err(Error::request(format!("size `{name}` is {value}"), "sizes are not negative"));
            }
            DimSpec::Fixed(value) => {
                bindings.insert(name.clone(), *value);
            }
            DimSpec::Range(low, high) if *low < 0 || low > high => {
                return Err(Error::request(
                    format!("the bounds {low}..={high} of size `{name}` hold nothing"),
                    "give a lower bound from 0 and a higher upper one",
                ));
            }
            DimSpec::Range(..) => {}
        }
    }
    bind(inputs, shapes, &options.dims, &mut bindings)?;
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

/// The symbols of all sizes.
fn symbols(inputs: &[Declared]) -> BTreeSet<String> {
    let mut symbols = BTreeSet::new();
    for dim in inputs.iter().flat_map(|i| i.shape.iter().flatten()) {
        dim.symbols(&mut symbols);
    }
    symbols
}

/// The size with another in place of a symbol.
fn replaced(dim: &Dim, from: &str, to: &Dim) -> Dim {
    let mut sum = Dim::known(0);
    for term in dim.terms() {
        let mut product = Dim::known(term.coefficient);
        for factor in &term.factors {
            product = product.mul(&match factor {
                Atom::Symbol(name) if &**name == from => to.clone(),
                Atom::Symbol(name) => Dim::symbol(name),
                Atom::FloorDiv(inner, divisor) => replaced(inner, from, to).floor_div(*divisor),
                Atom::Positive(inner) => replaced(inner, from, to).positive(),
            });
        }
        sum = sum.add(&product);
    }
    sum
}

/// Binds symbols to the sizes of concrete input shapes; those that `dims` gives a range must lie within it.
fn bind(
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
            return Err(no_input(name, inputs.iter().map(|i| i.name.as_str())));
        };
        if shape.iter().any(|d| *d < 0) {
            return Err(Error::request(format!("the shape {} is negative", given()), "give sizes from 0"));
        }
        let declared =
            input.shape.get_or_insert_with(|| shape.iter().map(|d| Dim::known(*d)).collect()).clone();
        if declared.len() != shape.len() {
            return Err(Error::request(
                format!("the shape {} has the wrong rank", given()),
                format!("the model declares {}", sizes(&declared)),
            ));
        }
        // Plain symbols first: expressions are then mostly known.
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
            solve(&known, *value, &ranges, bindings);
            let known = known.substitute(bindings);
            let (low, high) = known.range(&ranges);
            let ranged = known.as_known().is_none() && (low..=high).contains(value);
            if known.as_known() != Some(*value) && !ranged {
                let what = match (dim.as_symbol(), bindings.get(&dim.to_string())) {
                    (Some(_), Some(bound)) => format!("{dim}, which is {bound}"),
                    (Some(_), None) => format!("{dim} in {low}..={high}"),
                    (None, _) => dim.to_string(),
                };
                return Err(Error::request(
                    format!("size {value} of the shape {shape:?} for input `{name}` is not {what}"),
                    format!(
                        "the model declares {}; give shapes and sizes that agree with it",
                        sizes(declared)
                    ),
                ));
            }
        }
    }
    Ok(())
}

/// Whether a value given for an input is of its type.
///
/// # Errors
/// When it is not.
pub(super) fn fits(input: &Declared, array: &Array) -> Result<()> {
    let wrong = |want: &str| {
        Err(Error::request(
            format!(
                "the value given for input `{}` is {}, the input is {want}",
                input.name,
                array.dtype.name()
            ),
            format!("give {want}"),
        ))
    };
    match &input.dtype {
        Ok(dtype) if *dtype != array.dtype => wrong(dtype.name()),
        Ok(_) => Ok(()),
        Err(reason) => wrong(&format!("not one that can be compiled ({})", reason.0)),
    }
}

/// An input that the model does not have.
pub(super) fn no_input<'a>(name: &str, inputs: impl Iterator<Item = &'a str>) -> Error {
    let names = inputs.map(|i| format!("`{i}`")).collect::<Vec<_>>().join(", ");
    Error::request(format!("the model has no input `{name}`"), format!("its inputs are {names}"))
}

fn sizes(shape: &[Dim]) -> String {
    format!("[{}]", shape.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
}

/// Binds the one unbound symbol of `dim`, when it occurs plainly.
fn solve(dim: &Dim, value: i64, ranges: &Bounds, bindings: &mut Bindings) {
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
