//! Element types of arrays in the caller's memory and in device buffers.

use serde::{Deserialize, Serialize};

/// Element type in the caller's memory: every plain ONNX number type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum HostType {
    F32,
    F16,
    Bf16,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    /// Bool: one byte, 0 or 1.
    Bool,
}

/// Element type in a device buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DeviceType {
    F32,
    F16,
    I32,
    /// Unsigned 32-bit integer, which also stores a bool as 0 or 1.
    U32,
    /// Signed 8-bit integer.
    I8,
    /// Unsigned 8-bit integer.
    U8,
}

impl HostType {
    /// Bytes per element.
    pub fn size(self) -> u64 {
        match self {
            HostType::I8 | HostType::U8 | HostType::Bool => 1,
            HostType::F16 | HostType::Bf16 | HostType::I16 | HostType::U16 => 2,
            HostType::F32 | HostType::I32 | HostType::U32 => 4,
            HostType::F64 | HostType::I64 | HostType::U64 => 8,
        }
    }

    /// Returns the name of the element type, such as `f32`.
    pub fn name(self) -> &'static str {
        match self {
            HostType::F32 => "f32",
            HostType::F16 => "f16",
            HostType::Bf16 => "bf16",
            HostType::F64 => "f64",
            HostType::I8 => "i8",
            HostType::I16 => "i16",
            HostType::I32 => "i32",
            HostType::I64 => "i64",
            HostType::U8 => "u8",
            HostType::U16 => "u16",
            HostType::U32 => "u32",
            HostType::U64 => "u64",
            HostType::Bool => "bool",
        }
    }

    /// True if values of this host type can be stored as the device type `device`: floats as floats, integers and bool as
    /// integers.
    pub fn fits(self, device: DeviceType) -> bool {
        let float = matches!(self, HostType::F32 | HostType::F16 | HostType::Bf16 | HostType::F64);
        float == matches!(device, DeviceType::F32 | DeviceType::F16)
    }
}

impl DeviceType {
    /// Bytes per element.
    pub fn size(self) -> u64 {
        match self {
            DeviceType::I8 | DeviceType::U8 => 1,
            DeviceType::F16 => 2,
            DeviceType::F32 | DeviceType::I32 | DeviceType::U32 => 4,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            DeviceType::F32 => "f32",
            DeviceType::F16 => "f16",
            DeviceType::I32 => "i32",
            DeviceType::U32 => "u32",
            DeviceType::I8 => "i8",
            DeviceType::U8 => "u8",
        }
    }
}

impl std::fmt::Display for HostType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::fmt::Display for DeviceType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
