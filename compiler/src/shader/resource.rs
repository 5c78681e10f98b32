//! Memory objects as shaders see them: how each is declared, read and written.

use super::problem::{Operand, Placement};
use crate::ir::storage::Storage;
use crate::ir::tensor::DeviceType;

/// What a binding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// A storage buffer, or the uniform block of sizes.
    Buffer,
    /// A uniform buffer of so many vectors of 16 bytes.
    Uniform(u32),
    /// A buffer that is read as texels of this element type.
    Texels(DeviceType),
    /// A texture of texels of this element type.
    Texture(Storage, DeviceType),
}

impl Resource {
    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Buffer => Storage::Buffer.name(),
            Self::Uniform(_) => "uniform-buffer",
            Self::Texels(_) => Storage::TexelBuffer.name(),
            Self::Texture(storage, _) => storage.name(),
        }
    }

    /// What a tensor is bound as. What is read as texels is written as a buffer.
    pub fn of(tensor: &Operand<'_>, writable: bool) -> Self {
        let device = tensor.dtype.on_device();
        match tensor.storage {
            _ if tensor.placement != Placement::Slices4 => Self::Buffer,
            Storage::Buffer => Self::Buffer,
            Storage::TexelBuffer if writable => Self::Buffer,
            Storage::TexelBuffer => Self::Texels(device),
            storage => Self::Texture(storage, device),
        }
    }

    /// The type of its variable; `None` for a buffer, whose type depends on the access. The shading language has no
    /// texel buffers: a texture of one dimension stands for one until the module is emitted.
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
    /// The WGSL scalar of texels of such elements.
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
pub struct Held {
    /// Its name.
    pub name: String,
    /// What it is.
    pub resource: Resource,
    /// Whether it holds codes, of which a function makes elements.
    pub codes: bool,
}

impl Held {
    /// The element, vector or texel at an index or coordinates.
    pub fn load(&self, index: &str) -> String {
        match self.resource {
            _ if self.codes => format!("{}_element({index})", self.name),
            Resource::Buffer | Resource::Uniform(_) => format!("{}[{index}]", self.name),
            _ => format!("textureLoad({}, {index}, 0)", self.name),
        }
    }

    /// The statement that stores a vector or texel.
    pub fn store(&self, index: &str, value: &str) -> String {
        match self.resource {
            Resource::Buffer => format!("    {}[{index}] = {value};\n", self.name),
            _ => format!("    textureStore({}, {index}, {value});\n", self.name),
        }
    }
}
