//! Buffers, each with memory of its own, and the choice of memory types.
//!
//! Buffers are few (weight slots, arena, inputs, outputs, parameters) and all made at load, so there is no
//! allocator: one allocation per buffer, mapped for good where the host can see it.

use super::context::Context;
use super::failed;
use crate::device::DeviceKind;
use crate::error::{Error, Result};
use ash::vk;
use ash::vk::MemoryPropertyFlags as Flags;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What a buffer is for, from which its memory type follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Only the device touches it.
    Device,
    /// The device reads it, the host writes it, and it is small.
    Params,
    /// The device reads it often, the host writes it directly; see [`Context::direct_writes`].
    DeviceWritten,
    /// The device writes it, the host reads it directly; see [`Context::direct_reads`].
    DeviceRead,
    /// The host writes it, the device copies from it.
    Upload,
    /// The device copies to it, the host reads it.
    Download,
    /// The device copies to it and from it, the host reads and writes it.
    Exchange,
}

/// Bytes of a buffer that others may use as well.
#[derive(Clone)]
pub(crate) struct Range {
    pub(super) buffer: Arc<Buffer>,
    pub(crate) offset: u64,
    pub(crate) size: u64,
    /// Whether others than this device write there.
    pub(super) external: bool,
}

impl Range {
    /// Whether the bytes belong to a device as it was opened for others.
    pub(crate) fn is_of(&self, context: &Arc<Context>) -> bool {
        Arc::ptr_eq(&self.buffer.context, context)
    }
}

pub(crate) struct Buffer {
    context: Arc<Context>,
    pub(super) raw: vk::Buffer,
    pub(super) memory: vk::DeviceMemory,
    pub(super) size: u64,
    mapped: Option<NonNull<u8>>,
    coherent: bool,
}

// SAFETY: the mapped pointer is only reached through `bytes` and `bytes_mut`, under Rust's borrowing rules.
unsafe impl Send for Buffer {}
// SAFETY: as above; shared access only reads.
unsafe impl Sync for Buffer {}

impl Buffer {
    // Inlined into every place that makes a buffer, this would be a hundredth of a program that embeds the runtime.
    #[inline(never)]
    pub(super) fn new(
        context: &Arc<Context>,
        size: u64,
        usage: vk::BufferUsageFlags,
        place: Place,
        what: &str,
    ) -> Result<Buffer> {
        let mut buffer =
            Buffer::unbound(context, &vk::BufferCreateInfo::default().size(size).usage(usage), what)?;
        // SAFETY: the buffer belongs to the device.
        let needs = unsafe { context.device.get_buffer_memory_requirements(buffer.raw) };
        let (memory, flags) = context.allocate(&needs, place, what)?;
        buffer.bind(memory)?;
        if place != Place::Device && flags.contains(Flags::HOST_VISIBLE) {
            // SAFETY: the memory can be mapped and is not mapped yet; it stays mapped until it is freed.
            let pointer = unsafe { context.device.map_memory(buffer.memory) };
            buffer.mapped = NonNull::new(pointer.map_err(failed("vkMapMemory"))?);
            buffer.coherent = flags.contains(Flags::HOST_COHERENT);
        }
        Ok(buffer)
    }

    /// A buffer that has no memory yet.
    pub(super) fn unbound(
        context: &Arc<Context>,
        create: &vk::BufferCreateInfo<'_>,
        what: &str,
    ) -> Result<Buffer> {
        // SAFETY: the device is live, and `create` outlives the call.
        let raw =
            unsafe { context.device.create_buffer(create) }.map_err(out_of_memory(what, create.size))?;
        let (context, memory, size) = (context.clone(), vk::DeviceMemory::null(), create.size);
        Ok(Buffer { context, raw, memory, size, mapped: None, coherent: true })
    }

    /// Gives the buffer its memory, which was allocated for it alone.
    pub(super) fn bind(&mut self, memory: vk::DeviceMemory) -> Result<()> {
        self.memory = memory;
        // SAFETY: the buffer is new, and the memory was allocated by its requirements.
        unsafe { self.context.device.bind_buffer_memory(self.raw, memory) }
            .map_err(failed("vkBindBufferMemory"))
    }

    /// The contents, where the host can see them.
    pub(super) fn bytes(&self) -> Option<&[u8]> {
        let length = usize::try_from(self.size).ok()?;
        // SAFETY: the mapping covers the buffer's size and lives as long as `self`; the device does not write
        // while the host looks, since what a run writes is only reached after the run was waited for.
        self.mapped.map(|pointer| unsafe { std::slice::from_raw_parts(pointer.as_ptr(), length) })
    }

    /// The contents, to be written.
    pub(super) fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        let length = usize::try_from(self.size).ok()?;
        // SAFETY: as above, and `self` is borrowed exclusively.
        self.mapped.map(|pointer| unsafe { std::slice::from_raw_parts_mut(pointer.as_ptr(), length) })
    }

    /// Makes what the device wrote visible to the host, on memory where that is not automatic.
    pub(super) fn invalidate(&self) -> Result<()> {
        if self.coherent {
            return Ok(());
        }
        let range = [vk::MappedMemoryRange::default().memory(self.memory).size(vk::WHOLE_SIZE)];
        // SAFETY: the memory is mapped.
        unsafe { self.context.device.invalidate_memory(&range) }
            .map_err(failed("vkInvalidateMappedMemoryRanges"))
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: whoever drops a buffer has waited for the submissions that use it. Freeing unmaps.
        unsafe {
            self.context.device.destroy_buffer(self.raw);
            self.context.device.free_memory(self.memory);
        }
    }
}

