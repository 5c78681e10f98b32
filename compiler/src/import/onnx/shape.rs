//! Operators that move elements without computing: reshapes, transposes, broadcasts, joins and splits.

use super::ints::compare;
use super::lowering::{Call, Lowered, OpEntry, Outputs, Refused, Value, axes, inference, op};
use crate::ir::dim::{Dim, product};
use crate::ir::op::Concat;
use crate::ir::tensor::{DType, broadcast, normalize_axis};

pub(super) const OPS: &[OpEntry] = &[
    op("Identity", 1, |c| Ok(Outputs(vec![c.operand(0).cloned().unwrap_or(Value::Absent)]))),
    op("Dropout", 1, dropout),
    op("Reshape", 1, |c| reshape("Reshape", c)),
    op("Flatten", 1, |c| reshape("Flatten", c)),
    op("Squeeze", 1, |c| reshape("Squeeze", c)),
    op("Unsqueeze", 1, |c| reshape("Unsqueeze", c)),
    op("Transpose", 1, transpose),
    op("Expand", 8, expand),
    op("Tile", 6, tile),
    op("Concat", 1, concat),
    op("Split", 1, split),
    op("DepthToSpace", 1, depth_to_space),
    op("SpaceToDepth", 1, space_to_depth),
];

/// The shape that Reshape, Flatten, Squeeze or Unsqueeze gives a tensor of shape `dims`.
pub(super) fn target_shape(name: &str, call: &Call<'_>, dims: &[Dim]) -> Lowered<Vec<Dim>> {
    match name {
        "Reshape" => {
            let target = if call.opset < 5 {
                let list = call.attributes.ints_opt("shape")?;
                list.map(|l| l.iter().map(|d| Dim::known(*d)).collect())
            } else {
                call.dims(1, "the target shape")?
            };
            let target: Vec<Dim> = target.ok_or_else(|| Refused::new("the shape is missing"))?;
            resolve(&target, dims, call.attributes.flag("allowzero", false)?)
        }
        "Flatten" => {
            let rank = i64::try_from(dims.len()).unwrap_or(i64::MAX);
            let axis = call.attributes.int("axis", 1)?;
            let at = usize::try_from(if axis < 0 { axis.saturating_add(rank) } else { axis })
                .ok()
                .filter(|a| *a <= dims.len())
                .ok_or_else(|| Refused::new(format!("axis {axis} is outside rank {rank}")))?;
            Ok(vec![product(&dims[..at]), product(&dims[at..])])
        }
        "Squeeze" => {
            let removed = match axis_list(call)? {
                Some(list) => axes(&list, dims.len())?,
                None => {
                    let unsure = |i: &usize| dims[*i].as_known().is_none() && may_be_one(&dims[*i], call);
                    if let Some(i) = (0..dims.len()).find(unsure) {
                        return Err(Refused::new(format!(
                            "without a list of axes, whether axis {i} goes depends on its size {}: fix it with --dim, or give it a lower bound above 1",
                            dims[i]
                        )));
                    }
                    (0..dims.len()).filter(|i| dims[*i].is(1)).collect()
                }
            };
            if let Some(i) = removed.iter().find(|i| dims[**i].as_known().is_some_and(|d| d != 1)) {
                return Err(Refused::new(format!("axis {i} has size {}, not 1", dims[*i])));
            }
            let kept = dims.iter().enumerate().filter(|(i, _)| !removed.contains(i));
            Ok(kept.map(|(_, d)| d.clone()).collect())
        }
        _ => {
            let list = axis_list(call)?.ok_or_else(|| Refused::new("the axes are missing"))?;
            let added = axes(&list, dims.len() + list.len())?;
            let mut rest = dims.iter();
            let all = 0..dims.len() + added.len();
            Ok(all
                .map(|i| {
                    if added.contains(&i) { Dim::known(1) } else { rest.next().cloned().unwrap_or_default() }
                })
                .collect())
        }
    }
}

