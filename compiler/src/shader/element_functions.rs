//! WGSL expressions for elementwise functions of scalars or vec4s.
//!
//! Elementwise operators that follow a kernel are fused into the kernel's store hook, as in ML Drift. Floats are
//! computed in f32, whatever their type in memory.

use super::value_type::ValueType;
use crate::error::OpError;
use crate::ir::element::{BinaryFn, Element, UnaryFn};
use crate::ir::tensor::DType;

/// Returns the WGSL expression of an elementwise function, the type of its value, and true if it uses functions of
/// `lib/elementary.wgsl`. `half` states that the value ends as an f16, so that f16 precision suffices.
///
/// # Errors
/// If the function is not defined on the operands' type.
pub fn element_expression(
    element: Element,
    operands: &[(String, ValueType)],
    lanes: u32,
    half: bool,
) -> Result<(String, ValueType, bool), OpError> {
    let get = |i: usize| operands.get(i).cloned().ok_or_else(|| OpError::new("a missing epilogue operand"));
    match element {
        Element::Unary(UnaryFn::Gelu) if half => {
            let (x, value_type) = get(0)?;
            if value_type != ValueType::Float {
                return Err(OpError::new("Gelu is defined on floats only"));
            }
            Ok((format!("gelu_half({x})"), value_type, true))
        }
        Element::Unary(f) => {
            let (x, value_type) = get(0)?;
            unary(f, &x, value_type, lanes)
        }
        Element::Binary(f) => {
            let ((a, value_type), (b, right)) = (get(0)?, get(1)?);
            binary(f, &a, &b, value_type, right, lanes)
        }
        Element::Select => {
            let ((c, condition), (a, value_type), (b, _)) = (get(0)?, get(1)?, get(2)?);
            if condition != ValueType::Bool {
                return Err(OpError::new("select needs a bool condition"));
            }
            Ok((format!("select({b}, {a}, {c})"), value_type, false))
        }
        Element::Cast(to) => {
            let (x, value_type) = get(0)?;
            Ok((cast(&x, value_type, to, lanes), ValueType::from_dtype(to), false))
        }
    }
}

/// Returns the WGSL of a cast with the semantics of ONNX: floats truncate toward zero, narrow integers wrap.
fn cast(x: &str, from: ValueType, to: DType, lanes: u32) -> String {
    let value_type = ValueType::from_dtype(to);
    let ty = value_type.wgsl(lanes);
    match (value_type, from) {
        (ValueType::Bool, ValueType::Bool) => x.to_string(),
        (ValueType::Bool, _) => format!("({x} != {})", from.zero(lanes)),
        (ValueType::Float, _) => match to {
            DType::F16 => round_half(&format!("{ty}({x})"), &ty, lanes),
            _ => format!("{ty}({x})"),
        },
        (ValueType::Int | ValueType::Uint, _) => {
            // The cast goes through i32, so that negative floats and integers wrap as in ONNX's reference.
            let signed = ValueType::Int.wgsl(lanes);
            let wide = match from {
                ValueType::Float
                    if value_type == ValueType::Uint && matches!(to, DType::U32 | DType::U64) =>
                {
                    format!("{ty}({x})")
                }
                ValueType::Uint => x.to_string(),
                _ => format!("{signed}({x})"),
            };
            narrow(&format!("{ty}({wide})"), to, lanes)
        }
    }
}

/// Returns WGSL that wraps a 32-bit integer to the width of element type `dtype`. Values of other types are unchanged.
pub fn narrow(x: &str, dtype: DType, lanes: u32) -> String {
    let bits = u32::try_from(dtype.bytes() * 8).unwrap_or(32);
    if !dtype.is_integer() || bits >= 32 {
        return x.to_string();
    }
    let shift = splat("u32", &format!("{}u", 32 - bits), lanes);
    format!("(({x} << {shift}) >> {shift})")
}

