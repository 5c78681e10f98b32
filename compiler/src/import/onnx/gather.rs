//! Indexed reads and writes.

use super::generate::iota;
use super::lowering::{Call, Lowered, OpEntry, Refused, old, op};
use crate::ir::array::Array;
use crate::ir::dim::Dim;
use crate::ir::element::BinaryFn;
use crate::ir::op::{Combine, Gather, GatherElements, GatherNd, ScatterElements, ScatterNd};
use crate::ir::tensor::{DType, normalize_axis};

pub(super) const OPS: &[OpEntry] = &[
    op("Gather", 7, gather),
    op("GatherElements", 11, gather_elements),
    op("GatherND", 11, gather_nd),
    old("Scatter", 9, 10, scatter_elements),
    op("ScatterElements", 11, scatter_elements),
    op("ScatterND", 11, scatter_nd),
    op("OneHot", 9, one_hot),
    op("Compress", 9, compress),
];

fn gather(call: &mut Call<'_>) -> Lowered {
    let (x, indices) = (call.node(0)?, call.node(1)?);
    let axis = call.axis(0, call.rank(x))?;
    Ok(call.add(Gather { axis }, &[x, indices])?.into())
}

fn gather_elements(call: &mut Call<'_>) -> Lowered {
    let (x, indices) = (call.node(0)?, call.node(1)?);
    let axis = call.axis(0, call.rank(x))?;
    Ok(call.add(GatherElements { axis }, &[x, indices])?.into())
}

fn gather_nd(call: &mut Call<'_>) -> Lowered {
    let (x, indices) = (call.node(0)?, call.node(1)?);
    let batch_dims = call.attributes.int("batch_dims", 0)?;
    let batch_dims = usize::try_from(batch_dims)
        .map_err(|_| Refused::new(format!("attribute `batch_dims` is {batch_dims}")))?;
    Ok(call.add(GatherNd { batch_dims }, &[x, indices])?.into())
}

fn combine(call: &Call<'_>) -> Lowered<Combine> {
    Ok(match call.attributes.text("reduction", "none")? {
        "none" => Combine::Replace,
        "add" => Combine::Add,
        "mul" => Combine::Mul,
        "max" => Combine::Max,
        "min" => Combine::Min,
        other => return Err(Refused::new(format!("reduction `{other}` is not known"))),
    })
}

fn scatter_elements(call: &mut Call<'_>) -> Lowered {
    let (x, indices, updates) = (call.node(0)?, call.node(1)?, call.node(2)?);
    let axis = call.axis(0, call.rank(x))?;
    let combine = combine(call)?;
    Ok(call.add(ScatterElements { axis, combine }, &[x, indices, updates])?.into())
}

fn scatter_nd(call: &mut Call<'_>) -> Lowered {
    let (x, indices, updates) = (call.node(0)?, call.node(1)?, call.node(2)?);
    let combine = combine(call)?;
    Ok(call.add(ScatterNd { combine }, &[x, indices, updates])?.into())
}

/// `values[1]` where the position along the new axis is the index, `values[0]` elsewhere.
fn one_hot(call: &mut Call<'_>) -> Lowered {
    let (indices, values) = (call.node(0)?, call.node(2)?);
    match call.shape(values).as_slice() {
        [two] if two.is(2) => {}
        _ => return Err(Refused::new(format!("{} are not the two values off and on", call.tensor(values)))),
    }
    let depth = call.known_floats(1, "the depth")?;
    let depth = match depth.as_deref() {
        Some([d]) if *d >= 1.0 => *d as i64,
        _ => return Err(Refused::new("the depth is no positive number")),
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

/// With a constant condition the kept positions are constant indices.
fn compress(call: &mut Call<'_>) -> Lowered {
    let x = call.node(0)?;
    let condition =
        call.array(1).ok_or_else(|| Refused::new("the condition is computed from data at run time"))?;
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
    Ok(call.add(Gather { axis }, &[x, indices])?.into())
}
