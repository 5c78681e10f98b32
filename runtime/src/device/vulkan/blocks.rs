//! Device memory: allocations of their own for what is large, and blocks that small objects share.
//!
//! An allocation takes a driver 0.1 to 2 ms, and a language model with several frames has over a hundred small inputs,
//! outputs and parameters. All are made at load and go together, so a block is filled from its start and nothing in it is
//! given back alone.

use super::context::Context;
use super::failed;
use super::memory::Place;
use crate::error::{Error, Result};
use ash::vk;
use ash::vk::MemoryPropertyFlags as Flags;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};

/// The most bytes of an object that shares a block.
const SMALL: u64 = 16 << 20;
/// The least and the most bytes of a block. In between it is as large as all before it together, so that at most half of what is
/// allocated lies idle.
const BLOCK: [u64; 2] = [256 << 10, 32 << 20];

/// An allocation, which lasts as long as anything in it.
pub(super) struct Memory {
    context: Arc<Context>,
    pub(super) raw: vk::DeviceMemory,
    /// Where the host sees it.
    pub(super) mapped: Option<NonNull<u8>>,
    pub(super) coherent: bool,
}

// SAFETY: the pointer is only passed on to buffers, which keep to ranges of their own.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// A block that has room. What lies in it keeps it.
pub(super) struct Block {
    holds: Holds,
    memory: Weak<Memory>,
    used: u64,
    size: u64,
}

/// What may share a block.
#[derive(Clone, Copy, PartialEq)]
struct Holds {
    /// The index of the memory type.
    kind: u32,
    mapped: bool,
    images: bool,
}

impl Memory {
    pub(super) fn new(context: &Arc<Context>, raw: vk::DeviceMemory) -> Memory {
        Memory { context: context.clone(), raw, mapped: None, coherent: true }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: whoever drops the last object has waited for the submissions that use it. Freeing unmaps.
        unsafe { self.context.device.free_memory(self.raw) };
    }
}

impl Context {
    /// Memory for an object and its offset there. Tries the memory types that suit, best first; a full heap leads to the next.
    /// What the host touches is mapped.
    #[inline(never)]
    pub(super) fn allocate(
        self: &Arc<Context>,
        needs: &vk::MemoryRequirements,
        place: Place,
        what: &str,
    ) -> Result<(Arc<Memory>, u64)> {
        for (kind, flags) in self.suitable_types(place, needs.memory_type_bits) {
            let images = place == Place::Image;
            let mapped = place != Place::Device && !images && flags.contains(Flags::HOST_VISIBLE);
            let holds = Holds { kind, mapped, images };
            if needs.size <= SMALL
                && let Some(found) = self.share(needs, holds, flags)?
            {
                return Ok(found);
            }
            if let Some(memory) = self.take(needs.size, holds, flags)? {
                return Ok((memory, 0));
            }
        }
        Err(Error::OutOfMemory { what: what.to_owned(), size: needs.size })
    }

    /// A part of a block; none where there is no memory for a further one.
    fn share(
        self: &Arc<Context>,
        needs: &vk::MemoryRequirements,
        holds: Holds,
        flags: Flags,
    ) -> Result<Option<(Arc<Memory>, u64)>> {
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        let mut before = 0;
        for block in blocks.iter_mut() {
            if block.holds != holds {
                continue;
            }
            before += block.size;
            let offset = block.used.next_multiple_of(needs.alignment.max(1));
            if offset + needs.size <= block.size
                && let Some(memory) = block.memory.upgrade()
            {
                block.used = offset + needs.size;
                return Ok(Some((memory, offset)));
            }
        }
        let size = before.clamp(BLOCK[0], BLOCK[1]).max(needs.size);
        let Some(memory) = self.take(size, holds, flags)? else { return Ok(None) };
        blocks.push(Block { holds, memory: Arc::downgrade(&memory), used: needs.size, size });
        Ok(Some((memory, 0)))
    }

    /// An allocation of a type with these flags; none where there is no memory for it.
    #[inline(never)]
    fn take(self: &Arc<Context>, size: u64, holds: Holds, flags: Flags) -> Result<Option<Arc<Memory>>> {
        // Drivers need not notice that there are too many.
        if self.counts.allocations.load(Ordering::Relaxed) >= self.info.max_allocations {
            return Ok(None);
        }
        let allocate = vk::MemoryAllocateInfo::default().allocation_size(size).memory_type_index(holds.kind);
        // SAFETY: the type is one of the device's and allowed for the object.
        let raw = match unsafe { self.device.allocate_memory(&allocate) } {
            Ok(raw) => raw,
            Err(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY | vk::Result::ERROR_OUT_OF_HOST_MEMORY) => {
                return Ok(None);
            }
            Err(code) => return Err(failed("vkAllocateMemory")(code)),
        };
        self.counts.add(size);
        let mut memory = Memory::new(self, raw);
        if holds.mapped {
            // SAFETY: the memory can be mapped and is not mapped yet; it stays mapped until it is freed.
            let pointer = unsafe { self.device.map_memory(memory.raw) };
            memory.mapped = NonNull::new(pointer.map_err(failed("vkMapMemory"))?);
            memory.coherent = flags.contains(Flags::HOST_COHERENT);
        }
        Ok(Some(Arc::new(memory)))
    }
}
