//! The files of `targets/` as text: the built-in target profiles, their cost parameters and static facts, and the table of
//! drivers.

/// Name and TOML of each built-in profile, sorted by name. `tests/tidy.rs` compares this table with the folder.
pub const BUILTIN: &[(&str, &str)] = &[
    ("adreno-740", include_str!("../adreno-740.toml")),
    ("adreno-750", include_str!("../adreno-750.toml")),
    ("adreno-830", include_str!("../adreno-830.toml")),
    ("amd-rdna2", include_str!("../amd-rdna2.toml")),
    ("amd-rdna3", include_str!("../amd-rdna3.toml")),
    ("amd-rdna3-directx12", include_str!("../amd-rdna3-directx12.toml")),
    ("android-15", include_str!("../android-15.toml")),
    ("apple-a17-metal", include_str!("../apple-a17-metal.toml")),
    ("apple-m1", include_str!("../apple-m1.toml")),
    ("apple-m1-metal", include_str!("../apple-m1-metal.toml")),
    ("apple-m4", include_str!("../apple-m4.toml")),
    ("apple-m4-metal", include_str!("../apple-m4-metal.toml")),
    ("intel-arc-a770", include_str!("../intel-arc-a770.toml")),
    ("intel-battlemage", include_str!("../intel-battlemage.toml")),
    ("intel-battlemage-directx12", include_str!("../intel-battlemage-directx12.toml")),
    ("intel-meteor-lake", include_str!("../intel-meteor-lake.toml")),
    ("intel-xe2", include_str!("../intel-xe2.toml")),
    ("lavapipe", include_str!("../lavapipe.toml")),
    ("lavapipe-matrix", include_str!("../lavapipe-matrix.toml")),
    ("mali-g715", include_str!("../mali-g715.toml")),
    ("mali-g720", include_str!("../mali-g720.toml")),
    ("nvidia-ada", include_str!("../nvidia-ada.toml")),
    ("nvidia-ada-directx12", include_str!("../nvidia-ada-directx12.toml")),
    ("nvidia-ampere", include_str!("../nvidia-ampere.toml")),
    ("nvidia-hopper", include_str!("../nvidia-hopper.toml")),
    ("nvidia-turing", include_str!("../nvidia-turing.toml")),
    ("vulkan-baseline", include_str!("../vulkan-baseline.toml")),
    ("webgpu-baseline", include_str!("../webgpu-baseline.toml")),
    ("webgpu-f16", include_str!("../webgpu-f16.toml")),
];

/// TOML of the cost parameters that every profile starts from.
pub const GENERIC_COSTS: &str = include_str!("../costs/generic.toml");

/// Profile names and the TOML of their fitted cost parameters: the files of `targets/costs/` except `generic.toml`.
pub const COSTS: &[(&str, &str)] = &[
    ("lavapipe-matrix", include_str!("../costs/lavapipe-matrix.toml")),
    ("nvidia-hopper", include_str!("../costs/nvidia-hopper.toml")),
];

/// Profile names and the TOML of what their drivers' compilers made of the kernels: the files of `targets/static/`.
pub const STATIC_FACTS: &[(&str, &str)] = &[
    ("adreno-740", include_str!("../static/adreno-740.toml")),
    ("adreno-750", include_str!("../static/adreno-750.toml")),
    ("amd-rdna2", include_str!("../static/amd-rdna2.toml")),
    ("amd-rdna3", include_str!("../static/amd-rdna3.toml")),
    ("apple-m1", include_str!("../static/apple-m1.toml")),
    ("intel-arc-a770", include_str!("../static/intel-arc-a770.toml")),
    ("intel-battlemage", include_str!("../static/intel-battlemage.toml")),
    ("intel-meteor-lake", include_str!("../static/intel-meteor-lake.toml")),
    ("intel-xe2", include_str!("../static/intel-xe2.toml")),
    ("mali-g720", include_str!("../static/mali-g720.toml")),
    ("nvidia-ampere", include_str!("../static/nvidia-ampere.toml")),
];

/// TOML of the drivers whose compilers `driftc audit` asks.
pub const DRIVERS: &str = include_str!("../drivers/drivers.toml");
