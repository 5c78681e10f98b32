//! What every SPIR-V module goes through at the end: SPIRV-Tools, where they are a part of this program or asked for.

use driftc::emit::spirv::Finish;

/// Asks a program that was built without SPIRV-Tools to validate modules all the same, with the `spirv-val` on the path.
const VALIDATE: &str = "DRIFT_VALIDATE";

/// Optimises and validates modules where asked to, validates them where SPIRV-Tools are at hand, and leaves them as they are
/// otherwise.
pub(crate) fn finish(optimize: bool) -> Option<Finish> {
    if optimize {
        return Some(drift_spirv_tools::optimize);
    }
    let validated = cfg!(feature = "spirv-tools") || std::env::var_os(VALIDATE).is_some();
    validated.then_some(drift_spirv_tools::validate)
}
