//! Narrows the bounds of symbolic sizes to values that every node accepts.
//!
//! A window must fit its image, a squeezed axis has size 1, a reshape keeps the number of elements, and the operands of
//! a concatenation or matmul have equal sizes. If a node's rules hold only for some values of a symbol, assumed bounds
//! shrink to these values, with a note. Bounds from the user do not shrink: the node is refused, with the bounds that
//! it accepts.

use std::collections::{BTreeMap, BTreeSet};

use super::lowering::Lowered;
use super::refused::Refused;
use super::{DimSpec, Options};
use crate::error::Within;
use crate::ir::dim::{Bindings, Bounds, Dim, product};
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::Op;

/// Maximum number of values of a symbol that are tried against a node's requirements.
const MAX_VALUES: i64 = 1 << 16;

/// Requirement that a node has on a size expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Requirement {
    AtLeast(i64),
    Zero,
}

impl Requirement {
    fn holds(self, value: i64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::Zero => value == 0,
        }
    }

    /// Returns true if the requirement holds for all values of an interval.
    fn holds_between(self, (low, high): (i64, i64)) -> bool {
        self.holds(low) && (self.holds(high) || matches!(self, Self::AtLeast(_)))
    }
}

/// State of narrowing: bounds that must not change, and symbols that were narrowed.
#[derive(Debug, Default)]
pub(super) struct Narrowing {
    /// Symbols with bounds from the user.
    fixed: BTreeSet<String>,
    /// Graph nodes whose requirements were checked.
    seen: BTreeSet<NodeId>,
    /// For each narrowed symbol: name of the ONNX node that narrowed it last.
    narrowed: BTreeMap<String, String>,
}

impl Narrowing {
    pub(super) fn new(options: &Options) -> Self {
        let given = options.dims.iter().filter(|(_, spec)| matches!(spec, DimSpec::Range(..)));
        Self { fixed: given.map(|(name, _)| name.clone()).collect(), ..Self::default() }
    }

    /// Narrows the graph's bounds to values that a new node accepts. The nodes on which it depends are checked too,
    /// unless they were checked before.
    ///
    /// # Errors
    /// Fails if bounds from the user would have to shrink; the error has the bounds that the node accepts.
    pub(super) fn narrow_for_node(&mut self, graph: &mut Graph, node: NodeId, name: &str) -> Lowered<()> {
        let (mut open, mut new) = (vec![node], Vec::new());
        while let Some(id) = open.pop() {
            if self.seen.insert(id) {
                new.push(id);
                open.extend(graph.operands(id));
            }
        }
        for id in new.into_iter().rev() {
            for (dim, requirement) in requirements(graph, id) {
                let Some(within) = satisfying_bounds(&dim, requirement, &graph.bounds)? else { continue };
                let Within { symbol, low, high } = &within;
                if self.fixed.contains(symbol) {
                    let reason = format!("the node can only be computed for `{symbol}` from {low} to {high}");
                    return Err(Refused::with_bounds(reason, within));
                }
                self.narrowed.insert(symbol.clone(), name.to_string());
                graph.bounds.insert(symbol.clone(), (*low, *high));
            }
        }
        Ok(())
    }

    /// Returns notes for the user about the narrowed symbols.
    pub(super) fn notes(&self, bounds: &Bounds) -> Vec<String> {
        let note = |(symbol, node): (&String, &String)| {
            let (low, high) = *bounds.get(symbol)?;
            let within = Within { symbol: symbol.clone(), low, high };
            Some(format!(
                "symbol `{symbol}` is {low}..{high}, because `{node}` cannot be computed for the rest of \
                 the assumed bounds; {within} sets them"
            ))
        };
        self.narrowed.iter().filter_map(note).collect()
    }
}

/// Returns the size expressions of a node, with the requirements that they must meet.
fn requirements(graph: &Graph, id: NodeId) -> Vec<(Dim, Requirement)> {
    let shape = &graph.tensor(id).shape;
    let windows = matches!(graph.op(id), Op::Conv(_) | Op::ConvTranspose(_) | Op::Pool(_));
    let least = |axis: usize| Requirement::AtLeast(i64::from(windows && axis >= 2));
    let sizes = shape.iter().enumerate().filter(|(_, d)| d.as_known().is_none());
    let mut requirements: Vec<(Dim, Requirement)> = sizes.map(|(axis, d)| (d.clone(), least(axis))).collect();
    if let (Op::Reshape(_), Some(x)) = (graph.op(id), graph.operands(id).first()) {
        // Unchanged sizes cancel, so that only the regrouped axes are compared.
        let (mut from, mut to) = (graph.tensor(*x).shape.clone(), Vec::new());
        for d in shape {
            match from.iter().position(|f| f == d && !d.is(0)) {
                Some(at) => drop(from.remove(at)),
                None => to.push(d.clone()),
            }
        }
        requirements.push((product(&from).sub(&product(&to)), Requirement::Zero));
    }
    requirements.extend(equal_sizes(graph, id).into_iter().map(|(a, b)| (a.sub(&b), Requirement::Zero)));
    requirements
}

