//! The Vulkan loader and the instance.

use super::failed;
use super::functions::instance::RawInstance;
use crate::error::{Error, Result};
use ash::vk;
use std::sync::{Mutex, PoisonError};

/// Newest Vulkan version that this backend supports.
const API_VERSION: u32 = vk::API_VERSION_1_3;

/// Vulkan instance of the process, used by all sessions. It is never destroyed: some drivers take 60 ms to create an
/// instance, and list no devices any more after about forty instances.
static INSTANCE: Mutex<Option<&Instance>> = Mutex::new(None);

/// A Vulkan instance. The library of the Vulkan loader is never unloaded.
pub(crate) struct Instance {
    pub(super) raw: RawInstance,
}

impl Instance {
    /// Returns the Vulkan instance of the process, created on first use.
    pub(super) fn load() -> Result<&'static Instance> {
        let mut slot = INSTANCE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(instance) = *slot {
            return Ok(instance);
        }
        let entry = load_entry()?;
        // SAFETY: the entry is live; the call only reads.
        let version = unsafe { entry.try_enumerate_instance_version() }
            .map_err(failed("vkEnumerateInstanceVersion"))?
            .unwrap_or(vk::API_VERSION_1_0);
        if version < vk::API_VERSION_1_1 {
            return Err(Error::NoLoader {
                reason: "it supports Vulkan 1.0, but 1.1 is needed; install a newer libvulkan1".to_owned(),
            });
        }
        // SAFETY: the entry is live; the call only reads.
        let extensions = unsafe { entry.enumerate_instance_extension_properties(None) }
            .map_err(failed("vkEnumerateInstanceExtensionProperties"))?;
        // Devices layered over another API (MoltenVK) are listed only on request.
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
        // SAFETY: `create` and everything it points to live until the call returns.
        let handle = unsafe { RawInstance::create(&entry, &create) }.map_err(|code| match code {
            vk::Result::ERROR_INCOMPATIBLE_DRIVER => Error::NoDevice { wanted: None, found: Vec::new() },
            code => failed("vkCreateInstance")(code),
        })?;
        // SAFETY: the instance is new, and the loader's library is never unloaded, see below.
        let raw = unsafe { RawInstance::load(&entry, handle) }?;
        std::mem::forget(entry);
        let instance: &Instance = Box::leak(Box::new(Instance { raw }));
        *slot = Some(instance);
        Ok(instance)
    }
}

fn load_entry() -> Result<ash::Entry> {
    if cfg!(target_feature = "crt-static") {
        let reason = "a static program cannot load one; use the program for linux-gnu";
        return Err(Error::NoLoader { reason: reason.to_owned() });
    }
    // SAFETY: this runs the initializers of the system's Vulkan loader, which is trusted like the driver.
    let entry = unsafe { ash::Entry::load() };
    #[cfg(target_os = "macos")]
    // SAFETY: as above, for a driver that is shipped without a loader.
    let entry = entry.or_else(|_| unsafe { ash::Entry::load_from("libMoltenVK.dylib") });
    entry.map_err(|error| Error::NoLoader {
        reason: format!("{error}; install libvulkan1 or the vendor's driver package"),
    })
}
