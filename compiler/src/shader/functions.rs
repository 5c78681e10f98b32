//! WGSL for element functions, on one value or on vectors of four.
//!
//! Elementwise linking as in ML Drift: whatever follows a kernel's result element by element is written into the
//! kernel's store hook. Floats are computed in f32 whatever their storage.

use super::class::Class;
use crate::error::OpError;
use crate::ir::element::{BinaryFn, Element, UnaryFn};
use crate::ir::tensor::DType;

/// The expression of an element function, its class, and whether it uses `lib/elementary.wgsl`.
///
/// # Errors
/// When the function is not defined on the operands' class.
pub fn element_text(
    element: Element,
    operands: &[(String, Class)],
    lanes: u32,
) -> Result<(String, Class, bool), OpError> {
    let get = |i: usize| operands.get(i).cloned().ok_or_else(|| OpError::new("a missing epilogue operand"));
    match element {
        Element::Unary(f) => {
            let (x, class) = get(0)?;
            unary(f, &x, class, lanes)
        }
        Element::Binary(f) => {
            let ((a, class), (b, right)) = (get(0)?, get(1)?);
            binary(f, &a, &b, class, right, lanes)
        }
        Element::Select => {
            let ((c, condition), (a, class), (b, _)) = (get(0)?, get(1)?, get(2)?);
            if condition != Class::Bool {
                return Err(OpError::new("select needs a bool condition"));
            }
            Ok((format!("select({b}, {a}, {c})"), class, false))
        }
        Element::Cast(to) => {
            let (x, class) = get(0)?;
            Ok((cast(&x, class, to, lanes), Class::of(to), false))
        }
    }
}

/// ONNX Cast: floats truncate towards zero, narrow integers wrap.
fn cast(x: &str, from: Class, to: DType, lanes: u32) -> String {
    let class = Class::of(to);
    let ty = class.wgsl(lanes);
    match (class, from) {
        (Class::Bool, Class::Bool) => x.to_string(),
        (Class::Bool, _) => format!("({x} != {})", from.zero(lanes)),
        (Class::Float, _) => match to {
            DType::F16 => round_half(&format!("{ty}({x})"), &ty, lanes),
            _ => format!("{ty}({x})"),
        },
        (Class::Int | Class::Uint, _) => {
            // Through i32, so that negative floats and integers wrap as ONNX's reference does.
            let signed = Class::Int.wgsl(lanes);
            let wide = match from {
                Class::Float if class == Class::Uint && matches!(to, DType::U32 | DType::U64) => {
                    format!("{ty}({x})")
                }
                Class::Uint => x.to_string(),
                _ => format!("{signed}({x})"),
            };
            narrow(&format!("{ty}({wide})"), to, lanes)
        }
    }
}

/// An integer of 32 bits wrapped to its type's width; anything else as it is.
pub fn narrow(x: &str, dtype: DType, lanes: u32) -> String {
    let bits = u32::try_from(dtype.bytes() * 8).unwrap_or(32);
    if !dtype.is_integer() || bits >= 32 {
        return x.to_string();
    }
    let shift = splat("u32", &format!("{}u", 32 - bits), lanes);
    format!("(({x} << {shift}) >> {shift})")
}

/// Rounds to f16 precision without needing f16 arithmetic on the device; what f16 cannot hold becomes infinite.
fn round_half(x: &str, ty: &str, lanes: u32) -> String {
    let kept = clamp_half(x, lanes);
    let half = if lanes == 1 {
        format!("{ty}(unpack2x16float(pack2x16float(vec2<f32>({kept}, 0.0))).x)")
    } else {
        format!(
            "vec4<f32>(unpack2x16float(pack2x16float(({kept}).xy)), unpack2x16float(pack2x16float(({kept}).zw)))"
        )
    };
    // Bits of 65520, the middle between the largest number and the one that would come next, and of infinity; those
    // of what is no number are larger still.
    let bits = |value: &str| splat("u32", value, lanes);
    let (overflow, infinity) = (bits("0x477ff000u"), bits("0x7f800000u"));
    let sign = format!("(bitcast<{}>({x}) & {})", Class::Uint.wgsl(lanes), bits("0x80000000u"));
    let magnitude = magnitude_bits(x, lanes);
    let beyond = format!("bitcast<{ty}>({sign} | max({magnitude}, {infinity}))");
    format!("select({half}, {beyond}, {magnitude} >= {overflow})")
}

