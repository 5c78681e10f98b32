//! Chooses in which float type each value is stored. Arithmetic is f32 whatever the storage.
//!
//! ```text
//! %2 = matmul f32[8, 64] %0 %1        ->     %2 = matmul f16[8, 64] %0 %1
//! ```
//!
//! Inputs and results of the graph keep their type under every precision. States that are updated in part, as caches are,
//! become f16 under both of the others; a state that is stored as a whole keeps its type. Otherwise
//!
//! - `f32` stores values as the model declares them;
//! - `f16` stores every float in f16, constants included, except values that f16 cannot hold: see below;
//! - `mixed` stores products (matmul, convolution, attention) and what only moves them (concatenation, padding,
//!   pooling, resizing, gathering, views) in f16, with their weights and tables; normalisations, softmax, reductions and
//!   elementwise results in between stay as they are. It halves the bytes of weights and of the large
//!   activations, and keeps eleven bits from accumulating along a residual stream.
//!
//! Three kinds of values lose their meaning in f16, so they stay f32 even then. Each is small:
//!
//! 1. what is computed from integers alone (positions, masks, frequencies): integers above 2048 are not f16, nor are the
//!    constants of a product that becomes an integer at once;
//! 2. arguments of sines, cosines, roundings and comparisons, and positions at which an image is sampled, where a small
//!    error becomes a large one;
//! 3. sums, squares that are about to be summed, and what is computed from them alone: a square passes 65504
//!    from 256 on, and the root of a small variance is the divisor of everything.
//!
//! Where the target holds no f16, nothing is lowered, and what the model itself holds in f16 is stored in f32; callers still
//! pass and get f16.
//!
//! Constants of a few elements (an epsilon, a scalar) stay f32 as well. Numbers beyond f16 that stand for minus
//! infinity in a mask become ±32752: adding a score to them still gives a finite f16, so that a row which is
//! masked throughout stays a uniform distribution instead of becoming NaN. True infinities stay infinite.

use std::collections::BTreeSet;

use half::bf16;
use rayon::prelude::{IndexedParallelIterator, IntoParallelIterator, ParallelIterator, ParallelSlice};

use super::{Changes, Context, Precision};
use crate::error::Result;
use crate::ir::array::{Array, Data};
use crate::ir::graph::{Graph, NodeId, Replacement};
use crate::ir::op::{BinaryFn, Constant, Element, Elementwise, EpilogueStep, Op, UnaryFn};
use crate::ir::ops::reduce::ReduceKind;
use crate::ir::tensor::DType;

/// Constants up to this many elements stay as they are.
const SMALL_CONSTANT: usize = 16;
/// Largest finite f16.
const F16_MAX: f32 = 65504.0;
/// What stands for a number beyond f16.
const CLAMPED: f32 = 32752.0;
/// A number from here on stands for infinity.
const HUGE: f32 = 1e9;

/// Sets storage types.
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
            changes.note(graph, id, "a number beyond f16 is ±32752");
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

/// Stores in f32 what is stored in f16.
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
        changes.note(graph, id, "stored in f32, since the target holds no f16");
    }
    Ok(changes)
}

/// Whether a value is stored in f16; decided for operands first.
fn lowers(
    graph: &Graph,
    id: NodeId,
    precision: Precision,
    exact: &BTreeSet<NodeId>,
    lowered: &BTreeSet<NodeId>,
) -> bool {
    let node = graph.node(id);
    let returned = graph.outputs().iter().any(|output| output.node == id);
    let kept = returned || graph.is_output(id) && !matches!(node.op, Op::Update(_));
    let fixed = matches!(node.op, Op::Input(_)) || kept || exact.contains(&id);
    if fixed || !node.tensor.dtype.is_float() || node.tensor.dtype == DType::F16 {
        return false;
    }
    let operands = graph.operands(id);
    let from_f16 = || {
        let mut floats =
            operands.iter().take(node.arity).filter(|o| graph.tensor(**o).dtype.is_float()).peekable();
        floats.peek().is_some() && floats.all(|o| lowered.contains(o) || graph.tensor(*o).dtype == DType::F16)
    };
    match &node.op {
        Op::State(state) => {
            let mut stored = graph.stores().iter().filter(|store| store.name == state.name);
            stored.all(|store| matches!(graph.op(store.node), Op::Update(_))) && !is_returned(graph, id)
        }
        // A view shares the bytes of its operand, and so does what is updated in place.
        Op::Update(_) => operands.first().is_some_and(|whole| lowered.contains(whole)),
        Op::Reshape(_) | Op::Transpose(_) | Op::Slice(_) | Op::Expand(_) => from_f16(),
        Op::Constant(constant) => {
            let users = graph.users(id);
            let table = |u: &NodeId| is_product(graph.op(*u)) || matches!(graph.op(*u), Op::Gather(_));
            let mut users = users.iter().filter(|u| !counts(graph, **u) && positions(graph, **u) != Some(id));
            let wanted = match precision {
                Precision::Mixed => users.any(table),
                _ => users.any(|u| !exact.contains(u)),
            };
            constant.elements() > SMALL_CONSTANT && wanted
        }
        op if is_product(op) => true,
        Op::Concat(_) | Op::Pad(_) | Op::Pool(_) | Op::Resize(_) | Op::Gather(_) => {
            precision == Precision::F16 || from_f16()
        }
        Op::GridSample(_) => {
            let image = operands.first();
            precision == Precision::F16
                || image.is_some_and(|o| lowered.contains(o) || graph.tensor(*o).dtype == DType::F16)
        }
        _ => precision == Precision::F16,
    }
}

