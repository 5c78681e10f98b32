//! Restrictions on the launches of a candidate on drivers with faults.

use super::params::Params;
use crate::error::OpError;
use crate::shader::{Launch, LaunchDraft};
use crate::target::TargetProfile;
use crate::target::quirks::Fault;

/// True if the invocations of a launch use subgroup operations.
pub fn uses_subgroups<C>(launch: &Launch<C>) -> bool {
    launch.matrix.is_some() || launch.needs.iter().any(|need| need.needs_subgroups())
}

/// Returns the reason why launches must not run on a driver with the target's faults; `None` if they may run.
pub(super) fn refused<C>(launches: &[Launch<C>], target: &TargetProfile) -> Option<String> {
    let subgroup_launches = || launches.iter().filter(|l| uses_subgroups(l));
    let spread = subgroup_launches().find(|l| l.workgroup[1] != 1 || l.workgroup[2] != 1);
    let unsized_ = subgroup_launches().find(|l| l.subgroup_size.is_none());
    let faults = [
        (
            Fault::SubgroupsNeedLinearWorkgroups,
            spread,
            "uses subgroups in a workgroup that is not one-dimensional",
        ),
        (Fault::SubgroupsNeedRequiredSize, unsized_, "uses subgroups without a required subgroup size"),
    ];
    let found = faults.into_iter().find(|(fault, launch, _)| launch.is_some() && target.has_quirk(*fault));
    found.map(|(fault, launch, what)| {
        format!("kernel {} {what}, which `{}` forbids", launch.map_or("", |l| l.kernel), fault.name())
    })
}