/// Returns WGSL that rounds a float to f16 precision without f16 arithmetic. Values that are too large for f16 become infinite.
fn round_half(x: &str, ty: &str, lanes: u32) -> String {
    let kept = clamp_half(x, lanes);
    let half = if lanes == 1 {
        format!("{ty}(unpack2x16float(pack2x16float(vec2<f32>({kept}, 0.0))).x)")
    } else {
        format!(
            "vec4<f32>(unpack2x16float(pack2x16float(({kept}).xy)), unpack2x16float(pack2x16float(({kept}).zw)))"
        )
    };
    // 0x477ff000 is 65520, the midpoint between the largest finite f16 and the next step. 0x7f800000 is infinity; the
    // bits of NaNs are larger.
    let bits = |value: &str| splat("u32", value, lanes);
    let (overflow, infinity) = (bits("0x477ff000u"), bits("0x7f800000u"));
    let sign = format!("(bitcast<{}>({x}) & {})", ValueType::Uint.wgsl(lanes), bits("0x80000000u"));
    let magnitude = magnitude_bits(x, lanes);
    let beyond = format!("bitcast<{ty}>({sign} | max({magnitude}, {infinity}))");
    format!("select({half}, {beyond}, {magnitude} >= {overflow})")
}

/// Returns WGSL that clamps a float to the range of finite f16 numbers.
fn clamp_half(x: &str, lanes: u32) -> String {
    format!("clamp({x}, {}, {})", splat("f32", "-65504.0", lanes), splat("f32", "65504.0", lanes))
}

fn magnitude_bits(x: &str, lanes: u32) -> String {
    format!("(bitcast<{}>({x}) & {})", ValueType::Uint.wgsl(lanes), splat("u32", "0x7fffffffu", lanes))
}

/// Returns WGSL that clamps finite floats to the range of f16. Infinities and NaNs are unchanged.
pub fn clamp_to_f16(x: &str, lanes: u32) -> String {
    let finite = format!("{} < {}", magnitude_bits(x, lanes), splat("u32", "0x7f800000u", lanes));
    format!("select({x}, {}, {finite})", clamp_half(x, lanes))
}

fn splat(scalar: &str, value: &str, lanes: u32) -> String {
    if lanes == 1 { format!("{scalar}({value})") } else { format!("vec4<{scalar}>({value})") }
}

/// Returns a WGSL float literal: a scalar, or a vec4 of equal components if `lanes` is 4.
fn number(value: f32, lanes: u32) -> String {
    // WGSL has no literal for infinity and NaN, so their bits are written instead.
    let text = if value.is_finite() {
        format!("{value:?}")
    } else {
        return if lanes == 1 {
            format!("bitcast<f32>({}u)", value.to_bits())
        } else {
            format!("bitcast<vec4<f32>>(vec4<u32>({}u))", value.to_bits())
        };
    };
    splat("f32", &text, lanes)
}

/// Returns the WGSL of a unary function of integers or booleans.
fn unary_of_integers(f: UnaryFn, x: &str, value_type: ValueType, lanes: u32) -> Result<String, OpError> {
    use UnaryFn as F;
    Ok(match (f, value_type) {
        (F::Not, ValueType::Bool) => format!("!({x})"),
        (F::BitNot, ValueType::Int | ValueType::Uint) => format!("~({x})"),
        (F::Abs, ValueType::Int) => format!("abs({x})"),
        (F::Abs, ValueType::Uint) | (F::Floor | F::Ceil | F::Round, ValueType::Int | ValueType::Uint) => {
            x.to_string()
        }
        (F::Neg, ValueType::Int) => format!("-({x})"),
        (F::Neg, ValueType::Uint) => format!("({} - {x})", value_type.zero(lanes)),
        (F::Sign, ValueType::Int) => format!("sign({x})"),
        (F::Sign, ValueType::Uint) => format!("min({x}, {})", splat("u32", "1u", lanes)),
        (F::Relu, ValueType::Int | ValueType::Uint) => format!("max({x}, {})", value_type.zero(lanes)),
        (F::Clip { low, high }, ValueType::Int | ValueType::Uint) => {
            let bound = |v: f32| {
                if value_type == ValueType::Int {
                    splat("i32", &format!("{}", (v as i32)), lanes)
                } else {
                    splat("u32", &format!("{}u", v as u32), lanes)
                }
            };
            format!("min(max({x}, {}), {})", bound(low), bound(high))
        }
        (F::Affine { scale, shift }, ValueType::Int | ValueType::Uint) => {
            let ty = value_type.wgsl(lanes);
            format!("({x} * {ty}({}) + {ty}({}))", scale as i64, shift as i64)
        }
        _ => return Err(OpError::new(format!("{f:?} is not defined on {}", value_type.scalar()))),
    })
}

