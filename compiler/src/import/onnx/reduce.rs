//! Reductions, arg-max and arg-min, cumulative sums and top-k.

use super::lowering::{Call, Lowered, OpEntry, Outputs, Value, axes, op};
use super::refused::Refused;
use crate::ir::op::{ArgReduce, CumSum, TopK};
use crate::ir::ops::reduce::ReduceKind;
use crate::ir::tensor::normalize_axis;

pub(super) const OPS: &[OpEntry] = &[
    op("ReduceSum", 1, |c| reduce(c, ReduceKind::Sum, 13)),
    op("ReduceMean", 1, |c| reduce(c, ReduceKind::Mean, 18)),
    op("ReduceMax", 1, |c| reduce(c, ReduceKind::Max, 18)),
    op("ReduceMin", 1, |c| reduce(c, ReduceKind::Min, 18)),
    op("ReduceProd", 1, |c| reduce(c, ReduceKind::Prod, 18)),
    op("ReduceL1", 1, |c| reduce(c, ReduceKind::L1, 18)),
    op("ReduceL2", 1, |c| reduce(c, ReduceKind::L2, 18)),
    op("ReduceLogSum", 1, |c| reduce(c, ReduceKind::LogSum, 18)),
    op("ReduceLogSumExp", 1, |c| reduce(c, ReduceKind::LogSumExp, 18)),
    op("ReduceSumSquare", 1, |c| reduce(c, ReduceKind::SumSquare, 18)),
    op("ArgMax", 1, |c| arg_reduce(c, true)),
    op("ArgMin", 1, |c| arg_reduce(c, false)),
    op("CumSum", 11, cum_sum),
    op("TopK", 1, top_k),
];

/// Lowers a reduction. `axes` is an attribute before opset `axes_operand_since`, and an operand from then on.
fn reduce(call: &mut Call<'_>, kind: ReduceKind, axes_operand_since: i64) -> Lowered {
    let x = call.node(0)?;
    let rank = call.rank(x);
    let given = if call.opset < axes_operand_since {
        call.attributes.ints_opt("axes")?.map(<[i64]>::to_vec)
    } else {
        call.known(1, "the list of axes")?
    };
    let keepdims = call.attributes.flag("keepdims", true)?;
    let noop = call.attributes.flag("noop_with_empty_axes", false)?;
    let axes = match given.as_deref() {
        None | Some([]) if noop => return Ok(x.into()),
        None | Some([]) => (0..rank).collect(),
        Some(list) => axes(list, rank)?,
    };
    Ok(call.b.reduce(kind, x, axes, keepdims)?.into())
}

fn arg_reduce(call: &mut Call<'_>, largest: bool) -> Lowered {
    let x = call.node(0)?;
    let axis = call.axis(0, call.rank(x))?;
    let keepdims = call.attributes.flag("keepdims", true)?;
    let last = call.attributes.flag("select_last_index", false)?;
    Ok(call.add(ArgReduce { axis, largest, last, keepdims }, &[x])?.into())
}

fn cum_sum(call: &mut Call<'_>) -> Lowered {
    let x = call.node(0)?;
    let axis = call.known_scalar(1, "the axis")?.ok_or_else(|| Refused::new("the axis is missing"))?;
    let axis = normalize_axis(axis, call.rank(x))?;
    let exclusive = call.attributes.flag("exclusive", false)?;
    let reverse = call.attributes.flag("reverse", false)?;
    Ok(call.add(CumSum { axis, exclusive, reverse }, &[x])?.into())
}

fn top_k(call: &mut Call<'_>) -> Lowered {
    let x = call.node(0)?;
    let axis = call.axis(-1, call.rank(x))?;
    let largest = call.attributes.flag("largest", true)?;
    // Results are always sorted, which is valid for `sorted` 0, too.
    call.attributes.ignore(&["sorted"]);
    let k = if call.opset < 10 { call.attributes.int_opt("k")? } else { call.known_scalar(1, "k")? };
    let k = k.ok_or_else(|| Refused::new("k, the number of elements to return, is missing"))?;
    let k = usize::try_from(k).map_err(|_| {
        Refused::new(format!("k, the number of elements to return, is {k}; it must not be negative"))
    })?;
    let mut outputs = Outputs(Vec::new());
    for indices in [false, true] {
        outputs.0.push(if call.wants(usize::from(indices)) {
            Value::Node(call.add(TopK { axis, k, largest, indices }, &[x])?)
        } else {
            Value::Absent
        });
    }
    Ok(outputs)
}
