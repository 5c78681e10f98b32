//! Checks the launches of a candidate against the limits of the target's profile.
//!
//! A candidate over any limit is never selected, whatever its estimated cost. The plan and all comparisons of costs
//! before the plan use these checks, so nothing is selected that the device cannot run.

use crate::ir::dim::{Bounds, Dim};
use crate::shader::problem::{Operand, Problem};
use crate::shader::resource::Resource;
use crate::shader::{Binding, Bound, LaunchDraft};
use crate::target::TargetProfile;

/// Returns the reason why the target cannot run launches; `None` if it can.
pub fn exceeded(launches: &[LaunchDraft], bounds: &Bounds, target: &TargetProfile) -> Option<String> {
    launches.iter().find_map(|launch| {
        bindings(launch, target)
            .or_else(|| bytes(launch, bounds, target))
            .or_else(|| invocations(launch, bounds, target))
            .or_else(|| iterations(launch, bounds, target))
    })
}

/// True if the result of a problem can be bound as a buffer, or created as a texture.
pub fn holds_result(problem: &Problem<'_>) -> bool {
    holds(&problem.result, problem.bounds, problem.target)
}

fn holds(operand: &Operand<'_>, bounds: &Bounds, target: &TargetProfile) -> bool {
    if operand.in_texture() {
        let extent = operand.storage.extent(&operand.shape, bounds);
        return extent.is_some_and(|extent| target.limits.holds_texture(operand.storage, extent));
    }
    u64::try_from(operand.bytes(bounds)).is_ok_and(|bytes| bytes <= target.limits.max_storage_buffer_range)
}

/// Checks how many bindings of each kind a launch has; returns the reason if they exceed a limit of the target.
fn bindings(launch: &LaunchDraft, target: &TargetProfile) -> Option<String> {
    let limits = &target.limits;
    let uniform = |b: &Binding| b.bound == Bound::Params || matches!(b.resource, Resource::Uniform(_));
    let uniforms = launch.bindings.iter().filter(|b| uniform(b)).count();
    let count = |is_buffer: bool, writable: Option<bool>| {
        let bindings = launch.bindings.iter().filter(|b| !uniform(b));
        let kind = bindings.filter(|b| (b.resource == Resource::Buffer) == is_buffer);
        kind.filter(|b| writable.is_none_or(|w| w == b.writable)).count()
    };
    let counts = [
        ("buffers", count(true, None), limits.max_storage_buffers),
        ("uniform buffers", uniforms, limits.max_uniform_buffers),
        ("textures", count(false, Some(false)), limits.max_sampled_images),
        ("storage textures", count(false, Some(true)), limits.max_storage_images),
    ];
    let over = counts.iter().find(|(_, n, max)| n > &(*max as usize));
    over.map(|(what, n, max)| {
        format!("kernel {} binds {n} {what}; {} allows {max}", launch.kernel, target.name)
    })
}

/// Checks the bytes of a launch's packed constants and scratch buffers; returns the reason if they exceed a limit of
/// the target.
fn bytes(launch: &LaunchDraft, bounds: &Bounds, target: &TargetProfile) -> Option<String> {
    let size = |binding: &Binding| match (binding.bound, binding.resource) {
        (Bound::Packed(k), Resource::Buffer) => launch.packed.get(k).map(|packed| packed.bytes()),
        _ => None,
    };
    let packed = launch.bindings.iter().filter_map(size);
    let scratch = launch.scratch.iter().map(|bytes| u64::try_from(bytes.range(bounds).1).unwrap_or(u64::MAX));
    let max = target.limits.max_storage_buffer_range;
    let over = packed.chain(scratch).find(|bytes| *bytes > max);
    over.map(|bytes| {
        let (kernel, name) = (launch.kernel, &target.name);
        format!("kernel {kernel} binds a constant or scratch buffer of {bytes} bytes; {name} allows {max}")
    })
}

/// Checks the number and size of a launch's workgroups, and their workgroup memory; returns the reason if one of them exceeds a
/// limit of the target.
fn invocations(launch: &LaunchDraft, bounds: &Bounds, target: &TargetProfile) -> Option<String> {
    let limits = &target.limits;
    let (kernel, name) = (launch.kernel, &target.name);
    let groups: Vec<i64> = launch.grid.iter().map(|groups: &Dim| groups.range(bounds).1).collect();
    if groups.iter().zip(limits.max_workgroup_count).any(|(n, max)| *n > i64::from(max)) {
        let max = limits.max_workgroup_count;
        return Some(format!("kernel {kernel} launches {groups:?} workgroups; {name} allows {max:?}"));
    }
    let all = launch.workgroup.iter().fold(1u32, |n, size| n.saturating_mul(*size));
    let wide = launch.workgroup.iter().zip(limits.max_workgroup_size).any(|(n, max)| *n > max);
    if wide || all > limits.max_workgroup_invocations {
        return Some(format!(
            "kernel {kernel} has workgroups of {:?} invocations, too many for {name}",
            launch.workgroup
        ));
    }
    let (bytes, max) = (launch.workgroup_memory, limits.max_workgroup_memory);
    (bytes > max)
        .then(|| format!("kernel {kernel} uses {bytes} bytes of workgroup memory; {name} allows {max}"))
}

