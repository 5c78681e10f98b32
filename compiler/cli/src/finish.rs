//! Last step for every SPIR-V module: SPIRV-Tools validate the module if they are linked in or `DRIFT_VALIDATE` is set, and
//! optimize it with `--optimize`.

use driftc::emit::Language;
use driftc::emit::spirv::Finish;
use driftc::target::TargetProfile;

use crate::environment::VALIDATE;
use crate::failure::{Failure, Result};
use crate::output::note;

/// Checks that `--optimize` can have an effect. Prints a note for targets whose shaders are not SPIR-V.
///
/// # Errors
/// If no target has SPIR-V shaders.
pub(crate) fn check_optimize(targets: &[TargetProfile]) -> Result<()> {
    let (spirv, other): (Vec<_>, Vec<_>) =
        targets.iter().partition(|target| Language::from(target.api.name) == Language::Spirv);
    let names = other.iter().map(|target| target.name.as_str()).collect::<Vec<_>>().join(", ");
    if spirv.is_empty() {
        return Err(Failure::usage(format!("--optimize has no effect: shaders for {names} are not SPIR-V"))
            .help("leave out --optimize"));
    }
    if !other.is_empty() {
        note(&format!("--optimize has no effect on {names}, whose shaders are not SPIR-V"));
    }
    Ok(())
}

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
