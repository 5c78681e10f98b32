//! Corrects scope and memory semantics of SPIR-V barriers.
//!
//! naga gives subgroup barriers only the semantics `SubgroupMemory`, which has no effect in Vulkan: lanes of a subgroup
//! might not see each other's writes to workgroup memory. naga gives storage barriers device scope, which modules with
//! cooperative matrices may use only with an extra feature. WGSL defines workgroup scope for them.

use std::collections::BTreeMap;

use super::{HEADER_WORDS, OP_TYPE_INT, instructions, opcode, uint_type};

const OP_CONSTANT: u16 = 43;
const OP_CONTROL_BARRIER: u16 = 224;
const SCOPE_WORKGROUP: u32 = 2;
const SCOPE_SUBGROUP: u32 = 3;
/// Memory semantics AcquireRelease and WorkgroupMemory of SPIR-V.
const SEMANTICS: u32 = 0x8 | 0x100;

/// Gives subgroup barriers the memory semantics of workgroup memory, and other barriers the memory scope of the
/// workgroup.
///
/// # Errors
/// If the module is malformed.
pub(super) fn repair(words: &[u32]) -> Result<Vec<u32>, String> {
    let instructions = instructions(words)?;
    if !instructions.iter().any(|i| opcode(i) == OP_CONTROL_BARRIER) {
        return Ok(words.to_vec());
    }
    let uint = uint_type(&instructions)?;
    let values: BTreeMap<u32, u32> = instructions
        .iter()
        .filter_map(|i| match (opcode(i), *i) {
            (OP_CONSTANT, [_, ty, id, value]) if *ty == uint => Some((*id, *value)),
            _ => None,
        })
        .collect();
    let of_subgroup = |i: &[u32]| {
        opcode(i) == OP_CONTROL_BARRIER && i.get(1).and_then(|id| values.get(id)) == Some(&SCOPE_SUBGROUP)
    };
    let workgroup = values.iter().find(|(_, value)| **value == SCOPE_WORKGROUP).map(|(id, _)| *id);
    let mut bound = *words.get(3).ok_or("a module without a bound")?;
    let subgroups = instructions.iter().any(|i| of_subgroup(i));
    let known = values.iter().find(|(_, value)| **value == SEMANTICS).map(|(id, _)| *id);
    let semantics = known.unwrap_or(bound);
    let mut out = words[..HEADER_WORDS].to_vec();
    for i in instructions {
        match i {
            [first, scope, memory, _] if of_subgroup(i) => out.extend([*first, *scope, *memory, semantics]),
            [first, scope, _, semantics] if opcode(i) == OP_CONTROL_BARRIER && Some(*scope) == workgroup => {
                out.extend([*first, *scope, *scope, *semantics]);
            }
            _ => out.extend_from_slice(i),
        }
        if subgroups && known.is_none() && opcode(i) == OP_TYPE_INT && i.get(1) == Some(&uint) {
            out.extend([4 << 16 | u32::from(OP_CONSTANT), uint, semantics, SEMANTICS]);
            bound += 1;
        }
    }
    out[3] = bound;
    Ok(out)
}
