//! WGSL of memory objects (buffers and textures): kinds and declarations.

use super::problem::{Operand, Placement};
use crate::ir::storage::Storage;
use crate::ir::tensor::DeviceType;

/// Kind of the memory object that a binding refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// A storage buffer, or the uniform block of sizes.
    Buffer,
    /// A uniform buffer with this number of 16-byte vectors.
    Uniform(u32),
    /// A texel buffer that the shader reads, with this element type.
    Texels(DeviceType),
    /// A texture with this storage kind and element type.
    Texture(Storage, DeviceType),
}

impl Resource {
    /// Returns the name of the resource kind for messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Buffer => Storage::Buffer.name(),
            Self::Uniform(_) => "uniform-buffer",
            Self::Texels(_) => Storage::TexelBuffer.name(),
            Self::Texture(storage, _) => storage.name(),
        }
    }

    /// Returns the resource kind with which a tensor is bound. A shader that writes a texel buffer binds it as a
    /// storage buffer.
    pub fn from_operand(tensor: &Operand<'_>, writable: bool) -> Self {
        let device = tensor.dtype.on_device();
        match tensor.storage {
            _ if tensor.placement != Placement::Slices4 => Self::Buffer,
            Storage::Buffer => Self::Buffer,
            Storage::TexelBuffer if writable => Self::Buffer,
            Storage::TexelBuffer => Self::Texels(device),
            storage => Self::Texture(storage, device),
        }
    }

    /// Returns the WGSL type of a variable with this resource kind. Returns `None` for a buffer, whose type depends on
    /// the access. WGSL has no texel buffers, so a 1-D texture stands for one until SPIR-V is emitted.
    pub fn declared(self, writable: bool) -> Option<String> {
        let (name, device) = match self {
            Self::Buffer | Self::Uniform(_) => return None,
            Self::Texels(device) => ("1d", device),
            Self::Texture(Storage::TextureArray, device) => ("2d_array", device),
            Self::Texture(Storage::Texture3d, device) => ("3d", device),
            Self::Texture(_, device) => ("2d", device),
        };
        Some(match writable {
            false => format!("texture_{name}<{}>", device.texel()),
            true => format!("texture_storage_{name}<{}, write>", texel_format(device)),
        })
    }
}

fn texel_format(device: DeviceType) -> &'static str {
    match device {
        DeviceType::F32 => "rgba32float",
        DeviceType::F16 => "rgba16float",
        DeviceType::I32 => "rgba32sint",
        DeviceType::U32 => "rgba32uint",
        DeviceType::I8 => "rgba8sint",
        DeviceType::U8 => "rgba8uint",
    }
}

impl DeviceType {
    /// Returns the WGSL scalar type of a texel's components.
    pub fn texel(self) -> &'static str {
        match self {
            Self::F16 | Self::F32 => "f32",
            Self::I32 | Self::I8 => "i32",
            Self::U32 | Self::U8 => "u32",
        }
    }
}
