//! Maps a bundle's feature bits to Vulkan feature structs and extensions.
//!
//! One table lists for each struct its features, the Vulkan version that contains it, and the extension that
//! provides it in earlier versions. The same structs query the features of a device and enable the features
//! that a bundle requires.

use crate::format::{Feature, Features};
use ash::vk;
use ash::{ext, khr};
use std::ffi::CStr;

/// A Vulkan feature struct: its features, and the extension or Vulkan version that provides the struct.
pub(super) struct FeatureStruct {
    pub(super) features: Features,
    pub(super) extension: &'static CStr,
    /// The Vulkan version that contains the struct and makes the extension unnecessary.
    pub(super) core: Option<u32>,
}

const fn feature_struct(features: &[Feature], extension: &'static CStr, core: Option<u32>) -> FeatureStruct {
    FeatureStruct { features: Features::from_slice(features), extension, core }
}

const N_STRUCTS: usize = 18;

/// All feature structs of the backend, in the order of [`Chain::structs`].
static FEATURE_STRUCTS: [FeatureStruct; N_STRUCTS] = [
    feature_struct(
        &[Feature::Storage16bit, Feature::Uniform16bit],
        khr::_16bit_storage::NAME,
        Some(vk::API_VERSION_1_1),
    ),
    feature_struct(
        &[Feature::VariablePointers, Feature::VariablePointersStorageBuffer],
        khr::variable_pointers::NAME,
        Some(vk::API_VERSION_1_1),
    ),
    feature_struct(
        &[Feature::Storage8bit, Feature::Uniform8bit],
        khr::_8bit_storage::NAME,
        Some(vk::API_VERSION_1_2),
    ),
    feature_struct(
        &[Feature::ShaderF16, Feature::ShaderInt8],
        khr::shader_float16_int8::NAME,
        Some(vk::API_VERSION_1_2),
    ),
    feature_struct(
        &[Feature::VulkanMemoryModel, Feature::VulkanMemoryModelDeviceScope],
        khr::vulkan_memory_model::NAME,
        Some(vk::API_VERSION_1_2),
    ),
    feature_struct(&[Feature::ScalarBlockLayout], ext::scalar_block_layout::NAME, Some(vk::API_VERSION_1_2)),
    feature_struct(
        &[Feature::BufferDeviceAddress],
        khr::buffer_device_address::NAME,
        Some(vk::API_VERSION_1_2),
    ),
    feature_struct(
        &[Feature::SubgroupExtendedTypes],
        khr::shader_subgroup_extended_types::NAME,
        Some(vk::API_VERSION_1_2),
    ),
    feature_struct(
        &[Feature::SubgroupSizeControl, Feature::FullSubgroups],
        ext::subgroup_size_control::NAME,
        Some(vk::API_VERSION_1_3),
    ),
    feature_struct(
        &[Feature::IntDotProduct],
        khr::shader_integer_dot_product::NAME,
        Some(vk::API_VERSION_1_3),
    ),
    feature_struct(
        &[Feature::ZeroInitializeWorkgroupMemory],
        khr::zero_initialize_workgroup_memory::NAME,
        Some(vk::API_VERSION_1_3),
    ),
    feature_struct(&[Feature::Maintenance4], khr::maintenance4::NAME, Some(vk::API_VERSION_1_3)),
    feature_struct(&[Feature::RobustImageAccess], ext::image_robustness::NAME, Some(vk::API_VERSION_1_3)),
    feature_struct(&[Feature::RobustImageAccess2], ext::robustness2::NAME, None),
    feature_struct(
        &[Feature::WorkgroupMemoryExplicitLayout],
        khr::workgroup_memory_explicit_layout::NAME,
        None,
    ),
    feature_struct(&[Feature::CooperativeMatrix], khr::cooperative_matrix::NAME, None),
    feature_struct(
        &[
            Feature::CooperativeMatrixWorkgroupScope,
            Feature::CooperativeMatrixFlexibleDimensions,
            Feature::CooperativeMatrixTensorAddressing,
            Feature::CooperativeMatrixPerElementOperations,
        ],
        c"VK_NV_cooperative_matrix2",
        None,
    ),
    // Vulkan versions newer than this backend supports contain it.
    feature_struct(&[Feature::SubgroupRotate], khr::shader_subgroup_rotate::NAME, None),
];

/// Features that need no enabling, each with the subgroup operation that it stands for.
pub(super) const SUBGROUP_OPERATIONS: [(Feature, vk::SubgroupFeatureFlags); 8] = [
    (Feature::SubgroupBasic, vk::SubgroupFeatureFlags::BASIC),
    (Feature::SubgroupVote, vk::SubgroupFeatureFlags::VOTE),
    (Feature::SubgroupArithmetic, vk::SubgroupFeatureFlags::ARITHMETIC),
    (Feature::SubgroupBallot, vk::SubgroupFeatureFlags::BALLOT),
    (Feature::SubgroupShuffle, vk::SubgroupFeatureFlags::SHUFFLE),
    (Feature::SubgroupShuffleRelative, vk::SubgroupFeatureFlags::SHUFFLE_RELATIVE),
    (Feature::SubgroupClustered, vk::SubgroupFeatureFlags::CLUSTERED),
    (Feature::SubgroupQuad, vk::SubgroupFeatureFlags::QUAD),
];

