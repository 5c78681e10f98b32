//! Checks a SPIR-V module before the driver gets it.
//!
//! Drivers trust shaders: a SPIR-V module without the requested entry point is undefined behavior, not an error. Hashes
//! prove that the SPIR-V module is the compiler's output; this file checks its structure and the entry point.

use crate::error::{Error, Result};

const MAGIC: u32 = 0x0723_0203;
const HEADER_WORDS: usize = 5;
const OP_ENTRY_POINT: u32 = 15;
const GL_COMPUTE: u32 = 5;

/// Returns the words of a SPIR-V module, after checking that it has a compute entry point named `entry`.
pub(super) fn checked_words(bytes: &[u8], entry: &str, artifact: u32) -> Result<Vec<u32>> {
    let (chunks, _) = bytes.as_chunks::<4>();
    let words: Vec<u32> = chunks.iter().map(|word| u32::from_le_bytes(*word)).collect();
    match has_entry(&words, entry) {
        Some(true) => Ok(words),
        Some(false) => Err(fault(artifact, format!("the artifact has no compute entry point `{entry}`"))),
        None => Err(fault(artifact, "the artifact is not a SPIR-V module".to_owned())),
    }
}

/// Returns true if a SPIR-V module has the compute entry point `entry`, or `None` if the instructions do not fill the module
/// exactly.
fn has_entry(words: &[u32], entry: &str) -> Option<bool> {
    let (header, mut rest) = words.split_at_checked(HEADER_WORDS)?;
    if header.first() != Some(&MAGIC) {
        return None;
    }
    let mut found = false;
    while let Some(first) = rest.first() {
        let (length, opcode) = (usize::try_from(first >> 16).ok()?, first & 0xffff);
        if length == 0 {
            return None;
        }
        let (instruction, after) = rest.split_at_checked(length)?;
        if let (OP_ENTRY_POINT, [_, GL_COMPUTE, _, name @ ..]) = (opcode, instruction) {
            let mut name = name.iter().flat_map(|word| word.to_le_bytes());
            found |= entry.bytes().all(|byte| name.next() == Some(byte)) && name.next() == Some(0);
        }
        rest = after;
    }
    Some(found)
}

fn fault(artifact: u32, reason: String) -> Error {
    Error::invalid(format!("artifacts[{artifact}]"), reason)
}

#[cfg(test)]
mod tests {
    use super::has_entry;

    #[test]
    fn finds_the_entry_point() {
        let header = [super::MAGIC, 0x0001_0300, 0, 8, 0];
        let name = u32::from_le_bytes(*b"main");
        let module = [header.as_slice(), &[5 << 16 | 15, 5, 4, name, 0]].concat();
        assert_eq!(has_entry(&module, "main"), Some(true));
        assert_eq!(has_entry(&module, "mai"), Some(false));
        assert_eq!(has_entry(&module, "mains"), Some(false));
        assert_eq!(has_entry(&module[..9], "main"), None);
        assert_eq!(has_entry(&[header.as_slice(), &[0]].concat(), "main"), None);
        assert_eq!(has_entry(&[], "main"), None);
    }
}