/// Checks the number of loop iterations of one invocation, which some devices limit. Returns the reason if a launch
/// exceeds the limit.
fn iterations(launch: &LaunchDraft, bounds: &Bounds, target: &TargetProfile) -> Option<String> {
    let (iterations, max) = (launch.iterations.range(bounds).1, target.limits.max_loop_iterations);
    let (kernel, name) = (launch.kernel, &target.name);
    let over = iterations > i64::from(max);
    over.then(|| format!("kernel {kernel} has a loop of {iterations} iterations; {name} allows {max}"))
}

#[cfg(test)]
mod tests {
    use crate::compile::{Options, lower};
    use crate::ir::graph_text;
    use crate::plan::Plan;
    use crate::target::TargetProfile;

    /// A test graph with a convolution whose Winograd tiles take 2.25 times the bytes of its image.
    const TILES: &str = r#"
%0 = input {"name":"x","dtype":"f32","shape":[1,64,64,64]}
%1 = input {"name":"z","dtype":"f32","shape":[1,64,64,64]}
%2 = mul %0 %1
%3 = constant {"dtype":"f32","shape":[64,64,3,3],"random":1}
%4 = conv %2 %3 {"strides":[1,1],"dilations":[1,1],"pads_begin":[1,1],"pads_end":[1,1],"group":1}
%5 = neg %4
output "y" %5
"#;
    /// A test graph with a long sum, which is split over workgroups if the device allows many.
    const SUM: &str = r#"
%0 = input {"name":"x","dtype":"f32","shape":[1,4194304]}
%1 = reduce %0 {"kind":"sum","axes":[1],"keepdims":false}
output "y" %1
"#;

    fn plan(graph: &str, target: &TargetProfile) -> Plan {
        lower(&graph_text::parse(graph).unwrap(), target, &Options::default()).unwrap().plan
    }

    fn kernels(plan: &Plan) -> Vec<&str> {
        plan.dispatches.iter().map(|step| step.launch.kernel).collect()
    }

    #[test]
    fn alternatives_over_a_limit_are_not_selected() {
        let mut target = TargetProfile::load("lavapipe").unwrap();
        assert!(kernels(&plan(TILES, &target)).contains(&"winograd"));
        // The size of the image, and of the filters.
        target.limits.max_storage_buffer_range = 1 << 20;
        let plan = plan(TILES, &target);
        assert!(!kernels(&plan).contains(&"winograd"), "{:?}", kernels(&plan));
        assert!(plan.tensors.iter().all(|bytes| *bytes <= 1 << 20));
    }

    #[test]
    fn launches_stay_within_the_workgroup_limit() {
        let mut target = TargetProfile::load("lavapipe").unwrap();
        target.limits.max_workgroup_count = [2048, 8, 8];
        let plan = plan(TILES, &target);
        for step in &plan.dispatches {
            let groups = step.launch.grid.each_ref().map(|d| d.range(&plan.bounds).1);
            let fits = groups.iter().zip(target.limits.max_workgroup_count).all(|(n, max)| *n <= max.into());
            assert!(fits, "{}: {groups:?}", step.launch.kernel);
        }
    }

    #[test]
    fn loops_stay_within_the_iteration_limit() {
        let mut target = TargetProfile::load("lavapipe").unwrap();
        let iterations = |target: &TargetProfile| {
            let plan = plan(SUM, target);
            plan.dispatches.iter().map(|step| step.launch.iterations.range(&plan.bounds).1).max().unwrap()
        };
        let unlimited = iterations(&target);
        assert!(unlimited > 256);
        target.limits.max_loop_iterations = 256;
        assert!(iterations(&target) <= 256);
    }

    #[test]
    fn scratch_buffers_stay_within_the_limit() {
        let mut target = TargetProfile::load("nvidia-hopper").unwrap();
        let largest = |target: &TargetProfile| plan(SUM, target).tensors.iter().copied().max().unwrap_or(0);
        let scratch = largest(&target);
        assert!(scratch > 16);
        target.limits.max_storage_buffer_range = scratch - 16;
        assert!(largest(&target) <= scratch - 16);
    }
}
