//! The Vulkan backend, through `ash`: one device, one compute queue, everything created at load.
//!
//! `instance` finds devices, `capabilities` and `features` say what they can do, `context` opens one, `blocks`
//! allocates, `memory` has buffers, `images` makes textures, `upload` fills the weights, `pipelines` creates pipelines on threads, `record` writes the
//! command buffers, `frame` has what a run in flight needs, `states` keeps what lasts between runs, `load` makes all of that
//! beside each other, and `replay` submits. Vulkan 1.1 is enough; what a bundle requires beyond is enabled
//! exactly. This folder and the mapping of the bundle are the only places with unsafe code.

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
#[allow(unsafe_code)]
mod record;
#[allow(unsafe_code)]
mod replay;
#[allow(unsafe_code)]
mod run;
mod spirv;
#[allow(unsafe_code)]
mod states;
#[allow(unsafe_code)]
mod timing;
#[allow(unsafe_code)]
mod upload;

pub(crate) use context::{Candidate, Context};
pub(crate) use memory::Range;
pub(crate) use replay::Replayer;

use super::DeviceInfo;
use crate::error::{Error, Result};
use ash::vk;

/// Every device of this machine, the preferred one first.
pub fn devices() -> Result<Vec<DeviceInfo>> {
    let instance = instance::Instance::load()?;
    Ok(instance::ranked(instance)?.into_iter().map(|(_, info)| info).collect())
}

/// What the chosen device can do. `wanted` is an index into [`devices`] or part of a name; without it the
/// environment variable `DRIFT_DEVICE` decides, and without that the preferred device is taken.
pub fn probe(wanted: Option<&str>) -> Result<DeviceInfo> {
    let instance = instance::Instance::load()?;
    instance::choose(instance, wanted).map(|(_, info)| info)
}

/// Names the call that a result came from.
fn failed(call: &'static str) -> impl Fn(vk::Result) -> Error {
    move |code| failure(call, code)
}

/// Apart from the closure, of which there is one for each call.
#[inline(never)]
fn failure(call: &'static str, code: vk::Result) -> Error {
    match code {
        vk::Result::ERROR_DEVICE_LOST => Error::DeviceLost { during: call },
        vk::Result::ERROR_OUT_OF_HOST_MEMORY | vk::Result::ERROR_OUT_OF_DEVICE_MEMORY => {
            Error::OutOfMemory { what: call.to_owned(), size: 0 }
        }
        code => Error::Driver { call, code: code_text(code) },
    }
}

/// The names of the codes that drivers return for more than one reason; others are given by number.
fn code_text(code: vk::Result) -> String {
    let name = match code {
        vk::Result::ERROR_INITIALIZATION_FAILED => "initialization failed",
        vk::Result::ERROR_EXTENSION_NOT_PRESENT => "an extension is not present",
        vk::Result::ERROR_FEATURE_NOT_PRESENT => "a feature is not present",
        vk::Result::ERROR_TOO_MANY_OBJECTS => "too many objects",
        vk::Result::ERROR_UNKNOWN => "unknown error",
        code => return format!("VkResult {}", code.as_raw()),
    };
    name.to_owned()
}
