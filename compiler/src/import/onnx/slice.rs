//! Lowers Slice, Pad, Trilu and CenterCropPad.

use super::generate::iota;
use super::lowering::{Call, Lowered, OpEntry, op};
use super::refused::Refused;
use crate::ir::dim::{Bounds, Dim};
use crate::ir::element::BinaryFn;
use crate::ir::graph::NodeId;
use crate::ir::op::{Pad, Slice};
use crate::ir::ops::pad::PadMode;
use crate::ir::tensor::{DType, normalize_axis};

pub(super) const OPS: &[OpEntry] = &[
    op("Slice", 1, slice),
    op("Pad", 1, pad),
    op("Trilu", 14, trilu),
    op("CenterCropPad", 18, center_crop_pad),
];

/// Returns starts, ends, axes and steps of Slice: attributes before opset 10, operands from then on.
#[expect(clippy::type_complexity, reason = "each caller binds the four lists to named variables")]
pub(super) fn slice_operands(
    call: &Call<'_>,
    rank: usize,
) -> Lowered<(Vec<Dim>, Vec<Dim>, Vec<usize>, Vec<i64>)> {
    let (starts, ends, axes, steps) = if call.opset < 10 {
        let list =
            |name| -> Lowered<Option<Vec<i64>>> { Ok(call.attributes.ints_opt(name)?.map(<[i64]>::to_vec)) };
        let dims = |l: Option<Vec<i64>>| l.map(|l| l.into_iter().map(Dim::known).collect::<Vec<_>>());
        (dims(list("starts")?), dims(list("ends")?), list("axes")?, None)
    } else {
        let starts = call.dims(1, "the list of starts")?;
        let ends = call.dims(2, "the list of ends")?;
        (starts, ends, call.known(3, "the list of axes")?, call.known(4, "the list of steps")?)
    };
    let (Some(starts), Some(ends)) = (starts, ends) else {
        return Err(Refused::new("the list of starts or ends is missing"));
    };
    let axes = match axes {
        Some(list) => list.iter().map(|a| normalize_axis(*a, rank)).collect::<Result<Vec<_>, _>>()?,
        None => (0..starts.len()).collect(),
    };
    let steps = steps.unwrap_or_else(|| vec![1; starts.len()]);
    let n = starts.len();
    if ends.len() != n || axes.len() != n || steps.len() != n || n > rank {
        return Err(Refused::new(
            "starts, ends, axes and steps have different lengths, or more values than the operand has axes",
        ));
    }
    if steps.contains(&0) {
        return Err(Refused::new("the list of steps contains 0"));
    }
    if axes.iter().enumerate().any(|(i, a)| axes[..i].contains(a)) {
        return Err(Refused::new("the list of axes contains an axis twice"));
    }
    Ok((starts, ends, axes, steps))
}

/// Returns the position of the first element and the number of elements of a slice of an axis with the known size
/// `extent`.
pub(super) fn known_range(start: i64, end: i64, step: i64, extent: i64) -> (i64, i64) {
    let from_end = |v: i64| if v < 0 { v.saturating_add(extent) } else { v };
    let (low, high) = if step > 0 { (0, extent) } else { (0, extent - 1) };
    let first = from_end(start).clamp(low, high.max(low));
    let (low, high) = if step > 0 { (0, extent) } else { (-1, extent - 1) };
    let last = from_end(end).clamp(low, high.max(low));
    let distance = if step > 0 { last - first } else { first - last };
    let stride = step.saturating_abs();
    let size = if distance <= 0 { 0 } else { (distance - 1) / stride + 1 };
    if size == 0 { (0, 0) } else { (first, size) }
}

