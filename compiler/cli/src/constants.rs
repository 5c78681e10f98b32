//! `--const`: replaces inputs with constants from the command line or from files.

use std::collections::BTreeMap;
use std::path::Path;

use driftc::import::onnx::Declaration;
use driftc::ir::array::{Array, Data, count};
use driftc::ir::graph::Graph;
use driftc::ir::op::Constant;
use driftc::ir::tensor::DType;

use crate::arrays::to_host;
use crate::failure::{Failure, Result};
use crate::npy;

/// Maximum number of values that a bundle's provenance lists in full.
const MAX_LISTED_VALUES: usize = 16;

/// Maximum number of input elements that a single number of `--const` may fill.
const MAX_FILLED_ELEMENTS: usize = 1 << 24;

/// A `NAME=VALUE` or `NAME=FILE.npy` argument of `--const`.
#[derive(Debug, Clone)]
pub(crate) struct ConstArg {
    pub(crate) name: String,
    value: String,
}

/// Parses `NAME=VALUE`.
pub(crate) fn parse_const(text: &str) -> Result<ConstArg, String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => {
            Ok(ConstArg { name: name.to_owned(), value: value.to_owned() })
        }
        _ => Err("write NAME=VALUE, for example sr=16000, or NAME=FILE.npy".into()),
    }
}

/// Array of a `--const` argument. Numbers take the type and the shape of the input.
pub(crate) fn constant_array(
    given: &ConstArg,
    declared: &[Declaration],
    dims: &BTreeMap<String, (i64, i64)>,
) -> Result<Array> {
    let name = &given.name;
    let Some(input) = declared.iter().find(|d| d.name == *name) else {
        let names: Vec<String> = declared.iter().map(|d| format!("`{}`", d.name)).collect();
        return Err(Failure::usage(format!("the model has no input `{name}`"))
            .help(format!("its inputs are {}", names.join(", "))));
    };
    let fixed = dims.iter().filter(|(_, (low, high))| low == high).map(|(n, (low, _))| (n.clone(), *low));
    let fixed = fixed.collect();
    let sizes: Option<Vec<driftc::ir::dim::Dim>> =
        input.shape.as_ref().map(|shape| shape.iter().map(|d| d.substitute(&fixed)).collect());
    let declared_type = describe_input(input, sizes.as_deref());
    if Path::new(&given.value).extension().is_some_and(|e| e.eq_ignore_ascii_case("npy")) {
        let array = to_host(&npy::read(Path::new(&given.value))?)?;
        return match input.dtype {
            Some(dtype) if dtype != array.dtype => Err(Failure::usage(format!(
                "input `{name}` is {declared_type}, but the file {} holds {}{:?}",
                given.value,
                array.dtype.name(),
                array.shape
            ))
            .help(format!("save the array as {}", dtype.name()))),
            _ => Ok(array),
        };
    }
    let Some(dtype) = input.dtype else {
        return Err(Failure::usage(format!("input `{name}` has a type that --const does not support")));
    };
    let texts: Vec<&str> = given.value.split(',').map(str::trim).collect();
    let data = numbers(dtype, &texts).ok_or_else(|| {
        Failure::usage(format!("`{}` is no value for input `{name}`, which is {declared_type}", given.value))
            .help(format!("write comma-separated {}, or FILE.npy", value_kind(dtype)))
    })?;
    let known = sizes.as_ref().and_then(|s| {
        s.iter().map(|d| d.as_known().and_then(|n| usize::try_from(n).ok())).collect::<Option<Vec<usize>>>()
    });
    let shape = match (known, sizes.as_ref().map(Vec::len)) {
        (Some(shape), _) => shape,
        // A list of values sets the size of a single axis of unknown size. An input of unknown shape becomes a list.
        (None, Some(1)) => vec![texts.len()],
        (None, None) if texts.len() == 1 => Vec::new(),
        (None, None) => vec![texts.len()],
        (None, Some(_)) => {
            return Err(Failure::usage(format!("input `{name}` is {declared_type} and has unknown sizes"))
                .help(format!(
                    "fix the sizes with --dim NAME=N, or give an array: --const {name}=FILE.npy"
                )));
        }
    };
    let n = Some(count(&shape)).filter(|n| *n <= MAX_FILLED_ELEMENTS);
    let array = match data {
        Data::Int(v) => n.and_then(|n| fill(v, n)).map(|v| Array::int(dtype, &shape, v)),
        Data::Float(v) => n.and_then(|n| fill(v, n)).map(|mut v| {
            driftc::ir::array::round_floats(dtype, &mut v);
            Array::float(dtype, &shape, v)
        }),
    };
    array.ok_or_else(|| {
        Failure::usage(format!(
            "{} values are given for input `{name}`, which is {declared_type}",
            texts.len()
        ))
        .help("give one value for all elements, or one value for each element")
    })
}