/// Whether a size may be 1 for some values of the symbols.
fn may_be_one(dim: &Dim, call: &Call<'_>) -> bool {
    let (low, high) = dim.range(call.bounds());
    (low..=high).contains(&1)
}

/// The axes of Squeeze and Unsqueeze: an attribute until opset 12, an operand since.
fn axis_list(call: &Call<'_>) -> Lowered<Option<Vec<i64>>> {
    if call.opset < 13 {
        return Ok(call.attributes.ints_opt("axes")?.map(<[i64]>::to_vec));
    }
    call.known(1, "the list of axes")
}

/// Replaces 0 (the operand's size) and -1 (what is left) in the target of Reshape.
fn resolve(target: &[Dim], dims: &[Dim], allow_zero: bool) -> Lowered<Vec<Dim>> {
    let mut out = Vec::with_capacity(target.len());
    let mut rest = None;
    for (i, t) in target.iter().enumerate() {
        match t.as_known() {
            Some(0) if !allow_zero => out.push(dims.get(i).cloned().ok_or_else(|| {
                Refused::new(format!("size 0 at axis {i} copies a size that the operand does not have"))
            })?),
            Some(-1) => {
                if rest.replace(i).is_some() {
                    return Err(Refused::new("the target shape holds -1 twice"));
                }
                out.push(Dim::known(1));
            }
            Some(v) if v < 0 => return Err(Refused::new(format!("the target size {v} is negative"))),
            _ => out.push(t.clone()),
        }
    }
    let Some(i) = rest else { return Ok(out) };
    // Sizes that stay cancel first, so that only what is regrouped must divide.
    let mut from: Vec<Dim> = dims.to_vec();
    let mut others = Vec::new();
    for (k, d) in out.iter().enumerate() {
        if k != i {
            match from.iter().position(|f| f == d && !d.is(0)) {
                Some(at) => drop(from.remove(at)),
                None => others.push(d.clone()),
            }
        }
    }
    let (all, others) = (product(&from), product(&others));
    if others.is(0) {
        return Err(Refused::new("-1 cannot be resolved beside a size of 0"));
    }
    out[i] = all
        .div_exact(&others)
        .ok_or_else(|| Refused::new(format!("{all} elements do not divide into {others}")))?;
    Ok(out)
}

fn reshape(name: &str, call: &mut Call<'_>) -> Lowered {
    let x = call.node(0)?;
    let shape = target_shape(name, call, &call.shape(x))?;
    Ok(call.b.reshape(x, shape)?.into())
}

fn dropout(call: &mut Call<'_>) -> Lowered {
    call.attributes.ignore(&["ratio", "seed"]);
    call.ignore(&[1]);
    inference(call)?;
    if call.has(2) && call.array(2).is_none_or(|a| a.to_floats() != [0.0]) {
        return Err(Refused::new("dropout in training mode is random"));
    }
    let x = call.node(0)?;
    let mut outputs = Outputs::from(x);
    if call.wants(1) {
        // Until opset 9 the mask has the operand's type.
        let dtype = if call.opset < 10 { call.dtype(x) } else { DType::Bool };
        let one = call.b.scalar(dtype, 1.0)?;
        let shape = call.shape(x);
        outputs.0.push(Value::Node(call.b.expand(one, shape)?));
    }
    Ok(outputs)
}

fn transpose(call: &mut Call<'_>) -> Lowered {
    let x = call.node(0)?;
    let perm = permutation(call, call.rank(x))?;
    Ok(call.b.transpose(x, perm)?.into())
}

/// The attribute `perm`; the axes reversed without it.
pub(super) fn permutation(call: &Call<'_>, rank: usize) -> Lowered<Vec<usize>> {
    let Some(perm) = call.attributes.ints_opt("perm")? else { return Ok((0..rank).rev().collect()) };
    let perm = perm.iter().map(|p| normalize_axis(*p, rank)).collect::<Result<Vec<_>, _>>()?;
    let mut sorted = perm.clone();
    sorted.sort_unstable();
    if sorted != (0..rank).collect::<Vec<_>>() {
        return Err(Refused::new(format!("{perm:?} is no permutation of {rank} axes")));
    }
    Ok(perm)
}

