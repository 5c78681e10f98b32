//! SPIRV-Tools for emitted modules: its validator and its optimiser. They are a crate of their own since building their
//! C++ takes minutes, which nobody needs who only compiles models: what is emitted is the same with and without them.

use spirv_tools::TargetEnv;
use spirv_tools::error::Message;
use spirv_tools::opt::Optimizer;
use spirv_tools::val::Validator;

/// The rules that modules are held to.
const ENVIRONMENT: TargetEnv = TargetEnv::Vulkan_1_1;

/// Returns a module as it is, validated for Vulkan 1.1.
///
/// # Errors
/// Text with what the validator says.
pub fn validate(words: Vec<u32>) -> Result<Vec<u32>, String> {
    spirv_tools::val::create(Some(ENVIRONMENT))
        .validate(&words, None)
        .map_err(|e| format!("SPIR-V is not valid: {e}"))?;
    Ok(words)
}

/// Validates a module and runs the optimiser's performance passes over it.
///
/// # Errors
/// Text with what the validator or a pass says.
pub fn optimize(words: Vec<u32>) -> Result<Vec<u32>, String> {
    let words = validate(words)?;
    let mut optimizer = spirv_tools::opt::create(Some(ENVIRONMENT));
    optimizer.register_performance_passes();
    let mut messages = Vec::new();
    let binary = optimizer
        .optimize(&words, &mut |m: Message| messages.push(m.message), None)
        .map_err(|e| format!("spirv-opt: {e}; {}", messages.join("; ")))?;
    Ok(binary.as_words().to_vec())
}
