//! Concatenations whose operands are written straight into the result's storage, so that they need no copy.
//!
//! It works where an operand's part of the result is one range of bytes: along the outermost axis of a row-major
//! tensor, or along the channels in slices of four. The result's storage is then in use from the first of these
//! operands on. That may cost more memory than the copy did (a skip connection is written long before it is joined),
//! so an operand takes part only when the largest sum of sizes live at one time does not rise.

use std::collections::BTreeMap;

use super::memory::{LiveRange, bounds};
use super::views::is_view;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::Op;
use crate::ir::tensor::{Layout, TensorDesc};
use crate::shader::problem::{Placement, storage_elements};

/// An operand's place in the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    /// First byte.
    pub(super) offset: u64,
    /// Bytes.
    pub(super) bytes: u64,
    /// Whether the operand's node writes it; otherwise the operand is copied.
    pub(super) direct: bool,
}

/// The concatenations that are assembled in place, with the parts of their operands.
pub(super) type Parts = BTreeMap<NodeId, Vec<Part>>;

/// Finds them. `lives` is the last use of each value.
pub(super) fn find(
    graph: &Graph,
    order: &[NodeId],
    lives: &BTreeMap<NodeId, usize>,
    alignment: u64,
) -> Parts {
    let mut estimate = Estimate::new(graph, order, lives);
    let mut bound = estimate.bound();
    let mut all = Parts::new();
    for id in order {
        let Some(mut parts) = parts(graph, *id, alignment) else { continue };
        let operands = graph.operands(*id);
        for (k, operand) in operands.iter().enumerate() {
            // What is itself assembled has its storage already.
            let assembled = all.contains_key(operand);
            if assembled || !may_write(graph, *id, *operand, &operands) || estimate.is_joined(*operand) {
                continue;
            }
            let before = estimate.clone();
            estimate.join(*operand, *id);
            let now = estimate.bound();
            if now <= bound {
                bound = now;
                parts[k].direct = true;
            } else {
                estimate = before;
            }
        }
        if parts.iter().any(|p| p.direct) {
            all.insert(*id, parts);
        }
    }
    all
}

/// The parts of a concatenation whose operands are ranges of its result.
fn parts(graph: &Graph, id: NodeId, alignment: u64) -> Option<Vec<Part>> {
    let node = graph.node(id);
    let Op::Concat(concat) = &node.op else { return None };
    let result = &node.tensor;
    let own_storage = !(graph.is_output(id) && result.layout == Layout::RowMajor);
    let shape = result.known_shape()?;
    let outermost = match result.layout {
        Layout::RowMajor => shape.get(..concat.axis)?.iter().all(|d| *d == 1),
        Layout::Slices4(storage) => concat.axis == 1 && !storage.is_texture(),
    };
    if !node.epilogue.is_empty() || !own_storage || !outermost {
        return None;
    }
    let mut parts = Vec::new();
    let mut channels = 0;
    let mut offset = 0;
    for operand in graph.operands(id) {
        let tensor = graph.tensor(operand);
        let size = tensor.known_shape()?.get(concat.axis).copied()?;
        let whole_slices = result.layout == Layout::RowMajor || channels % 4 == 0;
        if size == 0 || offset % alignment != 0 || !whole_slices {
            return None;
        }
        let bytes = bytes(&TensorDesc { layout: result.layout, ..tensor.clone() })?;
        parts.push(Part { offset, bytes, direct: false });
        channels += size;
        offset += bytes;
    }
    Some(parts)
}

/// Whether an operand's node may write into the storage of the concatenation.
fn may_write(graph: &Graph, id: NodeId, operand: NodeId, operands: &[NodeId]) -> bool {
    let (node, result) = (graph.node(operand), graph.tensor(id));
    let view = is_view(&node.op) && node.epilogue.is_empty();
    let computed = !view && !matches!(node.op, Op::Input(_) | Op::Constant(_) | Op::State(_));
    computed
        && node.tensor.layout == result.layout
        && node.tensor.dtype == result.dtype
        && !graph.is_output(operand)
        && operands.iter().filter(|o| **o == operand).count() == 1
}

/// Bytes of a tensor of known size.
fn bytes(tensor: &TensorDesc) -> Option<u64> {
    let elements = storage_elements(&tensor.shape, &Placement::of(tensor.layout, &tensor.shape));
    u64::try_from(elements.scale(tensor.dtype.on_device().bytes()).as_known()?).ok()
}

/// About what will be live when: a record per computed value, with values joined that are sure to share storage.
#[derive(Debug, Clone)]
pub(super) struct Estimate {
    records: Vec<LiveRange>,
    range_of: BTreeMap<NodeId, usize>,
    joined: Vec<NodeId>,
}

/// Whether an operator may overwrite its own operand of an index.
fn overwrites_own(op: &Op, index: usize) -> bool {
    match op {
        Op::Elementwise(_) => true,
        Op::AddNorms(_) | Op::GroupNorm(_) | Op::LayerNorm(_) | Op::Softmax(_) => index == 0,
        _ => false,
    }
}

impl Estimate {
    /// Of a graph computed in an order; `lives` is the last use of each value.
    pub(super) fn new(graph: &Graph, order: &[NodeId], lives: &BTreeMap<NodeId, usize>) -> Self {
        let mut out = Self { records: Vec::new(), range_of: BTreeMap::new(), joined: Vec::new() };
        for (at, id) in order.iter().enumerate() {
            let node = graph.node(*id);
            let view = is_view(&node.op) && node.epilogue.is_empty();
            if view || matches!(node.op, Op::Input(_) | Op::Constant(_) | Op::State(_) | Op::Update(_)) {
                continue;
            }
            let last = lives.get(id).copied().unwrap_or(at).min(order.len());
            let elements =
                storage_elements(&node.tensor.shape, &Placement::of(node.tensor.layout, &node.tensor.shape));
            let bytes = elements.scale(node.tensor.dtype.on_device().bytes()).range(&graph.bounds).1;
            let size = u64::try_from(bytes).unwrap_or(0);
            // A result that adds to an operand overwrites it when it can.
            let chained = graph.operands(*id).into_iter().enumerate();
            let overwritten = chained
                .filter(|(k, _)| *k >= node.arity || overwrites_own(&node.op, *k))
                .filter(|(_, o)| graph.tensor(*o) == &node.tensor && lives.get(o) == Some(&at))
                .find_map(|(_, o)| out.range_of.get(&o).copied());
            let record = overwritten.unwrap_or(out.records.len());
            match out.records.get_mut(record) {
                Some(record) => record.last = last,
                None => out.records.push(LiveRange { size, first: at, last }),
            }
            out.range_of.insert(*id, record);
        }
        out
    }

    fn is_joined(&self, operand: NodeId) -> bool {
        self.joined.contains(&operand)
    }

    /// Lets a value be written into the storage of another.
    fn join(&mut self, operand: NodeId, whole: NodeId) {
        self.joined.push(operand);
        let (Some(&from), Some(&to)) = (self.range_of.get(&operand), self.range_of.get(&whole)) else {
            return;
        };
        let LiveRange { first, last, .. } = self.records[from];
        // What the operand itself overwrote stays where it was, without the operand.
        self.records[from].last = first;
        self.records[to].first = self.records[to].first.min(first);
        self.records[to].last = self.records[to].last.max(last);
    }

    /// The largest sum of sizes live at one time.
    pub(super) fn bound(&self) -> u64 {
        bounds::offsets(&self.records)
    }
}
