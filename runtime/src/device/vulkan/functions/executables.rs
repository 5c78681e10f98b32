//! Vulkan functions of the extension `VK_KHR_pipeline_executable_properties`.

use super::instance::{RawInstance, read_list};
use super::{Device, Function};
use crate::error::Result;
use ash::prelude::VkResult;
use ash::vk;

/// Functions that report what a driver compiled a pipeline to.
pub(in super::super) struct Executables {
    properties: vk::PFN_vkGetPipelineExecutablePropertiesKHR,
    statistics: vk::PFN_vkGetPipelineExecutableStatisticsKHR,
    representations: vk::PFN_vkGetPipelineExecutableInternalRepresentationsKHR,
}

impl Executables {
    /// Loads the functions. The device must have been opened with the extension.
    pub(in super::super) unsafe fn load(instance: &RawInstance, device: &Device) -> Result<Executables> {
        // SAFETY: the caller fulfills Vulkan's conditions, here and below.
        let find = |name| unsafe { instance.device_function(device, name) };
        // SAFETY: the functions of these names have the signatures of the fields.
        unsafe {
            Ok(Executables {
                properties: std::mem::transmute::<Function, vk::PFN_vkGetPipelineExecutablePropertiesKHR>(
                    find(c"vkGetPipelineExecutablePropertiesKHR")?,
                ),
                statistics: std::mem::transmute::<Function, vk::PFN_vkGetPipelineExecutableStatisticsKHR>(
                    find(c"vkGetPipelineExecutableStatisticsKHR")?,
                ),
                representations: std::mem::transmute::<
                    Function,
                    vk::PFN_vkGetPipelineExecutableInternalRepresentationsKHR,
                >(find(
                    c"vkGetPipelineExecutableInternalRepresentationsKHR",
                )?),
            })
        }
    }

    /// Returns the executables of a pipeline that was created with captured statistics.
    pub(in super::super) unsafe fn properties(
        &self,
        device: &Device,
        pipeline: vk::Pipeline,
    ) -> VkResult<Vec<vk::PipelineExecutablePropertiesKHR<'static>>> {
        let info = vk::PipelineInfoKHR::default().pipeline(pipeline);
        // SAFETY: as above.
        read_list(|count, list| unsafe { (self.properties)(device.handle, &raw const info, count, list) })
    }

    /// Returns the statistics of an executable.
    pub(in super::super) unsafe fn statistics(
        &self,
        device: &Device,
        executable: &vk::PipelineExecutableInfoKHR<'_>,
    ) -> VkResult<Vec<vk::PipelineExecutableStatisticKHR<'static>>> {
        // SAFETY: as above.
        read_list(|count, list| unsafe { (self.statistics)(device.handle, executable, count, list) })
    }

    /// Returns the names and the texts of an executable's internal representations, such as its instructions. Binary
    /// representations are left out.
    pub(in super::super) unsafe fn texts(
        &self,
        device: &Device,
        executable: &vk::PipelineExecutableInfoKHR<'_>,
    ) -> VkResult<Vec<(String, String)>> {
        let read = self.representations;
        // SAFETY: as above; without data pointers the sizes are returned.
        let mut list = read_list(|count, list| unsafe { read(device.handle, executable, count, list) })?;
        let mut buffers: Vec<Vec<u8>> = list.iter().map(|entry| vec![0; entry.data_size]).collect();
        for (entry, buffer) in list.iter_mut().zip(&mut buffers) {
            entry.p_data = buffer.as_mut_ptr().cast();
        }
        let mut count = super::count(&list);
        // SAFETY: as above; each entry points to a buffer of its size, which outlives the call.
        let code = unsafe { read(device.handle, executable, &raw mut count, list.as_mut_ptr()) };
        // A driver that writes less than it announced returns INCOMPLETE; what it wrote is valid.
        if code != vk::Result::INCOMPLETE {
            code.result()?;
        }
        let texts = list.iter().zip(buffers).filter(|(entry, _)| entry.is_text == vk::TRUE);
        Ok(texts
            .map(|(entry, buffer)| {
                let text = buffer.split(|byte| *byte == 0).next().unwrap_or_default();
                let name = entry.name_as_c_str().map_or_else(|_| String::new(), lossy);
                (name, String::from_utf8_lossy(text).into_owned())
            })
            .collect())
    }
}

/// Returns the text of a C string, with invalid UTF-8 replaced.
pub(in super::super) fn lossy(text: &std::ffi::CStr) -> String {
    text.to_string_lossy().into_owned()
}
