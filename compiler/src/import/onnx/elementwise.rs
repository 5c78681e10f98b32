//! Elementwise operators: arithmetic, comparisons, logic, casts.

use super::lowering::{Call, Lowered, OpEntry, op};
use super::refused::Refused;
use super::schema::tensor_proto::DataType;
use super::tensors;
use crate::ir::dim::{Dim, product};
use crate::ir::element::{BinaryFn, UnaryFn};
use crate::ir::graph::NodeId;
use crate::ir::tensor::{DType, normalize_axis};

pub(super) const OPS: &[OpEntry] = &[
    op("Abs", 1, |c| unary(c, UnaryFn::Abs)),
    op("Neg", 1, |c| unary(c, UnaryFn::Neg)),
    op("Exp", 1, |c| unary(c, UnaryFn::Exp)),
    op("Log", 1, |c| unary(c, UnaryFn::Log)),
    op("Sqrt", 1, |c| unary(c, UnaryFn::Sqrt)),
    op("Reciprocal", 1, |c| unary(c, UnaryFn::Reciprocal)),
    op("Sin", 7, |c| unary(c, UnaryFn::Sin)),
    op("Cos", 7, |c| unary(c, UnaryFn::Cos)),
    op("Tan", 7, |c| unary(c, UnaryFn::Tan)),
    op("Asin", 7, |c| unary(c, UnaryFn::Asin)),
    op("Acos", 7, |c| unary(c, UnaryFn::Acos)),
    op("Atan", 7, |c| unary(c, UnaryFn::Atan)),
    op("Sinh", 9, |c| unary(c, UnaryFn::Sinh)),
    op("Cosh", 9, |c| unary(c, UnaryFn::Cosh)),
    op("Tanh", 1, |c| unary(c, UnaryFn::Tanh)),
    op("Asinh", 9, |c| unary(c, UnaryFn::Asinh)),
    op("Acosh", 9, |c| unary(c, UnaryFn::Acosh)),
    op("Atanh", 9, |c| unary(c, UnaryFn::Atanh)),
    op("Erf", 9, |c| unary(c, UnaryFn::Erf)),
    op("Floor", 1, |c| unary(c, UnaryFn::Floor)),
    op("Ceil", 1, |c| unary(c, UnaryFn::Ceil)),
    op("Round", 11, |c| unary(c, UnaryFn::Round)),
    op("Sign", 9, |c| unary(c, UnaryFn::Sign)),
    op("Not", 1, |c| unary(c, UnaryFn::Not)),
    op("BitwiseNot", 18, |c| unary(c, UnaryFn::BitNot)),
    op("IsNaN", 9, |c| unary(c, UnaryFn::IsNan)),
    op("IsInf", 10, is_inf),
    op("Add", 1, |c| binary(c, BinaryFn::Add)),
    op("Sub", 1, |c| binary(c, BinaryFn::Sub)),
    op("Mul", 1, |c| binary(c, BinaryFn::Mul)),
    op("Div", 1, |c| binary(c, BinaryFn::Div)),
    op("Pow", 1, pow),
    op("Mod", 10, modulo),
    op("PRelu", 1, p_relu),
    op("And", 1, |c| binary(c, BinaryFn::And)),
    op("Or", 1, |c| binary(c, BinaryFn::Or)),
    op("Xor", 1, |c| binary(c, BinaryFn::Xor)),
    op("BitwiseAnd", 18, |c| binary(c, BinaryFn::BitAnd)),
    op("BitwiseOr", 18, |c| binary(c, BinaryFn::BitOr)),
    op("BitwiseXor", 18, |c| binary(c, BinaryFn::BitXor)),
    op("BitShift", 11, bit_shift),
    op("Equal", 1, |c| binary(c, BinaryFn::Equal)),
    op("Less", 1, |c| binary(c, BinaryFn::Less)),
    op("LessOrEqual", 12, |c| binary(c, BinaryFn::LessEqual)),
    op("Greater", 1, |c| binary(c, BinaryFn::Greater)),
    op("GreaterOrEqual", 12, |c| binary(c, BinaryFn::GreaterEqual)),
    op("Sum", 1, |c| variadic(c, BinaryFn::Add)),
    op("Max", 1, |c| variadic(c, BinaryFn::Max)),
    op("Min", 1, |c| variadic(c, BinaryFn::Min)),
    op("Mean", 1, mean),
    op("Where", 9, select),
    op("Clip", 1, clip),
    op("Cast", 1, cast),
    op("CastLike", 15, cast_like),
];

