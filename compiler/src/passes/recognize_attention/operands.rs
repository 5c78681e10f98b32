//! Query, key and value in the form that the attention operator takes: without scales, the key untransposed, heads not
//! repeated, and batch and heads as two axes.

use super::super::matching::{affine, name, only_operand, plain};
use super::scores::Scores;
use crate::error::Result;
use crate::ir::dim::Dim;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{Op, Reshape, Transpose};

/// Splits a multiplication by a scalar into its operand and the scalar.
pub(super) fn without_scale(graph: &Graph, id: NodeId) -> (NodeId, f32) {
    match affine(graph, id) {
        Some((scale, 0.0, x)) => (x, scale),
        _ => (id, 1.0),
    }
}

/// Returns the attention key without its scale, and the scale. Swaps the last two axes of the key if `swap` is set.
pub(super) fn key(graph: &mut Graph, id: NodeId, swap: bool) -> Result<(NodeId, f32)> {
    let (k, outer) = without_scale(graph, id);
    let Some((Op::Transpose(transpose), Some(x))) =
        plain(graph, k).map(|(op, _)| (op, only_operand(graph, k)))
    else {
        let k = if swap { swap_last_two(graph, k)? } else { k };
        return Ok((k, outer));
    };
    let mut perm = transpose.perm.clone();
    if swap && let [.., a, b] = perm.as_mut_slice() {
        std::mem::swap(a, b);
    }
    let (x, inner) = without_scale(graph, x);
    let name = name(graph, k);
    let k = if perm.iter().enumerate().all(|(i, p)| i == *p) {
        x
    } else {
        graph.add(Transpose { perm }, &[x], &name)?
    };
    let (k, last) = without_scale(graph, k);
    Ok((k, outer * inner * last))
}

/// Swaps the last two axes of a value.
pub(super) fn swap_last_two(graph: &mut Graph, id: NodeId) -> Result<NodeId> {
    let mut perm: Vec<usize> = (0..graph.tensor(id).rank()).collect();
    if let [.., a, b] = perm.as_mut_slice() {
        std::mem::swap(a, b);
    }
    graph.add(Transpose { perm }, &[id], &name(graph, id))
}

/// Returns key and value before their heads were repeated for groups of query heads.
pub(super) fn without_repetition(graph: &Graph, k: NodeId, v: NodeId) -> (NodeId, NodeId) {
    match (unrepeated(graph, k), unrepeated(graph, v)) {
        (Some(k), Some(v)) if graph.tensor(k).shape.get(..2) == graph.tensor(v).shape.get(..2) => (k, v),
        _ => (k, v),
    }
}

/// Matches the repetition of key heads `reshape(expand(reshape(x) to [B, H, 1, T, D]) to [B, H, n, T, D]) to [B, H n,
/// T, D]`; returns `x [B, H, T, D]`.
fn unrepeated(graph: &Graph, id: NodeId) -> Option<NodeId> {
    let view = |id: NodeId, kind: fn(&Op) -> bool| {
        plain(graph, id).filter(|(op, _)| kind(op)).and_then(|_| only_operand(graph, id))
    };
    let expanded = view(id, |op| matches!(op, Op::Reshape(_)))?;
    let narrow = view(expanded, |op| matches!(op, Op::Expand(_)))?;
    let x = view(narrow, |op| matches!(op, Op::Reshape(_)))?;
    let shape = |id: NodeId| graph.tensor(id).shape.as_slice();
    let ([b, h, t, d], [b1, h1, one, t1, d1]) = (shape(x), shape(narrow)) else { return None };
    let ([b2, h2, n, t2, d2], [b3, h3, t3, d3]) = (shape(expanded), shape(id)) else { return None };
    let same =
        b == b1 && b == b2 && b == b3 && t == t1 && t == t2 && t == t3 && d == d1 && d == d2 && d == d3;
    (same && h == h1 && h == h2 && one.is(1) && h.mul(n) == *h3).then_some(x)
}

/// Position of the attention heads in the axes of query, key and value, with the batch and the number of query heads.
#[derive(Clone, PartialEq)]
pub(super) enum Heads {
    /// Heads have their own axis: `[batch, heads, length, size]`.
    Axis([Dim; 2]),
    /// Heads are part of the batch axis: `[batch * heads, length, size]`.
    Flat([Dim; 2]),
}

impl Heads {
    /// Returns the position of the heads in query, key and value; `None` if their leading axes do not agree. If scores
    /// have a mask for separate heads, heads that are part of the batch axis get the axes of this mask.
    pub(super) fn from_operands(graph: &Graph, operands: [NodeId; 3], scores: &Scores) -> Option<Self> {
        let [q, k, v] = operands.map(|x| graph.tensor(x).shape.as_slice());
        match (q, k, v) {
            ([bq, hq, _, _], [bk, hk, _, _], [bv, hv, _, _]) => {
                let grouped = hq == hk
                    || matches!((hq.as_known(), hk.as_known()), (Some(h), Some(k)) if h.checked_rem(k) == Some(0));
                let leading = [bq.clone(), hq.clone()];
                (bq == bk && bk == bv && hk == hv && grouped).then_some(Self::Axis(leading))
            }
            ([bq, _, _], [bk, _, _], [bv, _, _]) => {
                let split = scores.masks.iter().find_map(|mask| match mask.scores.as_slice() {
                    [batch, heads, _, _] => Some([batch.clone(), heads.clone()]),
                    _ => None,
                });
                let leading = split.unwrap_or_else(|| [Dim::known(1), bq.clone()]);
                (bq == bk && bk == bv).then_some(Self::Flat(leading))
            }
            _ => None,
        }
    }

    /// Returns the batch and the number of query heads.
    pub(super) fn leading(&self) -> &[Dim; 2] {
        let (Self::Axis(leading) | Self::Flat(leading)) = self;
        leading
    }

    /// Returns query, key and value with an axis for the batch and one for the heads.
    pub(super) fn separate(
        &self,
        graph: &mut Graph,
        operands: [NodeId; 3],
        name: &str,
    ) -> Result<Vec<NodeId>> {
        let Self::Flat(leading) = self else { return Ok(operands.to_vec()) };
        let separate = |x: NodeId| {
            let matrix = graph.tensor(x).shape.iter().skip(1);
            let shape = leading.iter().chain(matrix).cloned().collect();
            graph.add(Reshape { shape }, &[x], name)
        };
        operands.into_iter().map(separate).collect()
    }
}
