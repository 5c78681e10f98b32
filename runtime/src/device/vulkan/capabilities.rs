//! Queries everything in [`DeviceInfo`] from a driver.

use super::failed;
use super::features::{Available, Chain, SUBGROUP_OPERATIONS};
use super::instance::Instance;
use crate::device::{DeviceInfo, DeviceKind, ImageLimits, IntDotAcceleration, MemoryHeap};
use crate::error::Result;
use crate::format::{
    ApiVersion, ArtifactKind, Feature, Features, Limits, MatrixScope, MatrixShape, MatrixType,
};
use ash::{ext, khr, vk};
use std::ffi::CStr;

/// Returns the usable Vulkan version and the extensions of a device.
pub(super) fn available(instance: &Instance, device: vk::PhysicalDevice) -> Result<Available> {
    // SAFETY: the device was enumerated from this instance, here and below.
    let properties = unsafe { instance.raw.get_physical_device_properties(device) };
    // SAFETY: as above.
    let extensions = unsafe { instance.raw.enumerate_device_extension_properties(device) }
        .map_err(failed("vkEnumerateDeviceExtensionProperties"))?;
    Ok(Available { version: properties.api_version.min(vk::API_VERSION_1_3 | 0xfff), extensions })
}

pub(super) fn device_info(instance: &Instance, device: vk::PhysicalDevice) -> Result<DeviceInfo> {
    let available = available(instance, device)?;
    let has = |core, name: &CStr| available.provides(core, name);
    let mut driver = vk::PhysicalDeviceDriverProperties::default();
    let mut subgroup = vk::PhysicalDeviceSubgroupProperties::default();
    let mut sizes = vk::PhysicalDeviceSubgroupSizeControlProperties::default();
    let mut ids = vk::PhysicalDeviceIDProperties::default();
    let mut maintenance3 = vk::PhysicalDeviceMaintenance3Properties::default();
    let mut maintenance4 = vk::PhysicalDeviceMaintenance4Properties::default();
    let mut dot = vk::PhysicalDeviceShaderIntegerDotProductProperties::default();
    let mut head = vk::PhysicalDeviceProperties2::default()
        .push_next(&mut subgroup)
        .push_next(&mut ids)
        .push_next(&mut maintenance3);
    if has(Some(vk::API_VERSION_1_2), khr::driver_properties::NAME) {
        head = head.push_next(&mut driver);
    }
    if has(Some(vk::API_VERSION_1_3), ext::subgroup_size_control::NAME) {
        head = head.push_next(&mut sizes);
    }
    if has(Some(vk::API_VERSION_1_3), khr::maintenance4::NAME) {
        head = head.push_next(&mut maintenance4);
    }
    if has(Some(vk::API_VERSION_1_3), khr::shader_integer_dot_product::NAME) {
        head = head.push_next(&mut dot);
    }
    // SAFETY: the chain consists of structs that the device supports and that outlive the call.
    unsafe { instance.raw.get_physical_device_properties2(device, &mut head) };
    let properties = head.properties;

    let mut info = DeviceInfo {
        language: ArtifactKind::Spirv,
        name: lossy_string(properties.device_name_as_c_str().ok()),
        kind: device_kind(properties.device_type),
        vendor_id: properties.vendor_id,
        device_id: properties.device_id,
        driver_name: lossy_string(driver.driver_name_as_c_str().ok()),
        driver_info: lossy_string(driver.driver_info_as_c_str().ok()),
        driver_version: properties.driver_version,
        api_version: ApiVersion {
            major: u16::try_from(vk::api_version_major(properties.api_version)).unwrap_or(u16::MAX),
            minor: u16::try_from(vk::api_version_minor(properties.api_version)).unwrap_or(u16::MAX),
        },
        features: features(instance, device, &available, &subgroup),
        limits: limits(&properties.limits),
        subgroup_size: subgroup.subgroup_size,
        min_subgroup_size: subgroup.subgroup_size,
        max_subgroup_size: subgroup.subgroup_size,
        max_workgroup_subgroups: 0,
        max_bound_sets: properties.limits.max_bound_descriptor_sets,
        int_dot_accelerated: int_dot_accelerated(&dot),
        matrix_shapes: Vec::new(),
        memory_heaps: heaps(instance, device),
        max_allocations: properties.limits.max_memory_allocation_count,
        timestamp_period: timestamp_period(instance, device, &properties.limits),
        images: image_limits(&properties.limits),
        device_uuid: ids.device_uuid,
        driver_uuid: ids.driver_uuid,
        pipeline_cache_uuid: properties.pipeline_cache_uuid,
    };
    if info.features.contains(Feature::SubgroupSizeControl)
        && sizes.required_subgroup_size_stages.contains(vk::ShaderStageFlags::COMPUTE)
    {
        info.min_subgroup_size = sizes.min_subgroup_size;
        info.max_subgroup_size = sizes.max_subgroup_size;
        info.max_workgroup_subgroups = sizes.max_compute_workgroup_subgroups;
    }
    info.limits.max_buffer_size = match maintenance4.max_buffer_size {
        0 => maintenance3.max_memory_allocation_size,
        size => size.min(maintenance3.max_memory_allocation_size),
    };
    info.limits.device_memory =
        info.memory_heaps.iter().filter(|heap| heap.device_local).map(|heap| heap.size).sum();
    if info.features.contains(Feature::CooperativeMatrix) {
        info.matrix_shapes = matrix_shapes(instance, device)?;
    }
    Ok(info)
}

