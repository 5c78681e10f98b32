//! Emitting shaders. The only place that knows naga.

mod hlsl;
mod msl;
pub mod spirv;
mod texels;
pub mod wgsl;

use naga::valid::{Capabilities, ModuleInfo, ShaderStages, SubgroupOperationSet, ValidationFlags, Validator};

use crate::target::Api;

/// What shaders of a target are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Language {
    /// Words, for Vulkan.
    Spirv,
    /// Text, for WebGPU.
    Wgsl,
    /// Text, for Metal.
    Msl,
    /// Text, for DirectX 12.
    Hlsl,
}

/// A module with one entry point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shader {
    /// The module.
    pub code: Code,
    /// Name of the entry point; languages reserve names.
    pub entry: String,
}

/// A module in the language of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
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
    /// The version that a device must have, major and minor: of Vulkan, of WebGPU, which has no others, of Metal's language,
    /// the shader model of DirectX.
    pub fn version(self) -> (u8, u8) {
        match self {
            Language::Spirv => (1, 1),
            Language::Wgsl => (1, 0),
            Language::Msl => msl::VERSION,
            Language::Hlsl => hlsl::VERSION,
        }
    }
}

/// Compiles a WGSL module with the entry point `main` into a language.
///
/// # Errors
/// Text with the rendered diagnostic when the module is not valid (a defect of a kernel).
pub fn emit(wgsl: &str, language: Language, options: spirv::Options) -> Result<Shader, String> {
    let (code, entry) = match language {
        Language::Spirv => (Code::Spirv(spirv::emit(wgsl, options)?), "main".to_owned()),
        Language::Wgsl => (Code::Wgsl(wgsl::emit(wgsl)?), "main".to_owned()),
        Language::Msl => {
            let (text, entry) = msl::emit(wgsl)?;
            (Code::Msl(text), entry)
        }
        Language::Hlsl => {
            let (text, entry) = hlsl::emit(wgsl)?;
            (Code::Hlsl(text), entry)
        }
    };
    Ok(Shader { code, entry })
}

/// A module with whatever naga knows, validated.
fn parsed(wgsl: &str) -> Result<(naga::Module, ModuleInfo), String> {
    let module = naga::front::wgsl::parse_str(wgsl).map_err(|e| e.emit_to_string(wgsl))?;
    let mut validator = Validator::new(ValidationFlags::all(), Capabilities::all());
    validator.subgroup_operations(SubgroupOperationSet::all());
    validator.subgroup_stages(ShaderStages::COMPUTE);
    let info = validator.validate(&module).map_err(|e| e.emit_to_string(wgsl))?;
    Ok((module, info))
}
