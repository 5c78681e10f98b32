//! Device capabilities as plain data. The runtime queries the driver; the compiler derives target profiles.

use crate::{ApiVersion, ArtifactKind, Feature, Features, Limits, MatrixShape};
use serde::Serialize;

/// Properties of a device that its driver reports.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DeviceInfo {
    pub name: String,
    /// Shader language that the device runs.
    pub language: ArtifactKind,
    pub kind: DeviceKind,
    pub vendor_id: u32,
    pub device_id: u32,
    pub driver_name: String,
    pub driver_info: String,
    /// Driver version in the driver's own encoding.
    pub driver_version: u32,
    pub api_version: ApiVersion,
    pub features: Features,
    pub limits: Limits,
    /// Subgroup size of pipelines that require no particular size.
    pub subgroup_size: u32,
    /// Minimum and maximum subgroup size that pipelines may require. Both equal `subgroup_size` if pipelines cannot
    /// require a size.
    pub min_subgroup_size: u32,
    pub max_subgroup_size: u32,
    /// Maximum subgroups per workgroup for pipelines that require a subgroup size; 0 if pipelines cannot require a
    /// size.
    pub max_workgroup_subgroups: u32,
    /// Maximum descriptor sets bound at once.
    pub max_bound_sets: u32,
    pub int_dot_accelerated: IntDotAcceleration,
    pub matrix_shapes: Vec<MatrixShape>,
    pub memory_heaps: Vec<MemoryHeap>,
    /// Maximum number of memory allocations that can exist at a time.
    pub max_allocations: u32,
    /// Nanoseconds per timestamp tick; 0 without timestamps.
    pub timestamp_period: f32,
    pub images: ImageLimits,
    /// Identifiers of the device, the driver and its pipeline cache format. They are used as cache keys.
    pub device_uuid: [u8; 16],
    pub driver_uuid: [u8; 16],
    pub pipeline_cache_uuid: [u8; 16],
}

/// Packed dot products of four 8-bit integers that the hardware accelerates, by the signs of the two operands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct IntDotAcceleration {
    /// Both operands are unsigned.
    pub unsigned: bool,
    /// Both operands are signed.
    pub signed: bool,
    /// One operand is signed, the other one unsigned.
    pub mixed: bool,
}

/// Type of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum DeviceKind {
    Discrete,
    Integrated,
    Virtual,
    Cpu,
    #[default]
    Other,
}

/// A memory heap and the union of the properties of its memory types.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MemoryHeap {
    pub size: u64,
    pub device_local: bool,
    pub host_visible: bool,
    pub host_coherent: bool,
    pub host_cached: bool,
}

/// Limits for images and texel buffers.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ImageLimits {
    pub max_2d: u32,
    pub max_3d: u32,
    pub max_array_layers: u32,
    pub max_texel_buffer_elements: u32,
    pub max_sampled_images: u32,
    pub max_storage_images: u32,
    /// Offsets of texel buffers must be multiples of this number of bytes.
    pub texel_alignment: u32,
}

impl DeviceKind {
    /// Rank of this type of device for the choice of the preferred device. The lowest rank is preferred.
    pub fn rank(self) -> u32 {
        match self {
            DeviceKind::Discrete => 0,
            DeviceKind::Integrated => 1,
            DeviceKind::Virtual => 2,
            DeviceKind::Other => 3,
            DeviceKind::Cpu => 4,
        }
    }
}

impl DeviceInfo {
    /// Returns the names of the device's features, in the order of their bits.
    pub fn feature_names(&self) -> impl Iterator<Item = &'static str> {
        self.features.iter().map(Feature::name)
    }
}
