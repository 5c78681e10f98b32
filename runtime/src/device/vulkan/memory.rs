//! Buffers, mapped persistently if host-visible, and the selection of memory types.

use super::context::{Context, Memory};
use super::failed;
use crate::device::DeviceKind;
use crate::error::{Error, Result};
use ash::vk;
use ash::vk::MemoryPropertyFlags as Flags;
use std::ptr::NonNull;
use std::sync::Arc;

/// Purpose of a buffer or image, which determines its memory type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemoryUse {
    /// Buffers that only the device accesses.
    Device,
    /// Images, which only the device accesses. They use separate blocks because of `bufferImageGranularity`.
    Image,
    /// Small buffers that the host writes and the device reads, such as parameters.
    Params,
    /// Buffers that the host writes directly and the device reads often; see [`Context::direct_writes`].
    DeviceWritten,
    /// Buffers that the device writes and the host reads directly; see [`Context::direct_reads`].
    DeviceRead,
    /// Staging buffers that the host writes and the device copies from.
    Upload,
    /// Staging buffers that the device copies to and the host reads.
    Download,
    /// Staging buffers that the host reads and writes, and the device copies to and from.
    Exchange,
}

/// A range of a buffer, which may have several owners.
#[derive(Clone)]
pub(crate) struct BufferRange {
    pub(super) buffer: Arc<Buffer>,
    pub(crate) offset: u64,
    pub(crate) size: u64,
    /// True if other devices or processes may write to the memory.
    pub(super) external: bool,
}

impl BufferRange {
    /// True if the range is in the memory of this device context.
    pub(crate) fn belongs_to(&self, context: &Arc<Context>) -> bool {
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

// SAFETY: the mapped pointer is accessed through `bytes` and `bytes_mut`, under Rust's borrowing rules, and
// through `write`, whose callers guarantee exclusive access.
unsafe impl Send for Buffer {}
// SAFETY: as above; shared references only read, except through `write`.
unsafe impl Sync for Buffer {}

impl Buffer {
    // Inlined into every call site, this would be a hundredth of a program that embeds the runtime.
    #[inline(never)]
    pub(super) fn new(
        context: &Arc<Context>,
        size: u64,
        usage: vk::BufferUsageFlags,
        purpose: MemoryUse,
        what: &str,
    ) -> Result<Buffer> {
        let mut buffer =
            Buffer::unbound(context, &vk::BufferCreateInfo::default().size(size).usage(usage), what)?;
        // SAFETY: the buffer belongs to the device.
        let needs = unsafe { context.device.get_buffer_memory_requirements(buffer.raw) };
        let (memory, offset) = context.allocate(&needs, purpose, what)?;
        buffer.bind(memory, offset)?;
        Ok(buffer)
    }

    /// Creates a buffer without memory.
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

    /// Binds memory to the buffer, from `offset` on. No other object uses the bytes of the buffer.
    pub(super) fn bind(&mut self, memory: Arc<Memory>, offset: u64) -> Result<()> {
        let raw = memory.raw;
        let start = usize::try_from(offset).ok();
        // SAFETY: the range allocated for the buffer lies in the mapping, which covers all of the memory.
        self.mapped = memory.mapped.zip(start).map(|(mapped, start)| unsafe { mapped.add(start) });
        self.memory = Some(memory);
        // SAFETY: the buffer is new, and the range was allocated by its requirements.
        unsafe { self.context.device.bind_buffer_memory(self.raw, raw, offset) }
            .map_err(failed("vkBindBufferMemory"))
    }

    /// Returns the contents of the buffer, or `None` if the buffer is not host-visible.
    pub(super) fn bytes(&self) -> Option<&[u8]> {
        let length = usize::try_from(self.size).ok()?;
        // SAFETY: the mapping covers the buffer's size and lives as long as `self`. The device does not write
        // while the host reads, since outputs of a run are only accessed after waiting for it.
        self.mapped.map(|pointer| unsafe { std::slice::from_raw_parts(pointer.as_ptr(), length) })
    }

    /// Returns the mutable contents of the buffer, or `None` if the buffer is not host-visible.
    pub(super) fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        let length = usize::try_from(self.size).ok()?;
        // SAFETY: as above, and `self` is borrowed exclusively.
        self.mapped.map(|pointer| unsafe { std::slice::from_raw_parts_mut(pointer.as_ptr(), length) })
    }

    /// Writes `length` bytes at `offset`, truncated at the end of the buffer. Writes zeros if `bytes` is `None`. Does
    /// nothing if the buffer is not host-visible.
    ///
    /// # Safety
    /// No other thread and no device may access that range of the buffer during the call.
    pub(super) unsafe fn write(&self, offset: u64, length: u64, bytes: Option<&[u8]>) {
        let length = length.min(self.size.saturating_sub(offset));
        let (Some(mapped), Ok(offset), Ok(length)) =
            (self.mapped, usize::try_from(offset), usize::try_from(length))
        else {
            return;
        };
        // SAFETY: the range lies in the mapping, which covers the buffer's size, and the caller has exclusive
        // access.
        let target = unsafe { std::slice::from_raw_parts_mut(mapped.add(offset).as_ptr(), length) };
        match bytes {
            Some(bytes) if bytes.len() == length => target.copy_from_slice(bytes),
            _ => target.fill(0),
        }
    }

    /// Makes the device's writes to the buffer visible to the host, if the memory is not coherent.
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
        // SAFETY: the owner has waited for all submissions that use the buffer. Its memory is freed afterwards.
        unsafe { self.context.device.destroy_buffer(self.raw) };
    }
}

