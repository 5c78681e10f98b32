//! Requirements of a variant on a device, and hints that rank the variants that fit.

use serde::{Deserialize, Serialize};

/// Everything that a device must offer. All of it is checked at load; every unmet item is reported.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Requirements {
    /// Lowest API version.
    pub api_version: ApiVersion,
    pub features: Features,
    pub limits: Limits,
    /// Subgroup sizes for which kernels without a required subgroup size were compiled. The device's default subgroup
    /// size must be one of them; an empty list allows any size.
    pub subgroup_sizes: Vec<u32>,
    /// Cooperative matrix shapes that kernels use.
    pub matrix_shapes: Vec<MatrixShape>,
    pub hints: DeviceHints,
}

/// A version of Vulkan, of WebGPU or of the Metal shading language, or a shader model of DirectX 12.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ApiVersion {
    pub major: u16,
    pub minor: u16,
}

/// A set of [`Feature`]s as bits. Decoding keeps bits that stand for no known feature. Loading rejects a variant that
/// requires such bits, with an error that lists their numbers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Features(pub u64);

/// A device feature. The number of a feature is its bit in [`Features`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Feature {
    ShaderF16 = 0,
    ShaderF64 = 1,
    ShaderInt8 = 2,
    ShaderInt16 = 3,
    ShaderInt64 = 4,
    /// Shaders may use 16-bit types in storage buffers.
    Storage16bit = 5,
    /// Shaders may use 16-bit types in uniform buffers.
    Uniform16bit = 6,
    /// Shaders may use 8-bit types in storage buffers.
    Storage8bit = 7,
    /// Shaders may use 8-bit types in uniform buffers.
    Uniform8bit = 8,
    IntDotProduct = 9,
    SubgroupBasic = 10,
    SubgroupVote = 11,
    SubgroupArithmetic = 12,
    SubgroupBallot = 13,
    SubgroupShuffle = 14,
    SubgroupShuffleRelative = 15,
    SubgroupClustered = 16,
    SubgroupQuad = 17,
    SubgroupRotate = 18,
    /// Pipelines may require a particular subgroup size.
    SubgroupSizeControl = 19,
    /// Pipelines may require full subgroups, without inactive invocations.
    FullSubgroups = 20,
    /// Shaders may use subgroup operations on 8-, 16- and 64-bit types.
    SubgroupExtendedTypes = 21,
    CooperativeMatrix = 22,
    VulkanMemoryModel = 23,
    VulkanMemoryModelDeviceScope = 24,
    VariablePointersStorageBuffer = 25,
    VariablePointers = 26,
    BufferDeviceAddress = 27,
    ZeroInitializeWorkgroupMemory = 28,
    Maintenance4 = 29,
    ScalarBlockLayout = 30,
    WorkgroupMemoryExplicitLayout = 31,
    /// Out-of-bounds image reads return zero, or one in the alpha channel.
    RobustImageAccess = 32,
    /// Out-of-bounds image reads return zero.
    RobustImageAccess2 = 33,
    /// Shaders may use cooperative matrices with workgroup scope.
    CooperativeMatrixWorkgroupScope = 34,
    /// Shaders may use cooperative matrices of other sizes than the device lists.
    CooperativeMatrixFlexibleDimensions = 35,
    /// Cooperative matrices can be loaded with tensor addressing.
    CooperativeMatrixTensorAddressing = 36,
    /// Shaders may apply functions to the elements of cooperative matrices.
    CooperativeMatrixPerElementOperations = 37,
}