/// The closest of the finite numbers of f16.
fn clamp_half(x: &str, lanes: u32) -> String {
    format!("clamp({x}, {}, {})", splat("f32", "-65504.0", lanes), splat("f32", "65504.0", lanes))
}

fn magnitude_bits(x: &str, lanes: u32) -> String {
    format!("(bitcast<{}>({x}) & {})", Class::Uint.wgsl(lanes), splat("u32", "0x7fffffffu", lanes))
}

/// What is stored in f16: finite numbers stay finite, infinite ones and what is no number stay what they are.
pub fn storable_half(x: &str, lanes: u32) -> String {
    let finite = format!("{} < {}", magnitude_bits(x, lanes), splat("u32", "0x7f800000u", lanes));
    format!("select({x}, {}, {finite})", clamp_half(x, lanes))
}

fn splat(scalar: &str, value: &str, lanes: u32) -> String {
    if lanes == 1 { format!("{scalar}({value})") } else { format!("vec4<{scalar}>({value})") }
}

/// A float literal of the lane width.
fn number(value: f32, lanes: u32) -> String {
    // WGSL has no literal for infinity or NaN; their bits are written instead.
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

fn unary(f: UnaryFn, x: &str, class: Class, lanes: u32) -> Result<(String, Class, bool), OpError> {
    use UnaryFn as F;
    let n = |v: f32| number(v, lanes);
    let plain = |text: String| Ok((text, class, false));
    match (f, class) {
        (F::Not, Class::Bool) => return plain(format!("!({x})")),
        (F::BitNot, Class::Int | Class::Uint) => return plain(format!("~({x})")),
        (F::Abs, Class::Int) => return plain(format!("abs({x})")),
        (F::Abs, Class::Uint) | (F::Floor | F::Ceil | F::Round, Class::Int | Class::Uint) => {
            return plain(x.to_string());
        }
        (F::Neg, Class::Int) => return plain(format!("-({x})")),
        (F::Neg, Class::Uint) => return plain(format!("({} - {x})", class.zero(lanes))),
        (F::Sign, Class::Int) => return plain(format!("sign({x})")),
        (F::Sign, Class::Uint) => {
            return plain(format!("min({x}, {})", splat("u32", "1u", lanes)));
        }
        (F::Relu, Class::Int | Class::Uint) => return plain(format!("max({x}, {})", class.zero(lanes))),
        (F::Clip { low, high }, Class::Int | Class::Uint) => {
            let bound = |v: f32| {
                if class == Class::Int {
                    splat("i32", &format!("{}", (v as i32)), lanes)
                } else {
                    splat("u32", &format!("{}u", v as u32), lanes)
                }
            };
            return plain(format!("min(max({x}, {}), {})", bound(low), bound(high)));
        }
        (F::Affine { scale, shift }, Class::Int | Class::Uint) => {
            let ty = class.wgsl(lanes);
            return plain(format!("({x} * {ty}({}) + {ty}({}))", scale as i64, shift as i64));
        }
        (_, Class::Float) => {}
        _ => return Err(OpError::new(format!("{f:?} is not defined on {}", class.scalar()))),
    }
    let simple = |text: String| (text, false);
    let library = |text: String| (text, true);
    let (text, elementary) = match f {
        F::Abs => simple(format!("abs({x})")),
        F::Neg => simple(format!("-({x})")),
        F::Exp => simple(format!("exp({x})")),
        F::Log => simple(format!("log({x})")),
        F::Sqrt => simple(format!("sqrt({x})")),
        F::Rsqrt => simple(format!("inverseSqrt({x})")),
        F::Reciprocal => simple(format!("({} / {x})", n(1.0))),
        F::Sin => simple(format!("sin({x})")),
        F::Cos => simple(format!("cos({x})")),
        F::Tan => simple(format!("tan({x})")),
        F::Asin => simple(format!("asin({x})")),
        F::Acos => simple(format!("acos({x})")),
        F::Atan => simple(format!("atan({x})")),
        F::Sinh => simple(format!("sinh({x})")),
        F::Cosh => simple(format!("cosh({x})")),
        F::Tanh => library(format!("tanh_safe({x})")),
        F::Asinh => simple(format!("asinh({x})")),
        F::Acosh => simple(format!("acosh({x})")),
        F::Atanh => simple(format!("atanh({x})")),
        F::Erf => library(format!("erf({x})")),
        F::Floor => simple(format!("floor({x})")),
        F::Ceil => simple(format!("ceil({x})")),
        F::Round => simple(format!("round({x})")),
        F::Sign => simple(format!("sign({x})")),
        F::Relu => simple(format!("max({x}, {})", n(0.0))),
        F::LeakyRelu { alpha } => simple(format!("select({x}, {x} * {}, {x} < {})", n(alpha), n(0.0))),
        F::Elu { alpha } => {
            simple(format!("select({x}, {} * (exp({x}) - {}), {x} < {})", n(alpha), n(1.0), n(0.0)))
        }
        F::Selu { alpha, gamma } => simple(format!(
            "({} * select({x}, {} * (exp({x}) - {}), {x} <= {}))",
            n(gamma),
            n(alpha),
            n(1.0),
            n(0.0)
        )),
        F::Celu { alpha } => simple(format!(
            "(max({x}, {z}) + min({z}, {a} * (exp({x} / {a}) - {})))",
            n(1.0),
            z = n(0.0),
            a = n(alpha)
        )),
        F::Sigmoid => library(format!("sigmoid({x})")),
        F::HardSigmoid { alpha, beta } => {
            simple(format!("clamp({x} * {} + {}, {}, {})", n(alpha), n(beta), n(0.0), n(1.0)))
        }
        F::HardSwish => {
            simple(format!("({x} * clamp({x} * {} + {}, {}, {}))", n(1.0 / 6.0), n(0.5), n(0.0), n(1.0)))
        }
        F::Swish { alpha } => library(format!("({x} * sigmoid({x} * {}))", n(alpha))),
        F::Gelu => library(format!(
            "({} * {x} * ({} + erf({x} * {})))",
            n(0.5),
            n(1.0),
            n(std::f32::consts::FRAC_1_SQRT_2)
        )),
        F::GeluTanh => library(format!(
            "({} * {x} * ({} + tanh_safe({} * ({x} + {} * {x} * {x} * {x}))))",
            n(0.5),
            n(1.0),
            n(0.797_884_6),
            n(0.044_715)
        )),
        F::Softplus => library(format!("softplus({x})")),
        F::Softsign => simple(format!("({x} / ({} + abs({x})))", n(1.0))),
        F::Mish => library(format!("({x} * tanh_safe(softplus({x})))")),
        F::ThresholdedRelu { alpha } => simple(format!("select({}, {x}, {x} > {})", n(0.0), n(alpha))),
        F::Shrink { bias, lambd } => simple(format!(
            "select(select({z}, {x} - {b}, {x} > {l}), {x} + {b}, {x} < -{l})",
            z = n(0.0),
            b = n(bias),
            l = n(lambd)
        )),
        F::Clip { low, high } => {
            let mut text = x.to_string();
            if low > f32::NEG_INFINITY {
                text = format!("max({text}, {})", n(low));
            }
            if high < f32::INFINITY {
                text = format!("min({text}, {})", n(high));
            }
            simple(text)
        }
        F::Affine { scale, shift } => simple(format!("({x} * {} + {})", n(scale), n(shift))),
        F::IsNan => return Ok((format!("is_nan({x})"), Class::Bool, true)),
        F::IsInf { negative, positive } => {
            let sign = match (negative, positive) {
                (true, true) => String::new(),
                (true, false) => format!(" & ({x} < {})", n(0.0)),
                (false, true) => format!(" & ({x} > {})", n(0.0)),
                (false, false) => format!(" & ({x} != {x})"),
            };
            return Ok((format!("(is_inf({x}){sign})"), Class::Bool, true));
        }
        F::Not | F::BitNot => return Err(OpError::new(format!("{f:?} is not defined on floats"))),
    };
    Ok((text, Class::Float, elementary))
}

fn binary(
    f: BinaryFn,
    a: &str,
    b: &str,
    class: Class,
    right: Class,
    lanes: u32,
) -> Result<(String, Class, bool), OpError> {
    use BinaryFn as F;
    let float = class == Class::Float;
    let is_bool = class == Class::Bool;
    let ty = class.wgsl(lanes);
    let n = |v: f32| number(v, lanes);
    let plain = |text: String| Ok((text, class, false));
    let compare = |op: &str| {
        if is_bool && op != "==" {
            let u = Class::Uint.wgsl(lanes);
            return Ok((format!("({u}({a}) {op} {u}({b}))"), Class::Bool, false));
        }
        Ok((format!("({a} {op} {b})"), Class::Bool, false))
    };
    let undefined = || Err(OpError::new(format!("{f:?} is not defined on {}", class.scalar())));
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
    let (zero, by) = (class.zero(lanes), format!("{}({b})", Class::Uint.wgsl(lanes)));
    let (width, last) = (splat("u32", "32u", lanes), splat("u32", "31u", lanes));
    match f {
        F::Add => plain(format!("({a} + {b})")),
        F::Sub => plain(format!("({a} - {b})")),
        F::Mul => plain(format!("({a} * {b})")),
        F::Div => plain(format!("({a} / {b})")),
        F::Min => plain(format!("min({a}, {b})")),
        F::Max => plain(format!("max({a}, {b})")),
        F::Pow if float => {
            let b = if right == Class::Float { b.to_string() } else { format!("{ty}({b})") };
            Ok((format!("power({a}, {b})"), class, true))
        }
        F::Pow => {
            let v = Class::Float.wgsl(lanes);
            Ok((format!("{ty}(round(power({v}({a}), {v}({b}))))"), class, true))
        }
        F::Mod if float => Ok((format!("modulo({a}, {b})"), class, true)),
        F::Fmod if float => Ok((format!("remainder({a}, {b})"), class, true)),
        F::Mod if class == Class::Int => plain(format!("((({a} % {b}) + {b}) % {b})")),
        F::Mod | F::Fmod => plain(format!("({a} % {b})")),
        F::PRelu if float => plain(format!("select({a}, {a} * {b}, {a} < {})", n(0.0))),
        F::PRelu => plain(format!("select({a}, {a} * {b}, {a} < {})", class.zero(lanes))),
        F::BitAnd if !float => plain(format!("({a} & {b})")),
        F::BitOr if !float => plain(format!("({a} | {b})")),
        F::BitXor if !float => plain(format!("({a} ^ {b})")),
        // A shift by the width and beyond, which a negative number is too, leaves copies of the sign.
        F::ShiftLeft if !float => plain(format!("select({zero}, {a} << {by}, {by} < {width})")),
        F::ShiftRight if class == Class::Int => plain(format!("({a} >> min({by}, {last}))")),
        F::ShiftRight if !float => plain(format!("select({zero}, {a} >> {by}, {by} < {width})")),
        _ => undefined(),
    }
}