fn int_dot_accelerated(dot: &vk::PhysicalDeviceShaderIntegerDotProductProperties<'_>) -> IntDotAcceleration {
    IntDotAcceleration {
        unsigned: dot.integer_dot_product4x8_bit_packed_unsigned_accelerated == vk::TRUE,
        signed: dot.integer_dot_product4x8_bit_packed_signed_accelerated == vk::TRUE,
        mixed: dot.integer_dot_product4x8_bit_packed_mixed_signedness_accelerated == vk::TRUE,
    }
}

fn device_kind(device_type: vk::PhysicalDeviceType) -> DeviceKind {
    match device_type {
        vk::PhysicalDeviceType::DISCRETE_GPU => DeviceKind::Discrete,
        vk::PhysicalDeviceType::INTEGRATED_GPU => DeviceKind::Integrated,
        vk::PhysicalDeviceType::VIRTUAL_GPU => DeviceKind::Virtual,
        vk::PhysicalDeviceType::CPU => DeviceKind::Cpu,
        _ => DeviceKind::Other,
    }
}

fn image_limits(limits: &vk::PhysicalDeviceLimits) -> ImageLimits {
    ImageLimits {
        max_2d: limits.max_image_dimension2_d,
        max_3d: limits.max_image_dimension3_d,
        max_array_layers: limits.max_image_array_layers,
        max_texel_buffer_elements: limits.max_texel_buffer_elements,
        max_sampled_images: limits.max_per_stage_descriptor_sampled_images,
        max_storage_images: limits.max_per_stage_descriptor_storage_images,
        texel_alignment: u32::try_from(limits.min_texel_buffer_offset_alignment).unwrap_or(u32::MAX),
    }
}

fn features(
    instance: &Instance,
    device: vk::PhysicalDevice,
    available: &Available,
    subgroup: &vk::PhysicalDeviceSubgroupProperties<'_>,
) -> Features {
    let mut chain = Chain::default();
    let mut head = chain.link(available, Features(u64::MAX));
    // SAFETY: the chain consists of structs that the device supports and that outlive the call.
    unsafe { instance.raw.get_physical_device_features2(device, &mut head) };
    let core = head.features;
    chain.set_core(core);
    let mut features = chain.features();
    if subgroup.supported_stages.contains(vk::ShaderStageFlags::COMPUTE) {
        for (feature, operation) in SUBGROUP_OPERATIONS {
            if subgroup.supported_operations.contains(operation) {
                features.insert(feature);
            }
        }
    }
    features
}

fn limits(limits: &vk::PhysicalDeviceLimits) -> Limits {
    let alignment = |bytes: u64| u32::try_from(bytes.max(4)).unwrap_or(u32::MAX);
    Limits {
        max_storage_buffer_range: limits.max_storage_buffer_range.into(),
        max_uniform_buffer_range: limits.max_uniform_buffer_range.into(),
        max_buffer_size: 0,
        max_workgroup_invocations: limits.max_compute_work_group_invocations,
        max_workgroup_size: limits.max_compute_work_group_size,
        max_workgroup_memory: limits.max_compute_shared_memory_size,
        max_grid: limits.max_compute_work_group_count,
        max_storage_buffers: limits
            .max_per_stage_descriptor_storage_buffers
            .min(limits.max_descriptor_set_storage_buffers)
            .min(limits.max_per_stage_resources),
        max_uniform_buffers: limits
            .max_per_stage_descriptor_uniform_buffers
            .min(limits.max_descriptor_set_uniform_buffers)
            .min(limits.max_per_stage_resources),
        max_push_constants: limits.max_push_constants_size,
        storage_alignment: alignment(limits.min_storage_buffer_offset_alignment),
        uniform_alignment: alignment(limits.min_uniform_buffer_offset_alignment),
        device_memory: 0,
    }
}

fn heaps(instance: &Instance, device: vk::PhysicalDevice) -> Vec<MemoryHeap> {
    // SAFETY: the device was enumerated from this instance.
    let memory = unsafe { instance.raw.get_physical_device_memory_properties(device) };
    let types = memory.memory_types_as_slice();
    let heap = |(index, heap): (usize, &vk::MemoryHeap)| {
        let types = types.iter().filter(|kind| usize::try_from(kind.heap_index) == Ok(index));
        let flags = types.fold(vk::MemoryPropertyFlags::empty(), |flags, kind| flags | kind.property_flags);
        MemoryHeap {
            size: heap.size,
            device_local: heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL),
            host_visible: flags.contains(vk::MemoryPropertyFlags::HOST_VISIBLE),
            host_coherent: flags.contains(vk::MemoryPropertyFlags::HOST_COHERENT),
            host_cached: flags.contains(vk::MemoryPropertyFlags::HOST_CACHED),
        }
    };
    memory.memory_heaps_as_slice().iter().enumerate().map(heap).collect()
}