fn unary(
    f: UnaryFn,
    x: &str,
    value_type: ValueType,
    lanes: u32,
) -> Result<(String, ValueType, bool), OpError> {
    match value_type {
        ValueType::Float => unary_of_floats(f, x, lanes),
        ValueType::Int | ValueType::Uint | ValueType::Bool => {
            Ok((unary_of_integers(f, x, value_type, lanes)?, value_type, false))
        }
    }
}

fn unary_of_floats(f: UnaryFn, x: &str, lanes: u32) -> Result<(String, ValueType, bool), OpError> {
    use UnaryFn as F;
    let n = |v: f32| number(v, lanes);
    let builtin = |name: &str| (format!("{name}({x})"), false);
    let simple = |text: String| (text, false);
    let library = |text: String| (text, true);
    let (text, elementary) = match f {
        F::Abs => builtin("abs"),
        F::Neg => simple(format!("-({x})")),
        F::Exp => builtin("exp"),
        F::Log => builtin("log"),
        F::Sqrt => builtin("sqrt"),
        F::Rsqrt => builtin("inverseSqrt"),
        F::Reciprocal => simple(format!("({} / {x})", n(1.0))),
        F::Sin => builtin("sin"),
        F::Cos => builtin("cos"),
        F::Tan => builtin("tan"),
        F::Asin => builtin("asin"),
        F::Acos => builtin("acos"),
        F::Atan => builtin("atan"),
        F::Sinh => builtin("sinh"),
        F::Cosh => builtin("cosh"),
        F::Tanh => library(format!("tanh_safe({x})")),
        F::Asinh => builtin("asinh"),
        F::Acosh => builtin("acosh"),
        F::Atanh => builtin("atanh"),
        F::Erf => library(format!("erf({x})")),
        F::Floor => builtin("floor"),
        F::Ceil => builtin("ceil"),
        F::Round => builtin("round"),
        F::Sign => builtin("sign"),
        F::Relu => simple(format!("max({x}, {})", n(0.0))),
        F::LeakyRelu { alpha } => simple(format!("select({x}, {x} * {}, {x} < {})", n(alpha), n(0.0))),
        F::Elu { alpha } => simple(elu(x, alpha, lanes)),
        F::Selu { alpha, gamma } => simple(selu(x, alpha, gamma, lanes)),
        F::Celu { alpha } => simple(celu(x, alpha, lanes)),
        F::Sigmoid => library(format!("sigmoid({x})")),
        F::HardSigmoid { alpha, beta } => simple(hard_sigmoid(x, alpha, beta, lanes)),
        F::HardSwish => simple(format!("({x} * {})", hard_sigmoid(x, 1.0 / 6.0, 0.5, lanes))),
        F::Swish { alpha } => library(format!("({x} * sigmoid({x} * {}))", n(alpha))),
        F::Gelu => library(gelu(x, lanes)),
        F::GeluTanh => library(gelu_tanh(x, lanes)),
        F::Softplus => library(format!("softplus({x})")),
        F::Softsign => simple(format!("({x} / ({} + abs({x})))", n(1.0))),
        F::Mish => library(format!("({x} * tanh_safe(softplus({x})))")),
        F::ThresholdedRelu { alpha } => simple(format!("select({}, {x}, {x} > {})", n(0.0), n(alpha))),
        F::Shrink { bias, lambd } => simple(shrink(x, bias, lambd, lanes)),
        F::Clip { low, high } => simple(clip(x, low, high, lanes)),
        F::Affine { scale, shift } => simple(format!("({x} * {} + {})", n(scale), n(shift))),
        F::Quantize { scale, zero_point, low, high } => {
            let scaled = if scale == 1.0 { x.to_string() } else { format!("{x} / {}", n(scale)) };
            let rounded = format!("(round({scaled}) + {})", n(zero_point));
            simple(format!("clamp({rounded}, {}, {})", n(low), n(high)))
        }
        F::Dequantize { scale, zero_point } => simple(format!("(({x} - {}) * {})", n(zero_point), n(scale))),
        F::IsNan => return Ok((format!("is_nan({x})"), ValueType::Bool, true)),
        F::IsInf { negative, positive } => {
            return Ok((is_inf(x, negative, positive, lanes), ValueType::Bool, true));
        }
        F::Not | F::BitNot => return Err(OpError::new(format!("{f:?} is not defined on floats"))),
    };
    Ok((text, ValueType::Float, elementary))
}

