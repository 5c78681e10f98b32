//! What the compiler knows about a device: one [`TargetProfile`], read from TOML, and nothing else.
//!
//! A profile is plain data. Every choice between kernels, layouts and storages follows from its numbers,
//! so no other file names a vendor or a device. Profiles inherit from each other (`inherits = "..."`):
//! the child's values replace its parent's one by one, lists as a whole. `targets/README.md` gives the
//! meaning, the unit and the way to measure each field.

mod builtin;
mod check;
pub mod costs;
mod error;
mod load;
mod probe;
pub mod quirks;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use crate::ir::storage::Storage as StorageKind;
pub use builtin::{BUILTIN, COSTS, names};
use costs::{Costs, Fit};
pub use error::TargetError;
pub use probe::from_device;
use quirks::Fault;

/// A device, or a family of devices, that a bundle can be compiled for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetProfile {
    /// The name by which `-t` finds it; for a built-in profile also the file's stem.
    pub name: String,
    /// The profile this one was derived from. Its values are already merged in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inherits: Option<String>,
    /// One line for `driftc targets list`.
    pub summary: String,
    pub api: Interface,
    /// Which devices the profile is meant for.
    #[serde(default)]
    pub device: DeviceMatch,
    pub limits: Limits,
    pub features: Features,
    pub subgroup: Subgroup,
    /// Matrix shapes that the cooperative-matrix instructions take, best first.
    #[serde(default)]
    pub matrix: Vec<MatrixShape>,
    pub machine: Machine,
    pub prefer: Preferences,
    /// What was found fastest on the device where the cost model is not exact.
    #[serde(default)]
    pub picks: Vec<Pick>,
    /// Parameters of the estimates of kernels, by group.
    #[serde(default)]
    pub costs: Costs,
    /// How good the estimates are; absent where nobody measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fit: Option<Fit>,
    /// Known driver faults to compile around.
    #[serde(default)]
    pub quirks: Vec<Quirk>,
    /// Where each value comes from, by field path (`limits.max_storage_buffers`).
    #[serde(default)]
    pub source: BTreeMap<String, String>,
}

/// The programming interface a bundle is made for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interface {
    pub name: Api,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Api {
    /// Shaders are SPIR-V.
    #[serde(rename = "vulkan")]
    Vulkan,
    /// Shaders are WGSL.
    #[serde(rename = "webgpu")]
    WebGpu,
    /// Shaders are in the Metal shading language.
    #[serde(rename = "metal")]
    Metal,
    /// Shaders are in HLSL.
    #[serde(rename = "directx12")]
    DirectX12,
}

/// How a device is recognised. An empty description matches every device that meets the limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeviceMatch {
    /// The PCI or Khronos vendor number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendor_id: Option<u32>,
    /// The device's name contains one of these, in any case.
    pub names: Vec<String>,
}

/// What the device refuses beyond. Sizes are bytes, everything else is a count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Largest storage buffer binding.
    pub max_storage_buffer_range: u64,
    /// Largest uniform buffer binding.
    pub max_uniform_range: u64,
    /// Largest single memory allocation.
    pub max_allocation: u64,
    /// Storage buffers visible to one shader.
    pub max_storage_buffers: u32,
    /// Uniform buffers visible to one shader.
    pub max_uniform_buffers: u32,
    /// Storage images and storage texel buffers visible to one shader.
    pub max_storage_images: u32,
    /// Sampled images and uniform texel buffers visible to one shader.
    pub max_sampled_images: u32,
    pub max_workgroup_invocations: u32,
    pub max_workgroup_size: [u32; 3],
    pub max_workgroup_count: [u32; 3],
    pub max_workgroup_memory: u32,
    /// Subgroups in one workgroup when the subgroup size is required at pipeline creation.
    pub max_workgroup_subgroups: u32,
    /// Times that one invocation may go round its loops, all of them together; what comes later is not computed.
    pub max_loop_iterations: u32,
    /// Offsets of storage buffer bindings are multiples of this.
    pub storage_buffer_alignment: u32,
    pub uniform_buffer_alignment: u32,
    pub texel_buffer_alignment: u32,
    pub max_texel_buffer_elements: u32,
    /// Longest side of a 2-D image.
    pub max_texture_2d: u32,
    /// Longest side of a 3-D image.
    pub max_texture_3d: u32,
    pub max_texture_layers: u32,
    /// No dispatch may read one part of a buffer and write another.
    pub separate_read_write_buffers: bool,
}

/// What shaders may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Features {
    /// 16-bit float arithmetic.
    pub f16: bool,
    /// 16-bit values in storage buffers.
    pub storage_16: bool,
    /// 8-bit integer arithmetic.
    pub int8: bool,
    /// Four-way 8-bit dot products as one instruction of the shader language.
    pub int_dot_product: bool,
    /// A pipeline can ask for its subgroup size.
    pub subgroup_size_control: bool,
    /// A pipeline can ask for subgroups without holes.
    pub full_subgroups: bool,
    pub subgroup_ops: Vec<SubgroupOp>,
    /// Matrices of the shapes in `matrix`.
    pub cooperative_matrix: bool,
    /// Reads outside of an image return zero, but perhaps one in the last channel.
    pub robust_image_access: bool,
    /// They return zero in the last channel too.
    pub robust_image_access2: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SubgroupOp {
    Basic,
    Vote,
    Arithmetic,
    Ballot,
    Shuffle,
    ShuffleRelative,
    Clustered,
    Quad,
    Rotate,
}

