//! Chooses the float type in which each value is stored. Arithmetic is f32 with every storage type.
//!
//! ```text
//! %2 = matmul f32[8, 64] %0 %1        ->     %2 = matmul f16[8, 64] %0 %1
//! ```
//!
//! Inputs and outputs of the graph keep their type under every precision. States that are partly updated, such as KV
//! caches, become f16 under `f16` and `mixed`; a state that is replaced as a whole keeps its type. Other values:
//!
//! - `f32` stores values in the declared type;
//! - `f16` stores every float in f16, including constants, except the values below that f16 cannot hold;
//! - `mixed` stores matmuls, convolutions, attention and data movement (concatenation, padding, pooling, resizing,
//!   gathering, views) in f16, with their weights and tables. Norms, softmax, reductions and elementwise results
//!   between them keep their type. This halves the bytes of weights and large activations, and the rounding of f16 does
//!   not accumulate along a residual stream.
//!
//! Four kinds of values lose their meaning in f16, so they stay f32 even under `f16`. They are small:
//!
//! 1. values that are computed from integers only (positions, masks, frequencies): f16 represents integers exactly only
//!    up to 2048. The same holds for the constants of a matmul whose result is cast to an integer;
//! 2. arguments of sines, cosines, roundings and comparisons, and the sampling positions of an image, where a small
//!    error becomes a large one;
//! 3. sums, squares that are summed next, and values that are computed from these only: the square of 256 already
//!    exceeds 65504, and the root of a small variance divides the whole row;
//! 4. values that replace a state as a whole, and the elementwise arithmetic, movements and sums that they come from: the
//!    latent of a diffusion model is an example. Rounding would accumulate from run to run.
//!
//! If the target does not store f16, nothing is lowered, and the model's f16 values are stored in f32. Callers still
//! pass and receive f16.
//!
//! Constants with few elements (an epsilon, a scalar) also stay f32. Mask values that stand for minus infinity but
//! exceed f16 become ±32752. A score plus such a value is a finite f16, so the softmax of a row that is masked entirely
//! stays uniform instead of becoming NaN. True infinities stay infinite.

use std::collections::BTreeSet;

use half::bf16;
use rayon::prelude::{IndexedParallelIterator, IntoParallelIterator, ParallelIterator, ParallelSlice};

use super::{Changes, Context, Precision};
use crate::error::Result;
use crate::ir::array::{Array, Data};
use crate::ir::graph::{Graph, NodeId, Replacement};
use crate::ir::op::{
    BinaryFn, Constant, Element, Elementwise, EpilogueStep, Exactness, Op, PrecisionClass, UnaryFn,
};
use crate::ir::tensor::DType;

/// Constants with at most this many elements keep their type.
const SMALL_CONSTANT: usize = 16;
/// Largest finite f16.
const F16_MAX: f32 = 65504.0;
/// Magnitude that replaces a finite number beyond the range of f16.
const CLAMPED: f32 = 32752.0;
/// Numbers of at least this magnitude stand for infinity, as in attention masks.
const HUGE: f32 = 1e9;

/// Sets the storage type of each value.
pub fn run(graph: &mut Graph, context: &Context<'_>) -> Result<Changes> {
    if !context.target.features.stores_f16() {
        return widen(graph);
    }
    let mut changes = Changes::default();
    if context.precision == Precision::F32 {
        return Ok(changes);
    }
    for id in graph.topological() {
        if shrink_huge_numbers(graph, id)? {
            changes.note(graph, id, "number beyond the range of f16 replaced by ±32752");
        }
    }
    let order = graph.topological();
    let exact = exact_values(graph, &order);
    let mut lowered: BTreeSet<NodeId> = BTreeSet::new();
    for id in &order {
        if lowers(graph, *id, context.precision, &exact, &lowered) {
            lowered.insert(*id);
        }
    }
    for id in &order {
        if !lowered.contains(id) {
            continue;
        }
        if let Some(constant) = graph.constant(*id).cloned() {
            let op = Op::Constant(to_f16(&constant)?);
            graph.set_op(*id, Replacement { op, operands: Vec::new(), arity: 0, epilogue: Vec::new() })?;
        } else {
            graph.set_storage_type(*id, DType::F16);
        }
        changes.note(graph, *id, "stored in f16");
    }
    Ok(changes)
}

