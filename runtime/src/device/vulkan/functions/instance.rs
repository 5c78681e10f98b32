//! Vulkan functions of an instance.

use super::{Device, Function, call_output, functions, load_functions, missing_function, unloaded};
use crate::error::Result;
use ash::prelude::VkResult;
use ash::vk;
use std::ffi::CStr;
use std::ptr::{null, null_mut};

/// A Vulkan instance handle and the functions of the instance.
pub(in super::super) struct RawInstance {
    handle: vk::Instance,
    functions: Functions,
    find: vk::PFN_vkGetInstanceProcAddr,
}

functions! {
    Functions:
    enumerate_devices: PFN_vkEnumeratePhysicalDevices = "vkEnumeratePhysicalDevices"
    enumerate_extensions: PFN_vkEnumerateDeviceExtensionProperties = "vkEnumerateDeviceExtensionProperties"
    get_properties: PFN_vkGetPhysicalDeviceProperties = "vkGetPhysicalDeviceProperties"
    get_properties2: PFN_vkGetPhysicalDeviceProperties2 = "vkGetPhysicalDeviceProperties2"
    get_features2: PFN_vkGetPhysicalDeviceFeatures2 = "vkGetPhysicalDeviceFeatures2"
    get_memory: PFN_vkGetPhysicalDeviceMemoryProperties = "vkGetPhysicalDeviceMemoryProperties"
    get_families: PFN_vkGetPhysicalDeviceQueueFamilyProperties = "vkGetPhysicalDeviceQueueFamilyProperties"
    create_device: PFN_vkCreateDevice = "vkCreateDevice"
    get_device_proc_addr: PFN_vkGetDeviceProcAddr = "vkGetDeviceProcAddr"
}

impl RawInstance {
    pub(in super::super) unsafe fn create(
        entry: &ash::Entry,
        info: &vk::InstanceCreateInfo<'_>,
    ) -> VkResult<vk::Instance> {
        // SAFETY: the caller fulfills Vulkan's conditions, here and below.
        call_output(|instance| unsafe { (entry.fp_v1_0().create_instance)(info, null(), instance) })
    }

    /// Loads the functions of an instance. `handle` is a new instance of `entry`'s loader, which must outlive this
    /// object.
    pub(in super::super) unsafe fn load(entry: &ash::Entry, handle: vk::Instance) -> Result<RawInstance> {
        let find = entry.static_fn().get_instance_proc_addr;
        // SAFETY: as above.
        let functions = Functions::load(&|name| unsafe { find(handle, name.as_ptr()) })?;
        Ok(RawInstance { handle, functions, find })
    }

    pub(in super::super) unsafe fn enumerate_physical_devices(&self) -> VkResult<Vec<vk::PhysicalDevice>> {
        // SAFETY: as above.
        read_list(|count, list| unsafe { (self.functions.enumerate_devices)(self.handle, count, list) })
    }

    pub(in super::super) unsafe fn enumerate_device_extension_properties(
        &self,
        device: vk::PhysicalDevice,
    ) -> VkResult<Vec<vk::ExtensionProperties>> {
        // SAFETY: as above.
        read_list(|count, list| unsafe { (self.functions.enumerate_extensions)(device, null(), count, list) })
    }

    pub(in super::super) unsafe fn get_physical_device_properties(
        &self,
        device: vk::PhysicalDevice,
    ) -> vk::PhysicalDeviceProperties {
        let mut properties = vk::PhysicalDeviceProperties::default();
        // SAFETY: as above.
        unsafe { (self.functions.get_properties)(device, &raw mut properties) };
        properties
    }

    pub(in super::super) unsafe fn get_physical_device_properties2(
        &self,
        device: vk::PhysicalDevice,
        properties: &mut vk::PhysicalDeviceProperties2<'_>,
    ) {
        // SAFETY: as above.
        unsafe { (self.functions.get_properties2)(device, properties) };
    }

    pub(in super::super) unsafe fn get_physical_device_features2(
        &self,
        device: vk::PhysicalDevice,
        features: &mut vk::PhysicalDeviceFeatures2<'_>,
    ) {
        // SAFETY: as above.
        unsafe { (self.functions.get_features2)(device, features) };
    }

