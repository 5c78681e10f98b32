//! Checks of a target profile's values, so that the compiler can rely on them and, for example, divide by them.

use super::{Api, TargetError, TargetProfile, costs};

const POSITIVE: &str = "write a number greater than zero";
const POWER: &str = "write a power of two";

pub(super) fn check(profile: &TargetProfile, file: &str) -> Result<(), TargetError> {
    let wrong = |field: &str, reason: &str, help: &str| Err(TargetError::field(file, field, reason, help));
    let safe = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if profile.name.is_empty() || !profile.name.chars().all(safe) {
        return wrong(
            "name",
            "the profile's name is empty or has invalid characters",
            "use letters, digits, `-`, `_` and `.`",
        );
    }
    for (field, value) in counts(profile) {
        if value == 0 {
            return wrong(field, "the value is zero", POSITIVE);
        }
    }
    for (field, value) in measures(profile) {
        if !(value.is_finite() && value > 0.0) {
            return wrong(field, "the value of this field is not a positive number", POSITIVE);
        }
    }
    let limits = &profile.limits;
    for (field, value) in [
        ("limits.storage_buffer_alignment", limits.storage_buffer_alignment),
        ("limits.uniform_buffer_alignment", limits.uniform_buffer_alignment),
        ("limits.texel_buffer_alignment", limits.texel_buffer_alignment),
    ] {
        if !value.is_power_of_two() {
            return wrong(field, "the value of this field is not a power of two", POWER);
        }
    }
    if matches!(profile.api.name, Api::WebGpu | Api::DirectX12) && !limits.separate_read_write_buffers {
        let reason = "with this API, no dispatch can read one part of a buffer and write another part";
        return wrong("limits.separate_read_write_buffers", reason, "set it to true");
    }
    if profile.api.name != Api::Vulkan && profile.features.cooperative_matrix {
        return wrong(
            "features.cooperative_matrix",
            "cooperative matrices are supported only on Vulkan",
            "set it to false",
        );
    }
    let sizes = &profile.subgroup.sizes;
    if sizes.is_empty() || !sizes.iter().all(|size| size.is_power_of_two()) || !sizes.is_sorted() {
        return wrong(
            "subgroup.sizes",
            "the subgroup sizes are not ascending powers of two",
            "write for example [32, 64]",
        );
    }
    if !sizes.contains(&profile.subgroup.preferred) {
        return wrong(
            "subgroup.preferred",
            "the preferred subgroup size is not in subgroup.sizes",
            "choose one of subgroup.sizes",
        );
    }
    if profile.prefer.workgroup_invocations > limits.max_workgroup_invocations {
        let reason = "the preferred number of invocations per workgroup is greater than limits.max_workgroup_invocations";
        return wrong("prefer.workgroup_invocations", reason, "choose a smaller workgroup");
    }
    if profile.features.cooperative_matrix == profile.matrix.is_empty() {
        let reason = "this feature must be true if `matrix` lists shapes, and false if it lists none";
        return wrong(
            "features.cooperative_matrix",
            reason,
            "list the supported cooperative-matrix shapes, or list none and set the feature to false",
        );
    }
    for shape in &profile.matrix {
        if shape.m == 0 || shape.n == 0 || shape.k == 0 {
            return wrong("matrix", "a cooperative-matrix shape has a size of zero", POSITIVE);
        }
    }
    if profile.overrides.iter().any(|o| !(o.us.is_finite() && o.us > 0.0)) {
        return wrong("overrides", "the time of an override is not a positive number", POSITIVE);
    }
    costs::check(&profile.costs, profile.fit.as_ref(), file)?;
    check_quirks(profile, file)
}

/// Checks that the driver versions in a profile's quirks are dotted numbers.
fn check_quirks(profile: &TargetProfile, file: &str) -> Result<(), TargetError> {
    for quirk in &profile.quirks {
        for version in [&quirk.driver_from, &quirk.driver_before].into_iter().flatten() {
            if !version.split('.').all(|part| part.parse::<u32>().is_ok()) {
                return Err(TargetError::field(
                    file,
                    "quirks",
                    "a driver version does not consist of numbers and dots",
                    "write for example \"512.676.0\"",
                ));
            }
        }
    }
    Ok(())
}

/// Returns the integers of a profile that must not be zero, with their field paths.
fn counts(profile: &TargetProfile) -> Vec<(&'static str, u64)> {
    let limits = &profile.limits;
    let machine = &profile.machine;
    let sides = |name, values: [u32; 3]| values.map(|value| (name, u64::from(value)));
    let mut all = vec![
        ("limits.max_storage_buffer_range", limits.max_storage_buffer_range),
        ("limits.max_uniform_range", limits.max_uniform_range),
        ("limits.max_allocation", limits.max_allocation),
        ("limits.max_storage_buffers", limits.max_storage_buffers.into()),
        ("limits.max_workgroup_invocations", limits.max_workgroup_invocations.into()),
        ("limits.max_workgroup_memory", limits.max_workgroup_memory.into()),
        ("limits.max_workgroup_subgroups", limits.max_workgroup_subgroups.into()),
        ("limits.max_loop_iterations", limits.max_loop_iterations.into()),
        ("machine.compute_units", machine.compute_units.into()),
        ("machine.invocations_per_unit", machine.invocations_per_unit.into()),
        ("machine.matrix_engines", machine.matrix_engines.into()),
        ("machine.registers", machine.registers.into()),
        ("machine.max_registers", machine.max_registers.into()),
        ("machine.last_level_cache", machine.last_level_cache),
        ("prefer.workgroup_invocations", profile.prefer.workgroup_invocations.into()),
    ];
    all.extend(sides("limits.max_workgroup_size", limits.max_workgroup_size));
    all.extend(sides("limits.max_workgroup_count", limits.max_workgroup_count));
    all
}

/// Returns the floating-point values of a profile that must be positive, with their field paths.
fn measures(profile: &TargetProfile) -> Vec<(&'static str, f64)> {
    let machine = &profile.machine;
    let mut all = vec![
        ("machine.bandwidth_gb_s", machine.bandwidth_gb_s),
        ("machine.cache_bandwidth_gb_s", machine.cache_bandwidth_gb_s),
        ("machine.launch_us", machine.launch_us),
        ("machine.memory_latency_ns", machine.memory_latency_ns),
        ("machine.barrier_ns", machine.barrier_ns),
        ("machine.uniform_read_fmas", machine.uniform_read_fmas),
        ("machine.shuffle_fmas", machine.shuffle_fmas),
        ("machine.peak.f32", machine.peak.f32),
        ("machine.peak.f16", machine.peak.f16),
        ("machine.peak.int8", machine.peak.int8),
    ];
    all.extend(machine.peak.matrix_f16.map(|value| ("machine.peak.matrix_f16", value)));
    all.extend(machine.peak.matrix_int8.map(|value| ("machine.peak.matrix_int8", value)));
    all
}
