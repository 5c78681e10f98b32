//! Views: operators that only address their operand's storage in another way, so they need no dispatch.

use crate::ir::dim::Dim;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::Op;
use crate::ir::tensor::Layout;
use crate::shader::problem::{Placement, dense_strides};

/// Returns the placement of a view operator's result in its operand's storage. Returns `None` if elements must move in
/// memory.
pub fn view(op: &Op, shape: &[Dim], placement: &Placement, result: &[Dim]) -> Option<Placement> {
    let Placement::Strided { strides, offset } = placement else { return None };
    let offset = offset.clone();
    match op {
        Op::Reshape(_) => {
            let strides = reshape(shape, strides, result)?;
            Some(Placement::Strided { strides, offset })
        }
        Op::Transpose(t) => {
            let strides = t.perm.iter().map(|p| strides.get(*p).cloned()).collect::<Option<_>>()?;
            Some(Placement::Strided { strides, offset })
        }
        Op::Slice(s) => {
            let mut at = offset;
            let mut out = Vec::with_capacity(strides.len());
            for ((stride, start), step) in strides.iter().zip(&s.starts).zip(&s.steps) {
                at = at.add(&start.mul(stride));
                out.push(stride.scale(*step));
            }
            (out.len() == shape.len()).then_some(Placement::Strided { strides: out, offset: at })
        }
        Op::Expand(_) => {
            let skip = result.len().checked_sub(shape.len())?;
            let mut out = vec![Dim::known(0); skip];
            for ((stride, from), to) in strides.iter().zip(shape).zip(&result[skip..]) {
                out.push(if from.is(1) && !to.is(1) { Dim::known(0) } else { stride.clone() });
            }
            Some(Placement::Strided { strides: out, offset })
        }
        _ => None,
    }
}

/// Returns the placement of a value whose only user is a transposition, such that the transposed value is dense.
/// Returns `None` unless a reshape of the transposed value would otherwise move its elements. The last axis must stay
/// the last one, so that neighbors stay adjacent in memory.
pub fn transposed_in_place(graph: &Graph, id: NodeId) -> Option<Placement> {
    let [user] = graph.users(id)[..] else { return None };
    let Op::Transpose(transpose) = graph.op(user) else { return None };
    let (source, tensor) = (graph.tensor(id), graph.tensor(user));
    if matches!(graph.op(id), Op::Input(_) | Op::State(_) | Op::Constant(_)) {
        return None;
    }
    let plain = source.layout == Layout::RowMajor && graph.node(user).epilogue.is_empty();
    let last = source.rank().checked_sub(1)?;
    if !plain || graph.is_output(id) || transpose.perm.last() != Some(&last) {
        return None;
    }
    let dense = Placement::from_layout(Layout::RowMajor, &source.shape);
    let transposed = view(graph.op(user), &source.shape, &dense, &tensor.shape)?;
    let moves = graph.users(user).into_iter().any(|next| {
        let reshape = matches!(graph.op(next), Op::Reshape(_)) && graph.node(next).epilogue.is_empty();
        reshape && view(graph.op(next), &tensor.shape, &transposed, &graph.tensor(next).shape).is_none()
    });
    let mut strides = vec![Dim::known(0); source.rank()];
    for (axis, stride) in transpose.perm.iter().zip(dense_strides(&tensor.shape)) {
        *strides.get_mut(*axis)? = stride;
    }
    moves.then_some(Placement::Strided { strides, offset: Dim::known(0) })
}

/// True if an operator may be a view.
pub fn is_view(op: &Op) -> bool {
    matches!(op, Op::Reshape(_) | Op::Transpose(_) | Op::Slice(_) | Op::Expand(_))
}

/// Returns the strides of shape `to` over elements with `strides` under shape `from`. Returns `None` if no strides
/// exist.
///
/// Splits both shapes into the smallest groups of adjacent axes with equal products. Within a group, the axes of `from`
/// must be contiguous; the strides of the axes of `to` follow from the innermost stride.
fn reshape(from: &[Dim], strides: &[Dim], to: &[Dim]) -> Option<Vec<Dim>> {
    let mut out = dense_strides(to);
    let old: Vec<usize> = (0..from.len()).filter(|i| !from[*i].is(1)).collect();
    let new: Vec<usize> = (0..to.len()).filter(|i| !to[*i].is(1)).collect();
    // Dense elements are dense under any shape, even if the sizes cannot be compared.
    if from.iter().any(|d| d.is(0)) || is_dense(from, strides) {
        return Some(out);
    }
    let (mut i, mut j) = (0, 0);
    while i < old.len() && j < new.len() {
        let (first_old, first_new) = (i, j);
        let mut a = from[old[i]].clone();
        let mut b = to[new[j]].clone();
        while a != b {
            if is_smaller(&a, &b) {
                i += 1;
                a = a.mul(&from[*old.get(i)?]);
            } else {
                j += 1;
                b = b.mul(&to[*new.get(j)?]);
            }
        }
        for pair in old[first_old..=i].windows(2) {
            if strides[pair[0]] != strides[pair[1]].mul(&from[pair[1]]) {
                return None;
            }
        }
        let mut stride = strides[old[i]].clone();
        for axis in new[first_new..=j].iter().rev() {
            out[*axis].clone_from(&stride);
            stride = stride.mul(&to[*axis]);
        }
        i += 1;
        j += 1;
    }
    (i == old.len() && j == new.len()).then_some(out)
}

