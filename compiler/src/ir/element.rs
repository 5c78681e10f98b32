//! Element functions as data. A node applies one element function, or a sequence of them as its epilogue.
//!
//! `x * sigmoid(x)` after a convolution is the epilogue `[sigmoid(#0), mul(#0, #1)]`: `#0` is the result of the
//! convolution, `#i` the result of step i (one-based), and `@k` operand k of the node, broadcast to the result's shape.

use serde::{Deserialize, Serialize};

use super::tensor::DType;
use crate::error::OpError;

mod erf;
mod host;

pub use erf::{erf, erfc};
pub use host::{eval_binary, eval_binary_int, eval_pow_int_float, eval_unary, eval_unary_int, to_f64};

/// A function of one element. Names and formulas follow ONNX.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the variants are named after ONNX operators")]
pub enum UnaryFn {
    Abs,
    Neg,
    Exp,
    Log,
    Sqrt,
    Rsqrt,
    Reciprocal,
    Sin,
    Cos,
    Tan,
    Asin,
    Acos,
    Atan,
    Sinh,
    Cosh,
    Tanh,
    Asinh,
    Acosh,
    Atanh,
    Erf,
    Floor,
    Ceil,
    /// Rounds to the nearest integer, ties to even.
    Round,
    Sign,
    Relu,
    LeakyRelu {
        alpha: f32,
    },
    Elu {
        alpha: f32,
    },
    Selu {
        alpha: f32,
        gamma: f32,
    },
    Celu {
        alpha: f32,
    },
    Sigmoid,
    HardSigmoid {
        alpha: f32,
        beta: f32,
    },
    HardSwish,
    /// `x * sigmoid(alpha * x)`; alpha 1 is SiLU, 1.702 is QuickGelu.
    Swish {
        alpha: f32,
    },
    /// Exact GELU, with erf.
    Gelu,
    /// GELU with the tanh approximation.
    GeluTanh,
    Softplus,
    Softsign,
    Mish,
    ThresholdedRelu {
        alpha: f32,
    },
    Shrink {
        bias: f32,
        lambd: f32,
    },
    /// `min(max(x, low), high)`; an infinite bound has no effect.
    Clip {
        #[serde(with = "float_or_text")]
        low: f32,
        #[serde(with = "float_or_text")]
        high: f32,
    },
    /// `x * scale + shift`.
    Affine {
        scale: f32,
        shift: f32,
    },
    /// `clip(round(x / scale) + zero_point, low, high)`, ties to even: the quantized value of a real number, as a float.
    Quantize {
        scale: f32,
        zero_point: f32,
        low: f32,
        high: f32,
    },
    /// `(x - zero_point) * scale`: the real number of a quantized value, which is given as a float.
    Dequantize {
        scale: f32,
        zero_point: f32,
    },
    Not,
    BitNot,
    IsNan,
    IsInf {
        negative: bool,
        positive: bool,
    },
}

/// A function of two elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the variants are named after ONNX operators")]
pub enum BinaryFn {
    Add,
    Sub,
    Mul,
    Div,
    Pow,
    Min,
    Max,
    /// Remainder with the sign of the divisor (Python's `%`).
    Mod,
    /// Remainder with the sign of the dividend (C's `fmod`).
    Fmod,
    /// `a < 0 ? a * b : a`.
    PRelu,
    And,
    Or,
    Xor,
    BitAnd,
    BitOr,
    BitXor,
    ShiftLeft,
    ShiftRight,
    Equal,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

/// Operand types that an element function accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Any,
    Number,
    Float,
    Integer,
    Bool,
}

impl Class {
    fn contains(self, dtype: DType) -> bool {
        match self {
            Self::Any => true,
            Self::Number => dtype != DType::Bool,
            Self::Float => dtype.is_float(),
            Self::Integer => dtype.is_integer(),
            Self::Bool => dtype == DType::Bool,
        }
    }

    fn reason(self) -> &'static str {
        match self {
            Self::Any => "any type is accepted",
            Self::Number => "operands must be numbers",
            Self::Float => "operands must be floats",
            Self::Integer => "operands must be integers",
            Self::Bool => "operands must be bools",
        }
    }
}

impl UnaryFn {
    fn takes(self) -> Class {
        match self {
            Self::Abs | Self::Neg | Self::Sign | Self::Relu | Self::Clip { .. } => Class::Number,
            Self::Not => Class::Bool,
            Self::BitNot => Class::Integer,
            _ => Class::Float,
        }
    }
}

impl BinaryFn {
    fn takes(self) -> Class {
        use BinaryFn::{And, BitAnd, BitOr, BitXor, Equal, Or, ShiftLeft, ShiftRight, Xor};
        match self {
            And | Or | Xor => Class::Bool,
            BitAnd | BitOr | BitXor | ShiftLeft | ShiftRight => Class::Integer,
            Equal => Class::Any,
            _ => Class::Number,
        }
    }

    /// True if the function's result is bool for all operand types.
    pub fn is_comparison(self) -> bool {
        use BinaryFn::{Equal, Greater, GreaterEqual, Less, LessEqual};
        matches!(self, Equal | Less | LessEqual | Greater | GreaterEqual)
    }

    /// True if the function's operands may be swapped.
    pub fn is_commutative(self) -> bool {
        use BinaryFn::{Add, And, BitAnd, BitOr, BitXor, Equal, Max, Min, Mul, Or, Xor};
        matches!(self, Add | Mul | Min | Max | And | Or | Xor | BitAnd | BitOr | BitXor | Equal)
    }
}

/// A function of one, two or three elements.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Element {
    /// One operand.
    Unary(UnaryFn),
    /// Two operands.
    Binary(BinaryFn),
    /// Selection. The operands are the condition, the value where it is true, and the value where it is false.
    Select,
    /// Cast with the semantics of ONNX Cast.
    Cast(DType),
}

