//! Lookup in the built-in profiles, which are the files of `targets/`.

use drift_targets::{BUILTIN, COSTS, STATIC_FACTS};

/// Names of the built-in profiles.
pub fn names() -> impl Iterator<Item = &'static str> {
    BUILTIN.iter().map(|(name, _)| *name)
}

/// Returns the TOML of the fitted cost parameters of a built-in profile.
pub(super) fn costs(name: &str) -> Option<&'static str> {
    COSTS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// Returns the TOML of the static facts of a built-in profile.
pub(super) fn static_facts(name: &str) -> Option<&'static str> {
    STATIC_FACTS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

pub(super) fn text(name: &str) -> Option<&'static str> {
    BUILTIN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}