fn elu(x: &str, alpha: f32, lanes: u32) -> String {
    let n = |v: f32| number(v, lanes);
    format!("select({x}, {} * (exp({x}) - {}), {x} < {})", n(alpha), n(1.0), n(0.0))
}

fn selu(x: &str, alpha: f32, gamma: f32, lanes: u32) -> String {
    let n = |v: f32| number(v, lanes);
    let (gamma, alpha, one, zero) = (n(gamma), n(alpha), n(1.0), n(0.0));
    format!("({gamma} * select({x}, {alpha} * (exp({x}) - {one}), {x} <= {zero}))")
}

fn celu(x: &str, alpha: f32, lanes: u32) -> String {
    let n = |v: f32| number(v, lanes);
    let (alpha, one, zero) = (n(alpha), n(1.0), n(0.0));
    format!("(max({x}, {zero}) + min({zero}, {alpha} * (exp({x} / {alpha}) - {one})))")
}

fn hard_sigmoid(x: &str, alpha: f32, beta: f32, lanes: u32) -> String {
    let n = |v: f32| number(v, lanes);
    format!("clamp({x} * {} + {}, {}, {})", n(alpha), n(beta), n(0.0), n(1.0))
}

fn gelu(x: &str, lanes: u32) -> String {
    let n = |v: f32| number(v, lanes);
    format!("({} * {x} * ({} + erf({x} * {})))", n(0.5), n(1.0), n(std::f32::consts::FRAC_1_SQRT_2))
}

fn gelu_tanh(x: &str, lanes: u32) -> String {
    let n = |v: f32| number(v, lanes);
    // 0.5 (1 + tanh z) = sigmoid(2 z), which takes fewer instructions.
    let (scale, cubic) = (n(1.595_769_2), n(0.044_715));
    format!("({x} * sigmoid({scale} * ({x} + {cubic} * {x} * {x} * {x})))")
}

fn shrink(x: &str, bias: f32, lambd: f32, lanes: u32) -> String {
    let (zero, bias, lambd) = (number(0.0, lanes), number(bias, lanes), number(lambd, lanes));
    format!("select(select({zero}, {x} - {bias}, {x} > {lambd}), {x} + {bias}, {x} < -{lambd})")
}

fn clip(x: &str, low: f32, high: f32, lanes: u32) -> String {
    let mut text = x.to_string();
    if low > f32::NEG_INFINITY {
        text = format!("max({text}, {})", number(low, lanes));
    }
    if high < f32::INFINITY {
        text = format!("min({text}, {})", number(high, lanes));
    }
    text
}

/// Returns WGSL that tests if a float is an infinity of one of the given signs.
fn is_inf(x: &str, negative: bool, positive: bool, lanes: u32) -> String {
    let zero = number(0.0, lanes);
    let sign = match (negative, positive) {
        (true, true) => String::new(),
        (true, false) => format!(" & ({x} < {zero})"),
        (false, true) => format!(" & ({x} > {zero})"),
        (false, false) => format!(" & ({x} != {x})"),
    };
    format!("(is_inf({x}){sign})")
}

