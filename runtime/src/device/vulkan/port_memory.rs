//! Device and staging memory of inputs and outputs.

use super::context::Context;
use super::memory::{Buffer, MemoryUse};
use crate::error::Result;
use crate::format::Slot;
use ash::vk;
use std::sync::Arc;

/// Vulkan usage flags of buffers that shaders bind.
pub(super) const BOUND: vk::BufferUsageFlags = vk::BufferUsageFlags::from_raw(
    vk::BufferUsageFlags::STORAGE_BUFFER.as_raw()
        | vk::BufferUsageFlags::UNIFORM_BUFFER.as_raw()
        | vk::BufferUsageFlags::UNIFORM_TEXEL_BUFFER.as_raw(),
);

/// Memory of a port: a device buffer, and a staging buffer if the host cannot access the device buffer.
pub(super) struct PortMemory {
    pub(super) device: Arc<Buffer>,
    pub(super) host: Option<Buffer>,
}

impl PortMemory {
    /// Returns the buffer of the port that the host reads and writes.
    pub(super) fn host(&self) -> &Buffer {
        self.host.as_ref().unwrap_or(&self.device)
    }

    /// Returns the bytes of the port that the host writes, or `None` while other references to the buffer exist.
    pub(super) fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        self.host.as_mut().or_else(|| Arc::get_mut(&mut self.device))?.bytes_mut()
    }
}

/// Creates a port's buffer: host-visible if direct access is fast, else with a staging buffer.
pub(super) fn port_memory(context: &Arc<Context>, slot: Option<&Slot>, input: bool) -> Result<PortMemory> {
    let size = slot.map_or(0, |slot| slot.size);
    let usage = BOUND | vk::BufferUsageFlags::TRANSFER_SRC | vk::BufferUsageFlags::TRANSFER_DST;
    let (direct, purpose, staging, what) = match input {
        true => (context.direct_input(size), MemoryUse::DeviceWritten, MemoryUse::Upload, "an input"),
        false => (context.direct_reads(), MemoryUse::DeviceRead, MemoryUse::Download, "an output"),
    };
    let device = Buffer::new(context, size, usage, if direct { purpose } else { MemoryUse::Device }, what)?;
    let device = Arc::new(device);
    if device.bytes().is_some() {
        return Ok(PortMemory { device, host: None });
    }
    let usage = vk::BufferUsageFlags::TRANSFER_SRC | vk::BufferUsageFlags::TRANSFER_DST;
    let host = Buffer::new(context, size, usage, staging, what)?;
    Ok(PortMemory { device, host: Some(host) })
}
