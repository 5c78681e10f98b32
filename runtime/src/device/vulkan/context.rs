//! An open device: its queue, the memory types it offers, and what was created on it.

use super::blocks::Block;
use super::capabilities::{available, compute_family};
use super::failed;
use super::features::{Available, Chain};
use super::functions::Device;
use super::instance::{Instance, choose};
use crate::device::DeviceInfo;
use crate::device::backend::Counts;
use crate::error::{Error, Result};
use crate::format::{Features, Variant};
use ash::{khr, vk};
use std::sync::{Arc, Mutex, PoisonError};

/// A chosen device that is not open yet, since what to enable depends on the variant it is chosen for.
pub(crate) struct Candidate {
    instance: &'static Instance,
    physical: vk::PhysicalDevice,
    pub(crate) info: DeviceInfo,
}

/// A device opened for one variant. All that is made from it holds it by `Arc`.
pub(crate) struct Context {
    pub(super) device: Device,
    /// Sessions that share a device take turns at its queue.
    queue: Mutex<vk::Queue>,
    pub(super) family: u32,
    pub(super) timestamp_bits: u32,
    pub(super) memory: vk::PhysicalDeviceMemoryProperties,
    pub(crate) info: DeviceInfo,
    /// Whether memory can be shared by file descriptor.
    #[cfg(unix)]
    pub(super) shares_memory: bool,
    /// Whether to do as if the host could not reach the device's memory.
    pub(super) always_stage: bool,
    /// Memory that small objects share.
    pub(super) blocks: Mutex<Vec<Block>>,
    /// How many of each were created so far.
    pub(crate) counts: Counts,
}

impl Candidate {
    pub(crate) fn choose(wanted: Option<&str>) -> Result<Candidate> {
        let instance = Instance::load()?;
        let (physical, info) = choose(instance, wanted)?;
        Ok(Candidate { instance, physical, info })
    }

    /// Opens the device with exactly the features that the variants require.
    pub(crate) fn open(self, variants: &[&Variant], always_stage: bool) -> Result<Arc<Context>> {
        let Candidate { instance, physical, info } = self;
        let available = available(instance, physical)?;
        let wanted = variants.iter().flat_map(|variant| variant.requirements.features.iter()).collect();
        let (family, timestamp_bits) = compute_family(instance, physical).ok_or_else(|| Error::NoDevice {
            wanted: Some("a compute queue".to_owned()),
            found: vec![info.name.clone()],
        })?;
        let device = create(instance, physical, &available, wanted, family)?;
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
            shares_memory: available.has(khr::external_memory_fd::NAME),
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
) -> Result<Device> {
    let mut extensions = available.needed_extensions(wanted);
    // A device that is layered over another API insists on this one being enabled.
    if available.has(khr::portability_subset::NAME) {
        extensions.push(khr::portability_subset::NAME);
    }
    if available.has(khr::external_memory_fd::NAME) {
        extensions.push(khr::external_memory_fd::NAME);
    }
    let extensions: Vec<_> = extensions.iter().map(|name| name.as_ptr()).collect();
    let mut chain = Chain::default();
    chain.enable(wanted);
    let mut features = chain.link(available, wanted);
    let queue = [vk::DeviceQueueCreateInfo::default().queue_family_index(family).queue_priorities(&[1.0])];
    let create = vk::DeviceCreateInfo::default()
        .queue_create_infos(&queue)
        .enabled_extension_names(&extensions)
        .push_next(&mut features);
    // SAFETY: `create` and all it points to live until the call returns; the features were checked to be there.
    unsafe { instance.raw.create_device(physical, &create) }
}

impl Context {
    /// Submits command buffers in order and waits until the device has carried them out.
    pub(super) fn submit(&self, commands: &[vk::CommandBuffer], fence: vk::Fence) -> Result<()> {
        self.start(commands, fence)?;
        self.wait(fence)
    }

    /// Submits command buffers in order; `fence` is signalled when they are done.
    pub(super) fn start(&self, commands: &[vk::CommandBuffer], fence: vk::Fence) -> Result<()> {
        let submit = [vk::SubmitInfo::default().command_buffers(commands)];
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the queue is locked, the command buffers are recorded and not pending, and the fence is unsignalled.
        unsafe { self.device.queue_submit(*queue, &submit, fence) }.map_err(failed("vkQueueSubmit"))
    }

    /// Waits for a fence and makes it usable again.
    pub(super) fn wait(&self, fence: vk::Fence) -> Result<()> {
        // SAFETY: the fence belongs to this device and is not being submitted elsewhere.
        unsafe {
            self.device.wait_for_fence(fence).map_err(failed("vkWaitForFences"))?;
            self.device.reset_fence(fence).map_err(failed("vkResetFences"))
        }
    }
}

impl Context {
    /// Waits until the device has carried out all that was submitted, whatever comes of it.
    pub(super) fn wait_idle(&self) {
        let _queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the device is live, and its queue is locked.
        let _ = unsafe { self.device.device_wait_idle() };
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.wait_idle();
        // SAFETY: everything made from the device holds the context by `Arc`, so nothing is left.
        unsafe {
            self.device.destroy_device();
        }
    }
}