/// How many invocations run in lockstep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subgroup {
    /// Sizes the device may use, ascending. Without `features.subgroup_size_control` the driver picks.
    pub sizes: Vec<u32>,
    /// The size to require when it can be required, and to expect otherwise.
    pub preferred: u32,
}

/// One shape of a cooperative matrix product: c\[m, n\] += a\[m, k\] * b\[k, n\].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MatrixShape {
    pub m: u32,
    pub n: u32,
    pub k: u32,
    pub a: MatrixType,
    pub b: MatrixType,
    /// The type of the accumulator and of the result.
    pub c: MatrixType,
    pub scope: MatrixScope,
    /// With the scope of a workgroup: its invocations. The sides are then what those of a matrix are multiples of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invocations: Option<u32>,
    /// How the invocations of a subgroup hold its matrices, where that was found out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fragments: Option<Fragments>,
}

/// How the invocations of a subgroup hold the elements of the matrices of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fragments {
    /// As the registers of the instruction of that name in NVIDIA's PTX; those of A row by row, not depth by depth.
    #[serde(rename = "mma-m16n8k16")]
    MmaM16N8K16,
    /// The same, through workgroup memory and without matrix units: slow, and for tests on any device.
    Emulated,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MatrixType {
    F16,
    Bf16,
    F32,
    I8,
    U8,
    I32,
    U32,
}

/// The invocations that hold one matrix together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MatrixScope {
    Subgroup,
    Workgroup,
}

/// Numbers for the cost model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Units that each run workgroups of their own.
    pub compute_units: u32,
    /// Invocations that one unit needs in flight to hide memory latency.
    pub invocations_per_unit: u32,
    /// Memory bandwidth, GB/s (1e9 bytes, reads plus writes).
    pub bandwidth_gb_s: f64,
    /// Bandwidth of the last-level cache, GB/s.
    pub cache_bandwidth_gb_s: f64,
    /// Bytes that stay on the chip between two dispatches.
    pub last_level_cache: u64,
    /// Time of one empty dispatch with its barrier, µs.
    pub launch_us: f64,
    /// Time from a load to its use when nothing else hides it, with what surrounds it in a loop, ns.
    pub memory_latency_ns: f64,
    /// Time of a barrier of a workgroup, ns, per round of the invocations that the device keeps in flight.
    pub barrier_ns: f64,
    /// Engines for matrices in a unit.
    pub matrix_engines: u32,
    /// Words in registers that each invocation has when a unit holds as many as it can.
    pub registers: u32,
    /// Words in registers that one invocation can have.
    pub max_registers: u32,
    /// Cost of reading a vector of a uniform buffer that all invocations read alike, in multiply-adds of vectors.
    pub uniform_read_fmas: f64,
    /// Cost of handing a vector from one invocation to its subgroup, in multiply-adds of vectors.
    pub shuffle_fmas: f64,
    pub peak: Peak,
}

/// Arithmetic peaks in 1e9 operations per second; a multiply-add counts as two.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peak {
    pub f32: f64,
    pub f16: f64,
    /// 8-bit dot products with 32-bit sums.
    pub int8: f64,
    /// Conversions of integers to f32, where they are slower than multiply-adds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub int_to_float: Option<f64>,
    /// Cooperative matrices, f16 inputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matrix_f16: Option<f64>,
    /// Cooperative matrices, 8-bit inputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matrix_int8: Option<f64>,
}

/// First answers for the layout pass; its cost model has the last word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preferences {
    pub storage: StoragePreference,
    pub layout: LayoutPreference,
    /// Invocations of a workgroup when a kernel has no reason of its own.
    pub workgroup_invocations: u32,
    /// Starts compile all shaders anew, so that what is done once with each result of an invocation is a loop rather than
    /// repeated text, shaders that differ in numbers alone are one, kernels that are nearly as fast and add fewer shaders are
    /// taken, and functions for single sizes must save more.
    pub short_shaders: bool,
}

/// The kind of memory object for each role a tensor can have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoragePreference {
    pub activations: StorageKind,
    pub weights: WeightStorage,
    /// Weights that every step of a recurrence reads again.
    pub recurrent_weights: WeightStorage,
}

/// How float weights lie that kernels read as vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WeightStorage {
    /// In a buffer.
    Buffer,
    /// In a texture of two dimensions.
    #[serde(rename = "texture-2d")]
    Texture2d,
    /// The filters of convolutions in four textures, each with every fourth input channel; others in one.
    #[serde(rename = "four-textures-2d")]
    FourTextures2d,
}

