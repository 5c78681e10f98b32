//! Random changes of an ONNX model: attributes, sizes, edges, types, constants, nodes.
//!
//! If a model has nothing that a change could apply to, the change returns `None` and leaves the model as it was.

use std::collections::BTreeSet;

use driftc::import::onnx;
use driftc::import::onnx::schema::attribute_proto::AttributeType;
use driftc::import::onnx::schema::tensor_proto::DataType;
use driftc::import::onnx::schema::tensor_shape_proto::dimension::Value as Size;
use driftc::import::onnx::schema::{
    AttributeProto, GraphProto, NodeProto, TensorProto, ValueInfoProto, type_proto,
};
use driftc::ir::array::{Array, Data, count};
use driftc::ir::tensor::DType;
use prost::Message;

use super::pool::{Pool, Stored};
use crate::random_graph::Rng;

/// Function that changes an ONNX model at random. Returns `None` if it does not apply to the model.
pub type Change = fn(&mut Stored, &mut Rng, &Pool) -> Option<()>;

/// All random changes with their names. Changes that usually keep a model valid are listed twice, so that they occur more often.
pub const CHANGES: &[(&str, Change)] = &[
    ("resize", resize),
    ("resize", resize),
    ("symbol", symbol),
    ("symbol", symbol),
    ("retype", retype),
    ("retype", retype),
    ("pin", pin),
    ("graft", graft),
    ("graft", graft),
    ("integer", integer),
    ("integer", integer),
    ("float", float),
    ("text", text),
    ("attribute", attribute),
    ("constant", constant),
    ("constant", constant),
    ("reshape", reshape),
    ("type", kind),
    ("dimension", dimension),
    ("edge", edge),
    ("edge", edge),
    ("arity", arity),
    ("operator", operator),
    ("output", output),
    ("opset", opset),
];

/// Maximum number of elements of a constant after a random change.
const MOST_ELEMENTS: usize = 1 << 16;

const INTEGERS: &[i64] =
    &[0, 1, -1, 2, 3, 4, 5, 7, 8, 16, 64, -2, -3, 1 << 20, 1 << 31, 1 << 40, i64::MAX, i64::MIN];
const SIZES: &[i64] =
    &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 31, 33, 64, 65, 128, 255, 1000, 4096, 70_000];
const FLOATS: &[f32] =
    &[0.0, 1.0, -1.0, 0.5, 2.0, 1e-6, -3.0, 1e6, 1e30, f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
const TEXTS: &[&str] = &[
    "",
    "SAME_UPPER",
    "SAME_LOWER",
    "VALID",
    "NOTSET",
    "reflect",
    "edge",
    "wrap",
    "constant",
    "linear",
    "cubic",
    "nearest",
    "asymmetric",
    "align_corners",
    "half_pixel",
    "floor",
    "ceil",
    "add",
    "mul",
    "max",
    "min",
    "none",
    "sum",
    "mean",
    "DCR",
    "CRD",
    "tanh",
    "forward",
    "reverse",
    "bidirectional",
    "ij,jk->ik",
    "...i,...i->...",
];
const TYPES: &[DataType] = &[
    DataType::Float,
    DataType::Float16,
    DataType::Bfloat16,
    DataType::Double,
    DataType::Int8,
    DataType::Int16,
    DataType::Int32,
    DataType::Int64,
    DataType::Uint8,
    DataType::Uint16,
    DataType::Uint32,
    DataType::Uint64,
    DataType::Bool,
    DataType::String,
    DataType::Int4,
    DataType::Float8e4m3fn,
];

/// Returns an integer near the given one, or a random one of [`INTEGERS`].
fn integer_near(value: i64, rng: &mut Rng) -> i64 {
    match rng.below(6) {
        0 => value.saturating_add(1),
        1 => value.saturating_sub(1),
        2 => value.saturating_mul(2),
        3 => value.saturating_neg(),
        _ => rng.pick(INTEGERS),
    }
}

fn one<'a, T>(list: &'a mut [T], rng: &mut Rng) -> Option<&'a mut T> {
    if list.is_empty() { None } else { Some(&mut list[rng.below(list.len())]) }
}

fn graph(stored: &mut Stored) -> Option<&mut GraphProto> {
    stored.model.graph.as_mut()
}

