//! Evaluation of shape computations while importing.
//!
//! [`apply`] evaluates operators on small integer tensors whose elements are expressions of symbolic sizes, so that
//! only the computed shapes remain in the graph. An operator that cannot be evaluated is lowered like any other.

use super::lowering::{Call, FOLDED_ELEMENTS};
use super::symbolic_ints::{SymbolicInts, compare};
use crate::ir::array::{count, strides, unravel, wrap};
use crate::ir::dim::{Bounds, Dim, product};
use crate::ir::tensor::{DType, normalize_axis};

/// Evaluates an operator of ai.onnx on symbolic integers. Returns `None` if the operator is not supported here, or if
/// the result cannot be decided.
pub(super) fn apply(name: &str, call: &Call<'_>) -> Option<SymbolicInts> {
    let result = match name {
        "Shape" => shape(call),
        "Size" => {
            let dims = call.operand_shape(0)?;
            Some(SymbolicInts { dtype: DType::I64, shape: Vec::new(), values: vec![product(&dims)] })
        }
        "Identity" => call.ints(0),
        "Gather" => gather(call),
        "Concat" => concat(call),
        "Slice" => slice(call),
        "Squeeze" | "Unsqueeze" | "Reshape" | "Flatten" => reshaped(name, call),
        "Expand" => expand(call),
        "Cast" => cast(call),
        "Neg" => call.ints(0).map(|x| map(x, |d| d.scale(-1))),
        "Not" => decided(call.ints(0)?, |d| Some(i64::from(d.as_known()? == 0))),
        "Add" | "Sub" | "Mul" | "Div" | "Mod" | "Min" | "Max" | "Equal" | "Less" | "LessOrEqual"
        | "Greater" | "GreaterOrEqual" | "And" | "Or" => binary(name, call),
        "Where" => select(call),
        "ConstantOfShape" => constant_of_shape(call),
        "Range" => range(call),
        "ReduceProd" | "ReduceSum" | "ReduceMax" | "ReduceMin" => reduce(name, call),
        _ => None,
    }?;
    (result.values.len() <= FOLDED_ELEMENTS && result.values.len() == count(&result.shape)).then_some(result)
}

fn map(mut ints: SymbolicInts, f: impl Fn(&Dim) -> Dim) -> SymbolicInts {
    for value in &mut ints.values {
        *value = f(value);
        if let Some(known) = value.as_known() {
            *value = Dim::known(wrap(ints.dtype, known));
        }
    }
    ints
}

fn decided(ints: SymbolicInts, f: impl Fn(&Dim) -> Option<i64>) -> Option<SymbolicInts> {
    let values = ints.values.iter().map(|d| f(d).map(Dim::known)).collect::<Option<Vec<_>>>()?;
    Some(SymbolicInts { dtype: DType::Bool, shape: ints.shape, values })
}

fn shape(call: &Call<'_>) -> Option<SymbolicInts> {
    let dims = call.operand_shape(0)?;
    let rank = i64::try_from(dims.len()).ok()?;
    let clamp = |v: i64| usize::try_from((if v < 0 { v.saturating_add(rank) } else { v }).clamp(0, rank));
    let start = clamp(call.attributes.int("start", 0).ok()?).ok()?;
    let end = clamp(call.attributes.int("end", rank).ok()?).ok()?;
    Some(SymbolicInts::vector(dims.get(start..end.max(start))?.to_vec()))
}

/// Builds a tensor of symbolic integers from a function of the coordinates. Returns `None` if the tensor is too large.
fn build(dtype: DType, shape: Vec<usize>, f: impl Fn(&[usize]) -> Option<Dim>) -> Option<SymbolicInts> {
    let n = count(&shape);
    if n > FOLDED_ELEMENTS {
        return None;
    }
    let mut coords = vec![0; shape.len()];
    let mut values = Vec::with_capacity(n);
    for i in 0..n {
        unravel(i, &shape, &mut coords);
        values.push(f(&coords)?);
    }
    Some(SymbolicInts { dtype, shape, values })
}

