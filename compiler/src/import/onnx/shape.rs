//! Operators that move elements: reshapes, transposes, broadcasts, concatenations and splits.

use super::lowering::{Call, Lowered, OpEntry, Outputs, Value, axes, check_inference, op};
use super::refused::Refused;
use super::symbolic_ints::compare;
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

/// Returns the shape that Reshape, Flatten, Squeeze or Unsqueeze gives a tensor of shape `dims`.
pub(super) fn target_shape(name: &str, call: &Call<'_>, dims: &[Dim]) -> Lowered<Vec<Dim>> {
    match name {
        "Reshape" => {
            let target = if call.opset < 5 {
                let list = call.attributes.ints_opt("shape")?;
                list.map(|l| l.iter().map(|d| Dim::known(*d)).collect())
            } else {
                call.dims(1, "the target shape")?
            };
            let target: Vec<Dim> = target.ok_or_else(|| Refused::new("the target shape is missing"))?;
            resolve_reshape(&target, dims, call.attributes.flag("allowzero", false)?)
        }
        "Flatten" => {
            let rank = i64::try_from(dims.len()).unwrap_or(i64::MAX);
            let axis = call.attributes.int("axis", 1)?;
            let at = usize::try_from(if axis < 0 { axis.saturating_add(rank) } else { axis })
                .ok()
                .filter(|a| *a <= dims.len())
                .ok_or_else(|| {
                    Refused::new(format!("attribute `axis` is {axis}, which is out of range for rank {rank}"))
                })?;
            Ok(vec![product(&dims[..at]), product(&dims[at..])])
        }
        "Squeeze" => {
            let removed = match axis_list(call)? {
                Some(list) => axes(&list, dims.len())?,
                None => {
                    let undecided = |i: &usize| dims[*i].as_known().is_none() && may_be_one(&dims[*i], call);
                    if let Some(i) = (0..dims.len()).find(undecided) {
                        return Err(Refused::new(format!(
                            "there is no list of axes, and axis {i} is removed only if its symbolic size \
                             {} is 1: fix it with --dim, or give it a lower bound above 1",
                            dims[i]
                        )));
                    }
                    (0..dims.len()).filter(|i| dims[*i].is(1)).collect()
                }
            };
            if let Some(i) = removed.iter().find(|i| dims[**i].as_known().is_some_and(|d| d != 1)) {
                return Err(Refused::new(format!(
                    "axis {i} cannot be removed: its size is {}, not 1",
                    dims[*i]
                )));
            }
            let kept = dims.iter().enumerate().filter(|(i, _)| !removed.contains(i));
            Ok(kept.map(|(_, d)| d.clone()).collect())
        }
        _ => {
            let list = axis_list(call)?.ok_or_else(|| Refused::new("the list of axes is missing"))?;
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

/// Returns true if a size can be 1 within the bounds of its symbols.
fn may_be_one(dim: &Dim, call: &Call<'_>) -> bool {
    let (low, high) = dim.range(call.bounds());
    (low..=high).contains(&1)
}

/// Returns the axes of Squeeze and Unsqueeze: an attribute before opset 13, an operand from then on.
fn axis_list(call: &Call<'_>) -> Lowered<Option<Vec<i64>>> {
    if call.opset < 13 {
        return Ok(call.attributes.ints_opt("axes")?.map(<[i64]>::to_vec));
    }
    call.known(1, "the list of axes")
}

/// Replaces 0 (the operand's size) and -1 (the remaining elements) in the target shape of Reshape.
fn resolve_reshape(target: &[Dim], dims: &[Dim], allow_zero: bool) -> Lowered<Vec<Dim>> {
    let mut out = Vec::with_capacity(target.len());
    let mut rest = None;
    for (i, t) in target.iter().enumerate() {
        match t.as_known() {
            Some(0) if !allow_zero => out.push(dims.get(i).cloned().ok_or_else(|| {
                Refused::new(format!(
                    "the target size 0 at axis {i} copies axis {i} of the operand, which does not exist"
                ))
            })?),
            Some(-1) => {
                if rest.replace(i).is_some() {
                    return Err(Refused::new("the target shape contains -1 twice"));
                }
                out.push(Dim::known(1));
            }
            Some(v) if v < 0 => {
                return Err(Refused::new(format!("the target shape contains the negative size {v}")));
            }
            _ => out.push(t.clone()),
        }
    }
    let Some(i) = rest else { return Ok(out) };
    // Unchanged sizes cancel first, so that only the regrouped sizes must divide.
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
        return Err(Refused::new("the target size -1 cannot be computed, because another target size is 0"));
    }
    out[i] = all.div_exact(&others).ok_or_else(|| {
        Refused::new(format!(
            "the target size -1 cannot be computed: {all} elements are not a multiple of {others}"
        ))
    })?;
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
    check_inference(call)?;
    if call.has(2) && call.array(2).is_none_or(|a| a.to_floats() != [0.0]) {
        return Err(Refused::new("training mode is not supported: the result of Dropout would be random"));
    }
    let x = call.node(0)?;
    let mut outputs = Outputs::from(x);
    if call.wants(1) {
        // Before opset 10 the mask has the operand's type.
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

/// Returns the attribute `perm`; by default the axes are reversed.
pub(super) fn permutation(call: &Call<'_>, rank: usize) -> Lowered<Vec<usize>> {
    let Some(perm) = call.attributes.ints_opt("perm")? else { return Ok((0..rank).rev().collect()) };
    let perm = perm.iter().map(|p| normalize_axis(*p, rank)).collect::<Result<Vec<_>, _>>()?;
    let mut sorted = perm.clone();
    sorted.sort_unstable();
    if sorted != (0..rank).collect::<Vec<_>>() {
        return Err(Refused::new(format!(
            "attribute `perm` is {perm:?}, which is not a permutation of {rank} axes"
        )));
    }
    Ok(perm)
}

fn expand(call: &mut Call<'_>) -> Lowered {
    let x = call.node(0)?;
    let target =
        call.dims(1, "the target shape")?.ok_or_else(|| Refused::new("the target shape is missing"))?;
    let shape = broadcast(&[&call.shape(x), &target])?;
    Ok(call.b.expand(x, shape)?.into())
}

fn tile(call: &mut Call<'_>) -> Lowered {
    let x = call.node(0)?;
    let repeats =
        call.dims(1, "the list of repeats")?.ok_or_else(|| Refused::new("the list of repeats is missing"))?;
    let shape = call.shape(x);
    if repeats.len() != shape.len() {
        return Err(Refused::new(format!(
            "the list of repeats has {} values; one for each of {} axes is needed",
            repeats.len(),
            shape.len()
        )));
    }
    // Each repeated axis becomes (1, size), is broadcast to (repeat, size), and merged.
    let (mut split, mut wide, mut merged) = (Vec::new(), Vec::new(), Vec::new());
    for (d, r) in shape.iter().zip(&repeats) {
        if r.as_known().is_some_and(|r| r < 0) {
            return Err(Refused::new(format!("the list of repeats contains the negative value {r}")));
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
    let operands = call.nodes()?;
    let first = *operands.first().ok_or_else(|| Refused::new("the node has no operand"))?;
    let axis = match call.attributes.int_opt("axis")? {
        Some(axis) => axis,
        None if call.opset < 4 => 1,
        None => return Err(Refused::new("attribute `axis` is missing")),
    };
    let axis = normalize_axis(axis, call.rank(first))?;
    if operands.len() == 1 {
        return Ok(first.into());
    }
    Ok(call.add(Concat { axis }, &operands)?.into())
}

fn split(call: &mut Call<'_>) -> Lowered {
    let x = call.node(0)?;
    let axis = call.axis(0, call.rank(x))?;
    let extent = call.shape(x)[axis].clone();
    let n_results = call.wanted.len();
    let given = if call.opset < 13 {
        call.attributes.ints_opt("split")?.map(|l| l.iter().map(|v| Dim::known(*v)).collect())
    } else {
        call.dims(1, "the list of sizes")?
    };
    let num_outputs = call.attributes.int_opt("num_outputs")?;
    let sizes = match given {
        Some(sizes) => sizes,
        None if num_outputs.is_some() || extent.as_known().is_some() => {
            let n = num_outputs.unwrap_or(i64::try_from(n_results).unwrap_or(i64::MAX));
            equal_sizes(call, &extent, n)?
        }
        None => {
            let n = Dim::from(n_results);
            let size = extent.div_exact(&n).ok_or_else(|| {
                Refused::new(format!(
                    "the size {extent} of axis {axis} is not a multiple of the number of results, {n_results}"
                ))
            })?;
            vec![size; n_results]
        }
    };
    if sizes.len() < n_results {
        return Err(Refused::new(format!(
            "the list of sizes has {} values; there are {n_results} results",
            sizes.len()
        )));
    }
    let sum = sizes.iter().fold(Dim::known(0), |a, b| a.add(b));
    if compare(&sum, &extent, call.bounds(), |d| d == 0) == Some(false) {
        return Err(Refused::new(format!(
            "the sizes of the results add up to {sum}; axis {axis} has size {extent}"
        )));
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

/// Returns `n` sizes into which an axis of size `extent` is split: `ceil(extent / n)` each, but the last sizes may be
/// smaller.
fn equal_sizes(call: &Call<'_>, extent: &Dim, n: i64) -> Lowered<Vec<Dim>> {
    if n <= 0 || n > 65536 {
        return Err(Refused::new(format!("the number of results is {n}; 1 to 65536 are supported")));
    }
    if let Some(size) = extent.div_exact(&Dim::known(n)) {
        return Ok(vec![size; usize::try_from(n).unwrap_or(0)]);
    }
    let extent = i64::try_from(call.known_dim(extent, "the size to split")?).unwrap_or(i64::MAX);
    if call.opset < 18 {
        let reason = format!("the size {extent} is not a multiple of the number of results, {n}");
        return Err(Refused::new(reason));
    }
    let size = (extent.saturating_add(n - 1)) / n;
    Ok((0..n).map(|i| Dim::known((extent - i * size).clamp(0, size))).collect())
}

fn block_size(call: &Call<'_>) -> Lowered<i64> {
    let size = call.attributes.int("blocksize", 0)?;
    if size < 1 {
        return Err(Refused::attribute("blocksize", size, "1 or more"));
    }
    Ok(size)
}

fn image(call: &Call<'_>, x: crate::ir::graph::NodeId) -> Lowered<[Dim; 4]> {
    <[Dim; 4]>::try_from(call.shape(x))
        .map_err(|s| Refused::new(format!("operand 0 has rank {}; rank 4 is needed", s.len())))
}

fn exact(size: &Dim, divisor: i64) -> Lowered<Dim> {
    size.div_exact(&Dim::known(divisor))
        .ok_or_else(|| Refused::new(format!("the size {size} of an axis is not a multiple of {divisor}")))
}

/// Returns true for mode `CRD` of DepthToSpace, where the elements of a block are adjacent channels; false for `DCR`.
fn is_crd(call: &Call<'_>) -> Lowered<bool> {
    match call.attributes.text("mode", "DCR")? {
        "DCR" => Ok(false),
        "CRD" => Ok(true),
        other => Err(Refused::attribute("mode", other, "`DCR`, `CRD`")),
    }
}

fn depth_to_space(call: &mut Call<'_>) -> Lowered {
    let x = call.node(0)?;
    let size = block_size(call)?;
    let is_crd = is_crd(call)?;
    let [n, c, h, w] = image(call, x)?;
    let depth = exact(&c, size.saturating_mul(size))?;
    let b = Dim::known(size);
    let (split, perm) = if is_crd {
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
    let is_crd = is_crd(call)?;
    let [n, c, h, w] = image(call, x)?;
    let (rows, columns) = (exact(&h, size)?, exact(&w, size)?);
    let b = Dim::known(size);
    let split = vec![n.clone(), c.clone(), rows.clone(), b.clone(), columns.clone(), b];
    let x = call.b.reshape(x, split)?;
    let perm = if is_crd { vec![0, 1, 3, 5, 2, 4] } else { vec![0, 3, 5, 1, 2, 4] };
    let x = call.b.transpose(x, perm)?;
    Ok(call.b.reshape(x, vec![n, c.scale(size.saturating_mul(size)), rows, columns])?.into())
}
