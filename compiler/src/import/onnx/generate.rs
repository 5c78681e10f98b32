//! Tensors made from little: constants, ranges, shapes.

use super::ints::{Ints, shape_of};
use super::lowering::{Call, FOLDED_ELEMENTS, Lowered, OpEntry, Outputs, Refused, Value, op};
use super::tensors;
use crate::ir::array::{Array, unravel};
use crate::ir::dim::{Dim, product};
use crate::ir::element::{BinaryFn, Element, UnaryFn};
use crate::ir::graph::NodeId;
use crate::ir::op::{Constant, Elementwise, Op, Range};
use crate::ir::tensor::DType;

pub(super) const OPS: &[OpEntry] = &[
    op("Constant", 1, constant),
    op("ConstantOfShape", 9, constant_of_shape),
    op("Range", 11, range),
    op("EyeLike", 9, eye_like),
    op("Shape", 1, |c| unknown(c, Ints::vector)),
    op("Size", 1, |c| unknown(c, |dims| Ints::vector(vec![product(&dims)]))),
    op("NonZero", 9, non_zero),
    op("HannWindow", 17, |c| window(c, [0.5, 0.5, 0.0])),
    op("HammingWindow", 17, |c| window(c, [25.0 / 46.0, 21.0 / 46.0, 0.0])),
    op("BlackmanWindow", 17, |c| window(c, [0.42, 0.5, 0.08])),
];

/// Integers from `start` on.
pub(super) fn iota(call: &mut Call<'_>, dtype: DType, start: Dim, length: Dim) -> Lowered<NodeId> {
    call.add(Range { dtype, start, step: 1, length }, &[])
}

fn constant(call: &mut Call<'_>) -> Lowered {
    let a = call.attributes;
    let array = if let Some(tensor) = a.tensor_opt("value")? {
        match tensors::read(tensor, &super::source::Source::none())? {
            tensors::Tensor::Constant(constant) => return Ok(call.add(constant, &[])?.into()),
            tensors::Tensor::Nibbles(nibbles) => return Ok(Outputs(vec![Value::Nibbles(nibbles)])),
            tensors::Tensor::Foreign(reason) => return Err(Refused::new(reason)),
        }
    } else if let Some(value) = a.float_opt("value_float")? {
        Array::f32(&[], vec![value])
    } else if let Some(values) = a.floats_opt("value_floats")? {
        Array::f32(&[values.len()], values.to_vec())
    } else if let Some(value) = a.int_opt("value_int")? {
        Array::int(DType::I64, &[], vec![value])
    } else if let Some(values) = a.ints_opt("value_ints")? {
        Array::i64s(values)
    } else {
        return Err(Refused::new("a constant without a dense numeric value is not supported"));
    };
    Ok(call.add(Constant::from_array(&array), &[])?.into())
}

fn constant_of_shape(call: &mut Call<'_>) -> Lowered {
    let shape = call.dims(0, "the shape")?.ok_or_else(|| Refused::new("the shape is missing"))?;
    let value = match call.attributes.tensor_opt("value")? {
        Some(tensor) => tensors::inline(tensor)?,
        None => Array::f32(&[1], vec![0.0]),
    };
    if value.len() != 1 {
        return Err(Refused::new(format!("the value has {} elements", value.len())));
    }
    if let Some(d) = shape.iter().find(|d| d.as_known().is_some_and(|d| d < 0)) {
        return Err(Refused::new(format!("the size {d} is negative")));
    }
    let scalar = Array { shape: Vec::new(), ..value };
    let value = call.b.constant(&scalar)?;
    Ok(call.b.expand(value, shape)?.into())
}

/// Number of elements of `start, start + step, ..` before `limit`; `None` for a step of zero.
pub(super) fn range_length(start: i64, limit: i64, step: i64) -> Option<i64> {
    let distance = if step > 0 { limit.saturating_sub(start) } else { start.saturating_sub(limit) };
    let stride = step.saturating_abs();
    if stride == 0 {
        return None;
    }
    Some(if distance <= 0 { 0 } else { (distance - 1) / stride + 1 })
}

/// An end of a range as a size: an integer, or a float that a size was cast to.
fn end(call: &Call<'_>, index: usize) -> Option<Dim> {
    let one = |ints: Ints| ints.values.first().cloned().filter(|_| ints.values.len() == 1);
    if let Some(ints) = call.ints(index) {
        return one(ints);
    }
    let Some(Value::Node(node)) = call.operand(index) else { return None };
    let mut node = *node;
    loop {
        let next = call.b.graph.operands(node).first().copied();
        match call.b.graph.op(node) {
            Op::Elementwise(Elementwise { element: Element::Cast(to) }) if to.is_float() => node = next?,
            Op::Reshape(_) => node = next?,
            Op::ShapeValues(sizes) if sizes.values.len() == 1 => return sizes.values.first().cloned(),
            Op::Constant(_) => {
                let array = call.constant(node).filter(|a| a.len() == 1)?;
                let value = array.to_floats().first().copied()?;
                // Whole numbers that a float holds exactly.
                let whole = value.fract() == 0.0 && value.abs() <= 16_777_216.0;
                return whole.then(|| Dim::known(value as i64));
            }
            _ => return None,
        }
    }
}

