//! Loading of the target profiles that option `-t` names: by the name of a profile or of a device, by a path, or by
//! `here` for the device of this machine.

use drift_runtime::device::probe;
use driftc::target::TargetProfile;

use crate::failure::{Failure, Result};
use crate::output::note;
use crate::session::DeviceArgs;
use crate::variant_name::HERE;

/// Loads profiles by name or path.
///
/// # Errors
/// If a profile cannot be loaded or is given twice.
pub(crate) fn load_targets(names: &[String]) -> Result<Vec<TargetProfile>> {
    let mut targets: Vec<TargetProfile> = Vec::with_capacity(names.len());
    for name in names {
        let target = load_target(name, &DeviceArgs::default())?;
        if targets.iter().any(|t| t.name == target.name) {
            return Err(Failure::usage(format!("target `{}` is given twice", target.name)));
        }
        targets.push(target);
    }
    Ok(targets)
}

/// Loads a profile by name or path. The name `here` means the selected device of this machine. A note tells which
/// profile a device name or `here` stands for.
///
/// # Errors
/// If the profile cannot be loaded, or this machine has no device.
pub(crate) fn load_target(name: &str, device: &DeviceArgs) -> Result<TargetProfile> {
    if name.eq_ignore_ascii_case(HERE) {
        return profile_of_this_device(device);
    }
    let target = TargetProfile::load(name)?;
    if !name.eq_ignore_ascii_case(&target.name) && !is_path(name) {
        note(&format!("target `{name}` is the profile {} ({})", target.name, target.summary));
    }
    Ok(target)
}

/// Returns the built-in profile of the device, or else a profile that is generated from what its driver reports.
fn profile_of_this_device(device: &DeviceArgs) -> Result<TargetProfile> {
    let device = probe(device.device.as_deref())?;
    if let Some(profile) = TargetProfile::for_device(&device)? {
        note(&format!("target `{HERE}` is the profile {} ({})", profile.name, device.name));
        return Ok(profile);
    }
    let text = driftc::target::from_device(&device, None)?;
    note(&format!("target `{HERE}` is a profile generated from what the driver of {} reports", device.name));
    Ok(TargetProfile::from_toml(&text, "this device")?)
}

/// True if a target is the path of a profile.
pub(crate) fn is_path(name: &str) -> bool {
    name.ends_with(".toml") || name.contains(['/', '\\'])
}
