//! Emitting shaders. The only place that knows naga and spirv-tools.

pub mod spirv;
mod texels;
pub mod wgsl;

use crate::target::Api;

/// A module in the language of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Module {
    /// Words, for Vulkan.
    Spirv(Vec<u32>),
    /// Text, for WebGPU.
    Wgsl(String),
}

/// Compiles a WGSL module with the entry point `main` for an interface.
///
/// # Errors
/// Text with the rendered diagnostic when the module is not valid (a defect of a kernel).
pub fn emit(wgsl: &str, api: Api, options: spirv::Options) -> Result<Module, String> {
    match api {
        Api::Vulkan => spirv::emit(wgsl, options).map(Module::Spirv),
        Api::WebGpu => wgsl::emit(wgsl).map(Module::Wgsl),
    }
}