impl Context {
    /// Tries the memory types that suit, best first; a full heap leads to the next.
    #[inline(never)]
    pub(super) fn allocate(
        &self,
        needs: &vk::MemoryRequirements,
        place: Place,
        what: &str,
    ) -> Result<(vk::DeviceMemory, Flags)> {
        // Drivers need not notice that there are too many.
        if self.counts.allocations.load(Ordering::Relaxed) < self.info.max_allocations {
            for (index, flags) in self.suitable_types(place, needs.memory_type_bits) {
                let allocate =
                    vk::MemoryAllocateInfo::default().allocation_size(needs.size).memory_type_index(index);
                // SAFETY: the type is one of the device's and allowed for the object.
                match unsafe { self.device.allocate_memory(&allocate) } {
                    Ok(memory) => {
                        self.counts.add(needs.size);
                        return Ok((memory, flags));
                    }
                    Err(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY | vk::Result::ERROR_OUT_OF_HOST_MEMORY) => {}
                    Err(code) => return Err(failed("vkAllocateMemory")(code)),
                }
            }
        }
        Err(Error::OutOfMemory { what: what.to_owned(), size: needs.size })
    }

    /// Whether the host can write all of the device's memory directly (integrated and software devices, and
    /// discrete ones whose whole memory is mapped), so that nothing need be staged.
    pub(super) fn direct_writes(&self) -> bool {
        let visible = Flags::DEVICE_LOCAL | Flags::HOST_VISIBLE | Flags::HOST_COHERENT;
        !self.always_stage && self.largest_heap(visible) >= self.largest_heap(Flags::DEVICE_LOCAL) / 4 * 3
    }

    /// Whether the host writes an input of this size directly. Where the device has memory of its own, writes of the
    /// host cross a bus, on which copies by the device are several times as fast: there only what is small is.
    pub(super) fn direct_input(&self, size: u64) -> bool {
        const SMALL: u64 = 64 << 10;
        self.direct_writes() && (size <= SMALL || self.info.kind != DeviceKind::Discrete)
    }

    /// Whether the host can read device memory through its caches; without those, reading crawls.
    pub(super) fn direct_reads(&self) -> bool {
        let visible = Flags::DEVICE_LOCAL | Flags::HOST_VISIBLE | Flags::HOST_CACHED | Flags::HOST_COHERENT;
        !self.always_stage && self.largest_heap(visible) >= self.largest_heap(Flags::DEVICE_LOCAL) / 4 * 3
    }

    fn largest_heap(&self, flags: Flags) -> u64 {
        let types =
            self.memory.memory_types_as_slice().iter().filter(|kind| kind.property_flags.contains(flags));
        let heaps = self.memory.memory_heaps_as_slice();
        let size = |kind: &vk::MemoryType| {
            usize::try_from(kind.heap_index)
                .ok()
                .and_then(|index| heaps.get(index))
                .map_or(0, |heap| heap.size)
        };
        types.map(size).max().unwrap_or(0)
    }

    /// Memory types for a purpose, best first, among those that a buffer allows.
    pub(super) fn suitable_types(&self, place: Place, allowed: u32) -> Vec<(u32, Flags)> {
        const MAPPED: Flags = Flags::from_raw(Flags::HOST_VISIBLE.as_raw() | Flags::HOST_COHERENT.as_raw());
        let nothing = Flags::empty();
        let wishes: &[(Flags, Flags)] = match place {
            Place::Device => &[
                (Flags::DEVICE_LOCAL, Flags::HOST_VISIBLE),
                (Flags::DEVICE_LOCAL, nothing),
                (nothing, nothing),
            ],
            Place::Params => &[(Flags::DEVICE_LOCAL, MAPPED), (nothing, MAPPED)],
            Place::DeviceWritten => &[(Flags::DEVICE_LOCAL, MAPPED), (nothing, MAPPED)],
            Place::DeviceRead => &[(Flags::DEVICE_LOCAL, MAPPED | Flags::HOST_CACHED), (nothing, MAPPED)],
            Place::Upload => &[(nothing, MAPPED)],
            Place::Exchange => &[(Flags::HOST_CACHED, MAPPED), (nothing, MAPPED)],
            Place::Download => {
                &[(Flags::HOST_CACHED, MAPPED), (Flags::HOST_CACHED, Flags::HOST_VISIBLE), (nothing, MAPPED)]
            }
        };
        let mut suitable = Vec::new();
        for (wanted, other) in wishes {
            for (index, kind) in (0u32..).zip(self.memory.memory_types_as_slice()) {
                let flags = kind.property_flags;
                let fits = match place {
                    Place::Device => flags.contains(*wanted) && !flags.intersects(*other),
                    _ => flags.contains(*wanted | *other),
                };
                let known = suitable.iter().any(|(known, _)| *known == index);
                if fits && !known && allowed >> index & 1 == 1 {
                    suitable.push((index, flags));
                }
            }
        }
        suitable
    }
}

pub(super) fn out_of_memory(what: &str, size: u64) -> impl Fn(vk::Result) -> Error {
    move |code| match code {
        vk::Result::ERROR_OUT_OF_DEVICE_MEMORY | vk::Result::ERROR_OUT_OF_HOST_MEMORY => {
            Error::OutOfMemory { what: what.to_owned(), size }
        }
        code => failed("vkCreateBuffer")(code),
    }
}
