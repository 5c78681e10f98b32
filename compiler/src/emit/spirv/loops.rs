//! Keeps the driver from unrolling loops.
//!
//! WGSL has no such hint. A driver that unrolls the loops of a long shader with cooperative matrices may take several
//! times as long to compile it, and the shader runs no faster.

use super::{HEADER_WORDS, instructions, opcode};

const OP_LOOP_MERGE: u16 = 246;
const DONT_UNROLL: u32 = 2;

/// Sets the loop control of every loop of a SPIR-V module to `DontUnroll`.
///
/// # Errors
/// If the module is malformed.
pub(super) fn keep(words: &[u32]) -> Result<Vec<u32>, String> {
    let mut out = words.get(..HEADER_WORDS).ok_or("a module without a header")?.to_vec();
    for i in instructions(words)? {
        match *i {
            [first, merge, next, _] if opcode(i) == OP_LOOP_MERGE => {
                out.extend([first, merge, next, DONT_UNROLL]);
            }
            _ => out.extend_from_slice(i),
        }
    }
    Ok(out)
}
