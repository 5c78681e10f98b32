//! Target profiles: facts about a device, read from TOML as a [`TargetProfile`].
//!
//! A profile is plain data. Kernels, layouts and storage kinds are chosen by its numbers, so no other file names a
//! vendor or a device. A profile may inherit from another one (`inherits = "..."`): its values replace the parent's
//! values one by one, and lists as a whole. `targets/README.md` documents the meaning and unit of each field, and how
//! to measure it.

mod builtin;
mod check;
pub mod costs;
mod error;
mod load;
mod probe;
mod products;
pub mod quirks;
pub mod static_facts;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use crate::ir::storage::Storage as StorageKind;
pub use builtin::names;
use costs::{Costs, Fit};
pub use drift_targets::{BUILTIN, COSTS, STATIC_FACTS};
pub use error::TargetError;
pub use probe::from_device;
use quirks::Fault;
use static_facts::StaticFacts;

/// A device or a family of devices that a bundle can be compiled for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetProfile {
    /// Name of the profile for the option `-t`. A built-in profile's file has the same stem.
    pub name: String,
    /// Name of the parent profile, whose values are already merged in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inherits: Option<String>,
    /// Summary of the profile for `driftc targets list`, one line.
    pub summary: String,
    pub api: Interface,
    /// Devices that the profile is meant for.
    #[serde(default)]
    pub device: DeviceMatch,
    pub limits: Limits,
    pub features: Features,
    pub subgroup: Subgroup,
    /// Supported cooperative-matrix shapes, best first.
    #[serde(default)]
    pub matrix: Vec<MatrixShape>,
    pub machine: Machine,
    pub prefer: Preferences,
    /// Configurations of kernels that were measured to be faster than the configurations with the lowest estimates.
    #[serde(default)]
    pub overrides: Vec<KernelOverride>,
    /// Cost parameters of kernels, by group.
    #[serde(default)]
    pub costs: Costs,
    /// Accuracy of the estimates. Absent if the profile has no measurements of its own: `fit` is not inherited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fit: Option<Fit>,
    /// Known driver faults that the compiler works around.
    #[serde(default)]
    pub quirks: Vec<Quirk>,
    /// Static facts: how the compiler of the device's driver compiles the kernels' configurations. Absent if no driver was asked. A child
    /// profile has its parent's facts if both are for the same API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub static_facts: Option<StaticFacts>,
    /// Source of each value of the profile, by field path (`limits.max_storage_buffers`).
    #[serde(default)]
    pub source: BTreeMap<String, String>,
}

/// GPU API that a bundle is made for.
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

/// Description of the devices that a profile matches. An empty description matches every device that meets the profile's limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeviceMatch {
    /// PCI or Khronos vendor id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendor_id: Option<u32>,
    /// The device's name must contain one of these strings. Case does not matter.
    pub names: Vec<String>,
    /// Names under which the devices are sold. Not inherited.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub products: Vec<String>,
}

/// Limits of the device. Sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Maximum bytes of a storage buffer binding.
    pub max_storage_buffer_range: u64,
    /// Maximum bytes of a uniform buffer binding.
    pub max_uniform_range: u64,
    /// Maximum bytes of a memory allocation.
    pub max_allocation: u64,
    /// Maximum storage buffers per shader.
    pub max_storage_buffers: u32,
    /// Maximum uniform buffers per shader.
    pub max_uniform_buffers: u32,
    /// Maximum storage images and storage texel buffers per shader.
    pub max_storage_images: u32,
    /// Maximum sampled images and uniform texel buffers per shader.
    pub max_sampled_images: u32,
    pub max_workgroup_invocations: u32,
    pub max_workgroup_size: [u32; 3],
    pub max_workgroup_count: [u32; 3],
    pub max_workgroup_memory: u32,
    /// Maximum subgroups per workgroup if the pipeline requires a subgroup size.
    pub max_workgroup_subgroups: u32,
    /// Maximum loop iterations of one invocation, over all its loops. The device does not execute iterations beyond
    /// this number.
    pub max_loop_iterations: u32,
    /// Alignment in bytes of the offsets of storage buffer bindings.
    pub storage_buffer_alignment: u32,
    pub uniform_buffer_alignment: u32,
    pub texel_buffer_alignment: u32,
    pub max_texel_buffer_elements: u32,
    /// Maximum side of a 2-D image, in texels.
    pub max_texture_2d: u32,
    /// Maximum side of a 3-D image, in texels.
    pub max_texture_3d: u32,
    pub max_texture_layers: u32,
    /// True if a dispatch must not read one part of a buffer and write another part.
    pub separate_read_write_buffers: bool,
}

