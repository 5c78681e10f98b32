//! The profiles that are part of the compiler: the files of `targets/`, embedded.

/// Name and text of each built-in profile, sorted by name. `tests/tidy.rs` compares it with the folder.
pub const BUILTIN: &[(&str, &str)] = &[
    ("adreno-750", include_str!("../../../targets/adreno-750.toml")),
    ("android-15", include_str!("../../../targets/android-15.toml")),
    ("apple-m4", include_str!("../../../targets/apple-m4.toml")),
    ("intel-xe2", include_str!("../../../targets/intel-xe2.toml")),
    ("lavapipe", include_str!("../../../targets/lavapipe.toml")),
    ("mali-g720", include_str!("../../../targets/mali-g720.toml")),
    ("nvidia-hopper", include_str!("../../../targets/nvidia-hopper.toml")),
    ("vulkan-baseline", include_str!("../../../targets/vulkan-baseline.toml")),
];

/// The names that `TargetProfile::load` knows without a file.
pub fn names() -> impl Iterator<Item = &'static str> {
    BUILTIN.iter().map(|(name, _)| *name)
}

pub(super) fn text(name: &str) -> Option<&'static str> {
    BUILTIN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}
