//! Scope of atomic operations in modules with the Vulkan memory model.
//!
//! naga gives atomic operations device scope. Modules with cooperative matrices use the Vulkan memory model, which allows
//! device scope only with an extra feature. The operations of a dispatch need the scope of the queue family.

use super::{HEADER_WORDS, OP_TYPE_INT, instructions, opcode, uint_type};

const OP_MEMORY_MODEL: u16 = 14;
const OP_CONSTANT: u16 = 43;
const OP_ATOMIC_LOAD: u16 = 227;
const OP_ATOMIC_STORE: u16 = 228;
const OP_ATOMIC_XOR: u16 = 242;
const MEMORY_MODEL_VULKAN: u32 = 3;
const SCOPE_QUEUE_FAMILY: u32 = 5;

/// Gives atomic operations the scope of the queue family if the module declares the Vulkan memory model.
///
/// # Errors
/// If the module is malformed.
pub(super) fn narrow(words: &[u32]) -> Result<Vec<u32>, String> {
    let instructions = instructions(words)?;
    let is_atomic = |i: &[u32]| (OP_ATOMIC_LOAD..=OP_ATOMIC_XOR).contains(&opcode(i));
    let vulkan = |i: &[u32]| opcode(i) == OP_MEMORY_MODEL && i.get(2) == Some(&MEMORY_MODEL_VULKAN);
    if !instructions.iter().any(|i| vulkan(i)) || !instructions.iter().any(|i| is_atomic(i)) {
        return Ok(words.to_vec());
    }
    let uint = uint_type(&instructions)?;
    let scope = *words.get(3).ok_or("a module without a bound")?;
    let mut out = words[..HEADER_WORDS].to_vec();
    out[3] = scope + 1;
    for i in instructions {
        let at = out.len();
        out.extend_from_slice(i);
        if is_atomic(i) {
            // A store has no type and no result before its pointer.
            let operand = if opcode(i) == OP_ATOMIC_STORE { 2 } else { 4 };
            *out.get_mut(at + operand).ok_or("a malformed atomic operation")? = scope;
        }
        if opcode(i) == OP_TYPE_INT && i.get(1) == Some(&uint) {
            out.extend([4 << 16 | u32::from(OP_CONSTANT), uint, scope, SCOPE_QUEUE_FAMILY]);
        }
    }
    Ok(out)
}