/// Optional features of shaders and pipelines that the device has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Features {
    /// 16-bit float arithmetic.
    pub f16: bool,
    /// True if storage buffers can hold 16-bit values.
    pub storage_16: bool,
    /// 8-bit integer arithmetic.
    pub int8: bool,
    /// True if shaders have dot products of four packed 8-bit integers.
    pub int_dot_product: bool,
    /// Signs of the operands for which dot products of four packed 8-bit integers are instructions of the device. Empty if the
    /// device has no such instructions, or this is not known.
    #[serde(default)]
    pub int_dot_accelerated: Vec<IntDotSigns>,
    /// True if pipelines can require a subgroup size.
    pub subgroup_size_control: bool,
    /// True if pipelines can require full subgroups.
    pub full_subgroups: bool,
    pub subgroup_ops: Vec<SubgroupOp>,
    /// True if shaders have cooperative matrices of the shapes in `matrix`.
    pub cooperative_matrix: bool,
    /// True if reads outside of an image return zero, except that the last channel may be one.
    pub robust_image_access: bool,
    /// True if reads outside of an image return zero in all channels.
    pub robust_image_access2: bool,
}

/// Signs of the two operands of a dot product of packed integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IntDotSigns {
    /// Both operands are unsigned.
    Unsigned,
    /// Both operands are signed.
    Signed,
    /// One operand is signed, the other one unsigned.
    Mixed,
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

/// Subgroup sizes of the device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subgroup {
    /// Supported subgroup sizes, ascending. Without `features.subgroup_size_control` the driver selects the size.
    pub sizes: Vec<u32>,
    /// Subgroup size that pipelines require, if they can, and that estimates assume.
    pub preferred: u32,
}

/// Shape of a cooperative-matrix multiplication: c\[m, n\] += a\[m, k\] * b\[k, n\].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MatrixShape {
    pub m: u32,
    pub n: u32,
    pub k: u32,
    pub a: MatrixType,
    pub b: MatrixType,
    /// Element type of the accumulator and of the result.
    pub c: MatrixType,
    pub scope: MatrixScope,
    /// Invocations per workgroup for matrices of workgroup scope. The sizes of these matrices are multiples of `m`, `n` and `k`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invocations: Option<u32>,
    /// Fragment layout of subgroup-scope matrices, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fragments: Option<Fragments>,
}

/// Fragment layout: which elements of a cooperative matrix each invocation of a subgroup holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fragments {
    /// Registers of the PTX instruction `mma.m16n8k16`. The registers of A are ordered by row, not by K.
    #[serde(rename = "mma-m16n8k16")]
    MmaM16N8K16,
    /// The layout `mma-m16n8k16`, computed through workgroup memory without matrix units. Slow; for tests on any
    /// device.
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

/// Invocations that share a cooperative matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MatrixScope {
    Subgroup,
    Workgroup,
}

