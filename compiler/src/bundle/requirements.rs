//! Requirements of a variant: features and limits that a device must have.

use std::collections::BTreeSet;

use drift_format::{self as format, DeviceHints, Feature, Features, Requirements, Variant};

use super::planned::Planned;
use super::types::matrix_shape;
use crate::emit::Language;
use crate::plan::Dispatch;
use crate::shader::{Launch, Need, OutsideReads};
use crate::target::{MatrixScope, MatrixShape, MatrixType, TargetProfile};

/// Declares in a variant the device features that its shaders use, and the device limits that it needs.
pub(super) fn declare(variant: &mut Variant, planned: &Planned<'_>) {
    let target = planned.target;
    let launches: Vec<&Launch> = dispatches(planned).map(|dispatch| &dispatch.launch).collect();
    let matrices: BTreeSet<&MatrixShape> = launches.iter().filter_map(|l| l.matrix.as_ref()).collect();
    variant.requirements.limits.storage_alignment = target.limits.storage_buffer_alignment.max(16);
    variant.requirements.limits.uniform_alignment = target.limits.uniform_buffer_alignment.max(16);
    let mut limits = variant.needed_limits();
    // Between the bounds of the symbols, a grid may be larger than at the bounds.
    for (_, plan) in &planned.functions {
        for dispatch in &plan.dispatches {
            for (most, groups) in limits.max_grid.iter_mut().zip(&dispatch.launch.grid) {
                let largest = u32::try_from(groups.range(&plan.bounds).1).unwrap_or(u32::MAX);
                *most = (*most).max(largest);
            }
        }
    }
    let subgroup_shapes = matrices.iter().filter(|shape| shape.scope == MatrixScope::Subgroup);
    let (major, minor) = Language::from(target.api.name).version();
    variant.requirements = Requirements {
        api_version: format::ApiVersion { major: major.into(), minor: minor.into() },
        features: features(&launches, &matrices, target),
        limits,
        subgroup_sizes: Vec::new(),
        matrix_shapes: subgroup_shapes.map(|shape| matrix_shape(shape)).collect(),
        hints: DeviceHints {
            vendor_ids: target.device.vendor_id.into_iter().collect(),
            device_names: target.device.names.clone(),
            ..DeviceHints::default()
        },
    };
}

fn dispatches<'a>(planned: &'a Planned<'_>) -> impl Iterator<Item = &'a Dispatch> {
    planned.functions.iter().flat_map(|(_, plan)| &plan.dispatches)
}

fn of_need(need: Need) -> &'static [Feature] {
    match need {
        Need::F16 => &[Feature::ShaderF16, Feature::Storage16bit],
        Need::IntDotProduct => &[Feature::IntDotProduct],
        Need::Subgroups => &[Feature::SubgroupBasic],
        Need::SubgroupVote => &[Feature::SubgroupVote],
        Need::SubgroupShuffle => &[Feature::SubgroupShuffle],
    }
}

fn features(launches: &[&Launch], matrices: &BTreeSet<&MatrixShape>, target: &TargetProfile) -> Features {
    let mut features = Features::NONE;
    for need in launches.iter().flat_map(|l| &l.needs) {
        for feature in of_need(*need) {
            features.insert(*feature);
        }
    }
    if launches.iter().any(|l| l.subgroup_size.is_some()) {
        features.insert(Feature::SubgroupSizeControl);
        features.insert(Feature::SubgroupBasic);
        if target.features.full_subgroups {
            features.insert(Feature::FullSubgroups);
        }
    }
    for (outside, feature) in [
        (OutsideReads::ZeroRgb, Feature::RobustImageAccess),
        (OutsideReads::Zero, Feature::RobustImageAccess2),
    ] {
        if launches.iter().any(|l| l.outside == outside) {
            features.insert(feature);
        }
    }
    if !matrices.is_empty() {
        features.insert(Feature::CooperativeMatrix);
    }
    for shape in matrices {
        features.insert(match shape.a {
            MatrixType::F16 => Feature::ShaderF16,
            _ => Feature::ShaderInt8,
        });
    }
    // Devices list shapes for subgroup scope only. Workgroup scope has feature bits.
    if matrices.iter().any(|shape| shape.scope == MatrixScope::Workgroup) {
        features.insert(Feature::CooperativeMatrixWorkgroupScope);
        features.insert(Feature::CooperativeMatrixFlexibleDimensions);
        features.insert(Feature::CooperativeMatrixTensorAddressing);
        features.insert(Feature::CooperativeMatrixPerElementOperations);
    }
    features
}