/// Whether what a state becomes by updates is a result of the graph, which keeps its type.
fn is_returned(graph: &Graph, id: NodeId) -> bool {
    let updated = |user: &NodeId| {
        matches!(graph.op(*user), Op::Update(_)) && graph.operands(*user).first() == Some(&id)
    };
    graph.outputs().iter().any(|output| output.node == id)
        || graph.users(id).iter().filter(|user| updated(user)).any(|user| is_returned(graph, *user))
}

fn is_product(op: &Op) -> bool {
    matches!(op, Op::MatMul(_) | Op::GatherMatMul(_) | Op::Conv(_) | Op::ConvTranspose(_) | Op::Attention(_))
}

/// Whether a node is a product of integers in floats: its result becomes an integer as it is. Integers above 2048 are not
/// f16, constant ones no more than computed ones.
fn counts(graph: &Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    let integer = |step: &EpilogueStep| matches!(step.element, Element::Cast(to) if !to.is_float());
    is_product(&node.op) && node.epilogue.first().is_some_and(integer)
}

/// The operand of a node that says where it samples another one.
fn positions(graph: &Graph, id: NodeId) -> Option<NodeId> {
    matches!(graph.op(id), Op::GridSample(_)).then(|| graph.operands(id).get(1).copied()).flatten()
}

fn is_view(op: &Op) -> bool {
    matches!(op, Op::Reshape(_) | Op::Transpose(_) | Op::Slice(_) | Op::Expand(_))
}

/// The float values that f16 cannot hold.
fn exact_values(graph: &Graph, order: &[NodeId]) -> BTreeSet<NodeId> {
    let mut exact: BTreeSet<NodeId> = BTreeSet::new();
    for id in order {
        let node = graph.node(*id);
        let operands = graph.operands(*id);
        let summed = match &node.op {
            Op::Reduce(r) => !matches!(r.kind, ReduceKind::Max | ReduceKind::Min),
            Op::CumSum(_) => true,
            _ => false,
        };
        let mut sources = operands.iter().filter(|o| graph.constant(**o).is_none()).peekable();
        let derives = (matches!(node.op, Op::Elementwise(_) | Op::Concat(_)) || is_view(&node.op))
            && sources.peek().is_some()
            && sources.all(|o| exact.contains(o) || !graph.tensor(*o).dtype.is_float());
        if node.tensor.dtype.is_float() && (summed || derives) {
            exact.insert(*id);
        }
        if summed {
            exact.extend(operands.iter().filter(|o| grows(graph, **o)));
        }
    }
    // Backwards from what needs an exact argument.
    for id in order.iter().rev() {
        exact.extend(positions(graph, *id).filter(|o| graph.constant(*o).is_none()));
        let node = graph.node(*id);
        // What an update is made in, a state among it, has its type.
        let carries =
            exact.contains(id) && (matches!(node.op, Op::Concat(_) | Op::Update(_)) || is_view(&node.op));
        if carries || elements(graph, *id).any(needs_exact_argument) {
            exact.extend(
                graph
                    .operands(*id)
                    .into_iter()
                    .filter(|o| graph.tensor(*o).dtype.is_float() && graph.constant(*o).is_none()),
            );
        }
    }
    exact
}