/// True if a shader is too long for a driver that fails on some long shaders.
///
/// # Errors
/// If a kernel's module cannot be specialized.
pub(super) fn too_long(
    drafts: &[LaunchDraft],
    target: &TargetProfile,
    params: &Params,
) -> Result<bool, OpError> {
    if !target.has_quirk(Fault::FragilePipelineCreation) {
        return Ok(false);
    }
    for draft in drafts {
        if draft.specialized_wgsl()?.len() as f64 > params.max_short_shader_bytes {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::{Params, refused, uses_subgroups};
    use crate::compile::{Options, lower};
    use crate::ir::graph_text;
    use crate::passes::Precision;
    use crate::plan::Plan;
    use crate::target::quirks::Fault;
    use crate::target::{Quirk, TargetProfile};

    const CONV: &str = r#"
%0 = input {"name":"x","dtype":"f32","shape":[1,32,64,64]}
%1 = constant {"dtype":"f32","shape":[32,32,3,3],"random":1}
%2 = conv %0 %1 {"strides":[1,1],"dilations":[1,1],"pads_begin":[1,1],"pads_end":[1,1],"group":1}
%3 = relu %2
output "y" %3
"#;
    const FEW_CHANNELS: &str = r#"
%0 = input {"name":"x","dtype":"f32","shape":[1,3,64,64]}
%1 = constant {"dtype":"f32","shape":[8,3,3,3],"random":1}
%2 = conv %0 %1 {"strides":[1,1],"dilations":[1,1],"pads_begin":[1,1],"pads_end":[1,1],"group":1}
output "y" %2
"#;
    const MATMUL: &str = r#"
%0 = input {"name":"x","dtype":"f32","shape":[1024,512]}
%1 = constant {"dtype":"f32","shape":[512,1024],"random":1}
%2 = matmul %0 %1 {"trans_a":false,"trans_b":false}
%3 = relu %2
output "y" %3
"#;

    fn with(name: &str, faults: &[Fault]) -> TargetProfile {
        let mut target = TargetProfile::load(name).unwrap();
        let quirk = |name: &Fault| Quirk {
            name: *name,
            driver_from: None,
            driver_before: None,
            source: "test".into(),
        };
        target.quirks = faults.iter().map(quirk).collect();
        target
    }

    fn plan(text: &str, target: &TargetProfile, kernel: Option<&str>) -> Plan {
        let mut options = Options { precision: Precision::F16, ..Options::default() };
        options.plan.prefer_kernel = kernel.map(str::to_string);
        lower(&graph_text::parse(text).unwrap(), target, &options).unwrap().plan
    }

    fn kernels(plan: &Plan) -> Vec<&'static str> {
        plan.decisions.iter().flat_map(|d| &d.choices).map(|c| c.kernel.name).collect()
    }

    #[test]
    fn filters_are_not_in_uniform_buffers_with_a_sync_fault() {
        assert!(kernels(&plan(FEW_CHANNELS, &with("lavapipe", &[]), None)).contains(&"conv_constants"));
        let careful = with("lavapipe", &[Fault::ConstantBufferSync]);
        assert!(!kernels(&plan(FEW_CHANNELS, &careful, None)).contains(&"conv_constants"));
    }

    #[test]
    fn slow_matrix_units_are_not_used() {
        let fast = plan(MATMUL, &with("nvidia-hopper", &[]), None);
        assert!(kernels(&fast).contains(&"matmul_coop"));
        let slow = plan(MATMUL, &with("nvidia-hopper", &[Fault::CooperativeMatrixSlow]), None);
        assert!(!kernels(&slow).iter().any(|k| k.ends_with("_coop")));
    }

    #[test]
    fn matrix_unit_tiles_stay_small_where_large_ones_are_slow() {
        let sides = |faults: &[Fault]| {
            let plan = plan(MATMUL, &with("amd-rdna3", faults), Some("matmul_coop"));
            let knobs = |name: &'static str| {
                plan.decisions
                    .iter()
                    .flat_map(|d| &d.choices)
                    .map(move |c| c.candidate.knobs.get(name).unwrap())
            };
            let [rows, columns] =
                [["SUBGROUPS_M", "FRAGS_M"], ["SUBGROUPS_N", "FRAGS_N"]].map(|[subgroups, frags]| {
                    knobs(subgroups).zip(knobs(frags)).map(|(s, f)| s * f * 16).collect::<Vec<_>>()
                });
            rows.into_iter().zip(columns).map(|(r, c)| r * c).max().unwrap_or(0)
        };
        assert!(sides(&[]) > 64 * 64);
        assert!((1..=64 * 64).contains(&sides(&[Fault::LargeMatrixTilesSlow])));
    }

    #[test]
    fn short_shaders_are_preferred_where_pipeline_creation_fails() {
        let longest = |faults: &[Fault]| {
            let plan = plan(CONV, &with("adreno-830", faults), Some("conv"));
            plan.dispatches.iter().map(|s| s.launch.wgsl.len()).max().unwrap() as f64
        };
        let max = Params::from_target(&with("adreno-830", &[])).unwrap().max_short_shader_bytes;
        assert!(longest(&[]) > max, "{}", longest(&[]));
        assert!(longest(&[Fault::FragilePipelineCreation]) <= max);
    }

    #[test]
    fn subgroup_kernels_are_one_dimensional_and_require_a_size() {
        let faults = [Fault::SubgroupsNeedLinearWorkgroups, Fault::SubgroupsNeedRequiredSize];
        let target = with("lavapipe", &faults);
        let plan = plan(CONV, &target, Some("conv_broadcast"));
        let mut launches: Vec<_> =
            plan.dispatches.into_iter().map(|s| s.launch).filter(uses_subgroups).collect();
        assert!(!launches.is_empty() && refused(&launches, &target).is_none());
        launches[0].subgroup_size = None;
        assert!(refused(&launches, &target).unwrap().contains("subgroups-need-required-size"));
        launches[0].workgroup[1] = 2;
        assert!(refused(&launches, &target).unwrap().contains("subgroups-need-linear-workgroups"));
        assert!(refused(&launches, &with("lavapipe", &[])).is_none());
    }
}
