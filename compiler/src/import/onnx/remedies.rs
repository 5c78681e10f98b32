//! Suggests command-line options with which a refused model imports.
//!
//! Every suggestion was tried by an import. The search tries the bounds that refused nodes accept. It also tries
//! constant values for small inputs, together with typical sizes for symbols without bounds. Integers with which the
//! model compares computed values are the first constants to be tried. If other nodes are then refused, the search
//! adds further options. In the end, it drops options that do not lower the number of refused nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bytes::Bytes;

use super::declarations::{self, Declared};
use super::inputs::{self, Assumed, is_small, with_sample_shapes};
use super::lower;
use super::schema::{GraphProto, ModelProto, NodeProto};
use super::source::Source;
use super::{DimSpec, Options, tensors};
use crate::error::{Error, Result, Unsupported, Within};
use crate::ir::array::{Array, Data, count};

/// Number of nodes that the search for options may lower in all its import attempts together. The number of attempts is
/// this number divided by the number of nodes of the graph, clamped to [`TRIES`].
const NODE_BUDGET: usize = 20_000;
/// Bounds to which the number of import attempts is clamped, in the search for command-line options with which a model imports.
const TRIES: std::ops::RangeInclusive<usize> = 8..=32;

/// A suggested command-line option.
#[derive(Debug, Clone, PartialEq)]
pub enum Remedy {
    /// Fixes the value of an input.
    Constant {
        /// Name of the input.
        name: String,
        /// Value of the input.
        value: Array,
    },
    /// Bounds a symbolic size.
    Size(Within),
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant { name, value } => {
                let values: Vec<String> = match &value.data {
                    Data::Float(v) => v.iter().map(ToString::to_string).collect(),
                    Data::Int(v) => v.iter().map(ToString::to_string).collect(),
                };
                write!(f, "--const {name}={}", values.join(","))
            }
            Self::Size(within) => write!(f, "{within}"),
        }
    }
}

impl Remedy {
    /// Creates the remedy that bounds a symbolic size.
    pub fn size(symbol: &str, low: i64, high: i64) -> Self {
        Self::Size(Within { symbol: symbol.to_owned(), low, high })
    }
}

/// Result of the search for options with which a model imports.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Remedies {
    /// Command-line options, to be given in one call.
    pub list: Vec<Remedy>,
    /// Number of nodes that are still refused if all options of `list` are given; 0 if the model imports.
    pub left: usize,
}

/// Searches for remedies.
pub(super) fn find_remedies(source: &Source, bytes: Bytes, options: &Options) -> Result<Remedies> {
    let model = lower::decode_model(source, bytes)?;
    let Some(graph) = &model.graph else { return Ok(Remedies::default()) };
    let options = with_sample_shapes(options);
    let refusals =
        |remedies: &[Remedy]| match lower::lower_model(source, &model, &options.with_remedies(remedies), 0) {
            Ok(_) => Some(Vec::new()),
            Err(Error::Unsupported { nodes }) => Some(nodes),
            Err(_) => None,
        };
    let score = |remedies: &[Remedy]| refusals(remedies).map_or(usize::MAX, |nodes| nodes.len());
    let mut nodes = match refusals(&[]) {
        Some(nodes) if nodes.iter().any(|n| !n.unknown_operator) => nodes,
        _ => return Ok(Remedies::default()),
    };
    let mut best: (usize, Vec<Remedy>) = (nodes.len(), Vec::new());
    let mut tries = (NODE_BUDGET / graph.node.len().max(1)).clamp(*TRIES.start(), *TRIES.end());
    let mut tried: Vec<Remedy> = Vec::new();
    while best.0 > 0 && tries > 0 {
        let inputs = nodes.iter().flat_map(|n| n.inputs.iter().cloned()).collect();
        let mut next: Option<(Vec<Remedy>, Vec<Unsupported>)> = None;
        let from_nodes = nodes.iter().filter_map(|n| Some(vec![Remedy::Size(n.within.clone()?)]));
        let proposed = proposals(&model, graph, &options.with_remedies(&tried), &inputs);
        for more in from_nodes.chain(proposed) {
            let Some(rest) = tries.checked_sub(1) else { break };
            tries = rest;
            let all = [&tried[..], &more].concat();
            let Some(left) = refusals(&all) else { continue };
            let fewer = left.len() < best.0;
            if fewer {
                best = (left.len(), all.clone());
            }
            // The nodes refused so far pass, and the nodes after them are refused: continue from here.
            let passed = !left.iter().any(|l| nodes.iter().any(|n| n.node == l.node));
            if fewer || passed && next.is_none() {
                next = Some((all, left));
            }
            if best.0 == 0 {
                break;
            }
        }
        let Some(next) = next else { break };
        (tried, nodes) = next;
    }
    let (left, mut list) = best;
    let mut at = 0;
    while at < list.len() {
        let mut fewer = list.clone();
        fewer.remove(at);
        match score(&fewer) <= left {
            true => list = fewer,
            false => at += 1,
        }
    }
    Ok(Remedies { list, left })
}

impl Options {
    /// Returns the import options with suggested options added.
    pub fn with_remedies(&self, remedies: &[Remedy]) -> Self {
        let mut options = self.clone();
        for remedy in remedies {
            match remedy {
                Remedy::Constant { name, value } => {
                    options.input_shapes.remove(name);
                    options.constants.insert(name.clone(), value.clone());
                }
                Remedy::Size(Within { symbol, low, high }) => {
                    let spec = if low == high { DimSpec::Fixed(*low) } else { DimSpec::Range(*low, *high) };
                    options.dims.insert(symbol.clone(), spec);
                }
            }
        }
        options
    }
}

