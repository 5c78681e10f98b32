//! Memory that other interfaces and processes see as well, by opaque file descriptors.

use super::blocks::Memory;
use super::context::Context;
use super::instance::Instance;
use super::memory::{Buffer, Place, Range, out_of_memory};
use crate::error::{Error, Result};
use ash::{khr, vk};
use std::ffi::c_void;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::Arc;

const KIND: vk::ExternalMemoryHandleTypeFlags = vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD;

impl Range {
    /// New memory, and a descriptor that stands for it.
    pub(crate) fn export(context: &Arc<Context>, size: u64) -> Result<(Range, OwnedFd)> {
        let export = vk::ExportMemoryAllocateInfo::default().handle_types(KIND);
        let range = shared(context, size, None, (&raw const export).cast())?;
        let memory = range.buffer.memory.as_ref().map(|memory| memory.raw).unwrap_or_default();
        let info = vk::MemoryGetFdInfoKHR::default().memory(memory).handle_type(KIND);
        let instance = Instance::load()?;
        // SAFETY: the extension is enabled, and the memory was allocated to be exported as this kind.
        let descriptor = unsafe { instance.raw.get_memory_fd(&context.device, &info) }?;
        // SAFETY: the driver hands out a descriptor that is the caller's.
        Ok((range, unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }

    /// Memory that a descriptor stands for.
    pub(crate) fn import(
        context: &Arc<Context>,
        size: u64,
        allocation: Option<u64>,
        descriptor: OwnedFd,
    ) -> Result<Range> {
        let raw = descriptor.as_raw_fd();
        let import = vk::ImportMemoryFdInfoKHR::default().handle_type(KIND).fd(raw);
        let range = shared(context, size, allocation, (&raw const import).cast())?;
        // The driver has taken it.
        let _ = descriptor.into_raw_fd();
        Ok(range)
    }
}

/// A buffer with memory of its own, whose allocation `next` extends by how it is shared.
fn shared(context: &Arc<Context>, size: u64, allocation: Option<u64>, next: *const c_void) -> Result<Range> {
    const WHAT: &str = "shared memory";
    if !context.shares_memory {
        let name = khr::external_memory_fd::NAME.to_string_lossy();
        return Err(Error::Driver { call: WHAT, code: format!("the driver lacks {name}") });
    }
    let usage = vk::BufferUsageFlags::TRANSFER_SRC | vk::BufferUsageFlags::TRANSFER_DST;
    let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(KIND);
    let create = vk::BufferCreateInfo::default().size(size).usage(usage).push_next(&mut external);
    let mut buffer = Buffer::unbound(context, &create, WHAT)?;
    // SAFETY: the buffer belongs to the device.
    let needs = unsafe { context.device.get_buffer_memory_requirements(buffer.raw) };
    let suitable = context.suitable_types(Place::Device, needs.memory_type_bits);
    let too_small = allocation.filter(|size| *size < needs.size);
    let Some((memory_type_index, _)) = suitable.first().copied().filter(|_| too_small.is_none()) else {
        return Err(Error::OutOfMemory { what: WHAT.to_owned(), size: needs.size });
    };
    let allocation_size = allocation.unwrap_or(needs.size);
    let allocate =
        vk::MemoryAllocateInfo { p_next: next, allocation_size, memory_type_index, ..Default::default() };
    // SAFETY: the type is one of the device's and allowed for the buffer; `next` is a struct that extends this one.
    let memory = unsafe { context.device.allocate_memory(&allocate) }.map_err(out_of_memory(WHAT, size))?;
    context.counts.add(allocation_size);
    buffer.bind(Arc::new(Memory::new(context, memory)), 0)?;
    Ok(Range { buffer: Arc::new(buffer), offset: 0, size, external: true })
}