/// Returns `n` values: the given values, or `n` copies of a single given value. Returns `None` for any other number of
/// given values.
fn fill<T: Copy>(values: Vec<T>, n: usize) -> Option<Vec<T>> {
    match values.as_slice() {
        [one] => Some(vec![*one; n]),
        _ => (values.len() == n).then_some(values),
    }
}

fn numbers(dtype: DType, texts: &[&str]) -> Option<Data> {
    if dtype.is_float() {
        return texts.iter().map(|t| t.parse().ok()).collect::<Option<Vec<f32>>>().map(Data::Float);
    }
    let one = |text: &&str| match (dtype, *text) {
        (DType::Bool, "true" | "1") => Some(1),
        (DType::Bool, "false" | "0") => Some(0),
        (DType::Bool, _) => None,
        (DType::U64, text) => text.parse::<u64>().ok().map(|v| v as i64),
        (_, text) => {
            let value: i64 = text.parse().ok()?;
            // Refuse a number that the type cannot hold instead of wrapping it.
            (driftc::ir::array::wrap(dtype, value) == value).then_some(value)
        }
    };
    texts.iter().map(one).collect::<Option<Vec<i64>>>().map(Data::Int)
}

fn value_kind(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "true or false",
        d if d.is_float() => "numbers",
        _ => "integers in the range of the input's type",
    }
}

fn describe_input(input: &Declaration, sizes: Option<&[driftc::ir::dim::Dim]>) -> String {
    let dtype = input.dtype.map_or("of an unsupported type", DType::name);
    match sizes {
        None => format!("{dtype} of any shape"),
        Some(sizes) => {
            let sizes: Vec<String> = sizes.iter().map(ToString::to_string).collect();
            format!("{dtype}[{}]", sizes.join(", "))
        }
    }
}

/// Values of an array as text, or their hash if there are more than [`MAX_LISTED_VALUES`].
pub(crate) fn values_or_hash(array: &Array) -> String {
    if array.len() > MAX_LISTED_VALUES {
        return format!("{}", blake3::hash(&array.to_bytes()).to_hex());
    }
    let values: Vec<String> = match &array.data {
        Data::Float(v) => v.iter().map(ToString::to_string).collect(),
        Data::Int(v) => v.iter().map(ToString::to_string).collect(),
    };
    values.join(",")
}

/// Replaces an input of a graph with a constant.
pub(crate) fn replace_input(graph: &mut Graph, name: &str, array: &Array) -> Result<()> {
    let input = graph.inputs().iter().copied().find(|id| graph.input(*id).is_some_and(|i| i.name == name));
    let Some(id) = input else { return Ok(()) };
    let want = graph.tensor(id).known_shape();
    if want.as_ref() != Some(&array.shape) {
        let want = graph.tensor(id).to_string();
        return Err(Failure::usage(format!(
            "input `{name}` is {want}, but the given value has shape {:?}",
            array.shape
        ))
        .help("fix the sizes of the input with --dim NAME=N"));
    }
    let constant = Constant::from_array(array);
    Ok(graph.make_constant(id, constant)?)
}
