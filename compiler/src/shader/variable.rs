//! WGSL variables that are bound to memory objects: loads and stores of their elements.
//!
//! WGSL has no 8-bit integers. A buffer of them is an array of words, each with four elements, the first in the lowest
//! bits. A vec4 of 8-bit elements is one word. A store of a single element changes one byte of its word by atomic
//! operations, because other invocations may store the other bytes.

use super::resource::Resource;
use crate::ir::tensor::DeviceType;

/// Kind of the elements of a bound memory object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Elements {
    /// Numbers of a WGSL type, or texels.
    Plain,
    /// Quantized values in panels, which the WGSL function `NAME_element` dequantizes.
    Quantized,
    /// 8-bit integers, four in a word.
    Bytes {
        /// True for signed integers.
        signed: bool,
    },
}

impl Elements {
    /// Returns what the elements of a memory object with a resource kind and an element type are. Texel formats have
    /// 8-bit integers, so only buffers need words.
    pub fn new(resource: Resource, device: DeviceType) -> Self {
        match (resource, device) {
            (Resource::Buffer, DeviceType::I8) => Self::Bytes { signed: true },
            (Resource::Buffer, DeviceType::U8) => Self::Bytes { signed: false },
            _ => Self::Plain,
        }
    }
}

/// A WGSL variable that is bound to a memory object.
#[derive(Debug, Clone)]
pub struct BoundVariable {
    /// Name of the WGSL variable.
    pub name: String,
    /// Kind of the bound memory object.
    pub resource: Resource,
    /// Kind of the elements of the memory object.
    pub elements: Elements,
}

impl BoundVariable {
    /// Returns the WGSL expression that loads the vec4 at an index of a buffer of vectors, or the texel at coordinates.
    pub fn load_vector(&self, index: &str) -> String {
        match (self.resource, self.elements) {
            (_, Elements::Bytes { signed: true }) => format!("unpack4xI8({}[{index}])", self.name),
            (_, Elements::Bytes { signed: false }) => format!("unpack4xU8({}[{index}])", self.name),
            (Resource::Buffer | Resource::Uniform(_), _) => format!("{}[{index}]", self.name),
            _ => format!("textureLoad({}, {index}, 0)", self.name),
        }
    }

    /// Returns the WGSL expression that loads the element at an index of a buffer of scalars.
    pub fn load_element(&self, index: &str) -> String {
        match self.elements {
            Elements::Quantized | Elements::Bytes { .. } => format!("{}_element({index})", self.name),
            Elements::Plain => format!("{}[{index}]", self.name),
        }
    }

    /// Returns the WGSL expression that loads component `lane` of the vec4 at an index, or of the texel at coordinates.
    pub fn load_component(&self, index: &str, lane: &str) -> String {
        match self.elements {
            Elements::Bytes { .. } => self.load_element(&format!("({index}) * 4u + {lane}")),
            _ => format!("{}[{lane}]", self.load_vector(index)),
        }
    }

    /// Returns the WGSL statement that stores a vec4 or a texel.
    pub fn store_vector(&self, index: &str, value: &str) -> String {
        match (self.resource, self.elements) {
            (_, Elements::Bytes { signed: true }) => {
                format!("    {}[{index}] = pack4xI8({value});\n", self.name)
            }
            (_, Elements::Bytes { signed: false }) => {
                format!("    {}[{index}] = pack4xU8({value});\n", self.name)
            }
            (Resource::Buffer, _) => format!("    {}[{index}] = {value};\n", self.name),
            _ => format!("    textureStore({}, {index}, {value});\n", self.name),
        }
    }

    /// Returns the WGSL statement that stores the element at an index of a buffer of scalars.
    pub fn store_element(&self, index: &str, value: &str) -> String {
        match self.elements {
            Elements::Bytes { .. } => format!("{}_set({index}, {value});", self.name),
            _ => format!("{}[{index}] = {value};", self.name),
        }
    }

    /// Returns the WGSL statement that stores component `lane` of the vec4 at an index of a buffer.
    pub fn store_component(&self, index: &str, lane: &str, value: &str) -> String {
        match self.elements {
            Elements::Bytes { .. } => self.store_element(&format!("({index}) * 4u + {lane}"), value),
            _ => format!("{}[{index}][{lane}] = {value};", self.name),
        }
    }

    /// Returns the WGSL function that [`Self::load_element`] calls for 8-bit integers.
    pub fn element_function(&self, signed: bool) -> String {
        let (name, ty) = (&self.name, if signed { "i32" } else { "u32" });
        format!(
            "fn {name}_element(i: u32) -> {ty} {{ return extractBits({ty}({name}[i / 4u]), i % 4u * 8u, 8u); }}\n"
        )
    }

    /// Returns the WGSL function that [`Self::store_element`] calls for 8-bit integers.
    pub fn set_function(&self, signed: bool) -> String {
        let (name, ty) = (&self.name, if signed { "i32" } else { "u32" });
        format!(
            "fn {name}_set(i: u32, v: {ty}) {{\n    let shift = i % 4u * 8u;\n    atomicAnd(&{name}[i / 4u], ~(0xffu << shift));\n    atomicOr(&{name}[i / 4u], (u32(v) & 0xffu) << shift);\n}}\n"
        )
    }
}