/// Returns the element of a tensor at coordinates of the shape to which the tensor is broadcast: axes of size 1 repeat,
/// missing leading axes are skipped.
fn at(ints: &SymbolicInts, coords: &[usize]) -> Option<Dim> {
    let skip = coords.len().checked_sub(ints.shape.len())?;
    let index: usize = strides(&ints.shape)
        .iter()
        .zip(&ints.shape)
        .zip(coords.get(skip..)?)
        .map(|((s, d), c)| if *d == 1 { 0 } else { s * c })
        .sum();
    ints.values.get(index).cloned()
}

fn gather(call: &Call<'_>) -> Option<SymbolicInts> {
    let (data, indices) = (call.ints(0)?, call.ints(1)?);
    let axis = call.axis(0, data.shape.len()).ok()?;
    let extent = i64::try_from(data.shape[axis]).ok()?;
    let positions = indices.known()?;
    let inner = data.shape.len() - axis - 1;
    let mut out = data.shape[..axis].to_vec();
    out.extend(&indices.shape);
    out.extend(&data.shape[axis + 1..]);
    let index_strides = strides(&indices.shape);
    build(data.dtype, out, |coords| {
        let middle = &coords[axis..coords.len() - inner];
        let flat: usize = middle.iter().zip(&index_strides).map(|(c, s)| c * s).sum();
        let position = *positions.get(flat)?;
        let position = usize::try_from(if position < 0 { position + extent } else { position }).ok()?;
        if position >= data.shape[axis] {
            return None;
        }
        let mut from = coords[..axis].to_vec();
        from.push(position);
        from.extend(&coords[coords.len() - inner..]);
        at(&data, &from)
    })
}

fn concat(call: &Call<'_>) -> Option<SymbolicInts> {
    let operands = (0..call.operand_count()).map(|i| call.ints(i)).collect::<Option<Vec<_>>>()?;
    let first = operands.first()?;
    if operands.iter().any(|p| p.dtype != first.dtype || p.shape.len() != first.shape.len()) {
        return None;
    }
    let axis = normalize_axis(call.attributes.int_opt("axis").ok()??, first.shape.len()).ok()?;
    let mut out = first.shape.clone();
    out[axis] = operands.iter().map(|p| p.shape[axis]).sum();
    build(first.dtype, out, |coords| {
        let mut from = coords.to_vec();
        for operand in &operands {
            if from[axis] < operand.shape[axis] {
                return at(operand, &from);
            }
            from[axis] -= operand.shape[axis];
        }
        None
    })
}

fn slice(call: &Call<'_>) -> Option<SymbolicInts> {
    let data = call.ints(0)?;
    let (starts, ends, axes, steps) = super::slice::slice_operands(call, data.shape.len()).ok()?;
    let mut firsts = vec![0i64; data.shape.len()];
    let mut strides = vec![1i64; data.shape.len()];
    let mut out = data.shape.clone();
    for (i, axis) in axes.iter().enumerate() {
        let (start, end, step) = (starts.get(i)?.as_known()?, ends.get(i)?.as_known()?, *steps.get(i)?);
        let extent = i64::try_from(data.shape[*axis]).ok()?;
        let (first, size) = super::slice::known_range(start, end, step, extent);
        firsts[*axis] = first;
        strides[*axis] = step;
        out[*axis] = usize::try_from(size).ok()?;
    }
    build(data.dtype, out, |coords| {
        let from = coords
            .iter()
            .zip(&firsts)
            .zip(&strides)
            .map(|((c, f), s)| usize::try_from(f + i64::try_from(*c).ok()? * s).ok())
            .collect::<Option<Vec<_>>>()?;
        at(&data, &from)
    })
}

fn reshaped(name: &str, call: &Call<'_>) -> Option<SymbolicInts> {
    let data = call.ints(0)?;
    let dims: Vec<Dim> = data.shape.iter().map(|d| Dim::from(*d)).collect();
    let shape = super::shape::target_shape(name, call, &dims).ok()?;
    let shape = shape.iter().map(|d| usize::try_from(d.as_known()?).ok()).collect::<Option<Vec<_>>>()?;
    (count(&shape) == data.values.len()).then_some(SymbolicInts { shape, ..data })
}