/// The element functions of a node, its own and those of its epilogue.
fn elements(graph: &Graph, id: NodeId) -> impl Iterator<Item = Element> {
    let node = graph.node(id);
    let own = match &node.op {
        Op::Elementwise(e) => Some(e.element),
        _ => None,
    };
    own.into_iter().chain(node.epilogue.iter().map(|s| s.element))
}

/// Whether the last element function of a node makes large numbers of moderate ones.
fn grows(graph: &Graph, id: NodeId) -> bool {
    let last = elements(graph, id).last();
    let float = graph.tensor(id).dtype.is_float();
    float
        && matches!(last, Some(Element::Binary(BinaryFn::Mul | BinaryFn::Pow) | Element::Unary(UnaryFn::Exp)))
}

fn needs_exact_argument(element: Element) -> bool {
    use UnaryFn::{Ceil, Cos, Floor, Round, Sin, Tan};
    match element {
        Element::Unary(Sin | Cos | Tan | Floor | Ceil | Round) => true,
        Element::Cast(to) => !to.is_float() && to != DType::Bool,
        Element::Binary(f) => f.is_comparison() || matches!(f, BinaryFn::Mod | BinaryFn::Fmod),
        _ => false,
    }
}

/// An upper bound of the finite numbers of a float constant.
fn largest(constant: &Constant) -> f32 {
    const BLOCK: usize = 1 << 20;
    fn of<const N: usize>(bytes: &[u8], decode: impl Fn([u8; N]) -> f32 + Sync) -> f32 {
        let size = |b: &[u8; N]| Some(decode(*b).abs()).filter(|v| v.is_finite()).unwrap_or(0.0);
        let blocks = bytes.as_chunks::<N>().0.par_chunks(BLOCK);
        blocks.map(|b| b.iter().map(size).fold(0.0, f32::max)).reduce(|| 0.0, f32::max)
    }
    let bytes = &constant.bytes;
    let Some(stored) = constant.stored.plain() else {
        let bound = constant.stored.bound(bytes, constant.elements());
        if let Some(bound) = bound.filter(|bound| *bound <= F16_MAX) {
            bytes.release();
            return bound;
        }
        let size =
            |i: usize| Some(constant.stored.value(bytes, i).abs()).filter(|v| v.is_finite()).unwrap_or(0.0);
        let elements = (0..constant.elements()).into_par_iter().with_min_len(BLOCK);
        let largest = elements.map(size).reduce(|| 0.0, f32::max);
        bytes.release();
        return largest;
    };
    let largest = match stored {
        // No element is larger, so none is looked at.
        DType::F16 => return F16_MAX,
        DType::Bf16 => of(bytes, |b| bf16::from_le_bytes(b).to_f32()),
        DType::F32 => of(bytes, f32::from_le_bytes),
        DType::F64 => of(bytes, |b| f64::from_le_bytes(b) as f32),
        _ => f32::INFINITY,
    };
    bytes.release();
    largest
}

fn elements_of(constant: &Constant) -> Result<Array> {
    constant.to_array().map_err(|e| crate::error::Error::internal("lower-precision", e.0))
}

/// A constant in another type, its bytes as they are where that type holds them.
fn stored_as(constant: &Constant, dtype: DType) -> Result<Constant> {
    match constant.cast(dtype) {
        Some(cast) => Ok(cast),
        None => Ok(Constant::from_array(&elements_of(constant)?.cast(dtype))),
    }
}

/// A constant in f16; finite numbers stay finite.
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

/// Brings numbers that stand for infinity into the range of f16; returns whether there were any.
fn shrink_huge_numbers(graph: &mut Graph, id: NodeId) -> Result<bool> {
    let node = graph.node(id);
    let mut what = Replacement {
        op: node.op.clone(),
        operands: graph.operands(id),
        arity: node.arity,
        epilogue: node.epilogue.clone(),
    };
    let mut found = false;
    match &mut what.op {
        Op::Elementwise(Elementwise { element }) => found |= shrink_element(element),
        Op::Constant(constant) if constant.dtype.is_float() && !graph.is_output(id) => {
            if let Some(shrunk) = shrink_constant(constant) {
                *constant = shrunk;
                found = true;
            }
        }
        _ => {}
    }
    for EpilogueStep { element, .. } in &mut what.epilogue {
        found |= shrink_element(element);
    }
    if found {
        graph.set_op(id, what)?;
    }
    Ok(found)
}

fn shrink_element(element: &mut Element) -> bool {
    match element {
        // In proportion, so that `m * 1e9 - 1e9` stays 0 for 1.
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