fn tensor_type(info: &mut ValueInfoProto) -> Option<&mut type_proto::Tensor> {
    match info.r#type.as_mut()?.value.as_mut()? {
        type_proto::Value::TensorType(tensor) => Some(tensor),
        _ => None,
    }
}

fn sizes(info: &mut ValueInfoProto) -> impl Iterator<Item = &mut Size> {
    let dims = tensor_type(info).and_then(|t| t.shape.as_mut()).map(|s| s.dim.iter_mut());
    dims.into_iter().flatten().filter_map(|d| d.value.as_mut())
}

fn array(tensor: &TensorProto) -> Option<Array> {
    onnx::tensor(tensor.encode_to_vec().into()).ok()
}

fn data_type(dtype: DType) -> DataType {
    match dtype {
        DType::F32 => DataType::Float,
        DType::F16 => DataType::Float16,
        DType::Bf16 => DataType::Bfloat16,
        DType::F64 => DataType::Double,
        DType::I8 => DataType::Int8,
        DType::I16 => DataType::Int16,
        DType::I32 => DataType::Int32,
        DType::I64 => DataType::Int64,
        DType::U8 => DataType::Uint8,
        DType::U16 => DataType::Uint16,
        DType::U32 => DataType::Uint32,
        DType::U64 => DataType::Uint64,
        DType::Bool => DataType::Bool,
    }
}

/// Replaces the elements, type and shape of a tensor by an array's. The tensor keeps its name.
fn set(tensor: &mut TensorProto, array: &Array) {
    *tensor = TensorProto {
        name: tensor.name.clone(),
        data_type: Some(data_type(array.dtype) as i32),
        dims: array.shape.iter().map(|d| *d as i64).collect(),
        raw_data: Some(array.to_bytes().into()),
        ..TensorProto::default()
    };
}

/// Returns the array with another shape: its elements are repeated, or dropped at the end. Returns `None` if the shape
/// has too many elements, or the array has none to repeat.
fn refilled(array: &Array, shape: &[usize]) -> Option<Array> {
    let n = count(shape);
    if n > MOST_ELEMENTS || (array.is_empty() && n > 0) {
        return None;
    }
    Some(match &array.data {
        Data::Float(v) => Array::float(array.dtype, shape, v.iter().copied().cycle().take(n).collect()),
        Data::Int(v) => Array::int(array.dtype, shape, v.iter().copied().cycle().take(n).collect()),
    })
}

/// Returns all constants of an ONNX graph: initializers and tensors in attributes.
fn constants(graph: &mut GraphProto) -> Vec<&mut TensorProto> {
    let attributes = graph.node.iter_mut().flat_map(|n| &mut n.attribute).filter_map(|a| a.t.as_mut());
    graph.initializer.iter_mut().chain(attributes).collect()
}

/// Replaces one size of the model by another number wherever the size occurs: in inputs, in shapes of constants, and for half of
/// the seeds also in lists of integers.
fn resize(stored: &mut Stored, rng: &mut Rng, _: &Pool) -> Option<()> {
    let graph = graph(stored)?;
    let mut found: Vec<i64> = Vec::new();
    for info in &mut graph.input {
        found.extend(sizes(info).filter_map(|s| if let Size::DimValue(v) = s { Some(*v) } else { None }));
    }
    found.extend(graph.initializer.iter().flat_map(|t| &t.dims));
    if found.is_empty() {
        return None;
    }
    let (from, to) = (rng.pick(&found), rng.pick(SIZES));
    for size in graph.input.iter_mut().flat_map(sizes) {
        if *size == Size::DimValue(from) {
            *size = Size::DimValue(to);
        }
    }
    graph.value_info.clear();
    for info in &mut graph.output {
        info.r#type = None;
    }
    let values = rng.once_in(2);
    for tensor in constants(graph) {
        let Some(mut array) = array(tensor) else { continue };
        if let (Data::Int(list), true) = (&mut array.data, values && array.shape.len() <= 1) {
            list.iter_mut().filter(|v| **v == from).for_each(|v| *v = to);
        }
        let shape: Vec<usize> =
            array.shape.iter().map(|d| if *d as i64 == from { to as usize } else { *d }).collect();
        if let Some(array) = refilled(&array, &shape) {
            set(tensor, &array);
        }
    }
    if values {
        let attributes = graph.node.iter_mut().flat_map(|n| &mut n.attribute);
        attributes.flat_map(|a| &mut a.ints).filter(|v| **v == from).for_each(|v| *v = to);
    }
    Some(())
}

