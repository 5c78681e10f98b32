//! What the launches of a candidate must keep to on a device: the limits of its profile.
//!
//! A candidate over any limit is no candidate, whatever it is estimated to cost: both the plan and whoever compares costs
//! before there is a plan ask here, so that nothing is chosen that the device could not run.

use crate::ir::dim::{Bounds, Dim};
use crate::shader::problem::{Operand, Problem};
use crate::shader::resource::Resource;
use crate::shader::{Binding, Bound, Launch};
use crate::target::TargetProfile;

/// Why the target cannot run launches; `None` where it can.
pub fn exceeded(launches: &[Launch], bounds: &Bounds, target: &TargetProfile) -> Option<String> {
    launches.iter().find_map(|launch| {
        bindings(launch, target)
            .or_else(|| bytes(launch, bounds, target))
            .or_else(|| invocations(launch, bounds, target))
            .or_else(|| iterations(launch, bounds, target))
    })
}

/// Whether the result of a problem can be bound, or made as the texture that it lies in.
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

/// More objects than may be bound at once.
fn bindings(launch: &Launch, target: &TargetProfile) -> Option<String> {
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
        ("textures that it writes", count(false, Some(true)), limits.max_storage_images),
    ];
    let over = counts.iter().find(|(_, n, most)| n > &(*most as usize));
    over.map(|(what, n, most)| format!("it binds {n} {what}; {} allows {most}", target.name))
}

/// Buffers of the launch's own that are larger than may be bound.
fn bytes(launch: &Launch, bounds: &Bounds, target: &TargetProfile) -> Option<String> {
    let size = |binding: &Binding| match (binding.bound, binding.resource) {
        (Bound::Packed(k), Resource::Buffer) => launch.packed.get(k).map(|packed| packed.bytes()),
        _ => None,
    };
    let packed = launch.bindings.iter().filter_map(size);
    let scratch = launch.scratch.iter().map(|bytes| u64::try_from(bytes.range(bounds).1).unwrap_or(u64::MAX));
    let most = target.limits.max_storage_buffer_range;
    let over = packed.chain(scratch).find(|bytes| *bytes > most);
    over.map(|bytes| {
        let (kernel, name) = (launch.kernel, &target.name);
        format!("kernel {kernel} binds a buffer of {bytes} bytes of its own; {name} allows {most}")
    })
}

/// Workgroups that are too many, too large or have too much memory.
fn invocations(launch: &Launch, bounds: &Bounds, target: &TargetProfile) -> Option<String> {
    let limits = &target.limits;
    let (kernel, name) = (launch.kernel, &target.name);
    let groups: Vec<i64> = launch.grid.iter().map(|groups: &Dim| groups.range(bounds).1).collect();
    if groups.iter().zip(limits.max_workgroup_count).any(|(n, most)| *n > i64::from(most)) {
        let most = limits.max_workgroup_count;
        return Some(format!("kernel {kernel} takes {groups:?} workgroups; {name} allows {most:?}"));
    }
    let all = launch.workgroup.iter().fold(1u32, |n, size| n.saturating_mul(*size));
    let wide = launch.workgroup.iter().zip(limits.max_workgroup_size).any(|(n, most)| *n > most);
    if wide || all > limits.max_workgroup_invocations {
        return Some(format!(
            "kernel {kernel} takes workgroups of {:?}, too many for {name}",
            launch.workgroup
        ));
    }
    let (bytes, most) = (launch.workgroup_memory, limits.max_workgroup_memory);
    (bytes > most).then(|| format!("kernel {kernel} takes {bytes} bytes a workgroup; {name} allows {most}"))
}

/// Loops that go on for longer than the device does.
fn iterations(launch: &Launch, bounds: &Bounds, target: &TargetProfile) -> Option<String> {
    let (rounds, most) = (launch.iterations.range(bounds).1, target.limits.max_loop_iterations);
    let (kernel, name) = (launch.kernel, &target.name);
    let over = rounds > i64::from(most);
    over.then(|| format!("kernel {kernel} goes round a loop {rounds} times; {name} ends it after {most}"))
}

#[cfg(test)]
mod tests {
    use crate::compile::{Options, lower};
    use crate::ir::text;
    use crate::plan::Plan;
    use crate::target::TargetProfile;

    /// A convolution whose tiles take two and a quarter times as much as its image.
    const TILES: &str = r#"
%0 = input {"name":"x","dtype":"f32","shape":[1,64,64,64]}
%1 = constant {"dtype":"f32","shape":[64,64,3,3],"random":1}
%2 = relu %0
%3 = conv %2 %1 {"strides":[1,1],"dilations":[1,1],"pads_begin":[1,1],"pads_end":[1,1],"group":1}
%4 = neg %3
output "y" %4
"#;
    /// A long sum, which is cut into pieces where the device has room for many.
    const SUM: &str = r#"
%0 = input {"name":"x","dtype":"f32","shape":[1,4194304]}
%1 = reduce %0 {"kind":"sum","axes":[1],"keepdims":false}
output "y" %1
"#;

    fn plan(graph: &str, target: &TargetProfile) -> Plan {
        lower(&text::parse(graph).unwrap(), target, &Options::default()).unwrap().plan
    }

    fn kernels(plan: &Plan) -> Vec<&str> {
        plan.dispatches.iter().map(|step| step.launch.kernel).collect()
    }

    #[test]
    fn what_cannot_be_bound_is_no_alternative() {
        let mut target = TargetProfile::load("lavapipe").unwrap();
        assert!(kernels(&plan(TILES, &target)).contains(&"winograd"));
        // As much as the image takes, and the filters.
        target.limits.max_storage_buffer_range = 1 << 20;
        let plan = plan(TILES, &target);
        assert!(!kernels(&plan).contains(&"winograd"), "{:?}", kernels(&plan));
        assert!(plan.tensors.iter().all(|bytes| *bytes <= 1 << 20));
    }

    #[test]
    fn no_launch_takes_more_workgroups_than_there_may_be() {
        let mut target = TargetProfile::load("lavapipe").unwrap();
        target.limits.max_workgroup_count = [2048, 8, 8];
        let plan = plan(TILES, &target);
        for step in &plan.dispatches {
            let groups = step.launch.grid.each_ref().map(|d| d.range(&plan.bounds).1);
            let fits =
                groups.iter().zip(target.limits.max_workgroup_count).all(|(n, most)| *n <= most.into());
            assert!(fits, "{}: {groups:?}", step.launch.kernel);
        }
    }

    #[test]
    fn loops_end_before_the_device_ends_them() {
        let mut target = TargetProfile::load("lavapipe").unwrap();
        let rounds = |target: &TargetProfile| {
            let plan = plan(SUM, target);
            plan.dispatches.iter().map(|step| step.launch.iterations.range(&plan.bounds).1).max().unwrap()
        };
        let free = rounds(&target);
        assert!(free > 256);
        target.limits.max_loop_iterations = 256;
        assert!(rounds(&target) <= 256);
    }

    #[test]
    fn scratch_is_held_to_the_limit() {
        let mut target = TargetProfile::load("nvidia-hopper").unwrap();
        let most = |target: &TargetProfile| plan(SUM, target).tensors.iter().copied().max().unwrap_or(0);
        let scratch = most(&target);
        assert!(scratch > 16);
        target.limits.max_storage_buffer_range = scratch - 16;
        assert!(most(&target) <= scratch - 16);
    }
}
