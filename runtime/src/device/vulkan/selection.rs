//! Lists devices and selects one.

use super::capabilities::device_info;
use super::failed;
use super::instance::Instance;
use crate::device::{DeviceInfo, contains_ignoring_case};
use crate::error::{Error, Result};
use crate::order;
use ash::vk;

/// Returns all Vulkan devices and their properties, in the order discrete, integrated, virtual, other, software.
pub(super) fn ranked_devices(instance: &Instance) -> Result<Vec<(vk::PhysicalDevice, DeviceInfo)>> {
    // SAFETY: the instance is live.
    let devices = unsafe { instance.raw.enumerate_physical_devices() };
    let devices = devices.map_err(failed("vkEnumeratePhysicalDevices"))?;
    let mut ranked = Vec::with_capacity(devices.len());
    for device in devices {
        // SAFETY: the device was just enumerated from this instance.
        let properties = unsafe { instance.raw.get_physical_device_properties(device) };
        // A device with Vulkan 1.0 lacks the functions that query its properties.
        if properties.api_version >= vk::API_VERSION_1_1 {
            ranked.push((device, device_info(instance, device)?));
        }
    }
    let order = order::sorted_indices(ranked.iter().map(|(_, info)| (u64::from(info.kind.rank()), 0)));
    Ok(order.into_iter().filter_map(|index| ranked.get(index).cloned()).collect())
}

/// Selects a device by its index or a part of its name. Without `wanted`, the environment variable `DRIFT_DEVICE`
/// selects the device; without that variable, the first device is selected.
pub(super) fn select_device(
    instance: &Instance,
    wanted: Option<&str>,
) -> Result<(vk::PhysicalDevice, DeviceInfo)> {
    let environment = std::env::var("DRIFT_DEVICE").ok().filter(|value| !value.is_empty());
    let wanted = wanted.map(str::to_owned).or(environment);
    let devices = ranked_devices(instance)?;
    let found: Vec<String> = devices.iter().map(|(_, info)| info.name.clone()).collect();
    let position = match wanted.as_deref() {
        None => Some(0),
        Some(text) => match text.parse::<usize>() {
            Ok(index) => Some(index),
            Err(_) => devices.iter().position(|(_, info)| contains_ignoring_case(&info.name, text)),
        },
    };
    let selected = position.and_then(|position| devices.into_iter().nth(position));
    selected.ok_or(Error::NoDevice { wanted: wanted.filter(|_| !found.is_empty()), found })
}
