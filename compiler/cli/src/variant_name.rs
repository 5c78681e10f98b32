//! Names of a bundle's variants, as option `--target` gives them.

use driftc::target::TargetProfile;

/// Target that stands for the device of this machine.
pub(crate) const HERE: &str = "here";

/// Returns the variant name in a bundle that a `--target` option means. Returns `None` for the variant that fits the
/// device best.
pub(crate) fn variant_name(target: Option<&str>) -> Option<String> {
    let name = target.filter(|name| !name.eq_ignore_ascii_case(HERE))?;
    // A bundle may have variants for profiles that are not here.
    Some(TargetProfile::load(name).map_or_else(|_| name.to_owned(), |profile| profile.name))
}
