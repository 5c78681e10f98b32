//! Allocates weight slots and fills them from the file.
//!
//! If the host can write device memory, threads copy weights directly into that memory. Otherwise the bytes pass
//! through a bounded staging window: while the device copies one slice of the window, the host fills the next.

use super::context::Context;
use super::memory::{Buffer, MemoryUse};
use super::port_memory::BOUND;
use super::record::{Commands, barrier};
use crate::codec::section;
use crate::error::{Error, Result};
use crate::format::{Manifest, Variant};
use crate::order;
use ash::vk;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Number and byte size of the slices of the staging window.
const N_SLICES: usize = 4;
const SLICE_BYTES: usize = 4 << 20;

/// Bytes of the bundle file, or zeros, to write to a range of a weight slot.
#[derive(Clone, Copy)]
struct Transfer<'a> {
    slot: usize,
    offset: u64,
    /// Bytes to write. `None` writes `length` zero bytes.
    bytes: Option<&'a [u8]>,
    length: u64,
}

/// The weight slots of a variant during their upload.
pub(super) struct Weights<'a> {
    context: &'a Arc<Context>,
    variant: &'a Variant,
    /// Buffers of the weight slots. The first thread that needs a buffer allocates it.
    slots: Vec<OnceLock<Result<Buffer>>>,
    transfers: Vec<Transfer<'a>>,
    /// True if the host writes weights directly to device memory.
    direct: bool,
    staged: Mutex<Result<()>>,
}

impl<'a> Weights<'a> {
    pub(super) fn new(
        context: &'a Arc<Context>,
        manifest: &Manifest,
        variant: &'a Variant,
        file: &'a [u8],
    ) -> Result<Weights<'a>> {
        let direct = context.direct_writes();
        let mut transfers = transfers(manifest, variant, file)?;
        if direct {
            transfers = split_transfers(&transfers);
        }
        let slots = variant.weights.iter().map(|_| OnceLock::new()).collect();
        let weights = Weights { context, variant, slots, transfers, direct, staged: Mutex::new(Ok(())) };
        // The first slot is allocated before any thread needs it.
        weights.slot(0);
        Ok(weights)
    }

    /// Returns the number of jobs for [`Weights::fill`]. Jobs are in the allocation order of the weight slots.
    pub(super) fn n_jobs(&self) -> usize {
        if self.direct { self.transfers.len() } else { self.transfers.len().min(1) }
    }

    /// Returns the buffer of a weight slot, or `None` if its allocation failed.
    fn slot(&self, index: usize) -> Option<&Buffer> {
        let slot = self.slots.get(index)?;
        let size = self.variant.weights.get(index)?.size;
        let usage = BOUND | vk::BufferUsageFlags::TRANSFER_DST;
        let place = if self.direct { MemoryUse::DeviceWritten } else { MemoryUse::Device };
        slot.get_or_init(|| Buffer::new(self.context, size, usage, place, "weights")).as_ref().ok()
    }

    /// Allocates the buffers of all weight slots. Returns `None` if an allocation failed.
    pub(super) fn allocate(&self) -> Option<Vec<vk::Buffer>> {
        let mut slots = Vec::new();
        for index in 0..self.slots.len() {
            slots.push(self.slot(index)?.raw);
        }
        Some(slots)
    }

    /// Runs one job, which writes a part of the weights. Each job must run exactly once.
    pub(super) fn fill(&self, job: usize) {
        if !self.direct {
            // A failed allocation keeps its error in the slot.
            let Some(slots) = self.allocate() else { return };
            let staged = zero_gaps(self.context, &self.transfers, self.variant, &slots)
                .and_then(|()| copy_staged(self.context, &self.transfers, &slots));
            *self.staged.lock().unwrap_or_else(PoisonError::into_inner) = staged;
        } else if let Some(transfer) = self.transfers.get(job)
            && let Some(buffer) = self.slot(transfer.slot)
        {
            // SAFETY: transfers do not overlap, no job runs twice, and only jobs access the bytes of a slot.
            unsafe { buffer.write(transfer.offset, transfer.length, transfer.bytes) };
        }
    }

    /// Returns the buffers of all weight slots after all jobs are done.
    pub(super) fn finish(self) -> Result<Vec<Buffer>> {
        let mut slots = Vec::new();
        for slot in self.slots.into_iter().filter_map(OnceLock::into_inner) {
            slots.push(slot?);
        }
        self.staged.into_inner().unwrap_or_else(PoisonError::into_inner)?;
        Ok(slots)
    }
}

/// Splits transfers into transfers of at most [`SLICE_BYTES`] each.
fn split_transfers<'a>(transfers: &[Transfer<'a>]) -> Vec<Transfer<'a>> {
    let mut split = Vec::with_capacity(transfers.len());
    for transfer in transfers {
        let mut rest = *transfer;
        while rest.length > 0 {
            let length = rest.length.min(SLICE_BYTES as u64);
            let bytes = rest.bytes.map(|bytes| bytes.split_at(bytes.len().min(SLICE_BYTES)));
            split.push(Transfer { length, bytes: bytes.map(|(head, _)| head), ..rest });
            rest.bytes = bytes.map(|(_, tail)| tail);
            rest.offset += length;
            rest.length -= length;
        }
    }
    split
}

