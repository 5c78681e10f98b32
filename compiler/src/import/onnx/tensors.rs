//! Tensors of the model file: element types, inline data and external data.

use bytes::Bytes;

use super::refused::Refused;
use super::schema::TensorProto;
use super::schema::tensor_proto::{DataLocation, DataType};
use super::source::Source;
use crate::content::Content;
use crate::ir::array::Array;
use crate::ir::op::Constant;
use crate::ir::tensor::{DType, MAX_ELEMENTS, MAX_RANK};

/// Returns the element type that has the given number in ONNX's enum `DataType`.
pub(super) fn dtype(number: i32) -> Result<DType, Refused> {
    let Ok(kind) = DataType::try_from(number) else {
        return Err(Refused::new(format!("element type number {number} is not defined by ONNX")));
    };
    Ok(match kind {
        DataType::Float => DType::F32,
        DataType::Float16 => DType::F16,
        DataType::Bfloat16 => DType::Bf16,
        DataType::Double => DType::F64,
        DataType::Int8 => DType::I8,
        DataType::Int16 => DType::I16,
        DataType::Int32 => DType::I32,
        DataType::Int64 => DType::I64,
        DataType::Uint8 => DType::U8,
        DataType::Uint16 => DType::U16,
        DataType::Uint32 => DType::U32,
        DataType::Uint64 => DType::U64,
        DataType::Bool => DType::Bool,
        other => {
            return Err(Refused::new(format!("element type {} is not supported", other.as_str_name())));
        }
    })
}

/// A 4-bit integer tensor. A byte holds two values, the first in the low half.
#[derive(Debug, Clone)]
pub(super) struct Int4Tensor {
    pub(super) shape: Vec<usize>,
    /// True for INT4 (-8 to 7), false for UINT4 (0 to 15).
    pub(super) signed: bool,
    pub(super) bytes: Content,
}

impl Int4Tensor {
    /// Returns the reason with which most operators refuse a 4-bit tensor.
    pub(super) fn refusal(&self) -> String {
        let name = if self.signed { "INT4" } else { "UINT4" };
        format!(
            "element type {name} is only supported for constant weights of DequantizeLinear and \
             GatherBlockQuantized"
        )
    }
}

/// A tensor that was read from the model file.
#[derive(Debug)]
pub(super) enum Tensor {
    /// A tensor that the graph can represent.
    Constant(Constant),
    /// A 4-bit integer tensor.
    Int4(Int4Tensor),
    /// A tensor with an unsupported element type, with the reason.
    Unsupported(String),
}

/// Reads a tensor. Raw and external data are not copied.
///
/// # Errors
/// Fails if the tensor is malformed.
pub(super) fn read(tensor: &TensorProto, source: &Source) -> Result<Tensor, Refused> {
    let number = tensor.data_type.unwrap_or(0);
    if number == DataType::Undefined as i32 {
        return Err(Refused::new("the tensor has no element type"));
    }
    if tensor.segment.is_some() {
        return Err(Refused::new("segmented tensors are not supported"));
    }
    let shape = shape(tensor)?;
    let external = tensor.data_location == Some(DataLocation::External as i32);
    if number == DataType::Uint4 as i32 || number == DataType::Int4 as i32 {
        let signed = number == DataType::Int4 as i32;
        let size = shape.iter().product::<usize>().div_ceil(2);
        let bytes: Content = if external {
            source.external(&tensor.external_data, size)?
        } else if let Some(raw) = &tensor.raw_data {
            raw.clone().into()
        } else {
            // Each int32 holds one byte with two values.
            tensor.int32_data.iter().map(|v| *v as u8).collect::<Vec<u8>>().into()
        };
        if bytes.len() != size {
            return Err(Refused::new(format!(
                "the tensor's data has {} bytes, which does not match the shape {shape:?} of 4-bit values",
                bytes.len()
            )));
        }
        return Ok(Tensor::Int4(Int4Tensor { shape, signed, bytes }));
    }
    let dtype = match dtype(number) {
        Ok(dtype) => dtype,
        Err(reason) => {
            if number == DataType::String as i32 && (tensor.raw_data.is_some() || external) {
                return Err(Refused::new("strings cannot be stored as raw data"));
            }
            return Ok(Tensor::Unsupported(reason.reason));
        }
    };
    let bytes = if external {
        let n = shape.iter().product::<usize>().saturating_mul(dtype.bytes());
        source.external(&tensor.external_data, n)?
    } else if let Some(raw) = &tensor.raw_data {
        raw.clone().into()
    } else {
        typed_bytes(tensor, dtype)?.into()
    };
    Ok(Tensor::Constant(Constant::new(dtype, shape, bytes)?))
}

/// Returns the elements of a tensor without external data, such as an attribute.
pub(super) fn inline(tensor: &TensorProto) -> Result<Array, Refused> {
    match read(tensor, &Source::none())? {
        Tensor::Constant(constant) => Ok(constant.to_array()?),
        Tensor::Int4(tensor) => Err(Refused::new(tensor.refusal())),
        Tensor::Unsupported(reason) => Err(Refused::new(reason)),
    }
}

fn shape(tensor: &TensorProto) -> Result<Vec<usize>, Refused> {
    if tensor.dims.len() > MAX_RANK {
        return Err(Refused::new(format!(
            "the tensor's rank is {}; at most {MAX_RANK} is supported",
            tensor.dims.len()
        )));
    }
    let mut elements = 1i64;
    let mut shape = Vec::with_capacity(tensor.dims.len());
    for d in &tensor.dims {
        elements = elements.saturating_mul((*d).max(1));
        shape.push(
            usize::try_from(*d).map_err(|_| Refused::new(format!("the tensor's size {d} is negative")))?,
        );
    }
    if elements > MAX_ELEMENTS {
        return Err(Refused::new(format!("the tensor has more than {MAX_ELEMENTS} elements, the maximum")));
    }
    Ok(shape)
}

/// Returns the data of a `TensorProto` that is stored in typed fields, as little-endian bytes.
fn typed_bytes(tensor: &TensorProto, dtype: DType) -> Result<Bytes, Refused> {
    let bytes: Vec<u8> = match dtype {
        DType::F32 => tensor.float_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        DType::F64 => tensor.double_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        DType::I64 => tensor.int64_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        DType::U64 => tensor.uint64_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        DType::U32 => tensor.uint64_data.iter().flat_map(|v| (*v as u32).to_le_bytes()).collect(),
        DType::I32 => tensor.int32_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        // Each int32 holds the bits of one element, also for f16 and bf16.
        DType::I16 | DType::U16 | DType::F16 | DType::Bf16 => {
            tensor.int32_data.iter().flat_map(|v| (*v as u16).to_le_bytes()).collect()
        }
        DType::I8 | DType::U8 => tensor.int32_data.iter().map(|v| *v as u8).collect(),
        DType::Bool => tensor.int32_data.iter().map(|v| u8::from(*v != 0)).collect(),
    };
    Ok(bytes.into())
}