/// Vulkan version and extensions of a device.
pub(super) struct Available {
    pub(super) version: u32,
    pub(super) extensions: Vec<vk::ExtensionProperties>,
}

/// All feature structs, for linking to a [`vk::PhysicalDeviceFeatures2`].
#[derive(Default)]
pub(super) struct Chain {
    core: vk::PhysicalDeviceFeatures,
    storage_16bit: vk::PhysicalDevice16BitStorageFeatures<'static>,
    variable_pointers: vk::PhysicalDeviceVariablePointersFeatures<'static>,
    storage_8bit: vk::PhysicalDevice8BitStorageFeatures<'static>,
    float16_int8: vk::PhysicalDeviceShaderFloat16Int8Features<'static>,
    memory_model: vk::PhysicalDeviceVulkanMemoryModelFeatures<'static>,
    scalar_layout: vk::PhysicalDeviceScalarBlockLayoutFeatures<'static>,
    buffer_address: vk::PhysicalDeviceBufferDeviceAddressFeatures<'static>,
    subgroup_types: vk::PhysicalDeviceShaderSubgroupExtendedTypesFeatures<'static>,
    subgroup_size: vk::PhysicalDeviceSubgroupSizeControlFeatures<'static>,
    int_dot: vk::PhysicalDeviceShaderIntegerDotProductFeatures<'static>,
    zero_workgroup: vk::PhysicalDeviceZeroInitializeWorkgroupMemoryFeatures<'static>,
    maintenance4: vk::PhysicalDeviceMaintenance4Features<'static>,
    image_robustness: vk::PhysicalDeviceImageRobustnessFeatures<'static>,
    robustness2: vk::PhysicalDeviceRobustness2FeaturesEXT<'static>,
    workgroup_layout: vk::PhysicalDeviceWorkgroupMemoryExplicitLayoutFeaturesKHR<'static>,
    matrix: vk::PhysicalDeviceCooperativeMatrixFeaturesKHR<'static>,
    matrix2: CooperativeMatrix2Features,
    rotate: vk::PhysicalDeviceShaderSubgroupRotateFeaturesKHR<'static>,
}

/// The Vulkan struct `VkPhysicalDeviceCooperativeMatrix2FeaturesNV`, which the Rust bindings (`ash`) lack.
#[repr(C)]
struct CooperativeMatrix2Features {
    s_type: vk::StructureType,
    p_next: *mut std::ffi::c_void,
    workgroup_scope: vk::Bool32,
    flexible_dimensions: vk::Bool32,
    reductions: vk::Bool32,
    conversions: vk::Bool32,
    per_element_operations: vk::Bool32,
    tensor_addressing: vk::Bool32,
    block_loads: vk::Bool32,
}

impl Default for CooperativeMatrix2Features {
    fn default() -> Self {
        Self {
            s_type: vk::StructureType::from_raw(1_000_593_000),
            p_next: std::ptr::null_mut(),
            workgroup_scope: vk::FALSE,
            flexible_dimensions: vk::FALSE,
            reductions: vk::FALSE,
            conversions: vk::FALSE,
            per_element_operations: vk::FALSE,
            tensor_addressing: vk::FALSE,
            block_loads: vk::FALSE,
        }
    }
}

// SAFETY: like every Vulkan struct it begins with its type and the next pointer, and it extends this struct.
unsafe impl vk::ExtendsPhysicalDeviceFeatures2 for CooperativeMatrix2Features {}

impl Available {
    pub(super) fn has(&self, extension: &CStr) -> bool {
        self.extensions.iter().any(|known| known.extension_name_as_c_str() == Ok(extension))
    }

    /// True if the Vulkan version or an extension of the device provides a feature struct.
    pub(super) fn provides(&self, core: Option<u32>, extension: &CStr) -> bool {
        core.is_some_and(|core| self.version >= core) || self.has(extension)
    }

    /// Returns the extensions that must be enabled for the `wanted` features.
    pub(super) fn needed_extensions(&self, wanted: Features) -> Vec<&'static CStr> {
        let entries = FEATURE_STRUCTS.iter().filter(|entry| entry.features.intersects(wanted));
        let entries = entries.filter(|entry| entry.core.is_none_or(|core| self.version < core));
        entries.map(|entry| entry.extension).collect()
    }
}