/// Every feature and its name, in bit order.
pub const FEATURES: &[(Feature, &str)] = &[
    (Feature::ShaderF16, "shader_f16"),
    (Feature::ShaderF64, "shader_f64"),
    (Feature::ShaderInt8, "shader_int8"),
    (Feature::ShaderInt16, "shader_int16"),
    (Feature::ShaderInt64, "shader_int64"),
    (Feature::Storage16bit, "storage_16bit"),
    (Feature::Uniform16bit, "uniform_16bit"),
    (Feature::Storage8bit, "storage_8bit"),
    (Feature::Uniform8bit, "uniform_8bit"),
    (Feature::IntDotProduct, "int_dot_product"),
    (Feature::SubgroupBasic, "subgroup_basic"),
    (Feature::SubgroupVote, "subgroup_vote"),
    (Feature::SubgroupArithmetic, "subgroup_arithmetic"),
    (Feature::SubgroupBallot, "subgroup_ballot"),
    (Feature::SubgroupShuffle, "subgroup_shuffle"),
    (Feature::SubgroupShuffleRelative, "subgroup_shuffle_relative"),
    (Feature::SubgroupClustered, "subgroup_clustered"),
    (Feature::SubgroupQuad, "subgroup_quad"),
    (Feature::SubgroupRotate, "subgroup_rotate"),
    (Feature::SubgroupSizeControl, "subgroup_size_control"),
    (Feature::FullSubgroups, "full_subgroups"),
    (Feature::SubgroupExtendedTypes, "subgroup_extended_types"),
    (Feature::CooperativeMatrix, "cooperative_matrix"),
    (Feature::VulkanMemoryModel, "vulkan_memory_model"),
    (Feature::VulkanMemoryModelDeviceScope, "vulkan_memory_model_device_scope"),
    (Feature::VariablePointersStorageBuffer, "variable_pointers_storage_buffer"),
    (Feature::VariablePointers, "variable_pointers"),
    (Feature::BufferDeviceAddress, "buffer_device_address"),
    (Feature::ZeroInitializeWorkgroupMemory, "zero_initialize_workgroup_memory"),
    (Feature::Maintenance4, "maintenance4"),
    (Feature::ScalarBlockLayout, "scalar_block_layout"),
    (Feature::WorkgroupMemoryExplicitLayout, "workgroup_memory_explicit_layout"),
    (Feature::RobustImageAccess, "robust_image_access"),
    (Feature::RobustImageAccess2, "robust_image_access2"),
    (Feature::CooperativeMatrixWorkgroupScope, "cooperative_matrix_workgroup_scope"),
    (Feature::CooperativeMatrixFlexibleDimensions, "cooperative_matrix_flexible_dimensions"),
    (Feature::CooperativeMatrixTensorAddressing, "cooperative_matrix_tensor_addressing"),
    (Feature::CooperativeMatrixPerElementOperations, "cooperative_matrix_per_element_operations"),
];

/// Limits of a device, or the limits that a variant needs. The default value requires nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Maximum bytes of a storage buffer binding.
    pub max_storage_buffer_range: u64,
    /// Maximum bytes of a uniform buffer binding.
    pub max_uniform_buffer_range: u64,
    /// Maximum bytes of a buffer.
    pub max_buffer_size: u64,
    pub max_workgroup_invocations: u32,
    pub max_workgroup_size: [u32; 3],
    /// Maximum bytes of workgroup memory.
    pub max_workgroup_memory: u32,
    /// Maximum workgroups of one dispatch along each axis.
    pub max_grid: [u32; 3],
    /// Maximum storage buffers per pipeline.
    pub max_storage_buffers: u32,
    /// Maximum uniform buffers per pipeline.
    pub max_uniform_buffers: u32,
    /// Maximum bytes of push constants.
    pub max_push_constants: u32,
    /// Alignment of the offsets of storage buffer bindings, a power of two. A device may not require a larger alignment.
    pub storage_alignment: u32,
    /// Alignment of the offsets of uniform buffer bindings, a power of two. A device may not require a larger alignment.
    pub uniform_alignment: u32,
    /// Total bytes of device memory for weights, states, arenas, inputs, outputs, parameters and images.
    pub device_memory: u64,
}

/// A cooperative matrix multiply-add of the device: C\[m,n\] = A\[m,k\] * B\[k,n\] + C.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatrixShape {
    pub m: u32,
    pub n: u32,
    pub k: u32,
    pub a: MatrixType,
    pub b: MatrixType,
    pub c: MatrixType,
    pub result: MatrixType,
    pub scope: MatrixScope,
    pub saturating: bool,
}

/// Element type of a cooperative matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MatrixType {
    F16,
    F32,
    F64,
    Bf16,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
}

/// Scope of a cooperative matrix: the invocations that share the matrix, as in Vulkan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MatrixScope {
    Subgroup,
    Workgroup,
    Device,
    QueueFamily,
}

/// Properties of devices that a variant is meant for. These hints only rank the variants that a device can run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceHints {
    /// Vulkan vendor IDs of devices that match; empty = no preference.
    pub vendor_ids: Vec<u32>,
    /// Substrings of the names of devices that match, compared case-insensitively.
    pub device_names: Vec<String>,
    /// Substrings of the names of drivers that match, compared case-insensitively.
    pub drivers: Vec<String>,
}

impl Feature {
    pub const fn bit(self) -> u64 {
        1 << (self as u8)
    }

    pub fn name(self) -> &'static str {
        FEATURES.iter().find(|(feature, _)| *feature == self).map_or("", |(_, name)| name)
    }

    pub fn from_name(name: &str) -> Option<Feature> {
        FEATURES.iter().find(|(_, known)| *known == name).map(|(feature, _)| *feature)
    }
}

impl Features {
    pub const NONE: Features = Features(0);

    /// Returns the set of the given features.
    pub const fn from_slice(features: &[Feature]) -> Features {
        let mut bits = 0;
        let mut rest = features;
        while let [feature, others @ ..] = rest {
            bits |= feature.bit();
            rest = others;
        }
        Features(bits)
    }

