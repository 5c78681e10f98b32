//! Lowers Einsum to a chain of batched matmuls.
//!
//! Each letter of the equation labels an axis. Operands are combined from left to right. A label that neither the
//! result nor a later operand needs is contracted. For a pair of operands there are four kinds of labels: in both and
//! kept (batch), in both and contracted (inner), in the first only (rows), in the second only (columns). The matmul is
//! `[batch.., rows, inner] x [batch.., inner, columns]`, reshaped to the labels.

use super::lowering::{Call, Lowered, OpEntry, op};
use super::refused::Refused;
use crate::ir::dim::{Dim, product};
use crate::ir::element::BinaryFn;
use crate::ir::graph::NodeId;
use crate::ir::op::{GatherNd, Range};
use crate::ir::ops::reduce::ReduceKind;
use crate::ir::tensor::DType;

pub(super) const OPS: &[OpEntry] = &[op("Einsum", 12, einsum)];

/// Label of an axis in an Einsum equation: a letter, or a position within the ellipsis, counted from its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    Ellipsis(usize),
    Letter(char),
}

/// A value in an Einsum, with a label for each axis.
#[derive(Debug, Clone)]
struct Term {
    node: NodeId,
    labels: Vec<Label>,
}

fn einsum(call: &mut Call<'_>) -> Lowered {
    let equation: String =
        call.attributes.text("equation", "")?.chars().filter(|c| !c.is_whitespace()).collect();
    let (left, right) = match equation.split_once("->") {
        Some((left, right)) => (left, Some(right)),
        None => (equation.as_str(), None),
    };
    let operands = call.nodes()?;
    let specs: Vec<&str> = left.split(',').collect();
    if specs.len() != operands.len() {
        return Err(Refused::new(format!(
            "the equation `{equation}` has {} operands, but the node has {}",
            specs.len(),
            operands.len()
        )));
    }
    let mut terms = Vec::with_capacity(operands.len());
    for (spec, node) in specs.iter().zip(operands) {
        let labels = parse(spec, Some(call.rank(node)))?;
        terms.push(Term { node, labels });
    }
    let result = match right {
        Some(spec) => explicit(spec, &terms)?,
        None => implicit(&terms),
    };
    for term in &mut terms {
        *term = diagonal(call, term.clone())?;
    }
    let mut rest = terms.into_iter();
    let mut all = rest.next().ok_or_else(|| Refused::new("the node has no operand"))?;
    let later: Vec<Term> = rest.collect();
    for (i, term) in later.iter().enumerate() {
        let needed = |l: &Label| result.contains(l) || later[i + 1..].iter().any(|t| t.labels.contains(l));
        all = contract(call, all, term.clone(), needed)?;
    }
    let all = sum_out(call, all, |l| result.contains(l))?;
    Ok(ordered(call, &all, &result)?.into())
}

/// Parses the subscripts of one Einsum operand to labels of its axes. An ellipsis stands for the axes of the rank that
/// have no letter.
fn parse(spec: &str, rank: Option<usize>) -> Lowered<Vec<Label>> {
    let wrong = |reason: &str| Refused::new(format!("the subscripts `{spec}` are not valid: {reason}"));
    let letters = |text: &str| -> Lowered<Vec<Label>> {
        text.chars()
            .map(|c| {
                if c.is_ascii_alphabetic() {
                    Ok(Label::Letter(c))
                } else {
                    Err(wrong("every subscript must be a letter"))
                }
            })
            .collect()
    };
    let labels = match spec.split_once("...") {
        None => letters(spec)?,
        Some((before, after)) => {
            let (before, after) = (letters(before)?, letters(after)?);
            let given = before.len() + after.len();
            let extra = match rank {
                Some(rank) => rank
                    .checked_sub(given)
                    .ok_or_else(|| wrong("there are more letters than the operand has axes"))?,
                None => 0,
            };
            let ellipsis = (0..extra).rev().map(Label::Ellipsis);
            before.into_iter().chain(ellipsis).chain(after).collect()
        }
    };
    match rank {
        Some(rank) if labels.len() != rank => Err(wrong(&format!("the operand has rank {rank}"))),
        _ => Ok(labels),
    }
}

/// Returns the labels of the axes that the longest ellipsis of the operands stands for, outermost first.
fn widest(terms: &[Term]) -> Vec<Label> {
    let count = |t: &Term| t.labels.iter().filter(|l| matches!(l, Label::Ellipsis(_))).count();
    let n = terms.iter().map(count).max().unwrap_or(0);
    (0..n).rev().map(Label::Ellipsis).collect()
}

fn explicit(spec: &str, terms: &[Term]) -> Lowered<Vec<Label>> {
    let mut labels = Vec::new();
    let (before, after) = match spec.split_once("...") {
        Some((before, after)) => (parse(before, None)?, Some(parse(after, None)?)),
        None => (parse(spec, None)?, None),
    };
    labels.extend(before);
    if let Some(after) = after {
        labels.extend(widest(terms));
        labels.extend(after);
    }
    for (i, label) in labels.iter().enumerate() {
        if labels[..i].contains(label) || !terms.iter().any(|t| t.labels.contains(label)) {
            return Err(Refused::new(format!(
                "the result `{spec}` repeats a subscript, or has one that no operand has"
            )));
        }
    }
    Ok(labels)
}

/// Returns the labels of the result of an Einsum equation without `->`: the ellipsis, then the letters that occur once,
/// sorted.
fn implicit(terms: &[Term]) -> Vec<Label> {
    let mut result = widest(terms);
    let all: Vec<Label> = terms.iter().flat_map(|t| t.labels.iter().copied()).collect();
    let mut once: Vec<Label> = all
        .iter()
        .filter(|l| matches!(l, Label::Letter(_)) && all.iter().filter(|o| o == l).count() == 1)
        .copied()
        .collect();
    once.sort_unstable();
    result.extend(once);
    result
}