impl Chain {
    /// Links the structs with `wanted` features into a `pNext` chain, except structs that the device does not support.
    pub(super) fn link(
        &mut self,
        available: &Available,
        wanted: Features,
    ) -> vk::PhysicalDeviceFeatures2<'_> {
        let mut head = vk::PhysicalDeviceFeatures2::default().features(self.core);
        for (entry, next) in FEATURE_STRUCTS.iter().zip(self.structs()) {
            if entry.features.intersects(wanted) && available.provides(entry.core, entry.extension) {
                head = head.push_next(next);
            }
        }
        head
    }

    /// Sets the features of Vulkan 1.0, which are in no linked struct, from the device's answer to a query.
    pub(super) fn set_core(&mut self, core: vk::PhysicalDeviceFeatures) {
        self.core = core;
    }

    /// The enabled features.
    pub(super) fn features(&mut self) -> Features {
        let all = crate::format::FEATURES.iter().map(|(feature, _)| *feature);
        all.filter(|feature| self.field(*feature).is_some_and(|field| *field == vk::TRUE)).collect()
    }

    /// Enables features in their structs. Features without a struct field are skipped.
    pub(super) fn enable(&mut self, wanted: Features) {
        for feature in wanted.iter() {
            if let Some(field) = self.field(feature) {
                *field = vk::TRUE;
            }
        }
    }

    fn structs(&mut self) -> [&mut dyn vk::ExtendsPhysicalDeviceFeatures2; N_STRUCTS] {
        [
            &mut self.storage_16bit,
            &mut self.variable_pointers,
            &mut self.storage_8bit,
            &mut self.float16_int8,
            &mut self.memory_model,
            &mut self.scalar_layout,
            &mut self.buffer_address,
            &mut self.subgroup_types,
            &mut self.subgroup_size,
            &mut self.int_dot,
            &mut self.zero_workgroup,
            &mut self.maintenance4,
            &mut self.image_robustness,
            &mut self.robustness2,
            &mut self.workgroup_layout,
            &mut self.matrix,
            &mut self.matrix2,
            &mut self.rotate,
        ]
    }

    /// Returns the struct field of a feature, or `None` for subgroup operations, which need no enabling.
    fn field(&mut self, feature: Feature) -> Option<&mut vk::Bool32> {
        Some(match feature {
            Feature::ShaderF16 => &mut self.float16_int8.shader_float16,
            Feature::ShaderF64 => &mut self.core.shader_float64,
            Feature::ShaderInt8 => &mut self.float16_int8.shader_int8,
            Feature::ShaderInt16 => &mut self.core.shader_int16,
            Feature::ShaderInt64 => &mut self.core.shader_int64,
            Feature::Storage16bit => &mut self.storage_16bit.storage_buffer16_bit_access,
            Feature::Uniform16bit => &mut self.storage_16bit.uniform_and_storage_buffer16_bit_access,
            Feature::Storage8bit => &mut self.storage_8bit.storage_buffer8_bit_access,
            Feature::Uniform8bit => &mut self.storage_8bit.uniform_and_storage_buffer8_bit_access,
            Feature::IntDotProduct => &mut self.int_dot.shader_integer_dot_product,
            Feature::SubgroupBasic
            | Feature::SubgroupVote
            | Feature::SubgroupArithmetic
            | Feature::SubgroupBallot
            | Feature::SubgroupShuffle
            | Feature::SubgroupShuffleRelative
            | Feature::SubgroupClustered
            | Feature::SubgroupQuad => return None,
            Feature::SubgroupRotate => &mut self.rotate.shader_subgroup_rotate,
            Feature::SubgroupSizeControl => &mut self.subgroup_size.subgroup_size_control,
            Feature::FullSubgroups => &mut self.subgroup_size.compute_full_subgroups,
            Feature::SubgroupExtendedTypes => &mut self.subgroup_types.shader_subgroup_extended_types,
            Feature::CooperativeMatrix => &mut self.matrix.cooperative_matrix,
            Feature::CooperativeMatrixWorkgroupScope => &mut self.matrix2.workgroup_scope,
            Feature::CooperativeMatrixFlexibleDimensions => &mut self.matrix2.flexible_dimensions,
            Feature::CooperativeMatrixTensorAddressing => &mut self.matrix2.tensor_addressing,
            Feature::CooperativeMatrixPerElementOperations => &mut self.matrix2.per_element_operations,
            Feature::VulkanMemoryModel => &mut self.memory_model.vulkan_memory_model,
            Feature::VulkanMemoryModelDeviceScope => &mut self.memory_model.vulkan_memory_model_device_scope,
            Feature::VariablePointersStorageBuffer => {
                &mut self.variable_pointers.variable_pointers_storage_buffer
            }
            Feature::VariablePointers => &mut self.variable_pointers.variable_pointers,
            Feature::BufferDeviceAddress => &mut self.buffer_address.buffer_device_address,
            Feature::ZeroInitializeWorkgroupMemory => {
                &mut self.zero_workgroup.shader_zero_initialize_workgroup_memory
            }
            Feature::Maintenance4 => &mut self.maintenance4.maintenance4,
            Feature::RobustImageAccess => &mut self.image_robustness.robust_image_access,
            Feature::RobustImageAccess2 => &mut self.robustness2.robust_image_access2,
            Feature::ScalarBlockLayout => &mut self.scalar_layout.scalar_block_layout,
            Feature::WorkgroupMemoryExplicitLayout => {
                &mut self.workgroup_layout.workgroup_memory_explicit_layout
            }
        })
    }
}
