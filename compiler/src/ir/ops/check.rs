//! Checks used by shape rules and CPU references.
//!
//! Shape rules are strict for known sizes and optimistic for symbolic ones: two sizes conflict only if their difference
//! is a known number other than 0, because the symbols of a valid run make them equal.
//! Float operands may differ in precision, because passes choose how each value is stored.

use std::ops::RangeInclusive;

use crate::error::OpError;
use crate::ir::array::{Array, Data, count};
use crate::ir::dim::{Bindings, Bounds, Dim};
use crate::ir::op::Operation;
use crate::ir::tensor::{DType, TensorDesc, broadcast};

/// Checks that the number of operands lies in a range; returns the first operand.
pub(crate) fn operands<'a>(
    inputs: &[&'a TensorDesc],
    number: RangeInclusive<usize>,
) -> Result<&'a TensorDesc, OpError> {
    match inputs.first() {
        Some(first) if number.contains(&inputs.len()) => Ok(first),
        _ => {
            let (min, max) = (number.start(), number.end());
            let expected = if min == max { min.to_string() } else { format!("{min} to {max}") };
            Err(OpError::new(format!("expected {expected} operands, found {}", inputs.len())))
        }
    }
}

/// Returns the operands as an array; fails if their number is not `N`.
pub(crate) fn exact_operands<'a, const N: usize>(
    inputs: &[&'a TensorDesc],
) -> Result<[&'a TensorDesc; N], OpError> {
    inputs.try_into().map_err(|_| OpError::new(format!("expected {N} operands, found {}", inputs.len())))
}

/// Checks that an operand has an integer type, as indices must.
pub(crate) fn indices(x: &TensorDesc) -> Result<(), OpError> {
    if x.dtype.is_integer() {
        return Ok(());
    }
    Err(OpError::new(format!("indices must be integers, not {}", x.dtype.name())))
}

/// Checks that an operand has a float type.
pub(crate) fn float(x: &TensorDesc, role: &str) -> Result<(), OpError> {
    if x.dtype.is_float() {
        return Ok(());
    }
    Err(OpError::new(format!("{role} must be of a float type, not {}", x.dtype.name())))
}

/// Checks that an operand has a float or integer type.
pub(crate) fn numeric(x: &TensorDesc, role: &str) -> Result<(), OpError> {
    if x.dtype != DType::Bool {
        return Ok(());
    }
    Err(OpError::new(format!("{role} must be of a numeric type, not bool")))
}

/// Checks that all operands are floats, or that all have the same type.
pub(crate) fn same_type(inputs: &[&TensorDesc]) -> Result<(), OpError> {
    for pair in inputs.windows(2) {
        let (a, b) = (pair[0].dtype, pair[1].dtype);
        if a != b && !(a.is_float() && b.is_float()) {
            return Err(OpError::new(format!(
                "operand types {} and {} cannot be combined",
                a.name(),
                b.name()
            )));
        }
    }
    Ok(())
}

/// Returns the result type of a matmul: the operands' type, or i32 for two 8-bit integer operands of any signedness.
pub(crate) fn matmul_type(a: &TensorDesc, b: &TensorDesc) -> Result<DType, OpError> {
    let narrow = |x: &TensorDesc| matches!(x.dtype, DType::I8 | DType::U8);
    if narrow(a) && narrow(b) {
        return Ok(DType::I32);
    }
    same_type(&[a, b])?;
    Ok(a.dtype)
}

/// Returns the size of an axis; fails if the axis does not exist.
pub(crate) fn axis(x: &TensorDesc, axis: usize) -> Result<&Dim, OpError> {
    x.shape
        .get(axis)
        .ok_or_else(|| OpError::new(format!("axis {axis} is outside a tensor of rank {}", x.rank())))
}

/// Fails if two sizes cannot be equal. Otherwise returns the size that is a number, or the second size if both sizes
/// are symbolic.
pub(crate) fn equal_sizes(a: &Dim, b: &Dim, what: &str) -> Result<Dim, OpError> {
    match a.sub(b).as_known() {
        Some(0) | None => Ok(if a.as_known().is_some() { a.clone() } else { b.clone() }),
        Some(_) => Err(OpError::new(format!("{what} differ: {a} and {b}"))),
    }
}

