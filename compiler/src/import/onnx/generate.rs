//! Operators that generate tensors: constants, ranges, windows and shapes.

use super::lowering::{Call, FOLDED_ELEMENTS, Lowered, OpEntry, Outputs, Value, op};
use super::refused::Refused;
use super::source::Source;
use super::symbolic_ints::SymbolicInts;
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
    op("Shape", 1, |c| from_shape(c, SymbolicInts::vector)),
    op("Size", 1, |c| from_shape(c, |dims| SymbolicInts::vector(vec![product(&dims)]))),
    op("NonZero", 9, non_zero),
    op("HannWindow", 17, |c| window(c, [0.5, 0.5, 0.0])),
    op("HammingWindow", 17, |c| window(c, [25.0 / 46.0, 21.0 / 46.0, 0.0])),
    op("BlackmanWindow", 17, |c| window(c, [0.42, 0.5, 0.08])),
];

/// Adds a vector to the graph that holds `length` consecutive integers from `start` on.
pub(super) fn iota(call: &mut Call<'_>, dtype: DType, start: Dim, length: Dim) -> Lowered<NodeId> {
    call.add(Range { dtype, start, step: 1, length }, &[])
}

fn constant(call: &mut Call<'_>) -> Lowered {
    let a = call.attributes;
    let array = if let Some(tensor) = a.tensor_opt("value")? {
        match tensors::read(tensor, &Source::none())? {
            tensors::Tensor::Constant(constant) => return Ok(call.add(constant, &[])?.into()),
            tensors::Tensor::Int4(tensor) => return Ok(Outputs(vec![Value::Int4(tensor)])),
            tensors::Tensor::Unsupported(reason) => return Err(Refused::new(reason)),
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
        return Err(Refused::new(
            "only dense numeric constants are supported, not strings or sparse tensors",
        ));
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
        return Err(Refused::new(format!("attribute `value` has {} elements; one is needed", value.len())));
    }
    if let Some(d) = shape.iter().find(|d| d.as_known().is_some_and(|d| d < 0)) {
        return Err(Refused::new(format!("the shape contains the negative size {d}")));
    }
    let scalar = Array { shape: Vec::new(), ..value };
    let value = call.b.constant(&scalar)?;
    Ok(call.b.expand(value, shape)?.into())
}

/// Returns the number of elements of `start, start + step, ..` before `limit`; `None` for step 0.
pub(super) fn range_length(start: i64, limit: i64, step: i64) -> Option<i64> {
    let distance = if step > 0 { limit.saturating_sub(start) } else { start.saturating_sub(limit) };
    let stride = step.saturating_abs();
    if stride == 0 {
        return None;
    }
    Some(if distance <= 0 { 0 } else { (distance - 1) / stride + 1 })
}

/// Returns operand `index` of Range as a size: an integer, or a float that was cast from a size. Returns `None` if the
/// operand is something else.
fn range_operand(call: &Call<'_>, index: usize) -> Option<Dim> {
    let one = |ints: SymbolicInts| ints.values.first().cloned().filter(|_| ints.values.len() == 1);
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
                // Integers that f32 represents exactly.
                let whole = value.fract() == 0.0 && value.abs() <= 16_777_216.0;
                return whole.then(|| Dim::known(value as i64));
            }
            _ => return None,
        }
    }
}

fn range(call: &mut Call<'_>) -> Lowered {
    if let (Some(start), Some(limit), Some(step)) =
        (range_operand(call, 0), range_operand(call, 1), range_operand(call, 2))
    {
        let floats = matches!(call.operand(0), Some(Value::Node(x)) if call.dtype(*x).is_float());
        let to = match call.operand(0) {
            Some(Value::Node(x)) => call.dtype(*x),
            Some(Value::Ints(ints)) => ints.dtype,
            _ => DType::I64,
        };
        let dtype = if floats { DType::I64 } else { to };
        let step = step.as_known().filter(|s| *s != 0).ok_or_else(|| {
            Refused::new(format!("the step is {step}; it must be a known number other than 0"))
        })?;
        let length = match (start.as_known(), limit.as_known()) {
            (Some(s), Some(l)) => range_length(s, l, step)
                .map(Dim::known)
                .ok_or_else(|| Refused::new(format!("the range from {s} to {l} has too many elements")))?,
            _ if step > 0 => steps_within(call, &limit.sub(&start), step),
            _ => steps_within(call, &start.sub(&limit), step),
        };
        let integers = call.add(Range { dtype, start, step, length }, &[])?;
        return Ok(call.b.cast(integers, to)?.into());
    }
    float_range(call)
}