fn expand(call: &Call<'_>) -> Option<SymbolicInts> {
    let (data, target) = (call.ints(0)?, call.ints(1)?.known()?);
    let target = target.iter().map(|d| usize::try_from(*d).ok()).collect::<Option<Vec<_>>>()?;
    let out = broadcast(&data.shape, &target)?;
    build(data.dtype, out, |coords| at(&data, coords))
}

fn broadcast(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let rank = a.len().max(b.len());
    let size = |s: &[usize], i: usize| (i + s.len()).checked_sub(rank).map_or(1, |k| s[k]);
    (0..rank)
        .map(|i| match (size(a, i), size(b, i)) {
            (x, y) if x == y => Some(x),
            (1, y) => Some(y),
            (x, 1) => Some(x),
            _ => None,
        })
        .collect()
}

fn cast(call: &Call<'_>) -> Option<SymbolicInts> {
    let data = call.ints(0)?;
    call.attributes.ignore(super::elementwise::CAST_TO_NARROW_FLOATS);
    let to = super::tensors::dtype(i32::try_from(call.attributes.int_opt("to").ok()??).ok()?).ok()?;
    if to.is_float() {
        return None;
    }
    if to == DType::Bool {
        let bounds = call.bounds();
        return decided(data, |d| truth(d, bounds).map(i64::from));
    }
    Some(map(SymbolicInts { dtype: to, ..data }, Clone::clone))
}

/// Returns true if a value is never zero within the bounds of its symbols, false if it is always zero, else `None`.
fn truth(value: &Dim, bounds: &Bounds) -> Option<bool> {
    let (low, high) = value.range(bounds);
    if low > 0 || high < 0 {
        return Some(true);
    }
    (low == 0 && high == 0).then_some(false)
}

fn binary(name: &str, call: &Call<'_>) -> Option<SymbolicInts> {
    // Before opset 7 the attribute `axis` aligns the second operand.
    if call.attributes.has("axis") {
        return None;
    }
    let operands = if matches!(name, "Min" | "Max") { call.operand_count() } else { 2 };
    let mut result = call.ints(0)?;
    for i in 1..operands {
        result = pair(name, call, &result, &call.ints(i)?)?;
    }
    Some(result)
}

fn pair(name: &str, call: &Call<'_>, a: &SymbolicInts, b: &SymbolicInts) -> Option<SymbolicInts> {
    if a.dtype != b.dtype {
        return None;
    }
    let bounds = call.bounds();
    let fmod = name == "Mod" && call.attributes.flag("fmod", false).ok()?;
    let is_comparison = matches!(name, "Equal" | "Less" | "LessOrEqual" | "Greater" | "GreaterOrEqual");
    let dtype = if is_comparison { DType::Bool } else { a.dtype };
    build(dtype, broadcast(&a.shape, &b.shape)?, |coords| {
        let (x, y) = (at(a, coords)?, at(b, coords)?);
        let value = match name {
            "Add" => x.add(&y),
            "Sub" => x.sub(&y),
            "Mul" => x.mul(&y),
            "Div" => divide(&x, &y, bounds)?,
            "Mod" => modulo(&x, &y, fmod, bounds)?,
            "Min" => x.smaller(&y, bounds),
            "Max" => x.larger(&y, bounds),
            "Equal" => Dim::from(i64::from(compare(&x, &y, bounds, |d| d == 0)?)),
            "Less" => Dim::from(i64::from(compare(&x, &y, bounds, |d| d < 0)?)),
            "LessOrEqual" => Dim::from(i64::from(compare(&x, &y, bounds, |d| d <= 0)?)),
            "Greater" => Dim::from(i64::from(compare(&x, &y, bounds, |d| d > 0)?)),
            "GreaterOrEqual" => Dim::from(i64::from(compare(&x, &y, bounds, |d| d >= 0)?)),
            "And" => Dim::from(x.as_known()? & y.as_known()?),
            _ => Dim::from(x.as_known()? | y.as_known()?),
        };
        Some(value.as_known().map_or(value, |v| Dim::known(wrap(dtype, v))))
    })
}