/// Returns pairs of sizes that a node requires to be equal, such as K of both operands of a matmul.
fn equal_sizes(graph: &Graph, id: NodeId) -> Vec<(Dim, Dim)> {
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
        // A symbolic size with more than one value cannot be broadcast, so it must equal a known result size.
        (Op::Elementwise(_), shapes) => {
            let result = &graph.tensor(id).shape;
            let known = result.iter().rev().enumerate().filter(|(_, d)| d.as_known().is_some_and(|d| d > 1));
            let operands = known.flat_map(|(axis, size)| {
                shapes.iter().filter_map(move |s| Some((s.iter().nth_back(axis)?.clone(), size.clone())))
            });
            operands.filter(|(size, _)| size.as_known().is_none()).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns bounds of a symbol within which a size meets its requirement. Returns `None` if the size already meets the
/// requirement within the present bounds, or if no such bounds can be found.
fn satisfying_bounds(dim: &Dim, requirement: Requirement, bounds: &Bounds) -> Lowered<Option<Within>> {
    if requirement.holds_between(dim.range(bounds)) {
        return Ok(None);
    }
    let mut symbols = BTreeSet::new();
    dim.symbols(&mut symbols);
    let lowest: Bindings = symbols.iter().filter_map(|s| Some((s.clone(), bounds.get(s)?.0))).collect();
    let holds_with = |others: &Bindings, symbol: &String, value: i64| {
        let mut bindings = others.clone();
        bindings.insert(symbol.clone(), value);
        dim.eval(&bindings).is_some_and(|v| requirement.holds(v))
    };
    let holds = |symbol: &String, value: i64| holds_with(&lowest, symbol, value);
    let Some(symbol) = symbols.first() else { return Ok(None) };
    if symbols.len() == 1 {
        return satisfying_bounds_of_symbol(symbol, requirement, bounds, &|v| holds(symbol, v));
    }
    if requirement == Requirement::Zero {
        // Look for a symbol with values for which the equation holds for any values of the others.
        let highest = symbols.iter().filter_map(|s| Some((s.clone(), bounds.get(s)?.1))).collect();
        let second = lowest.iter().map(|(s, low)| (s.clone(), low.saturating_add(1))).collect();
        let always = |symbol: &String, value: i64| {
            [&highest, &second, &lowest].iter().all(|others| holds_with(others, symbol, value))
        };
        for symbol in &symbols {
            let (low, high) = bounds.get(symbol).copied().unwrap_or((1, 1));
            let last = high.min(low.saturating_add(MAX_VALUES));
            if (low..=last).any(|v| always(symbol, v)) {
                return satisfying_bounds_of_symbol(symbol, requirement, bounds, &|v| always(symbol, v));
            }
        }
        return Ok(None);
    }
    // If the smallest values of all symbols do not meet the requirement, narrow the first symbol that meets it alone.
    if dim.eval(&lowest).is_some_and(|v| requirement.holds(v)) {
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
        "the size {dim} of the node's result is too small for the smallest values of {names}; raise their lower \
         bounds with --dim"
    )))
}

/// Returns bounds of one symbol within which the predicate `holds` is true. Returns `None` if the predicate is already
/// true within the present bounds, or if the values for which it is true are not contiguous.
fn satisfying_bounds_of_symbol(
    symbol: &String,
    requirement: Requirement,
    bounds: &Bounds,
    holds: &dyn Fn(i64) -> bool,
) -> Lowered<Option<Within>> {
    let (low, high) = bounds.get(symbol).copied().unwrap_or((1, 1));
    let last = high.min(low.saturating_add(MAX_VALUES));
    let within = |low: i64, high: i64| Within { symbol: symbol.clone(), low, high };
    let Some(first) = (low..=last).find(|v| holds(*v)) else {
        let beyond = high.saturating_add(1)..=high.saturating_add(MAX_VALUES);
        let reason = format!("the node cannot be computed for any `{symbol}` from {low} to {high}");
        let other = (0..low.min(MAX_VALUES)).chain(beyond).find(|v| holds(*v)).map(|v| within(v, v));
        return Err(match other {
            Some(other) => Refused::with_bounds(format!("{reason}, but for {}", range_text(&other)), other),
            None => Refused::new(reason),
        });
    };
    let end = (first..=last).find(|v| !holds(*v)).map_or(high, |v| v - 1);
    // Values that are not contiguous, such as even numbers, cannot be bounds. The caller must pass valid sizes.
    if requirement == Requirement::Zero && (end + 1..=last).any(holds) {
        return Ok(None);
    }
    Ok(((first, end) != (low, high)).then(|| within(first, end)))
}

/// Bounds of a symbol as text, such as `n=1..8`.
fn range_text(within: &Within) -> String {
    within.to_string().trim_start_matches("--dim ").to_string()
}
