//! States, which keep their contents between runs: reset, read, write, save and restore.
//!
//! File format: `driftsta`, a version, the bundle's hash, the target, the caller's note, then each state with
//! its name, its size and its nonzero ranges, and a BLAKE3 hash of everything before it. Integers are
//! little-endian.

use super::Session;
#[cfg(not(feature = "wgpu"))]
use crate::device::backend::Replay;
use crate::error::{Error, Result};
use crate::format::StateSlot;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

const MAGIC: &[u8; 8] = b"driftsta";
const VERSION: u32 = 1;
/// Size in bytes of a page, the unit in which a state is saved. Pages that contain only zeros are not stored.
const PAGE: usize = 4096;
/// Maximum bytes read from a state at once.
const COPY_BYTES: usize = 1 << 20;
/// Number that marks the end of a state's ranges in the file, in place of an offset.
const END: u64 = u64::MAX;

impl Session {
    /// Returns the number of conversations. Each conversation has its own states.
    pub fn conversations(&self) -> usize {
        self.conversations
    }

    /// Selects the conversation whose states all following calls use.
    pub fn choose_conversation(&mut self, conversation: usize) -> Result<()> {
        if conversation >= self.conversations {
            return Err(Error::NoSuchConversation { given: conversation, count: self.conversations });
        }
        self.frames_in_flight.conversation = conversation;
        Ok(())
    }

    /// Returns name and byte size of each state.
    pub fn states(&self) -> &[StateSlot] {
        &self.variant().states
    }

    /// Sets every state of the conversation to zero, as after loading.
    pub fn reset_states(&mut self) -> Result<()> {
        self.replayer.reset_states(self.frames_in_flight.conversation)
    }

    /// Returns the bytes of a state of the conversation.
    pub fn read_state(&mut self, name: &str) -> Result<Vec<u8>> {
        let (index, size) = self.find_state(name)?;
        let mut bytes = vec![0; size];
        self.replayer.read_state((self.frames_in_flight.conversation, index, 0), &mut bytes)?;
        Ok(bytes)
    }

    /// Writes a state of the conversation. The length of `bytes` must be the size of the state.
    pub fn write_state(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let (index, size) = self.find_state(name)?;
        if bytes.len() != size {
            return Err(Error::WrongLength {
                port: name.to_owned(),
                shape: vec![size],
                expected: size as u64,
                given: bytes.len() as u64,
            });
        }
        self.replayer.write_state((self.frames_in_flight.conversation, index, 0), bytes)
    }

    /// Saves all states of the conversation to a file, with a note that [`Session::restore_states`] returns.
    pub fn save_states(&mut self, path: &Path, note: &[u8]) -> Result<()> {
        let fail = |source| Error::Io { path: path.to_owned(), source };
        let mut out = HashingWriter {
            out: BufWriter::with_capacity(COPY_BYTES, File::create(path).map_err(fail)?),
            hasher: blake3::Hasher::new(),
        };
        let header = [
            MAGIC.as_slice(),
            &VERSION.to_le_bytes(),
            &self.bundle.hash().0,
            &(self.variant().target.len() as u64).to_le_bytes(),
            self.variant().target.as_bytes(),
            &(note.len() as u64).to_le_bytes(),
            note,
            &(self.states().len() as u64).to_le_bytes(),
        ];
        out.put(&header).map_err(fail)?;
        let states = self.states().to_vec();
        let mut buffer = vec![0; COPY_BYTES];
        for (index, state) in states.iter().enumerate() {
            let name = state.name.as_bytes();
            let head = [&(name.len() as u64).to_le_bytes(), name, &state.size.to_le_bytes()];
            out.put(&head).map_err(fail)?;
            let mut offset = 0;
            while offset < state.size {
                let length = usize::try_from(state.size - offset).unwrap_or(COPY_BYTES).min(COPY_BYTES);
                let bytes = buffer.get_mut(..length).unwrap_or_default();
                self.replayer.read_state((self.frames_in_flight.conversation, index, offset), bytes)?;
                let empty = |page: &[u8]| page.iter().all(|byte| *byte == 0);
                for (start, range) in nonempty_ranges(bytes, empty) {
                    let start = offset + start as u64;
                    let slices = [&start.to_le_bytes(), &(range.len() as u64).to_le_bytes(), range];
                    out.put(&slices).map_err(fail)?;
                }
                offset += length as u64;
            }
            out.put(&[&END.to_le_bytes()]).map_err(fail)?;
        }
        let hash = out.hasher.finalize();
        out.put(&[hash.as_bytes()]).and_then(|()| out.out.flush()).map_err(fail)
    }