/// Replaces two axes of an operand that have the same label by their diagonal, until no label repeats.
fn diagonal(call: &mut Call<'_>, mut term: Term) -> Lowered<Term> {
    while let Some((i, j)) = repeated(&term.labels) {
        let shape = call.shape(term.node);
        if shape[i] != shape[j] {
            return Err(Refused::new("a repeated subscript has axes of different sizes"));
        }
        // With the two axes first, the index pairs (0, 0), (1, 1), .. select the diagonal.
        let mut perm = vec![i, j];
        perm.extend((0..shape.len()).filter(|k| *k != i && *k != j));
        let front = call.b.transpose(term.node, perm.clone())?;
        let n = shape[i].clone();
        let indices =
            call.add(Range { dtype: DType::I64, start: Dim::known(0), step: 1, length: n.clone() }, &[])?;
        let indices = call.b.reshape(indices, vec![n.clone(), Dim::known(1)])?;
        let pairs = call.b.expand(indices, vec![n, Dim::known(2)])?;
        let node = call.add(GatherNd { batch_dims: 0 }, &[front, pairs])?;
        let labels = perm.iter().skip(1).map(|k| term.labels[*k]).collect();
        term = Term { node, labels };
    }
    Ok(term)
}

fn repeated(labels: &[Label]) -> Option<(usize, usize)> {
    (0..labels.len()).find_map(|j| labels[..j].iter().position(|l| *l == labels[j]).map(|i| (i, j)))
}

/// Sums a value over the axes whose labels the rest of the Einsum does not need.
fn sum_out(call: &mut Call<'_>, term: Term, needed: impl Fn(&Label) -> bool) -> Lowered<Term> {
    let axes: Vec<usize> = (0..term.labels.len()).filter(|i| !needed(&term.labels[*i])).collect();
    if axes.is_empty() {
        return Ok(term);
    }
    let labels = term.labels.into_iter().filter(|l| needed(l)).collect();
    Ok(Term { node: call.b.reduce(ReduceKind::Sum, term.node, axes, false)?, labels })
}

/// Transposes and reshapes an Einsum value so that it has the axes of `labels` in order. Labels that the value lacks
/// get axes of size 1.
fn ordered(call: &mut Call<'_>, term: &Term, labels: &[Label]) -> Lowered<NodeId> {
    let perm: Vec<usize> = labels.iter().filter_map(|l| term.labels.iter().position(|t| t == l)).collect();
    let x = call.b.transpose(term.node, perm)?;
    let mut sizes = call.shape(x).into_iter();
    let shape = labels
        .iter()
        .map(|l| if term.labels.contains(l) { sizes.next().unwrap_or_default() } else { Dim::known(1) })
        .collect();
    Ok(call.b.reshape(x, shape)?)
}

/// Combines two operands of an Einsum by a batched matmul, or by a multiplication and a sum. Labels that the rest of
/// the Einsum does not need are summed over.
fn contract(call: &mut Call<'_>, a: Term, b: Term, needed: impl Fn(&Label) -> bool) -> Lowered<Term> {
    let a = sum_out(call, a, |l| needed(l) || b.labels.contains(l))?;
    let b = sum_out(call, b, |l| needed(l) || a.labels.contains(l))?;
    let size = |call: &Call<'_>, t: &Term, l: &Label| {
        t.labels.iter().position(|x| x == l).map_or(Dim::known(1), |i| call.shape(t.node)[i].clone())
    };
    let common: Vec<Label> = a.labels.iter().filter(|l| b.labels.contains(l)).copied().collect();
    let (batch, inner): (Vec<Label>, Vec<Label>) = common.iter().partition(|l| needed(l));
    let rows: Vec<Label> = a.labels.iter().filter(|l| !common.contains(l)).copied().collect();
    let columns: Vec<Label> = b.labels.iter().filter(|l| !common.contains(l)).copied().collect();
    let broadcasts = common.iter().any(|l| {
        let (x, y) = (size(call, &a, l), size(call, &b, l));
        x != y && (x.is(1) || y.is(1))
    });
    if inner.is_empty() || broadcasts {
        // An elementwise multiplication over all labels, then a sum over the contracted ones.
        let labels: Vec<Label> = [batch, rows, columns, inner].concat();
        let x = ordered(call, &a, &labels)?;
        let y = ordered(call, &b, &labels)?;
        let node = call.b.binary(BinaryFn::Mul, x, y)?;
        return sum_out(call, Term { node, labels }, needed);
    }
    let sizes = |call: &Call<'_>, t: &Term, list: &[Label]| -> Vec<Dim> {
        list.iter().map(|l| size(call, t, l)).collect()
    };
    let batch_sizes = sizes(call, &a, &batch);
    let row_sizes = sizes(call, &a, &rows);
    let column_sizes = sizes(call, &b, &columns);
    let inner_sizes = sizes(call, &a, &inner);
    let x = ordered(call, &a, &[batch.as_slice(), &rows, &inner].concat())?;
    let y = ordered(call, &b, &[batch.as_slice(), &inner, &columns].concat())?;
    let matrix = |sizes: [Dim; 2]| batch_sizes.iter().cloned().chain(sizes).collect::<Vec<_>>();
    let x = call.b.reshape(x, matrix([product(&row_sizes), product(&inner_sizes)]))?;
    let y = call.b.reshape(y, matrix([product(&inner_sizes), product(&column_sizes)]))?;
    let node = call.b.matmul(x, y)?;
    let node = call.b.reshape(node, [batch_sizes, row_sizes, column_sizes].concat())?;
    Ok(Term { node, labels: [batch, rows, columns].concat() })
}
