//! Last step for every SPIR-V module: SPIRV-Tools validate or optimize it, if they are linked in or requested.

use driftc::emit::spirv::Finish;

use crate::failure::{Failure, Result};

/// Environment variable that makes a program without linked SPIRV-Tools validate modules with `spirv-val` of the path.
const VALIDATE: &str = "DRIFT_VALIDATE";

/// Returns the last step for modules: optimize and validate with `optimize`, validate if SPIRV-Tools are linked in or
/// requested, else `None`.
///
/// # Errors
/// If SPIRV-Tools are requested and do not start.
pub(crate) fn finish(optimize: bool) -> Result<Option<Finish>> {
    let validated = cfg!(feature = "spirv-tools") || std::env::var_os(VALIDATE).is_some();
    if !optimize && !validated {
        return Ok(None);
    }
    drift_spirv_tools::start().map_err(|reason| {
        let requested_by = if optimize { "--optimize" } else { VALIDATE };
        Failure::usage(format!(
            "{requested_by} needs SPIRV-Tools, but this program was built without them: {reason}"
        ))
    })?;
    Ok(Some(if optimize { drift_spirv_tools::optimize } else { drift_spirv_tools::validate }))
}