/// Stores f16 values in f32, for targets that do not store f16.
fn widen(graph: &mut Graph) -> Result<Changes> {
    let mut changes = Changes::default();
    for id in graph.topological() {
        if graph.tensor(id).dtype != DType::F16 {
            continue;
        }
        if let Some(constant) = graph.constant(id) {
            let op = Op::Constant(stored_as(constant, DType::F32)?);
            graph.set_op(id, Replacement { op, operands: Vec::new(), arity: 0, epilogue: Vec::new() })?;
        } else {
            graph.set_storage_type(id, DType::F32);
        }
        changes.note(graph, id, "stored in f32: the target does not store f16");
    }
    Ok(changes)
}

/// Returns true if a value is stored in f16. The types of its operands must be decided first.
fn lowers(
    graph: &Graph,
    id: NodeId,
    precision: Precision,
    exact: &BTreeSet<NodeId>,
    lowered: &BTreeSet<NodeId>,
) -> bool {
    let node = graph.node(id);
    let class = graph.facts(id).precision;
    let returned = graph.outputs().iter().any(|output| output.node == id);
    let kept = returned || graph.is_output(id) && class != PrecisionClass::Update;
    let fixed = class == PrecisionClass::Input || kept || exact.contains(&id);
    if fixed || !node.tensor.dtype.is_float() || node.tensor.dtype == DType::F16 {
        return false;
    }
    let operands = graph.operands(id);
    let from_f16 = || {
        let mut floats =
            operands.iter().take(node.arity).filter(|o| graph.tensor(**o).dtype.is_float()).peekable();
        floats.peek().is_some() && floats.all(|o| lowered.contains(o) || graph.tensor(*o).dtype == DType::F16)
    };
    match class {
        PrecisionClass::Input => false,
        PrecisionClass::State => {
            let name = graph.state(id).map(|state| state.name.as_str());
            let mut stored = graph.stores().iter().filter(|store| Some(store.name.as_str()) == name);
            stored.all(|store| is_update(graph, store.node)) && !is_returned(graph, id)
        }
        // A view and an in-place update use the memory of their operand.
        PrecisionClass::Update => operands.first().is_some_and(|whole| lowered.contains(whole)),
        PrecisionClass::View => from_f16(),
        PrecisionClass::Constant => {
            let users = graph.users(id);
            let table = |u: &NodeId| {
                matches!(graph.facts(*u).precision, PrecisionClass::MatMul | PrecisionClass::LooksUp)
            };
            let mut users = users
                .iter()
                .filter(|u| !multiplies_integers(graph, **u) && positions(graph, **u) != Some(id));
            let wanted = match precision {
                Precision::Mixed => users.any(table),
                _ => users.any(|u| !exact.contains(u)),
            };
            graph.constant(id).is_some_and(|constant| constant.elements() > SMALL_CONSTANT) && wanted
        }
        PrecisionClass::MatMul => true,
        PrecisionClass::MovesValues | PrecisionClass::LooksUp => precision == Precision::F16 || from_f16(),
        PrecisionClass::Samples => {
            let image = operands.first();
            precision == Precision::F16
                || image.is_some_and(|o| lowered.contains(o) || graph.tensor(*o).dtype == DType::F16)
        }
        PrecisionClass::Other => precision == Precision::F16,
    }
}

/// Returns true if a state or one of its updates is an output of the graph. Outputs keep their type, so the state must
/// keep it too.
fn is_returned(graph: &Graph, id: NodeId) -> bool {
    let updated = |user: &NodeId| is_update(graph, *user) && graph.operands(*user).first() == Some(&id);
    graph.outputs().iter().any(|output| output.node == id)
        || graph.users(id).iter().filter(|user| updated(user)).any(|user| is_returned(graph, *user))
}

fn is_update(graph: &Graph, id: NodeId) -> bool {
    graph.facts(id).precision == PrecisionClass::Update
}

/// Returns true if a node multiplies integers that are stored as floats: its result is cast to an integer. f16
/// represents integers exactly only up to 2048, so neither its constants nor its computed operands may be f16.
fn multiplies_integers(graph: &Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    let integer = |step: &EpilogueStep| matches!(step.element, Element::Cast(to) if !to.is_float());
    graph.facts(id).precision == PrecisionClass::MatMul && node.epilogue.first().is_some_and(integer)
}

/// Returns the operand of a node that holds the positions at which it samples another operand.
fn positions(graph: &Graph, id: NodeId) -> Option<NodeId> {
    let samples = graph.facts(id).exactness == Exactness::Samples;
    samples.then(|| graph.operands(id).get(1).copied()).flatten()
}