/// True if a tensor with the given strides is dense and row-major. The strides of axes of size 1 do not matter.
fn is_dense(shape: &[Dim], strides: &[Dim]) -> bool {
    shape.iter().zip(strides).zip(dense_strides(shape)).all(|((d, a), b)| d.is(1) || *a == b)
}

/// True if `a` is smaller than `b`. Both are products of axis sizes. Symbolic products are compared by divisibility.
fn is_smaller(a: &Dim, b: &Dim) -> bool {
    match (a.as_known(), b.as_known()) {
        (Some(a), Some(b)) => a < b,
        _ => b.div_exact(a).is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::{reshape, transposed_in_place};
    use crate::ir::dim::Dim;
    use crate::ir::graph_text;
    use crate::ir::op::Op;
    use crate::shader::problem::{Placement, dense_strides};

    fn dims(sizes: &[i64]) -> Vec<Dim> {
        sizes.iter().map(|d| Dim::known(*d)).collect()
    }

    #[test]
    fn splits_and_merges_axes() {
        let from = dims(&[2, 12, 5]);
        assert_eq!(
            reshape(&from, &dense_strides(&from), &dims(&[2, 3, 4, 1, 5])),
            Some(dims(&[60, 20, 5, 5, 1]))
        );
        // Heads that were split and moved first: [2, 6, 4] seen as [2, 4, 6] cannot be flattened.
        assert_eq!(reshape(&dims(&[2, 4, 6]), &dims(&[24, 1, 4]), &dims(&[2, 24])), None);
        let s = Dim::symbol("s");
        let from = vec![Dim::known(1), s.clone(), Dim::known(384)];
        let to = vec![Dim::known(1), s, Dim::known(12), Dim::known(32)];
        assert_eq!(reshape(&from, &dense_strides(&from), &to), Some(dense_strides(&to)));
    }

    #[test]
    fn dense_tensors_take_any_shape() {
        let dim = |text: &str| Dim::parse(text).unwrap();
        let (h, w) = (dim("(h-1)//2+1"), dim("(w-1)//2+1"));
        let from = vec![Dim::known(1), Dim::known(120), h.clone(), w.clone()];
        let merged = vec![Dim::known(1), Dim::known(120), h.mul(&w)];
        assert_eq!(reshape(&from, &dense_strides(&from), &merged), Some(dense_strides(&merged)));
        // Pixels first, then channels: the pixels merge.
        let pixels = [Dim::known(0), Dim::known(1), w.scale(120), Dim::known(120)];
        let strides = reshape(&from, &pixels, &merged).unwrap();
        assert_eq!(strides[1..], [Dim::known(1), Dim::known(120)]);
        // The product of the sizes alone decides no strides, except for dense elements.
        let other = vec![dim("a"), dim("b")];
        assert_eq!(reshape(&from, &dense_strides(&from), &other), Some(dense_strides(&other)));
        assert_eq!(reshape(&from, &pixels, &other), None);
    }

    /// Returns the placement of the value before a transposition of heads that is followed by a reshape.
    fn heads(perm: &str, merged: &str) -> Option<Placement> {
        let graph = format!(
            "symbol s 1..9\n%0 = input {{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[1,6,\"s\",8]}}\n%1 = exp %0\n%2 = transpose %1 {{\"perm\":{perm}}}\n%3 = reshape %2 {{\"shape\":{merged}}}\n%4 = exp %3\noutput \"y\" %4\n"
        );
        let graph = graph_text::parse(&graph).unwrap();
        let transpose =
            graph.topological().into_iter().find(|id| matches!(graph.op(*id), Op::Transpose(_)))?;
        transposed_in_place(&graph, *graph.operands(transpose).first()?)
    }

    #[test]
    fn merged_heads_are_stored_transposed() {
        let merged = heads("[0,2,1,3]", "[1,\"s\",48]");
        let Some(Placement::Strided { strides, .. }) = merged else { panic!("{merged:?}") };
        assert_eq!(strides[1..], dims(&[8, 48, 1]));
        // The last axis moves; or the reshape moves nothing.
        assert_eq!(heads("[0,3,1,2]", "[1,8,\"6*s\"]"), None);
        assert_eq!(heads("[1,0,2,3]", "[6,\"s\",8]"), None);
    }
}
