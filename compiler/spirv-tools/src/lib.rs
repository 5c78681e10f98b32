//! SPIRV-Tools for the SPIR-V modules that driftc emits: validator and optimizer.
//!
//! SPIRV-Tools are in a separate crate because building their C++ takes minutes, and compiling models does not need them. The
//! feature `compiled` builds them. Without it, the programs `spirv-val` and `spirv-opt` on the path are run. They must
//! support cooperative matrices: versions from 2025.1 do, version 2023.1 does not.

use spirv_tools::error::{Error, Message};
use spirv_tools::opt::Optimizer;
use spirv_tools::val::Validator;
use spirv_tools::{SpirvResult, TargetEnv};

/// Vulkan version whose SPIR-V rules the validator checks.
const ENVIRONMENT: TargetEnv = TargetEnv::Vulkan_1_1;

/// Validates a SPIR-V module for Vulkan 1.1 and returns the module unchanged.
///
/// # Errors
/// If the module is not valid, or the validator does not start.
pub fn validate(words: Vec<u32>) -> Result<Vec<u32>, String> {
    spirv_tools::val::create(Some(ENVIRONMENT))
        .validate(&words, None)
        .map_err(|e| not_started(&e).unwrap_or_else(|| format!("SPIR-V is not valid: {e}")))?;
    Ok(words)
}

/// Validates a SPIR-V module and runs the performance passes of `spirv-opt` on it.
///
/// # Errors
/// If the module is not valid, a pass fails, or the validator or optimizer does not start.
pub fn optimize(words: Vec<u32>) -> Result<Vec<u32>, String> {
    let words = validate(words)?;
    let mut optimizer = spirv_tools::opt::create(Some(ENVIRONMENT));
    optimizer.register_performance_passes();
    let mut messages = Vec::new();
    let binary = optimizer
        .optimize(&words, &mut |m: Message| messages.push(m.message), None)
        .map_err(|e| not_started(&e).unwrap_or_else(|| format!("spirv-opt: {e}; {}", messages.join("; "))))?;
    Ok(binary.as_words().to_vec())
}

/// Checks that the validator starts. The built-in validator (feature `compiled`) always starts.
///
/// # Errors
/// If the program `spirv-val` does not start. The message has the reason and the remedy.
pub fn start() -> Result<(), String> {
    let nothing: [u32; 0] = [];
    let said = spirv_tools::val::create(Some(ENVIRONMENT)).validate(nothing, None);
    said.err().as_ref().and_then(not_started).map_or(Ok(()), Err)
}

/// Returns a message if the error means that `spirv-val` or `spirv-opt` cannot be started, or `None` for other errors.
fn not_started(error: &Error) -> Option<String> {
    (cfg!(not(feature = "compiled")) && error.inner == SpirvResult::Unsupported).then(|| {
        format!(
            "spirv-val and spirv-opt do not start ({error}); put them on the path, or build driftc-cli \
            with its feature spirv-tools, which is on by default"
        )
    })
}
