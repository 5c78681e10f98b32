//! Conversion of types and matrix shapes to the bundle format.

use drift_format as format;

use crate::ir::tensor::{DType, DeviceType};
use crate::target::{MatrixScope, MatrixShape, MatrixType};

pub(super) fn matrix_shape(shape: &MatrixShape) -> format::MatrixShape {
    let c = matrix_type(shape.c);
    format::MatrixShape {
        m: shape.m,
        n: shape.n,
        k: shape.k,
        a: matrix_type(shape.a),
        b: matrix_type(shape.b),
        c,
        result: c,
        scope: match shape.scope {
            MatrixScope::Subgroup => format::MatrixScope::Subgroup,
            MatrixScope::Workgroup => format::MatrixScope::Workgroup,
        },
        saturating: false,
    }
}

fn matrix_type(element: MatrixType) -> format::MatrixType {
    match element {
        MatrixType::F16 => format::MatrixType::F16,
        MatrixType::Bf16 => format::MatrixType::Bf16,
        MatrixType::F32 => format::MatrixType::F32,
        MatrixType::I8 => format::MatrixType::I8,
        MatrixType::U8 => format::MatrixType::U8,
        MatrixType::I32 => format::MatrixType::I32,
        MatrixType::U32 => format::MatrixType::U32,
    }
}

pub(crate) fn host_type(dtype: DType) -> format::HostType {
    match dtype {
        DType::F32 => format::HostType::F32,
        DType::F16 => format::HostType::F16,
        DType::Bf16 => format::HostType::Bf16,
        DType::F64 => format::HostType::F64,
        DType::I8 => format::HostType::I8,
        DType::I16 => format::HostType::I16,
        DType::I32 => format::HostType::I32,
        DType::I64 => format::HostType::I64,
        DType::U8 => format::HostType::U8,
        DType::U16 => format::HostType::U16,
        DType::U32 => format::HostType::U32,
        DType::U64 => format::HostType::U64,
        DType::Bool => format::HostType::Bool,
    }
}

pub(crate) fn device_type(device: DeviceType) -> format::DeviceType {
    match device {
        DeviceType::F32 => format::DeviceType::F32,
        DeviceType::F16 => format::DeviceType::F16,
        DeviceType::I32 => format::DeviceType::I32,
        DeviceType::U32 => format::DeviceType::U32,
        DeviceType::I8 => format::DeviceType::I8,
        DeviceType::U8 => format::DeviceType::U8,
    }
}