/// Speeds, latencies and sizes of a device, from which the cost model estimates times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Number of compute units. Each runs its own workgroups.
    pub compute_units: u32,
    /// Number of invocations that must be in flight on one compute unit to hide memory latency.
    pub invocations_per_unit: u32,
    /// Memory bandwidth, GB/s (1e9 bytes, reads plus writes).
    pub bandwidth_gb_s: f64,
    /// Bandwidth of the last-level cache, GB/s.
    pub cache_bandwidth_gb_s: f64,
    /// Bytes of the last-level cache.
    pub last_level_cache: u64,
    /// Time of an empty dispatch with its barrier, in µs.
    pub launch_us: f64,
    /// Latency of a load in a loop, from the load to the use of its value, in ns, if no other work hides it.
    pub memory_latency_ns: f64,
    /// Time of a workgroup barrier in ns. If a problem has more invocations than the device keeps in flight, the barrier counts
    /// once for each set that is in flight together.
    pub barrier_ns: f64,
    /// Matrix units per compute unit.
    pub matrix_engines: u32,
    /// Number of 32-bit registers that each invocation can have at full occupancy.
    pub registers: u32,
    /// Maximum 32-bit registers per invocation.
    pub max_registers: u32,
    /// Number of 32-bit registers per invocation, by the kernels' estimates, above which the driver's compiler spills. Absent if
    /// no such number is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spills_above: Option<u32>,
    /// Number of subgroups on an execution unit that hide the latency of memory, in the unit of the driver's reports. Absent if
    /// no such number is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_occupancy: Option<u32>,
    /// Cost of reading a vec4 from a uniform buffer if all invocations read the same vec4, as a number of vec4 multiply-adds.
    pub uniform_read_fmas: f64,
    /// Cost of broadcasting a vec4 to a subgroup, as a number of vec4 multiply-adds.
    pub shuffle_fmas: f64,
    pub peak: Peak,
}

/// Peak arithmetic throughput in 1e9 operations per second. A multiply-add counts as two operations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peak {
    pub f32: f64,
    pub f16: f64,
    /// Peak throughput of dot products of packed 8-bit integers with 32-bit sums.
    pub int8: f64,
    /// Peak throughput of conversions of integers to f32. Absent if conversions are as fast as multiply-adds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub int_to_float: Option<f64>,
    /// Peak throughput of cooperative matrices with f16 inputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matrix_f16: Option<f64>,
    /// Peak throughput of cooperative matrices with 8-bit inputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matrix_int8: Option<f64>,
}

/// Preferred storage and layout. The layout pass starts from these preferences; estimated costs then decide.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preferences {
    pub storage: StoragePreference,
    pub layout: LayoutPreference,
    /// Default number of invocations per workgroup.
    pub workgroup_invocations: u32,
    /// True if every start compiles all shaders, so that short and few shaders matter. Code that runs once per result
    /// then stays a loop, shaders that differ only in literals are merged, candidates that add fewer shaders are
    /// preferred if they are nearly as fast, and specializations of functions must save more time.
    pub short_shaders: bool,
}

/// Preferred kind of memory object (buffer or texture) for each role of a tensor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoragePreference {
    pub activations: StorageKind,
    pub weights: WeightStorage,
    /// Preferred storage of the weights that every step of a recurrent operator reads.
    pub recurrent_weights: WeightStorage,
}

/// Storage of float weights that kernels read as vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WeightStorage {
    /// A buffer.
    Buffer,
    /// A 2-D texture.
    #[serde(rename = "texture-2d")]
    Texture2d,
    /// Four 2-D textures for convolution filters, each with every fourth input channel. One 2-D texture for other
    /// weights.
    #[serde(rename = "four-textures-2d")]
    FourTextures2d,
}

/// Preferred order of a tensor's elements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayoutPreference {
    /// Layout of image tensors between convolutions.
    pub convolution: LayoutKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LayoutKind {
    /// Row-major order, as in the model.
    RowMajor,
    /// Channels in zero-padded slices of 4.
    #[serde(rename = "slices-4")]
    Slices4,
}

/// The configuration that is selected for one problem, because it was the fastest one measured on the device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelOverride {
    /// Key of the problem in a tuning database, without the fused epilogue: operator, types, shapes and placements.
    pub problem: String,
    /// The kernel and its knobs, as `explain` prints them: `matvec ROWS=2`.
    pub configuration: String,
    /// Measured time of the configuration in microseconds.
    pub us: f64,
}

/// A driver fault that kernels must avoid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quirk {
    pub name: Fault,
    /// First driver version with the fault, in dotted numbers. Absent: all versions before `driver_before`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver_from: Option<String>,
    /// First driver version without the fault. Absent: the fault is not fixed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver_before: Option<String>,
    pub source: String,
}

impl Features {
    /// True if tensors can be stored as f16.
    pub fn stores_f16(&self) -> bool {
        self.f16 && self.storage_16
    }
}

impl Limits {
    /// True if a texture of the given extents is within the limits of the device.
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
    /// Number of invocations that must be in flight on the whole device to hide memory latency.
    pub fn invocations(&self) -> f64 {
        f64::from(self.compute_units) * f64::from(self.invocations_per_unit)
    }

