//! The model's inputs: their types, and their sizes as numbers or bounded symbols.

use std::collections::{BTreeMap, BTreeSet};

use super::Options;
use super::lowering::{Lowered, Refused};
use super::schema::tensor_shape_proto::dimension::Value as DimValue;
use super::schema::type_proto::Value as TypeValue;
use super::schema::{ValueInfoProto, type_proto};
use super::{DimSpec, tensors};
use crate::error::{Error, Result};
use crate::ir::dim::{Atom, Bindings, Bounds, Dim};
use crate::ir::tensor::DType;

/// The largest batch unless the user asks for more: memory grows with it, and devices bind 128 MiB at a time.
const MAX_BATCH: i64 = 8;

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

fn shape(name: &str, tensor: &type_proto::Tensor) -> Lowered<Option<Vec<Dim>>> {
    let Some(shape) = &tensor.shape else { return Ok(None) };
    let dim = |(axis, dim): (usize, &super::schema::tensor_shape_proto::Dimension)| match &dim.value {
        Some(DimValue::DimValue(-1)) | None => Ok(Dim::symbol(&symbol(&format!("{name}_{axis}")))),
        Some(DimValue::DimValue(value)) if *value < 0 => {
            Err(Refused::new(format!("its size {value} is negative")))
        }
        Some(DimValue::DimValue(value)) => Ok(Dim::known(*value)),
        Some(DimValue::DimParam(text)) => {
            Ok(parameter(text).unwrap_or_else(|| Dim::symbol(&symbol(&format!("{name}_{axis}")))))
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

/// Replaces symbols that the options fix, and bounds the others.
///
/// # Errors
/// When an option names no input or symbol of the model, or contradicts it.
pub(super) fn resolve(inputs: &mut [Declared], options: &Options, notes: &mut Vec<String>) -> Result<Bounds> {
    let mut bindings = Bindings::new();
    let declared = symbols(inputs);
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
            DimSpec::Same(other) => {
                known(other)?;
                for dim in inputs.iter_mut().flat_map(|i| i.shape.iter_mut().flatten()) {
                    *dim = renamed(dim, name, other);
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
    bind(inputs, &options.input_shapes, &mut bindings)?;
    for input in inputs.iter_mut() {
        for dim in input.shape.iter_mut().flatten() {
            *dim = dim.substitute(&bindings);
        }
    }
    let symbols = symbols(inputs);
    let batched = batch_symbols(&symbols, inputs);
    let mut bounds = Bounds::new();
    for symbol in symbols {
        let range = match options.dims.get(&symbol) {
            Some(DimSpec::Range(low, high)) => (*low, *high),
            _ => {
                let (low, mut high) = options.default_range;
                if batched.contains(&symbol) {
                    high = high.min(MAX_BATCH).max(low);
                }
                notes.push(format!(
                    "symbol `{symbol}` has no bound: {low}..={high} assumed; pass --dim {symbol}=LOW..HIGH"
                ));
                (low, high)
            }
        };
        bounds.insert(symbol, range);
    }
    Ok(bounds)
}

/// The symbols that count items of a batch: first axes only, called so or of images.
fn batch_symbols(symbols: &BTreeSet<String>, inputs: &[Declared]) -> BTreeSet<String> {
    let is_batch = |symbol: &&String| {
        let dim = Dim::symbol(symbol);
        let uses = || inputs.iter().filter_map(|i| i.shape.as_deref()).filter(|s| s.contains(&dim));
        let first = uses().all(|s| s.iter().position(|d| *d == dim) == Some(0));
        first && (symbol.to_lowercase().contains("batch") || uses().any(|s| s.len() >= 4))
    };
    symbols.iter().filter(is_batch).cloned().collect()
}

/// The symbols of all sizes.
fn symbols(inputs: &[Declared]) -> BTreeSet<String> {
    let mut symbols = BTreeSet::new();
    for dim in inputs.iter().flat_map(|i| i.shape.iter().flatten()) {
        dim.symbols(&mut symbols);
    }
    symbols
}

/// The size with one symbol in place of another.
fn renamed(dim: &Dim, from: &str, to: &str) -> Dim {
    let mut sum = Dim::known(0);
    for term in dim.terms() {
        let mut product = Dim::known(term.coefficient);
        for factor in &term.factors {
            product = product.mul(&match factor {
                Atom::Symbol(name) if &**name == from => Dim::symbol(to),
                Atom::Symbol(name) => Dim::symbol(name),
                Atom::FloorDiv(inner, divisor) => renamed(inner, from, to).floor_div(*divisor),
            });
        }
        sum = sum.add(&product);
    }
    sum
}

/// Binds symbols to the sizes of concrete input shapes.
fn bind(inputs: &mut [Declared], shapes: &BTreeMap<String, Vec<i64>>, bindings: &mut Bindings) -> Result<()> {
    for (name, shape) in shapes {
        let given = || format!("{shape:?} for input `{name}`");
        let Some(input) = inputs.iter_mut().find(|i| i.name == *name) else {
            let names = inputs.iter().map(|i| format!("`{}`", i.name)).collect::<Vec<_>>().join(", ");
            return Err(Error::request(
                format!("the model has no input `{name}`"),
                format!("its inputs are {names}"),
            ));
        };
        if shape.iter().any(|d| *d < 0) {
            return Err(Error::request(format!("the shape {} is negative", given()), "give sizes from 0"));
        }
        let declared =
            input.shape.get_or_insert_with(|| shape.iter().map(|d| Dim::known(*d)).collect()).clone();
        if declared.len() != shape.len() {
            return Err(Error::request(
                format!("the shape {} has the wrong rank", given()),
                format!("the model declares {} dimensions", declared.len()),
            ));
        }
        // Plain symbols first: expressions are then mostly known.
        for (dim, value) in declared.iter().zip(shape) {
            if let Some(symbol) = dim.as_symbol() {
                bindings.entry(symbol.to_string()).or_insert(*value);
            }
        }
    }
    for (name, shape) in shapes {
        let Some(declared) = inputs.iter().find(|i| i.name == *name).and_then(|i| i.shape.as_ref()) else {
            continue;
        };
        for (dim, value) in declared.iter().zip(shape) {
            solve(&dim.substitute(bindings), *value, bindings);
            if dim.eval(bindings) != Some(*value) {
                return Err(Error::request(
                    format!("size {value} of the shape {shape:?} for input `{name}` is not {dim}"),
                    "give shapes and sizes that agree with the model",
                ));
            }
        }
    }
    Ok(())
}

/// Binds the one unbound symbol of `dim`, when it occurs plainly.
fn solve(dim: &Dim, value: i64, bindings: &mut Bindings) {
    let mut symbols = BTreeSet::new();
    dim.symbols(&mut symbols);
    let Some(symbol) = symbols.pop_first().filter(|_| symbols.is_empty()) else { return };
    let rest = dim.sub(&Dim::symbol(&symbol));
    if let Some(rest) = rest.as_known() {
        bindings.insert(symbol, value.saturating_sub(rest));
    }
}
