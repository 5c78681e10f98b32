//! What a device can do, as plain data: the runtime asks a driver for it, the compiler makes a target profile of it.

use crate::{ApiVersion, ArtifactKind, Feature, Features, Limits, MatrixShape};
use serde::Serialize;

/// Everything a driver tells about a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DeviceInfo {
    pub name: String,
    /// The language of the shaders that it takes.
    pub language: ArtifactKind,
    pub kind: DeviceKind,
    pub vendor_id: u32,
    pub device_id: u32,
    pub driver_name: String,
    pub driver_info: String,
    /// As the driver encodes it.
    pub driver_version: u32,
    pub api_version: ApiVersion,
    pub features: Features,
    pub limits: Limits,
    /// The size of subgroups where none is asked for.
    pub subgroup_size: u32,
    /// What may be asked for; both equal to `subgroup_size` where nothing may.
    pub min_subgroup_size: u32,
    pub max_subgroup_size: u32,
    /// Subgroups in a workgroup whose subgroup size is asked for; 0 where nothing may be.
    pub max_workgroup_subgroups: u32,
    /// Descriptor sets bound at once.
    pub max_bound_sets: u32,
    /// Whether packed dot products of four 8-bit integers are faster than the same sum in steps.
    pub int_dot_accelerated: bool,
    pub matrix_shapes: Vec<MatrixShape>,
    pub memory_heaps: Vec<MemoryHeap>,
    /// How many allocations there may be at once.
    pub max_allocations: u32,
    /// Nanoseconds of one tick; 0 where there are no timestamps.
    pub timestamp_period: f32,
    pub images: ImageLimits,
    /// The nanoseconds, names and numbers above say what a device is; these say which one, for caches.
    pub device_uuid: [u8; 16],
    pub driver_uuid: [u8; 16],
    pub pipeline_cache_uuid: [u8; 16],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum DeviceKind {
    Discrete,
    Integrated,
    Virtual,
    Cpu,
    #[default]
    Other,
}

/// A pool of memory and what its memory types allow.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MemoryHeap {
    pub size: u64,
    pub device_local: bool,
    pub host_visible: bool,
    pub host_coherent: bool,
    pub host_cached: bool,
}

/// Limits of images, for storage in textures.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ImageLimits {
    pub max_2d: u32,
    pub max_3d: u32,
    pub max_array_layers: u32,
    pub max_texel_buffer_elements: u32,
    pub max_sampled_images: u32,
    pub max_storage_images: u32,
    /// Offsets of texel buffers are multiples of this.
    pub texel_alignment: u32,
}

impl DeviceKind {
    /// The lower the better, where no device is asked for.
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
    /// Names of the features, in the order of bits.
    pub fn feature_names(&self) -> impl Iterator<Item = &'static str> {
        self.features.iter().map(Feature::name)
    }
}