/// Returns the float values that must stay f32, because they lose their meaning in f16: integers, arguments of
/// sensitive functions, and sums of squares.
fn exact_values(graph: &Graph, order: &[NodeId]) -> BTreeSet<NodeId> {
    let mut exact: BTreeSet<NodeId> = BTreeSet::new();
    for id in order {
        let node = graph.node(*id);
        let operands = graph.operands(*id);
        let exactness = graph.facts(*id).exactness;
        let summed = exactness == Exactness::Sums;
        let mut sources = operands.iter().filter(|o| graph.constant(**o).is_none()).peekable();
        let derives = matches!(exactness, Exactness::Computes | Exactness::Moves)
            && sources.peek().is_some()
            && sources.all(|o| exact.contains(o) || !graph.tensor(*o).dtype.is_float());
        if node.tensor.dtype.is_float() && (summed || derives) {
            exact.insert(*id);
        }
        if summed {
            exact.extend(operands.iter().filter(|o| grows(graph, **o)));
        }
    }
    // Backwards from the stores of whole states, and from the functions that need an exact argument.
    let whole = |node: &NodeId| !is_update(graph, *node) && graph.tensor(*node).dtype.is_float();
    let mut replacing: BTreeSet<NodeId> =
        graph.stores().iter().map(|store| store.node).filter(whole).collect();
    for id in order.iter().rev() {
        if replacing.contains(id) {
            exact.insert(*id);
            let exactness = graph.facts(*id).exactness;
            if matches!(exactness, Exactness::Computes | Exactness::Moves | Exactness::Sums) {
                replacing.extend(floats(graph, *id));
            }
        }
        exact.extend(positions(graph, *id).filter(|o| graph.constant(*o).is_none()));
        // An update, and the state that it updates, have the same type.
        let exactness = graph.facts(*id).exactness;
        let carries = exact.contains(id) && matches!(exactness, Exactness::Moves | Exactness::Updates);
        if carries || elements(graph, *id).any(needs_exact_argument) {
            exact.extend(floats(graph, *id));
        }
    }
    exact
}

/// Returns the computed float operands of a node.
fn floats(graph: &Graph, id: NodeId) -> impl Iterator<Item = NodeId> {
    let computed = |o: &NodeId| graph.tensor(*o).dtype.is_float() && graph.constant(*o).is_none();
    graph.operands(id).into_iter().filter(computed)
}

/// Returns the elementwise functions of a node and of its epilogue.
fn elements(graph: &Graph, id: NodeId) -> impl Iterator<Item = Element> {
    let node = graph.node(id);
    let first = match &node.op {
        Op::Elementwise(e) => Some(e.element),
        _ => None,
    };
    first.into_iter().chain(node.epilogue.iter().map(|s| s.element))
}

/// Returns true if the last elementwise function of a node may turn moderate numbers into large ones.
fn grows(graph: &Graph, id: NodeId) -> bool {
    let last = elements(graph, id).last();
    let float = graph.tensor(id).dtype.is_float();
    float
        && matches!(last, Some(Element::Binary(BinaryFn::Mul | BinaryFn::Pow) | Element::Unary(UnaryFn::Exp)))
}

fn needs_exact_argument(element: Element) -> bool {
    use UnaryFn::{Ceil, Cos, Floor, Quantize, Round, Sin, Tan};
    match element {
        Element::Unary(Sin | Cos | Tan | Floor | Ceil | Round | Quantize { .. }) => true,
        Element::Cast(to) => !to.is_float() && to != DType::Bool,
        Element::Binary(f) => f.is_comparison() || matches!(f, BinaryFn::Mod | BinaryFn::Fmod),
        _ => false,
    }
}

