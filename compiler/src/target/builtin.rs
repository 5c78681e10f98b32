//! Built-in profiles: the embedded files of `targets/`.

/// Name and TOML of each built-in profile, sorted by name. `tests/tidy.rs` compares this table with the folder.
pub const BUILTIN: &[(&str, &str)] = &[
    ("adreno-740", include_str!("../../../targets/adreno-740.toml")),
    ("adreno-750", include_str!("../../../targets/adreno-750.toml")),
    ("adreno-830", include_str!("../../../targets/adreno-830.toml")),
    ("amd-rdna2", include_str!("../../../targets/amd-rdna2.toml")),
    ("amd-rdna3", include_str!("../../../targets/amd-rdna3.toml")),
    ("amd-rdna3-directx12", include_str!("../../../targets/amd-rdna3-directx12.toml")),
    ("android-15", include_str!("../../../targets/android-15.toml")),
    ("apple-a17-metal", include_str!("../../../targets/apple-a17-metal.toml")),
    ("apple-m1", include_str!("../../../targets/apple-m1.toml")),
    ("apple-m1-metal", include_str!("../../../targets/apple-m1-metal.toml")),
    ("apple-m4", include_str!("../../../targets/apple-m4.toml")),
    ("apple-m4-metal", include_str!("../../../targets/apple-m4-metal.toml")),
    ("intel-arc-a770", include_str!("../../../targets/intel-arc-a770.toml")),
    ("intel-battlemage", include_str!("../../../targets/intel-battlemage.toml")),
    ("intel-battlemage-directx12", include_str!("../../../targets/intel-battlemage-directx12.toml")),
    ("intel-meteor-lake", include_str!("../../../targets/intel-meteor-lake.toml")),
    ("intel-xe2", include_str!("../../../targets/intel-xe2.toml")),
    ("lavapipe", include_str!("../../../targets/lavapipe.toml")),
    ("lavapipe-matrix", include_str!("../../../targets/lavapipe-matrix.toml")),
    ("mali-g715", include_str!("../../../targets/mali-g715.toml")),
    ("mali-g720", include_str!("../../../targets/mali-g720.toml")),
    ("nvidia-ada", include_str!("../../../targets/nvidia-ada.toml")),
    ("nvidia-ada-directx12", include_str!("../../../targets/nvidia-ada-directx12.toml")),
    ("nvidia-ampere", include_str!("../../../targets/nvidia-ampere.toml")),
    ("nvidia-hopper", include_str!("../../../targets/nvidia-hopper.toml")),
    ("nvidia-turing", include_str!("../../../targets/nvidia-turing.toml")),
    ("vulkan-baseline", include_str!("../../../targets/vulkan-baseline.toml")),
    ("webgpu-baseline", include_str!("../../../targets/webgpu-baseline.toml")),
    ("webgpu-f16", include_str!("../../../targets/webgpu-f16.toml")),
];

/// TOML of the cost parameters that every profile starts from.
pub(super) const GENERIC_COSTS: &str = include_str!("../../../targets/costs/generic.toml");

/// Profile names and the TOML of their fitted cost parameters: the files of `targets/costs/` except `generic.toml`.
pub const COSTS: &[(&str, &str)] = &[
    ("lavapipe-matrix", include_str!("../../../targets/costs/lavapipe-matrix.toml")),
    ("nvidia-hopper", include_str!("../../../targets/costs/nvidia-hopper.toml")),
];

/// Profile names and the TOML of what their drivers' compilers made of the kernels: the files of `targets/static/`.
pub const STATIC_FACTS: &[(&str, &str)] = &[
    ("adreno-740", include_str!("../../../targets/static/adreno-740.toml")),
    ("adreno-750", include_str!("../../../targets/static/adreno-750.toml")),
    ("amd-rdna2", include_str!("../../../targets/static/amd-rdna2.toml")),
    ("amd-rdna3", include_str!("../../../targets/static/amd-rdna3.toml")),
    ("apple-m1", include_str!("../../../targets/static/apple-m1.toml")),
    ("intel-arc-a770", include_str!("../../../targets/static/intel-arc-a770.toml")),
    ("intel-battlemage", include_str!("../../../targets/static/intel-battlemage.toml")),
    ("intel-meteor-lake", include_str!("../../../targets/static/intel-meteor-lake.toml")),
    ("intel-xe2", include_str!("../../../targets/static/intel-xe2.toml")),
    ("mali-g720", include_str!("../../../targets/static/mali-g720.toml")),
    ("nvidia-ampere", include_str!("../../../targets/static/nvidia-ampere.toml")),
];

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
