//! Declarations of a model's inputs and outputs: element types, and sizes as numbers or symbols.

use super::refused::Refused;
use super::schema::tensor_shape_proto::Dimension;
use super::schema::tensor_shape_proto::dimension::Value as DimValue;
use super::schema::type_proto::Value as TypeValue;
use super::schema::{ValueInfoProto, type_proto};
use super::tensors;
use crate::ir::dim::Dim;
use crate::ir::tensor::DType;

/// Declaration of a model's input.
#[derive(Debug)]
pub(super) struct Declared {
    /// Name.
    pub(super) name: String,
    /// Element type of the input, or the reason why the type is not supported.
    pub(super) dtype: Result<DType, Refused>,
    /// Sizes of the input; `None` if not even the rank is declared.
    pub(super) shape: Option<Vec<Dim>>,
}

/// Reads the declaration of an input from the ONNX file.
pub(super) fn read(info: &ValueInfoProto) -> Result<Declared, Refused> {
    let name = info.name().to_string();
    let tensor = match info.r#type.as_ref().and_then(|t| t.value.as_ref()) {
        Some(TypeValue::TensorType(tensor)) => tensor,
        None => return Err(Refused::new("no type is declared")),
        Some(_) => {
            let reason = Refused::new("only tensors are supported, not sequences, maps or optional values");
            return Ok(Declared { name, dtype: Err(reason), shape: None });
        }
    };
    let dtype = tensors::dtype(tensor.elem_type.unwrap_or(0));
    let shape = declared_shape(&name, tensor)?;
    Ok(Declared { name, dtype, shape })
}

/// Returns the declared element type of an input or output; `None` if the type is missing or not supported.
pub(super) fn declared_dtype(info: &ValueInfoProto) -> Option<DType> {
    match info.r#type.as_ref()?.value.as_ref()? {
        TypeValue::TensorType(tensor) => tensors::dtype(tensor.elem_type?).ok(),
        _ => None,
    }
}

fn declared_shape(name: &str, tensor: &type_proto::Tensor) -> Result<Option<Vec<Dim>>, Refused> {
    let Some(shape) = &tensor.shape else { return Ok(None) };
    let dim = |(axis, dim): (usize, &Dimension)| match &dim.value {
        Some(DimValue::DimValue(-1)) | None => Ok(Dim::symbol(&unnamed_axis(name, axis))),
        Some(DimValue::DimValue(value)) if *value < 0 => {
            Err(Refused::new(format!("the declared size {value} is negative")))
        }
        Some(DimValue::DimValue(value)) => Ok(Dim::known(*value)),
        Some(DimValue::DimParam(text)) => {
            Ok(parse_dim_param(text).unwrap_or_else(|| Dim::symbol(&unnamed_axis(name, axis))))
        }
    };
    shape.dim.iter().enumerate().map(dim).collect::<Result<Vec<_>, Refused>>().map(Some)
}

/// Parses a `dim_param` of ONNX: a symbol, or an expression such as `past + 1`. Returns `None` for an empty name.
fn parse_dim_param(text: &str) -> Option<Dim> {
    let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    if text.is_empty() || text == "?" {
        return None;
    }
    let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "_.+-*/()".contains(c));
    if plain && let Some(dim) = Dim::parse(&text) {
        // A dim_param that is a number is a symbol with that name.
        if dim.as_known().is_none() {
            return Some(dim);
        }
    }
    Some(Dim::symbol(&symbol_name(&text)))
}

/// Returns a symbol for an input's axis whose size has no name: the input's name and the axis number.
pub(super) fn unnamed_axis(input: &str, axis: usize) -> String {
    symbol_name(&format!("{input}_{axis}"))
}

/// Replaces the characters of a name that a symbol's name must not contain by `_`.
fn symbol_name(name: &str) -> String {
    let mut out: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '.' { c } else { '_' })
        .collect();
    if out.chars().next().is_none_or(|c| c.is_ascii_digit()) {
        out.insert(0, '_');
    }
    out
}
