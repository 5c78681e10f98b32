//! Element functions on the host, for the CPU reference and constant folding.
//!
//! Formulas follow ONNX, or numpy where ONNX is silent: minimum and maximum propagate NaN, and an integer division by
//! zero gives 0. Floats are computed in f64 and rounded once, so the reference has the full precision of its type.
//! Integers wrap to their type after every function.

use super::erf::{erf, erfc};
use super::{BinaryFn, UnaryFn};
use crate::ir::array::wrap;
use crate::ir::tensor::DType;

/// Applies an element function to a float; predicates return 0 or 1.
pub fn eval_unary(f: UnaryFn, x: f32) -> f32 {
    unary(f, f64::from(x)) as f32
}

fn unary(f: UnaryFn, x: f64) -> f64 {
    match f {
        UnaryFn::Abs => x.abs(),
        UnaryFn::Neg => -x,
        UnaryFn::Exp => libm::exp(x),
        UnaryFn::Log => libm::log(x),
        UnaryFn::Sqrt => x.sqrt(),
        UnaryFn::Rsqrt => 1.0 / x.sqrt(),
        UnaryFn::Reciprocal => 1.0 / x,
        UnaryFn::Sin => libm::sin(x),
        UnaryFn::Cos => libm::cos(x),
        UnaryFn::Tan => libm::tan(x),
        UnaryFn::Asin => libm::asin(x),
        UnaryFn::Acos => libm::acos(x),
        UnaryFn::Atan => libm::atan(x),
        UnaryFn::Sinh => libm::sinh(x),
        UnaryFn::Cosh => libm::cosh(x),
        UnaryFn::Tanh => libm::tanh(x),
        UnaryFn::Asinh => libm::asinh(x),
        UnaryFn::Acosh => libm::acosh(x),
        UnaryFn::Atanh => libm::atanh(x),
        UnaryFn::Erf => erf(x),
        UnaryFn::Floor => x.floor(),
        UnaryFn::Ceil => x.ceil(),
        UnaryFn::Round => x.round_ties_even(),
        UnaryFn::Sign if x == 0.0 || x.is_nan() => x,
        UnaryFn::Sign => x.signum(),
        UnaryFn::Relu => largest(x, 0.0),
        UnaryFn::LeakyRelu { alpha } if x < 0.0 => x * f64::from(alpha),
        UnaryFn::Elu { alpha } if x < 0.0 => libm::expm1(x) * f64::from(alpha),
        UnaryFn::LeakyRelu { .. } | UnaryFn::Elu { .. } => x,
        UnaryFn::Selu { alpha, gamma } => {
            f64::from(gamma) * if x > 0.0 { x } else { f64::from(alpha) * libm::expm1(x) }
        }
        UnaryFn::Celu { alpha } => {
            let alpha = f64::from(alpha);
            largest(x, 0.0) + smallest(alpha * libm::expm1(x / alpha), 0.0)
        }
        UnaryFn::Sigmoid => sigmoid(x),
        UnaryFn::HardSigmoid { alpha, beta } => clip(f64::from(alpha) * x + f64::from(beta), 0.0, 1.0),
        UnaryFn::HardSwish => x * clip(x / 6.0 + 0.5, 0.0, 1.0),
        UnaryFn::Swish { alpha } => x * sigmoid(f64::from(alpha) * x),
        UnaryFn::Gelu => 0.5 * x * erfc(-x * std::f64::consts::FRAC_1_SQRT_2),
        UnaryFn::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
            x * sigmoid(2.0 * inner)
        }
        UnaryFn::Softplus => softplus(x),
        UnaryFn::Softsign => x / (1.0 + x.abs()),
        UnaryFn::Mish => x * libm::tanh(softplus(x)),
        UnaryFn::ThresholdedRelu { alpha } => {
            if x > f64::from(alpha) || x.is_nan() {
                x
            } else {
                0.0
            }
        }
        UnaryFn::Shrink { bias, lambd } => {
            let (bias, lambd) = (f64::from(bias), f64::from(lambd));
            match x {
                _ if x < -lambd => x + bias,
                _ if x > lambd => x - bias,
                _ if x.is_nan() => x,
                _ => 0.0,
            }
        }
        UnaryFn::Clip { low, high } => clip(x, low.into(), high.into()),
        UnaryFn::Affine { scale, shift } => x * f64::from(scale) + f64::from(shift),
        UnaryFn::Quantize { scale, zero_point, low, high } => quantize(x, [scale, zero_point, low, high]),
        UnaryFn::Dequantize { scale, zero_point } => ((x as f32 - zero_point) * scale).into(),
        UnaryFn::Not => flag(x == 0.0),
        // Bitwise functions are not defined for floats; the type check refuses them.
        UnaryFn::BitNot => x,
        UnaryFn::IsNan => flag(x.is_nan()),
        UnaryFn::IsInf { negative, positive } => {
            flag(x.is_infinite() && if x > 0.0 { positive } else { negative })
        }
    }
}

