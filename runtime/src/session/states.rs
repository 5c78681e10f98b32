//! What lasts between runs, as the host sees it: reset, read, written, and kept in a file.
//!
//! The file: `driftsta`, a version, the bundle's hash, the target, a note of the caller's, then each state by name and
//! size with the ranges of it that are not zero, and last a BLAKE3 hash of all that. Numbers are little-endian.

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
/// States are kept in pages of this size, without those that are zero.
const PAGE: usize = 4096;
/// Bytes that are read of a state at a time.
const PART: usize = 1 << 20;
/// Stands where a range would begin, behind the last one.
const END: u64 = u64::MAX;

impl Session {
    /// How many conversations there are, each with states of its own.
    pub fn conversations(&self) -> usize {
        self.conversations
    }

    /// Lets all that follows use the states of this conversation, until another one is chosen.
    pub fn choose_conversation(&mut self, conversation: usize) -> Result<()> {
        if conversation >= self.conversations {
            return Err(Error::NoSuchConversation { given: conversation, count: self.conversations });
        }
        self.flights.conversation = conversation;
        Ok(())
    }

    /// The states, by name and size.
    pub fn states(&self) -> &[StateSlot] {
        &self.variant().states
    }

    /// Sets every state of the conversation to zero, as after loading.
    pub fn reset_states(&mut self) -> Result<()> {
        self.replayer.reset_states(self.flights.conversation)
    }

    /// The bytes of a state of the conversation.
    pub fn read_state(&mut self, name: &str) -> Result<Vec<u8>> {
        let (index, size) = self.state(name)?;
        let mut bytes = vec![0; size];
        self.replayer.read_state((self.flights.conversation, index, 0), &mut bytes)?;
        Ok(bytes)
    }

    /// Writes a state of the conversation, as many bytes as it has.
    pub fn write_state(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let (index, size) = self.state(name)?;
        if bytes.len() != size {
            return Err(Error::WrongLength {
                port: name.to_owned(),
                shape: vec![size],
                expected: size as u64,
                given: bytes.len() as u64,
            });
        }
        self.replayer.write_state((self.flights.conversation, index, 0), bytes)
    }

    /// Writes all states of the conversation to a file, with a note that [`Session::restore_states`] returns.
    pub fn save_states(&mut self, path: &Path, note: &[u8]) -> Result<()> {
        let fail = |source| Error::Io { path: path.to_owned(), source };
        let mut out = Hashing {
            out: BufWriter::with_capacity(PART, File::create(path).map_err(fail)?),
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
        let mut part = vec![0; PART];
        for (index, state) in states.iter().enumerate() {
            let name = state.name.as_bytes();
            let head = [&(name.len() as u64).to_le_bytes(), name, &state.size.to_le_bytes()];
            out.put(&head).map_err(fail)?;
            let mut offset = 0;
            while offset < state.size {
                let length = usize::try_from(state.size - offset).unwrap_or(PART).min(PART);
                let bytes = part.get_mut(..length).unwrap_or_default();
                self.replayer.read_state((self.flights.conversation, index, offset), bytes)?;
                let empty = |page: &[u8]| page.iter().all(|byte| *byte == 0);
                for (start, range) in ranges(bytes, empty) {
                    let start = offset + start as u64;
                    let parts = [&start.to_le_bytes(), &(range.len() as u64).to_le_bytes(), range];
                    out.put(&parts).map_err(fail)?;
                }
                offset += length as u64;
            }
            out.put(&[&END.to_le_bytes()]).map_err(fail)?;
        }
        let hash = out.hasher.finalize();
        out.put(&[hash.as_bytes()]).and_then(|()| out.out.flush()).map_err(fail)
    }

    /// Gives the conversation the states that a file holds, and returns the note that was saved with them. The file must be
    /// of the same bundle and target.
    pub fn restore_states(&mut self, path: &Path) -> Result<Vec<u8>> {
        let bytes = std::fs::read(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
        let wrong = |reason: &str| Error::States { path: path.to_owned(), reason: reason.to_owned() };
        let damaged = || wrong("a file of states that is damaged; save it again");
        let Some((body, hash)) = bytes.split_last_chunk::<32>() else { return Err(damaged()) };
        let mut rest = body;
        if take(&mut rest, MAGIC.len()) != Some(MAGIC) {
            return Err(wrong("no file of a bundle's states"));
        }
        if take(&mut rest, 4) != Some(&VERSION.to_le_bytes()) {
            return Err(wrong("a file of states of another version; save it again with this one"));
        }
        if blake3::hash(body).as_bytes() != hash {
            return Err(damaged());
        }
        if take(&mut rest, 32) != Some(&self.bundle.hash().0)
            || sized(&mut rest) != Some(self.variant().target.as_bytes())
        {
            return Err(wrong("states of another bundle or target; only those it was saved with can use it"));
        }
        let note = sized(&mut rest).ok_or_else(damaged)?.to_vec();
        let states = self.states().to_vec();
        if number(&mut rest) != Some(states.len() as u64) {
            return Err(damaged());
        }
        self.reset_states()?;
        for (index, state) in states.iter().enumerate() {
            if sized(&mut rest) != Some(state.name.as_bytes()) || number(&mut rest) != Some(state.size) {
                return Err(damaged());
            }
            loop {
                let start = number(&mut rest).ok_or_else(damaged)?;
                if start == END {
                    break;
                }
                let bytes = sized(&mut rest).ok_or_else(damaged)?;
                let end = start.checked_add(bytes.len() as u64);
                if end.is_none_or(|end| end > state.size) {
                    return Err(damaged());
                }
                self.replayer.write_state((self.flights.conversation, index, start), bytes)?;
            }
        }
        Ok(note)
    }

    /// The index and size of a state.
    fn state(&self, name: &str) -> Result<(usize, usize)> {
        let states = self.states();
        let index = states.iter().position(|state| state.name == name).ok_or_else(|| Error::NoSuchState {
            name: name.to_owned(),
            known: states.iter().map(|state| state.name.clone()).collect(),
        })?;
        let size = states.get(index).and_then(|state| usize::try_from(state.size).ok());
        Ok((index, size.unwrap_or_default()))
    }
}

/// The pages that are not empty, those side by side as one, each range with its offset.
fn ranges(bytes: &[u8], empty: impl Fn(&[u8]) -> bool) -> Vec<(usize, &[u8])> {
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

/// Hashes what passes through to the file.
struct Hashing {
    out: BufWriter<File>,
    hasher: blake3::Hasher,
}

impl Hashing {
    fn put(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        for part in parts {
            self.hasher.update(part);
            self.out.write_all(part)?;
        }
        Ok(())
    }
}

fn take<'a>(rest: &mut &'a [u8], size: usize) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(size)?;
    *rest = after;
    Some(taken)
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    let (taken, after) = rest.split_first_chunk::<8>()?;
    *rest = after;
    Some(u64::from_le_bytes(*taken))
}

/// Bytes behind their number.
fn sized<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let size = usize::try_from(number(rest)?).ok()?;
    take(rest, size)
}
