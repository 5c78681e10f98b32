//! What a shader binds: tensors in the way an access needs, and repacked constants where the target prefers weights.

use super::access::Access;
use super::hooks::Shader;
use super::launch::{Binding, Bound, Need};
use super::pack::Packed;
use super::problem::Operand;
use super::resource::{Held, Resource};
use crate::ir::storage::Storage;
use crate::ir::tensor::DeviceType;
use crate::target::WeightStorage;

impl Shader<'_> {
    /// Adds a binding and returns the name of its buffer.
    pub fn bind(&mut self, bound: Bound, element: &str, writable: bool) -> String {
        self.bind_as(bound, Resource::Buffer, element, writable)
    }

    /// Adds a binding of any kind, of elements or, for what is no buffer, of the type `element`.
    pub(super) fn bind_as(
        &mut self,
        bound: Bound,
        resource: Resource,
        element: &str,
        writable: bool,
    ) -> String {
        // A buffer read twice as the same type needs one binding.
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

    /// Binds a tensor in the way that an access needs.
    pub(super) fn hold(&mut self, tensor: &Operand<'_>, bound: Bound, how: &Access, writable: bool) -> Held {
        if let Some(codes) = &tensor.codes {
            let name = self.bind(bound, "vec4<u32>", writable);
            self.element_of_codes(&codes.form, &name);
            return Held { name, resource: Resource::Buffer, codes: true };
        }
        let device = tensor.dtype.on_device();
        let resource = Resource::of(tensor, writable);
        let element = match resource.declared(writable) {
            Some(ty) => ty,
            None if how.is_vector() => format!("vec4<{}>", device.wgsl()),
            None => device.wgsl().to_string(),
        };
        Held { name: self.bind_as(bound, resource, &element, writable), resource, codes: false }
    }

    /// Adds a repacked constant and returns what it is bound to.
    pub fn packed(&mut self, packed: Packed) -> Bound {
        self.packed.push(packed);
        Bound::Packed(self.packed.len() - 1)
    }

    /// Binds a repacked constant: in a texture if `Some` extents are returned.
    fn hold_packed(&mut self, packed: Packed, storage: WeightStorage) -> (Held, Option<[u32; 3]>) {
        let extent = match storage {
            WeightStorage::Buffer => None,
            WeightStorage::Texture2d | WeightStorage::FourTextures2d => {
                packed.texture(self.problem.target.limits.max_texture_2d)
            }
        };
        let device = packed.device;
        let bound = self.packed(packed);
        let resource = match extent {
            Some(_) => Resource::Texture(Storage::Texture2d, device),
            None => Resource::Buffer,
        };
        let element = resource.declared(false).unwrap_or_else(|| format!("vec4<{}>", device.wgsl()));
        (Held { name: self.bind_as(bound, resource, &element, false), resource, codes: false }, extent)
    }

    /// Binds a repacked constant where the target prefers weights, and returns the expression of its vector `index`.
    pub fn packed_vector(&mut self, packed: Packed, index: &str) -> String {
        self.packed_vector_in(packed, index, self.problem.target.prefer.storage.weights)
    }

    /// The same in a storage of the kernel's choice.
    pub fn packed_vector_in(&mut self, packed: Packed, index: &str, storage: WeightStorage) -> String {
        let (held, extent) = self.hold_packed(packed, storage);
        match extent {
            Some([width, ..]) => held.load(&format!("vec2<u32>({index} % {width}u, {index} / {width}u)")),
            None => held.load(index),
        }
    }

    /// The same for a constant whose order has rows, with the vector's place in its row.
    pub fn packed_grid(&mut self, packed: Packed, row: &str, column: &str) -> String {
        let width = packed.columns().unwrap_or(1);
        let (held, extent) = self.hold_packed(packed, self.problem.target.prefer.storage.weights);
        match extent {
            Some(_) => held.load(&format!("vec2<u32>({column}, {row})")),
            None => held.load(&format!("({row}) * {width}u + {column}")),
        }
    }

    /// Binds a constant that lies in four objects as four textures, and returns the expression of each one's vector at
    /// coordinates. Nothing is bound and `None` returned where the target does not prefer that or they do not fit.
    pub fn packed_textures(&mut self, parts: Vec<Packed>, at: &str) -> Option<Vec<String>> {
        let target = self.problem.target;
        let fits = |part: &Packed| part.texture(target.limits.max_texture_2d).is_some();
        if target.prefer.storage.weights != WeightStorage::FourTextures2d || !parts.iter().all(fits) {
            return None;
        }
        let bind = |part: Packed| {
            let resource = Resource::Texture(Storage::Texture2d, part.device);
            let bound = self.packed(part);
            let name = self.bind_as(bound, resource, &resource.declared(false).unwrap_or_default(), false);
            format!("textureLoad({name}, {at}, 0)")
        };
        Some(parts.into_iter().map(bind).collect())
    }

    /// Binds a repacked float constant as a uniform buffer, and returns the expression of its vector `index` in f32.
    pub fn uniform_vector(&mut self, packed: Packed, index: &str) -> String {
        let (half, vectors) = (packed.device == DeviceType::F16, packed.bytes() / 16);
        let bound = self.packed(packed);
        let resource = Resource::Uniform(u32::try_from(vectors).unwrap_or(u32::MAX));
        // Elements of a uniform buffer take multiples of 16 bytes: two vectors of f16.
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
