//! Which values lie in slices of four channels, by what the whole graph costs.
//!
//! ```text
//! %2 = conv@slices4 %0 %1                    %2 = conv %0 %1
//! %3 = relayout row-major %2          ->     %4 = reshape %2
//! %4 = reshape %3
//! ```
//!
//! The pass before puts every value into slices that may lie so, from the structure of the graph alone.
//! Whether that is worth it depends on kernels, of which passes know nothing: a convolution may write row-major at no
//! loss and save the copy for a reader that wants rows, or read rows more slowly than the copy takes. This step minimises
//! the sum of what all nodes cost, copies included, over the layouts of all those values. Each value is moved to where
//! the sum is lower, given all others, until nothing moves any more; once from where the pass left the graph and once
//! from rows everywhere, since a value may be worth moving only together with its neighbours. The lower end wins, and
//! among equals the first.

use std::collections::BTreeSet;

use crate::error::Result;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::Op;
use crate::ir::tensor::Layout;
use crate::ir::verify::verify;
use crate::passes::{Changes, Note, PassReport};
use crate::plan::Options;
use crate::plan::estimate::Costs;

/// The name in reports.
pub const STAGE: &str = "weigh-layouts";

/// A value moves where that saves more than this part of what the nodes around it cost: estimates are not exact.
const MARGIN: f64 = 0.02;
/// Rounds over all values; they settle in two or three.
const ROUNDS: usize = 8;

/// Moves values between slices of four and rows where the graph costs less.
///
/// # Errors
/// When the graph is broken afterwards: an internal error that names this step.
pub fn run(graph: &mut Graph, costs: &mut Costs<'_>, options: &Options) -> Result<PassReport> {
    let mut changes = Changes::default();
    let values: Vec<BlockedValue> =
        graph.topological().into_iter().filter_map(|id| value(graph, id)).collect();
    if !values.is_empty() && options.prefer_kernel.is_none() {
        let mut search = Search { graph, costs, values };
        let before = search.total();
        let stay = search.settle();
        let as_given: Vec<bool> = search.sliced();
        for i in 0..search.values.len() {
            search.place(i, false);
        }
        if search.settle() >= stay * (1.0 - MARGIN) {
            for (i, sliced) in as_given.into_iter().enumerate() {
                search.place(i, sliced);
            }
        }
        search.finish(before, &mut changes);
    }
    let swept = graph.sweep();
    verify(graph, STAGE)?;
    Ok(PassReport { pass: STAGE, changes, swept, nodes: graph.len(), time: None })
}

/// A value that may lie in slices.
struct BlockedValue {
    id: NodeId,
    /// Slices, in the kind of storage that the pass chose.
    slices: Layout,
    /// Its row-major copy, for those who want rows.
    copy: Option<NodeId>,
    /// The nodes whose cost depends on where it lies: itself and its users.
    around: Vec<NodeId>,
}

fn value(graph: &Graph, id: NodeId) -> Option<BlockedValue> {
    let node = graph.node(id);
    let slices = node.tensor.layout;
    if matches!(node.op, Op::Relayout(_)) || slices == Layout::RowMajor {
        return None;
    }
    let users = graph.users(id);
    let copy = users.iter().copied().find(|u| is_row_copy(graph, *u));
    let around: BTreeSet<NodeId> = users.into_iter().chain([id]).collect();
    Some(BlockedValue { id, slices, copy, around: around.into_iter().collect() })
}

fn is_row_copy(graph: &Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    matches!(node.op, Op::Relayout(_)) && node.epilogue.is_empty() && node.tensor.layout == Layout::RowMajor
}

struct Search<'a, 'c> {
    graph: &'a mut Graph,
    costs: &'a mut Costs<'c>,
    values: Vec<BlockedValue>,
}

impl Search<'_, '_> {
    fn sliced(&self) -> Vec<bool> {
        self.values.iter().map(|v| self.graph.tensor(v.id).layout == v.slices).collect()
    }

    fn place(&mut self, value: usize, sliced: bool) {
        if let Some(value) = self.values.get(value) {
            self.graph.set_layout(value.id, if sliced { value.slices } else { Layout::RowMajor });
        }
    }

    /// Moves single values while that lowers the sum; returns the sum.
    fn settle(&mut self) -> f64 {
        for _ in 0..ROUNDS {
            let mut moved = false;
            for i in 0..self.values.len() {
                let Some(value) = self.values.get(i) else { continue };
                let (around, sliced) =
                    (value.around.clone(), self.graph.tensor(value.id).layout == value.slices);
                let before = self.sum(&around);
                self.place(i, !sliced);
                if self.sum(&around) < before * (1.0 - MARGIN) {
                    moved = true;
                } else {
                    self.place(i, sliced);
                }
            }
            if !moved {
                break;
            }
        }
        self.total()
    }

    /// What every node costs that any value touches.
    fn total(&mut self) -> f64 {
        let all: BTreeSet<NodeId> = self.values.iter().flat_map(|v| v.around.iter().copied()).collect();
        self.sum(&all.into_iter().collect::<Vec<_>>())
    }

    fn sum(&mut self, nodes: &[NodeId]) -> f64 {
        nodes.iter().map(|id| self.cost(*id)).sum()
    }

    /// What a node costs; infinite where no kernel computes it.
    fn cost(&mut self, id: NodeId) -> f64 {
        let graph = &*self.graph;
        let operand = graph.operands(id).first().map(|o| graph.tensor(*o).layout);
        // A row-major copy of rows goes away in the end.
        if is_row_copy(graph, id) && operand == Some(Layout::RowMajor) {
            return 0.0;
        }
        self.costs.of(graph, id).best_known()
    }

    /// Removes copies that copy nothing, and says what moved and what all of it saves.
    fn finish(mut self, before: f64, changes: &mut Changes) {
        let after = self.total();
        let moved: Vec<usize> =
            (0..self.values.len()).filter(|i| self.sliced().get(*i) == Some(&false)).collect();
        let what = format!(
            "row-major: with {} others it saves {:.1} of {:.1} µs of the nodes around them",
            moved.len().saturating_sub(1),
            (before - after) / 1e3,
            before / 1e3
        );
        for value in moved.into_iter().filter_map(|i| self.values.get(i)) {
            if let Some(copy) = value.copy {
                self.graph.replace_uses(copy, value.id);
            }
            changes.count += 1;
            changes.notes.push(Note { node: self.graph.node(value.id).name.clone(), what: what.clone() });
        }
    }
}
