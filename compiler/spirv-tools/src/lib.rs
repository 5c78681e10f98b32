//! SPIRV-Tools for emitted modules: its validator and its optimiser. They are a crate of their own since building their
//! C++ takes minutes, which nobody needs who only compiles models: what is emitted is the same with and without them. The
//! feature `compiled` builds them; without it the programs `spirv-val` and `spirv-opt` on the path are run, which have to know
//! cooperative matrices (those of 2025.1 do, those of 2023.1 do not).

use spirv_tools::error::{Error, Message};
use spirv_tools::opt::Optimizer;
use spirv_tools::val::Validator;
use spirv_tools::{SpirvResult, TargetEnv};

/// The rules that modules are held to.
const ENVIRONMENT: TargetEnv = TargetEnv::Vulkan_1_1;

/// Returns a module as it is, validated for Vulkan 1.1.
///
/// # Errors
/// Text with what the validator says, or why it does not start.
pub fn validate(words: Vec<u32>) -> Result<Vec<u32>, String> {
    spirv_tools::val::create(Some(ENVIRONMENT))
        .validate(&words, None)
        .map_err(|e| not_started(&e).unwrap_or_else(|| format!("SPIR-V is not valid: {e}")))?;
    Ok(words)
}

/// Validates a module and runs the optimiser's performance passes over it.
///
/// # Errors
/// Text with what the validator or a pass says, or why they do not start.
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

/// Whether there is a validator, which is always so where it is built in.
///
/// # Errors
/// Why it does not start, and what to do.
pub fn start() -> Result<(), String> {
    let nothing: [u32; 0] = [];
    let said = spirv_tools::val::create(Some(ENVIRONMENT)).validate(nothing, None);
    said.err().as_ref().and_then(not_started).map_or(Ok(()), Err)
}

/// What to do where there is no program to run.
fn not_started(error: &Error) -> Option<String> {
    (cfg!(not(feature = "compiled")) && error.inner == SpirvResult::Unsupported).then(|| {
        format!(
            "spirv-val and spirv-opt do not start ({error}); put them on the path, or build driftc-cli \
            with its feature spirv-tools, which is on by default"
        )
    })
}
