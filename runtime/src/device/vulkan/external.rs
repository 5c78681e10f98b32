//! External memory: memory shared with other APIs and processes by opaque file descriptors.

use super::context::Context;
use super::context::Memory;
use super::instance::Instance;
use super::memory::{Buffer, BufferRange, MemoryUse, out_of_memory};
use crate::error::{Error, Result};
use ash::{khr, vk};
use std::ffi::c_void;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::Arc;

const HANDLE_TYPE: vk::ExternalMemoryHandleTypeFlags = vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD;

impl BufferRange {
    /// Allocates device memory for export to other APIs, and returns the memory with its file descriptor.
    pub(crate) fn export(context: &Arc<Context>, size: u64) -> Result<(BufferRange, OwnedFd)> {
        let export = vk::ExportMemoryAllocateInfo::default().handle_types(HANDLE_TYPE);
        let range = create_external(context, size, None, (&raw const export).cast())?;
        let memory = range.buffer.memory.as_ref().map(|memory| memory.raw).unwrap_or_default();
        let info = vk::MemoryGetFdInfoKHR::default().memory(memory).handle_type(HANDLE_TYPE);
        let instance = Instance::load()?;
        // SAFETY: the extension is enabled, and the memory was allocated for export with this handle type.
        let descriptor = unsafe { instance.raw.get_memory_fd(&context.device, &info) }?;
        // SAFETY: the driver transfers ownership of the descriptor.
        Ok((range, unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }

    /// Imports device memory of another API or process by a file descriptor.
    pub(crate) fn import(
        context: &Arc<Context>,
        size: u64,
        allocation: Option<u64>,
        descriptor: OwnedFd,
    ) -> Result<BufferRange> {
        let raw = descriptor.as_raw_fd();
        let import = vk::ImportMemoryFdInfoKHR::default().handle_type(HANDLE_TYPE).fd(raw);
        let range = create_external(context, size, allocation, (&raw const import).cast())?;
        // The driver owns the descriptor now.
        let _ = descriptor.into_raw_fd();
        Ok(range)
    }
}

/// Creates a buffer with a dedicated allocation. `next` extends the allocation info for export or import.
fn create_external(
    context: &Arc<Context>,
    size: u64,
    allocation: Option<u64>,
    next: *const c_void,
) -> Result<BufferRange> {
    const WHAT: &str = "external memory";
    if !context.supports_external_memory {
        let name = khr::external_memory_fd::NAME.to_string_lossy();
        return Err(Error::Driver { call: WHAT, code: format!("the driver lacks {name}") });
    }
    let usage = vk::BufferUsageFlags::TRANSFER_SRC | vk::BufferUsageFlags::TRANSFER_DST;
    let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(HANDLE_TYPE);
    let create = vk::BufferCreateInfo::default().size(size).usage(usage).push_next(&mut external);
    let mut buffer = Buffer::unbound(context, &create, WHAT)?;
    // SAFETY: the buffer belongs to the device.
    let needs = unsafe { context.device.get_buffer_memory_requirements(buffer.raw) };
    let suitable = context.suitable_types(MemoryUse::Device, needs.memory_type_bits);
    let too_small = allocation.filter(|size| *size < needs.size);
    let Some((memory_type_index, _)) = suitable.first().copied().filter(|_| too_small.is_none()) else {
        return Err(Error::OutOfMemory { what: WHAT.to_owned(), size: needs.size });
    };
    let allocation_size = allocation.unwrap_or(needs.size);
    let allocate =
        vk::MemoryAllocateInfo { p_next: next, allocation_size, memory_type_index, ..Default::default() };
    // SAFETY: the memory type exists on the device and is allowed for the buffer; `next` extends this struct.
    let memory = unsafe { context.device.allocate_memory(&allocate) }.map_err(out_of_memory(WHAT, size))?;
    context.counts.count_allocation(allocation_size);
    buffer.bind(Arc::new(Memory::new(context, memory)), 0)?;
    Ok(BufferRange { buffer: Arc::new(buffer), offset: 0, size, external: true })
}