/// Attributes of casts that only concern conversions to floats of at most 8 bits.
pub(super) const CAST_TO_NARROW_FLOATS: &[&str] = &["saturate", "round_mode"];

fn unary(call: &mut Call<'_>, f: UnaryFn) -> Lowered {
    let x = call.node(0)?;
    Ok(call.b.unary(f, x)?.into())
}

fn binary(call: &mut Call<'_>, f: BinaryFn) -> Lowered {
    let (a, b) = (call.node(0)?, call.node(1)?);
    let b = aligned(call, a, b)?;
    Ok(typed_binary(call, f, a, b)?.into())
}

/// Reshapes the second operand so that it broadcasts to the first one. Before opset 7, the attribute `axis` is the axis
/// of the first operand that matches the first axis of the second operand.
fn aligned(call: &mut Call<'_>, a: NodeId, b: NodeId) -> Lowered<NodeId> {
    if call.opset >= 7 {
        return Ok(b);
    }
    call.attributes.ignore(&["broadcast"]);
    let Some(axis) = call.attributes.int_opt("axis")? else { return Ok(b) };
    let (rank, mut shape) = (call.rank(a), call.shape(b));
    let after = rank.checked_sub(normalize_axis(axis, rank)? + shape.len()).ok_or_else(|| {
        Refused::new(format!(
            "attribute `axis` is {axis}, but operand 1 has rank {}, more axes than operand 0 has from that axis on",
            shape.len()
        ))
    })?;
    shape.extend(vec![Dim::known(1); after]);
    Ok(call.b.reshape(b, shape)?)
}

/// Lowers PRelu. Before opset 7 a vector of slopes lies along the channels.
fn p_relu(call: &mut Call<'_>) -> Lowered {
    let (x, mut slope) = (call.node(0)?, call.node(1)?);
    let (rank, mut shape) = (call.rank(x), call.shape(slope));
    if call.opset < 7 && shape.len() == 1 && rank > 2 {
        shape.extend(vec![Dim::known(1); rank - 2]);
        slope = call.b.reshape(slope, shape)?;
    }
    Ok(typed_binary(call, BinaryFn::PRelu, x, slope)?.into())
}

/// Adds an element function of two operands to the graph. The operands must have the same type.
pub(super) fn typed_binary(call: &mut Call<'_>, f: BinaryFn, a: NodeId, b: NodeId) -> Lowered<NodeId> {
    let (left, right) = (call.dtype(a), call.dtype(b));
    if left != right {
        return Err(Refused::new(format!(
            "the operands have different types, {} and {}; insert a Cast",
            left.name(),
            right.name()
        )));
    }
    Ok(call.b.binary(f, a, b)?)
}

fn variadic(call: &mut Call<'_>, f: BinaryFn) -> Lowered {
    Ok(fold_operands(call, f)?.into())
}

fn fold_operands(call: &mut Call<'_>, f: BinaryFn) -> Lowered<NodeId> {
    let operands = call.nodes()?;
    let (first, rest) = operands.split_first().ok_or_else(|| Refused::new("the node has no operand"))?;
    let mut result = *first;
    for x in rest {
        result = typed_binary(call, f, result, *x)?;
    }
    Ok(result)
}

fn mean(call: &mut Call<'_>) -> Lowered {
    let sum = fold_operands(call, BinaryFn::Add)?;
    let scale = 1.0 / call.operand_count() as f32;
    Ok(call.b.unary(UnaryFn::Affine { scale, shift: 0.0 }, sum)?.into())
}

fn is_inf(call: &mut Call<'_>) -> Lowered {
    let negative = call.attributes.flag("detect_negative", true)?;
    let positive = call.attributes.flag("detect_positive", true)?;
    unary(call, UnaryFn::IsInf { negative, positive })
}