/// Returns the index of the queue family to use and the number of valid bits in its timestamps.
pub(super) fn compute_family(instance: &Instance, device: vk::PhysicalDevice) -> Option<(u32, u32)> {
    // SAFETY: the device was enumerated from this instance.
    let families = unsafe { instance.raw.get_physical_device_queue_family_properties(device) };
    let flags: Vec<vk::QueueFlags> = families.iter().map(|family| family.queue_flags).collect();
    let index = preferred_family(&flags)?;
    let bits = families.get(index)?.timestamp_valid_bits;
    Some((u32::try_from(index).ok()?, bits))
}

/// Returns the index of the first queue family that supports compute without graphics, or else of the first one that
/// supports compute. Some drivers run shaders with workgroup memory faster on a queue without graphics.
fn preferred_family(families: &[vk::QueueFlags]) -> Option<usize> {
    let first_without = |unwanted: vk::QueueFlags| {
        let wanted =
            |flags: &vk::QueueFlags| flags.contains(vk::QueueFlags::COMPUTE) && !flags.intersects(unwanted);
        families.iter().position(wanted)
    };
    first_without(vk::QueueFlags::GRAPHICS).or_else(|| first_without(vk::QueueFlags::empty()))
}

fn timestamp_period(
    instance: &Instance,
    device: vk::PhysicalDevice,
    limits: &vk::PhysicalDeviceLimits,
) -> f32 {
    match compute_family(instance, device) {
        Some((_, bits)) if bits > 0 => limits.timestamp_period,
        _ => 0.0,
    }
}

fn matrix_shapes(instance: &Instance, device: vk::PhysicalDevice) -> Result<Vec<MatrixShape>> {
    // SAFETY: the device has the extension of this function.
    let shapes = unsafe { instance.raw.get_cooperative_matrix_properties(device) }?
        .map_err(failed("vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"))?;
    let shape = |shape: &vk::CooperativeMatrixPropertiesKHR<'_>| {
        Some(MatrixShape {
            m: shape.m_size,
            n: shape.n_size,
            k: shape.k_size,
            a: matrix_type(shape.a_type)?,
            b: matrix_type(shape.b_type)?,
            c: matrix_type(shape.c_type)?,
            result: matrix_type(shape.result_type)?,
            scope: match shape.scope {
                vk::ScopeKHR::SUBGROUP => MatrixScope::Subgroup,
                vk::ScopeKHR::WORKGROUP => MatrixScope::Workgroup,
                vk::ScopeKHR::DEVICE => MatrixScope::Device,
                vk::ScopeKHR::QUEUE_FAMILY => MatrixScope::QueueFamily,
                _ => return None,
            },
            saturating: shape.saturating_accumulation == vk::TRUE,
        })
    };
    // Shapes with unknown types are skipped, since no bundle can require them.
    Ok(shapes.iter().filter_map(shape).collect())
}

fn matrix_type(component: vk::ComponentTypeKHR) -> Option<MatrixType> {
    /// The Vulkan constant `VK_COMPONENT_TYPE_BFLOAT16_KHR`, which the Rust bindings (`ash`) lack.
    const BF16: vk::ComponentTypeKHR = vk::ComponentTypeKHR::from_raw(1_000_141_000);
    Some(match component {
        vk::ComponentTypeKHR::FLOAT16 => MatrixType::F16,
        vk::ComponentTypeKHR::FLOAT32 => MatrixType::F32,
        vk::ComponentTypeKHR::FLOAT64 => MatrixType::F64,
        vk::ComponentTypeKHR::SINT8 => MatrixType::I8,
        vk::ComponentTypeKHR::SINT16 => MatrixType::I16,
        vk::ComponentTypeKHR::SINT32 => MatrixType::I32,
        vk::ComponentTypeKHR::SINT64 => MatrixType::I64,
        vk::ComponentTypeKHR::UINT8 => MatrixType::U8,
        vk::ComponentTypeKHR::UINT16 => MatrixType::U16,
        vk::ComponentTypeKHR::UINT32 => MatrixType::U32,
        vk::ComponentTypeKHR::UINT64 => MatrixType::U64,
        BF16 => MatrixType::Bf16,
        _ => return None,
    })
}

fn lossy_string(text: Option<&CStr>) -> String {
    text.map_or_else(String::new, |text| text.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use ash::vk::QueueFlags as Q;

    use super::preferred_family;

    #[test]
    fn a_queue_without_graphics_is_preferred() {
        let [all, compute, copies] =
            [Q::GRAPHICS | Q::COMPUTE | Q::TRANSFER, Q::COMPUTE | Q::TRANSFER, Q::TRANSFER];
        assert_eq!(preferred_family(&[all, copies, compute, compute]), Some(2));
        assert_eq!(preferred_family(&[copies, all, all]), Some(1));
        assert_eq!(preferred_family(&[copies, Q::GRAPHICS]), None);
    }
}