impl Element {
    /// Number of operands.
    pub fn arity(&self) -> usize {
        match self {
            Self::Unary(_) | Self::Cast(_) => 1,
            Self::Binary(_) => 2,
            Self::Select => 3,
        }
    }

    /// Checks the operand types of an element function and returns the result type. Floats of different precision are
    /// accepted, because passes choose how each value is stored.
    ///
    /// # Errors
    /// If the number or the types of the operands are wrong.
    pub fn check(&self, operands: &[DType]) -> Result<DType, OpError> {
        let names = || operands.iter().map(|t| t.name()).collect::<Vec<_>>().join(", ");
        if operands.len() != self.arity() {
            return Err(OpError::new(format!(
                "{} operands are needed, not {}",
                self.arity(),
                operands.len()
            )));
        }
        let why = match (self, operands) {
            (Self::Unary(f), [x]) if !f.takes().contains(*x) => f.takes().reason(),
            (Self::Binary(f), [a, _]) if !f.takes().contains(*a) => f.takes().reason(),
            // The exponent may have another type than the base; the result has the base's type.
            (Self::Binary(BinaryFn::Pow), [_, b]) if *b == DType::Bool => Class::Number.reason(),
            (Self::Binary(BinaryFn::Pow), _) => return Ok(self.result_type(operands)),
            (Self::Binary(_), [a, b]) if !mix(*a, *b) => "both operands must have the same type",
            (Self::Select, [c, ..]) if *c != DType::Bool => "the condition must be bool",
            (Self::Select, [_, a, b]) if !mix(*a, *b) => "both values of a select must have the same type",
            _ => return Ok(self.result_type(operands)),
        };
        Err(OpError::new(format!("{why}, not {}", names())))
    }

    /// Returns the result type of the element function for operands of the given types.
    pub fn result_type(&self, operands: &[DType]) -> DType {
        let first = operands.first().copied().unwrap_or(DType::F32);
        match self {
            Self::Unary(UnaryFn::IsNan | UnaryFn::IsInf { .. }) => DType::Bool,
            Self::Unary(_) => first,
            Self::Binary(f) if f.is_comparison() => DType::Bool,
            Self::Binary(BinaryFn::Pow) => first,
            Self::Binary(_) => operands.get(1).map_or(first, |b| widest(first, *b)),
            Self::Select => match operands {
                [_, a, b, ..] => widest(*a, *b),
                _ => first,
            },
            Self::Cast(to) => *to,
        }
    }
}

/// True if an element function can combine operands of two types: equal types, or two float types.
fn mix(a: DType, b: DType) -> bool {
    a == b || (a.is_float() && b.is_float())
}

/// Returns the result type of an element function of two operands, which have the types `a` and `b`.
fn widest(a: DType, b: DType) -> DType {
    match (a, b) {
        _ if a == b => a,
        (DType::F64, _) | (_, DType::F64) => DType::F64,
        _ if b.is_float() => DType::F32,
        _ => a,
    }
}

/// An operand of an epilogue step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arg {
    /// Result of epilogue step i (one-based); 0 is the result of the node's operator.
    Step(u32),
    /// Operand of the node, by its index among the node's operands.
    Input(u32),
}

/// One step of an epilogue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EpilogueStep {
    /// Element function.
    pub element: Element,
    /// Operands.
    pub args: Vec<Arg>,
}

impl EpilogueStep {
    /// Returns the epilogue step with its operands replaced by `map`.
    ///
    /// # Errors
    /// The first error of `map`.
    pub fn map_args<E>(&self, map: impl FnMut(Arg) -> Result<Arg, E>) -> Result<Self, E> {
        let args = self.args.iter().copied().map(map).collect::<Result<Vec<Arg>, E>>()?;
        Ok(Self { element: self.element, args })
    }

    /// Returns the step as it reads in an epilogue that is appended to an epilogue of `count` steps: every step number
    /// increases by `count`. Step number 0 becomes `count`, the last step of the first epilogue.
    #[must_use]
    pub fn shifted(&self, count: u32) -> Self {
        let shift = |arg: &Arg| match *arg {
            Arg::Step(s) => Arg::Step(s.saturating_add(count)),
            Arg::Input(k) => Arg::Input(k),
        };
        Self { element: self.element, args: self.args.iter().map(shift).collect() }
    }
}

/// Serialization of floats in JSON, where infinities and NaN are strings.
pub(crate) mod float_or_text {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    pub(crate) fn serialize<S, F>(value: &F, serializer: S) -> Result<S::Ok, S::Error>
    where
        S: Serializer,
        F: Copy + Into<f64> + Serialize,
    {
        match (*value).into() {
            v if v.is_finite() => value.serialize(serializer),
            v if v.is_nan() => serializer.serialize_str("nan"),
            v => serializer.serialize_str(if v > 0.0 { "inf" } else { "-inf" }),
        }
    }

    pub(crate) fn deserialize<'de, D, F>(deserializer: D) -> Result<F, D::Error>
    where
        D: Deserializer<'de>,
        F: Deserialize<'de> + From<f32>,
    {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form<F> {
            Number(F),
            Text(String),
        }
        match Form::deserialize(deserializer)? {
            Form::Number(v) => Ok(v),
            Form::Text(t) => match t.as_str() {
                "inf" => Ok(f32::INFINITY.into()),
                "-inf" => Ok(f32::NEG_INFINITY.into()),
                "nan" => Ok(f32::NAN.into()),
                _ => Err(de::Error::custom(format!("`{t}` is not a number"))),
            },
        }
    }
}
