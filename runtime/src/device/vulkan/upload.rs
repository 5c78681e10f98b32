//! Fills weight slots from the file, and states with zeros.
//!
//! Where the host can write the device's memory, threads copy straight into it. Elsewhere bytes pass through a
//! bounded staging window: while the device copies one part of it, the host fills the next.

use super::context::Context;
use super::memory::{Buffer, Place};
use super::record::{Commands, barrier};
use super::states::States;
use crate::codec::section;
use crate::error::{Error, Result};
use crate::format::{Manifest, Variant};
use crate::{order, threads};
use ash::vk;
use std::sync::{Arc, Mutex};

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

pub(super) fn fill_weights(
    context: &Arc<Context>,
    manifest: &Manifest,
    variant: &Variant,
    file: &[u8],
    weights: &mut [Buffer],
    states: &States,
) -> Result<()> {
    let transfers = transfers(manifest, variant, file)?;
    let commands = Commands::new(context)?;
    if weights.iter().all(|buffer| buffer.bytes().is_some()) {
        write_directly(&transfers, weights);
        return states.zero(context, &commands, None);
    }
    zero_gaps(context, &commands, &transfers, weights)?;
    states.zero(context, &commands, None)?;
    stage(context, &transfers, weights)
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

/// Copies on several threads into mapped memory, a few megabytes at a time.
fn write_directly(transfers: &[Transfer<'_>], weights: &mut [Buffer]) {
    type Job<'a, 'b> = (&'a mut [u8], Option<&'b [u8]>);
    let mut jobs: Vec<Mutex<Job<'_, '_>>> = Vec::new();
    let mut transfers = transfers.iter().peekable();
    for (slot, buffer) in weights.iter_mut().enumerate() {
        let Some(mut rest) = buffer.bytes_mut() else { continue };
        // The transfers of a slot follow each other without gaps, so that the slot can be split along them.
        while let Some(transfer) = transfers.next_if(|transfer| transfer.slot == slot) {
            let mut left = usize::try_from(transfer.length).unwrap_or(usize::MAX).min(rest.len());
            let mut bytes = transfer.bytes;
            while left > 0 {
                let (part, after) = std::mem::take(&mut rest).split_at_mut(left.min(PART));
                left -= part.len();
                rest = after;
                let source = bytes.map(|bytes| bytes.split_at(part.len().min(bytes.len())));
                bytes = source.map(|(_, after)| after);
                jobs.push(Mutex::new((part, source.map(|(source, _)| source))));
            }
        }
    }
    threads::each(jobs.len(), &|index| {
        let Some(Ok(mut job)) = jobs.get(index).map(Mutex::lock) else { return };
        match job.1 {
            Some(source) if source.len() == job.0.len() => job.0.copy_from_slice(source),
            _ => job.0.fill(0),
        }
    });
}

fn zero_gaps(
    context: &Arc<Context>,
    commands: &Commands,
    transfers: &[Transfer<'_>],
    weights: &[Buffer],
) -> Result<()> {
    commands.run_once(&mut |command| {
        for transfer in transfers.iter().filter(|transfer| transfer.bytes.is_none()) {
            let Some(buffer) = weights.get(transfer.slot) else { continue };
            // Fills are in whole words; what a gap shares a word with is written afterwards.
            let start = transfer.offset / 4 * 4;
            let end = (transfer.offset + transfer.length).next_multiple_of(4).min(buffer.size);
            // SAFETY: the range lies in the buffer, whose size is a multiple of 4; the command is being recorded.
            unsafe { context.device.cmd_zero_buffer(command, buffer.raw, start, end - start) };
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

fn stage(context: &Arc<Context>, transfers: &[Transfer<'_>], weights: &[Buffer]) -> Result<()> {
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
                send(context, &mut parts, current, &window.buffer, weights, &mut copies)?;
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
    send(context, &mut parts, current, &window.buffer, weights, &mut copies)?;
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
    weights: &[Buffer],
    copies: &mut Vec<(usize, vk::BufferCopy)>,
) -> Result<()> {
    let Some(part) = parts.get_mut(current).filter(|_| !copies.is_empty()) else { return Ok(()) };
    part.commands.record(part.command, vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT, |command| {
        for (slot, copy) in copies.drain(..) {
            let Some(buffer) = weights.get(slot) else { continue };
            // SAFETY: both ranges lie in their buffers; the command is being recorded.
            unsafe { context.device.cmd_copy_buffer(command, window.raw, buffer.raw, copy) };
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