/// Returns the position of the first element and the number of elements of a slice of an axis with the symbolic size
/// `size`. Fails if the bounds of the symbols do not decide whether a position counts from the end.
fn symbolic_range(start: &Dim, end: &Dim, step: i64, size: &Dim, bounds: &Bounds) -> Lowered<(Dim, Dim)> {
    if let (Some(s), Some(e), Some(n)) = (start.as_known(), end.as_known(), size.as_known()) {
        let (first, count) = known_range(s, e, step, n);
        return Ok((Dim::known(first), Dim::known(count)));
    }
    let from_start = |v: &Dim| -> Lowered<Dim> {
        // A position beyond every size is clamped to the end or the beginning.
        match v.as_known() {
            Some(v) if v > i64::MAX / 4 => return Ok(size.clone()),
            Some(v) if v < i64::MIN / 4 => return Ok(Dim::known(-1)),
            _ => {}
        }
        match v.range(bounds) {
            (0.., _) => Ok(v.clone()),
            (_, ..0) => Ok(v.add(size)),
            _ => Err(Refused::new(format!(
                "the position {v} may be negative (counted from the end of {size} elements) or not; \
                 narrow the bounds of the symbols with --dim"
            ))),
        }
    };
    let (start, end) = (from_start(start)?, from_start(end)?);
    let (zero, before, last) = (Dim::known(0), Dim::known(-1), size.plus(-1));
    let (first, distance) = if step > 0 {
        let first = start.larger(&zero, bounds);
        (first.clone(), end.smaller(size, bounds).sub(&first))
    } else {
        let first = start.smaller(&last, bounds);
        (first.clone(), first.sub(&end.larger(&before, bounds)))
    };
    let count = distance.positive_within(bounds).ceil_div(step.saturating_abs());
    Ok(if count.is(0) { (zero.clone(), zero) } else { (first, count) })
}

fn slice(call: &mut Call<'_>) -> Lowered {
    let x = call.node(0)?;
    let shape = call.shape(x);
    let (from, to, axes, by) = slice_operands(call, shape.len())?;
    let mut starts = vec![Dim::known(0); shape.len()];
    let mut steps = vec![1; shape.len()];
    let mut sizes = shape.clone();
    for (i, axis) in axes.iter().enumerate() {
        let (first, size) = symbolic_range(&from[i], &to[i], by[i], &shape[*axis], call.bounds())?;
        starts[*axis] = first;
        sizes[*axis] = size;
        steps[*axis] = by[i];
    }
    Ok(add_slice(call, x, starts, steps, sizes)?.into())
}

/// Adds a slice of `x` to the graph. Returns `x` itself if the slice covers all elements.
fn add_slice(
    call: &mut Call<'_>,
    x: NodeId,
    starts: Vec<Dim>,
    steps: Vec<i64>,
    sizes: Vec<Dim>,
) -> Lowered<NodeId> {
    if sizes == call.shape(x) && steps.iter().all(|s| *s == 1) {
        return Ok(x);
    }
    call.add(Slice { starts, steps, sizes }, &[x])
}

fn pad(call: &mut Call<'_>) -> Lowered {
    let x = call.node(0)?;
    let rank = call.rank(x);
    let mode = match call.attributes.text("mode", "constant")? {
        "constant" => PadMode::Constant,
        "reflect" => PadMode::Reflect,
        "edge" => PadMode::Edge,
        "wrap" => PadMode::Wrap,
        other => return Err(Refused::attribute("mode", other, "`constant`, `reflect`, `edge`, `wrap`")),
    };
    let (pads, value, axes) = if call.opset < 11 {
        let value = call.attributes.float("value", 0.0)?;
        let pads = call.attributes.ints_opt(if call.opset < 2 { "paddings" } else { "pads" })?;
        (pads.map(|l| l.iter().map(|v| Dim::known(*v)).collect()), f64::from(value), None)
    } else {
        let value = call.known_floats(2, "the padding value")?;
        let value = value.and_then(|v| v.first().copied()).unwrap_or(0.0);
        (call.dims(1, "the padding")?, f64::from(value), call.known(3, "the list of axes")?)
    };
    let pads = pads.ok_or_else(|| Refused::new("the padding is missing"))?;
    let axes = match axes {
        Some(list) => list.iter().map(|a| normalize_axis(*a, rank)).collect::<Result<Vec<_>, _>>()?,
        None => (0..rank).collect(),
    };
    if pads.len() != 2 * axes.len() {
        return Err(Refused::new(format!(
            "the padding has {} values; two for each of {} axes are needed",
            pads.len(),
            axes.len()
        )));
    }
    let (mut before, mut after) = (vec![Dim::known(0); rank], vec![Dim::known(0); rank]);
    for (i, axis) in axes.iter().enumerate() {
        before[*axis].clone_from(&pads[i]);
        after[*axis].clone_from(&pads[i + axes.len()]);
    }
    Ok(padded(call, x, mode, before, after, value)?.into())
}