/// Checks that an operand is a vector of the given length.
pub(crate) fn vector(x: &TensorDesc, length: &Dim, role: &str) -> Result<(), OpError> {
    match x.shape.as_slice() {
        [n] if equal_sizes(n, length, role).is_ok() => Ok(()),
        _ => Err(OpError::new(format!("{role} must have shape [{length}], not {x}"))),
    }
}

/// Checks that an operand broadcasts to a shape without enlarging the shape.
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
        equal_sizes(j, d, role).map_err(|_| refuse())?;
    }
    Ok(())
}

/// Returns the value of a size in an operator's attributes, for the values of the symbols.
pub(crate) fn eval_dim(dim: &Dim, symbols: &Bindings) -> Result<i64, OpError> {
    dim.eval(symbols).ok_or_else(|| OpError::new(format!("a symbol of the size `{dim}` has no value")))
}

/// Replaces the symbols that have values, in a list of sizes.
pub(crate) fn substitute(dims: &[Dim], symbols: &Bindings) -> Vec<Dim> {
    dims.iter().map(|d| d.substitute(symbols)).collect()
}

/// Converts an attribute to i64; fails at 2^31 and above, which no window or tensor size may reach.
pub(crate) fn checked_attribute(value: usize, what: &str) -> Result<i64, OpError> {
    match i32::try_from(value) {
        Ok(v) => Ok(v.into()),
        Err(_) => Err(OpError::new(format!("{what} {value} exceeds the limit 2^31 - 1"))),
    }
}

/// Checks that the operand arrays are complete, match the operator, and give a result of shape `out`. After this check,
/// indexing by the shapes is safe. Returns the type of the result.
pub(crate) fn check_arrays(
    op: &dyn Operation,
    inputs: &[&Array],
    out: &[usize],
) -> Result<TensorDesc, OpError> {
    for x in inputs {
        let (length, float) = match &x.data {
            Data::Float(v) => (v.len(), true),
            Data::Int(v) => (v.len(), false),
        };
        if length != count(&x.shape) || float != x.dtype.is_float() {
            return Err(OpError::new(format!(
                "{length} elements do not fill a tensor of {} of shape {:?}",
                x.dtype.name(),
                x.shape
            )));
        }
    }
    let descs: Vec<TensorDesc> = inputs.iter().map(|x| TensorDesc::from_sizes(x.dtype, &x.shape)).collect();
    let result = op.infer(&descs.iter().collect::<Vec<_>>())?;
    if result.known_shape().as_deref() != Some(out) {
        return Err(OpError::new(format!("the operands give {result}, but the expected shape is {out:?}")));
    }
    result.check(&Bounds::new())?;
    Ok(result)
}

/// Runs an operator's CPU reference `compute` after [`check_arrays`], so `compute` may index by the shapes. `compute`
/// is not called for an empty result.
pub(crate) fn evaluate(
    op: &dyn Operation,
    inputs: &[&Array],
    out: &[usize],
    compute: impl FnOnce() -> Result<Data, OpError>,
) -> Result<Array, OpError> {
    let result = check_arrays(op, inputs, out)?;
    if count(out) == 0 {
        return Ok(Array::zeros(result.dtype, out));
    }
    Ok(match compute()? {
        Data::Float(values) => Array::float(result.dtype, out, values),
        Data::Int(values) => Array::int(result.dtype, out, values),
    })
}

/// Infers the shape of an operator's result for the values of the symbols, then runs its CPU reference; for tests.
#[cfg(test)]
pub(crate) fn run(op: &dyn Operation, inputs: &[&Array], symbols: &Bindings) -> Result<Array, OpError> {
    let descs: Vec<TensorDesc> = inputs.iter().map(|x| TensorDesc::from_sizes(x.dtype, &x.shape)).collect();
    let result = op.infer(&descs.iter().collect::<Vec<_>>())?;
    let sizes: Result<Vec<i64>, OpError> = result.shape.iter().map(|d| eval_dim(d, symbols)).collect();
    let out: Vec<usize> = sizes?.into_iter().map(|d| usize::try_from(d).unwrap_or(0)).collect();
    let value = op.eval(inputs, &out, symbols)?;
    assert_eq!((value.dtype, &value.shape), (result.dtype, &out));
    Ok(value)
}
