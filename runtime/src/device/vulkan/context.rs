//! An open device: its queue, memory types, memory blocks and counters.

use super::capabilities::{available, compute_family};
use super::failed;
use super::features::{Available, Chain};
use super::functions::Device;
use super::instance::Instance;
use super::selection::select_device;
use crate::device::DeviceInfo;
use crate::device::backend::Counts;
use crate::error::{Error, Result};
use crate::format::{Features, Variant};
use ash::{khr, vk};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A selected device that is not open yet. The enabled features depend on the variants to load.
pub(crate) struct Candidate {
    instance: &'static Instance,
    physical: vk::PhysicalDevice,
    pub(crate) info: DeviceInfo,
}

/// An open device. Every object that is created on the device keeps it alive through an `Arc`.
pub(crate) struct Context {
    pub(super) device: Device,
    /// Queue of the device. Sessions on the same device lock the queue to submit runs.
    queue: Mutex<vk::Queue>,
    pub(super) family: u32,
    pub(super) timestamp_bits: u32,
    pub(super) memory: vk::PhysicalDeviceMemoryProperties,
    pub(crate) info: DeviceInfo,
    /// True if memory can be exported and imported by file descriptor.
    #[cfg(unix)]
    pub(super) supports_external_memory: bool,
    /// True to use staging buffers even if the host can access device memory.
    pub(super) always_stage: bool,
    /// Memory blocks for small objects.
    pub(super) blocks: Mutex<Vec<Block>>,
    /// Counts of the pipelines and memory allocations created so far.
    pub(crate) counts: Counts,
}

/// An allocation of device memory, freed when its last buffer or image is dropped.
pub(super) struct Memory {
    pub(super) context: Arc<Context>,
    pub(super) raw: vk::DeviceMemory,
    /// Host address of the memory, if mapped.
    pub(super) mapped: Option<NonNull<u8>>,
    pub(super) coherent: bool,
}

// SAFETY: the pointer is only passed on to buffers, which access disjoint ranges.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// A block of device memory with free space, for small objects. The objects in a block keep its memory alive.
pub(super) struct Block {
    pub(super) kind: BlockKind,
    pub(super) memory: Weak<Memory>,
    pub(super) used: u64,
    pub(super) size: u64,
}

/// Properties that all objects in one memory block have in common.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct BlockKind {
    /// Index of the Vulkan memory type.
    pub(super) memory_type: u32,
    pub(super) mapped: bool,
    pub(super) images: bool,
}

impl Candidate {
    pub(crate) fn select(wanted: Option<&str>) -> Result<Candidate> {
        let instance = Instance::load()?;
        let (physical, info) = select_device(instance, wanted)?;
        Ok(Candidate { instance, physical, info })
    }

    /// True if the device has an extension.
    #[cfg(feature = "statistics")]
    pub(super) fn has_extension(&self, name: &std::ffi::CStr) -> Result<bool> {
        Ok(available(self.instance, self.physical)?.has(name))
    }

    /// Opens the device with exactly the features that the variants require.
    pub(crate) fn open(self, variants: &[&Variant], always_stage: bool) -> Result<Arc<Context>> {
        self.open_with(variants, always_stage, false)
    }

    /// Opens the device for [`Candidate::open`]. With `statistics`, the driver reports statistics of pipelines, if it can.
    pub(super) fn open_with(
        self,
        variants: &[&Variant],
        always_stage: bool,
        statistics: bool,
    ) -> Result<Arc<Context>> {
        let Candidate { instance, physical, info } = self;
        let available = available(instance, physical)?;
        let wanted = variants.iter().flat_map(|variant| variant.requirements.features.iter()).collect();
        let (family, timestamp_bits) = compute_family(instance, physical).ok_or_else(|| Error::NoDevice {
            wanted: Some("a compute queue".to_owned()),
            found: vec![info.name.clone()],
        })?;
        let statistics = statistics && available.has(khr::pipeline_executable_properties::NAME);
        let device = create(instance, physical, &available, wanted, family, statistics)?;
        // SAFETY: the device was created with one queue of this family.
        let queue = unsafe { device.get_device_queue(family, 0) };
        // SAFETY: the physical device belongs to the instance.
        let memory = unsafe { instance.raw.get_physical_device_memory_properties(physical) };
        Ok(Arc::new(Context {
            device,
            queue: Mutex::new(queue),
            family,
            timestamp_bits,
            memory,
            info,
            #[cfg(unix)]
            supports_external_memory: available.has(khr::external_memory_fd::NAME),
            always_stage,
            blocks: Mutex::default(),
            counts: Counts::default(),
        }))
    }
}

fn create(
    instance: &Instance,
    physical: vk::PhysicalDevice,
    available: &Available,
    wanted: Features,
    family: u32,
    statistics: bool,
) -> Result<Device> {
    let mut extensions = available.needed_extensions(wanted);
    // A device layered over another API requires this extension to be enabled.
    if available.has(khr::portability_subset::NAME) {
        extensions.push(khr::portability_subset::NAME);
    }
    if available.has(khr::external_memory_fd::NAME) {
        extensions.push(khr::external_memory_fd::NAME);
    }
    if statistics {
        extensions.push(khr::pipeline_executable_properties::NAME);
    }
    let extensions: Vec<_> = extensions.iter().map(|name| name.as_ptr()).collect();
    let mut chain = Chain::default();
    chain.enable(wanted);
    let mut features = chain.link(available, wanted);
    let mut executables =
        vk::PhysicalDevicePipelineExecutablePropertiesFeaturesKHR::default().pipeline_executable_info(true);
    if statistics {
        features = features.push_next(&mut executables);
    }
    let queue = [vk::DeviceQueueCreateInfo::default().queue_family_index(family).queue_priorities(&[1.0])];
    let create = vk::DeviceCreateInfo::default()
        .queue_create_infos(&queue)
        .enabled_extension_names(&extensions)
        .push_next(&mut features);
    // SAFETY: `create` and everything it points to live until the call returns; the features are supported.
    unsafe { instance.raw.create_device(physical, &create) }
}

impl Context {
    /// Submits command buffers in order and waits for completion.
    pub(super) fn submit(&self, commands: &[vk::CommandBuffer], fence: vk::Fence) -> Result<()> {
        self.start(commands, fence)?;
        self.wait(fence)
    }

    /// Submits command buffers in order. `fence` is signaled on completion.
    pub(super) fn start(&self, commands: &[vk::CommandBuffer], fence: vk::Fence) -> Result<()> {
        let submit = [vk::SubmitInfo::default().command_buffers(commands)];
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the queue is locked, the command buffers are recorded and not pending, and the fence is
        // unsignaled.
        unsafe { self.device.queue_submit(*queue, &submit, fence) }.map_err(failed("vkQueueSubmit"))
    }

    /// Waits for a fence and resets it.
    pub(super) fn wait(&self, fence: vk::Fence) -> Result<()> {
        // SAFETY: the fence belongs to this device and no other thread submits it.
        unsafe {
            self.device.wait_for_fence(fence).map_err(failed("vkWaitForFences"))?;
            self.device.reset_fence(fence).map_err(failed("vkResetFences"))
        }
    }
}

impl Context {
    /// Waits until the device is idle. Errors are ignored.
    pub(super) fn wait_idle(&self) {
        let _queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the device is live, and its queue is locked.
        let _ = unsafe { self.device.device_wait_idle() };
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.wait_idle();
        // SAFETY: every object created from the device holds the context by `Arc`, so none is left.
        unsafe {
            self.device.destroy_device();
        }
    }
}