/// Replaces a size of an input by a symbol, and perhaps also all equal sizes of the inputs.
fn symbol(stored: &mut Stored, rng: &mut Rng, _: &Pool) -> Option<()> {
    let graph = graph(stored)?;
    let mut all: Vec<&mut Size> = graph.input.iter_mut().flat_map(sizes).collect();
    let chosen = one(&mut all, rng)?.clone();
    let name = Size::DimParam(rng.pick(&["batch", "n", "m", "n + 1", "2*n", "n*m"]).to_string());
    let everywhere = rng.once_in(2);
    for size in all {
        if *size == chosen {
            *size = name.clone();
            if !everywhere {
                break;
            }
        }
    }
    Some(())
}

/// Draws an element type of the inputs, and gives all inputs and constants of this type another element type.
fn retype(stored: &mut Stored, rng: &mut Rng, _: &Pool) -> Option<()> {
    let graph = graph(stored)?;
    let mut kinds: Vec<i32> = graph.input.iter_mut().filter_map(|i| tensor_type(i)?.elem_type).collect();
    let from = *one(&mut kinds, rng)?;
    let to = DType::parse(
        rng.pick(&["f16", "f16", "f32", "f64", "bf16", "i32", "i64", "u8", "i8", "bool", "u32"]),
    )?;
    for tensor in graph.input.iter_mut().filter_map(tensor_type).filter(|t| t.elem_type == Some(from)) {
        tensor.elem_type = Some(data_type(to) as i32);
    }
    for tensor in constants(graph).into_iter().filter(|t| t.data_type == Some(from)) {
        if let Some(array) = array(tensor) {
            set(tensor, &array.cast(to));
        }
    }
    let casts = graph.node.iter_mut().flat_map(|n| &mut n.attribute).filter(|a| a.name() == "to");
    casts.filter(|a| a.i == Some(from.into())).for_each(|a| a.i = Some(data_type(to) as i64));
    Some(())
}

/// Turns small inputs that decide the computation (shapes, axes) into constants.
pub(super) fn pin_small(stored: &mut Stored) {
    let is_small = |t: &TensorProto| {
        let integer =
            [DataType::Int64, DataType::Int32, DataType::Bool].iter().any(|d| t.data_type == Some(*d as i32));
        t.dims.len() <= 1 && t.dims.iter().all(|d| *d <= 16) && integer
    };
    let Some(graph) = &mut stored.model.graph else { return };
    let (small, rest) = std::mem::take(&mut stored.inputs).into_iter().partition(is_small);
    stored.inputs = rest;
    graph.input.retain(|i| !small.iter().any(|t: &TensorProto| t.name() == i.name()));
    graph.initializer.extend(small);
}

/// Turns an input for which a value is stored into a constant with this value.
fn pin(stored: &mut Stored, rng: &mut Rng, _: &Pool) -> Option<()> {
    let (graph, inputs) = (stored.model.graph.as_mut()?, &mut stored.inputs);
    // The last ones are shapes, axes and the like more often.
    let at =
        inputs.len().checked_sub(1 + rng.below(inputs.len().max(1)).min(rng.below(inputs.len().max(1))))?;
    let value = inputs.remove(at);
    graph.input.retain(|i| i.name() != value.name());
    graph.initializer.push(value);
    Some(())
}

/// Inserts a random node of another model, with its constants. The node reads a value of this model.
fn graft(stored: &mut Stored, rng: &mut Rng, pool: &Pool) -> Option<()> {
    let mut other = pool.small(rng)?;
    for _ in 0..other.inputs.len() {
        pin(&mut other, rng, pool);
    }
    let other = other.model.graph?;
    let mut node = rng.pick(if other.node.is_empty() { return None } else { &other.node });
    let graph = graph(stored)?;
    let named = values(graph);
    let tag = format!("grafted{}_", graph.node.len());
    let replaced = rng.below(node.input.len().max(1));
    for (i, input) in node.input.iter_mut().enumerate().filter(|(_, name)| !name.is_empty()) {
        let constant = other.initializer.iter().find(|t| t.name() == *input);
        match constant {
            Some(tensor) if i != replaced => {
                *input = format!("{tag}{input}");
                graph.initializer.push(TensorProto { name: Some(input.clone()), ..tensor.clone() });
            }
            _ => *input = rng.pick(if named.is_empty() { return None } else { &named }),
        }
    }
    node.name = None;
    for result in node.output.iter_mut().filter(|name| !name.is_empty()) {
        *result = format!("{tag}{result}");
        graph.output.push(ValueInfoProto { name: Some(result.clone()), ..ValueInfoProto::default() });
    }
    graph.node.push(node);
    Some(())
}

