//! Checks that shape rules and references share.
//!
//! Shape rules are strict where sizes are known and hopeful where they are not: two sizes conflict only when
//! their difference is a number other than zero, since the symbols of a valid run make them equal.
//! Float operands may differ in precision, because passes choose how each value is stored.

use std::ops::RangeInclusive;

use crate::error::OpError;
use crate::ir::array::{Array, Data, count};
use crate::ir::dim::{Bindings, Bounds, Dim};
use crate::ir::op::Operation;
use crate::ir::tensor::{DType, TensorDesc, broadcast};

/// Fails unless the number of operands lies in a range; returns the first one.
pub(crate) fn operands<'a>(
    inputs: &[&'a TensorDesc],
    number: RangeInclusive<usize>,
) -> Result<&'a TensorDesc, OpError> {
    match inputs.first() {
        Some(first) if number.contains(&inputs.len()) => Ok(first),
        _ => {
            let (least, most) = (number.start(), number.end());
            let wanted = if least == most { least.to_string() } else { format!("{least} to {most}") };
            Err(OpError::new(format!("{wanted} operands are needed, not {}", inputs.len())))
        }
    }
}

/// The operands as an array of the number that an operator takes.
pub(crate) fn exactly<'a, const N: usize>(inputs: &[&'a TensorDesc]) -> Result<[&'a TensorDesc; N], OpError> {
    inputs.try_into().map_err(|_| OpError::new(format!("{N} operands are needed, not {}", inputs.len())))
}

/// Fails unless an operand can hold indices.
pub(crate) fn indices(x: &TensorDesc) -> Result<(), OpError> {
    if x.dtype.is_integer() {
        return Ok(());
    }
    Err(OpError::new(format!("indices must be integers, not {}", x.dtype.name())))
}

/// Fails unless an operand is of a float type.
pub(crate) fn float(x: &TensorDesc, role: &str) -> Result<(), OpError> {
    if x.dtype.is_float() {
        return Ok(());
    }
    Err(OpError::new(format!("{role} must be of a float type, not {}", x.dtype.name())))
}

/// Fails unless an operand is of a float or integer type.
pub(crate) fn numeric(x: &TensorDesc, role: &str) -> Result<(), OpError> {
    if x.dtype != DType::Bool {
        return Ok(());
    }
    Err(OpError::new(format!("{role} must be of a numeric type, not bool")))
}

/// Fails unless all operands are floats, or all are of one integer type.
pub(crate) fn same_type(inputs: &[&TensorDesc]) -> Result<(), OpError> {
    for pair in inputs.windows(2) {
        let (a, b) = (pair[0].dtype, pair[1].dtype);
        if a != b && !(a.is_float() && b.is_float()) {
            return Err(OpError::new(format!(
                "operand types {} and {} do not go together",
                a.name(),
                b.name()
            )));
        }
    }
    Ok(())
}

/// The type of the sums of products of two operands: theirs, or i32 where both are 8-bit integers of either sign.
pub(crate) fn product_type(a: &TensorDesc, b: &TensorDesc) -> Result<DType, OpError> {
    let narrow = |x: &TensorDesc| matches!(x.dtype, DType::I8 | DType::U8);
    if narrow(a) && narrow(b) {
        return Ok(DType::I32);
    }
    same_type(&[a, b])?;
    Ok(a.dtype)
}

/// Fails unless a tensor has an axis.
pub(crate) fn axis(x: &TensorDesc, axis: usize) -> Result<&Dim, OpError> {
    x.shape
        .get(axis)
        .ok_or_else(|| OpError::new(format!("axis {axis} is outside a tensor of rank {}", x.rank())))
}

/// Fails when two sizes cannot be equal; otherwise returns the better known one.
pub(crate) fn equal(a: &Dim, b: &Dim, what: &str) -> Result<Dim, OpError> {
    match a.sub(b).as_known() {
        Some(0) | None => Ok(if a.as_known().is_some() { a.clone() } else { b.clone() }),
        Some(_) => Err(OpError::new(format!("{what} differ: {a} and {b}"))),
    }
}

/// Fails unless an operand is a vector of the given length.
pub(crate) fn vector(x: &TensorDesc, length: &Dim, role: &str) -> Result<(), OpError> {
    match x.shape.as_slice() {
        [n] if equal(n, length, role).is_ok() => Ok(()),
        _ => Err(OpError::new(format!("{role} must have shape [{length}], not {x}"))),
    }
}