impl Context {
    /// True if the host can write most device memory directly: at least 3/4 of the device-local heap is
    /// host-visible. This holds for integrated and software devices, and for discrete devices with resizable
    /// BAR. No staging is needed then.
    pub(super) fn direct_writes(&self) -> bool {
        let visible = Flags::DEVICE_LOCAL | Flags::HOST_VISIBLE | Flags::HOST_COHERENT;
        !self.always_stage && self.largest_heap(visible) >= self.largest_heap(Flags::DEVICE_LOCAL) / 4 * 3
    }

    /// True if the host writes an input of this size directly. On a discrete device, host writes cross the bus,
    /// where copies by the device are several times faster; only small inputs are written directly.
    pub(super) fn direct_input(&self, size: u64) -> bool {
        const MAX_DIRECT_INPUT: u64 = 64 << 10;
        self.direct_writes() && (size <= MAX_DIRECT_INPUT || self.info.kind != DeviceKind::Discrete)
    }

    /// True if the host can read device memory through its caches. Uncached reads are very slow.
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

    /// Returns the memory types that suit the purpose, best first. `allowed` has a bit for each memory type that the
    /// object allows.
    pub(super) fn suitable_types(&self, purpose: MemoryUse, allowed: u32) -> Vec<(u32, Flags)> {
        const MAPPED: Flags = Flags::from_raw(Flags::HOST_VISIBLE.as_raw() | Flags::HOST_COHERENT.as_raw());
        let none = Flags::empty();
        let preferences: &[(Flags, Flags)] = match purpose {
            MemoryUse::Device | MemoryUse::Image => {
                &[(Flags::DEVICE_LOCAL, Flags::HOST_VISIBLE), (Flags::DEVICE_LOCAL, none), (none, none)]
            }
            MemoryUse::Params => &[(Flags::DEVICE_LOCAL, MAPPED), (none, MAPPED)],
            MemoryUse::DeviceWritten => &[(Flags::DEVICE_LOCAL, MAPPED), (none, MAPPED)],
            MemoryUse::DeviceRead => &[(Flags::DEVICE_LOCAL, MAPPED | Flags::HOST_CACHED), (none, MAPPED)],
            MemoryUse::Upload => &[(none, MAPPED)],
            MemoryUse::Exchange => &[(Flags::HOST_CACHED, MAPPED), (none, MAPPED)],
            MemoryUse::Download => {
                &[(Flags::HOST_CACHED, MAPPED), (Flags::HOST_CACHED, Flags::HOST_VISIBLE), (none, MAPPED)]
            }
        };
        let mut suitable = Vec::new();
        for (wanted, other) in preferences {
            for (index, kind) in (0u32..).zip(self.memory.memory_types_as_slice()) {
                let flags = kind.property_flags;
                let fits = match purpose {
                    MemoryUse::Device | MemoryUse::Image => {
                        flags.contains(*wanted) && !flags.intersects(*other)
                    }
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
