//! Device memory: dedicated allocations for large objects, and blocks that are suballocated to small objects.
//!
//! An allocation takes a driver 0.1 to 2 ms, and a language model with several frames has over a hundred small inputs,
//! outputs and parameters. All of these objects are created at load and destroyed together, so a block is filled from
//! its start and ranges are never freed individually.

use super::context::{Block, BlockKind, Context, Memory};
use super::failed;
use super::memory::MemoryUse;
use crate::error::{Error, Result};
use ash::vk;
use ash::vk::MemoryPropertyFlags as Flags;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

/// Maximum bytes of an object that is placed in a block.
const MAX_SUBALLOCATION: u64 = 16 << 20;
/// Minimum and maximum bytes of a block. Within these bounds, a new block is as large as all earlier blocks of its kind
/// together, so at most half of the memory is unused.
const BLOCK_SIZES: [u64; 2] = [256 << 10, 32 << 20];

impl Memory {
    pub(super) fn new(context: &Arc<Context>, raw: vk::DeviceMemory) -> Memory {
        Memory { context: context.clone(), raw, mapped: None, coherent: true }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the owner of the last object has waited for all submissions that use it. Freeing unmaps.
        unsafe { self.context.device.free_memory(self.raw) };
    }
}

impl Context {
    /// Allocates memory for a buffer or image, and returns the memory with the object's offset in it. Tries the
    /// suitable memory types, best first; if a heap is full, the next type is used. Memory that the host accesses is
    /// mapped.
    #[inline(never)]
    pub(super) fn allocate(
        self: &Arc<Context>,
        needs: &vk::MemoryRequirements,
        purpose: MemoryUse,
        what: &str,
    ) -> Result<(Arc<Memory>, u64)> {
        for (memory_type, flags) in self.suitable_types(purpose, needs.memory_type_bits) {
            let images = purpose == MemoryUse::Image;
            let mapped = purpose != MemoryUse::Device && !images && flags.contains(Flags::HOST_VISIBLE);
            let kind = BlockKind { memory_type, mapped, images };
            if needs.size <= MAX_SUBALLOCATION
                && let Some(found) = self.suballocate(needs, kind, flags)?
            {
                return Ok(found);
            }
            if let Some(memory) = self.allocate_memory(needs.size, kind, flags)? {
                return Ok((memory, 0));
            }
        }
        Err(Error::OutOfMemory { what: what.to_owned(), size: needs.size })
    }

    /// Suballocates from a block. Returns `None` if no block has room and no further block can be allocated.
    fn suballocate(
        self: &Arc<Context>,
        needs: &vk::MemoryRequirements,
        kind: BlockKind,
        flags: Flags,
    ) -> Result<Option<(Arc<Memory>, u64)>> {
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        let mut total_size = 0;
        for block in blocks.iter_mut() {
            if block.kind != kind {
                continue;
            }
            total_size += block.size;
            let offset = block.used.next_multiple_of(needs.alignment.max(1));
            if offset + needs.size <= block.size
                && let Some(memory) = block.memory.upgrade()
            {
                block.used = offset + needs.size;
                return Ok(Some((memory, offset)));
            }
        }
        let size = total_size.clamp(BLOCK_SIZES[0], BLOCK_SIZES[1]).max(needs.size);
        let Some(memory) = self.allocate_memory(size, kind, flags)? else { return Ok(None) };
        blocks.push(Block { kind, memory: Arc::downgrade(&memory), used: needs.size, size });
        Ok(Some((memory, 0)))
    }

    /// Allocates device memory of the memory type in `kind`, which has the properties `flags`. Returns `None` if the
    /// device has not enough memory or allows no further allocation.
    #[inline(never)]
    fn allocate_memory(
        self: &Arc<Context>,
        size: u64,
        kind: BlockKind,
        flags: Flags,
    ) -> Result<Option<Arc<Memory>>> {
        // Drivers need not report an exceeded allocation count.
        if self.counts.allocations.load(Ordering::Relaxed) >= self.info.max_allocations {
            return Ok(None);
        }
        let allocate =
            vk::MemoryAllocateInfo::default().allocation_size(size).memory_type_index(kind.memory_type);
        // SAFETY: the memory type exists on the device and is allowed for the object.
        let raw = match unsafe { self.device.allocate_memory(&allocate) } {
            Ok(raw) => raw,
            Err(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY | vk::Result::ERROR_OUT_OF_HOST_MEMORY) => {
                return Ok(None);
            }
            Err(code) => return Err(failed("vkAllocateMemory")(code)),
        };
        self.counts.count_allocation(size);
        let mut memory = Memory::new(self, raw);
        if kind.mapped {
            // SAFETY: the memory is mappable and not mapped yet; it stays mapped until it is freed.
            let pointer = unsafe { self.device.map_memory(memory.raw) };
            memory.mapped = NonNull::new(pointer.map_err(failed("vkMapMemory"))?);
            memory.coherent = flags.contains(Flags::HOST_COHERENT);
        }
        Ok(Some(Arc::new(memory)))
    }
}