fn range(call: &mut Call<'_>) -> Lowered {
    if let (Some(start), Some(limit), Some(step)) = (end(call, 0), end(call, 1), end(call, 2)) {
        let floats = matches!(call.operand(0), Some(Value::Node(x)) if call.dtype(*x).is_float());
        let to = match call.operand(0) {
            Some(Value::Node(x)) => call.dtype(*x),
            Some(Value::Ints(ints)) => ints.dtype,
            _ => DType::I64,
        };
        let dtype = if floats { DType::I64 } else { to };
        let step = step
            .as_known()
            .filter(|s| *s != 0)
            .ok_or_else(|| Refused::new(format!("the step {step} is zero or symbolic")))?;
        let length = match (start.as_known(), limit.as_known()) {
            (Some(s), Some(l)) => range_length(s, l, step)
                .map(Dim::known)
                .ok_or_else(|| Refused::new(format!("{s} to {l} are too many elements")))?,
            _ if step > 0 => distance(call, &limit.sub(&start), step),
            _ => distance(call, &start.sub(&limit), step),
        };
        let integers = call.add(Range { dtype, start, step, length }, &[])?;
        return Ok(call.b.cast(integers, to)?.into());
    }
    float_range(call)
}

fn distance(call: &Call<'_>, distance: &Dim, step: i64) -> Dim {
    distance.positive_within(call.bounds()).ceil_div(step.saturating_abs())
}

/// A range of floats is an affine function of a range of integers.
fn float_range(call: &mut Call<'_>) -> Lowered {
    let mut ends = [0.0f64; 3];
    let mut dtype = DType::F32;
    for (i, end) in ends.iter_mut().enumerate() {
        let array = call.array(i).filter(|a| a.len() == 1);
        let array = array.ok_or_else(|| Refused::new("its ends are computed from data at run time"))?;
        dtype = array.dtype;
        *end = array.to_floats().first().copied().map_or(0.0, f64::from);
    }
    let [start, limit, step] = ends;
    let length = ((limit - start) / step).ceil();
    if !length.is_finite() {
        return Err(Refused::new(format!("a range from {start} to {limit} by {step} does not end")));
    }
    let indices = iota(call, DType::I64, Dim::known(0), Dim::known(length.max(0.0) as i64))?;
    let indices = call.b.cast(indices, dtype)?;
    Ok(call.b.unary(UnaryFn::Affine { scale: step as f32, shift: start as f32 }, indices)?.into())
}

fn eye_like(call: &mut Call<'_>) -> Lowered {
    let shape = shape_of(call, 0).ok_or_else(|| Refused::new("the operand is missing"))?;
    let [h, w] = shape.as_slice() else {
        return Err(Refused::new(format!("rank {} is not 2", shape.len())));
    };
    let dtype = match call.attributes.int_opt("dtype")? {
        Some(number) => tensors::dtype(i32::try_from(number).unwrap_or(-1))?,
        None => {
            let x = call.node(0)?;
            call.dtype(x)
        }
    };
    let k = call.attributes.int("k", 0)?;
    let rows = iota(call, DType::I64, Dim::known(k), h.clone())?;
    let rows = call.b.reshape(rows, vec![h.clone(), Dim::known(1)])?;
    let columns = iota(call, DType::I64, Dim::known(0), w.clone())?;
    let diagonal = call.b.binary(BinaryFn::Equal, columns, rows)?;
    Ok(call.b.cast(diagonal, dtype)?.into())
}

/// Shapes of values are always known; these operators are evaluated before they are lowered.
fn unknown(call: &mut Call<'_>, f: fn(Vec<Dim>) -> Ints) -> Lowered {
    let dims = shape_of(call, 0).ok_or_else(|| Refused::new("the operand has no shape"))?;
    Ok(f(dims).into())
}

/// Positions of the elements other than zero, which are known for constants only.
fn non_zero(call: &mut Call<'_>) -> Lowered {
    let array = call.array(0).filter(|a| a.len() <= FOLDED_ELEMENTS);
    let array = array.ok_or_else(|| Refused::new("the number of results depends on data at run time"))?;
    let mut columns: Vec<Vec<i64>> = vec![Vec::new(); array.shape.len()];
    let mut coords = vec![0; array.shape.len()];
    for (i, value) in array.to_floats().iter().enumerate() {
        if *value != 0.0 {
            unravel(i, &array.shape, &mut coords);
            for (column, c) in columns.iter_mut().zip(&coords) {
                column.push(i64::try_from(*c).unwrap_or(i64::MAX));
            }
        }
    }
    let shape = [columns.len(), columns.first().map_or(0, Vec::len)];
    let positions = Array::int(DType::I64, &shape, columns.concat());
    let node = call.b.constant(&positions)?;
    Ok(Outputs::from(node))
}

/// Longest window that is computed while importing.
const MAX_WINDOW: i64 = 1 << 20;

/// `a - b cos(2 pi i / n) + c cos(4 pi i / n)`, where n counts the end when the window is symmetric.
fn window(call: &mut Call<'_>, [a, b, c]: [f64; 3]) -> Lowered {
    let size = call.known_scalar(0, "the size")?.ok_or_else(|| Refused::new("the size is missing"))?;
    if !(0..=MAX_WINDOW).contains(&size) {
        return Err(Refused::new(format!("a window of {size} elements is not computed")));
    }
    let periodic = call.attributes.flag("periodic", true)?;
    let dtype = tensors::dtype(i32::try_from(call.attributes.int("output_datatype", 1)?).unwrap_or(-1))?;
    let turn = std::f64::consts::TAU / if periodic { size } else { (size - 1).max(1) } as f64;
    let value = |i: i64| {
        let angle = turn * i as f64;
        (a - b * angle.cos() + c * (2.0 * angle).cos()) as f32
    };
    let values: Vec<f32> = (0..size).map(value).collect();
    let window = Array::f32(&[values.len()], values).cast(dtype);
    Ok(call.b.constant(&window)?.into())
}