    pub(in super::super) unsafe fn get_physical_device_memory_properties(
        &self,
        device: vk::PhysicalDevice,
    ) -> vk::PhysicalDeviceMemoryProperties {
        let mut memory = vk::PhysicalDeviceMemoryProperties::default();
        // SAFETY: as above.
        unsafe { (self.functions.get_memory)(device, &raw mut memory) };
        memory
    }

    pub(in super::super) unsafe fn get_physical_device_queue_family_properties(
        &self,
        device: vk::PhysicalDevice,
    ) -> Vec<vk::QueueFamilyProperties> {
        let families = read_list(|count, list| {
            // SAFETY: as above.
            unsafe { (self.functions.get_families)(device, count, list) };
            vk::Result::SUCCESS
        });
        families.unwrap_or_default()
    }

    /// Returns the cooperative matrix shapes of a device. The device must support `VK_KHR_cooperative_matrix`.
    pub(in super::super) unsafe fn get_cooperative_matrix_properties(
        &self,
        device: vk::PhysicalDevice,
    ) -> Result<VkResult<Vec<vk::CooperativeMatrixPropertiesKHR<'static>>>> {
        let name = c"vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR";
        // SAFETY: as above.
        let function =
            unsafe { (self.find)(self.handle, name.as_ptr()) }.ok_or_else(|| missing_function(name))?;
        // SAFETY: the function of this name has this signature.
        let function: vk::PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR =
            unsafe { std::mem::transmute::<Function, _>(function) };
        // SAFETY: as above.
        Ok(read_list(|count, list| unsafe { function(device, count, list) }))
    }

    /// Returns a file descriptor for device memory. The device must have been opened with `VK_KHR_external_memory_fd`.
    #[cfg(unix)]
    pub(in super::super) unsafe fn get_memory_fd(
        &self,
        device: &Device,
        info: &vk::MemoryGetFdInfoKHR<'_>,
    ) -> Result<std::os::fd::RawFd> {
        // SAFETY: as above.
        let function = unsafe { self.device_function(device, c"vkGetMemoryFdKHR") }?;
        // SAFETY: the function of this name has this signature.
        let function: vk::PFN_vkGetMemoryFdKHR = unsafe { std::mem::transmute::<Function, _>(function) };
        // SAFETY: as above.
        call_output(|descriptor| unsafe { function(device.handle, info, descriptor) })
            .map_err(super::super::failed("vkGetMemoryFdKHR"))
    }

    /// Returns a function of a device, by name.
    #[cfg(any(unix, feature = "statistics"))]
    pub(super) unsafe fn device_function(&self, device: &Device, name: &'static CStr) -> Result<Function> {
        // SAFETY: as above.
        let function = unsafe { (self.functions.get_device_proc_addr)(device.handle, name.as_ptr()) };
        function.ok_or_else(|| missing_function(name))
    }

    pub(in super::super) unsafe fn create_device(
        &self,
        device: vk::PhysicalDevice,
        info: &vk::DeviceCreateInfo<'_>,
    ) -> Result<Device> {
        let create = self.functions.create_device;
        // SAFETY: as above.
        let handle = call_output(|device_out| unsafe { create(device, info, null(), device_out) });
        let handle = handle.map_err(super::super::failed("vkCreateDevice"))?;
        // SAFETY: as above; the device is new.
        unsafe { Device::load(handle, &|name| (self.functions.get_device_proc_addr)(handle, name.as_ptr())) }
    }
}

/// Returns a list that a Vulkan function writes in two calls: first its length, then its elements.
pub(super) fn read_list<T: Default + Clone>(
    call: impl Fn(*mut u32, *mut T) -> vk::Result,
) -> VkResult<Vec<T>> {
    loop {
        let mut count = 0;
        call(&raw mut count, null_mut()).result()?;
        let mut list = vec![T::default(); usize::try_from(count).unwrap_or(0)];
        match call(&raw mut count, list.as_mut_ptr()) {
            // The list grew between the calls.
            vk::Result::INCOMPLETE => {}
            code => {
                code.result()?;
                list.truncate(usize::try_from(count).unwrap_or(0));
                return Ok(list);
            }
        }
    }
}
