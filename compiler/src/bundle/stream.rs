//! Packs constants and hands their bytes on, through a fixed memory, however large a constant is.
//!
//! The calling thread packs a portion (on all threads of the pool) while another one hashes and writes the portion before.
//! The other one never waits for the pool, so threads of the pool may compile bundles, too. Portions
//! travel in a few buffers that go round, so the memory is what those buffers hold; pages of the model's files are
//! released once they were read.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};

use crate::error::OpError;
use crate::shader::pack::{Packed, Packer};

/// Bytes of a portion, about.
const PORTION: usize = 1 << 23;
/// Portions under way.
const BUFFERS: usize = 3;

/// A portion of a constant.
struct Portion {
    bytes: Vec<u8>,
    last: bool,
}

/// The portions of the constants in order, on the side that writes them.
pub(super) struct Portions {
    filled: Receiver<Portion>,
    empty: SyncSender<Vec<u8>>,
}

impl Portions {
    /// Writes the bytes of the next constant.
    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        loop {
            let portion = self.filled.recv().map_err(|_| io::Error::other("packing ended early"))?;
            out.write_all(&portion.bytes)?;
            // Whoever packs has ended when nobody takes the buffer back.
            let _ = self.empty.send(portion.bytes);
            if portion.last {
                return Ok(());
            }
        }
    }
}

/// Packs constants while `write` takes their portions; it has to write every one. Returns what `write` does, and the
/// largest number of bytes that the memory held.
pub(super) fn stream<'a, T: Send, E: From<OpError> + Send>(
    constants: impl IntoIterator<Item = &'a Packed>,
    write: impl FnOnce(&Portions) -> Result<T, E> + Send,
) -> Result<(T, usize), E> {
    let (to_writer, filled) = channel();
    let (empty, free) = sync_channel(BUFFERS);
    for _ in 0..BUFFERS {
        // The channel holds as many.
        let _ = empty.send(Vec::new());
    }
    let portions = Portions { filled, empty };
    std::thread::scope(|scope| {
        let writing = scope.spawn(move || write(&portions));
        let mut memory = Held::default();
        let packed = pack_all(constants, &free, |portion| to_writer.send(portion).is_ok(), &mut memory);
        // Whoever writes ends when nothing more comes.
        drop((to_writer, free));
        let written = writing.join().map_err(|_| OpError::new("a thread that writes ended"))?;
        match (packed, written) {
            // The writer fails as well when packing fails; that is not the reason.
            (Err(why), _) => Err(why.into()),
            (Ok(_), Err(why)) => Err(why),
            (Ok(()), Ok(written)) => Ok((written, memory.held)),
        }
    })
}

/// What the buffers hold.
#[derive(Default)]
struct Held {
    held: usize,
}

impl Held {
    /// Makes a buffer as long as a portion.
    fn grow(&mut self, bytes: &mut Vec<u8>, length: usize) {
        if length <= bytes.capacity() {
            bytes.resize(length, 0);
            return;
        }
        self.held -= bytes.capacity();
        *bytes = vec![0; length];
        self.held += bytes.capacity();
    }
}

/// Packs every constant into buffers that come free; ends early when `send` says that nobody takes them.
fn pack_all<'a>(
    constants: impl IntoIterator<Item = &'a Packed>,
    free: &Receiver<Vec<u8>>,
    send: impl Fn(Portion) -> bool,
    memory: &mut Held,
) -> Result<(), OpError> {
    for packed in constants {
        let packer = Packer::new(packed)?;
        let mut runs = packer.pieces(PORTION).peekable();
        while let Some(run) = runs.next() {
            let Ok(mut bytes) = free.recv() else { return Ok(()) };
            memory.grow(&mut bytes, packer.span(&run).len());
            packer.fill(run, &mut bytes);
            packed.source.bytes.release();
            if !send(Portion { bytes, last: runs.peek().is_none() }) {
                return Ok(());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rayon::prelude::*;

    use super::{BUFFERS, PORTION, stream};
    use crate::error::OpError;
    use crate::ir::op::Constant;
    use crate::ir::tensor::{DType, DeviceType};
    use crate::shader::pack::presets::PANELS;
    use crate::shader::pack::{Packed, pack};

    /// A matrix of f16 in slices of 64 columns, large enough for several windows.
    fn large() -> Packed {
        let (n, k) = (5000usize, 6000usize);
        let bytes: Vec<u8> = (0..n * k).flat_map(|i| ((i % 30_011) as u16).to_le_bytes()).collect();
        let source = Constant::new(DType::F16, vec![n, k], bytes).unwrap();
        PANELS.of(&source, &[('N', n), ('K', k)], &[('r', 1), ('n', 64)], DeviceType::F16)
    }

    #[test]
    fn large_constants_go_through_a_fixed_window() {
        let constants = [large(), Packed::dense(&large().source), large()];
        let (written, held) = stream(&constants, |portions| {
            let mut out = vec![Vec::new(); constants.len()];
            out.iter_mut()
                .try_for_each(|out| portions.write(out))
                .map_err(|e| OpError::new(e.to_string()))?;
            Ok::<_, OpError>(out)
        })
        .unwrap();
        assert!(held <= BUFFERS * (PORTION + PORTION / 8), "{held} bytes");
        assert!(constants[0].bytes() as usize > 2 * held);
        for (packed, bytes) in constants.iter().zip(&written) {
            assert_eq!(bytes.len() as u64, packed.bytes());
            assert!(*bytes == pack(packed).unwrap());
        }
    }

    #[test]
    fn what_cannot_be_packed_or_written_ends_both_sides() {
        let mut broken = large();
        broken.source.shape = vec![1, 2];
        let constants = [large(), broken];
        let all = |portions: &super::Portions| {
            let mut sink = std::io::sink();
            constants
                .iter()
                .try_for_each(|_| portions.write(&mut sink))
                .map_err(|e| OpError::new(e.to_string()))
        };
        assert!(stream(&constants, all).unwrap_err().0.contains("do not make"));
        let refuse = |_: &super::Portions| Err::<(), _>(OpError::new("the disk is full"));
        assert_eq!(stream(&[large(), large()], refuse).unwrap_err().0, "the disk is full");
    }
    #[test]
    fn every_thread_of_the_pool_may_pack_at_once() {
        let constants = [large()];
        let packed: Vec<usize> = (0..2 * rayon::current_num_threads())
            .into_par_iter()
            .map(|_| {
                let mut out = Vec::new();
                let write = |portions: &super::Portions| {
                    portions.write(&mut out).map_err(|e| OpError::new(e.to_string()))
                };
                stream(&constants, write).unwrap();
                out.len()
            })
            .collect();
        assert!(packed.iter().all(|bytes| *bytes == packed[0] && *bytes >= 60_000_000), "{packed:?}");
    }
}