/// Returns the names of all values of an ONNX graph: inputs, constants, then results of nodes.
fn values(graph: &GraphProto) -> Vec<String> {
    let inputs = graph.input.iter().map(|i| i.name());
    let constants = graph.initializer.iter().map(|t| t.name());
    let results = graph.node.iter().flat_map(|n| n.output.iter().map(String::as_str));
    inputs.chain(constants).chain(results).filter(|n| !n.is_empty()).map(str::to_string).collect()
}

fn attributes(graph: &mut GraphProto) -> impl Iterator<Item = &mut AttributeProto> {
    graph.node.iter_mut().flat_map(|n| &mut n.attribute)
}

/// Changes an integer of an attribute, or the length of an attribute's list of integers.
fn integer(stored: &mut Stored, rng: &mut Rng, _: &Pool) -> Option<()> {
    let mut all: Vec<&mut AttributeProto> =
        attributes(graph(stored)?).filter(|a| a.i.is_some() || !a.ints.is_empty()).collect();
    let attribute = one(&mut all, rng)?;
    match (&mut attribute.i, rng.below(8)) {
        (Some(value), _) => *value = integer_near(*value, rng),
        (None, 0) => attribute.ints.push(rng.pick(INTEGERS)),
        (None, 1) => drop(attribute.ints.pop()),
        _ => {
            let value = one(&mut attribute.ints, rng)?;
            *value = integer_near(*value, rng);
        }
    }
    Some(())
}

fn float(stored: &mut Stored, rng: &mut Rng, _: &Pool) -> Option<()> {
    let mut all: Vec<&mut f32> =
        attributes(graph(stored)?).flat_map(|a| a.floats.iter_mut().chain(a.f.as_mut())).collect();
    **one(&mut all, rng)? = rng.pick(FLOATS);
    Some(())
}

fn text(stored: &mut Stored, rng: &mut Rng, _: &Pool) -> Option<()> {
    let mut all: Vec<&mut Vec<u8>> =
        attributes(graph(stored)?).flat_map(|a| a.strings.iter_mut().chain(a.s.as_mut())).collect();
    **one(&mut all, rng)? = rng.pick(TEXTS).as_bytes().to_vec();
    Some(())
}

/// Removes an attribute of a node, changes its type, or adds an attribute from a node of another model.
fn attribute(stored: &mut Stored, rng: &mut Rng, pool: &Pool) -> Option<()> {
    let given = pool.small(rng)?.model.graph?.node.into_iter().flat_map(|n| n.attribute).next();
    let node = one(&mut graph(stored)?.node, rng)?;
    let n = node.attribute.len();
    match rng.below(3) {
        0 if n > 0 => drop(node.attribute.remove(rng.below(n))),
        1 if n > 0 => {
            let kinds =
                [AttributeType::Int, AttributeType::Ints, AttributeType::Float, AttributeType::String];
            node.attribute[rng.below(n)].r#type = Some(rng.pick(&kinds) as i32);
        }
        _ => node.attribute.push(given?),
    }
    Some(())
}

/// Changes one element of a constant, or all its elements.
fn constant(stored: &mut Stored, rng: &mut Rng, _: &Pool) -> Option<()> {
    let mut all = constants(graph(stored)?);
    let tensor = &mut **one(&mut all, rng)?;
    let mut array = array(tensor).filter(|a| a.len() <= MOST_ELEMENTS)?;
    let whole = rng.once_in(4);
    let value = rng.pick(FLOATS);
    match &mut array.data {
        Data::Float(list) if whole => list.fill(value),
        Data::Float(list) => *one(list, rng)? = value,
        Data::Int(list) => {
            let element = one(list, rng)?;
            *element = integer_near(*element, rng);
        }
    }
    set(tensor, &array);
    Some(())
}