    /// Returns the number of rounds, one after the other, in which the device runs `invocations` invocations. 1 or more.
    pub fn rounds(&self, invocations: f64) -> f64 {
        (invocations / self.invocations()).ceil().max(1.0)
    }
}

impl TargetProfile {
    /// Loads a built-in profile by its name or the name of a device, or a profile from a TOML file.
    ///
    /// An argument that ends in `.toml` or contains a path separator is a file.
    pub fn load(name_or_path: &str) -> Result<TargetProfile, TargetError> {
        load::load(name_or_path)
    }

    /// Returns the files that [`TargetProfile::load`] reads for the path of a profile: its file, its ancestors' files, and the
    /// files of cost parameters and static facts beside them. Built-in profiles have no files.
    pub fn files(path: &str) -> Result<Vec<PathBuf>, TargetError> {
        load::files(path)
    }

    /// Parses a profile from TOML. Error messages name `origin` as the profile's file. A relative path in `inherits` is relative
    /// to the folder of `origin`.
    pub fn from_toml(text: &str, origin: &str) -> Result<TargetProfile, TargetError> {
        load::from_toml(text, origin)
    }

    /// Returns the profile as TOML without `inherits`, with all values of its parents.
    pub fn to_toml(&self) -> Result<String, TargetError> {
        let alone = TargetProfile { inherits: None, ..self.clone() };
        toml::to_string(&alone).map_err(|error| TargetError::write(&self.name, &error))
    }

    /// Returns a hash of the values in the profile that affect compilation. Profiles with equal hashes compile a model to equal
    /// bytes.
    ///
    /// The sources, the summary, the product names, the accuracy of the fit and the parent's name are left out.
    pub fn hash(&self) -> Result<[u8; 32], TargetError> {
        let facts = TargetProfile {
            inherits: None,
            summary: String::new(),
            source: BTreeMap::new(),
            fit: None,
            device: DeviceMatch { products: Vec::new(), ..self.device.clone() },
            quirks: self
                .quirks
                .iter()
                .map(|quirk| Quirk { source: String::new(), ..quirk.clone() })
                .collect(),
            ..self.clone()
        };
        Ok(*blake3::hash(facts.to_toml()?.as_bytes()).as_bytes())
    }

    /// Returns the source (origin) of the profile's value at a field path.
    pub fn source_of(&self, path: &str) -> Option<&str> {
        self.source.get(path).map(String::as_str)
    }

    /// Returns the source of a group of cost parameters, as the profile states it.
    pub fn costs_source(&self, group: &str) -> &str {
        self.source_of(&format!("costs.{group}")).unwrap_or("no source is given")
    }

    pub fn has_subgroup_op(&self, op: SubgroupOp) -> bool {
        self.features.subgroup_ops.contains(&op)
    }

    /// Returns the preferred subgroup size, if pipelines can require it and subgroups are full and support shuffles.
    pub fn shuffling_subgroup(&self) -> Option<u32> {
        let Features { subgroup_size_control, full_subgroups, .. } = &self.features;
        let sized = *subgroup_size_control && *full_subgroups;
        let lanes = self.subgroup.preferred;
        let able = [SubgroupOp::Basic, SubgroupOp::Shuffle].iter().all(|op| self.has_subgroup_op(*op));
        (sized && able && self.subgroup.sizes.contains(&lanes)).then_some(lanes)
    }

    /// True if the device has cooperative matrices of this scope.
    pub fn has_matrices(&self, scope: MatrixScope) -> bool {
        self.features.cooperative_matrix && self.matrix.iter().any(|shape| shape.scope == scope)
    }

    /// Returns the first cooperative-matrix shape with a known fragment layout, and the layout.
    pub fn known_fragments(&self) -> Option<(&MatrixShape, Fragments)> {
        self.matrix.iter().find_map(|shape| Some((shape, shape.fragments?)))
    }

    /// True if the profile lists the driver fault in its quirks.
    pub fn has_quirk(&self, fault: Fault) -> bool {
        self.quirks.iter().any(|quirk| quirk.name == fault)
    }
}