/// Quantizes a number with f32 arithmetic, as devices do.
fn quantize(x: f64, [scale, zero_point, low, high]: [f32; 4]) -> f64 {
    let quantized = (x as f32 / scale).round_ties_even() + zero_point;
    clip(quantized.into(), low.into(), high.into())
}

/// Applies an element function to an integer or bool of the given type. Functions that are only defined for floats are
/// computed in f64.
pub fn eval_unary_int(f: UnaryFn, dtype: DType, x: i64) -> i64 {
    let unsigned = dtype.is_unsigned();
    let value = match f {
        UnaryFn::Abs if unsigned => x,
        UnaryFn::Abs => x.wrapping_abs(),
        UnaryFn::Neg => x.wrapping_neg(),
        UnaryFn::Sign if unsigned => i64::from(x != 0),
        UnaryFn::Sign => x.signum(),
        UnaryFn::Relu if unsigned => x,
        UnaryFn::Relu => x.max(0),
        UnaryFn::Clip { low, high } => clip_int(dtype, x, f64::from(low), f64::from(high)),
        UnaryFn::Not => i64::from(x == 0),
        UnaryFn::BitNot => !x,
        _ => unary(f, to_f64(dtype, x)) as i64,
    };
    wrap(dtype, value)
}

/// Applies an element function to two floats; comparisons and logical functions return 0 or 1.
pub fn eval_binary(f: BinaryFn, a: f32, b: f32) -> f32 {
    let (a, b) = (f64::from(a), f64::from(b));
    let value = match f {
        BinaryFn::Add => a + b,
        BinaryFn::Sub => a - b,
        BinaryFn::Mul => a * b,
        BinaryFn::Div => a / b,
        BinaryFn::Pow => libm::pow(a, b),
        BinaryFn::Min => smallest(a, b),
        BinaryFn::Max => largest(a, b),
        BinaryFn::Mod => {
            let rest = a % b;
            if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest }
        }
        BinaryFn::Fmod => a % b,
        BinaryFn::PRelu if a < 0.0 => a * b,
        BinaryFn::PRelu => a,
        BinaryFn::And => flag(a != 0.0 && b != 0.0),
        BinaryFn::Or => flag(a != 0.0 || b != 0.0),
        BinaryFn::Xor => flag((a != 0.0) != (b != 0.0)),
        BinaryFn::Equal => flag(a == b),
        BinaryFn::Less => flag(a < b),
        BinaryFn::LessEqual => flag(a <= b),
        BinaryFn::Greater => flag(a > b),
        BinaryFn::GreaterEqual => flag(a >= b),
        // Bitwise functions are not defined for floats; the type check refuses them.
        BinaryFn::BitAnd
        | BinaryFn::BitOr
        | BinaryFn::BitXor
        | BinaryFn::ShiftLeft
        | BinaryFn::ShiftRight => a,
    };
    value as f32
}

/// Applies an element function to two integers or bools of the given type; comparisons return 0 or 1.
pub fn eval_binary_int(f: BinaryFn, dtype: DType, a: i64, b: i64) -> i64 {
    if dtype.is_unsigned() {
        return wrap(dtype, unsigned_binary(f, a as u64, b as u64) as i64);
    }
    let value = match f {
        BinaryFn::Add => a.wrapping_add(b),
        BinaryFn::Sub => a.wrapping_sub(b),
        BinaryFn::Mul => a.wrapping_mul(b),
        BinaryFn::PRelu if a < 0 => a.wrapping_mul(b),
        BinaryFn::PRelu => a,
        BinaryFn::Div | BinaryFn::Mod | BinaryFn::Fmod if b == 0 => 0,
        BinaryFn::Div => a.wrapping_div(b),
        BinaryFn::Fmod => a.wrapping_rem(b),
        BinaryFn::Mod => {
            let rest = a.wrapping_rem(b);
            if rest != 0 && (rest < 0) != (b < 0) { rest.wrapping_add(b) } else { rest }
        }
        BinaryFn::Pow => power(a, b),
        BinaryFn::Min => a.min(b),
        BinaryFn::Max => a.max(b),
        BinaryFn::And => i64::from(a != 0 && b != 0),
        BinaryFn::Or => i64::from(a != 0 || b != 0),
        BinaryFn::Xor => i64::from((a != 0) != (b != 0)),
        BinaryFn::BitAnd => a & b,
        BinaryFn::BitOr => a | b,
        BinaryFn::BitXor => a ^ b,
        BinaryFn::ShiftLeft => u32::try_from(b).ok().and_then(|n| a.checked_shl(n)).unwrap_or(0),
        BinaryFn::ShiftRight => a >> if (0..64).contains(&b) { b } else { 63 },
        BinaryFn::Equal => i64::from(a == b),
        BinaryFn::Less => i64::from(a < b),
        BinaryFn::LessEqual => i64::from(a <= b),
        BinaryFn::Greater => i64::from(a > b),
        BinaryFn::GreaterEqual => i64::from(a >= b),
    };
    if f.is_comparison() { value } else { wrap(dtype, value) }
}

