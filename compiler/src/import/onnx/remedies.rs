//! What a user could say so that a refused model imports.
//!
//! Nothing is said that was not tried: bounds of sizes that follow from the nodes themselves, values of small inputs (those that the model compares with something come
//! first) together with typical values of sizes that nobody bounds. Where other nodes are refused then, more is tried
//! on top. Of what lowers the number of refused nodes, only what is needed for that stays.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bytes::Bytes;

use super::attempts::{is_small, with_shapes};
use super::inputs::{self, Assumed, Declared};
use super::lower;
use super::schema::{GraphProto, ModelProto, NodeProto};
use super::source::Source;
use super::{DimSpec, Options, tensors};
use crate::error::{Error, Result, Unsupported, Within};
use crate::ir::array::{Array, count};

/// How often a model is lowered in search of a remedy: as often as so many nodes allow, within these numbers.
const NODES: usize = 20_000;
const TRIES: std::ops::RangeInclusive<usize> = 8..=32;

/// Something to say on the command line.
#[derive(Debug, Clone, PartialEq)]
pub enum Remedy {
    /// An input has this value.
    Constant {
        /// The input.
        name: String,
        /// Its value.
        value: Array,
    },
    /// A symbolic size lies within these bounds.
    Size(Within),
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant { name, value } => {
                let values: Vec<String> = match &value.data {
                    crate::ir::array::Data::Float(v) => v.iter().map(ToString::to_string).collect(),
                    crate::ir::array::Data::Int(v) => v.iter().map(ToString::to_string).collect(),
                };
                write!(f, "--const {name}={}", values.join(","))
            }
            Self::Size(within) => write!(f, "{within}"),
        }
    }
}

/// What helps, and how far.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Remedies {
    /// To be said together.
    pub list: Vec<Remedy>,
    /// Nodes that are refused all the same.
    pub left: usize,
}

/// Looks for remedies.
pub(super) fn find(source: &Source, bytes: Bytes, options: &Options) -> Result<Remedies> {
    let model = lower::decode(source, bytes)?;
    let Some(graph) = &model.graph else { return Ok(Remedies::default()) };
    let options = with_shapes(options);
    let refusals = |said: &[Remedy]| match lower::model(source, &model, &saying(&options, said), 0) {
        Ok(_) => Some(Vec::new()),
        Err(Error::Unsupported { nodes }) => Some(nodes),
        Err(_) => None,
    };
    let score = |said: &[Remedy]| refusals(said).map_or(usize::MAX, |nodes| nodes.len());
    let mut nodes = match refusals(&[]) {
        Some(nodes) if nodes.iter().any(|n| !n.is_unknown()) => nodes,
        _ => return Ok(Remedies::default()),
    };
    let mut best: (usize, Vec<Remedy>) = (nodes.len(), Vec::new());
    let mut tries = (NODES / graph.node.len().max(1)).clamp(*TRIES.start(), *TRIES.end());
    let mut said: Vec<Remedy> = Vec::new();
    while best.0 > 0 && tries > 0 {
        let inputs = nodes.iter().flat_map(|n| n.inputs.iter().cloned()).collect();
        let mut next: Option<(Vec<Remedy>, Vec<Unsupported>)> = None;
        let solved = nodes.iter().filter_map(|n| Some(vec![Remedy::Size(n.within.clone()?)]));
        let guessed = proposals(&model, graph, &saying(&options, &said), &inputs);
        for more in solved.chain(guessed) {
            let Some(rest) = tries.checked_sub(1) else { break };
            tries = rest;
            let all = [&said[..], &more].concat();
            let Some(left) = refusals(&all) else { continue };
            let fewer = left.len() < best.0;
            if fewer {
                best = (left.len(), all.clone());
            }
            // What was refused is not any more: what it hid comes next.
            let passed = !left.iter().any(|l| nodes.iter().any(|n| n.node == l.node));
            if fewer || passed && next.is_none() {
                next = Some((all, left));
            }
            if best.0 == 0 {
                break;
            }
        }
        let Some(next) = next else { break };
        (said, nodes) = next;
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

/// The options with what is said added.
fn saying(options: &Options, said: &[Remedy]) -> Options {
    let mut options = options.clone();
    for remedy in said {
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

/// What is tried, the simplest first: values for the inputs that may decide, or none, with sizes for all symbols, or
/// none.
fn proposals(
    model: &ModelProto,
    graph: &GraphProto,
    options: &Options,
    deciding: &BTreeSet<String>,
) -> Vec<Vec<Remedy>> {
    let mut inputs = declared(graph);
    let compared = compared(model);
    let decides = |input: &&Declared| deciding.contains(&input.name);
    let values: Vec<(String, Vec<Array>)> =
        inputs.iter().filter(decides).map(|i| (i.name.clone(), candidates(i, &compared))).collect();
    let shapes = options.input_shapes.clone();
    let found = inputs::resolve(graph, &mut inputs, &shapes, options, 0);
    let assumed = found.map_or_else(|_| Vec::new(), |(_, assumed)| assumed);
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
    let most = values.iter().map(|(_, list)| list.len()).max().unwrap_or(0);
    let longest = assumed.iter().map(|a| a.role.typical().len()).max().unwrap_or(0);
    let mut proposals = Vec::new();
    for value in std::iter::once(None).chain((0..most).map(Some)) {
        for size in std::iter::once(None).chain((0..longest).map(Some)) {
            let mut said = value.map(constants).unwrap_or_default();
            said.extend(size.map(sizes).unwrap_or_default());
            if !said.is_empty() {
                proposals.push(said);
            }
        }
    }
    proposals
}

/// The inputs that have no value of their own.
fn declared(graph: &GraphProto) -> Vec<Declared> {
    let own = |name: &str| graph.initializer.iter().any(|t| t.name() == name);
    graph.input.iter().filter(|i| !own(i.name())).filter_map(|i| inputs::declared(i).ok()).collect()
}

/// Values that a small input could have.
fn candidates(input: &Declared, compared: &[i64]) -> Vec<Array> {
    let (Ok(dtype), Some(shape)) = (&input.dtype, &input.shape) else { return Vec::new() };
    let known: Option<Vec<usize>> =
        shape.iter().map(|d| d.as_known().and_then(|n| usize::try_from(n).ok())).collect();
    let shapes: Vec<Vec<usize>> = match known {
        Some(shape) if is_small(&shape) => vec![shape],
        // How many elements there are is not said.
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

/// The single integers that anything in the model is compared with.
fn compared(model: &ModelProto) -> Vec<i64> {
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
