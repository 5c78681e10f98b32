//! What every SPIR-V module goes through at the end: SPIRV-Tools, where they are a part of this program or asked for.

use driftc::emit::spirv::Finish;

use crate::failure::{Failure, Result};

/// Asks a program that was built without SPIRV-Tools to validate modules all the same, with the `spirv-val` on the path.
const VALIDATE: &str = "DRIFT_VALIDATE";

/// Optimises and validates modules where asked to, validates them where SPIRV-Tools are at hand, and leaves them as they are
/// otherwise.
///
/// # Errors
/// Where SPIRV-Tools are asked for and do not start.
pub(crate) fn finish(optimize: bool) -> Result<Option<Finish>> {
    let validated = cfg!(feature = "spirv-tools") || std::env::var_os(VALIDATE).is_some();
    if !optimize && !validated {
        return Ok(None);
    }
    drift_spirv_tools::start().map_err(|reason| {
        let asked = if optimize { "--optimize" } else { VALIDATE };
        Failure::usage(format!("{asked} needs SPIRV-Tools, which this program was built without: {reason}"))
    })?;
    Ok(Some(if optimize { drift_spirv_tools::optimize } else { drift_spirv_tools::validate }))
}