/// Returns the transfers for all placements of weights and for the gaps between them, in the order of slots and
/// offsets.
fn transfers<'a>(manifest: &Manifest, variant: &Variant, file: &'a [u8]) -> Result<Vec<Transfer<'a>>> {
    let keys = variant.placements.iter().map(|placement| (u64::from(placement.slot), placement.offset));
    let sorted = order::sorted_indices(keys);
    let mut placements = sorted.into_iter().filter_map(|index| variant.placements.get(index)).peekable();
    let mut transfers = Vec::new();
    for (slot, weights) in variant.weights.iter().enumerate() {
        let mut end = 0;
        let gap = |from: u64, to: u64, transfers: &mut Vec<Transfer<'a>>| {
            if to > from {
                transfers.push(Transfer { slot, offset: from, bytes: None, length: to - from });
            }
        };
        while let Some(placement) = placements.next_if(|next| usize::try_from(next.slot) == Ok(slot)) {
            let chunk = usize::try_from(placement.chunk).ok().and_then(|index| manifest.chunks.get(index));
            let chunk = chunk.ok_or_else(|| Error::invalid("placements", "a chunk does not exist"))?;
            gap(end, placement.offset, &mut transfers);
            let bytes = Some(section(file, chunk.offset, chunk.size)?);
            transfers.push(Transfer { slot, offset: placement.offset, bytes, length: chunk.size });
            end = placement.offset.saturating_add(chunk.size);
        }
        gap(end, weights.size, &mut transfers);
    }
    Ok(transfers)
}

fn zero_gaps(
    context: &Arc<Context>,
    transfers: &[Transfer<'_>],
    variant: &Variant,
    slots: &[vk::Buffer],
) -> Result<()> {
    Commands::new(context)?.run_once(&mut |command| {
        for transfer in transfers.iter().filter(|transfer| transfer.bytes.is_none()) {
            let (Some(slot), Some(weights)) = (slots.get(transfer.slot), variant.weights.get(transfer.slot))
            else {
                continue;
            };
            // Fills cover whole words. Words that a gap shares with data are overwritten by the data later.
            let start = transfer.offset / 4 * 4;
            let end = (transfer.offset + transfer.length).next_multiple_of(4).min(weights.size);
            // SAFETY: the range lies in the buffer, whose size is a multiple of 4; the command is being
            // recorded.
            unsafe { context.device.cmd_zero_buffer(command, *slot, start, end - start) };
        }
        barrier(context, command, barrier::TRANSFER_TO_ALL);
    })
}

/// A slice of the staging window: its command buffer and fence, and whether the device is copying from it.
struct Slice {
    commands: Commands,
    command: vk::CommandBuffer,
    busy: bool,
}

fn copy_staged(context: &Arc<Context>, transfers: &[Transfer<'_>], slots: &[vk::Buffer]) -> Result<()> {
    let mut slices = Vec::with_capacity(N_SLICES);
    for _ in 0..N_SLICES {
        let commands = Commands::new(context)?;
        let command = commands.allocate()?;
        slices.push(Slice { commands, command, busy: false });
    }
    // Declared after the commands, so an early return waits for the device before they are dropped.
    let size = (N_SLICES * SLICE_BYTES) as u64;
    let mut window = Staging {
        buffer: Buffer::new(
            context,
            size,
            vk::BufferUsageFlags::TRANSFER_SRC,
            MemoryUse::Upload,
            "the staging window",
        )?,
        context: context.clone(),
    };
    let mut current = 0;
    let mut used = 0;
    let mut copies: Vec<(usize, vk::BufferCopy)> = Vec::new();
    for transfer in transfers {
        let mut bytes = transfer.bytes.unwrap_or_default();
        let mut offset = transfer.offset;
        while !bytes.is_empty() {
            if used == SLICE_BYTES {
                submit_slice(context, &mut slices, current, &window.buffer, slots, &mut copies)?;
                current = (current + 1) % N_SLICES;
                used = 0;
            }
            if used == 0
                && let Some(slice) = slices.get_mut(current).filter(|slice| slice.busy)
            {
                context.wait(slice.commands.fence)?;
                slice.busy = false;
            }
            let (head, tail) = bytes.split_at(bytes.len().min(SLICE_BYTES - used));
            let start = current * SLICE_BYTES + used;
            let target = window.buffer.bytes_mut().and_then(|bytes| bytes.get_mut(start..start + head.len()));
            if let Some(target) = target {
                target.copy_from_slice(head);
            }
            copies.push((
                transfer.slot,
                vk::BufferCopy { src_offset: start as u64, dst_offset: offset, size: head.len() as u64 },
            ));
            used += head.len();
            offset += head.len() as u64;
            bytes = tail;
        }
    }
    submit_slice(context, &mut slices, current, &window.buffer, slots, &mut copies)?;
    for slice in slices.iter().filter(|slice| slice.busy) {
        context.wait(slice.commands.fence)?;
    }
    Ok(())
}

fn submit_slice(
    context: &Arc<Context>,
    slices: &mut [Slice],
    current: usize,
    window: &Buffer,
    slots: &[vk::Buffer],
    copies: &mut Vec<(usize, vk::BufferCopy)>,
) -> Result<()> {
    let Some(slice) = slices.get_mut(current).filter(|_| !copies.is_empty()) else { return Ok(()) };
    slice.commands.record(slice.command, vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT, |command| {
        for (slot, copy) in copies.drain(..) {
            let Some(slot) = slots.get(slot) else { continue };
            // SAFETY: both ranges lie in their buffers; the command is being recorded.
            unsafe { context.device.cmd_copy_buffer(command, window.raw, *slot, copy) };
        }
        barrier(context, command, barrier::TRANSFER_TO_ALL);
    })?;
    context.start(&[slice.command], slice.commands.fence)?;
    slice.busy = true;
    Ok(())
}

/// Buffer of the staging window. Dropping this object waits for the device.
struct Staging {
    buffer: Buffer,
    context: Arc<Context>,
}

impl Drop for Staging {
    fn drop(&mut self) {
        // After an error, this keeps the memory until the copies have ended.
        self.context.wait_idle();
    }
}
