//! The Vulkan loader, the instance, and the choice of a device.

use super::capabilities::device_info;
use super::failed;
use super::functions::instance::RawInstance;
use crate::device::{DeviceInfo, contains};
use crate::error::{Error, Result};
use crate::order;
use ash::vk;
use std::sync::{Mutex, PoisonError};

/// The newest version whose functions this backend knows.
const API_VERSION: u32 = vk::API_VERSION_1_3;

/// The instance of the process. Sessions share it, and it stays when none is left: creating one takes NVIDIA's driver
/// 60 ms, and after some forty of them one after the other that driver lists no devices any more.
static SHARED: Mutex<Option<&Instance>> = Mutex::new(None);

/// The instance, made by a loader that stays loaded.
pub(crate) struct Instance {
    pub(super) raw: RawInstance,
}

impl Instance {
    /// The instance of the process, which is created when it is first needed.
    pub(super) fn load() -> Result<&'static Instance> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(instance) = *shared {
            return Ok(instance);
        }
        let entry = load_entry()?;
        // SAFETY: the entry is live; the call only reads.
        let version = unsafe { entry.try_enumerate_instance_version() }
            .map_err(failed("vkEnumerateInstanceVersion"))?
            .unwrap_or(vk::API_VERSION_1_0);
        if version < vk::API_VERSION_1_1 {
            return Err(Error::NoLoader { reason: "it is of Vulkan 1.0, 1.1 is needed".to_owned() });
        }
        // SAFETY: the entry is live; the call only reads.
        let extensions = unsafe { entry.enumerate_instance_extension_properties(None) }
            .map_err(failed("vkEnumerateInstanceExtensionProperties"))?;
        // Devices that are layered over another API (MoltenVK) are listed only to those who ask.
        let portability = extensions.iter().any(|extension| {
            extension.extension_name_as_c_str() == Ok(ash::khr::portability_enumeration::NAME)
        });
        let (names, flags) = match portability {
            true => (
                vec![ash::khr::portability_enumeration::NAME.as_ptr()],
                vk::InstanceCreateFlags::ENUMERATE_PORTABILITY_KHR,
            ),
            false => (Vec::new(), vk::InstanceCreateFlags::empty()),
        };
        let application = vk::ApplicationInfo::default().api_version(API_VERSION);
        let create = vk::InstanceCreateInfo::default()
            .application_info(&application)
            .enabled_extension_names(&names)
            .flags(flags);
        // SAFETY: `create` and all it points to live until the call returns.
        let handle = unsafe { RawInstance::create(&entry, &create) }.map_err(|code| match code {
            vk::Result::ERROR_INCOMPATIBLE_DRIVER => Error::NoDevice { wanted: None, found: Vec::new() },
            code => failed("vkCreateInstance")(code),
        })?;
        // SAFETY: the instance is new, and the loader's library is never unloaded, see below.
        let raw = unsafe { RawInstance::load(&entry, handle) }?;
        std::mem::forget(entry);
        let instance: &Instance = Box::leak(Box::new(Instance { raw }));
        *shared = Some(instance);
        Ok(instance)
    }
}

fn load_entry() -> Result<ash::Entry> {
    // SAFETY: this runs the initialisers of the system's Vulkan loader, which is trusted as the driver is.
    let entry = unsafe { ash::Entry::load() };
    #[cfg(target_os = "macos")]
    // SAFETY: as above, for the driver that is shipped without a loader.
    let entry = entry.or_else(|_| unsafe { ash::Entry::load_from("libMoltenVK.dylib") });
    entry.map_err(|error| Error::NoLoader { reason: error.to_string() })
}

/// All devices with what they can do: discrete before integrated before virtual before software.
pub(super) fn ranked(instance: &Instance) -> Result<Vec<(vk::PhysicalDevice, DeviceInfo)>> {
    // SAFETY: the instance is live.
    let devices = unsafe { instance.raw.enumerate_physical_devices() };
    let devices = devices.map_err(failed("vkEnumeratePhysicalDevices"))?;
    let mut ranked = Vec::with_capacity(devices.len());
    for device in devices {
        // SAFETY: the device was just enumerated from this instance.
        let properties = unsafe { instance.raw.get_physical_device_properties(device) };
        // A device of Vulkan 1.0 lacks the functions that say more.
        if properties.api_version >= vk::API_VERSION_1_1 {
            ranked.push((device, device_info(instance, device)?));
        }
    }
    let order = order::by_key(ranked.iter().map(|(_, info)| (u64::from(info.kind.rank()), 0)));
    Ok(order.into_iter().filter_map(|index| ranked.get(index).cloned()).collect())
}

/// The wanted device, by index or part of its name; else that of `DRIFT_DEVICE`; else the first.
pub(super) fn choose(instance: &Instance, wanted: Option<&str>) -> Result<(vk::PhysicalDevice, DeviceInfo)> {
    let environment = std::env::var("DRIFT_DEVICE").ok().filter(|value| !value.is_empty());
    let wanted = wanted.map(str::to_owned).or(environment);
    let devices = ranked(instance)?;
    let found: Vec<String> = devices.iter().map(|(_, info)| info.name.clone()).collect();
    let position = match wanted.as_deref() {
        None => Some(0),
        Some(text) => match text.parse::<usize>() {
            Ok(index) => Some(index),
            Err(_) => devices.iter().position(|(_, info)| contains(&info.name, text)),
        },
    };
    let chosen = position.and_then(|position| devices.into_iter().nth(position));
    chosen.ok_or(Error::NoDevice { wanted: wanted.filter(|_| !found.is_empty()), found })
}