fn expand(call: &mut Call<'_>) -> Lowered {
    let x = call.node(0)?;
    let target = call.dims(1, "the target shape")?.ok_or_else(|| Refused::new("the shape is missing"))?;
    let shape = broadcast(&[&call.shape(x), &target])?;
    Ok(call.b.expand(x, shape)?.into())
}

fn tile(call: &mut Call<'_>) -> Lowered {
    let x = call.node(0)?;
    let repeats = call.dims(1, "the repeats")?.ok_or_else(|| Refused::new("the repeats are missing"))?;
    let shape = call.shape(x);
    if repeats.len() != shape.len() {
        return Err(Refused::new(format!("{} repeats do not fit rank {}", repeats.len(), shape.len())));
    }
    // Each repeated axis becomes (1, size), is broadcast to (repeat, size) and merged.
    let (mut split, mut wide, mut merged) = (Vec::new(), Vec::new(), Vec::new());
    for (d, r) in shape.iter().zip(&repeats) {
        if r.as_known().is_some_and(|r| r < 0) {
            return Err(Refused::new(format!("repeat {r} is negative")));
        }
        if !r.is(1) {
            split.push(Dim::known(1));
            wide.push(r.clone());
        }
        split.push(d.clone());
        wide.push(d.clone());
        merged.push(d.mul(r));
    }
    let x = call.b.reshape(x, split)?;
    let x = call.b.expand(x, wide)?;
    Ok(call.b.reshape(x, merged)?.into())
}

fn concat(call: &mut Call<'_>) -> Lowered {
    let parts = call.nodes()?;
    let first = *parts.first().ok_or_else(|| Refused::new("it has no operand"))?;
    let axis = match call.attributes.int_opt("axis")? {
        Some(axis) => axis,
        None if call.opset < 4 => 1,
        None => return Err(Refused::new("attribute `axis` is missing")),
    };
    let axis = normalize_axis(axis, call.rank(first))?;
    if parts.len() == 1 {
        return Ok(first.into());
    }
    Ok(call.add(Concat { axis }, &parts)?.into())
}

fn split(call: &mut Call<'_>) -> Lowered {
    let x = call.node(0)?;
    let axis = call.axis(0, call.rank(x))?;
    let extent = call.shape(x)[axis].clone();
    let parts = call.wanted.len();
    let given = if call.opset < 13 {
        call.attributes.ints_opt("split")?.map(|l| l.iter().map(|v| Dim::known(*v)).collect())
    } else {
        call.dims(1, "the list of sizes")?
    };
    let announced = call.attributes.int_opt("num_outputs")?;
    let sizes = match given {
        Some(sizes) => sizes,
        None if announced.is_some() || extent.as_known().is_some() => {
            let n = announced.unwrap_or(i64::try_from(parts).unwrap_or(i64::MAX));
            equal_parts(call, &extent, n)?
        }
        None => {
            let n = Dim::from(parts);
            let size = extent
                .div_exact(&n)
                .ok_or_else(|| Refused::new(format!("size {extent} does not divide into {parts} parts")))?;
            vec![size; parts]
        }
    };
    if sizes.len() < parts {
        return Err(Refused::new(format!("{} sizes make no {parts} parts", sizes.len())));
    }
    let sum = sizes.iter().fold(Dim::known(0), |a, b| a.add(b));
    if compare(&sum, &extent, call.bounds(), |d| d == 0) == Some(false) {
        return Err(Refused::new(format!("the parts have {sum} of {extent} elements along axis {axis}")));
    }
    let mut outputs = Outputs(Vec::new());
    let mut start = Dim::known(0);
    for (i, size) in sizes.iter().enumerate() {
        outputs.0.push(if call.wants(i) {
            Value::Node(call.b.slice(x, axis, start.clone(), size.clone())?)
        } else {
            Value::Absent
        });
        start = start.add(size);
    }
    Ok(outputs)
}