/// Returns the combinations of options to try, simplest first. A combination fixes the values of the inputs that may
/// decide shapes, or the sizes of all symbols, or these values and sizes together.
fn proposals(
    model: &ModelProto,
    graph: &GraphProto,
    options: &Options,
    deciding: &BTreeSet<String>,
) -> Vec<Vec<Remedy>> {
    let mut inputs = open_inputs(graph);
    if inputs::replace_shapes(&mut inputs, options).is_err() {
        return Vec::new();
    }
    let compared = compared_integers(model);
    let decides = |input: &&Declared| deciding.contains(&input.name);
    let values: Vec<(String, Vec<Array>)> =
        inputs.iter().filter(decides).map(|i| (i.name.clone(), candidates(i, &compared))).collect();
    let shapes = options.input_shapes.clone();
    let resolved = inputs::resolve_sizes(graph, &mut inputs, &shapes, options, 0);
    let assumed = resolved.map_or_else(|_| Vec::new(), |(_, assumed)| assumed);
    let constants = |nth: usize| {
        let one = |(name, list): &(String, Vec<Array>)| {
            let value = list.get(nth).or(list.last())?.clone();
            Some(Remedy::Constant { name: name.clone(), value })
        };
        values.iter().filter_map(one).collect::<Vec<Remedy>>()
    };
    let sizes = |nth: usize| {
        let one = |a: &Assumed| {
            let list = a.role.typical();
            let size = *list.get(nth).or(list.last())?;
            Some(Remedy::Size(Within { symbol: a.symbol.clone(), low: size, high: size }))
        };
        assumed.iter().filter_map(one).collect::<Vec<Remedy>>()
    };
    let max_values = values.iter().map(|(_, list)| list.len()).max().unwrap_or(0);
    let max_sizes = assumed.iter().map(|a| a.role.typical().len()).max().unwrap_or(0);
    let mut proposals = Vec::new();
    for value in std::iter::once(None).chain((0..max_values).map(Some)) {
        for size in std::iter::once(None).chain((0..max_sizes).map(Some)) {
            let mut remedies = value.map(constants).unwrap_or_default();
            remedies.extend(size.map(sizes).unwrap_or_default());
            if !remedies.is_empty() {
                proposals.push(remedies);
            }
        }
    }
    proposals
}

/// Returns the inputs without an initializer.
fn open_inputs(graph: &GraphProto) -> Vec<Declared> {
    let has_initializer = |name: &str| graph.initializer.iter().any(|t| t.name() == name);
    graph
        .input
        .iter()
        .filter(|i| !has_initializer(i.name()))
        .filter_map(|i| declarations::read(i).ok())
        .collect()
}

/// Returns constant values to try for a small input.
fn candidates(input: &Declared, compared: &[i64]) -> Vec<Array> {
    let (Ok(dtype), Some(shape)) = (&input.dtype, &input.shape) else { return Vec::new() };
    let known: Option<Vec<usize>> =
        shape.iter().map(|d| d.as_known().and_then(|n| usize::try_from(n).ok())).collect();
    let shapes: Vec<Vec<usize>> = match known {
        Some(shape) if is_small(&shape) => vec![shape],
        // The number of elements is not declared; try 1 to 4.
        None if shape.len() == 1 => (1..=4).map(|n| vec![n]).collect(),
        _ => return Vec::new(),
    };
    let mut candidates = Vec::new();
    for shape in shapes {
        let n = count(&shape);
        if dtype.is_float() {
            candidates.push(Array::float(*dtype, &shape, vec![1.0; n]));
        } else {
            let values = compared.iter().copied().chain([1, 0]);
            candidates.extend(values.map(|v| Array::int(*dtype, &shape, vec![v; n])));
        }
    }
    candidates
}

/// Returns the constant integers with which the model compares computed values.
fn compared_integers(model: &ModelProto) -> Vec<i64> {
    let mut graphs: Vec<&GraphProto> = model.graph.iter().collect();
    let mut nodes: Vec<&NodeProto> = model.functions.iter().flat_map(|f| &f.node).collect();
    let mut constants: BTreeMap<&str, Array> = BTreeMap::new();
    let mut at = 0;
    while let Some(graph) = graphs.get(at).copied() {
        at += 1;
        let small = graph.initializer.iter().filter(|t| t.dims.iter().all(|d| *d == 1));
        constants.extend(small.filter_map(|t| Some((t.name(), tensors::inline(t).ok()?))));
        graphs.extend(graph.node.iter().flat_map(|n| &n.attribute).filter_map(|a| a.g.as_ref()));
        nodes.extend(&graph.node);
    }
    for node in nodes.iter().filter(|n| n.op_type() == "Constant") {
        let tensor = node.attribute.iter().find_map(|a| a.t.as_ref());
        let small = tensor.filter(|t| t.dims.iter().all(|d| *d == 1));
        if let (Some(name), Some(array)) = (node.output.first(), small.and_then(|t| tensors::inline(t).ok()))
        {
            constants.insert(name, array);
        }
    }
    let comparisons = ["Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"];
    let mut values = Vec::new();
    for operand in nodes.iter().filter(|n| comparisons.contains(&n.op_type())).flat_map(|n| &n.input) {
        if let Some([value]) = constants.get(operand.as_str()).and_then(|a| a.ints().ok())
            && !values.contains(value)
        {
            values.push(*value);
        }
    }
    values.truncate(8);
    values
}
