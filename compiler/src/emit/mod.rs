//! Emission of shaders in the languages of the targets. Only this module knows naga.

mod hlsl;
mod msl;
pub mod spirv;
mod texels;
pub mod wgsl;

use naga::valid::{Capabilities, ModuleInfo, ShaderStages, SubgroupOperationSet, ValidationFlags, Validator};

use crate::target::Api;

/// Shader language of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Language {
    /// Vulkan.
    Spirv,
    /// WebGPU.
    Wgsl,
    /// Metal.
    Msl,
    /// DirectX 12.
    Hlsl,
}

/// An emitted module with one entry point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shader {
    /// The module.
    pub code: Code,
    /// Name of the entry point. It differs from `main` if the language reserves that name.
    pub entry: String,
}

/// A module in a shader language.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "each enum variant is named after a shader language")]
pub enum Code {
    Spirv(Vec<u32>),
    Wgsl(String),
    Msl(String),
    Hlsl(String),
}

impl From<Api> for Language {
    fn from(api: Api) -> Language {
        match api {
            Api::Vulkan => Language::Spirv,
            Api::WebGpu => Language::Wgsl,
            Api::Metal => Language::Msl,
            Api::DirectX12 => Language::Hlsl,
        }
    }
}

impl Language {
    /// Minimum version (major, minor) that a device must support: of Vulkan for SPIR-V, of WebGPU for WGSL (WebGPU has
    /// only 1.0), of the Metal shading language for MSL, of the DirectX shader model for HLSL.
    pub fn version(self) -> (u8, u8) {
        match self {
            Language::Spirv => (1, 1),
            Language::Wgsl => (1, 0),
            Language::Msl => msl::VERSION,
            Language::Hlsl => hlsl::VERSION,
        }
    }
}

/// Compiles a WGSL module with the entry point `main` to a shader language.
///
/// # Errors
/// The rendered diagnostic, if the module is not valid (a defect of a kernel).
pub fn emit(wgsl: &str, language: Language, options: spirv::Options) -> Result<Shader, String> {
    let (code, entry) = match language {
        Language::Spirv => (Code::Spirv(spirv::emit(wgsl, options)?), "main".to_owned()),
        Language::Wgsl => (Code::Wgsl(wgsl::emit(wgsl)?), "main".to_owned()),
        Language::Msl => {
            let (source, entry) = msl::emit(wgsl)?;
            (Code::Msl(source), entry)
        }
        Language::Hlsl => {
            let (source, entry) = hlsl::emit(wgsl)?;
            (Code::Hlsl(source), entry)
        }
    };
    Ok(Shader { code, entry })
}

/// Parses and validates a WGSL module, with all capabilities that naga knows.
fn parsed(wgsl: &str) -> Result<(naga::Module, ModuleInfo), String> {
    let module = naga::front::wgsl::parse_str(wgsl).map_err(|e| e.emit_to_string(wgsl))?;
    let mut validator = Validator::new(ValidationFlags::all(), Capabilities::all());
    validator.subgroup_operations(SubgroupOperationSet::all());
    validator.subgroup_stages(ShaderStages::COMPUTE);
    let info = validator.validate(&module).map_err(|e| e.emit_to_string(wgsl))?;
    Ok((module, info))
}
