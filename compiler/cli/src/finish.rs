//! Last step for every SPIR-V module: SPIRV-Tools validate the module if they are linked in or `DRIFT_VALIDATE` is set, and
//! optimize it with `--optimize`.

use driftc::emit::spirv::Finish;

use crate::environment::VALIDATE;
use crate::failure::{Failure, Result};

/// Returns the last step for SPIR-V modules: optimization and validation if `optimize` is true, validation if
/// SPIRV-Tools are linked in or requested, else `None`.
///
/// # Errors
/// If SPIRV-Tools are requested and do not start.
pub(crate) fn finish(optimize: bool) -> Result<Option<Finish>> {
    let validated = cfg!(feature = "spirv-tools") || VALIDATE.value().is_some();
    if !optimize && !validated {
        return Ok(None);
    }
    drift_spirv_tools::start().map_err(|reason| {
        let requested_by = if optimize { "--optimize" } else { VALIDATE.name };
        Failure::usage(format!(
            "{requested_by} needs SPIRV-Tools, but this program was built without them: {reason}"
        ))
    })?;
    Ok(Some(if optimize { drift_spirv_tools::optimize } else { drift_spirv_tools::validate }))
}
