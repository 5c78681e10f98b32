//! The types in which values are computed, and numbers as literals of them.

use crate::ir::tensor::DType;

/// The type in which a value is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Class {
    Float,
    Int,
    Uint,
    Bool,
}

impl Class {
    /// The class of an element type.
    pub fn of(dtype: DType) -> Self {
        match dtype {
            DType::Bool => Self::Bool,
            t if t.is_float() => Self::Float,
            t if t.is_unsigned() => Self::Uint,
            _ => Self::Int,
        }
    }

    /// The WGSL scalar.
    pub fn scalar(self) -> &'static str {
        match self {
            Self::Float => "f32",
            Self::Int => "i32",
            Self::Uint => "u32",
            Self::Bool => "bool",
        }
    }

    /// The WGSL type of one or four values.
    pub fn wgsl(self, lanes: u32) -> String {
        if lanes == 1 { self.scalar().to_string() } else { format!("vec4<{}>", self.scalar()) }
    }

    /// Zero, or false.
    pub fn zero(self, lanes: u32) -> String {
        let zero = match self {
            Self::Float => "0.0",
            Self::Int => "0i",
            Self::Uint => "0u",
            Self::Bool => "false",
        };
        if lanes == 1 { zero.to_string() } else { format!("vec4<{}>({zero})", self.scalar()) }
    }
}

/// A number as a value of a class.
pub fn literal(value: f64, class: Class, lanes: u32) -> String {
    let ty = class.wgsl(lanes);
    match class {
        Class::Float if (value as f32).is_finite() => format!("{ty}({:?})", value as f32),
        Class::Float => {
            let bits = (value as f32).to_bits();
            let wide = Class::Uint.wgsl(lanes);
            format!("bitcast<{ty}>({wide}({bits}u))")
        }
        Class::Int => {
            format!("{ty}({})", (value as i64).clamp(i64::from(i32::MIN), i64::from(i32::MAX)))
        }
        Class::Uint => format!("{ty}({}u)", value as u32),
        Class::Bool => format!("{ty}({})", value != 0.0),
    }
}
