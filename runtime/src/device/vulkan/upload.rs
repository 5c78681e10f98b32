//! Allocates weight slots and fills them from the file.
//!
//! Where the host can write the device's memory, threads copy straight into it. Elsewhere bytes pass through a
//! bounded staging window: while the device copies one part of it, the host fills the next.

use super::context::Context;
use super::frame::BOUND;
use super::memory::{Buffer, Place};
use super::record::{Commands, barrier};
use crate::codec::section;
use crate::error::{Error, Result};
use crate::format::{Manifest, Variant};
use crate::order;
use ash::vk;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The staging window: this many parts of this many bytes.
const N_PARTS: usize = 4;
const PART: usize = 4 << 20;

/// Bytes of the file that go to an offset of a weight slot.
#[derive(Clone, Copy)]
struct Transfer<'a> {
    slot: usize,
    offset: u64,
    /// None: as many zeros as `length`.
    bytes: Option<&'a [u8]>,
    length: u64,
}

/// The weight slots of a variant on their way to the device.
pub(super) struct Weights<'a> {
    context: &'a Arc<Context>,
    variant: &'a Variant,
    /// Each is allocated by whoever needs it first.
    slots: Vec<OnceLock<Result<Buffer>>>,
    transfers: Vec<Transfer<'a>>,
    /// Whether the host writes each transfer where it belongs.
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
            transfers = parts(&transfers);
        }
        let slots = variant.weights.iter().map(|_| OnceLock::new()).collect();
        let weights = Weights { context, variant, slots, transfers, direct, staged: Mutex::new(Ok(())) };
        // The first is there before anyone waits for it.
        weights.slot(0);
        Ok(weights)
    }

    /// How many jobs [`Weights::fill`] has, in an order in which slots are allocated.
    pub(super) fn n_jobs(&self) -> usize {
        if self.direct { self.transfers.len() } else { self.transfers.len().min(1) }
    }

    /// A slot's buffer; none where it could not be allocated.
    fn slot(&self, index: usize) -> Option<&Buffer> {
        let slot = self.slots.get(index)?;
        let size = self.variant.weights.get(index)?.size;
        let usage = BOUND | vk::BufferUsageFlags::TRANSFER_DST;
        let place = if self.direct { Place::DeviceWritten } else { Place::Device };
        slot.get_or_init(|| Buffer::new(self.context, size, usage, place, "weights")).as_ref().ok()
    }

    /// The buffers of all slots, which it allocates; none where that fails.
    pub(super) fn allocate(&self) -> Option<Vec<vk::Buffer>> {
        let mut slots = Vec::new();
        for index in 0..self.slots.len() {
            slots.push(self.slot(index)?.raw);
        }
        Some(slots)
    }

    /// Does one of the jobs, each of which is done once.
    pub(super) fn fill(&self, job: usize) {
        if !self.direct {
            // Where a slot could not be allocated, what went wrong is kept there.
            let Some(slots) = self.allocate() else { return };
            let staged = zero_gaps(self.context, &self.transfers, self.variant, &slots)
                .and_then(|()| stage(self.context, &self.transfers, &slots));
            *self.staged.lock().unwrap_or_else(PoisonError::into_inner) = staged;
        } else if let Some(transfer) = self.transfers.get(job)
            && let Some(buffer) = self.slot(transfer.slot)
        {
            // SAFETY: transfers do not overlap, no job is done twice, and only jobs reach the bytes of a slot.
            unsafe { buffer.write(transfer.offset, transfer.length, transfer.bytes) };
        }
    }

    /// The slots, when all jobs are done.
    pub(super) fn finish(self) -> Result<Vec<Buffer>> {
        let mut slots = Vec::new();
        for slot in self.slots.into_iter().filter_map(OnceLock::into_inner) {
            slots.push(slot?);
        }
        self.staged.into_inner().unwrap_or_else(PoisonError::into_inner)?;
        Ok(slots)
    }
}

/// The same transfers in parts of a few megabytes.
fn parts<'a>(transfers: &[Transfer<'a>]) -> Vec<Transfer<'a>> {
    let mut parts = Vec::with_capacity(transfers.len());
    for transfer in transfers {
        let mut rest = *transfer;
        while rest.length > 0 {
            let length = rest.length.min(PART as u64);
            let bytes = rest.bytes.map(|bytes| bytes.split_at(bytes.len().min(PART)));
            parts.push(Transfer { length, bytes: bytes.map(|(now, _)| now), ..rest });
            rest.bytes = bytes.map(|(_, later)| later);
            rest.offset += length;
            rest.length -= length;
        }
    }
    parts
}