/// Fails unless an operand broadcasts to a shape without enlarging it.
pub(crate) fn broadcasts_to(x: &TensorDesc, shape: &[Dim], role: &str) -> Result<(), OpError> {
    let refuse = || {
        let dims: Vec<String> = shape.iter().map(Dim::to_string).collect();
        OpError::new(format!("{role} {x} does not broadcast to [{}]", dims.join(", ")))
    };
    if x.rank() > shape.len() {
        return Err(refuse());
    }
    let joined = broadcast(&[shape, &x.shape]).map_err(|_| refuse())?;
    for (j, d) in joined.iter().zip(shape) {
        equal(j, d, role).map_err(|_| refuse())?;
    }
    Ok(())
}

/// The value of a size that an operator carries.
pub(crate) fn bound(dim: &Dim, symbols: &Bindings) -> Result<i64, OpError> {
    dim.eval(symbols).ok_or_else(|| OpError::new(format!("a symbol of the size {dim} has no value")))
}

/// The sizes with all symbols that have a value replaced.
pub(crate) fn substitute(dims: &[Dim], symbols: &Bindings) -> Vec<Dim> {
    dims.iter().map(|d| d.substitute(symbols)).collect()
}

/// An attribute as a signed number; nothing that sizes a window or a tensor may reach 2^31.
pub(crate) fn small(value: usize, what: &str) -> Result<i64, OpError> {
    match i32::try_from(value) {
        Ok(v) => Ok(v.into()),
        Err(_) => Err(OpError::new(format!("{what} {value} is too large"))),
    }
}

/// Fails unless the operands are complete, fit the operator and give a result of shape `out`; indexing by the
/// shapes is safe afterwards. Returns what the result looks like.
pub(crate) fn concrete(op: &dyn Operation, inputs: &[&Array], out: &[usize]) -> Result<TensorDesc, OpError> {
    for x in inputs {
        let (length, float) = match &x.data {
            Data::Float(v) => (v.len(), true),
            Data::Int(v) => (v.len(), false),
        };
        if length != count(&x.shape) || float != x.dtype.is_float() {
            return Err(OpError::new(format!(
                "{length} elements do not make {} of shape {:?}",
                x.dtype.name(),
                x.shape
            )));
        }
    }
    let descs: Vec<TensorDesc> = inputs.iter().map(|x| TensorDesc::of(x.dtype, &x.shape)).collect();
    let result = op.infer(&descs.iter().collect::<Vec<_>>())?;
    if result.known_shape().as_deref() != Some(out) {
        return Err(OpError::new(format!("the operands give {result}, but shape {out:?} was asked for")));
    }
    result.check(&Bounds::new())?;
    Ok(result)
}

/// Runs a reference: checks that the operands are complete, fit the operator and give a result of shape `out`,
/// so that `compute` may index by the shapes. It is not called for a result without elements.
pub(crate) fn evaluate(
    op: &dyn Operation,
    inputs: &[&Array],
    out: &[usize],
    compute: impl FnOnce() -> Result<Data, OpError>,
) -> Result<Array, OpError> {
    let result = concrete(op, inputs, out)?;
    if count(out) == 0 {
        return Ok(Array::zeros(result.dtype, out));
    }
    Ok(match compute()? {
        Data::Float(values) => Array::float(result.dtype, out, values),
        Data::Int(values) => Array::int(result.dtype, out, values),
    })
}

/// Infers the result's shape under the symbols' values, then runs the reference: what tests of operators need.
#[cfg(test)]
pub(crate) fn run(op: &dyn Operation, inputs: &[&Array], symbols: &Bindings) -> Result<Array, OpError> {
    let descs: Vec<TensorDesc> = inputs.iter().map(|x| TensorDesc::of(x.dtype, &x.shape)).collect();
    let result = op.infer(&descs.iter().collect::<Vec<_>>())?;
    let sizes: Result<Vec<i64>, OpError> = result.shape.iter().map(|d| bound(d, symbols)).collect();
    let out: Vec<usize> = sizes?.into_iter().map(|d| usize::try_from(d).unwrap_or(0)).collect();
    let value = op.eval(inputs, &out, symbols)?;
    assert_eq!((value.dtype, &value.shape), (result.dtype, &out));
    Ok(value)
}
