//! WGSL types in which shaders compute, and literals of these types.

use crate::ir::tensor::DType;

/// Type in which a shader computes a value. Narrower element types are computed in one of these 32-bit types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are self-explanatory")]
pub enum ValueType {
    Float,
    Int,
    Uint,
    Bool,
}

impl ValueType {
    /// Returns the type in which a shader computes elements of type `dtype`.
    pub fn from_dtype(dtype: DType) -> Self {
        match dtype {
            DType::Bool => Self::Bool,
            t if t.is_float() => Self::Float,
            t if t.is_unsigned() => Self::Uint,
            _ => Self::Int,
        }
    }

    /// Returns the name of the WGSL scalar type.
    pub fn scalar(self) -> &'static str {
        match self {
            Self::Float => "f32",
            Self::Int => "i32",
            Self::Uint => "u32",
            Self::Bool => "bool",
        }
    }

    /// Returns the name of the WGSL type: a scalar, or a vec4 if `lanes` is 4.
    pub fn wgsl(self, lanes: u32) -> String {
        if lanes == 1 { self.scalar().to_string() } else { format!("vec4<{}>", self.scalar()) }
    }

    /// Returns a WGSL literal of zero or false: a scalar, or a vec4 if `lanes` is 4.
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

/// Returns a WGSL literal of a number: a scalar, or a vec4 of equal components if `lanes` is 4.
pub fn literal(value: f64, value_type: ValueType, lanes: u32) -> String {
    let ty = value_type.wgsl(lanes);
    match value_type {
        ValueType::Float if (value as f32).is_finite() => format!("{ty}({:?})", value as f32),
        ValueType::Float => {
            let bits = (value as f32).to_bits();
            let wide = ValueType::Uint.wgsl(lanes);
            format!("bitcast<{ty}>({wide}({bits}u))")
        }
        ValueType::Int => {
            format!("{ty}({})", (value as i64).clamp(i64::from(i32::MIN), i64::from(i32::MAX)))
        }
        ValueType::Uint => format!("{ty}({}u)", value as u32),
        ValueType::Bool => format!("{ty}({})", value != 0.0),
    }
}