/// The order of elements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayoutPreference {
    /// Image tensors between convolutions.
    pub convolution: LayoutKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LayoutKind {
    /// The model's own order of axes.
    RowMajor,
    /// Channels in zero-padded slices of four.
    #[serde(rename = "slices-4")]
    Slices4,
}

/// The way of computing a problem that measurements on the device prefer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pick {
    /// Operator, types, shapes and placements, as a tuning database writes them, without what is linked behind.
    pub problem: String,
    /// The kernel and its knobs, as `explain` prints them: `matvec ROWS=2`.
    pub configuration: String,
    /// What it takes, in microseconds.
    pub us: f64,
}

/// A driver fault that kernels must avoid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quirk {
    pub name: Fault,
    /// First driver version that has the fault, dotted numbers; absent means all earlier ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver_from: Option<String>,
    /// First driver version without it; absent means not repaired yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver_before: Option<String>,
    pub source: String,
}

impl Features {
    /// Whether values can be stored in f16.
    pub fn stores_f16(&self) -> bool {
        self.f16 && self.storage_16
    }
}

impl Limits {
    /// Whether a texture of these extents can be made.
    pub fn holds_texture(&self, storage: StorageKind, [x, y, z]: [u32; 3]) -> bool {
        match storage {
            StorageKind::Texture2d => x.max(y) <= self.max_texture_2d,
            StorageKind::TextureArray => x.max(y) <= self.max_texture_2d && z <= self.max_texture_layers,
            StorageKind::Texture3d => x.max(y).max(z) <= self.max_texture_3d,
            StorageKind::Buffer | StorageKind::TexelBuffer => false,
        }
    }
}

impl Machine {
    /// Invocations that the device needs in flight to hide memory latency.
    pub fn invocations(&self) -> f64 {
        f64::from(self.compute_units) * f64::from(self.invocations_per_unit)
    }
}

impl TargetProfile {
    /// The built-in profile of that name, or the profile in that TOML file.
    ///
    /// A name that ends in `.toml` or contains a path separator is a file.
    pub fn load(name_or_path: &str) -> Result<TargetProfile, TargetError> {
        load::load(name_or_path)
    }

    /// A profile from TOML text. `origin` names the text in errors; a relative path in `inherits` is
    /// taken from the folder of `origin`.
    pub fn from_toml(text: &str, origin: &str) -> Result<TargetProfile, TargetError> {
        load::from_toml(text, origin)
    }

    /// The whole profile, parents included, as a file that stands alone.
    pub fn to_toml(&self) -> Result<String, TargetError> {
        let alone = TargetProfile { inherits: None, ..self.clone() };
        toml::to_string(&alone).map_err(|error| TargetError::write(&self.name, &error))
    }

    /// Identifies the facts: two profiles with equal hashes compile to equal bytes.
    ///
    /// Sources, the summary, how good a fit is and the line of descent are left out because nothing is decided by them.
    pub fn hash(&self) -> Result<[u8; 32], TargetError> {
        let facts = TargetProfile {
            inherits: None,
            summary: String::new(),
            source: BTreeMap::new(),
            fit: None,
            quirks: self
                .quirks
                .iter()
                .map(|quirk| Quirk { source: String::new(), ..quirk.clone() })
                .collect(),
            ..self.clone()
        };
        Ok(*blake3::hash(facts.to_toml()?.as_bytes()).as_bytes())
    }

    /// Where the value at a field path comes from.
    pub fn source_of(&self, path: &str) -> Option<&str> {
        self.source.get(path).map(String::as_str)
    }

    /// Whose numbers the estimates of a group of parameters rest on.
    pub fn costs_source(&self, group: &str) -> &str {
        self.source_of(&format!("costs.{group}")).unwrap_or("no source is given")
    }

    pub fn has_subgroup_op(&self, op: SubgroupOp) -> bool {
        self.features.subgroup_ops.contains(&op)
    }

    /// Invocations of a subgroup where shaders choose its size, it is full, and values can be passed around in it.
    pub fn shuffling_subgroup(&self) -> Option<u32> {
        let Features { subgroup_size_control, full_subgroups, .. } = &self.features;
        let sized = *subgroup_size_control && *full_subgroups;
        let lanes = self.subgroup.preferred;
        let able = [SubgroupOp::Basic, SubgroupOp::Shuffle].iter().all(|op| self.has_subgroup_op(*op));
        (sized && able && self.subgroup.sizes.contains(&lanes)).then_some(lanes)
    }

    /// Whether there are cooperative matrices that such invocations hold.
    pub fn has_matrices(&self, scope: MatrixScope) -> bool {
        self.features.cooperative_matrix && self.matrix.iter().any(|shape| shape.scope == scope)
    }

    /// The first product of matrices whose fragments are known, and how they lie.
    pub fn known_fragments(&self) -> Option<(&MatrixShape, Fragments)> {
        self.matrix.iter().find_map(|shape| Some((shape, shape.fragments?)))
    }

    /// Whether the compiler must work around a fault.
    pub fn has_quirk(&self, fault: Fault) -> bool {
        self.quirks.iter().any(|quirk| quirk.name == fault)
    }
}