/// Parts of `ceil(extent / n)`, the last one smaller when they do not divide.
fn equal_parts(call: &Call<'_>, extent: &Dim, n: i64) -> Lowered<Vec<Dim>> {
    if n <= 0 || n > 65536 {
        return Err(Refused::new(format!("{n} parts cannot be made")));
    }
    if let Some(size) = extent.div_exact(&Dim::known(n)) {
        return Ok(vec![size; usize::try_from(n).unwrap_or(0)]);
    }
    let extent = i64::try_from(call.known_dim(extent, "the size to split")?).unwrap_or(i64::MAX);
    if call.opset < 18 {
        return Err(Refused::new(format!("size {extent} does not divide into {n} parts")));
    }
    let size = (extent.saturating_add(n - 1)) / n;
    Ok((0..n).map(|i| Dim::known((extent - i * size).clamp(0, size))).collect())
}

fn block_size(call: &Call<'_>) -> Lowered<i64> {
    let size = call.attributes.int("blocksize", 0)?;
    if size < 1 {
        return Err(Refused::new(format!("attribute `blocksize` is {size}")));
    }
    Ok(size)
}

fn image(call: &Call<'_>, x: crate::ir::graph::NodeId) -> Lowered<[Dim; 4]> {
    <[Dim; 4]>::try_from(call.shape(x)).map_err(|s| Refused::new(format!("rank {} is not 4", s.len())))
}

fn exact(size: &Dim, divisor: i64) -> Lowered<Dim> {
    size.div_exact(&Dim::known(divisor))
        .ok_or_else(|| Refused::new(format!("size {size} does not divide by {divisor}")))
}

/// Whether a channel's blocks lie together (`CRD`), not those of one place in the block (`DCR`).
fn columns_first(call: &Call<'_>) -> Lowered<bool> {
    match call.attributes.text("mode", "DCR")? {
        "DCR" => Ok(false),
        "CRD" => Ok(true),
        other => Err(Refused::new(format!("mode `{other}` is not known"))),
    }
}

fn depth_to_space(call: &mut Call<'_>) -> Lowered {
    let x = call.node(0)?;
    let size = block_size(call)?;
    let columns_first = columns_first(call)?;
    let [n, c, h, w] = image(call, x)?;
    let depth = exact(&c, size.saturating_mul(size))?;
    let b = Dim::known(size);
    let (split, perm) = if columns_first {
        (vec![n.clone(), depth.clone(), b.clone(), b.clone(), h.clone(), w.clone()], vec![0, 1, 4, 2, 5, 3])
    } else {
        (vec![n.clone(), b.clone(), b.clone(), depth.clone(), h.clone(), w.clone()], vec![0, 3, 4, 1, 5, 2])
    };
    let x = call.b.reshape(x, split)?;
    let x = call.b.transpose(x, perm)?;
    Ok(call.b.reshape(x, vec![n, depth, h.scale(size), w.scale(size)])?.into())
}

fn space_to_depth(call: &mut Call<'_>) -> Lowered {
    let x = call.node(0)?;
    let size = block_size(call)?;
    let columns_first = columns_first(call)?;
    let [n, c, h, w] = image(call, x)?;
    let (rows, columns) = (exact(&h, size)?, exact(&w, size)?);
    let b = Dim::known(size);
    let split = vec![n.clone(), c.clone(), rows.clone(), b.clone(), columns.clone(), b];
    let x = call.b.reshape(x, split)?;
    let perm = if columns_first { vec![0, 1, 3, 5, 2, 4] } else { vec![0, 3, 5, 1, 2, 4] };
    let x = call.b.transpose(x, perm)?;
    Ok(call.b.reshape(x, vec![n, c.scale(size.saturating_mul(size)), rows, columns])?.into())
}
