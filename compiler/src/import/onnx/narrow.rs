//! Narrows bounds of symbolic sizes to those that every node can take.
//!
//! A window must fit its image, an axis that is squeezed has one element, a reshape keeps the number of elements. Where
//! that holds for some values of a symbol only, bounds that were merely assumed shrink to these, with a note; bounds
//! that were asked for stay, and the node is refused with those that would do.

use std::collections::{BTreeMap, BTreeSet};

use super::lowering::{Lowered, Refused};
use super::{DimSpec, Options};
use crate::ir::dim::{Bindings, Bounds, Dim, product};
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::Op;

/// Most values of a symbol that are tried one by one.
const MAX_VALUES: i64 = 1 << 16;

/// What a size has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    AtLeast(i64),
    Zero,
}

impl Need {
    fn holds(self, value: i64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::Zero => value == 0,
        }
    }

    /// Whether it holds for everything between two values.
    fn holds_between(self, (low, high): (i64, i64)) -> bool {
        self.holds(low) && (self.holds(high) || matches!(self, Self::AtLeast(_)))
    }
}

/// Which bounds may be narrowed, and what was narrowed so far.
#[derive(Debug, Default)]
pub(super) struct Narrowing {
    /// Symbols whose bounds the user gave.
    fixed: BTreeSet<String>,
    /// Nodes that were looked at.
    seen: BTreeSet<NodeId>,
    /// The node that narrowed a symbol last.
    narrowed: BTreeMap<String, String>,
}

impl Narrowing {
    pub(super) fn new(options: &Options) -> Self {
        let given = options.dims.iter().filter(|(_, spec)| matches!(spec, DimSpec::Range(..)));
        Self { fixed: given.map(|(name, _)| name.clone()).collect(), ..Self::default() }
    }

    /// Narrows the graph's bounds to what a new node, and what it is computed from, can take.
    ///
    /// # Errors
    /// Why the node cannot take the bounds, with those that it could.
    pub(super) fn settle(&mut self, graph: &mut Graph, node: NodeId, name: &str) -> Lowered<()> {
        let (mut open, mut new) = (vec![node], Vec::new());
        while let Some(id) = open.pop() {
            if self.seen.insert(id) {
                new.push(id);
                open.extend(graph.operands(id));
            }
        }
        for id in new.into_iter().rev() {
            for (dim, need) in needs(graph, id) {
                let Some((symbol, low, high)) = range_that_holds(&dim, need, &graph.bounds)? else {
                    continue;
                };
                if self.fixed.contains(&symbol) {
                    return Err(Refused::new(format!(
                        "it can be computed for `{symbol}` from {low} to {high} only; pass --dim {}",
                        spec(&symbol, low, high)
                    )));
                }
                self.narrowed.insert(symbol.clone(), name.to_string());
                graph.bounds.insert(symbol, (low, high));
            }
        }
        Ok(())
    }

    /// What was narrowed, for the user to read.
    pub(super) fn notes(&self, bounds: &Bounds) -> Vec<String> {
        let note = |(symbol, node): (&String, &String)| {
            let (low, high) = bounds.get(symbol)?;
            Some(format!(
                "symbol `{symbol}` is {low}..={high}, because `{node}` cannot be computed for more of what was assumed; --dim {} says so",
                spec(symbol, *low, *high)
            ))
        };
        self.narrowed.iter().filter_map(note).collect()
    }
}

fn spec(symbol: &str, low: i64, high: i64) -> String {
    if low == high { format!("{symbol}={low}") } else { format!("{symbol}={low}..{high}") }
}

/// What the sizes of a node have to be.
fn needs(graph: &Graph, id: NodeId) -> Vec<(Dim, Need)> {
    let shape = &graph.tensor(id).shape;
    let windows = matches!(graph.op(id), Op::Conv(_) | Op::ConvTranspose(_) | Op::Pool(_));
    let least = |axis: usize| Need::AtLeast(i64::from(windows && axis >= 2));
    let sizes = shape.iter().enumerate().filter(|(_, d)| d.as_known().is_none());
    let mut needs: Vec<(Dim, Need)> = sizes.map(|(axis, d)| (d.clone(), least(axis))).collect();
    if let (Op::Reshape(_), Some(x)) = (graph.op(id), graph.operands(id).first()) {
        // Sizes that stay cancel, so that only what is regrouped is compared.
        let (mut from, mut to) = (graph.tensor(*x).shape.clone(), Vec::new());
        for d in shape {
            match from.iter().position(|f| f == d && !d.is(0)) {
                Some(at) => drop(from.remove(at)),
                None => to.push(d.clone()),
            }
        }
        needs.push((product(&from).sub(&product(&to)), Need::Zero));
    }
    needs
}

/// The symbol and the bounds within which a size is what it has to be; `None` when it is so within all bounds, or when
/// that cannot be told.
fn range_that_holds(dim: &Dim, need: Need, bounds: &Bounds) -> Lowered<Option<(String, i64, i64)>> {
    if need.holds_between(dim.range(bounds)) {
        return Ok(None);
    }
    let mut symbols = BTreeSet::new();
    dim.symbols(&mut symbols);
    let lowest: Bindings = symbols.iter().filter_map(|s| Some((s.clone(), bounds.get(s)?.0))).collect();
    let holds = |symbol: &String, value: i64| {
        let mut bindings = lowest.clone();
        bindings.insert(symbol.clone(), value);
        dim.eval(&bindings).is_some_and(|v| need.holds(v))
    };
    if symbols.len() > 1 {
        // Of several symbols one that does alone is narrowed, where the least of all would not do.
        if need == Need::Zero || dim.eval(&lowest).is_some_and(|v| need.holds(v)) {
            return Ok(None);
        }
        for symbol in &symbols {
            let (low, high) = bounds.get(symbol).copied().unwrap_or((1, 1));
            let last = high.min(low.saturating_add(MAX_VALUES));
            if let Some(first) = (low..=last).find(|v| holds(symbol, *v)) {
                return Ok(Some((symbol.clone(), first, high)));
            }
        }
        let names = symbols.iter().map(|s| format!("`{s}`")).collect::<Vec<_>>().join(", ");
        return Err(Refused::new(format!(
            "a size of its result, {dim}, is too small for the least values of {names}; pass --dim with higher ones"
        )));
    }
    let Some(symbol) = symbols.first() else { return Ok(None) };
    let (low, high) = bounds.get(symbol).copied().unwrap_or((1, 1));
    let last = high.min(low.saturating_add(MAX_VALUES));
    let Some(first) = (low..=last).find(|v| holds(symbol, *v)) else {
        let beyond = high.saturating_add(1)..=high.saturating_add(MAX_VALUES);
        let other = (0..low.min(MAX_VALUES)).chain(beyond).find(|v| holds(symbol, *v));
        let advice = other.map_or("another size".to_string(), |v| format!("--dim {symbol}={v}"));
        return Err(Refused::new(format!(
            "it can be computed for no `{symbol}` from {low} to {high}; pass {advice}"
        )));
    };
    let end = (first..=last).find(|v| !holds(symbol, *v)).map_or(high, |v| v - 1);
    // Values that are not neighbours (the even ones, say) make no bounds: whoever runs the model keeps to them.
    if need == Need::Zero && (end + 1..=last).any(|v| holds(symbol, v)) {
        return Ok(None);
    }
    Ok(((first, end) != (low, high)).then(|| (symbol.clone(), first, end)))
}