/// Pads `x` by `before` and `after` elements on the sides of each axis. A negative number crops.
fn padded(
    call: &mut Call<'_>,
    x: NodeId,
    mode: PadMode,
    before: Vec<Dim>,
    after: Vec<Dim>,
    value: f64,
) -> Lowered<NodeId> {
    let shape = call.shape(x);
    let amounts = [before, after];
    // Padding that surely crops becomes a slice. Padding with either sign is left to the operator, which supports it
    // only in constant mode.
    let crops = |d: &Dim| d.range(call.bounds()).1 <= 0;
    let either = |d: &&Dim| !crops(d) && d.range(call.bounds()).0 < 0;
    if mode != PadMode::Constant
        && let Some(d) = amounts.iter().flatten().find(either)
    {
        return Err(Refused::new(format!(
            "the padding {d} may be negative or not, which only mode `constant` supports; narrow the \
             bounds of the symbols with --dim"
        )));
    }
    let zero = Dim::known(0);
    let [starts, ends] = amounts
        .each_ref()
        .map(|l| l.iter().map(|d| if crops(d) { d.scale(-1) } else { zero.clone() }).collect::<Vec<Dim>>());
    let [before, after] = amounts
        .each_ref()
        .map(|l| l.iter().map(|d| if crops(d) { zero.clone() } else { d.clone() }).collect::<Vec<Dim>>());
    let sizes: Vec<Dim> = shape.iter().zip(&starts).zip(&ends).map(|((d, s), e)| d.sub(s).sub(e)).collect();
    if let Some(i) = sizes.iter().position(|s| s.range(call.bounds()).1 < 0) {
        return Err(Refused::new(format!(
            "the padding crops more than the {} elements of axis {i}",
            shape[i]
        )));
    }
    let x = add_slice(call, x, starts, vec![1; shape.len()], sizes)?;
    if before.iter().chain(&after).all(|d| d.is(0)) {
        return Ok(x);
    }
    call.add(Pad { mode, before, after, value }, &[x])
}

fn trilu(call: &mut Call<'_>) -> Lowered {
    let x = call.node(0)?;
    let upper = call.attributes.flag("upper", true)?;
    let k = call.known_scalar(1, "the diagonal")?.unwrap_or(0);
    let shape = call.shape(x);
    let [.., h, w] = shape.as_slice() else {
        return Err(Refused::new(format!("operand 0 has rank {}; at least 2 is needed", shape.len())));
    };
    let dtype = call.dtype(x);
    let columns = iota(call, DType::I64, Dim::known(0), w.clone())?;
    // Row i keeps the columns from i + k on, or up to i + k.
    let rows = iota(call, DType::I64, Dim::known(k), h.clone())?;
    let rows = call.b.reshape(rows, vec![h.clone(), Dim::known(1)])?;
    let f = if upper { BinaryFn::GreaterEqual } else { BinaryFn::LessEqual };
    let kept = call.b.binary(f, columns, rows)?;
    let zero = call.b.scalar(dtype, 0.0)?;
    Ok(call.b.select(kept, x, zero)?.into())
}

/// Lowers CenterCropPad: crops or pads each axis around its center to the size that the target shape gives.
fn center_crop_pad(call: &mut Call<'_>) -> Lowered {
    let x = call.node(0)?;
    let shape = call.shape(x);
    let target = call.dims(1, "the shape")?.ok_or_else(|| Refused::new("the shape is missing"))?;
    let axes = match call.attributes.ints_opt("axes")? {
        Some(list) => list.iter().map(|a| normalize_axis(*a, shape.len())).collect::<Result<Vec<_>, _>>()?,
        None => (0..shape.len()).collect(),
    };
    if axes.len() != target.len() {
        return Err(Refused::new("the target shape must have one size per axis of the input"));
    }
    let (mut before, mut after) = (vec![Dim::known(0); shape.len()], vec![Dim::known(0); shape.len()]);
    for (axis, to) in axes.iter().zip(&target) {
        let difference = to.sub(&shape[*axis]);
        // Padding and cropping both round toward the beginning.
        let half = |d: Dim| d.positive_within(call.bounds()).floor_div(2);
        before[*axis] = half(difference.clone()).sub(&half(difference.scale(-1)));
        after[*axis] = difference.sub(&before[*axis]);
    }
    Ok(padded(call, x, PadMode::Constant, before, after, 0.0)?.into())
}