/// Applies an element function to two unsigned integers.
fn unsigned_binary(f: BinaryFn, a: u64, b: u64) -> u64 {
    match f {
        BinaryFn::Div => a.checked_div(b).unwrap_or(0),
        BinaryFn::Mod | BinaryFn::Fmod => a.checked_rem(b).unwrap_or(0),
        BinaryFn::PRelu => a,
        BinaryFn::Min => a.min(b),
        BinaryFn::Max => a.max(b),
        BinaryFn::Pow => power(a as i64, i64::try_from(b).unwrap_or(i64::MAX)) as u64,
        BinaryFn::ShiftRight => u32::try_from(b).ok().and_then(|n| a.checked_shr(n)).unwrap_or(0),
        BinaryFn::Less => (a < b).into(),
        BinaryFn::LessEqual => (a <= b).into(),
        BinaryFn::Greater => (a > b).into(),
        BinaryFn::GreaterEqual => (a >= b).into(),
        // The other functions have the same result bits for signed integers.
        _ => eval_binary_int(f, DType::I64, a as i64, b as i64) as u64,
    }
}

/// Converts an integer of the given type to f64.
pub fn to_f64(dtype: DType, x: i64) -> f64 {
    if dtype == DType::U64 { (x as u64) as f64 } else { x as f64 }
}

/// Computes the power of an integer base and a float exponent, truncated towards zero.
pub fn eval_pow_int_float(dtype: DType, base: i64, exponent: f32) -> i64 {
    wrap(dtype, libm::pow(to_f64(dtype, base), f64::from(exponent)) as i64)
}

/// Computes the power of two integers with wrapping arithmetic. For a negative exponent the fraction is truncated.
fn power(base: i64, exponent: i64) -> i64 {
    let Ok(mut exponent) = u64::try_from(exponent) else {
        return match base {
            1 => 1,
            -1 if exponent % 2 == 0 => 1,
            -1 => -1,
            _ => 0,
        };
    };
    let (mut square, mut product) = (base, 1i64);
    while exponent > 0 {
        if exponent & 1 == 1 {
            product = product.wrapping_mul(square);
        }
        square = square.wrapping_mul(square);
        exponent >>= 1;
    }
    product
}

fn clip_int(dtype: DType, x: i64, low: f64, high: f64) -> i64 {
    // `as` saturates, which gives the right result for an infinite bound.
    if dtype == DType::U64 {
        return (x as u64).max(low.ceil() as u64).min(high.floor() as u64) as i64;
    }
    x.max(low.ceil() as i64).min(high.floor() as i64)
}

fn flag(value: bool) -> f64 {
    if value { 1.0 } else { 0.0 }
}

/// Returns the maximum of two numbers, or NaN if either is NaN.
fn largest(a: f64, b: f64) -> f64 {
    if a > b || a.is_nan() { a } else { b }
}

/// Returns the minimum of two numbers, or NaN if either is NaN.
fn smallest(a: f64, b: f64) -> f64 {
    if a < b || a.is_nan() { a } else { b }
}

fn clip(x: f64, low: f64, high: f64) -> f64 {
    smallest(largest(x, low), high)
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + libm::exp(-x))
}

fn softplus(x: f64) -> f64 {
    largest(x, 0.0) + libm::log1p(libm::exp(-x.abs()))
}

#[cfg(test)]
mod tests {
    use super::{eval_binary, eval_binary_int, eval_unary, eval_unary_int};
    use crate::ir::element::{BinaryFn, UnaryFn};
    use crate::ir::tensor::DType;

