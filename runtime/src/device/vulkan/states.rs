//! The states of all conversations, and how the host reads, writes and resets them.
//!
//! States lie where only the device reaches them, so everything passes through a window that is made at load. Whoever
//! calls this has waited for all runs.

use super::context::Context;
use super::frame::BOUND;
use super::memory::{Buffer, Place};
use super::record::{Commands, barrier};
use crate::error::Result;
use crate::format::Variant;
use ash::vk;
use std::sync::Arc;

/// The most bytes that are copied at a time.
const WINDOW: u64 = 1 << 20;

pub(super) struct States {
    /// For each conversation, the states of the variant.
    pub(super) sets: Vec<Vec<Buffer>>,
    window: Option<Buffer>,
}

impl States {
    pub(super) fn new(context: &Arc<Context>, variant: &Variant, conversations: usize) -> Result<States> {
        let both = vk::BufferUsageFlags::TRANSFER_SRC | vk::BufferUsageFlags::TRANSFER_DST;
        let mut sets = Vec::with_capacity(conversations);
        for _ in 0..conversations {
            let mut set = Vec::with_capacity(variant.states.len());
            for state in &variant.states {
                set.push(Buffer::new(context, state.size, BOUND | both, Place::Device, "states")?);
            }
            sets.push(set);
        }
        let largest = variant.states.iter().map(|state| state.size).max();
        let window = largest.map(|size| {
            Buffer::new(context, size.min(WINDOW), both, Place::Exchange, "the window on states")
        });
        Ok(States { sets, window: window.transpose()? })
    }

    /// Sets all states of a conversation to zero; without one, those of all.
    pub(super) fn zero(
        &self,
        context: &Arc<Context>,
        commands: &Commands,
        conversation: Option<usize>,
    ) -> Result<()> {
        let chosen = |(index, _): &(usize, _)| conversation.is_none_or(|wanted| wanted == *index);
        let states = || self.sets.iter().enumerate().filter(chosen).flat_map(|(_, set)| set);
        if states().next().is_none() {
            return Ok(());
        }
        commands.run_once(&mut |command| {
            for state in states() {
                // SAFETY: the whole of a live buffer; the command is being recorded.
                unsafe { context.device.cmd_zero_buffer(command, state.raw, 0, vk::WHOLE_SIZE) };
            }
            barrier(context, command, barrier::TRANSFER_TO_ALL);
        })
    }

    /// Reads a state from `offset` on, as many bytes as `to` takes, which must lie in it.
    pub(super) fn read(
        &self,
        context: &Arc<Context>,
        commands: &Commands,
        (conversation, state, offset): (usize, usize, u64),
        to: &mut [u8],
    ) -> Result<()> {
        let Some((state, window)) = self.at(conversation, state) else { return Ok(()) };
        let mut offset = offset;
        for part in to.chunks_mut(usize::try_from(window.size).unwrap_or(usize::MAX).max(1)) {
            let size = part.len() as u64;
            let copy = vk::BufferCopy { src_offset: offset, dst_offset: 0, size };
            copy_once(context, commands, state, window, copy)?;
            if let Some(bytes) = window.bytes().and_then(|bytes| bytes.get(..part.len())) {
                part.copy_from_slice(bytes);
            }
            offset += size;
        }
        Ok(())
    }

    /// Writes bytes into a state from `offset` on; they must lie in it.
    pub(super) fn write(
        &mut self,
        context: &Arc<Context>,
        commands: &Commands,
        (conversation, state, offset): (usize, usize, u64),
        from: &[u8],
    ) -> Result<()> {
        let mut offset = offset;
        let length = self.window.as_ref().map_or(1, |window| window.size);
        for part in from.chunks(usize::try_from(length).unwrap_or(usize::MAX).max(1)) {
            let window = self.window.as_mut().and_then(Buffer::bytes_mut);
            if let Some(bytes) = window.and_then(|bytes| bytes.get_mut(..part.len())) {
                bytes.copy_from_slice(part);
            }
            let Some((state, window)) = self.at(conversation, state) else { return Ok(()) };
            let size = part.len() as u64;
            let copy = vk::BufferCopy { src_offset: 0, dst_offset: offset, size };
            copy_once(context, commands, window, state, copy)?;
            offset += size;
        }
        Ok(())
    }

    fn at(&self, conversation: usize, state: usize) -> Option<(&Buffer, &Buffer)> {
        self.sets.get(conversation)?.get(state).zip(self.window.as_ref())
    }
}

fn copy_once(
    context: &Arc<Context>,
    commands: &Commands,
    from: &Buffer,
    to: &Buffer,
    copy: vk::BufferCopy,
) -> Result<()> {
    commands.run_once(&mut |command| {
        // SAFETY: the caller keeps both ranges inside their buffers; the command is being recorded.
        unsafe { context.device.cmd_copy_buffer(command, from.raw, to.raw, copy) };
        barrier(context, command, barrier::TRANSFER_TO_ALL);
    })
}
