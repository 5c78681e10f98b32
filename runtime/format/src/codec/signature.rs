//! The signature of a bundle: a minisign signature of the header, as text after the manifest.
//!
//! The header contains the hash of the manifest, and the manifest contains the hashes of all sections. The signature
//! therefore covers every byte before it. Without its signature, a signed bundle is the unsigned bundle.

use super::{HEADER_SIZE, read_header, section};
use crate::error::{Error, Result};
use std::fmt;

/// Maximum size of a signature in bytes.
pub const SIGNATURE_LIMIT: usize = 1024;

const UNTRUSTED_COMMENT: &[u8] = b"untrusted comment: ";

/// Number of a minisign key pair. Signatures and public keys contain it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyId(pub u64);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016X}", self.0)
    }
}

impl KeyId {
    /// Reads the key id from the base64 line of a signature or a public key: bytes 2 to 9, little-endian.
    pub fn from_base64(line: &str) -> Option<KeyId> {
        let [_, _, id @ .., _, _]: [u8; 12] = base64(line.get(..16)?)?;
        Some(KeyId(u64::from_le_bytes(id)))
    }
}

/// Decodes base64 with padding. Returns `None` if the text is no base64 of exactly `BYTES` bytes.
pub fn base64<const BYTES: usize>(text: &str) -> Option<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    decode(text, &mut bytes).then_some(bytes)
}

/// Decodes base64 into all of `bytes`. This function is short and not generic, because every program that checks
/// signatures contains it.
fn decode(text: &str, bytes: &mut [u8]) -> bool {
    let size = bytes.len();
    let (digits, padding) = text.split_at_checked((size * 8).div_ceil(6)).unwrap_or_default();
    let (mut bits, mut held, mut free) = (0u32, 0, bytes.iter_mut());
    for digit in digits.bytes() {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return false,
        };
        (bits, held) = (bits << 6 | u32::from(value), held + 6);
        if held >= 8 {
            held -= 8;
            free.next().into_iter().for_each(|byte| *byte = (bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    // Bits of the last digit that belong to no byte must be zero.
    bits == 0 && free.next().is_none() && padding == &"=="[..(3 - size % 3) % 3]
}

/// Returns the bytes that the signature signs: the header.
pub fn signed_bytes(file: &[u8]) -> Result<&[u8]> {
    section(file, 0, HEADER_SIZE as u64)
}

/// Returns the signature as text and the id of the key that made it, or `None` if the bundle is not signed. The
/// signature is not checked.
pub fn signature(file: &[u8]) -> Result<Option<(&str, KeyId)>> {
    let size = read_header(file)?.file_size;
    if size == file.len() as u64 {
        return Ok(None);
    }
    let text =
        section(file, size, file.len() as u64 - size).ok().and_then(|text| std::str::from_utf8(text).ok());
    let signed = text.and_then(|text| Some((text, KeyId::from_base64(text.split('\n').nth(1)?)?)));
    signed.map(Some).ok_or_else(|| Error::corrupt("signature", size, "the text is no minisign signature"))
}

/// True if the bytes from `start` to the end of the file look like one signature: four lines, and the first is a
/// comment. This check is short, because every program with the runtime contains it.
pub(super) fn is_signed(file: &[u8], start: u64) -> bool {
    let text = usize::try_from(start).ok().and_then(|start| file.get(start..)).unwrap_or_default();
    text.len() <= SIGNATURE_LIMIT
        && text.starts_with(UNTRUSTED_COMMENT)
        && text.ends_with(b"\n")
        && text.iter().filter(|byte| **byte == b'\n').count() == 4
}

#[cfg(test)]
mod tests {
    use super::{KeyId, base64, is_signed};

    const TEXT: &str = "untrusted comment: signature from minisign secret key\n\
        RUQf6LRCGA9i559r3g7V1qNyJDApGip8MfqcadIgT9CuhV3EMhHoN1mGTkUidF/z7SrlQgXdy8ofjb7bNJJylDOocrCo8KLzZwo=\n\
        trusted comment: timestamp:1633700835\tfile:test\tprehashed\n\
        wLMDjy9FLAuxZ3q4NlEvkgtyhrr0gtTu6KC4KBJdITbbOeAi1zBIYo0v4iTgt8jJpIidRJnp94ABQkJAgAooBQ==\n";

    #[test]
    fn one_complete_signature_is_a_signature() {
        let read = |text: &str| is_signed(text.as_bytes(), 0);
        assert!(read(TEXT));
        assert!(!read(&TEXT.repeat(2)));
        for length in 0..TEXT.len() {
            assert!(!read(&TEXT[..length]), "{length}");
        }
        assert!(!read(&TEXT.replace("prehashed", &"x".repeat(1024))));
    }

    #[test]
    fn signatures_and_public_keys_state_the_same_key_id() {
        let public = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3";
        assert_eq!(KeyId::from_base64(public).unwrap().to_string(), "E7620F1842B4E81F");
        assert_eq!(KeyId::from_base64(TEXT.lines().nth(1).unwrap()), KeyId::from_base64(public));
        assert_eq!(KeyId::from_base64("RWQf6L"), None);
        assert_eq!(KeyId::from_base64("RWQf6LRC*A9i53mlYecO4IzT"), None);
    }

    #[test]
    fn base64_has_one_text_for_the_same_bytes() {
        assert_eq!(base64("+/8="), Some([0xfb, 0xff]));
        assert_eq!(base64("AQID"), Some([1, 2, 3]));
        assert_eq!(base64("/w=="), Some([0xff]));
        for text in ["", "/w=", "/w", "/x==", "/w==\n", "AQID", "/-==", "é==", "/w==/w=="] {
            assert_eq!(base64::<1>(text), None, "{text}");
        }
    }
}
