//! Gather and scatter operators, and operators that are expanded to them.

use super::elementwise::typed_binary;
use super::generate::iota;
use super::lowering::{Call, Lowered, OpEntry, op, op_until};
use super::refused::Refused;
use crate::ir::array::Array;
use crate::ir::dim::{Bounds, Dim};
use crate::ir::element::BinaryFn;
use crate::ir::graph::NodeId;
use crate::ir::op::{Combine, Gather, GatherElements, GatherNd, ScatterElements, ScatterNd};
use crate::ir::tensor::{DType, normalize_axis};

pub(super) const OPS: &[OpEntry] = &[
    op("Gather", 1, gather),
    op("GatherElements", 11, gather_elements),
    op("GatherND", 11, gather_nd),
    op_until("Scatter", 9, 10, scatter_elements),
    op("ScatterElements", 11, scatter_elements),
    op("ScatterND", 11, scatter_nd),
    op("OneHot", 9, one_hot),
    op("Compress", 9, compress),
    op("ReverseSequence", 10, reverse_sequence),
];

/// Fails if a constant index is outside of an axis of size `extent`. Negative indices count from the end.
fn check_indices(call: &Call<'_>, indices: NodeId, extent: &Dim) -> Lowered<()> {
    let Some(array) = call.constant(indices) else { return Ok(()) };
    check_range(array.ints()?.iter().copied(), extent, call.bounds())
}

fn check_range(mut indices: impl Iterator<Item = i64>, extent: &Dim, bounds: &Bounds) -> Lowered<()> {
    let largest = extent.range(bounds).1;
    match indices.find(|i| *i >= largest || *i < largest.saturating_neg()) {
        Some(index) => {
            Err(Refused::new(format!("the constant index {index} is out of range for the size {extent}")))
        }
        None => Ok(()),
    }
}

/// Fails if a constant tuple of indices is out of range. A tuple lies along the last axis of `indices` and indexes the
/// axes of `x` from `first` on.
fn check_tuples(call: &Call<'_>, x: NodeId, indices: NodeId, first: usize) -> Lowered<()> {
    let Some(array) = call.constant(indices) else { return Ok(()) };
    let (shape, width) = (call.shape(x), array.shape.last().copied().unwrap_or(0));
    for (k, extent) in shape.iter().skip(first).take(width).enumerate() {
        check_range(array.ints()?.iter().copied().skip(k).step_by(width), extent, call.bounds())?;
    }
    Ok(())
}

fn gather(call: &mut Call<'_>) -> Lowered {
    let (x, indices) = (call.node(0)?, call.node(1)?);
    let axis = call.axis(0, call.rank(x))?;
    check_indices(call, indices, &call.shape(x)[axis])?;
    Ok(call.add(Gather { axis }, &[x, indices])?.into())
}

fn gather_elements(call: &mut Call<'_>) -> Lowered {
    let (x, indices) = (call.node(0)?, call.node(1)?);
    let axis = call.axis(0, call.rank(x))?;
    check_indices(call, indices, &call.shape(x)[axis])?;
    Ok(call.add(GatherElements { axis }, &[x, indices])?.into())
}

fn gather_nd(call: &mut Call<'_>) -> Lowered {
    let (x, indices) = (call.node(0)?, call.node(1)?);
    let batch_dims = call.attributes.int("batch_dims", 0)?;
    let batch_dims =
        usize::try_from(batch_dims).map_err(|_| Refused::attribute("batch_dims", batch_dims, "0 or more"))?;
    check_tuples(call, x, indices, batch_dims)?;
    Ok(call.add(GatherNd { batch_dims }, &[x, indices])?.into())
}

fn combine(call: &Call<'_>) -> Lowered<Combine> {
    Ok(match call.attributes.text("reduction", "none")? {
        "none" => Combine::Replace,
        "add" => Combine::Add,
        "mul" => Combine::Mul,
        "max" => Combine::Max,
        "min" => Combine::Min,
        other => return Err(Refused::attribute("reduction", other, "`none`, `add`, `mul`, `max`, `min`")),
    })
}

fn scatter_elements(call: &mut Call<'_>) -> Lowered {
    let (x, indices, updates) = (call.node(0)?, call.node(1)?, call.node(2)?);
    let axis = call.axis(0, call.rank(x))?;
    let combine = combine(call)?;
    check_indices(call, indices, &call.shape(x)[axis])?;
    Ok(call.add(ScatterElements { axis, combine }, &[x, indices, updates])?.into())
}

fn scatter_nd(call: &mut Call<'_>) -> Lowered {
    let (x, indices, updates) = (call.node(0)?, call.node(1)?, call.node(2)?);
    let combine = combine(call)?;
    check_tuples(call, x, indices, 0)?;
    Ok(call.add(ScatterNd { combine }, &[x, indices, updates])?.into())
}