/// Lowers Pow. The exponent may have another type. An integer base with a float exponent is computed in floats.
fn pow(call: &mut Call<'_>) -> Lowered {
    let (mut base, mut exponent) = (call.node(0)?, call.node(1)?);
    exponent = aligned(call, base, exponent)?;
    let (to, power) = (call.dtype(base), call.dtype(exponent));
    if to.is_float() {
        exponent = call.b.cast(exponent, to)?;
    } else if power.is_float() {
        base = call.b.cast(base, power)?;
    } else {
        exponent = call.b.cast(exponent, to)?;
    }
    let result = call.b.binary(BinaryFn::Pow, base, exponent)?;
    Ok(call.b.cast(result, to)?.into())
}

fn modulo(call: &mut Call<'_>) -> Lowered {
    let f = if call.attributes.flag("fmod", false)? { BinaryFn::Fmod } else { BinaryFn::Mod };
    binary(call, f)
}

fn bit_shift(call: &mut Call<'_>) -> Lowered {
    let f = match call.attributes.text("direction", "")? {
        "LEFT" => BinaryFn::ShiftLeft,
        "RIGHT" => BinaryFn::ShiftRight,
        other => return Err(Refused::attribute("direction", other, "`LEFT`, `RIGHT`")),
    };
    binary(call, f)
}

fn select(call: &mut Call<'_>) -> Lowered {
    let (condition, a, b) = (call.node(0)?, call.node(1)?, call.node(2)?);
    if call.dtype(condition) != DType::Bool {
        return Err(Refused::new("operand 0, the condition, does not have type bool"));
    }
    if call.dtype(a) != call.dtype(b) {
        return Err(Refused::new("operands 1 and 2 have different types; insert a Cast"));
    }
    Ok(call.b.select(condition, a, b)?.into())
}

fn clip(call: &mut Call<'_>) -> Lowered {
    let x = call.node(0)?;
    if call.opset < 11 {
        let low = call.attributes.float("min", f32::NEG_INFINITY)?;
        let high = call.attributes.float("max", f32::INFINITY)?;
        return Ok(call.b.unary(UnaryFn::Clip { low, high }, x)?.into());
    }
    for i in [1, 2] {
        if let Some(bound) = call.optional(i)?
            && !product(&call.shape(bound)).is(1)
        {
            return Err(Refused::new(format!(
                "operand {i}, a bound, must have one element, but is {}",
                call.tensor(bound)
            )));
        }
    }
    let bound = |c: &Call<'_>, i: usize, none: f32| {
        if c.has(i) { c.array(i).and_then(|a| a.to_floats().first().copied()) } else { Some(none) }
    };
    let low = bound(call, 1, f32::NEG_INFINITY);
    let high = bound(call, 2, f32::INFINITY);
    if call.dtype(x).is_float()
        && let (Some(low), Some(high)) = (low, high)
    {
        if low == f32::NEG_INFINITY && high == f32::INFINITY {
            return Ok(x.into());
        }
        return Ok(call.b.unary(UnaryFn::Clip { low, high }, x)?.into());
    }
    let mut result = x;
    if let Some(low) = call.optional(1)? {
        result = typed_binary(call, BinaryFn::Max, result, low)?;
    }
    if let Some(high) = call.optional(2)? {
        result = typed_binary(call, BinaryFn::Min, result, high)?;
    }
    Ok(result.into())
}

fn cast(call: &mut Call<'_>) -> Lowered {
    call.attributes.ignore(CAST_TO_NARROW_FLOATS);
    let x = call.node(0)?;
    let to = if call.opset < 6 {
        let name = call.attributes.text("to", "")?;
        DataType::from_str_name(name).map(|t| t as i32).ok_or_else(|| {
            Refused::new(format!("attribute `to` is `{name}`, which is not an element type of ONNX"))
        })?
    } else {
        let to = call.attributes.int_opt("to")?.ok_or_else(|| Refused::new("attribute `to` is missing"))?;
        i32::try_from(to).unwrap_or(-1)
    };
    let to = tensors::dtype(to)?;
    Ok(call.b.cast(x, to)?.into())
}

fn cast_like(call: &mut Call<'_>) -> Lowered {
    call.attributes.ignore(CAST_TO_NARROW_FLOATS);
    let (x, like) = (call.node(0)?, call.node(1)?);
    let to = call.dtype(like);
    Ok(call.b.cast(x, to)?.into())
}
