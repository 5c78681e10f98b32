//! Vulkan formats of texels.

use crate::format::DeviceType;
use ash::vk;

/// Returns the Vulkan format of a texel of four elements.
pub(super) fn texel_format(element: DeviceType) -> vk::Format {
    match element {
        DeviceType::F32 => vk::Format::R32G32B32A32_SFLOAT,
        DeviceType::F16 => vk::Format::R16G16B16A16_SFLOAT,
        DeviceType::I32 => vk::Format::R32G32B32A32_SINT,
        DeviceType::U32 => vk::Format::R32G32B32A32_UINT,
        DeviceType::I8 => vk::Format::R8G8B8A8_SINT,
        DeviceType::U8 => vk::Format::R8G8B8A8_UINT,
    }
}