/// Returns the number of elements of a range from 0 to `distance` with step `|step|`: `ceil(distance / |step|)`, or 0
/// for a negative distance.
fn steps_within(call: &Call<'_>, distance: &Dim, step: i64) -> Dim {
    distance.positive_within(call.bounds()).ceil_div(step.saturating_abs())
}

/// Lowers Range of constant floats to `start + delta * i` for the integers `i` from 0 on.
fn float_range(call: &mut Call<'_>) -> Lowered {
    let mut ends = [0.0f64; 3];
    let mut dtype = DType::F32;
    for (i, end) in ends.iter_mut().enumerate() {
        let array = call.array(i).filter(|a| a.len() == 1);
        let array = array.ok_or_else(|| {
            Refused::new(
                "start, limit or delta is computed from data at run time; all must be known at compile time",
            )
        })?;
        dtype = array.dtype;
        *end = array.to_floats().first().copied().map_or(0.0, f64::from);
    }
    let [start, limit, step] = ends;
    let length = ((limit - start) / step).ceil();
    if !length.is_finite() {
        return Err(Refused::new(format!("the range from {start} to {limit} with step {step} is infinite")));
    }
    let indices = iota(call, DType::I64, Dim::known(0), Dim::known(length.max(0.0) as i64))?;
    let indices = call.b.cast(indices, dtype)?;
    Ok(call.b.unary(UnaryFn::Affine { scale: step as f32, shift: start as f32 }, indices)?.into())
}

fn eye_like(call: &mut Call<'_>) -> Lowered {
    let shape = call.operand_shape(0).ok_or_else(|| Refused::new("operand 0 is missing"))?;
    let [h, w] = shape.as_slice() else {
        return Err(Refused::new(format!("operand 0 has rank {}; rank 2 is needed", shape.len())));
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

/// Lowers Shape and Size. If the operand's shape is known, `shape_eval` normally evaluates the node first, and this
/// lowering is not called.
fn from_shape(call: &mut Call<'_>, f: fn(Vec<Dim>) -> SymbolicInts) -> Lowered {
    let dims = call.operand_shape(0).ok_or_else(|| Refused::new("the shape of operand 0 is not known"))?;
    Ok(f(dims).into())
}

/// Lowers NonZero of a constant to a constant: the positions of the elements that are not zero.
fn non_zero(call: &mut Call<'_>) -> Lowered {
    let array = call.array(0).filter(|a| a.len() <= FOLDED_ELEMENTS);
    let array = array.ok_or_else(|| {
        Refused::new(
            "the size of the result depends on data at run time; the operand must be known at compile time",
        )
    })?;
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

/// Maximum length of a window function (Hann, Hamming, Blackman), which is computed at compile time.
const MAX_WINDOW: i64 = 1 << 20;

/// Computes a window function `a - b cos(2 pi i / n) + c cos(4 pi i / n)`, where n is the window's length if it is
/// periodic, else the length minus 1.
fn window(call: &mut Call<'_>, [a, b, c]: [f64; 3]) -> Lowered {
    let size = call.known_scalar(0, "the size")?.ok_or_else(|| Refused::new("the size is missing"))?;
    if !(0..=MAX_WINDOW).contains(&size) {
        return Err(Refused::new(format!("the window has {size} elements; 0 to {MAX_WINDOW} are supported")));
    }
    let periodic = call.attributes.flag("periodic", true)?;
    let dtype = tensors::dtype(i32::try_from(call.attributes.int("output_datatype", 1)?).unwrap_or(-1))?;
    let angle_step = std::f64::consts::TAU / if periodic { size } else { (size - 1).max(1) } as f64;
    let value = |i: i64| {
        let angle = angle_step * i as f64;
        (a - b * libm::cos(angle) + c * libm::cos(2.0 * angle)) as f32
    };
    let values: Vec<f32> = (0..size).map(value).collect();
    let window = Array::f32(&[values.len()], values).cast(dtype);
    Ok(call.b.constant(&window)?.into())
}
