//! Concatenations in place: operands are written directly into the result, without a copy.
//!
//! This works if an operand's slice of the result is one range of bytes: along the outermost axis of a row-major
//! tensor, or along the channels of a C4 tensor. The result's storage is then in use from the first of these operands
//! on. That may cost more memory than the copy (a skip connection is written long before it is concatenated), so an
//! operand is written in place only if the largest sum of live sizes does not grow.

use std::collections::BTreeMap;

use super::memory::{LiveRange, bounds};
use super::views::is_view;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::Op;
use crate::ir::tensor::{Layout, TensorDesc};
use crate::shader::problem::{Placement, storage_elements};

/// The slice of a concatenation's result that holds one operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ConcatSlice {
    /// First byte.
    pub(super) offset: u64,
    /// Size of the slice in bytes.
    pub(super) bytes: u64,
    /// True if the node that computes the operand writes the slice directly; false if the operand is copied into the slice.
    pub(super) in_place: bool,
}

/// The concatenation nodes whose operands are written directly into the result, with the slices of the operands.
pub(super) type InPlaceConcats = BTreeMap<NodeId, Vec<ConcatSlice>>;

/// Finds the concatenations with at least one operand that can be written in place. `last_uses` has, for each value, the
/// index in `order` of the last node that uses it.
pub(super) fn find_in_place_concats(
    graph: &Graph,
    order: &[NodeId],
    last_uses: &BTreeMap<NodeId, usize>,
    alignment: u64,
) -> InPlaceConcats {
    let mut estimate = LiveMemory::new(graph, order, last_uses);
    let mut bound = estimate.bound();
    let mut concats = InPlaceConcats::new();
    for id in order {
        let Some(mut slices) = concat_slices(graph, *id, alignment) else { continue };
        let operands = graph.operands(*id);
        for (k, operand) in operands.iter().enumerate() {
            // A concatenation in place has its own storage already.
            let is_concat = concats.contains_key(operand);
            if is_concat || !may_write(graph, *id, *operand, &operands) || estimate.is_merged(*operand) {
                continue;
            }
            let before = estimate.clone();
            estimate.merge(*operand, *id);
            let merged_bound = estimate.bound();
            if merged_bound <= bound {
                bound = merged_bound;
                slices[k].in_place = true;
            } else {
                estimate = before;
            }
        }
        if slices.iter().any(|slice| slice.in_place) {
            concats.insert(*id, slices);
        }
    }
    concats
}

/// Returns the slices of a concatenation. Returns `None` if an operand is not one range of the result's bytes.
fn concat_slices(graph: &Graph, id: NodeId, alignment: u64) -> Option<Vec<ConcatSlice>> {
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
    let mut slices = Vec::new();
    let mut channels = 0;
    let mut offset = 0;
    for operand in graph.operands(id) {
        let tensor = graph.tensor(operand);
        let size = tensor.known_shape()?.get(concat.axis).copied()?;
        let whole_slices = result.layout == Layout::RowMajor || channels % 4 == 0;
        if size == 0 || offset % alignment != 0 || !whole_slices {
            return None;
        }
        let bytes = known_bytes(&TensorDesc { layout: result.layout, ..tensor.clone() })?;
        slices.push(ConcatSlice { offset, bytes, in_place: false });
        channels += size;
        offset += bytes;
    }
    Some(slices)
}

/// True if an operand's node may write into the storage of the concatenation.
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

/// Bytes of a tensor; `None` if its size is symbolic.
fn known_bytes(tensor: &TensorDesc) -> Option<u64> {
    let elements = storage_elements(&tensor.shape, &Placement::from_layout(tensor.layout, &tensor.shape));
    u64::try_from(elements.scale(tensor.dtype.on_device().bytes()).as_known()?).ok()
}

/// Estimate of the memory that is live at each time: a live range for each computed value. Values that surely share storage have
/// one common live range.
#[derive(Debug, Clone)]
pub(super) struct LiveMemory {
    ranges: Vec<LiveRange>,
    range_of: BTreeMap<NodeId, usize>,
    merged: Vec<NodeId>,
}

/// True if the result of an operator may overwrite the operand with the given index.
fn overwrites(op: &Op, index: usize) -> bool {
    match op {
        Op::Elementwise(_) => true,
        Op::AddNorms(_) | Op::GroupNorm(_) | Op::LayerNorm(_) | Op::Softmax(_) => index == 0,
        _ => false,
    }
}

impl LiveMemory {
    /// Creates the estimate of live memory for a graph whose nodes are computed in the given order. `last_uses` has, for
    /// each value, the index in `order` of the last node that uses it.
    pub(super) fn new(graph: &Graph, order: &[NodeId], last_uses: &BTreeMap<NodeId, usize>) -> Self {
        let mut out = Self { ranges: Vec::new(), range_of: BTreeMap::new(), merged: Vec::new() };
        for (at, id) in order.iter().enumerate() {
            let node = graph.node(*id);
            let view = is_view(&node.op) && node.epilogue.is_empty();
            if view || matches!(node.op, Op::Input(_) | Op::Constant(_) | Op::State(_) | Op::Update(_)) {
                continue;
            }
            let last = last_uses.get(id).copied().unwrap_or(at).min(order.len());
            let elements = storage_elements(
                &node.tensor.shape,
                &Placement::from_layout(node.tensor.layout, &node.tensor.shape),
            );
            let bytes = elements.scale(node.tensor.dtype.on_device().bytes()).range(&graph.bounds).1;
            let size = u64::try_from(bytes).unwrap_or(0);
            // A result overwrites an epilogue operand, or a core operand of some operators, where it can.
            let operands = graph.operands(*id).into_iter().enumerate();
            let overwritten = operands
                .filter(|(k, _)| *k >= node.arity || overwrites(&node.op, *k))
                .filter(|(_, o)| graph.tensor(*o) == &node.tensor && last_uses.get(o) == Some(&at))
                .find_map(|(_, o)| out.range_of.get(&o).copied());
            let index = overwritten.unwrap_or(out.ranges.len());
            match out.ranges.get_mut(index) {
                Some(range) => range.last = last,
                None => out.ranges.push(LiveRange { size, first: at, last }),
            }
            out.range_of.insert(*id, index);
        }
        out
    }

    fn is_merged(&self, operand: NodeId) -> bool {
        self.merged.contains(&operand)
    }

    /// Moves a value into the storage of a concatenation: the value and the concatenation have one common live range from now on.
    fn merge(&mut self, operand: NodeId, concat: NodeId) {
        self.merged.push(operand);
        let (Some(&from), Some(&to)) = (self.range_of.get(&operand), self.range_of.get(&concat)) else {
            return;
        };
        let LiveRange { first, last, .. } = self.ranges[from];
        // A value that the operand overwrote keeps the old storage.
        self.ranges[from].last = first;
        self.ranges[to].first = self.ranges[to].first.min(first);
        self.ranges[to].last = self.ranges[to].last.max(last);
    }

    /// Largest sum of live bytes at any time.
    pub(super) fn bound(&self) -> u64 {
        bounds::offsets(&self.ranges)
    }
}