/// All placements and the gaps between them, in the order of slots and offsets.
fn transfers<'a>(manifest: &Manifest, variant: &Variant, file: &'a [u8]) -> Result<Vec<Transfer<'a>>> {
    let keys = variant.placements.iter().map(|placement| (u64::from(placement.slot), placement.offset));
    let sorted = order::by_key(keys);
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
            // Fills are in whole words; what a gap shares a word with is written afterwards.
            let start = transfer.offset / 4 * 4;
            let end = (transfer.offset + transfer.length).next_multiple_of(4).min(weights.size);
            // SAFETY: the range lies in the buffer, whose size is a multiple of 4; the command is being recorded.
            unsafe { context.device.cmd_zero_buffer(command, *slot, start, end - start) };
        }
        barrier(context, command, barrier::TRANSFER_TO_ALL);
    })
}

/// One part of the staging window: its command buffer and fence, and whether the device is at it.
struct Part {
    commands: Commands,
    command: vk::CommandBuffer,
    busy: bool,
}

fn stage(context: &Arc<Context>, transfers: &[Transfer<'_>], slots: &[vk::Buffer]) -> Result<()> {
    let mut parts = Vec::with_capacity(N_PARTS);
    for _ in 0..N_PARTS {
        let commands = Commands::new(context)?;
        let command = commands.allocate()?;
        parts.push(Part { commands, command, busy: false });
    }
    // Declared after the commands, so that an early return waits for the device before memory is freed.
    let size = (N_PARTS * PART) as u64;
    let mut window = Staging {
        buffer: Buffer::new(
            context,
            size,
            vk::BufferUsageFlags::TRANSFER_SRC,
            Place::Upload,
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
            if used == PART {
                send(context, &mut parts, current, &window.buffer, slots, &mut copies)?;
                current = (current + 1) % N_PARTS;
                used = 0;
            }
            if used == 0
                && let Some(part) = parts.get_mut(current).filter(|part| part.busy)
            {
                context.wait(part.commands.fence)?;
                part.busy = false;
            }
            let (now, later) = bytes.split_at(bytes.len().min(PART - used));
            let start = current * PART + used;
            let target = window.buffer.bytes_mut().and_then(|bytes| bytes.get_mut(start..start + now.len()));
            if let Some(target) = target {
                target.copy_from_slice(now);
            }
            copies.push((
                transfer.slot,
                vk::BufferCopy { src_offset: start as u64, dst_offset: offset, size: now.len() as u64 },
            ));
            used += now.len();
            offset += now.len() as u64;
            bytes = later;
        }
    }
    send(context, &mut parts, current, &window.buffer, slots, &mut copies)?;
    for part in parts.iter().filter(|part| part.busy) {
        context.wait(part.commands.fence)?;
    }
    Ok(())
}

fn send(
    context: &Arc<Context>,
    parts: &mut [Part],
    current: usize,
    window: &Buffer,
    slots: &[vk::Buffer],
    copies: &mut Vec<(usize, vk::BufferCopy)>,
) -> Result<()> {
    let Some(part) = parts.get_mut(current).filter(|_| !copies.is_empty()) else { return Ok(()) };
    part.commands.record(part.command, vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT, |command| {
        for (slot, copy) in copies.drain(..) {
            let Some(slot) = slots.get(slot) else { continue };
            // SAFETY: both ranges lie in their buffers; the command is being recorded.
            unsafe { context.device.cmd_copy_buffer(command, window.raw, *slot, copy) };
        }
        barrier(context, command, barrier::TRANSFER_TO_ALL);
    })?;
    context.start(&[part.command], part.commands.fence)?;
    part.busy = true;
    Ok(())
}

/// The staging buffer; waits for the device before it goes.
struct Staging {
    buffer: Buffer,
    context: Arc<Context>,
}

impl Drop for Staging {
    fn drop(&mut self) {
        // After an error this keeps memory until the copies have ended.
        self.context.wait_idle();
    }
}
