//! Narrows bounds of symbolic sizes to those that every node can take.
//!
//! A window must fit its image, an axis that is squeezed has one element, a reshape keeps the number of elements, what is
//! joined or multiplied has equal sizes. Where that holds for some values of a symbol only, bounds that were merely assumed
//! shrink to these, with a note; bounds that were asked for stay, and the node is refused with those that would do.

use std::collections::{BTreeMap, BTreeSet};

use super::lowering::{Lowered, Refused};
use super::{DimSpec, Options};
use crate::error::Within;
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
                let Some(within) = range_that_holds(&dim, need, &graph.bounds)? else { continue };
                let Within { symbol, low, high } = &within;
                if self.fixed.contains(symbol) {
                    let reason =
                        format!("it can be computed for `{symbol}` from {low} to {high} only; pass {within}");
                    return Err(Refused::but_for(reason, within));
                }
                self.narrowed.insert(symbol.clone(), name.to_string());
                graph.bounds.insert(symbol.clone(), (*low, *high));
            }
        }
        Ok(())
    }

    /// What was narrowed, for the user to read.
    pub(super) fn notes(&self, bounds: &Bounds) -> Vec<String> {
        let note = |(symbol, node): (&String, &String)| {
            let (low, high) = *bounds.get(symbol)?;
            let within = Within { symbol: symbol.clone(), low, high };
            Some(format!(
                "symbol `{symbol}` is {low}..={high}, because `{node}` cannot be computed for more of what was assumed; {within} says so"
            ))
        };
        self.narrowed.iter().filter_map(note).collect()
    }
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
    needs.extend(equations(graph, id).into_iter().map(|(a, b)| (a.sub(&b), Need::Zero)));
    needs
}

/// Sizes of a node's operands that have to be equal.
fn equations(graph: &Graph, id: NodeId) -> Vec<(Dim, Dim)> {
    let shapes: Vec<&[Dim]> = graph.operands(id).iter().map(|o| graph.tensor(*o).shape.as_slice()).collect();
    match (graph.op(id), shapes.as_slice()) {
        (Op::Concat(op), [first, rest @ ..]) => {
            let pairs = rest.iter().flat_map(|shape| first.iter().zip(*shape).enumerate());
            pairs.filter(|(axis, _)| *axis != op.axis).map(|(_, (a, b))| (a.clone(), b.clone())).collect()
        }
        (Op::MatMul(op), [a, b]) => {
            let depth = |shape: &[Dim], last: bool| shape.iter().nth_back(usize::from(!last)).cloned();
            depth(a, !op.trans_a).zip(depth(b, op.trans_b)).into_iter().collect()
        }
        // A size that is broadcast is one, which no range of sizes is.
        (Op::Elementwise(_), shapes) => {
            let result = &graph.tensor(id).shape;
            let known = result.iter().rev().enumerate().filter(|(_, d)| d.as_known().is_some_and(|d| d > 1));
            let operands = known.flat_map(|(axis, size)| {
                shapes.iter().filter_map(move |s| Some((s.iter().nth_back(axis)?.clone(), size.clone())))
            });
            operands.filter(|(own, _)| own.as_known().is_none()).collect()
        }
        _ => Vec::new(),
    }
}

/// The bounds within which a size is what it has to be; `None` when it is so within all bounds, or when that cannot be
/// told.
fn range_that_holds(dim: &Dim, need: Need, bounds: &Bounds) -> Lowered<Option<Within>> {
    if need.holds_between(dim.range(bounds)) {
        return Ok(None);
    }
    let mut symbols = BTreeSet::new();
    dim.symbols(&mut symbols);
    let lowest: Bindings = symbols.iter().filter_map(|s| Some((s.clone(), bounds.get(s)?.0))).collect();
    let holds_with = |others: &Bindings, symbol: &String, value: i64| {
        let mut bindings = others.clone();
        bindings.insert(symbol.clone(), value);
        dim.eval(&bindings).is_some_and(|v| need.holds(v))
    };
    let holds = |symbol: &String, value: i64| holds_with(&lowest, symbol, value);
    let Some(symbol) = symbols.first() else { return Ok(None) };
    if symbols.len() == 1 {
        return one_that_holds(symbol, need, bounds, &|v| holds(symbol, v));
    }
    if need == Need::Zero {
        // An equation that some values of one symbol make true whatever the others are.
        let highest = symbols.iter().filter_map(|s| Some((s.clone(), bounds.get(s)?.1))).collect();
        let second = lowest.iter().map(|(s, low)| (s.clone(), low.saturating_add(1))).collect();
        let always = |symbol: &String, value: i64| {
            [&highest, &second, &lowest].iter().all(|others| holds_with(others, symbol, value))
        };
        for symbol in &symbols {
            let (low, high) = bounds.get(symbol).copied().unwrap_or((1, 1));
            let last = high.min(low.saturating_add(MAX_VALUES));
            if (low..=last).any(|v| always(symbol, v)) {
                return one_that_holds(symbol, need, bounds, &|v| always(symbol, v));
            }
        }
        return Ok(None);
    }
    // Of several symbols one that does alone is narrowed, where the least of all would not do.
    if dim.eval(&lowest).is_some_and(|v| need.holds(v)) {
        return Ok(None);
    }
    for symbol in &symbols {
        let (low, high) = bounds.get(symbol).copied().unwrap_or((1, 1));
        let last = high.min(low.saturating_add(MAX_VALUES));
        if let Some(first) = (low..=last).find(|v| holds(symbol, *v)) {
            return Ok(Some(Within { symbol: symbol.clone(), low: first, high }));
        }
    }
    let names = symbols.iter().map(|s| format!("`{s}`")).collect::<Vec<_>>().join(", ");
    Err(Refused::new(format!(
        "a size of its result, {dim}, is too small for the least values of {names}; pass --dim with higher ones"
    )))
}

/// The bounds of one symbol within which something holds; as [`range_that_holds`].
fn one_that_holds(
    symbol: &String,
    need: Need,
    bounds: &Bounds,
    holds: &dyn Fn(i64) -> bool,
) -> Lowered<Option<Within>> {
    let (low, high) = bounds.get(symbol).copied().unwrap_or((1, 1));
    let last = high.min(low.saturating_add(MAX_VALUES));
    let within = |low: i64, high: i64| Within { symbol: symbol.clone(), low, high };
    let Some(first) = (low..=last).find(|v| holds(*v)) else {
        let beyond = high.saturating_add(1)..=high.saturating_add(MAX_VALUES);
        let reason = format!("it can be computed for no `{symbol}` from {low} to {high}");
        let other = (0..low.min(MAX_VALUES)).chain(beyond).find(|v| holds(*v)).map(|v| within(v, v));
        return Err(match other {
            Some(other) => Refused::but_for(format!("{reason}; pass {other}"), other),
            None => Refused::new(format!("{reason}; pass another size")),
        });
    };
    let end = (first..=last).find(|v| !holds(*v)).map_or(high, |v| v - 1);
    // Values that are not neighbours (the even ones, say) make no bounds: whoever runs the model keeps to them.
    if need == Need::Zero && (end + 1..=last).any(holds) {
        return Ok(None);
    }
    Ok(((first, end) != (low, high)).then(|| within(first, end)))
}
