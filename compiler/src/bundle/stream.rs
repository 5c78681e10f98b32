//! Packs constants and streams their bytes to a writer, with a fixed amount of memory for constants of any size.
//!
//! The calling thread packs a portion, on all threads of the pool, while a second thread hashes and writes the previous
//! portion. The second thread never waits for the pool, so threads of the pool may compile bundles themselves. Portions
//! are in a few buffers that are reused. Pages of the model's files are released after they were read.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};

use crate::error::OpError;
use crate::shader::pack::{Packed, Packer};

/// Approximate bytes of a portion of a packed constant.
const PORTION: usize = 1 << 23;
/// Number of buffers for portions, and so the maximum number of portions in memory.
const BUFFERS: usize = 3;

/// Some of the packed bytes of a constant. `last` is true for the last portion of the constant.
struct Portion {
    bytes: Vec<u8>,
    last: bool,
}

/// The writing thread's end of the stream: receives portions of packed constants in order, and gives the buffers back.
pub(super) struct Portions {
    filled: Receiver<Portion>,
    empty: SyncSender<Vec<u8>>,
}

impl Portions {
    /// Writes all packed bytes of the next constant to `out`.
    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        loop {
            let portion = self.filled.recv().map_err(|_| io::Error::other("packing ended early"))?;
            out.write_all(&portion.bytes)?;
            // Sending fails if the packing thread has ended and needs no buffers.
            let _ = self.empty.send(portion.bytes);
            if portion.last {
                return Ok(());
            }
        }
    }
}

/// Packs constants on the calling thread while `write` consumes their portions on another thread. `write` must consume
/// all portions. Returns the result of `write`, and the total bytes of the buffers.
pub(super) fn stream<'a, T: Send, E: From<OpError> + Send>(
    constants: impl IntoIterator<Item = &'a Packed>,
    write: impl FnOnce(&Portions) -> Result<T, E> + Send,
) -> Result<(T, usize), E> {
    let (to_writer, filled) = channel();
    let (empty, free) = sync_channel(BUFFERS);
    for _ in 0..BUFFERS {
        // Cannot block: the channel's capacity is `BUFFERS`.
        let _ = empty.send(Vec::new());
    }
    let portions = Portions { filled, empty };
    std::thread::scope(|scope| {
        let writing = scope.spawn(move || write(&portions));
        let mut memory = BufferBytes::default();
        let packed = pack_all(constants, &free, |portion| to_writer.send(portion).is_ok(), &mut memory);
        // Closes the channels, so that the writer ends.
        drop((to_writer, free));
        let written =
            writing.join().map_err(|_| OpError::new("the thread that writes the bundle panicked"))?;
        match (packed, written) {
            // If packing fails, the writer fails too. The packing error is the cause.
            (Err(why), _) => Err(why.into()),
            (Ok(_), Err(why)) => Err(why),
            (Ok(()), Ok(written)) => Ok((written, memory.held)),
        }
    })
}

/// Total bytes of the buffers that hold portions of packed constants.
#[derive(Default)]
struct BufferBytes {
    held: usize,
}

impl BufferBytes {
    /// Resizes a buffer to `length` bytes.
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

/// Packs all constants into free buffers and passes each portion to `send`. Ends early if `send` returns false, which
/// means that the writing thread has ended.
fn pack_all<'a>(
    constants: impl IntoIterator<Item = &'a Packed>,
    free: &Receiver<Vec<u8>>,
    send: impl Fn(Portion) -> bool,
    memory: &mut BufferBytes,
) -> Result<(), OpError> {
    for packed in constants {
        let packer = Packer::new(packed)?;
        let mut runs = packer.tile_ranges(PORTION).peekable();
        while let Some(run) = runs.next() {
            let Ok(mut bytes) = free.recv() else { return Ok(()) };
            memory.grow(&mut bytes, packer.byte_range(&run).len());
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

    /// Returns an f16 test matrix to be packed in panels of 64 columns, large enough for several portions of the
    /// stream.
    fn large() -> Packed {
        let (n, k) = (5000usize, 6000usize);
        let bytes: Vec<u8> = (0..n * k).flat_map(|i| ((i % 30_011) as u16).to_le_bytes()).collect();
        let source = Constant::new(DType::F16, vec![n, k], bytes).unwrap();
        PANELS.packed(&source, &[('N', n), ('K', k)], &[('r', 1), ('n', 64)], DeviceType::F16)
    }

    #[test]
    fn large_constants_stream_through_fixed_memory() {
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
    fn errors_of_packing_and_writing_end_both_threads() {
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
        assert!(stream(&constants, all).unwrap_err().0.contains("do not hold"));
        let refuse = |_: &super::Portions| Err::<(), _>(OpError::new("the disk is full"));
        assert_eq!(stream(&[large(), large()], refuse).unwrap_err().0, "the disk is full");
    }

    #[test]
    fn all_threads_of_the_pool_may_pack_at_once() {
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
