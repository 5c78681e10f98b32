//! Bindings of a shader: tensors with the element type that an access needs, and packed constants in the storage that
//! the target prefers for weights.

use super::access::Access;
use super::hooks::Shader;
use super::launch::{Binding, Bound, Need};
use super::pack::Packed;
use super::problem::Operand;
use super::resource::Resource;
use super::variable::{BoundVariable, Elements};
use crate::ir::storage::Storage;
use crate::ir::tensor::DeviceType;
use crate::target::WeightStorage;

impl Shader<'_> {
    /// Binds a memory object (`bound`) as a storage buffer with elements of WGSL type `element`, and returns the name of the WGSL
    /// variable.
    pub fn bind(&mut self, bound: Bound, element: &str, writable: bool) -> String {
        self.bind_as(bound, Resource::Buffer, element, writable)
    }

    /// Adds a binding of any resource kind and returns the name of its WGSL variable. `element` is the WGSL type of the
    /// elements of a buffer, or the type of the whole variable for textures.
    pub(super) fn bind_as(
        &mut self,
        bound: Bound,
        resource: Resource,
        element: &str,
        writable: bool,
    ) -> String {
        // A buffer that is read twice with one element type needs one binding.
        let known = self.bindings.iter().zip(&self.elements).position(|(binding, known)| {
            binding.bound == bound && known == element && !writable && !binding.writable
        });
        if let Some(index) = known {
            return format!("buffer_{index}");
        }
        let index = self.bindings.len();
        self.elements.push(element.to_string());
        self.bindings.push(Binding { bound, resource, writable });
        let mode = if writable { "read_write" } else { "read" };
        let name = format!("buffer_{index}");
        self.extra += &match resource {
            Resource::Buffer => {
                format!("@group(0) @binding({index}) var<storage, {mode}> {name}: array<{element}>;\n")
            }
            Resource::Uniform(vectors) => {
                format!("@group(0) @binding({index}) var<uniform> {name}: array<{element}, {vectors}>;\n")
            }
            _ => format!("@group(0) @binding({index}) var {name}: {element};\n"),
        };
        if resource == Resource::Buffer && element.contains("f16") {
            self.needs(&[Need::F16]);
        }
        name
    }

    /// Binds a tensor as a WGSL variable with the element type that an access needs.
    pub(super) fn bind_tensor(
        &mut self,
        tensor: &Operand<'_>,
        bound: Bound,
        access: &Access,
        writable: bool,
    ) -> BoundVariable {
        if let Some(quantized) = &tensor.quantized {
            let name = self.bind(bound, "vec4<u32>", writable);
            self.add_element_function(&quantized.panels, &name);
            return BoundVariable { name, resource: Resource::Buffer, elements: Elements::Quantized };
        }
        let device = tensor.dtype.on_device();
        let resource = Resource::from_operand(tensor, writable);
        let elements = Elements::new(resource, device);
        if let Elements::Bytes { signed } = elements {
            return self.bind_bytes(bound, access, writable, signed);
        }
        let element = match resource.declared(writable) {
            Some(ty) => ty,
            None if access.is_vector() => format!("vec4<{}>", device.wgsl()),
            None => device.wgsl().to_string(),
        };
        BoundVariable { name: self.bind_as(bound, resource, &element, writable), resource, elements }
    }

    /// Binds a buffer of 8-bit integers, with the function that an access to single elements calls.
    fn bind_bytes(&mut self, bound: Bound, access: &Access, writable: bool, signed: bool) -> BoundVariable {
        let whole_words = matches!(access, Access::Vector { .. });
        let element = if writable && !whole_words { "atomic<u32>" } else { "u32" };
        let (resource, elements) = (Resource::Buffer, Elements::Bytes { signed });
        let variable =
            BoundVariable { name: self.bind_as(bound, resource, element, writable), resource, elements };
        let function = match writable {
            true => variable.set_function(signed),
            false => variable.element_function(signed),
        };
        if !whole_words && !self.extra.contains(&function) {
            self.extra += &function;
        }
        variable
    }

    /// Adds a packed constant to the launch, and returns it as a memory object that can be bound.
    pub fn packed(&mut self, packed: Packed) -> Bound {
        self.packed.push(packed);
        Bound::Packed(self.packed.len() - 1)
    }

    /// Binds a packed constant as a WGSL variable. Also returns the extents of the texture if the constant is in a texture.
    fn bind_packed(&mut self, packed: Packed, storage: WeightStorage) -> (BoundVariable, Option<[u32; 3]>) {
        let extent = match storage {
            WeightStorage::Buffer => None,
            WeightStorage::Texture2d | WeightStorage::FourTextures2d => {
                packed.texture_extent(self.problem.target.limits.max_texture_2d)
            }
        };
        let device = packed.device;
        let bound = self.packed(packed);
        let resource = match extent {
            Some(_) => Resource::Texture(Storage::Texture2d, device),
            None => Resource::Buffer,
        };
        let elements = Elements::new(resource, device);
        let element = match (resource.declared(false), elements) {
            (Some(ty), _) => ty,
            (None, Elements::Bytes { .. }) => "u32".to_string(),
            (None, _) => format!("vec4<{}>", device.wgsl()),
        };
        let name = self.bind_as(bound, resource, &element, false);
        (BoundVariable { name, resource, elements }, extent)
    }

    /// Binds a packed constant in the storage that the target prefers for weights, and returns the WGSL expression that
    /// loads its vec4 with index `index`.
    pub fn packed_vector(&mut self, packed: Packed, index: &str) -> String {
        self.packed_vector_in(packed, index, self.problem.target.prefer.storage.weights)
    }

    /// Like [`Shader::packed_vector`], for a storage kind that the kernel chooses.
    pub fn packed_vector_in(&mut self, packed: Packed, index: &str, storage: WeightStorage) -> String {
        let (variable, extent) = self.bind_packed(packed, storage);
        match extent {
            Some([width, ..]) => {
                variable.load_vector(&format!("vec2<u32>({index} % {width}u, {index} / {width}u)"))
            }
            None => variable.load_vector(index),
        }
    }

    /// Like [`Shader::packed_vector`], for a packing order that is divided into rows. `row` and `column` are the
    /// position of the vec4.
    pub fn packed_vector_at(&mut self, packed: Packed, row: &str, column: &str) -> String {
        let width = packed.vec4s_per_row().unwrap_or(1);
        let (variable, extent) = self.bind_packed(packed, self.problem.target.prefer.storage.weights);
        match extent {
            Some(_) => variable.load_vector(&format!("vec2<u32>({column}, {row})")),
            None => variable.load_vector(&format!("({row}) * {width}u + {column}")),
        }
    }

    /// Binds a constant that is split into four textures, and returns for each texture the WGSL expression that loads
    /// the texel at `at`. Returns `None` and binds nothing if the target prefers another weight storage or a texture
    /// would be too large.
    pub fn packed_in_four_textures(&mut self, textures: Vec<Packed>, at: &str) -> Option<Vec<String>> {
        let target = self.problem.target;
        let fits = |texture: &Packed| texture.texture_extent(target.limits.max_texture_2d).is_some();
        if target.prefer.storage.weights != WeightStorage::FourTextures2d || !textures.iter().all(fits) {
            return None;
        }
        let bind = |texture: Packed| {
            let resource = Resource::Texture(Storage::Texture2d, texture.device);
            let bound = self.packed(texture);
            let name = self.bind_as(bound, resource, &resource.declared(false).unwrap_or_default(), false);
            format!("textureLoad({name}, {at}, 0)")
        };
        Some(textures.into_iter().map(bind).collect())
    }

    /// Binds a packed float constant as a uniform buffer, and returns the WGSL expression of its vec4 with index
    /// `index`, converted to f32.
    pub fn uniform_vector(&mut self, packed: Packed, index: &str) -> String {
        let (half, vectors) = (packed.device == DeviceType::F16, packed.bytes() / 16);
        let bound = self.packed(packed);
        let resource = Resource::Uniform(u32::try_from(vectors).unwrap_or(u32::MAX));
        // The array stride of a uniform buffer is a multiple of 16 bytes, so one element holds two vec4 of f16.
        let name = self.bind_as(bound, resource, if half { "vec4<u32>" } else { "vec4<f32>" }, false);
        if !half {
            return format!("{name}[{index}]");
        }
        self.extra += &format!(
            "fn {name}_half(i: u32) -> vec4<f32> {{\n    let pair = {name}[i / 2u];\n    let bits = select(pair.xy, pair.zw, i % 2u == 1u);\n    return vec4<f32>(unpack2x16float(bits.x), unpack2x16float(bits.y));\n}}\n"
        );
        format!("{name}_half({index})")
    }
}
