//! Buffers, mapped for good where the host can see them, and the choice of memory types.

use super::blocks::Memory;
use super::context::Context;
use super::failed;
use crate::device::DeviceKind;
use crate::error::{Error, Result};
use ash::vk;
use ash::vk::MemoryPropertyFlags as Flags;
use std::ptr::NonNull;
use std::sync::Arc;

/// What a buffer is for, from which its memory type follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Only the device touches it.
    Device,
    /// The same for images, which share no block with buffers: `bufferImageGranularity` may keep those apart.
    Image,
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
    pub(super) memory: Option<Arc<Memory>>,
    pub(super) size: u64,
    mapped: Option<NonNull<u8>>,
}

// SAFETY: the mapped pointer is reached through `bytes` and `bytes_mut`, under Rust's borrowing rules, and `write`, whose
// callers keep them.
unsafe impl Send for Buffer {}
// SAFETY: as above; shared access only reads, but for `write`.
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
        let (memory, offset) = context.allocate(&needs, place, what)?;
        buffer.bind(memory, offset)?;
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
        Ok(Buffer { context: context.clone(), raw, memory: None, size: create.size, mapped: None })
    }

    /// Gives the buffer its memory, whose bytes from `offset` on are its alone.
    pub(super) fn bind(&mut self, memory: Arc<Memory>, offset: u64) -> Result<()> {
        let raw = memory.raw;
        let start = usize::try_from(offset).ok();
        // SAFETY: the range that was allocated for the buffer lies in the mapping, which covers all of the memory.
        self.mapped = memory.mapped.zip(start).map(|(mapped, start)| unsafe { mapped.add(start) });
        self.memory = Some(memory);
        // SAFETY: the buffer is new, and the range was allocated by its requirements.
        unsafe { self.context.device.bind_buffer_memory(self.raw, raw, offset) }
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

    /// Writes bytes at an offset, or zeros where there are none, as many as lie in the buffer; nothing where the host cannot
    /// reach it.
    ///
    /// # Safety
    /// Nobody else may read or write that range of the buffer meanwhile.
    pub(super) unsafe fn write(&self, offset: u64, length: u64, bytes: Option<&[u8]>) {
        let length = length.min(self.size.saturating_sub(offset));
        let (Some(mapped), Ok(offset), Ok(length)) =
            (self.mapped, usize::try_from(offset), usize::try_from(length))
        else {
            return;
        };
        // SAFETY: the range lies in the mapping, which covers the buffer's size, and is the caller's alone.
        let target = unsafe { std::slice::from_raw_parts_mut(mapped.add(offset).as_ptr(), length) };
        match bytes {
            Some(bytes) if bytes.len() == length => target.copy_from_slice(bytes),
            _ => target.fill(0),
        }
    }

    /// Makes what the device wrote visible to the host, on memory where that is not automatic.
    pub(super) fn invalidate(&self) -> Result<()> {
        let Some(memory) = self.memory.as_ref().filter(|memory| !memory.coherent) else { return Ok(()) };
        let range = [vk::MappedMemoryRange::default().memory(memory.raw).size(vk::WHOLE_SIZE)];
        // SAFETY: the memory is mapped.
        unsafe { self.context.device.invalidate_memory(&range) }
            .map_err(failed("vkInvalidateMappedMemoryRanges"))
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: whoever drops a buffer has waited for the submissions that use it. Its memory goes afterwards.
        unsafe { self.context.device.destroy_buffer(self.raw) };
    }
}

impl Context {
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
            Place::Device | Place::Image => &[
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
                    Place::Device | Place::Image => flags.contains(*wanted) && !flags.intersects(*other),
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