/// Changes the shape of a constant. The number of its elements is adapted to the shape, or stays and contradicts the
/// shape.
fn reshape(stored: &mut Stored, rng: &mut Rng, _: &Pool) -> Option<()> {
    let mut all = constants(graph(stored)?);
    let tensor = &mut **one(&mut all, rng)?;
    if rng.once_in(4) {
        tensor.dims.push(rng.pick(INTEGERS));
        return Some(());
    }
    let array = array(tensor)?;
    let mut shape = array.shape.clone();
    match rng.below(4) {
        0 => shape.insert(rng.below(shape.len() + 1), 1),
        1 => drop(shape.pop()),
        2 => shape.push(rng.pick(SIZES) as usize),
        _ => *one(&mut shape, rng)? = rng.pick(SIZES) as usize,
    }
    set(tensor, &refilled(&array, &shape)?);
    Some(())
}

/// Changes the declared element type of one input or constant, but not its bytes.
fn kind(stored: &mut Stored, rng: &mut Rng, _: &Pool) -> Option<()> {
    let graph = graph(stored)?;
    let to = rng.pick(TYPES) as i32;
    if rng.once_in(2) {
        tensor_type(one(&mut graph.input, rng)?)?.elem_type = Some(to);
    } else {
        one(&mut constants(graph), rng)?.data_type = Some(to);
    }
    Some(())
}

/// Changes a size of an input, or the input's rank.
fn dimension(stored: &mut Stored, rng: &mut Rng, _: &Pool) -> Option<()> {
    let shape = tensor_type(one(&mut graph(stored)?.input, rng)?)?.shape.as_mut()?;
    match rng.below(4) {
        0 => drop(shape.dim.pop()),
        1 => shape.dim.push(shape.dim.last()?.clone()),
        2 => one(&mut shape.dim, rng)?.value = Some(Size::DimValue(rng.pick(INTEGERS))),
        _ => one(&mut shape.dim, rng)?.value = Some(Size::DimValue(rng.pick(SIZES))),
    }
    Some(())
}

/// Lets a node read another value, mostly one that is computed before the node.
fn edge(stored: &mut Stored, rng: &mut Rng, _: &Pool) -> Option<()> {
    let graph = graph(stored)?;
    let at = rng.below(graph.node.len().max(1));
    let mut named = values(graph);
    if !rng.once_in(8) {
        let later: BTreeSet<&String> = graph.node.iter().skip(at).flat_map(|n| &n.output).collect();
        named.retain(|name| !later.contains(name));
    }
    let input = one(&mut graph.node.get_mut(at)?.input, rng)?;
    *input = if named.is_empty() || rng.once_in(8) { String::new() } else { rng.pick(&named) };
    Some(())
}

/// Adds or removes an operand or a result of a node.
fn arity(stored: &mut Stored, rng: &mut Rng, _: &Pool) -> Option<()> {
    let graph = graph(stored)?;
    let named = values(graph);
    let node = one(&mut graph.node, rng)?;
    match rng.below(4) {
        0 => drop(node.input.pop()?),
        1 => node.input.push(rng.pick(if named.is_empty() { return None } else { &named })),
        2 => drop(node.output.pop()?),
        _ => node.output.push(format!("more{}", named.len())),
    }
    Some(())
}

/// Replaces the operator of a node by an operator of another model.
fn operator(stored: &mut Stored, rng: &mut Rng, pool: &Pool) -> Option<()> {
    let other: NodeProto = pool.small(rng)?.model.graph?.node.into_iter().next()?;
    let node = one(&mut graph(stored)?.node, rng)?;
    (node.op_type, node.domain) = (other.op_type, other.domain);
    Some(())
}

/// Makes another value an output of the model, or removes an output.
fn output(stored: &mut Stored, rng: &mut Rng, _: &Pool) -> Option<()> {
    let graph = graph(stored)?;
    let mut named = values(graph);
    named.retain(|name| graph.output.iter().all(|o| o.name() != name));
    if rng.once_in(4) {
        graph.output.pop()?;
    } else {
        let name = Some(rng.pick(if named.is_empty() { return None } else { &named }));
        graph.output.push(ValueInfoProto { name, ..ValueInfoProto::default() });
    }
    Some(())
}

fn opset(stored: &mut Stored, rng: &mut Rng, _: &Pool) -> Option<()> {
    one(&mut stored.model.opset_import, rng)?.version = Some(7 + rng.below(19) as i64);
    Some(())
}
