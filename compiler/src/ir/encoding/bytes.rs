//! Functions that read bytes and floats at a position of a constant's bytes.

use crate::content::Content;
use crate::ir::tensor::DType;

/// Returns the byte at a position; 0 after the end of the bytes.
pub(super) fn byte(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or(0)
}

/// Returns two bytes from a position on; 0 for bytes after the end.
pub(super) fn byte_pair(bytes: &[u8], at: usize) -> [u8; 2] {
    [byte(bytes, at), byte(bytes, at + 1)]
}

/// Returns the bytes from position `at` to the end; empty after the end.
pub(super) fn tail(bytes: &[u8], at: usize) -> &[u8] {
    bytes.get(at..).unwrap_or_default()
}

/// Returns the unquantized float at an element index, converted from F16, Bf16 or F32 to f32.
pub(super) fn plain_float(bytes: &Content, dtype: DType, index: usize) -> f32 {
    match dtype {
        DType::F16 => half::f16::from_le_bytes(byte_pair(bytes, index * 2)).to_f32(),
        DType::Bf16 => half::bf16::from_le_bytes(byte_pair(bytes, index * 2)).to_f32(),
        _ => {
            let [a, b] = byte_pair(bytes, index * 4);
            let [c, d] = byte_pair(bytes, index * 4 + 2);
            f32::from_le_bytes([a, b, c, d])
        }
    }
}
