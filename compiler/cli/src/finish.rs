//! What every SPIR-V module goes through at the end: SPIRV-Tools, in programs that were built with it.

use driftc::emit::spirv::Finish;

use crate::failure::Result;

/// Validates modules, and optimises them where asked to.
///
/// # Errors
/// Where this program has no optimiser.
#[cfg(feature = "spirv-tools")]
pub(crate) fn finish(optimize: bool) -> Result<Option<Finish>> {
    Ok(Some(if optimize { drift_spirv_tools::optimize } else { drift_spirv_tools::validate }))
}

/// Leaves modules as they are.
///
/// # Errors
/// Where they are to be optimised.
#[cfg(not(feature = "spirv-tools"))]
pub(crate) fn finish(optimize: bool) -> Result<Option<Finish>> {
    if optimize {
        let reason = "--optimize needs SPIRV-Tools, which this program was built without; build it with the feature \
            `spirv-tools`, which is on by default";
        return Err(crate::failure::Failure::usage(reason));
    }
    Ok(None)
}