fn divide(x: &Dim, y: &Dim, bounds: &Bounds) -> Option<Dim> {
    match (x.as_known(), y.as_known()) {
        (Some(a), Some(b)) => a.checked_div(b).map(Dim::known),
        // Integer division truncates, which equals floor only for numbers that are not negative.
        (None, Some(b)) if b > 0 && x.range(bounds).0 >= 0 => Some(x.floor_div(b)),
        _ => x.div_exact(y),
    }
}

fn modulo(x: &Dim, y: &Dim, fmod: bool, bounds: &Bounds) -> Option<Dim> {
    match (x.as_known(), y.as_known()) {
        (Some(a), Some(b)) => {
            let rest = a.checked_rem(b)?;
            let shift = !fmod && rest != 0 && (rest < 0) != (b < 0);
            Some(Dim::known(if shift { rest + b } else { rest }))
        }
        (None, Some(b)) if b > 0 && (!fmod || x.range(bounds).0 >= 0) => {
            Some(x.sub(&x.floor_div(b).scale(b)))
        }
        _ => None,
    }
}

fn select(call: &Call<'_>) -> Option<SymbolicInts> {
    let (condition, a, b) = (call.ints(0)?, call.ints(1)?, call.ints(2)?);
    if a.dtype != b.dtype {
        return None;
    }
    let shape = broadcast(&broadcast(&condition.shape, &a.shape)?, &b.shape)?;
    build(a.dtype, shape, |coords| {
        if at(&condition, coords)?.as_known()? != 0 { at(&a, coords) } else { at(&b, coords) }
    })
}

fn constant_of_shape(call: &Call<'_>) -> Option<SymbolicInts> {
    let shape = call.ints(0)?.known()?;
    let shape = shape.iter().map(|d| usize::try_from(*d).ok()).collect::<Option<Vec<_>>>()?;
    let value = super::tensors::inline(call.attributes.tensor_opt("value").ok()??).ok()?;
    let value = SymbolicInts::from_array(&value)?;
    let element = value.scalar()?.clone();
    build(value.dtype, shape, |_| Some(element.clone()))
}

fn range(call: &Call<'_>) -> Option<SymbolicInts> {
    let (start, limit, delta) = (call.ints(0)?, call.ints(1)?, call.ints(2)?);
    let (first, step) = (start.scalar()?.as_known()?, delta.scalar()?.as_known()?);
    let n = super::generate::range_length(first, limit.scalar()?.as_known()?, step)?;
    let n = usize::try_from(n).ok()?;
    build(start.dtype, vec![n], |c| {
        Some(Dim::known(first.checked_add(i64::try_from(c[0]).ok()?.checked_mul(step)?)?))
    })
}

/// Evaluates ReduceProd, ReduceSum, ReduceMax or ReduceMin over all elements of a tensor. Returns `None` if the node
/// lists axes to reduce, unless the tensor is a vector.
fn reduce(name: &str, call: &Call<'_>) -> Option<SymbolicInts> {
    let data = call.ints(0)?;
    let axes = match call.ints(1) {
        Some(axes) => Some(axes.known()?),
        None if call.has(1) => return None,
        None => call.attributes.ints_opt("axes").ok()?.map(<[i64]>::to_vec),
    };
    let noop = call.attributes.flag("noop_with_empty_axes", false).ok()?;
    let whole = match axes.as_deref() {
        None | Some([]) => !noop,
        Some([axis]) => data.shape.len() == 1 && (*axis == 0 || *axis == -1),
        Some(_) => false,
    };
    if !whole {
        return None;
    }
    let bounds = call.bounds();
    let combined = data.values.iter().cloned().map(Some).reduce(|a, b| {
        let (a, b) = (a?, b?);
        Some(match name {
            "ReduceProd" => a.mul(&b),
            "ReduceSum" => a.add(&b),
            "ReduceMax" => a.larger(&b, bounds),
            _ => a.smaller(&b, bounds),
        })
    })??;
    let keep = call.attributes.flag("keepdims", true).ok()?;
    let shape = if keep { vec![1; data.shape.len()] } else { Vec::new() };
    Some(SymbolicInts { dtype: data.dtype, shape, values: vec![combined] })
}
