//! Memory objects in WGSL: declarations, loads and stores.

use super::problem::{Operand, Placement};
use crate::ir::storage::Storage;
use crate::ir::tensor::DeviceType;

/// Kind of memory object of a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// Storage buffer, or the uniform block of sizes.
    Buffer,
    /// Uniform buffer with this number of 16-byte vectors.
    Uniform(u32),
    /// Texel buffer that the shader reads.
    Texels(DeviceType),
    /// Texture with this element type.
    Texture(Storage, DeviceType),
}

impl Resource {
    /// Name for messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Buffer => Storage::Buffer.name(),
            Self::Uniform(_) => "uniform-buffer",
            Self::Texels(_) => Storage::TexelBuffer.name(),
            Self::Texture(storage, _) => storage.name(),
        }
    }

    /// Returns the kind of a tensor's binding. Texel buffers are written as storage buffers.
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

    /// WGSL type of the variable. Returns `None` for a buffer, whose type depends on the access. WGSL has no texel
    /// buffers, so a 1-D texture stands for one until SPIR-V is emitted.
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
        DeviceType::U32 | DeviceType::Byte => "rgba32uint",
    }
}

impl DeviceType {
    /// WGSL scalar type of a texel's components.
    pub fn texel(self) -> &'static str {
        match self {
            Self::F16 | Self::F32 => "f32",
            Self::I32 => "i32",
            Self::U32 | Self::Byte => "u32",
        }
    }
}

/// A bound variable.
#[derive(Debug, Clone)]
pub struct BoundVariable {
    /// Name of the variable.
    pub name: String,
    /// Kind of memory object.
    pub resource: Resource,
    /// True if it holds quantized values, which the function `NAME_element` dequantizes.
    pub quantized: bool,
}

impl BoundVariable {
    /// Returns the expression of the element, vector or texel at an index or coordinates.
    pub fn load(&self, index: &str) -> String {
        match self.resource {
            _ if self.quantized => format!("{}_element({index})", self.name),
            Resource::Buffer | Resource::Uniform(_) => format!("{}[{index}]", self.name),
            _ => format!("textureLoad({}, {index}, 0)", self.name),
        }
    }

    /// Returns the statement that stores a vector or texel.
    pub fn store(&self, index: &str, value: &str) -> String {
        match self.resource {
            Resource::Buffer => format!("    {}[{index}] = {value};\n", self.name),
            _ => format!("    textureStore({}, {index}, {value});\n", self.name),
        }
    }
}
