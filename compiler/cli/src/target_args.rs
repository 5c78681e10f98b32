//! Loading of the target profiles that option `-t` names.

use driftc::target::TargetProfile;

use crate::failure::{Failure, Result};

/// Loads profiles by name or path.
///
/// # Errors
/// If a profile cannot be loaded or is given twice.
pub(crate) fn load_targets(names: &[String]) -> Result<Vec<TargetProfile>> {
    let mut targets: Vec<TargetProfile> = Vec::with_capacity(names.len());
    for name in names {
        let target = TargetProfile::load(name)?;
        if targets.iter().any(|t| t.name == target.name) {
            return Err(Failure::usage(format!("target `{}` is given twice", target.name)));
        }
        targets.push(target);
    }
    Ok(targets)
}
