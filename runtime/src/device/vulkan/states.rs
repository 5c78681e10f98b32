//! States of all conversations, and host access to them.
//!
//! States are in device-local memory, so all host access passes through a staging window created at load. Callers wait
//! for all runs before they access a state.

use super::context::Context;
use super::memory::{Buffer, MemoryUse};
use super::port_memory::BOUND;
use super::record::{Commands, barrier};
use crate::error::Result;
use crate::format::Variant;
use ash::vk;
use std::sync::Arc;

/// Maximum bytes of the staging window for states.
const WINDOW: u64 = 1 << 20;

pub(super) struct States {
    /// State buffers, one list for each conversation.
    pub(super) sets: Vec<Vec<Buffer>>,
    window: Option<Buffer>,
}

impl States {
    pub(super) fn new(context: &Arc<Context>, variant: &Variant, conversations: usize) -> Result<States> {
        let transfer = vk::BufferUsageFlags::TRANSFER_SRC | vk::BufferUsageFlags::TRANSFER_DST;
        let mut sets = Vec::with_capacity(conversations);
        for _ in 0..conversations {
            let mut set = Vec::with_capacity(variant.states.len());
            for state in &variant.states {
                set.push(Buffer::new(context, state.size, BOUND | transfer, MemoryUse::Device, "states")?);
            }
            sets.push(set);
        }
        let largest = variant.states.iter().map(|state| state.size).max();
        let window = largest.map(|size| {
            Buffer::new(
                context,
                size.min(WINDOW),
                transfer,
                MemoryUse::Exchange,
                "the staging window for states",
            )
        });
        Ok(States { sets, window: window.transpose()? })
    }

    /// Sets all states of a conversation to zero; `None` means all conversations.
    pub(super) fn zero(
        &self,
        context: &Arc<Context>,
        commands: &Commands,
        conversation: Option<usize>,
    ) -> Result<()> {
        let selected = |(index, _): &(usize, _)| conversation.is_none_or(|wanted| wanted == *index);
        let states = || self.sets.iter().enumerate().filter(selected).flat_map(|(_, set)| set);
        if states().next().is_none() {
            return Ok(());
        }
        commands.run_once(&mut |command| {
            for state in states() {
                // SAFETY: the range is the whole of a live buffer; the command is being recorded.
                unsafe { context.device.cmd_zero_buffer(command, state.raw, 0, vk::WHOLE_SIZE) };
            }
            barrier(context, command, barrier::TRANSFER_TO_ALL);
        })
    }

    /// Reads `to.len()` bytes of a state from `offset` on. This range must lie inside the state.
    pub(super) fn read(
        &self,
        context: &Arc<Context>,
        commands: &Commands,
        (conversation, state, offset): (usize, usize, u64),
        to: &mut [u8],
    ) -> Result<()> {
        let Some((state, window)) = self.state_and_window(conversation, state) else { return Ok(()) };
        let mut offset = offset;
        for chunk in to.chunks_mut(usize::try_from(window.size).unwrap_or(usize::MAX).max(1)) {
            let size = chunk.len() as u64;
            let copy = vk::BufferCopy { src_offset: offset, dst_offset: 0, size };
            copy_once(context, commands, state, window, copy)?;
            if let Some(bytes) = window.bytes().and_then(|bytes| bytes.get(..chunk.len())) {
                chunk.copy_from_slice(bytes);
            }
            offset += size;
        }
        Ok(())
    }

    /// Writes `from.len()` bytes of a state from `offset` on. This range must lie inside the state.
    pub(super) fn write(
        &mut self,
        context: &Arc<Context>,
        commands: &Commands,
        (conversation, state, offset): (usize, usize, u64),
        from: &[u8],
    ) -> Result<()> {
        let mut offset = offset;
        let length = self.window.as_ref().map_or(1, |window| window.size);
        for chunk in from.chunks(usize::try_from(length).unwrap_or(usize::MAX).max(1)) {
            let window = self.window.as_mut().and_then(Buffer::bytes_mut);
            if let Some(bytes) = window.and_then(|bytes| bytes.get_mut(..chunk.len())) {
                bytes.copy_from_slice(chunk);
            }
            let Some((state, window)) = self.state_and_window(conversation, state) else { return Ok(()) };
            let size = chunk.len() as u64;
            let copy = vk::BufferCopy { src_offset: 0, dst_offset: offset, size };
            copy_once(context, commands, window, state, copy)?;
            offset += size;
        }
        Ok(())
    }

    fn state_and_window(&self, conversation: usize, state: usize) -> Option<(&Buffer, &Buffer)> {
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
        // SAFETY: the caller guarantees that both ranges lie inside their buffers; the command is being
        // recorded.
        unsafe { context.device.cmd_copy_buffer(command, from.raw, to.raw, copy) };
        barrier(context, command, barrier::TRANSFER_TO_ALL);
    })
}