/// Returns an upper bound of the finite magnitudes of a float constant.
fn largest(constant: &Constant) -> f32 {
    const BLOCK: usize = 1 << 20;
    fn largest_of<const N: usize>(bytes: &[u8], decode: impl Fn([u8; N]) -> f32 + Sync) -> f32 {
        let size = |b: &[u8; N]| Some(decode(*b).abs()).filter(|v| v.is_finite()).unwrap_or(0.0);
        let blocks = bytes.as_chunks::<N>().0.par_chunks(BLOCK);
        blocks.map(|b| b.iter().map(size).fold(0.0, f32::max)).reduce(|| 0.0, f32::max)
    }
    let bytes = &constant.bytes;
    let Some(stored) = constant.encoding.plain_dtype() else {
        let bound = constant.encoding.max_abs_bound(bytes, constant.elements());
        if let Some(bound) = bound.filter(|bound| *bound <= F16_MAX) {
            bytes.release();
            return bound;
        }
        let size =
            |i: usize| Some(constant.encoding.value(bytes, i).abs()).filter(|v| v.is_finite()).unwrap_or(0.0);
        let elements = (0..constant.elements()).into_par_iter().with_min_len(BLOCK);
        let largest = elements.map(size).reduce(|| 0.0, f32::max);
        bytes.release();
        return largest;
    };
    let largest = match stored {
        // No finite f16 is larger; the elements need not be read.
        DType::F16 => return F16_MAX,
        DType::Bf16 => largest_of(bytes, |b| bf16::from_le_bytes(b).to_f32()),
        DType::F32 => largest_of(bytes, f32::from_le_bytes),
        DType::F64 => largest_of(bytes, |b| f64::from_le_bytes(b) as f32),
        _ => f32::INFINITY,
    };
    bytes.release();
    largest
}

fn elements_of(constant: &Constant) -> Result<Array> {
    constant.to_array().map_err(|e| crate::error::Error::internal("lower-precision", e.0))
}

/// Casts a constant to another type. Its bytes do not change if the encoding supports the cast.
fn stored_as(constant: &Constant, dtype: DType) -> Result<Constant> {
    match constant.cast(dtype) {
        Some(cast) => Ok(cast),
        None => Ok(Constant::from_array(&elements_of(constant)?.cast(dtype))),
    }
}

/// Casts a constant to f16. Finite numbers stay finite.
fn to_f16(constant: &Constant) -> Result<Constant> {
    if largest(constant) <= F16_MAX
        && let Some(cast) = constant.cast(DType::F16)
    {
        return Ok(cast);
    }
    let mut array = elements_of(constant)?;
    if let Data::Float(values) = &mut array.data {
        for v in values.iter_mut().filter(|v| v.is_finite() && v.abs() > F16_MAX) {
            *v = CLAMPED.copysign(*v);
        }
    }
    Ok(Constant::from_array(&array.cast(DType::F16)))
}

/// Clamps numbers that stand for infinity to the range of f16. Returns true if the node had such numbers.
fn shrink_huge_numbers(graph: &mut Graph, id: NodeId) -> Result<bool> {
    let node = graph.node(id);
    let mut replacement = Replacement {
        op: node.op.clone(),
        operands: graph.operands(id),
        arity: node.arity,
        epilogue: node.epilogue.clone(),
    };
    let mut found = false;
    match &mut replacement.op {
        Op::Elementwise(Elementwise { element }) => found |= shrink_element(element),
        Op::Constant(constant) if constant.dtype.is_float() && !graph.is_output(id) => {
            if let Some(shrunk) = shrink_constant(constant) {
                *constant = shrunk;
                found = true;
            }
        }
        _ => {}
    }
    for EpilogueStep { element, .. } in &mut replacement.epilogue {
        found |= shrink_element(element);
    }
    if found {
        graph.set_op(id, replacement)?;
    }
    Ok(found)
}

fn shrink_element(element: &mut Element) -> bool {
    match element {
        // Scaled in proportion, so that `m * 1e9 - 1e9` stays 0 for m = 1.
        Element::Unary(UnaryFn::Affine { scale, shift }) => {
            let size = scale.abs().max(shift.abs());
            if !size.is_finite() || size < HUGE {
                return false;
            }
            (*scale, *shift) = (*scale / size * CLAMPED, *shift / size * CLAMPED);
            true
        }
        Element::Unary(UnaryFn::Clip { low, .. }) if low.is_finite() && *low <= -HUGE => {
            *low = -CLAMPED;
            true
        }
        _ => false,
    }
}

fn shrink_constant(constant: &Constant) -> Option<Constant> {
    if constant.dtype == DType::F16 || largest(constant) < HUGE {
        return None;
    }
    let mut array: Array = constant.to_array().ok()?;
    let Data::Float(values) = &mut array.data else { return None };
    let mut found = false;
    for v in values.iter_mut().filter(|v| v.is_finite() && v.abs() >= HUGE) {
        *v = CLAMPED.copysign(*v);
        found = true;
    }
    found.then(|| Constant::from_array(&array))
}