    /// Restores the conversation's states from a file, and returns the note saved with them. Bundle and target
    /// must be the ones that the file was saved with.
    pub fn restore_states(&mut self, path: &Path) -> Result<Vec<u8>> {
        let bytes = std::fs::read(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
        let invalid = |reason: &str| Error::States { path: path.to_owned(), reason: reason.to_owned() };
        let damaged = || invalid("the file of saved states is damaged; save the states again");
        let Some((body, hash)) = bytes.split_last_chunk::<32>() else { return Err(damaged()) };
        let mut rest = body;
        if take_bytes(&mut rest, MAGIC.len()) != Some(MAGIC) {
            return Err(invalid("the file is not a file of saved states"));
        }
        if take_bytes(&mut rest, 4) != Some(&VERSION.to_le_bytes()) {
            return Err(invalid(
                "the states were saved by another version; save them again with this version",
            ));
        }
        if blake3::hash(body).as_bytes() != hash {
            return Err(damaged());
        }
        if take_bytes(&mut rest, 32) != Some(&self.bundle.hash().0)
            || take_sized(&mut rest) != Some(self.variant().target.as_bytes())
        {
            return Err(invalid(
                "the states belong to another bundle or target; restore them with the bundle and target they were saved with",
            ));
        }
        let note = take_sized(&mut rest).ok_or_else(damaged)?.to_vec();
        let states = self.states().to_vec();
        if take_u64(&mut rest) != Some(states.len() as u64) {
            return Err(damaged());
        }
        self.reset_states()?;
        for (index, state) in states.iter().enumerate() {
            if take_sized(&mut rest) != Some(state.name.as_bytes()) || take_u64(&mut rest) != Some(state.size)
            {
                return Err(damaged());
            }
            loop {
                let start = take_u64(&mut rest).ok_or_else(damaged)?;
                if start == END {
                    break;
                }
                let bytes = take_sized(&mut rest).ok_or_else(damaged)?;
                let end = start.checked_add(bytes.len() as u64);
                if end.is_none_or(|end| end > state.size) {
                    return Err(damaged());
                }
                self.replayer.write_state((self.frames_in_flight.conversation, index, start), bytes)?;
            }
        }
        Ok(note)
    }

    /// Returns index and byte size of the state with this name.
    fn find_state(&self, name: &str) -> Result<(usize, usize)> {
        let states = self.states();
        let index = states.iter().position(|state| state.name == name).ok_or_else(|| Error::NoSuchState {
            name: name.to_owned(),
            known: states.iter().map(|state| state.name.clone()).collect(),
        })?;
        let size = states.get(index).and_then(|state| usize::try_from(state.size).ok());
        Ok((index, size.unwrap_or_default()))
    }
}

/// Returns byte offset and contents of each range of adjacent pages for which `empty` is false.
fn nonempty_ranges(bytes: &[u8], empty: impl Fn(&[u8]) -> bool) -> Vec<(usize, &[u8])> {
    let pages: Vec<bool> = bytes.chunks(PAGE).map(|page| !empty(page)).collect();
    let mut ranges = Vec::new();
    let mut page = 0;
    for run in pages.chunk_by(|a, b| a == b) {
        let (start, end) = (page * PAGE, ((page + run.len()) * PAGE).min(bytes.len()));
        if let (Some(true), Some(range)) = (run.first(), bytes.get(start..end)) {
            ranges.push((start, range));
        }
        page += run.len();
    }
    ranges
}

/// Writer that hashes the bytes that it writes to the file.
struct HashingWriter {
    out: BufWriter<File>,
    hasher: blake3::Hasher,
}

impl HashingWriter {
    fn put(&mut self, slices: &[&[u8]]) -> io::Result<()> {
        for slice in slices {
            self.hasher.update(slice);
            self.out.write_all(slice)?;
        }
        Ok(())
    }
}

fn take_bytes<'a>(rest: &mut &'a [u8], size: usize) -> Option<&'a [u8]> {
    let (bytes, remaining) = rest.split_at_checked(size)?;
    *rest = remaining;
    Some(bytes)
}

fn take_u64(rest: &mut &[u8]) -> Option<u64> {
    let (bytes, remaining) = rest.split_first_chunk::<8>()?;
    *rest = remaining;
    Some(u64::from_le_bytes(*bytes))
}

/// Removes a length and that number of bytes from the front of `rest`. Returns these bytes.
fn take_sized<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let size = usize::try_from(take_u64(rest)?).ok()?;
    take_bytes(rest, size)
}