/// Lowers OneHot: `values[1]` where the position along the new axis equals the index, `values[0]` elsewhere.
fn one_hot(call: &mut Call<'_>) -> Lowered {
    let (indices, values) = (call.node(0)?, call.node(2)?);
    match call.shape(values).as_slice() {
        [two] if two.is(2) => {}
        _ => {
            return Err(Refused::new(format!(
                "operand 2 is {}; two values (off and on) are needed",
                call.tensor(values)
            )));
        }
    }
    let depth = call.known_floats(1, "the depth")?;
    let depth = match depth.as_deref() {
        Some([d]) if *d >= 1.0 => *d as i64,
        _ => return Err(Refused::new("operand 1, the depth, must be one constant positive number")),
    };
    let rank = call.rank(indices);
    let axis = normalize_axis(call.attributes.int("axis", -1)?, rank + 1)?;
    let mut shape = call.shape(indices);
    shape.insert(axis, Dim::known(1));
    let indices = call.b.cast(indices, DType::I64)?;
    // Negative indices count from the end.
    let zero = call.b.constant(&Array::int(DType::I64, &[], vec![0]))?;
    let depth_value = call.b.constant(&Array::int(DType::I64, &[], vec![depth]))?;
    let negative = call.b.binary(BinaryFn::Less, indices, zero)?;
    let wrapped = call.b.binary(BinaryFn::Add, indices, depth_value)?;
    let indices = call.b.select(negative, wrapped, indices)?;
    let indices = call.b.reshape(indices, shape)?;
    let mut along = vec![Dim::known(1); rank + 1];
    along[axis] = Dim::known(depth);
    let positions = iota(call, DType::I64, Dim::known(0), Dim::known(depth))?;
    let positions = call.b.reshape(positions, along)?;
    let hit = call.b.binary(BinaryFn::Equal, indices, positions)?;
    let off = call.b.slice(values, 0, Dim::known(0), Dim::known(1))?;
    let on = call.b.slice(values, 0, Dim::known(1), Dim::known(1))?;
    Ok(call.b.select(hit, on, off)?.into())
}

/// Lowers Compress with a constant condition to a Gather with constant indices.
fn compress(call: &mut Call<'_>) -> Lowered {
    let x = call.node(0)?;
    let condition = call.array(1).ok_or_else(|| {
        Refused::new("the condition is computed from data at run time; it must be known at compile time")
    })?;
    let kept: Vec<i64> =
        condition.ints()?.iter().zip(0..).filter(|(c, _)| **c != 0).map(|(_, i)| i).collect();
    let (x, axis) = match call.attributes.int_opt("axis")? {
        Some(axis) => (x, normalize_axis(axis, call.rank(x))?),
        None => {
            let elements = call.tensor(x).elements();
            (call.b.reshape(x, vec![elements])?, 0)
        }
    };
    let indices = call.b.constant(&Array::i64s(&kept))?;
    check_indices(call, indices, &call.shape(x)[axis])?;
    Ok(call.add(Gather { axis }, &[x, indices])?.into())
}

/// Lowers ReverseSequence: element t of a sequence of length n becomes element `n - 1 - t`; elements from n on stay.
fn reverse_sequence(call: &mut Call<'_>) -> Lowered {
    let (x, lengths) = (call.node(0)?, call.node(1)?);
    let shape = call.shape(x);
    let time = normalize_axis(call.attributes.int("time_axis", 0)?, shape.len())?;
    let batch = normalize_axis(call.attributes.int("batch_axis", 1)?, shape.len())?;
    if time == batch {
        return Err(Refused::new("attributes `time_axis` and `batch_axis` are the same axis"));
    }
    let along = |axis: usize| {
        let mut sizes = vec![Dim::known(1); shape.len()];
        sizes[axis] = shape[axis].clone();
        sizes
    };
    let lengths = call.b.reshape(lengths, along(batch))?;
    let steps = iota(call, DType::I64, Dim::known(0), shape[time].clone())?;
    let steps = call.b.reshape(steps, along(time))?;
    let one = call.b.constant(&Array::int(DType::I64, &[], vec![1]))?;
    let last = typed_binary(call, BinaryFn::Sub, lengths, one)?;
    let reversed = call.b.binary(BinaryFn::Sub, last, steps)?;
    let inside = call.b.binary(BinaryFn::Less, steps, lengths)?;
    let indices = call.b.select(inside, reversed, steps)?;
    let indices = call.b.expand(indices, shape)?;
    Ok(call.add(GatherElements { axis: time }, &[x, indices])?.into())
}
