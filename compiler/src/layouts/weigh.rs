//! Moves C4 values back to row-major where that lowers the cost of the whole graph.
//!
//! ```text
//! %2 = conv@slices4 %0 %1                    %2 = conv %0 %1
//! %3 = relayout row-major %2          ->     %4 = reshape %2
//! %4 = reshape %3
//! ```
//!
//! The pass before this step gives every possible value the C4 layout, from the structure of the graph alone. The best
//! layout depends on kernels, which passes do not know: a convolution may write row-major at the same speed and save
//! the copy for a row-major reader, or it may read row-major more slowly than the copy takes. This step minimizes the
//! sum of the costs of all nodes, including copies, over the layouts of these values. It is a local search: each value
//! moves to the layout with the lower sum, given all others, until none moves. The search runs once from the layouts of
//! the pass and once from row-major layouts, because a value may be worth moving only together with its neighbors. The
//! second result is kept only if its sum is clearly lower.

use std::collections::BTreeSet;

use crate::error::Result;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::Op;
use crate::ir::tensor::Layout;
use crate::ir::verify::verify;
use crate::pass::{Changes, Note, PassReport};
use crate::plan::Options;
use crate::plan::estimate::Costs;
use crate::plan::params::Params;

/// Name in reports of the step that moves C4 values back to row-major.
pub const STAGE: &str = "weigh-layouts";

/// Maximum number of rounds over all values in the search for layouts. Searches converge in two or three rounds.
const MAX_ROUNDS: usize = 8;

/// Changes the layout of values between channel slices (C4) and row-major where that lowers the estimated time of the graph.
///
/// # Errors
/// An internal error that names this step, if the step makes the graph invalid.
pub fn run(graph: &mut Graph, costs: &mut Costs<'_>, options: &Options) -> Result<PassReport> {
    let mut changes = Changes::default();
    let values: Vec<BlockedValue> =
        graph.topological().into_iter().filter_map(|id| blocked_value(graph, id)).collect();
    if !values.is_empty() && options.prefer_kernel.is_none() {
        let min_saving = Params::for_stage(costs.target, STAGE)?.layout_min_saving_fraction;
        let mut search = Search { graph, costs, values, min_saving };
        let before = search.total();
        let kept = search.descend();
        let as_given: Vec<bool> = search.sliced();
        for i in 0..search.values.len() {
            search.set_layout(i, false);
        }
        if search.descend() >= kept * (1.0 - min_saving) {
            for (i, sliced) in as_given.into_iter().enumerate() {
                search.set_layout(i, sliced);
            }
        }
        search.finish(before, &mut changes);
    }
    let swept = graph.sweep();
    verify(graph, STAGE)?;
    Ok(PassReport { pass: STAGE, changes, swept, nodes: graph.len(), time: None })
}

/// A value that may have the C4 layout.
struct BlockedValue {
    id: NodeId,
    /// C4 layout with the kind of memory object that the pass `choose-layouts` selected.
    slices: Layout,
    /// Node that copies the value to row-major for users that read row-major.
    copy: Option<NodeId>,
    /// The value's node and its users. Their costs depend on the value's layout.
    adjacent: Vec<NodeId>,
}

/// Returns the C4 value that a node computes. Returns `None` for copies and row-major values.
fn blocked_value(graph: &Graph, id: NodeId) -> Option<BlockedValue> {
    let node = graph.node(id);
    let slices = node.tensor.layout;
    if matches!(node.op, Op::Relayout(_)) || slices == Layout::RowMajor {
        return None;
    }
    let users = graph.users(id);
    let copy = users.iter().copied().find(|u| is_row_copy(graph, *u));
    let adjacent: BTreeSet<NodeId> = users.into_iter().chain([id]).collect();
    Some(BlockedValue { id, slices, copy, adjacent: adjacent.into_iter().collect() })
}

/// True if a node only copies its operand to row-major.
fn is_row_copy(graph: &Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    matches!(node.op, Op::Relayout(_)) && node.epilogue.is_empty() && node.tensor.layout == Layout::RowMajor
}

/// State of the local search for layouts.
struct Search<'a, 'c> {
    graph: &'a mut Graph,
    costs: &'a mut Costs<'c>,
    values: Vec<BlockedValue>,
    /// Minimum saving for which a value changes its layout, as a fraction of the cost of the adjacent nodes, because
    /// estimates are not exact.
    min_saving: f64,
}

impl Search<'_, '_> {
    /// For each value, true if it has the C4 layout now.
    fn sliced(&self) -> Vec<bool> {
        self.values.iter().map(|v| self.graph.tensor(v.id).layout == v.slices).collect()
    }

    /// Sets the layout of the value with index `value`: C4 if `sliced` is true, else row-major.
    fn set_layout(&mut self, value: usize, sliced: bool) {
        if let Some(value) = self.values.get(value) {
            self.graph.set_layout(value.id, if sliced { value.slices } else { Layout::RowMajor });
        }
    }

    /// Changes the layouts of single values while that lowers the sum of costs. Returns the sum in nanoseconds.
    fn descend(&mut self) -> f64 {
        for _ in 0..MAX_ROUNDS {
            let mut moved = false;
            for i in 0..self.values.len() {
                let Some(value) = self.values.get(i) else { continue };
                let (adjacent, sliced) =
                    (value.adjacent.clone(), self.graph.tensor(value.id).layout == value.slices);
                let before = self.sum(&adjacent);
                self.set_layout(i, !sliced);
                if self.sum(&adjacent) < before * (1.0 - self.min_saving) {
                    moved = true;
                } else {
                    self.set_layout(i, sliced);
                }
            }
            if !moved {
                break;
            }
        }
        self.total()
    }

    /// Sum of the estimated costs of all values' nodes and users, in nanoseconds.
    fn total(&mut self) -> f64 {
        let all: BTreeSet<NodeId> = self.values.iter().flat_map(|v| v.adjacent.iter().copied()).collect();
        self.sum(&all.into_iter().collect::<Vec<_>>())
    }

    fn sum(&mut self, nodes: &[NodeId]) -> f64 {
        nodes.iter().map(|id| self.cost(*id)).sum()
    }

    /// Estimated cost of a node in nanoseconds; infinite if no kernel computes it.
    fn cost(&mut self, id: NodeId) -> f64 {
        let graph = &*self.graph;
        let operand = graph.operands(id).first().map(|o| graph.tensor(*o).layout);
        // `finish` removes row-major copies of row-major values.
        if is_row_copy(graph, id) && operand == Some(Layout::RowMajor) {
            return 0.0;
        }
        self.costs.node(graph, id).best_known()
    }

    /// Removes copies of row-major values. Reports the values whose layout changed, with the time that all changes
    /// together save.
    fn finish(mut self, before: f64, changes: &mut Changes) {
        let after = self.total();
        let moved: Vec<usize> =
            (0..self.values.len()).filter(|i| self.sliced().get(*i) == Some(&false)).collect();
        let what = format!(
            "row-major: this and {} other values together save {:.1} of {:.1} µs of the nodes that compute or read the values",
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