    #[test]
    fn floats_follow_onnx() {
        let close = |f, x: f32, y: f32| {
            let got = eval_unary(f, x);
            assert!((got - y).abs() <= 1e-6 * y.abs().max(1e-6), "{f:?} of {x} is {got}, not {y}");
        };
        close(UnaryFn::Round, 2.5, 2.0);
        close(UnaryFn::Round, -1.5, -2.0);
        close(UnaryFn::HardSwish, 1.0, 2.0 / 3.0);
        close(UnaryFn::HardSwish, -4.0, 0.0);
        close(UnaryFn::Mish, 1.0, 0.865_098_4);
        close(UnaryFn::Gelu, -1.0, -0.158_655_25);
        close(UnaryFn::Gelu, -6.0, -5.919_527e-9);
        close(UnaryFn::GeluTanh, 1.0, 0.841_192);
        close(UnaryFn::Shrink { bias: 0.5, lambd: 1.0 }, -2.0, -1.5);
        close(UnaryFn::Shrink { bias: 0.5, lambd: 1.0 }, 0.9, 0.0);
        close(UnaryFn::Celu { alpha: 2.0 }, -1.0, -0.786_938_7);
        close(UnaryFn::Selu { alpha: 2.0, gamma: 3.0 }, -1.0, -3.792_723_4);
        close(UnaryFn::Softplus, 100.0, 100.0);
        close(UnaryFn::Sigmoid, -200.0, 0.0);
        close(UnaryFn::Swish { alpha: 1.0 }, -200.0, 0.0);
        close(UnaryFn::Affine { scale: 2.0, shift: 1.0 }, 3.0, 7.0);
        let quantize = UnaryFn::Quantize { scale: 0.5, zero_point: 3.0, low: 0.0, high: 255.0 };
        for (x, quantized) in [(1.25, 5.0), (1.75, 7.0), (-9.0, 0.0), (1e6, 255.0)] {
            close(quantize, x, quantized);
        }
        close(UnaryFn::Dequantize { scale: 0.5, zero_point: 3.0 }, 8.0, 2.5);
        close(UnaryFn::Clip { low: 5.0, high: 3.0 }, 4.0, 3.0);
        close(UnaryFn::IsInf { negative: true, positive: false }, f32::NEG_INFINITY, 1.0);
        close(UnaryFn::IsInf { negative: true, positive: false }, f32::INFINITY, 0.0);
        close(UnaryFn::ThresholdedRelu { alpha: 1.0 }, 1.0, 0.0);
        assert!(eval_unary(UnaryFn::Relu, f32::NAN).is_nan());
        assert!(eval_unary(UnaryFn::Sign, f32::NAN).is_nan());
        assert!(eval_binary(BinaryFn::Max, 1.0, f32::NAN).is_nan());
        assert!(eval_binary(BinaryFn::Min, f32::NAN, 1.0).is_nan());
        assert_eq!(eval_binary(BinaryFn::Mod, -5.5, 3.0), 0.5);
        assert_eq!(eval_binary(BinaryFn::Fmod, -5.5, 3.0), -2.5);
        assert_eq!(eval_binary(BinaryFn::PRelu, -2.0, 0.5), -1.0);
    }

    #[test]
    fn integers_wrap_to_their_type() {
        use BinaryFn::{Add, Div, Fmod, Less, Max, Mod, Mul, Pow, ShiftLeft, ShiftRight};
        for (f, dtype, a, b, c) in [
            (Add, DType::I8, 127, 1, -128),
            (Mul, DType::U8, 16, 17, 16),
            (Div, DType::I32, -7, 2, -3),
            (Div, DType::I64, i64::MIN, -1, i64::MIN),
            (Div, DType::I32, 7, 0, 0),
            (Div, DType::U64, -1, 2, i64::MAX),
            (Mod, DType::I32, -7, 3, 2),
            (Mod, DType::I32, 7, -3, -2),
            (Fmod, DType::I32, -7, 3, -1),
            (Pow, DType::I32, 3, 4, 81),
            (Pow, DType::I32, 2, -1, 0),
            (Pow, DType::I32, -1, -3, -1),
            (Max, DType::U64, -1, 5, -1),
            (Less, DType::U64, -1, 5, 0),
            (Less, DType::I64, -1, 5, 1),
            (ShiftLeft, DType::U8, 0x81, 1, 2),
            (ShiftLeft, DType::I64, 1, 64, 0),
            (ShiftRight, DType::I32, -8, 1, -4),
            (ShiftRight, DType::I32, -8, -1, -1),
            (ShiftRight, DType::I32, 8, 40, 0),
            (ShiftLeft, DType::I32, 8, -1, 0),
            (ShiftRight, DType::U64, -1, 63, 1),
        ] {
            assert_eq!(eval_binary_int(f, dtype, a, b), c, "{f:?} {dtype:?} {a} {b}");
        }
        assert_eq!(eval_unary_int(UnaryFn::Neg, DType::I8, -128), -128);
        assert_eq!(eval_unary_int(UnaryFn::BitNot, DType::U8, 1), 254);
        assert_eq!(eval_unary_int(UnaryFn::Abs, DType::U64, -1), -1);
        let clip = UnaryFn::Clip { low: -1.5, high: f32::INFINITY };
        assert_eq!(eval_unary_int(clip, DType::I32, -7), -1);
        assert_eq!(eval_unary_int(clip, DType::I64, i64::MAX), i64::MAX);
    }
}
