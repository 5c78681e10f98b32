//! The Vulkan backend, through `ash`: one device, one compute queue, everything created at load.
//!
//! `instance` finds devices, `capabilities` and `features` query their properties, `context` opens a device, `blocks`
//! allocates memory, `memory` has buffers, `images` creates images, `upload` fills the weights, `pipelines` creates
//! pipelines on several threads, `record` writes command buffers, `frame` has the resources of a run in flight,
//! `states` keeps the states, `load` creates all of these objects in parallel, and `replay` submits runs. Vulkan 1.1 is
//! sufficient. Exactly the features that a bundle requires are enabled. In this crate, only this folder and the mapping
//! of the bundle file use unsafe code.

#[allow(unsafe_code)]
mod blocks;
#[allow(unsafe_code)]
mod capabilities;
#[allow(unsafe_code)]
mod context;
#[cfg(unix)]
#[allow(unsafe_code)]
mod external;
#[allow(unsafe_code)]
mod features;
#[allow(unsafe_code)]
mod frame;
#[allow(unsafe_code)]
mod functions;
#[allow(unsafe_code)]
mod images;
#[allow(unsafe_code)]
mod instance;
mod load;
#[allow(unsafe_code)]
mod memory;
#[allow(unsafe_code)]
mod pipelines;
mod port_memory;
#[allow(unsafe_code)]
mod record;
#[allow(unsafe_code)]
mod replay;
#[allow(unsafe_code)]
mod run;
#[allow(unsafe_code)]
mod selection;
mod spirv;
#[allow(unsafe_code)]
mod states;
mod texel_format;
#[allow(unsafe_code)]
mod timing;
#[allow(unsafe_code)]
mod upload;

pub(crate) use context::{Candidate, Context};
pub(crate) use memory::BufferRange;
#[cfg(feature = "statistics")]
pub use pipelines::statistics::PipelineCompiler;
pub(crate) use replay::Replayer;

use super::DeviceInfo;
use crate::error::{Error, Result};
use ash::vk;

/// Returns all Vulkan devices of this machine, the preferred device first.
pub fn devices() -> Result<Vec<DeviceInfo>> {
    let instance = instance::Instance::load()?;
    Ok(selection::ranked_devices(instance)?.into_iter().map(|(_, info)| info).collect())
}

/// Returns the properties of the selected device. `wanted` is an index into [`devices`] or part of a device name.
/// Without `wanted`, the environment variable `DRIFT_DEVICE` selects the device; without that variable, the preferred
/// device is used.
pub fn probe(wanted: Option<&str>) -> Result<DeviceInfo> {
    let instance = instance::Instance::load()?;
    selection::select_device(instance, wanted).map(|(_, info)| info)
}

/// Returns a closure that converts an error code of the Vulkan function `call` to an error.
fn failed(call: &'static str) -> impl Fn(vk::Result) -> Error {
    move |code| failure(call, code)
}

/// Converts the result of a failed Vulkan call to an error. This is no closure, because a closure is instantiated at
/// every call site.
#[inline(never)]
fn failure(call: &'static str, code: vk::Result) -> Error {
    match code {
        vk::Result::ERROR_DEVICE_LOST => Error::DeviceLost { during: call },
        vk::Result::ERROR_OUT_OF_HOST_MEMORY | vk::Result::ERROR_OUT_OF_DEVICE_MEMORY => {
            Error::OutOfMemory { what: call.to_owned(), size: 0 }
        }
        code => Error::Driver { call, code: code_name(code) },
    }
}

/// Returns a description of a Vulkan error code, or the number of the code if this function has no description of it.
fn code_name(code: vk::Result) -> String {
    let name = match code {
        vk::Result::ERROR_INITIALIZATION_FAILED => "initialization failed",
        vk::Result::ERROR_EXTENSION_NOT_PRESENT => "a requested extension is not present",
        vk::Result::ERROR_FEATURE_NOT_PRESENT => "a feature is not present",
        vk::Result::ERROR_TOO_MANY_OBJECTS => "too many objects",
        vk::Result::ERROR_UNKNOWN => "unknown error",
        code => return format!("VkResult {}", code.as_raw()),
    };
    name.to_owned()
}