fn binary(
    f: BinaryFn,
    a: &str,
    b: &str,
    value_type: ValueType,
    right: ValueType,
    lanes: u32,
) -> Result<(String, ValueType, bool), OpError> {
    use BinaryFn as F;
    let float = value_type == ValueType::Float;
    let is_bool = value_type == ValueType::Bool;
    let ty = value_type.wgsl(lanes);
    let n = |v: f32| number(v, lanes);
    let plain = |text: String| Ok((text, value_type, false));
    let compare = |op: &str| {
        if is_bool && op != "==" {
            let u = ValueType::Uint.wgsl(lanes);
            return Ok((format!("({u}({a}) {op} {u}({b}))"), ValueType::Bool, false));
        }
        Ok((format!("({a} {op} {b})"), ValueType::Bool, false))
    };
    let undefined = || Err(OpError::new(format!("{f:?} is not defined on {}", value_type.scalar())));
    match f {
        F::Equal => return compare("=="),
        F::Less => return compare("<"),
        F::LessEqual => return compare("<="),
        F::Greater => return compare(">"),
        F::GreaterEqual => return compare(">="),
        F::And if is_bool => return plain(format!("({a} & {b})")),
        F::Or if is_bool => return plain(format!("({a} | {b})")),
        F::Xor if is_bool => return plain(format!("({a} != {b})")),
        F::And | F::Or | F::Xor => return undefined(),
        _ if is_bool => return undefined(),
        _ => {}
    }
    let (zero, by) = (value_type.zero(lanes), format!("{}({b})", ValueType::Uint.wgsl(lanes)));
    let (width, last) = (splat("u32", "32u", lanes), splat("u32", "31u", lanes));
    match f {
        F::Add => plain(format!("({a} + {b})")),
        F::Sub => plain(format!("({a} - {b})")),
        F::Mul => plain(format!("({a} * {b})")),
        F::Div => plain(format!("({a} / {b})")),
        F::Min => plain(format!("min({a}, {b})")),
        F::Max => plain(format!("max({a}, {b})")),
        F::Pow if float => {
            let b = if right == ValueType::Float { b.to_string() } else { format!("{ty}({b})") };
            Ok((format!("power({a}, {b})"), value_type, true))
        }
        F::Pow => {
            let v = ValueType::Float.wgsl(lanes);
            Ok((format!("{ty}(round(power({v}({a}), {v}({b}))))"), value_type, true))
        }
        F::Mod if float => Ok((format!("modulo({a}, {b})"), value_type, true)),
        F::Fmod if float => Ok((format!("remainder({a}, {b})"), value_type, true)),
        F::Mod if value_type == ValueType::Int => plain(format!("((({a} % {b}) + {b}) % {b})")),
        F::Mod | F::Fmod => plain(format!("({a} % {b})")),
        F::PRelu if float => plain(format!("select({a}, {a} * {b}, {a} < {})", n(0.0))),
        F::PRelu => plain(format!("select({a}, {a} * {b}, {a} < {})", value_type.zero(lanes))),
        F::BitAnd if !float => plain(format!("({a} & {b})")),
        F::BitOr if !float => plain(format!("({a} | {b})")),
        F::BitXor if !float => plain(format!("({a} ^ {b})")),
        // A negative shift count is a large u32. Counts of 32 and more give 0, or the sign bits for signed right
        // shifts.
        F::ShiftLeft if !float => plain(format!("select({zero}, {a} << {by}, {by} < {width})")),
        F::ShiftRight if value_type == ValueType::Int => plain(format!("({a} >> min({by}, {last}))")),
        F::ShiftRight if !float => plain(format!("select({zero}, {a} >> {by}, {by} < {width})")),
        _ => undefined(),
    }
}