    /// True if the two sets have a feature in common.
    pub fn intersects(self, other: Features) -> bool {
        self.0 & other.0 != 0
    }

    pub fn contains(self, feature: Feature) -> bool {
        self.0 & feature.bit() != 0
    }

    pub fn with(self, feature: Feature) -> Features {
        Features(self.0 | feature.bit())
    }

    pub fn insert(&mut self, feature: Feature) {
        self.0 |= feature.bit();
    }

    /// Returns the features of the set that this version of the format knows.
    pub fn iter(self) -> impl Iterator<Item = Feature> {
        FEATURES.iter().map(|(feature, _)| *feature).filter(move |feature| self.contains(*feature))
    }

    /// Returns the bits of the set that stand for no feature that this version of the format knows.
    pub fn unknown_bits(self) -> impl Iterator<Item = u32> {
        let known = FEATURES.iter().fold(0, |bits, (feature, _)| bits | feature.bit());
        (0..u64::BITS).filter(move |bit| (self.0 & !known) >> bit & 1 == 1)
    }
}

impl FromIterator<Feature> for Features {
    fn from_iter<I: IntoIterator<Item = Feature>>(features: I) -> Features {
        features.into_iter().fold(Features::NONE, Features::with)
    }
}

impl std::fmt::Debug for Features {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter().map(Feature::name)).entries(self.unknown_bits()).finish()
    }
}

impl Default for ApiVersion {
    fn default() -> ApiVersion {
        ApiVersion { major: 1, minor: 1 }
    }
}

impl std::fmt::Display for ApiVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_storage_buffer_range: 0,
            max_uniform_buffer_range: 0,
            max_buffer_size: 0,
            max_workgroup_invocations: 0,
            max_workgroup_size: [0; 3],
            max_workgroup_memory: 0,
            max_grid: [0; 3],
            max_storage_buffers: 0,
            max_uniform_buffers: 0,
            max_push_constants: 0,
            // Vulkan never requires a larger alignment, so 256 fits every device.
            storage_alignment: 256,
            uniform_alignment: 256,
            device_memory: 0,
        }
    }
}

impl Limits {
    /// Returns name and value of every limit for which a device may offer more than a variant needs: all limits except
    /// the alignments.
    pub fn named(&self) -> [(&'static str, u64); 15] {
        let [size_x, size_y, size_z] = self.max_workgroup_size.map(u64::from);
        let [grid_x, grid_y, grid_z] = self.max_grid.map(u64::from);
        [
            ("max_storage_buffer_range", self.max_storage_buffer_range),
            ("max_uniform_buffer_range", self.max_uniform_buffer_range),
            ("max_buffer_size", self.max_buffer_size),
            ("max_workgroup_invocations", self.max_workgroup_invocations.into()),
            ("max_workgroup_size.x", size_x),
            ("max_workgroup_size.y", size_y),
            ("max_workgroup_size.z", size_z),
            ("max_workgroup_memory", self.max_workgroup_memory.into()),
            ("max_grid.x", grid_x),
            ("max_grid.y", grid_y),
            ("max_grid.z", grid_z),
            ("max_storage_buffers", self.max_storage_buffers.into()),
            ("max_uniform_buffers", self.max_uniform_buffers.into()),
            ("max_push_constants", self.max_push_constants.into()),
            ("device_memory", self.device_memory),
        ]
    }
}

impl MatrixType {
    pub fn name(self) -> &'static str {
        match self {
            MatrixType::F16 => "f16",
            MatrixType::F32 => "f32",
            MatrixType::F64 => "f64",
            MatrixType::Bf16 => "bf16",
            MatrixType::I8 => "i8",
            MatrixType::I16 => "i16",
            MatrixType::I32 => "i32",
            MatrixType::I64 => "i64",
            MatrixType::U8 => "u8",
            MatrixType::U16 => "u16",
            MatrixType::U32 => "u32",
            MatrixType::U64 => "u64",
        }
    }
}

impl MatrixScope {
    pub fn name(self) -> &'static str {
        match self {
            MatrixScope::Subgroup => "subgroup",
            MatrixScope::Workgroup => "workgroup",
            MatrixScope::Device => "device",
            MatrixScope::QueueFamily => "queue_family",
        }
    }
}

impl std::fmt::Display for MatrixShape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let MatrixShape { m, n, k, a, b, c, result, scope, saturating } = self;
        let (a, b, c, result) = (a.name(), b.name(), c.name(), result.name());
        write!(f, "{m}x{n}x{k} {a}*{b}+{c}->{result} {}", scope.name())?;
        if *saturating { f.write_str(" saturating") } else { Ok(()) }
    }
}
