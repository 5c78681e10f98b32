//! wgpu adapters, and their properties in terms of the bundle format.

use crate::device::{DeviceInfo, DeviceKind, ImageLimits, contains_ignoring_case};
use crate::error::{Error, Result};
use crate::format::{ApiVersion, ArtifactKind, Feature, Features, Limits};
use crate::order;
use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use wgpu::{Adapter, Backends, DeviceType, Instance, InstanceDescriptor, InstanceFlags};

/// wgpu instance of the process, used by all sessions. The environment variable `WGPU_BACKEND` selects among the
/// graphics APIs that the program was built with.
static INSTANCE: LazyLock<Instance> = LazyLock::new(|| {
    let described = InstanceDescriptor::new_without_display_handle_from_env();
    Instance::new(InstanceDescriptor { flags: InstanceFlags::empty(), ..described })
});

/// Returns all adapters that wgpu finds, the preferred adapter first.
///
/// # Errors
/// If there is no adapter.
pub fn adapters() -> Result<Vec<DeviceInfo>> {
    let found: Vec<DeviceInfo> = ranked_adapters().into_iter().map(|(_, info)| info).collect();
    if found.is_empty() {
        return Err(Error::NoAdapter { wanted: None, found: Vec::new() });
    }
    Ok(found)
}

/// Selects an adapter by its index or a part of its name. Without `wanted`, the environment variable `DRIFT_DEVICE`
/// selects the adapter; without that variable, the first adapter is selected.
pub(super) fn select_adapter(wanted: Option<&str>) -> Result<(Adapter, DeviceInfo)> {
    let environment = std::env::var("DRIFT_DEVICE").ok().filter(|value| !value.is_empty());
    let wanted = wanted.map(str::to_owned).or(environment);
    let adapters = ranked_adapters();
    let found: Vec<String> = adapters.iter().map(|(_, info)| info.name.clone()).collect();
    let position = match wanted.as_deref() {
        None => Some(0),
        Some(text) => match text.parse::<usize>() {
            Ok(index) => Some(index),
            Err(_) => adapters.iter().position(|(_, info)| contains_ignoring_case(&info.name, text)),
        },
    };
    let selected = position.and_then(|position| adapters.into_iter().nth(position));
    selected.ok_or(Error::NoAdapter { wanted: wanted.filter(|_| !found.is_empty()), found })
}

/// Returns all adapters with compute shaders, in the order discrete, integrated, virtual, other, software.
fn ranked_adapters() -> Vec<(Adapter, DeviceInfo)> {
    let adapters = block_on(INSTANCE.enumerate_adapters(Backends::all()));
    let has_compute = |adapter: &Adapter| {
        adapter.get_downlevel_capabilities().flags.contains(wgpu::DownlevelFlags::COMPUTE_SHADERS)
    };
    let all: Vec<_> =
        adapters.into_iter().filter(has_compute).map(|adapter| (device_info(&adapter), adapter)).collect();
    let order = order::sorted_indices(all.iter().map(|(info, _)| (u64::from(info.kind.rank()), 0)));
    let mut all: Vec<Option<_>> = all.into_iter().map(Some).collect();
    let mut take = |index: usize| all.get_mut(index).and_then(Option::take);
    order.into_iter().filter_map(|index| take(index).map(|(info, adapter)| (adapter, info))).collect()
}

fn device_info(adapter: &Adapter) -> DeviceInfo {
    let (adapter_info, limits) = (adapter.get_info(), adapter.limits());
    let has_f16 = adapter.features().contains(wgpu::Features::SHADER_F16);
    let f16: &[Feature] = if has_f16 { &[Feature::ShaderF16, Feature::Storage16bit] } else { &[] };
    // wgpu emulates WGSL's packed dot products if the device lacks them.
    let features: Features = f16.iter().copied().chain([Feature::IntDotProduct]).collect();
    let grid = limits.max_compute_workgroups_per_dimension;
    DeviceInfo {
        name: adapter_info.name,
        language: ArtifactKind::Wgsl,
        kind: match adapter_info.device_type {
            DeviceType::DiscreteGpu => DeviceKind::Discrete,
            DeviceType::IntegratedGpu => DeviceKind::Integrated,
            DeviceType::VirtualGpu => DeviceKind::Virtual,
            DeviceType::Cpu => DeviceKind::Cpu,
            DeviceType::Other => DeviceKind::Other,
        },
        vendor_id: adapter_info.vendor,
        device_id: adapter_info.device,
        driver_name: format!("{} through {}", adapter_info.driver, adapter_info.backend),
        driver_info: adapter_info.driver_info,
        api_version: ApiVersion { major: 1, minor: 0 },
        features,
        limits: Limits {
            max_storage_buffer_range: limits.max_storage_buffer_binding_size,
            max_uniform_buffer_range: limits.max_uniform_buffer_binding_size,
            max_buffer_size: limits.max_buffer_size,
            max_workgroup_invocations: limits.max_compute_invocations_per_workgroup,
            max_workgroup_size: [
                limits.max_compute_workgroup_size_x,
                limits.max_compute_workgroup_size_y,
                limits.max_compute_workgroup_size_z,
            ],
            max_workgroup_memory: limits.max_compute_workgroup_storage_size,
            max_grid: [grid; 3],
            max_storage_buffers: limits.max_storage_buffers_per_shader_stage,
            max_uniform_buffers: limits.max_uniform_buffers_per_shader_stage,
            max_push_constants: 0,
            storage_alignment: limits.min_storage_buffer_offset_alignment,
            uniform_alignment: limits.min_uniform_buffer_offset_alignment,
            // wgpu does not report the memory size. Loading fails if memory is exhausted.
            device_memory: u64::MAX,
        },
        subgroup_size: adapter_info.subgroup_min_size,
        min_subgroup_size: adapter_info.subgroup_min_size,
        max_subgroup_size: adapter_info.subgroup_min_size,
        max_bound_sets: limits.max_bind_groups,
        images: ImageLimits {
            max_2d: limits.max_texture_dimension_2d,
            max_3d: limits.max_texture_dimension_3d,
            max_array_layers: limits.max_texture_array_layers,
            max_sampled_images: limits.max_sampled_textures_per_shader_stage,
            max_storage_images: limits.max_storage_textures_per_shader_stage,
            ..ImageLimits::default()
        },
        ..DeviceInfo::default()
    }
}

/// Waker that unparks the thread that waits for a future.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks until a future completes.
pub(super) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}
